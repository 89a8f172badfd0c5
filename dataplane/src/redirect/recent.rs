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

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use super::inner::{Flow, Segment};

/// 2 MiB. At 100,000 SYNs a second a SYN is forgotten after about two seconds.
const SLOTS: usize = 1 << 18;
/// Linux takes a cookie back for at most two minutes (MAX_SYNCOOKIE_AGE), and at least for one.
const SECONDS: u64 = 60;

/// Shared by all workers: a SYN and its ACK may come from different directors.
#[derive(Debug)]
pub(super) struct RecentSyns {
    /// Tag (24 bits) ‖ second it was seen (8) ‖ initial sequence number (32); 0 is empty.
    slots: Box<[AtomicU64]>,
    key: RandomState,
}

impl Default for RecentSyns {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), key: RandomState::new() }
    }
}

impl RecentSyns {
    pub(super) fn remember(&self, flow: &Flow, sequence: u32, now_ms: u64) {
        let (slot, tag) = self.place(flow);
        slot.store((tag << 40) | (second(now_ms) << 32) | u64::from(sequence), Ordering::Relaxed);
    }

    /// May `segment` complete, or be sent right after, the handshake of a SYN that was kept here?
    pub(super) fn fits(&self, flow: &Flow, segment: Segment, now_ms: u64) -> bool {
        let (slot, tag) = self.place(flow);
        let word = slot.load(Ordering::Relaxed);
        let age = second(now_ms).wrapping_sub(word >> 32) & 0xff;
        #[expect(clippy::cast_possible_truncation, reason = "the low half of the word")]
        let initial = word as u32;
        segment.acknowledges() && word >> 40 == tag && age <= SECONDS && fits(initial, segment.sequence)
    }

    fn place(&self, flow: &Flow) -> (&AtomicU64, u64) {
        let hash = self.key.hash_one(flow);
        #[expect(clippy::cast_possible_truncation, reason = "masked to the table's size")]
        let index = hash as usize & (SLOTS - 1);
        // Never 0, so that no flow matches an empty slot.
        (&self.slots[index], (hash >> 40) | 1)
    }
}

const fn second(now_ms: u64) -> u64 {
    (now_ms / 1_000) & 0xff
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
        let syns = RecentSyns::default();
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
        let syns = RecentSyns::default();
        syns.remember(&flow(1), 10, 0);
        for flags in 0..=u8::MAX {
            let acknowledges = flags & 0x10 != 0 && flags & 0x06 == 0;
            assert_eq!(syns.fits(&flow(1), Segment::new(11, flags), 0), acknowledges, "{flags:#04x}");
        }
    }

    #[test]
    fn a_syn_is_believed_for_a_minute_also_across_the_wrap_of_its_clock() {
        let syns = RecentSyns::default();
        for then in [0, 250_000, 255_999, 1_000_000_000] {
            syns.remember(&flow(1), 10, then);
            assert!(syns.fits(&flow(1), Segment::new(11, ACK), then + 60_000));
            assert!(!syns.fits(&flow(1), Segment::new(11, ACK), then + 61_000));
        }
    }

    #[test]
    fn an_empty_table_knows_nothing() {
        let syns = RecentSyns::default();
        assert!((0..=u16::MAX).all(|port| !syns.fits(&flow(port), Segment::new(1, ACK), 0)));
    }
}
