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
//! Hops of the other family than the primary's cannot be written and are left out. The hops of a second look-up are
//! appended as they are, repetitions too, as GLB does: a redirector that finds itself listed again looks further.

use common::{flow::FlowKey, table::HOPS};

use super::{
    DropReason, Encapsulated, Packet, Pipeline, Verdict,
    compile::{FIXED_V4, FIXED_V6, Hop, Path, Template, Way},
    family::Flow,
};
use crate::wire::{checksum::Sum, ethernet, gue, ipv4};

/// Most hops after the primary: two full lists, less the primary.
const MAX_FOLLOWERS: usize = 2 * *HOPS.end() as usize - 1;
const _: () = assert!(MAX_FOLLOWERS <= gue::capacity(16), "two look-ups must fit either format");

/// Where the fields lie that differ from packet to packet, counted from the start of the frame.
const IP: usize = ethernet::HEADER_LEN;
const ECN: u8 = 0b11;

const NO_ROOM: Verdict = Verdict::Drop(DropReason::NoRoom);

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
    /// [`Pipeline::forward`] for the callers that are not on the hot path, which keep their own copy of it.
    #[cold]
    #[inline(never)]
    pub(super) fn forward_rare(
        &self,
        table: u32,
        flow: &FlowKey,
        client_port: u16,
        packet: &Packet<'_>,
        header: Option<&ipv4::View<'_>>,
        out: &mut [u8],
    ) -> Verdict {
        self.forward(table, flow, client_port, packet, header, out)
    }

    /// Why a packet of this flow must not be forwarded or answered, if there is a reason. `header` is its IPv4 header,
    /// whose checksum and options are still to be looked at: before the source, which a broken header may not have.
    #[inline(always)]
    pub(super) fn unfit(&self, flow: &impl Flow, header: Option<&ipv4::View<'_>>) -> Option<DropReason> {
        if header.is_some_and(|header| !header.checksum_holds()) {
            return Some(DropReason::HeaderChecksum);
        }
        if header.is_some_and(|header| !header.options_hold()) {
            return Some(DropReason::Options);
        }
        (!flow.has_client(self.binds())).then_some(DropReason::Source)
    }

    /// Chooses the row of `flow` in `table` and encapsulates `packet` for it. `header` is the IPv4 header, which is
    /// still to be looked at.
    #[inline(always)]
    pub(super) fn forward(
        &self,
        table: u32,
        flow: &impl Flow,
        client_port: u16,
        packet: &Packet<'_>,
        header: Option<&ipv4::View<'_>>,
        out: &mut [u8],
    ) -> Verdict {
        if let Some(reason) = self.unfit(flow, header) {
            return Verdict::Drop(reason);
        }
        let Some(path) = self.path(table) else { return Verdict::Drop(DropReason::NoBackend) };
        let hash = flow.hash(path.key, path.fields);
        let list = self.list(table, path, hash);
        let Some((&primary, rest)) = list.split_first() else { return Verdict::Drop(DropReason::NoBackend) };
        let Some(hop) = self.hop(path, primary) else { return Verdict::Drop(DropReason::NoBackend) };
        let port = hash.outer_source_port(client_port);
        let job = Job { packet, port, table: u16::try_from(table).unwrap_or(u16::MAX), backend: primary };
        if !path.plain {
            let alternative = self.alternative(table, path, flow);
            return self.encapsulate_filtered(path, hop, rest, alternative, &job, out);
        }
        match hop {
            Hop::V4(template) => {
                let address = |hop: &Hop| if let Hop::V4(hop) = hop { hop.address } else { [0; 4] };
                self.encapsulate(template, rest.len(), self.in_order(path, rest, address), &job, out)
            }
            Hop::V6(template) => {
                let address = |hop: &Hop| if let Hop::V6(hop) = hop { hop.address } else { [0; 16] };
                self.encapsulate(template, rest.len(), self.in_order(path, rest, address), &job, out)
            }
        }
    }

    /// Writes the hops as they are listed.
    #[inline(always)]
    fn in_order<const ADDRESS: usize>(
        &self,
        path: &Path,
        rest: &[u16],
        address: impl Fn(&Hop) -> [u8; ADDRESS],
    ) -> impl FnOnce(&mut [[u8; ADDRESS]]) {
        move |to| {
            for (to, backend) in to.iter_mut().zip(rest) {
                *to = self.hop(path, *backend).map_or([0; ADDRESS], &address);
            }
        }
    }

    /// The list of the second look-up, if the table has one.
    fn alternative(&self, table: u32, path: &Path, flow: &impl Flow) -> &[u16] {
        if path.alt_fields.is_empty() {
            return &[];
        }
        self.list(table, path, flow.hash(path.key, path.alt_fields))
    }

    /// Encapsulates where not all hops are written: a second look-up, or backends of two families.
    #[inline(never)]
    fn encapsulate_filtered(
        &self,
        path: &Path,
        primary: &Hop,
        rest: &[u16],
        alternative: &[u16],
        job: &Job<'_>,
        out: &mut [u8],
    ) -> Verdict {
        match primary {
            Hop::V4(template) => {
                let address = |hop: &Hop| if let Hop::V4(hop) = hop { Some(hop.address) } else { None };
                let followers = self.followers(path, rest, alternative, address);
                self.encapsulate(template, followers.len, |to| followers.write(to), job, out)
            }
            Hop::V6(template) => {
                let address = |hop: &Hop| if let Hop::V6(hop) = hop { Some(hop.address) } else { None };
                let followers = self.followers(path, rest, alternative, address);
                self.encapsulate(template, followers.len, |to| followers.write(to), job, out)
            }
        }
    }

    fn followers<const ADDRESS: usize>(
        &self,
        path: &Path,
        rest: &[u16],
        alternative: &[u16],
        address: impl Fn(&Hop) -> Option<[u8; ADDRESS]>,
    ) -> Followers<ADDRESS> {
        let mut followers = Followers { addresses: [[0; ADDRESS]; MAX_FOLLOWERS], len: 0 };
        for backend in rest.iter().chain(alternative) {
            followers.extend(self.hop(path, *backend).and_then(&address));
        }
        followers
    }

    #[inline(always)]
    fn encapsulate<const FIXED: usize, const ADDRESS: usize>(
        &self,
        template: &Template<FIXED, ADDRESS>,
        hops: usize,
        write_hops: impl FnOnce(&mut [[u8; ADDRESS]]),
        job: &Job<'_>,
        out: &mut [u8],
    ) -> Verdict
    where
        Template<FIXED, ADDRESS>: Outer<FIXED>,
    {
        if template.way == Way::None {
            return Verdict::Drop(DropReason::NoRoute);
        }
        let inner = job.packet.bytes;
        let overhead = FIXED - IP + hops * ADDRESS;
        let ip_len = overhead + inner.len();
        if ip_len > self.mtu() {
            return self.too_big(job.packet, overhead, out);
        }
        let Some(frame) = out.get_mut(..IP + ip_len) else { return NO_ROOM };
        let Some((head, rest)) = frame.split_first_chunk_mut::<FIXED>() else { return NO_ROOM };
        *head = template.head;
        let Some(list) = rest.get_mut(..hops * ADDRESS) else { return NO_ROOM };
        write_hops(list.as_chunks_mut().0);
        let Some(body) = rest.get_mut(hops * ADDRESS..) else { return NO_ROOM };
        body.copy_from_slice(inner);
        // The MTU has 16 bits, and the length does not exceed it.
        let len = u16::try_from(ip_len).unwrap_or(u16::MAX);
        template.fill(head, job.packet.traffic_class & ECN, len);
        write_tunnel::<FIXED, ADDRESS>(head, len - Template::HEADER, hops, job);
        let len = u32::try_from(IP + ip_len).unwrap_or(u32::MAX);
        let done = Encapsulated { len, table: job.table, backend: job.backend };
        if template.way == Way::Local { Verdict::Local(done) } else { Verdict::Encapsulate(done) }
    }
}

