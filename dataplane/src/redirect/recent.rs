//! The SYNs that were kept here lately, and why that answers for SYN cookies.
//!
//! When a listener's queue is full the kernel answers a SYN with a cookie and forgets it. The ACK that completes the
//! handshake then finds no socket, and the kernel does not tell user space whether a cookie is good. Passed on, it
//! would reach a host with another secret and be answered with RST.
//!
//! But each SYN came through here first, and the connection that it opens can live nowhere else. So it is enough to
//! remember it: a segment that carries on from the sequence number of a SYN kept here belongs here. The client may
//! send up to the window of the SYN-ACK before it hears from us again; that window is never scaled (RFC 7323 §2.2),
//! hence the 65,535 octets of [`fits`]. If the kernel has dropped the connection meanwhile, it answers RST itself,
//! which is what a host should do that owned the connection.
//!
//! A fixed table of words, indexed by a keyed hash of the flow, newest wins. A flood that fills it within one round
//! trip costs what a host without this table loses always: those handshakes, and none that has completed.
//!
//! Where a kernel program takes the plain case, the table is an array of that program, and both read and write it: either
//! may see the SYN, and the other what follows. It asks this table, too, and not the kernel whether a cookie is good: hosts
//! that are containers of one kernel share its secret, and each would take the others' cookies for its own.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use common::flow::{FlowKey, HashFields};
use common::hash::SipKey;

use super::inner::{Flow, Segment};
use crate::host::sys::bpf::Words;

/// 2 MiB. At 100,000 SYNs a second a SYN is forgotten after about two seconds.
pub(crate) const SLOTS: usize = 1 << 18;
/// Linux takes a cookie back for at most two minutes (MAX_SYNCOOKIE_AGE), and at least for one.
const SECONDS: u64 = 60;
/// All of a flow, in the order that the kernel program hashes: of client and service.
const FIELDS: HashFields = HashFields::DEFAULT.with(HashFields::DST_ADDR).with(HashFields::DST_PORT);

/// Shared by all workers and the kernel program: a SYN and its ACK may come from different directors.
#[derive(Debug)]
pub(super) struct RecentSyns {
    slots: ArcSwap<Slots>,
    key: SipKey,
    /// Of the clock that the kernel program reads (CLOCK_MONOTONIC), when milliseconds were 0.
    start: Duration,
}

/// Tag (24 bits) ‖ second it was seen (8) ‖ initial sequence number (32); 0 is empty.
#[derive(Debug)]
enum Slots {
    Own(Box<[AtomicU64]>),
    /// Of a kernel program.
    Shared(Words),
}

impl Slots {
    fn words(&self) -> &[AtomicU64] {
        match self {
            Self::Own(words) => words,
            Self::Shared(words) => words,
        }
    }
}

