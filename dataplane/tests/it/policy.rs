//! Checks every vector with a second reader, and that the vectors cover every reason.

use std::{collections::HashSet, net::IpAddr};

use dataplane::pipeline::{Answer, Counters, DropReason, Echo, PassReason, Pipeline, Verdict};

use crate::support::{
    frames::{V4, link_len, tcp},
    judge::{Outcome, check_answer, read, run},
    tables::{SOURCE_V4, SOURCE_V6},
    vectors::{CLIENT, Expect, LINK, PIPELINE, Vector, WEB, all, expected_hops, with_echo},
};

/// The packet in a frame that starts with at most two tags, without padding.
fn inner(frame: &[u8]) -> &[u8] {
    let packet = &frame[link_len(frame)..];
    let word = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    if packet[0] >> 4 == 4 { &packet[..word(2)] } else { &packet[..40 + word(4)] }
}

fn check_sent(
    pipeline: &Pipeline,
    vector: &Vector,
    outcome: &Outcome,
    table: &str,
    hashed: &[u8],
    client_port: u16,
) {
    let name = vector.name;
    let (at, hops, hash) = expected_hops(pipeline, table, hashed);
    let (Verdict::Encapsulate(done) | Verdict::Local(done)) = outcome.verdict else {
        panic!("{name}: {:?}", outcome.verdict)
    };
    assert_eq!(usize::from(done.primary.table), at, "{name}: table");
    let read = read(&outcome.frame);
    let backend = &pipeline.forwarding().tables()[at].backends[usize::from(done.primary.backend)];
    assert_eq!((backend.address, read.primary), (hops[0], hops[0]), "{name}: primary");
    let mut followers = hops[1..].to_vec();
    if table == "alt" {
        followers.extend(expected_hops(pipeline, table, &hashed[..hashed.len() - 2]).1);
    }
    followers.retain(|hop| hop.is_ipv4() == read.primary.is_ipv4());
    assert_eq!(read.hops, followers, "{name}: hops");
    let source = if read.primary.is_ipv4() { IpAddr::from(SOURCE_V4) } else { SOURCE_V6.into() };
    assert_eq!(read.source, source, "{name}: source");
    assert_eq!(u64::from(read.port), 0x8000 | ((hash ^ u64::from(client_port)) & 0x7fff), "{name}: port");
    assert_eq!(read.inner, inner(&vector.frame), "{name}: the packet is unchanged and not padded");
    if matches!(outcome.verdict, Verdict::Encapsulate(_)) {
        assert_eq!([&outcome.frame[..6], &outcome.frame[6..12]], LINK, "{name}: link");
    }
}

fn check(pipeline: &Pipeline, vector: &Vector) {
    let outcome = run(pipeline, &vector.frame);
    let name = vector.name;
    match &vector.expect {
        Expect::Sent { table, hashed, client_port } => {
            assert!(matches!(outcome.verdict, Verdict::Encapsulate(_)), "{name}: {:?}", outcome.verdict);
            check_sent(pipeline, vector, &outcome, table, hashed, *client_port);
        }
        Expect::Local { table, hashed, client_port } => {
            assert!(matches!(outcome.verdict, Verdict::Local(_)), "{name}: {:?}", outcome.verdict);
            check_sent(pipeline, vector, &outcome, table, hashed, *client_port);
        }
        Expect::Pass(reason) => assert_eq!(outcome.verdict, Verdict::Pass(*reason), "{name}"),
        Expect::Drop(reason) => assert_eq!(outcome.verdict, Verdict::Drop(*reason), "{name}"),
        Expect::Answer(expected) => {
            let Verdict::Answer { answer, .. } = outcome.verdict else {
                panic!("{name}: {:?}", outcome.verdict)
            };
            assert_eq!(answer, *expected, "{name}");
            check_answer(&vector.frame, &outcome.frame);
        }
    }
}

#[test]
fn every_vector() {
    let pipelines = [Echo::Forward, Echo::Pass, Echo::Answer].map(|echo| (echo, with_echo(echo)));
    for vector in all() {
        let (_, pipeline) = pipelines.iter().find(|(echo, _)| *echo == vector.echo).unwrap();
        check(pipeline, &vector);
    }
}

#[test]
fn names_are_unique() {
    let vectors = all();
    let names: HashSet<_> = vectors.iter().map(|v| v.name).collect();
    assert_eq!(names.len(), vectors.len());
}