/// The outer IP header of a family.
trait Outer<const FIXED: usize> {
    /// Its length in octets.
    const HEADER: u16;

    /// Fills in what differs from packet to packet.
    fn fill(&self, head: &mut [u8; FIXED], ecn: u8, ip_len: u16);
}

impl Outer<FIXED_V4> for Template<FIXED_V4, 4> {
    const HEADER: u16 = 20;

    #[inline(always)]
    fn fill(&self, head: &mut [u8; FIXED_V4], ecn: u8, ip_len: u16) {
        head[IP + 1] = ecn;
        head[IP + 2..IP + 4].copy_from_slice(&ip_len.to_be_bytes());
        // The template's checksum is that of the header with the two fields zero: it is taken apart and extended.
        let known = !u16::from_be_bytes([self.head[IP + 10], self.head[IP + 11]]);
        let checksum = Sum::ZERO.word(known).word(u16::from(ecn)).word(ip_len).checksum();
        head[IP + 10..IP + 12].copy_from_slice(&checksum.to_be_bytes());
    }
}

impl Outer<FIXED_V6> for Template<FIXED_V6, 16> {
    const HEADER: u16 = 40;

    #[inline(always)]
    fn fill(&self, head: &mut [u8; FIXED_V6], ecn: u8, ip_len: u16) {
        head[IP + 1] = ecn << 4;
        head[IP + 4..IP + 6].copy_from_slice(&(ip_len - Self::HEADER).to_be_bytes());
    }
}

impl<const ADDRESS: usize> Followers<ADDRESS> {
    fn extend(&mut self, address: Option<[u8; ADDRESS]>) {
        if let (Some(free), Some(address)) = (self.addresses.get_mut(self.len), address) {
            *free = address;
            self.len += 1;
        }
    }

    fn write(&self, to: &mut [[u8; ADDRESS]]) {
        for (to, from) in to.iter_mut().zip(&self.addresses) {
            *to = *from;
        }
    }
}

/// Fills in UDP and GUE, the last sixteen octets of the prebuilt part.
#[inline]
fn write_tunnel<const FIXED: usize, const ADDRESS: usize>(
    head: &mut [u8; FIXED],
    udp_len: u16,
    hops: usize,
    job: &Job<'_>,
) {
    let Some(tunnel) = head.last_chunk_mut::<16>() else { return };
    tunnel[..2].copy_from_slice(&job.port.to_be_bytes());
    tunnel[4..6].copy_from_slice(&udp_len.to_be_bytes());
    tunnel[8..].copy_from_slice(&gue::emit(job.packet.version, ADDRESS, hops));
}
