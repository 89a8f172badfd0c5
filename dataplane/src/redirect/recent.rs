//! The SYNs that were accepted here recently. They stand in for a check of SYN cookies.
//!
//! When a listener's queue is full, the kernel answers a SYN with a cookie and forgets it. The ACK that
//! completes the handshake then finds no socket, and the kernel offers user space no way to check a cookie.
//! If that ACK were forwarded, it would reach a host with another secret and be answered with RST.
//!
//! But every SYN passes this redirector first, and the connection that it opens can exist on no other host.
//! So it is enough to remember the SYN: a segment that continues from the sequence number of a SYN accepted
//! here belongs here. Before it receives another packet from this host, the client may send up to the window
//! of the SYN-ACK; that window is never scaled (RFC 7323 §2.2), hence the 65,535 octets of [`continues`]. If
//! the kernel has dropped the connection meanwhile, it answers RST itself, as the host that owns the
//! connection should.
//!
//! The memory is a fixed table of words, indexed by a keyed hash of the flow; the newest entry wins. A flood
//! that fills the table within one round trip breaks the handshakes of that time, as would always happen
//! without this table; established connections are not affected.
//!
//! With a kernel program the table is an array map of that program, and both read and write it: either may
//! see the SYN, and the other what follows. The program, too, uses this table instead of the kernel's own
//! cookie check: containers on one kernel share its secret, and each would accept the others' cookies as its
//! own.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use common::flow::{FlowKey, HashFields};
use common::hash::SipKey;

use super::inner::{Flow, Segment};
use crate::host::sys::bpf::Words;

/// Number of entries (2 MiB). At 100,000 SYNs per second an entry is overwritten after about two seconds.
pub(crate) const WORDS: usize = 1 << 18;
/// Lifetime of an entry in seconds. Linux accepts a cookie for at most two minutes (MAX_SYNCOOKIE_AGE), and
/// at least for one minute.
const SECONDS: u64 = 60;
/// All fields of a flow, in the order in which the kernel program hashes them: client first, then service.
const FIELDS: HashFields = HashFields::DEFAULT.with(HashFields::DST_ADDR).with(HashFields::DST_PORT);

/// Shared by all workers and the kernel program: a SYN and its ACK may come from different directors.
#[derive(Debug)]
pub(super) struct RecentSyns {
    words: ArcSwap<Storage>,
    key: SipKey,
    /// Time 0 of the workers' milliseconds, on the clock that the kernel program reads (CLOCK_MONOTONIC).
    start: Duration,
}

/// Words of: tag (24 bits) ‖ second of arrival (8) ‖ initial sequence number (32). 0 is empty.
#[derive(Debug)]
enum Storage {
    /// Memory of this process.
    Private(Box<[AtomicU64]>),
    /// The array map of a kernel program.
    Shared(Words),
}

impl Storage {
    fn words(&self) -> &[AtomicU64] {
        match self {
            Self::Private(words) => words,
            Self::Shared(words) => words,
        }
    }
}

impl RecentSyns {
    /// An empty table. Milliseconds count from `start`, a time of the monotonic clock.
    pub(super) fn new(start: Duration) -> Self {
        let random = RandomState::new();
        let mut key = [0; 16];
        for (number, half) in key.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *half = random.hash_one(number).to_le_bytes();
        }
        let words = Storage::Private((0..WORDS).map(|_| AtomicU64::new(0)).collect());
        Self { words: ArcSwap::from_pointee(words), key: SipKey::new(key), start }
    }

    /// The hash key, for the kernel program.
    pub(super) const fn key(&self) -> SipKey {
        self.key
    }

    /// Moves the table into the memory of a kernel program, which has at least [`WORDS`] words and is not
    /// attached yet.
    pub(super) fn share(&self, words: Words) {
        for (to, from) in words.iter().zip(self.words.load().words()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.words.store(Storage::Shared(words).into());
    }

    /// Stores a SYN that was accepted.
    pub(super) fn remember(&self, flow: &Flow, sequence: u32, now_ms: u64) {
        let (index, tag) = self.index_and_tag(flow);
        let word = (tag << 40) | (self.second(now_ms) << 32) | u64::from(sequence);
        if let Some(slot) = self.words.load().words().get(index) {
            slot.store(word, Ordering::Relaxed);
        }
    }

    /// Whether `segment` can complete the handshake of a SYN that was accepted here, or be sent right after
    /// it.
    pub(super) fn completes_handshake(&self, flow: &Flow, segment: Segment, now_ms: u64) -> bool {
        let (index, tag) = self.index_and_tag(flow);
        let word = self.words.load().words().get(index).map_or(0, |slot| slot.load(Ordering::Relaxed));
        // The kernel program may have read its clock slightly later than this thread.
        let age = self.second(now_ms).wrapping_sub(word >> 32).wrapping_add(1) & 0xff;
        #[expect(clippy::cast_possible_truncation, reason = "the low half of the word")]
        let initial = word as u32;
        segment.flags.acknowledges()
            && word >> 40 == tag
            && age <= SECONDS + 1
            && continues(initial, segment.sequence)
    }

    fn index_and_tag(&self, flow: &Flow) -> (usize, u64) {
        let ports = Some((flow.remote.port(), flow.local.port()));
        let key = FlowKey { src_addr: flow.remote.ip(), dst_addr: flow.local.ip(), ports };
        let hash = key.hash(self.key, FIELDS).0;
        #[expect(clippy::cast_possible_truncation, reason = "masked to the table's size")]
        let index = hash as usize & (WORDS - 1);
        // The tag is never 0, so that no flow matches an empty word.
        (index, (hash >> 40) | 1)
    }

    fn second(&self, now_ms: u64) -> u64 {
        (self.start + Duration::from_millis(now_ms)).as_secs() & 0xff
    }
}

