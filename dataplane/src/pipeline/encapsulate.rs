//! From a flow to an encapsulated frame.
//!
//! ```text
//! │ link 14 │ IPv4 20 or IPv6 40 │ UDP 8 │ GUE 4 │ private 4 │ hop 1 │ hop 2 │ … │ the client's packet │
//! └── prebuilt for the primary, five fields filled in ───────┘└─ 4 or 16 each ─┘
//! ```
//!
//! ECN is copied from the inner header as it is, "congestion experienced" included (RFC 6040 §4.1, normal mode);
//! DSCP is not: the underlay's classes are its operator's.
//!
//! Hops of the other family than the primary's cannot be written and are left out. So is an appended hop equal to
//! the one before it: the redirector there would take itself for the next hop and end the search. Other duplicates
//! are kept, as GLB does.

use common::{
    flow::{FlowHash, FlowKey},
    table::HOPS,
};

use super::{
    DropReason, Encapsulated, Packet, Pipeline, Verdict,
    compile::{FIXED_V4, FIXED_V6, Hop, Path, Template, Way},
};
use crate::wire::{checksum::Sum, ethernet, gue, ipv4};

/// Most hops after the primary: two full lists, less the primary.
const MAX_FOLLOWERS: usize = 2 * *HOPS.end() as usize - 1;
const _: () = assert!(MAX_FOLLOWERS <= gue::capacity(16), "two look-ups must fit either format");

/// Where the fields lie that differ from packet to packet, counted from the start of the frame.
const IP: usize = ethernet::HEADER_LEN;
const ECN: u8 = 0b11;

/// The hops after the primary, as they are written.
#[derive(Debug, Clone, Copy)]
struct Followers<const ADDRESS: usize> {
    addresses: [[u8; ADDRESS]; MAX_FOLLOWERS],
    len: usize,
}

/// A packet on its way into the tunnel.
#[derive(Debug, Clone, Copy)]
struct Job<'a> {
    packet: &'a Packet<'a>,
    /// UDP source port.
    port: u16,
    table: u16,
    backend: u16,
}

impl Pipeline {
    /// Chooses the row of `flow` in `table` and encapsulates `packet` for it. `header` is the IPv4 header, whose
    /// checksum is still to be looked at.
    #[inline]
    pub(super) fn forward(
        &self,
        table: u32,
        flow: &FlowKey,
        client_port: u16,
        packet: &Packet<'_>,
        header: Option<&ipv4::View<'_>>,
        out: &mut [u8],
    ) -> Verdict {
        if header.is_some_and(|header| !header.checksum_holds()) {
            return Verdict::Drop(DropReason::HeaderChecksum);
        }
        let Some(path) = self.path(table) else { return Verdict::Drop(DropReason::NoBackend) };
        let hash = flow.hash(path.key, path.fields);
        let list = self.list(table, path, hash);
        let Some((&primary, rest)) = list.split_first() else { return Verdict::Drop(DropReason::NoBackend) };
        let alternative = self.alternative(table, path, flow);
        let port = hash.outer_source_port(client_port);
        let table = u16::try_from(table).unwrap_or(u16::MAX);
        let job = Job { packet, port, table, backend: primary };
        match self.hop(path, primary) {
            Some(Hop::V4(template)) => {
                self.encapsulate_v4(template, self.followers_v4(path, rest, alternative), &job, out)
            }
            Some(Hop::V6(template)) => {
                self.encapsulate_v6(template, self.followers_v6(path, rest, alternative), &job, out)
            }
            None => Verdict::Drop(DropReason::NoBackend),
        }
    }

    /// The list of the second look-up, if the table has one.
    #[inline]
    fn alternative(&self, table: u32, path: &Path, flow: &FlowKey) -> &[u16] {
        if path.alt_fields.is_empty() {
            return &[];
        }
        self.list(table, path, hash_alternative(path, flow))
    }

    #[inline]
    fn followers_v4(&self, path: &Path, rest: &[u16], alternative: &[u16]) -> Followers<4> {
        let mut followers = Followers { addresses: [[0; 4]; MAX_FOLLOWERS], len: 0 };
        for backend in rest {
            if let Some(Hop::V4(hop)) = self.hop(path, *backend) {
                followers.push(hop.address);
            }
        }
        for backend in alternative {
            if let Some(Hop::V4(hop)) = self.hop(path, *backend) {
                followers.push_new(hop.address);
            }
        }
        followers
    }

    fn followers_v6(&self, path: &Path, rest: &[u16], alternative: &[u16]) -> Followers<16> {
        let mut followers = Followers { addresses: [[0; 16]; MAX_FOLLOWERS], len: 0 };
        for backend in rest {
            if let Some(Hop::V6(hop)) = self.hop(path, *backend) {
                followers.push(hop.address);
            }
        }
        for backend in alternative {
            if let Some(Hop::V6(hop)) = self.hop(path, *backend) {
                followers.push_new(hop.address);
            }
        }
        followers
    }

