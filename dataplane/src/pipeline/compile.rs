//! A compiled pipeline: the data that a packet needs from the forwarding table and the underlay.
//!
//! Pipelines of one forwarding table share the tables. A changed next hop rebuilds one header template per
//! backend, nothing else.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use common::{
    backend::Backend,
    bind::{BindIndex, BindTie},
    flow::{FlowHash, HashFields},
    hash::SipKey,
    table::{ForwardingTable, Table},
};

use super::{BackendKey, Echo, NextHop, Underlay, backends};
use crate::wire::{
    ethernet::{self, Mac},
    gue, ipv4, ipv6,
    ports::Ports,
    protocol, udp,
};

/// Octets before the list of hops in a frame to an IPv4 backend.
pub(crate) const FIXED_V4: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN + gue::FIXED_LEN;
/// Octets before the list of hops in a frame to an IPv6 backend.
pub(super) const FIXED_V6: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + udp::HEADER_LEN + gue::FIXED_LEN;
/// Octets of the largest answer: an IP packet of 1,280 octets, and a link header with two tags.
const LARGEST_ANSWER: usize = 1_280 + ethernet::HEADER_LEN + ethernet::MAX_TAGS * ethernet::TAG_LEN;

/// Everything that the verdict on a frame depends on.
#[derive(Debug, Clone)]
pub struct Pipeline {
    shared: Arc<Shared>,
    /// The header templates of all backends, table after table.
    hops: Vec<Hop>,
    /// The next hops of all backends, in the same order.
    next_hops: Vec<Option<NextHop>>,
    underlay: Underlay,
}

/// The parts that do not depend on the underlay.
#[derive(Debug)]
struct Shared {
    forwarding: ForwardingTable,
    binds: BindIndex,
    paths: Vec<Path>,
}

/// Per-table data needed before the row is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    pub(super) key: SipKey,
    pub(super) fields: HashFields,
    pub(super) alt_fields: HashFields,
    /// The table's index in the file.
    pub(super) table: u16,
    rows: u32,
    /// Whether hops can be written as the row lists them: a single look-up, and backends of one family.
    pub(super) plain: bool,
    /// Index of the table's first backend in [`Pipeline::hops`].
    first_hop: usize,
}

/// The outer header of packets to a backend, prebuilt. The part that most packets read is in one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) enum Hop {
    /// IPv4 underlay.
    V4(Template<FIXED_V4, 4>),
    /// IPv6 underlay.
    V6(Template<FIXED_V6, 16>),
}

/// All octets before the list of hops; lengths, checksum, source port and hop count are zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct Template<const FIXED: usize, const ADDRESS: usize> {
    pub(super) head: [u8; FIXED],
    pub(super) address: [u8; ADDRESS],
    pub(super) reach: Reach,
}

/// The prebuilt part of frames to an IPv4 backend, for the kernel program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    /// Link, IPv4, UDP and GUE headers up to the list of hops. Lengths, source port and hop count are zero,
    /// and the checksum is that of the IPv4 header with these zeros.
    pub(crate) octets: &'a [u8; FIXED_V4],
    /// The backend's address.
    pub(crate) address: Ipv4Addr,
    /// The interface that frames leave through, if the backend is reached over a link.
    pub(crate) ifindex: Option<u32>,
}

/// Whether and how a backend can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Link,
    Local,
    Unreachable,
}

impl Pipeline {
    /// Builds the pipeline of a forwarding table. `next_hop` is called for each backend, with its key and
    /// address.
    ///
    /// # Errors
    /// If two binds tie. A decoded [`ForwardingTable`] has no such binds.
    pub fn new(
        forwarding: ForwardingTable,
        underlay: Underlay,
        next_hop: impl FnMut(BackendKey, IpAddr) -> Option<NextHop>,
    ) -> Result<Self, BindTie> {
        let binds = BindIndex::new(&forwarding.binds())?;
        let mut first_hop = 0;
        let tables = (0..).zip(forwarding.tables());
        let paths = tables.map(|(index, table)| Path::new(index, table, &mut first_hop)).collect();
        let (hops, next_hops) = build_hops(&forwarding, &underlay, next_hop);
        Ok(Self { shared: Arc::new(Shared { forwarding, binds, paths }), hops, next_hops, underlay })
    }