/// Whether `sequence` is within one unscaled window after a SYN with sequence number `initial`. The first
/// octet after a SYN has its sequence number plus one.
const fn continues(initial: u32, sequence: u32) -> bool {
    sequence.wrapping_sub(initial).wrapping_sub(1) <= 65_535
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::bind::Protocol;

    const ACK: u8 = 0x10;

    fn flow(port: u16) -> Flow {
        Flow {
            protocol: Protocol::Tcp,
            local: "203.0.113.10:443".parse().unwrap(),
            remote: ([198, 51, 100, 7], port).into(),
        }
    }

    #[test]
    fn the_first_flight_after_a_syn_fits_and_nothing_else() {
        let syns = RecentSyns::new(Duration::from_millis(1_700));
        for initial in [0, 7, u32::MAX] {
            syns.remember(&flow(1), initial, 5_000);
            let at = |offset: u32| Segment::new(initial.wrapping_add(offset), ACK);
            assert!(syns.completes_handshake(&flow(1), at(1), 5_000));
            assert!(syns.completes_handshake(&flow(1), at(65_536), 5_000));
            assert!(!syns.completes_handshake(&flow(1), at(65_537), 5_000));
            assert!(!syns.completes_handshake(&flow(1), at(0), 5_000));
            assert!(!syns.completes_handshake(&flow(2), at(1), 5_000));
        }
    }

    #[test]
    fn only_an_acknowledgement_completes_a_handshake() {
        let syns = RecentSyns::new(Duration::from_millis(1_700));
        syns.remember(&flow(1), 10, 0);
        for flags in 0..=u8::MAX {
            let acknowledges = flags & 0x10 != 0 && flags & 0x06 == 0;
            assert_eq!(
                syns.completes_handshake(&flow(1), Segment::new(11, flags), 0),
                acknowledges,
                "{flags:#04x}"
            );
        }
    }

    #[test]
    fn a_syn_is_valid_for_a_minute_also_when_its_clock_wraps() {
        let syns = RecentSyns::new(Duration::from_millis(1_700));
        for then in [0, 250_000, 255_999, 1_000_000_000] {
            syns.remember(&flow(1), 10, then);
            assert!(syns.completes_handshake(&flow(1), Segment::new(11, ACK), then + 60_000));
            assert!(!syns.completes_handshake(&flow(1), Segment::new(11, ACK), then + 61_000));
        }
    }

    /// The kernel program may have read the clock slightly later than this thread.
    #[test]
    fn a_syn_of_the_next_second_is_valid() {
        let syns = RecentSyns::new(Duration::from_millis(1_700));
        syns.remember(&flow(1), 10, 6_300);
        assert!(syns.completes_handshake(&flow(1), Segment::new(11, ACK), 6_299));
        assert!(!syns.completes_handshake(&flow(1), Segment::new(11, ACK), 5_299));
    }

    #[test]
    fn the_kernel_program_uses_the_same_lifetime() {
        let header = include_str!("../../bpf/redirect_abi.h");
        assert!(header.contains(&format!("\tRECENT_SECONDS = {SECONDS},\n")));
    }

    #[test]
    fn an_empty_table_matches_nothing() {
        let syns = RecentSyns::new(Duration::from_millis(1_700));
        assert!((0..=u16::MAX).all(|port| !syns.completes_handshake(&flow(port), Segment::new(1, ACK), 0)));
    }
}
