//! The table of vectors, with the program as the second judge.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use common::bind::Protocol;

use dataplane::pipeline::{Pipeline, Verdict};
use dataplane::xdp::{Director, Left};

use crate::judge::{INGRESS, PASS, REDIRECT, SHORTEST, TX, compare, less, load, only_reason};
use crate::support::{
    frames::{V4, V6, ethernet, tcp},
    tables::{GATEWAY_MAC, TableSpec, bind, pipeline},
    vectors::{CLIENT, CLIENT6, PIPELINE, WEB, all},
};

/// What the program may do with a frame, counted as it should be.
fn check(name: &str, pipeline: &Pipeline, director: &Director, frame: &[u8]) -> (Verdict, u32) {
    let before = director.counts().unwrap();
    let (verdict, action) = compare(name, pipeline, director, frame);
    let counted = less(&director.counts().unwrap(), &before);
    if action == PASS {
        assert!(only_reason(&counted).is_some(), "{name}: {counted:?}");
        return (verdict, action);
    }
    let Verdict::Encapsulate(done) = verdict else { unreachable!("compare has seen to it") };
    let tables = pipeline.forwarding().tables();
    let before: usize = tables[..usize::from(done.table)].iter().map(|table| table.backends.len()).sum();
    assert_eq!(counted.primaries[before + usize::from(done.backend)], 1, "{name}: primary");
    assert_eq!((counted.encapsulated(), counted.left.iter().sum::<u64>()), (1, 0), "{name}");
    (verdict, action)
}

#[test]
fn every_vector_gets_the_same_octets_or_is_left_alone() {
    let Some(director) = load(&PIPELINE, INGRESS) else { return };
    let (mut sent, mut left) = (0, Vec::new());
    for vector in all() {
        if vector.frame.len() < SHORTEST {
            eprintln!("{}: too short for a test run, judged by the pipeline alone", vector.name);
            continue;
        }
        let (verdict, action) = check(vector.name, &PIPELINE, &director, &vector.frame);
        match (verdict, action) {
            (Verdict::Encapsulate(_), TX) => sent += 1,
            (Verdict::Encapsulate(_), _) => left.push(vector.name),
            _ => assert_eq!(action, PASS, "{}", vector.name),
        }
    }
    eprintln!("{sent} vectors sent by the program; left though the pipeline sends them: {left:?}");
    for plain in ["v4_syn", "v4_udp", "v4_second_look_up", "v6_syn", "vlan", "padding", "fits_exactly"] {
        assert!(!left.contains(&plain), "{plain} is plain");
    }
    assert!(sent >= 15, "{sent}");
}

#[test]
fn another_interface_is_redirected_to() {
    let Some(director) = load(&PIPELINE, INGRESS + 1) else { return };
    let frame = V4::new(CLIENT, WEB, 6).frame(&tcp(1, 443, 2, b""));
    assert_eq!(check("redirect", &PIPELINE, &director, &frame).1, REDIRECT);
}

#[test]
fn every_reason_is_reached() {
    let Some(director) = load(&PIPELINE, INGRESS) else { return };
    let packet = V4::new(CLIENT, WEB, 6).packet(&tcp(1, 443, 2, b""));
    for vector in all().iter().filter(|vector| vector.frame.len() >= SHORTEST) {
        check(vector.name, &PIPELINE, &director, &vector.frame);
    }
    check("two tags", &PIPELINE, &director, &ethernet(&[0x88a8, 0x8100, 0x0800], &packet));
    check("cut in the ports", &PIPELINE, &director, &ethernet(&[0x0800], &packet[..22]));
    let counts = director.counts().unwrap();
    let reached: HashSet<_> = Left::ALL.iter().filter(|reason| counts.left(**reason) > 0).collect();
    // A driver without room in front of the frame cannot be had in a test run.
    let missing: Vec<_> = Left::ALL.iter().filter(|reason| !reached.contains(reason)).collect();
    assert_eq!(missing, [&Left::NoRoom]);
}

/// The most that the kernel has to verify: every length of prefix of both families.
#[test]
fn every_prefix_length_at_once() {
    let mut binds = Vec::new();
    for bits in 0..=32_u32 {
        let address = u32::from_be_bytes([203, 0, 113, 255]) & u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        let prefix = format!("{}/{bits}", Ipv4Addr::from_bits(address));
        binds.push(bind(&prefix, Protocol::Tcp, u16::try_from(bits).unwrap(), 1_000));
    }
    for bits in 0..=128_u32 {
        let all = u128::from_be_bytes([0x20; 16]);
        let address = all & u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        let prefix = format!("{}/{bits}", Ipv6Addr::from_bits(address));
        binds.push(bind(&prefix, Protocol::Tcp, u16::try_from(bits).unwrap(), 1_000));
    }
    let pipeline = pipeline(vec![TableSpec::new("all", binds, &["10.0.0.1", "10.0.0.2"]).build()]);
    let Some(director) = load(&pipeline, INGRESS) else { return };
    let verified = director.program().unwrap().info().unwrap().verified_instruction_count();
    eprintln!("{verified:?} instructions verified");
    for port in [0, 5, 31, 32, 33, 128, 1_000, 1_001] {
        let segment = tcp(1, port, 2, b"");
        for (v4, v6) in [("203.0.113.255", "2020:2020:2020:2020:2020:2020:2020:2020"), ("8.8.8.8", "::1")] {
            check("v4", &pipeline, &director, &V4::new(CLIENT, v4, 6).frame(&segment));
            check("v6", &pipeline, &director, &V6::new(CLIENT6, v6, 6).frame(&segment));
        }
    }
}

#[test]
fn next_hops_change_in_place() {
    let Some(mut director) = load(&PIPELINE, INGRESS) else { return };
    let frame = V4::new(CLIENT, WEB, 6).frame(&tcp(1, 443, 2, b""));
    let egress = vec![INGRESS; director.counts().unwrap().primaries.len()];
    for last in 0..10 {
        let destination = dataplane::wire::ethernet::Mac([2, 0, 0, 0, 0, last]);
        let moved =
            PIPELINE.with_routes(|_| dataplane::pipeline::Route::Via { source: GATEWAY_MAC, destination });
        director.set_hops(&moved, &egress).unwrap();
        assert_eq!(check("moved", &moved, &director, &frame).1, TX);
    }
    let lost = PIPELINE.with_routes(|_| dataplane::pipeline::Route::Unknown);
    director.set_hops(&lost, &egress).unwrap();
    assert_eq!(check("lost", &lost, &director, &frame).1, PASS);
}