    /// The same tables with another underlay and other next hops.
    #[must_use]
    pub fn with_underlay(
        &self,
        underlay: Underlay,
        next_hop: impl FnMut(BackendKey, IpAddr) -> Option<NextHop>,
    ) -> Self {
        let (hops, next_hops) = build_hops(&self.shared.forwarding, &underlay, next_hop);
        Self { shared: Arc::clone(&self.shared), hops, next_hops, underlay }
    }

    /// The same tables with other next hops.
    #[must_use]
    pub fn with_next_hops(&self, next_hop: impl FnMut(BackendKey, IpAddr) -> Option<NextHop>) -> Self {
        self.with_underlay(self.underlay, next_hop)
    }

    /// The length that `out` needs in octets: room for the largest packet of the underlay, and for any answer
    /// to a frame of `frame_len` octets.
    #[must_use]
    pub fn room(&self, frame_len: usize) -> usize {
        let encapsulated = usize::from(self.underlay.mtu) + ethernet::HEADER_LEN;
        encapsulated.max(LARGEST_ANSWER).max(frame_len)
    }

    /// The forwarding table that was compiled.
    #[must_use]
    pub fn forwarding(&self) -> &ForwardingTable {
        &self.shared.forwarding
    }

    /// The underlay.
    #[must_use]
    pub fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// Indices of the tables whose backends are of both families. A packet carries only hops of its primary's
    /// family, so second chances of the other family are lost there.
    pub fn mixed_tables(&self) -> impl Iterator<Item = usize> {
        let tables = self.shared.forwarding.tables().iter().enumerate();
        tables.filter(|(_, table)| is_mixed(table)).map(|(index, _)| index)
    }

    /// The next hop of a backend, if it is known.
    ///
    /// # Panics
    /// If `backend` is not the key of a backend of this pipeline's table.
    #[must_use]
    pub fn next_hop(&self, backend: BackendKey) -> Option<NextHop> {
        self.next_hops[self.flat_index(backend)]
    }

    /// The prebuilt headers of a backend; `None` for a backend with an IPv6 address.
    pub(crate) fn head(&self, backend: BackendKey) -> Option<Head<'_>> {
        let index = self.flat_index(backend);
        let Hop::V4(hop) = &self.hops[index] else { return None };
        let ifindex = self.next_hops[index].and_then(NextHop::ifindex).filter(|_| hop.reach == Reach::Link);
        Some(Head { octets: &hop.head, address: hop.address.into(), ifindex })
    }

    fn flat_index(&self, backend: BackendKey) -> usize {
        self.shared.paths[usize::from(backend.table)].first_hop + usize::from(backend.backend)
    }

    #[inline]
    pub(super) fn binds(&self) -> &BindIndex {
        &self.shared.binds
    }

    #[inline]
    pub(super) fn echo(&self) -> Echo {
        self.underlay.echo
    }

    #[inline]
    pub(super) fn mtu(&self) -> usize {
        usize::from(self.underlay.mtu)
    }

    #[inline]
    pub(super) fn path(&self, table: u32) -> Option<&Path> {
        self.shared.paths.get(table as usize)
    }

    /// The hop list of the row of a hash, as backend indices.
    #[inline]
    pub(super) fn list(&self, table: u32, path: &Path, hash: FlowHash) -> &[u16] {
        let Some(table) = self.shared.forwarding.tables().get(table as usize) else { return &[] };
        table.hops.get(hash.row(path.rows))
    }

    #[inline]
    pub(super) fn hop(&self, path: &Path, backend: u16) -> Option<&Hop> {
        self.hops.get(path.first_hop + usize::from(backend))
    }
}

impl Path {
    fn new(index: u16, table: &Table, first_hop: &mut usize) -> Self {
        let path = Self {
            key: table.hash_key,
            fields: table.hash_fields,
            alt_fields: table.alt_hash_fields,
            table: index,
            rows: table.rows(),
            plain: table.alt_hash_fields.is_empty() && !is_mixed(table),
            first_hop: *first_hop,
        };
        *first_hop += table.backends.len();
        path
    }
}

