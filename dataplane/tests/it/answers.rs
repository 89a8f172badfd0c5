//! "Too big" and echo replies, field by field.

use dataplane::pipeline::{Answer, DropReason, Echo, Verdict};

use crate::support::{
    frames::{V4, V6, icmp, icmpv6, tcp},
    judge::{check_answer, read, run},
    vectors::{ALT, CLIENT, CLIENT6, PIPELINE, WEB, WEB6, with_echo, with_mtu},
};

fn payload(len: usize) -> Vec<u8> {
    segment(51_234, len)
}

fn segment(port: u16, len: usize) -> Vec<u8> {
    tcp(port, 443, 16, &vec![b'x'; len - 20])
}

/// A client port whose flow to `ALT` has the most hops: three after the primary.
fn port_of_four_hops() -> u16 {
    let hops =
        |port| read(&run(&PIPELINE, &V4::new(CLIENT, ALT, 6).frame(&segment(port, 20))).frame).hops.len();
    (1..1_000).find(|port| hops(*port) == 3).unwrap()
}

fn too_big(frame: &[u8]) -> Vec<u8> {
    let outcome = run(&PIPELINE, frame);
    assert!(
        matches!(outcome.verdict, Verdict::Answer { answer: Answer::TooBig, .. }),
        "{:?}",
        outcome.verdict
    );
    check_answer(frame, &outcome.frame)
}

/// 1,500 octets with DF and identification 0x1234: two hops leave 1,460, four leave 1,452.
#[test]
fn the_mtu_that_fits() {
    for (vip, mtu) in [(WEB, 1_460_u16), (ALT, 1_452), ("203.0.113.30", 1_428)] {
        let port = if vip == ALT { port_of_four_hops() } else { 51_234 };
        let frame = V4::new(CLIENT, vip, 6).frame(&segment(port, 1_480));
        let message = too_big(&frame);
        assert_eq!(message[..2], [3, 4], "{vip}");
        assert_eq!(message[4..8], [&[0, 0], &mtu.to_be_bytes()[..]].concat(), "{vip}");
        // 576 octets in all, and the quote starts as the packet did.
        assert_eq!(message[8..], frame[14..14 + 548], "{vip}");
        let fitting = V4::new(CLIENT, vip, 6).frame(&segment(port, usize::from(mtu) - 20));
        assert!(
            matches!(run(&PIPELINE, &fitting).verdict, Verdict::Encapsulate(_)),
            "{vip}: what was said to fit fits"
        );
    }
    for (vip, mtu) in [(WEB6, 1_460_u32), ("2001:db8::30", 1_428)] {
        let frame = V6::new(CLIENT6, vip, 6).frame(&payload(1_460));
        let message = too_big(&frame);
        assert_eq!(message[..2], [2, 0], "{vip}");
        assert_eq!(message[4..8], mtu.to_be_bytes(), "{vip}");
        assert_eq!(message[8..], frame[14..14 + 1_232], "{vip}: 1,280 octets in all");
        let fitting = V6::new(CLIENT6, vip, 6).frame(&payload(usize::try_from(mtu).unwrap() - 40));
        assert!(
            matches!(run(&PIPELINE, &fitting).verdict, Verdict::Encapsulate(_)),
            "{vip}: what was said to fit fits"
        );
    }
}

/// IPv6 has no MTU below 1,280, and a packet of 1,280 must not be answered with its own length. An IPv4
/// client gets the MTU that fits. Two hops add 40 octets over IPv4 and 72 over IPv6.
#[test]
fn no_ipv6_client_is_told_less_than_1280() {
    for (vip, vip4, overhead) in [(WEB6, WEB, 40), ("2001:db8::30", "203.0.113.30", 72)] {
        for fits in [536_u16, 1_228, 1_240, 1_279, 1_280, 1_281, 1_400] {
            let pipeline = with_mtu(fits + overhead);
            for len in [1_281, 1_500].map(|len| len.max(usize::from(fits) + 1)) {
                let frame = V6::new(CLIENT6, vip, 6).frame(&payload(len - 40));
                let outcome = run(&pipeline, &frame);
                if fits < 1_280 {
                    assert_eq!(outcome.verdict, Verdict::Drop(DropReason::TooBig), "{vip} {fits} {len}");
                } else {
                    let message = check_answer(&frame, &outcome.frame);
                    assert_eq!(message[4..8], u32::from(fits).to_be_bytes(), "{vip} {fits} {len}");
                }
                let frame = V4::new(CLIENT, vip4, 6).frame(&payload(len - 20));
                let message = check_answer(&frame, &run(&pipeline, &frame).frame);
                assert_eq!(message[6..8], fits.to_be_bytes(), "{vip4} {fits} {len}");
            }
        }
    }
}

#[test]
fn the_largest_header_is_quoted_with_its_ports() {
    let frame = V4 { options: vec![1; 40], ..V4::new(CLIENT, WEB, 6) }.frame(&payload(1_440));
    let message = too_big(&frame);
    assert_eq!(message[8..8 + 68], frame[14..14 + 68]);
}