    #[inline]
    fn encapsulate_v4(
        &self,
        template: &Template<FIXED_V4, 4>,
        followers: Followers<4>,
        job: &Job<'_>,
        out: &mut [u8],
    ) -> Verdict {
        let (head, ip_len) = match self.start(template, &followers, job, out) {
            Ok(started) => started,
            Err(verdict) => return verdict,
        };
        let ecn = job.packet.traffic_class & ECN;
        head[IP + 1] = ecn;
        head[IP + 2..IP + 4].copy_from_slice(&ip_len.to_be_bytes());
        // The template's checksum is that of the header with the two fields zero: it is taken apart and extended.
        let known = !u16::from_be_bytes([template.head[IP + 10], template.head[IP + 11]]);
        let checksum = Sum::ZERO.word(known).word(u16::from(ecn)).word(ip_len).checksum();
        head[IP + 10..IP + 12].copy_from_slice(&checksum.to_be_bytes());
        write_tunnel(head, ip_len - 20, followers.len, job);
        finish(template.way, job, usize::from(ip_len))
    }

    fn encapsulate_v6(
        &self,
        template: &Template<FIXED_V6, 16>,
        followers: Followers<16>,
        job: &Job<'_>,
        out: &mut [u8],
    ) -> Verdict {
        let (head, ip_len) = match self.start(template, &followers, job, out) {
            Ok(started) => started,
            Err(verdict) => return verdict,
        };
        head[IP + 1] = (job.packet.traffic_class & ECN) << 4;
        head[IP + 4..IP + 6].copy_from_slice(&(ip_len - 40).to_be_bytes());
        write_tunnel(head, ip_len - 40, followers.len, job);
        finish(template.way, job, usize::from(ip_len))
    }

    /// Writes all but the fields that are filled in, and returns the prebuilt part with the outer length.
    #[inline]
    fn start<'o, const FIXED: usize, const ADDRESS: usize>(
        &self,
        template: &Template<FIXED, ADDRESS>,
        followers: &Followers<ADDRESS>,
        job: &Job<'_>,
        out: &'o mut [u8],
    ) -> Result<(&'o mut [u8; FIXED], u16), Verdict> {
        if template.way == Way::None {
            return Err(Verdict::Drop(DropReason::NoRoute));
        }
        let inner = job.packet.bytes;
        let overhead = FIXED - IP + followers.len * ADDRESS;
        let ip_len = overhead + inner.len();
        if ip_len > self.mtu() {
            return Err(self.too_big(job.packet, overhead, out));
        }
        let no_room = Verdict::Drop(DropReason::NoRoom);
        let frame = out.get_mut(..IP + ip_len).ok_or(no_room)?;
        let (head, rest) = frame.split_first_chunk_mut::<FIXED>().ok_or(no_room)?;
        let (hops, body) = rest.split_at_mut_checked(followers.len * ADDRESS).ok_or(no_room)?;
        *head = template.head;
        for (to, from) in hops.as_chunks_mut().0.iter_mut().zip(&followers.addresses) {
            *to = *from;
        }
        body.copy_from_slice(inner);
        // The MTU has 16 bits, and the length does not exceed it.
        Ok((head, u16::try_from(ip_len).unwrap_or(u16::MAX)))
    }
}

#[cold]
fn hash_alternative(path: &Path, flow: &FlowKey) -> FlowHash {
    flow.hash(path.key, path.alt_fields)
}

impl<const ADDRESS: usize> Followers<ADDRESS> {
    #[inline]
    fn push(&mut self, address: [u8; ADDRESS]) {
        if let Some(free) = self.addresses.get_mut(self.len) {
            *free = address;
            self.len += 1;
        }
    }

    /// Leaves out a repetition of the last one.
    fn push_new(&mut self, address: [u8; ADDRESS]) {
        let last = self.len.checked_sub(1).and_then(|last| self.addresses.get(last));
        if last != Some(&address) {
            self.push(address);
        }
    }
}

/// Fills in UDP and GUE, the last sixteen octets of the prebuilt part.
#[inline]
fn write_tunnel<const FIXED: usize>(head: &mut [u8; FIXED], udp_len: u16, hops: usize, job: &Job<'_>) {
    let Some(tunnel) = head.last_chunk_mut::<16>() else { return };
    let hop_len = if FIXED == FIXED_V6 { 16 } else { 4 };
    tunnel[..2].copy_from_slice(&job.port.to_be_bytes());
    tunnel[4..6].copy_from_slice(&udp_len.to_be_bytes());
    tunnel[8..].copy_from_slice(&gue::emit(job.packet.version, hop_len, hops));
}

#[inline]
fn finish(way: Way, job: &Job<'_>, ip_len: usize) -> Verdict {
    let len = u32::try_from(IP + ip_len).unwrap_or(u32::MAX);
    let done = Encapsulated { len, table: job.table, backend: job.backend };
    if way == Way::Local { Verdict::Local(done) } else { Verdict::Encapsulate(done) }
}