/// Whether a table has candidates of both address families.
fn is_mixed(table: &Table) -> bool {
    let mut candidates = table.backends.iter().filter(|backend| backend.is_candidate());
    let first = candidates.next().map(|backend| backend.address.is_ipv4());
    candidates.any(|backend| Some(backend.address.is_ipv4()) != first)
}

fn build_hops(
    forwarding: &ForwardingTable,
    underlay: &Underlay,
    mut next_hop: impl FnMut(BackendKey, IpAddr) -> Option<NextHop>,
) -> (Vec<Hop>, Vec<Option<NextHop>>) {
    let hop = |(key, backend): (BackendKey, &Backend)| {
        let next_hop = next_hop(key, backend.address);
        (Hop::new(backend.address, underlay, next_hop), next_hop)
    };
    backends(forwarding).map(hop).unzip()
}

impl Hop {
    fn new(address: IpAddr, underlay: &Underlay, next_hop: Option<NextHop>) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(template_v4(address, underlay.source_ipv4, next_hop)),
            IpAddr::V6(address) => Self::V6(template_v6(address, underlay.source_ipv6, next_hop)),
        }
    }
}

fn template_v4(
    address: Ipv4Addr,
    source: Option<Ipv4Addr>,
    next_hop: Option<NextHop>,
) -> Template<FIXED_V4, 4> {
    let header = ipv4::Header {
        traffic_class: 0,
        total_len: 0,
        identification: 0,
        dont_fragment: true,
        ttl: ipv4::DEFAULT_TTL,
        protocol: protocol::UDP,
        source: source.unwrap_or(Ipv4Addr::UNSPECIFIED).octets(),
        destination: address.octets(),
    };
    let (link, reach) = link_header(ethernet::TYPE_IPV4, source.is_some(), next_hop);
    let head = concatenate(&[&link, &header.emit(), &tunnel_header(4)]);
    Template { head, address: address.octets(), reach }
}

fn template_v6(
    address: Ipv6Addr,
    source: Option<Ipv6Addr>,
    next_hop: Option<NextHop>,
) -> Template<FIXED_V6, 16> {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: 0,
        next_header: protocol::UDP,
        hop_limit: ipv6::DEFAULT_HOP_LIMIT,
        source: source.unwrap_or(Ipv6Addr::UNSPECIFIED).octets(),
        destination: address.octets(),
    };
    let (link, reach) = link_header(ethernet::TYPE_IPV6, source.is_some(), next_hop);
    let head = concatenate(&[&link, &header.emit(), &tunnel_header(16)]);
    Template { head, address: address.octets(), reach }
}

fn link_header(
    ether_type: u16,
    has_source: bool,
    next_hop: Option<NextHop>,
) -> ([u8; ethernet::HEADER_LEN], Reach) {
    let (source, destination, reach) = match next_hop {
        Some(NextHop::Link { source, destination, .. }) if has_source => (source, destination, Reach::Link),
        Some(NextHop::Local) if has_source => (Mac::default(), Mac::default(), Reach::Local),
        _ => (Mac::default(), Mac::default(), Reach::Unreachable),
    };
    (ethernet::Header { destination, source, ether_type }.emit(), reach)
}

fn tunnel_header(hop_len: usize) -> [u8; udp::HEADER_LEN + gue::FIXED_LEN] {
    let ports = Ports { source: 0, destination: gue::PORT };
    let gue = gue::emit(protocol::IPV4, hop_len, 0).expect("invariant: no hops fit in any header");
    concatenate(&[&udp::Header { ports, length: 0 }.emit(), &gue])
}

/// Concatenates parts. At every call their lengths add up to `N`, by the constants above.
fn concatenate<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut all = [0; N];
    for (to, from) in all.iter_mut().zip(parts.iter().flat_map(|part| part.iter())) {
        *to = *from;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tablegen` and the director's warnings use the rule in `common`.
    #[test]
    fn the_headers_have_the_length_of_the_tunnel_rule() {
        let alone = |wide| usize::try_from(common::tunnel::overhead(1, wide, false)).unwrap();
        assert_eq!(FIXED_V4 - ethernet::HEADER_LEN, alone(false));
        assert_eq!(FIXED_V6 - ethernet::HEADER_LEN, alone(true));
    }
}
