//! From a flow to an encapsulated frame.
//!
//! ```text
//! │ link 14 │ IPv4 20 or IPv6 40 │ UDP 8 │ GUE 4 │ private 4 │ hop 1 │ hop 2 │ … │ the client's packet │
//! └── prebuilt for the primary, five fields filled in ───────┘└─ 4 or 16 each ─┘
//! ```
//!
//! ECN is copied from the inner header as it is, "congestion experienced" included (RFC 6040 §4.1, normal
//! mode); DSCP is not: the underlay's classes are its operator's.
//!
//! Hops of another family than the primary's cannot be written and are omitted. The hops of a second look-up
//! are appended as they are, with repetitions, as GLB does: a redirector that finds itself listed again
//! continues with the next hop.

use common::{flow::FlowKey, table::HOPS};

use super::{
    BackendKey, DropReason, Encapsulated, Packet, Pipeline, Verdict,
    compile::{FIXED_V4, FIXED_V6, Hop, Path, Reach, Template},
    family::Flow,
};
use crate::wire::{checksum::Sum, ethernet, gue, ipv4};

/// Largest number of hops after the primary: two full lists without the primary.
const MAX_FOLLOWERS: usize = 2 * *HOPS.end() as usize - 1;
const _: () = assert!(MAX_FOLLOWERS <= gue::capacity(16), "two look-ups must fit either format");

/// Offset of the outer IP header from the start of the frame, in octets.
const IP: usize = ethernet::HEADER_LEN;
/// Length of the link header.
const LINK_HEADER: u32 = 14;
const _: () = assert!(LINK_HEADER as usize == IP);
const ECN: u8 = 0b11;

const NO_ROOM: Verdict = Verdict::Drop(DropReason::NoRoom);

/// The addresses of the hops after the primary, in the order of the list.
#[derive(Debug, Clone, Copy)]
struct Followers<const ADDRESS: usize> {
    addresses: [[u8; ADDRESS]; MAX_FOLLOWERS],
    len: usize,
}

/// A packet to encapsulate.
#[derive(Debug, Clone, Copy)]
struct Job<'a> {
    packet: &'a Packet<'a>,
    /// UDP source port.
    port: u16,
    primary: BackendKey,
}

impl Pipeline {
    /// [`Pipeline::forward`] for callers off the hot path, as a separate copy of the code.
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

    /// The reason why a packet of this flow must not be forwarded or answered, if any. `header` is its IPv4
    /// header: its checksum and options are checked before the source address, which an invalid header may
    /// not have.
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

    /// Chooses the row of `flow` in `table` and encapsulates `packet` for it. `header` is the unchecked IPv4
    /// header.
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
        let job = Job { packet, port, primary: BackendKey { table: path.table, backend: primary } };
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

    /// Writes the hops in the order of the list.
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

    /// The list of hops from the second look-up; empty if the table has none.
    #[cold]
    #[inline(never)]
    fn alternative(&self, table: u32, path: &Path, flow: &impl Flow) -> &[u16] {
        if path.alt_fields.is_empty() {
            return &[];
        }
        self.list(table, path, flow.hash(path.key, path.alt_fields))
    }

    /// Encapsulates where the hops are not written as listed: a second look-up, or backends of two families.
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
        if template.reach == Reach::Unreachable {
            return Verdict::Drop(DropReason::NoRoute);
        }
        let inner = job.packet.bytes;
        let overhead = FIXED - IP + hops * ADDRESS;
        let ip_len = overhead + inner.len();
        if ip_len > self.mtu() {
            #[expect(clippy::cast_possible_truncation, reason = "at most 62 octets and 124 of hops")]
            return self.too_big(job.packet, overhead as u16, out);
        }
        let Some(frame) = out.get_mut(..IP + ip_len) else { return NO_ROOM };
        let Some((head, rest)) = frame.split_first_chunk_mut::<FIXED>() else { return NO_ROOM };
        *head = template.head;
        let Some(list) = rest.get_mut(..hops * ADDRESS) else { return NO_ROOM };
        write_hops(list.as_chunks_mut().0);
        let Some(body) = rest.get_mut(hops * ADDRESS..) else { return NO_ROOM };
        body.copy_from_slice(inner);
        #[expect(clippy::cast_possible_truncation, reason = "at most the MTU, which has 16 bits")]
        let len = ip_len as u16;
        template.fill(head, job.packet.traffic_class & ECN, len);
        if write_tunnel::<FIXED, ADDRESS>(head, len - Template::HEADER, hops, job).is_err() {
            return NO_ROOM;
        }
        let done = Encapsulated { len: u32::from(len) + LINK_HEADER, primary: job.primary };
        if template.reach == Reach::Local { Verdict::Local(done) } else { Verdict::Encapsulate(done) }
    }
}

/// The outer IP header of a family.
trait Outer<const FIXED: usize> {
    /// Its length in octets.
    const HEADER: u16;

    /// Fills in the fields that differ between packets.
    fn fill(&self, head: &mut [u8; FIXED], ecn: u8, ip_len: u16);
}

impl Outer<FIXED_V4> for Template<FIXED_V4, 4> {
    const HEADER: u16 = 20;

    #[inline(always)]
    fn fill(&self, head: &mut [u8; FIXED_V4], ecn: u8, ip_len: u16) {
        head[IP + 1] = ecn;
        head[IP + 2..IP + 4].copy_from_slice(&ip_len.to_be_bytes());
        // The template's checksum covers the header with these two fields at zero: undo the complement and
        // add them.
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

/// Fills in UDP and GUE, the last sixteen octets of the prebuilt part. Fails if GUE has no room for the hops.
#[inline]
fn write_tunnel<const FIXED: usize, const ADDRESS: usize>(
    head: &mut [u8; FIXED],
    udp_len: u16,
    hops: usize,
    job: &Job<'_>,
) -> Result<(), gue::TooManyHops> {
    const { assert!(FIXED >= 16) };
    let tunnel = &mut head[FIXED - 16..];
    tunnel[..2].copy_from_slice(&job.port.to_be_bytes());
    tunnel[4..6].copy_from_slice(&udp_len.to_be_bytes());
    tunnel[8..].copy_from_slice(&gue::emit(job.packet.version, ADDRESS, hops)?);
    Ok(())
}