#[test]
fn answers_are_counted_as_drops_too() {
    use dataplane::pipeline::Counters;
    let mut counters = Counters::new(&PIPELINE);
    counters.count(&run(&PIPELINE, &V4::new(CLIENT, WEB, 6).frame(&payload(1_480))).verdict);
    assert_eq!((counters.dropped(DropReason::TooBig), counters.answered(Answer::TooBig)), (1, 1));
}

#[test]
fn echo_replies() {
    let pipeline = with_echo(Echo::Answer);
    for len in [0, 1, 2, 55, 56, 1_400] {
        let data: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
        let rest = [0xbe, 0xef, 0, 9];
        let v4 = V4 { options: vec![1; 4], ..V4::new(CLIENT, WEB, 1) }.frame(&icmp(8, 0, rest, &data));
        let v6 = V6::new(CLIENT6, WEB6, 58).frame(&icmpv6(CLIENT6, WEB6, 128, rest, &data));
        for (frame, kind) in [(v4, 0), (v6, 129)] {
            let message = check_answer(&frame, &run(&pipeline, &frame).frame);
            assert_eq!(message[..2], [kind, 0]);
            assert_eq!(message[4..8], rest);
            assert_eq!(message[8..], data);
        }
    }
}

/// RFC 792 and 1071: the sum of the reply is zero, so its checksum is 0xffff. Only that is accepted by a
/// receiver that sums the reply with its checksum and expects 0xffff.
#[test]
fn the_reply_of_zeros_has_the_checksum_ffff() {
    let pipeline = with_echo(Echo::Answer);
    for len in [0, 1, 2, 56, 1_400] {
        let request = icmp(8, 0, [0; 4], &vec![0; len]);
        assert_eq!(request[2..4], [0xf7, 0xff]);
        let frame = V4::new(CLIENT, WEB, 1).frame(&request);
        let message = check_answer(&frame, &run(&pipeline, &frame).frame);
        assert_eq!(message[..4], [0, 0, 0xff, 0xff], "{len} octets");
        assert!(message[4..].iter().all(|octet| *octet == 0));
    }
    // Other octets with the same sum: their checksum is the other zero.
    for rest in [[0xff, 0xff, 0, 0], [0, 1, 0xff, 0xfe], [0x80, 0, 0x7f, 0xff]] {
        let frame = V4::new(CLIENT, WEB, 1).frame(&icmp(8, 0, rest, b""));
        assert_eq!(check_answer(&frame, &run(&pipeline, &frame).frame)[..4], [0, 0, 0, 0], "{rest:?}");
    }
}

/// RFC 6864 §4: a datagram that may be fragmented needs an identification of its own, and one with DF needs
/// none.
#[test]
fn answers_have_df_or_an_identification_of_their_own() {
    let pipeline = with_echo(Echo::Answer);
    let words = |frame: &[u8]| <[u8; 4]>::try_from(&frame[18..22]).unwrap();
    for (identification, fragment, expected) in [
        (0, 0x4000, [0, 0, 0x40, 0]),
        (0x1234, 0x4000, [0x12, 0x34, 0x40, 0]),
        (0x1234, 0, [0x12, 0x34, 0, 0]),
        (0xffff, 0x8000, [0xff, 0xff, 0, 0]),
        // The reply's ICMP checksum: ~(7 + 1 + 0x7069 + 0x6e67).
        (0, 0, [0x21, 0x27, 0, 0]),
        (0, 0x8000, [0x21, 0x27, 0, 0]),
    ] {
        let request = V4 { identification, fragment, ..V4::new(CLIENT, WEB, 1) };
        let frame = request.frame(&icmp(8, 0, [0, 7, 0, 1], b"ping"));
        assert_eq!(words(&run(&pipeline, &frame).frame), expected);
    }
    let of = |port| words(&run(&PIPELINE, &V4::new(CLIENT, WEB, 6).frame(&segment(port, 1_480))).frame);
    let (first, second) = (of(1), of(2));
    assert!(first != second && first[..2] != [0, 0] && first[2..] == [0, 0], "{first:?} {second:?}");
    assert_eq!(first, of(1), "equal frames have equal answers");
}

/// A reply with a right checksum to a request with a wrong one would hide the error.
#[test]
fn a_wrong_echo_checksum_stays_wrong() {
    let pipeline = with_echo(Echo::Answer);
    for bit in 0..16 {
        let mut message = icmp(8, 0, [0, 1, 0, 2], b"ping");
        message[2 + bit / 8] ^= 1 << (bit % 8);
        let frame = V4::new(CLIENT, WEB, 1).frame(&message);
        let outcome = run(&pipeline, &frame);
        let broken = std::panic::catch_unwind(|| check_answer(&frame, &outcome.frame));
        assert!(broken.is_err(), "bit {bit}");
    }
}