/// `NoRoom` has a separate test, the next one: it depends on the buffer and not on the frame.
#[test]
fn every_reason_has_a_vector_and_a_counter() {
    let mut counters = Counters::new(&PIPELINE);
    let vectors = all();
    for vector in &vectors {
        counters.count(&run(&with_echo(vector.echo), &vector.frame).verdict);
    }
    for reason in PassReason::ALL {
        assert!(counters.passed(*reason) > 0, "{reason:?}");
    }
    for reason in DropReason::ALL.iter().filter(|r| **r != DropReason::NoRoom) {
        assert!(counters.dropped(*reason) > 0, "{reason:?}");
    }
    for answer in Answer::ALL {
        assert!(counters.answered(*answer) > 0, "{answer:?}");
    }
    assert_eq!(counters.frames, u64::try_from(vectors.len()).unwrap());
    let by_backend: u64 = (0..PIPELINE.forwarding().tables().len()).flat_map(|t| counters.backends(t)).sum();
    assert_eq!(by_backend, counters.encapsulated + counters.local);
    let mut twice = counters.clone();
    twice.merge(&counters);
    assert_eq!(
        (twice.frames, twice.dropped(DropReason::TooBig)),
        (counters.frames * 2, counters.dropped(DropReason::TooBig) * 2)
    );
}

#[test]
fn a_buffer_that_is_too_small() {
    let frame = V4::new(CLIENT, WEB, 6).frame(&tcp(1, 443, 2, b""));
    let needed = run(&PIPELINE, &frame).frame.len();
    for room in 0..needed {
        let mut out = vec![0; room];
        assert_eq!(PIPELINE.process(&frame, &mut out), Verdict::Drop(DropReason::NoRoom), "room {room}");
    }
    assert!(matches!(PIPELINE.process(&frame, &mut vec![0; needed]), Verdict::Encapsulate(_)));
}

/// A truncated frame to a VIP is never encapsulated, because it does not contain the whole packet.
#[test]
fn every_cut_of_every_vector() {
    for vector in all() {
        let pipeline = with_echo(vector.echo);
        let Expect::Sent { .. } = vector.expect else {
            for cut in 0..vector.frame.len() {
                run(&pipeline, &vector.frame[..cut]);
            }
            continue;
        };
        let whole = vector.frame.len() - padding(&vector.frame);
        for cut in (0..whole.min(200)).chain([whole - 1]) {
            let verdict = run(&pipeline, &vector.frame[..cut]).verdict;
            let expected = [Verdict::Drop(DropReason::Truncated), Verdict::Pass(PassReason::Malformed)];
            assert!(expected.contains(&verdict), "{} cut to {cut}: {verdict:?}", vector.name);
        }
    }
}

fn padding(frame: &[u8]) -> usize {
    let inner = inner(frame);
    frame.len() - (inner.as_ptr() as usize - frame.as_ptr() as usize) - inner.len()
}

#[test]
fn ecn_is_copied_and_dscp_is_not() {
    use crate::support::{
        frames::V6,
        vectors::{CLIENT6, WEB6},
    };
    for traffic_class in 0..=u8::MAX {
        let segment = tcp(1, 443, 2, b"");
        let v4 = V4 { traffic_class, ..V4::new(CLIENT, WEB, 6) }.frame(&segment);
        let v6 = V6 { traffic_class, ..V6::new(CLIENT6, WEB6, 6) }.frame(&segment);
        let over_v6 = V4 { traffic_class, ..V4::new(CLIENT, "203.0.113.30", 6) }.frame(&segment);
        for frame in [v4, v6, over_v6] {
            assert_eq!(
                read(&run(&PIPELINE, &frame).frame).traffic_class,
                traffic_class & 3,
                "{traffic_class:02x}"
            );
        }
    }
}

#[test]
fn all_fragments_of_a_datagram_take_the_same_path() {
    let mut ways = HashSet::new();
    for offset in [0, 185, 370] {
        let word = if offset == 370 { offset } else { offset | 0x2000 };
        let frame = V4 { protocol: 17, fragment: word, ..V4::new(CLIENT, "203.0.113.20", 17) }
            .frame(&[offset.to_le_bytes()[0]; 1_400]);
        let read = read(&run(&PIPELINE, &frame).frame);
        ways.insert((read.primary, read.hops, read.port));
    }
    assert_eq!(ways.len(), 1);
}

#[test]
fn tables_of_two_families_are_known() {
    let names: Vec<_> =
        PIPELINE.mixed_tables().map(|at| PIPELINE.forwarding().tables()[at].name.as_str()).collect();
    assert_eq!(names, ["mixed"]);
}