impl RecentSyns {
    /// Knows nothing. Milliseconds count from `start`, a time of the monotonic clock.
    pub(super) fn new(start: Duration) -> Self {
        let random = RandomState::new();
        let mut key = [0; 16];
        for (number, half) in key.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *half = random.hash_one(number).to_le_bytes();
        }
        let slots = Slots::Own((0..SLOTS).map(|_| AtomicU64::new(0)).collect());
        Self { slots: ArcSwap::from_pointee(slots), key: SipKey::new(key), start }
    }

    /// For the kernel program.
    pub(super) const fn key(&self) -> SipKey {
        self.key
    }

    /// Goes on in the memory of a kernel program, which has at least [`SLOTS`] words and is not used yet.
    pub(super) fn share(&self, words: Words) {
        for (to, from) in words.iter().zip(self.slots.load().words()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.slots.store(Slots::Shared(words).into());
    }

    pub(super) fn remember(&self, flow: &Flow, sequence: u32, now_ms: u64) {
        let (slot, tag) = self.place(flow);
        let word = (tag << 40) | (self.second(now_ms) << 32) | u64::from(sequence);
        if let Some(slot) = self.slots.load().words().get(slot) {
            slot.store(word, Ordering::Relaxed);
        }
    }

    /// May `segment` complete, or be sent right after, the handshake of a SYN that was kept here?
    pub(super) fn fits(&self, flow: &Flow, segment: Segment, now_ms: u64) -> bool {
        let (slot, tag) = self.place(flow);
        let word = self.slots.load().words().get(slot).map_or(0, |slot| slot.load(Ordering::Relaxed));
        // The kernel program may have read its clock a moment later than this thread.
        let age = self.second(now_ms).wrapping_sub(word >> 32).wrapping_add(1) & 0xff;
        #[expect(clippy::cast_possible_truncation, reason = "the low half of the word")]
        let initial = word as u32;
        segment.acknowledges() && word >> 40 == tag && age <= SECONDS + 1 && fits(initial, segment.sequence)
    }

    fn place(&self, flow: &Flow) -> (usize, u64) {
        let ports = Some((flow.remote.port(), flow.local.port()));
        let key = FlowKey { src_addr: flow.remote.ip(), dst_addr: flow.local.ip(), ports };
        let hash = key.hash(self.key, FIELDS).0;
        #[expect(clippy::cast_possible_truncation, reason = "masked to the table's size")]
        let index = hash as usize & (SLOTS - 1);
        // Never 0, so that no flow matches an empty slot.
        (index, (hash >> 40) | 1)
    }

    fn second(&self, now_ms: u64) -> u64 {
        (self.start + Duration::from_millis(now_ms)).as_secs() & 0xff
    }
}

/// The first octet after a SYN has its sequence number plus one.
const fn fits(initial: u32, sequence: u32) -> bool {
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
            assert!(syns.fits(&flow(1), at(1), 5_000));
            assert!(syns.fits(&flow(1), at(65_536), 5_000));
            assert!(!syns.fits(&flow(1), at(65_537), 5_000));
            assert!(!syns.fits(&flow(1), at(0), 5_000));
            assert!(!syns.fits(&flow(2), at(1), 5_000));
        }
    }

    #[test]
    fn only_an_acknowledgement_completes_a_handshake() {
        let syns = RecentSyns::new(Duration::from_millis(1_700));
        syns.remember(&flow(1), 10, 0);
        for flags in 0..=u8::MAX {
            let acknowledges = flags & 0x10 != 0 && flags & 0x06 == 0;
            assert_eq!(syns.fits(&flow(1), Segment::new(11, flags), 0), acknowledges, "{flags:#04x}");
        }
    }

    #[test]
    fn a_syn_is_believed_for_a_minute_also_across_the_wrap_of_its_clock() {
        let syns = RecentSyns::new(Duration::from_millis(1_700));
        for then in [0, 250_000, 255_999, 1_000_000_000] {
            syns.remember(&flow(1), 10, then);
            assert!(syns.fits(&flow(1), Segment::new(11, ACK), then + 60_000));
            assert!(!syns.fits(&flow(1), Segment::new(11, ACK), then + 61_000));
        }
    }

    /// The kernel program may have read the clock a moment later than this thread.
    #[test]
    fn a_syn_of_the_next_second_is_believed() {
        let syns = RecentSyns::new(Duration::from_millis(1_700));
        syns.remember(&flow(1), 10, 6_300);
        assert!(syns.fits(&flow(1), Segment::new(11, ACK), 6_299));
        assert!(!syns.fits(&flow(1), Segment::new(11, ACK), 5_299));
    }

    #[test]
    fn the_kernel_program_believes_it_as_long() {
        let header = include_str!("../../bpf/redirect_abi.h");
        assert!(header.contains(&format!("\tRECENT_SECONDS = {SECONDS},\n")));
    }

    #[test]
    fn an_empty_table_knows_nothing() {
        let syns = RecentSyns::new(Duration::from_millis(1_700));
        assert!((0..=u16::MAX).all(|port| !syns.fits(&flow(port), Segment::new(1, ACK), 0)));
    }
}
