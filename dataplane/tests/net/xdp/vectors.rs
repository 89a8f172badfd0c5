//! The table of vectors, checked with the kernel program.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use common::bind::Protocol;

use dataplane::drivers::xdp::{Director, PuntReason};
use dataplane::pipeline::{NextHop, Pipeline, Verdict};

use crate::judge::{INGRESS, PASS, REDIRECT, SHORTEST, TX, compare, less, load, only_reason};
use crate::support::{
    frames::{V4, V6, ethernet, tcp, udp, unfinished},
    tables::{GATEWAY_MAC, TableSpec, bind, pipeline},
    vectors::{CLIENT, CLIENT6, DNS, DNS6, PIPELINE, WEB, WEB6, all},
};

/// Checks the program's verdict on a frame and its counters.
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
    let before: usize =
        tables[..usize::from(done.primary.table)].iter().map(|table| table.backends.len()).sum();
    assert_eq!(counted.primaries[before + usize::from(done.primary.backend)], 1, "{name}: primary");
    assert_eq!((counted.encapsulated(), counted.punted.iter().sum::<u64>()), (1, 0), "{name}");
    (verdict, action)
}

#[test]
fn every_vector_gets_the_same_octets_or_is_punted() {
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
    let client = |name: &str| name.starts_with("client_") || name.starts_with("v6_client_");
    assert!(left.iter().all(|name| !client(name)), "the program refuses clients: {left:?}");
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
    let reached: HashSet<_> = PuntReason::ALL.iter().filter(|reason| counts.punted(**reason) > 0).collect();
    // A test run cannot have a driver without room in front of the frame.
    let missing: Vec<_> = PuntReason::ALL.iter().filter(|reason| !reached.contains(reason)).collect();
    assert_eq!(missing, [&PuntReason::NoRoom]);
}

/// Only user space can finish a checksum that the sender left to its network card. A single value of the
/// field means that; with any other, including a right checksum and "none", the program sends the packet.
#[test]
fn an_unfinished_checksum_is_punted() {
    let Some(director) = load(&PIPELINE, INGRESS) else { return };
    let data = |len| vec![0x5a; len];
    for (v4, protocol, len) in
        [(true, 6, 0), (true, 6, 999), (true, 17, 5), (false, 6, 0), (false, 6, 999), (false, 17, 5)]
    {
        let (from, to) = match (v4, protocol) {
            (true, 6) => (CLIENT, WEB),
            (true, _) => (CLIENT, DNS),
            (false, 6) => (CLIENT6, WEB6),
            (false, _) => (CLIENT6, DNS6),
        };
        let segment = if protocol == 6 { tcp(1, 443, 16, &data(len)) } else { udp(1, 53, &data(len)) };
        let segment = unfinished(from, to, protocol, segment);
        let packet = match v4 {
            true => V4::new(from, to, protocol).packet(&segment),
            false => V6::new(from, to, protocol).packet(&segment),
        };
        let at = if v4 { 20 } else { 40 } + if protocol == 6 { 16 } else { 6 };
        let kind = if v4 { 0x0800 } else { 0x86dd };
        for tags in [&[kind][..], &[0x8100, kind]] {
            let mut frame = ethernet(tags, &packet);
            let at = frame.len() - packet.len() + at;
            let field = u16::from_be_bytes([frame[at], frame[at + 1]]);
            // Padding is no part of the packet.
            frame.extend([0xee; 7]);
            let before = director.counts().unwrap();
            assert_eq!(check("unfinished", &PIPELINE, &director, &frame).1, PASS, "{to} {protocol} {len}");
            let counted = less(&director.counts().unwrap(), &before);
            assert_eq!(only_reason(&counted), Some(PuntReason::Unfinished), "{to} {protocol} {len}");
            for other in
                [0, 1, field.wrapping_add(1), field.wrapping_sub(1), field.swap_bytes(), !field, 0xffff]
            {
                frame[at..at + 2].copy_from_slice(&other.to_be_bytes());
                assert_ne!(other, field, "this value is not the sum of the pseudo header");
                assert_eq!(
                    check("finished", &PIPELINE, &director, &frame).1,
                    TX,
                    "{to} {protocol} {other:04x}"
                );
            }
        }
    }
}

/// The largest program for the verifier: every prefix length of both families.
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
    for last in 0..10 {
        let destination = dataplane::wire::ethernet::Mac([2, 0, 0, 0, 0, last]);
        let link = NextHop::Link { ifindex: INGRESS, source: GATEWAY_MAC, destination };
        let moved = PIPELINE.with_next_hops(|_, _| Some(link));
        director.set_hops(&moved, |_| true).unwrap();
        assert_eq!(check("moved", &moved, &director, &frame).1, TX);
    }
    let lost = PIPELINE.with_next_hops(|_, _| None);
    director.set_hops(&lost, |_| true).unwrap();
    assert_eq!(check("lost", &lost, &director, &frame).1, PASS);
}
