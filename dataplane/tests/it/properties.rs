//! Random frames: nothing panics, and all output is valid.

use dataplane::pipeline::{Answer, Echo, Pipeline, Verdict};
use proptest::prelude::*;

use crate::support::{
    judge::{check_answer, read, run},
    vectors::{PIPELINE, Vector, all, with_echo},
};

fn check(pipeline: &Pipeline, frame: &[u8]) {
    let outcome = run(pipeline, frame);
    match outcome.verdict {
        Verdict::Encapsulate(_) | Verdict::Local(_) => {
            let read = read(&outcome.frame);
            let found = frame.windows(read.inner.len()).any(|window| window == read.inner);
            assert!(found, "the packet is in the frame");
        }
        Verdict::Answer { answer: Answer::TooBig, .. } => {
            check_answer(frame, &outcome.frame);
        }
        // The checksum of an echo reply is as wrong as that of the request.
        Verdict::Answer { answer: Answer::Echo, .. } | Verdict::Pass(_) | Verdict::Drop(_) => {}
    }
}

fn any_vector() -> impl Strategy<Value = Vector> {
    let vectors = all();
    (0..vectors.len()).prop_map(move |at| vectors[at].clone())
}

/// Restores a right header checksum, so that mutations pass its check.
fn repair(frame: &mut [u8]) {
    let Some(header) = frame.get_mut(14..).filter(|ip| ip.len() >= 20 && ip[0] >> 4 == 4) else { return };
    let len = usize::from(header[0] & 15) * 4;
    if let Some(header) = header.get_mut(..len.max(20)) {
        header[10..12].fill(0);
        let sum = crate::support::frames::checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_octets(frame in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&PIPELINE, &frame);
    }

    #[test]
    fn random_packets(frame in prop::collection::vec(any::<u8>(), 0..2_000), v6: bool) {
        let ether_type = if v6 { [0x86, 0xdd] } else { [8, 0] };
        let version = if v6 { 0x60 } else { 0x45 };
        check(&PIPELINE, &[&[2; 12], &ether_type[..], &[version], &frame].concat());
    }

    #[test]
    fn mutated_vectors(
        vector in any_vector(),
        edits in prop::collection::vec((0..120_usize, any::<u8>()), 1..4),
        cut in 0..2_000_usize,
        repaired: bool,
    ) {
        let mut frame = vector.frame.clone();
        for (at, octet) in edits {
            if let Some(place) = frame.get_mut(at) {
                *place = octet;
            }
        }
        if cut < 100 {
            frame.truncate(frame.len().saturating_sub(cut));
        }
        if repaired {
            repair(&mut frame);
        }
        for echo in [Echo::Forward, Echo::Answer] {
            check(&with_echo(echo), &frame);
        }
    }
}
