//! A pipeline, built ahead: what a packet needs of the forwarding table and of the underlay, and nothing else.
//!
//! The tables themselves are shared, not copied, between the pipelines of one forwarding table, so that a changed
//! route costs one header template a backend and no more.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use common::{
    bind::{BindIndex, BindTie},
    flow::{FlowHash, HashFields},
    hash::SipKey,
    table::{ForwardingTable, Table},
};

use super::{Echo, Route, Underlay};
use crate::wire::{
    ethernet::{self, Mac},
    gue, ipv4, ipv6,
    ports::Ports,
    protocol, udp,
};

/// Octets before the hops of a packet to an IPv4 backend.
pub(crate) const FIXED_V4: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN + gue::FIXED_LEN;
/// The same for an IPv6 backend.
pub(super) const FIXED_V6: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + udp::HEADER_LEN + gue::FIXED_LEN;
/// Octets of the largest IP packet and a link header with two tags.
const LARGEST_ANSWER: usize = 1_280 + ethernet::HEADER_LEN + ethernet::MAX_TAGS * ethernet::TAG_LEN;

/// Everything that decides about a frame.
#[derive(Debug, Clone)]
pub struct Pipeline {
    shared: Arc<Shared>,
    /// One for each backend of each table, table after table.
    hops: Vec<Hop>,
    underlay: Underlay,
}

/// What does not depend on the underlay.
#[derive(Debug)]
struct Shared {
    forwarding: ForwardingTable,
    binds: BindIndex,
    paths: Vec<Path>,
}

/// What of a table a packet needs before its row is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    pub(super) key: SipKey,
    pub(super) fields: HashFields,
    pub(super) alt_fields: HashFields,
    rows: u32,
    /// Whether hops can be written as the row lists them: one look-up, and backends of one family.
    pub(super) plain: bool,
    /// Where the table's backends start in [`Pipeline::hops`].
    first_hop: usize,
}

/// The outer header of packets to one backend, prebuilt; what most packets read of it lies in one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) enum Hop {
    /// IPv4 underlay.
    V4(Template<FIXED_V4, 4>),
    /// IPv6 underlay.
    V6(Template<FIXED_V6, 16>),
}

/// All octets before the hops; lengths, checksum, source port and hop count are zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct Template<const FIXED: usize, const ADDRESS: usize> {
    pub(super) head: [u8; FIXED],
    pub(super) address: [u8; ADDRESS],
    pub(super) way: Way,
}

/// The prebuilt part of what is sent to one backend over IPv4, for the kernel program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    /// Link, IPv4, UDP and GUE headers up to the hops; lengths, source port and hop count are zero, and the checksum
    /// is that of the IPv4 header as it stands.
    pub(crate) octets: &'a [u8; FIXED_V4],
    /// The backend.
    pub(crate) address: Ipv4Addr,
    /// Whether it is reached over a link.
    pub(crate) linked: bool,
}

/// Whether and how the backend can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Link,
    Local,
    None,
}

impl Pipeline {
    /// Builds the pipeline of a forwarding table. `route` is asked once for each backend.
    ///
    /// # Errors
    /// If two binds tie. A [`ForwardingTable`] that was decoded has none that do.
    pub fn new(
        forwarding: ForwardingTable,
        underlay: Underlay,
        route: impl FnMut(IpAddr) -> Route,
    ) -> Result<Self, BindTie> {
        let binds = BindIndex::new(&forwarding.binds())?;
        let mut first_hop = 0;
        let paths = forwarding.tables().iter().map(|table| Path::new(table, &mut first_hop)).collect();
        let hops = build_hops(&forwarding, &underlay, route);
        Ok(Self { shared: Arc::new(Shared { forwarding, binds, paths }), hops, underlay })
    }

    /// The same tables over another underlay or other routes.
    #[must_use]
    pub fn with_underlay(&self, underlay: Underlay, route: impl FnMut(IpAddr) -> Route) -> Self {
        let hops = build_hops(&self.shared.forwarding, &underlay, route);
        Self { shared: Arc::clone(&self.shared), hops, underlay }
    }

    /// The same tables with other routes.
    #[must_use]
    pub fn with_routes(&self, route: impl FnMut(IpAddr) -> Route) -> Self {
        self.with_underlay(self.underlay, route)
    }

    /// Octets that `out` needs: what fits the underlay, and any answer to a frame of `frame_len` octets.
    #[must_use]
    pub fn room(&self, frame_len: usize) -> usize {
        let encapsulated = usize::from(self.underlay.mtu) + ethernet::HEADER_LEN;
        encapsulated.max(LARGEST_ANSWER).max(frame_len)
    }

    /// The table file that was compiled.
    #[must_use]
    pub fn forwarding(&self) -> &ForwardingTable {
        &self.shared.forwarding
    }

    /// The underlay.
    #[must_use]
    pub fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// Tables whose backends are of both families, by position. A packet carries hops of the primary's family only,
    /// so second chances of the other are lost there.
    pub fn mixed_tables(&self) -> impl Iterator<Item = usize> {
        self.shared.forwarding.tables().iter().enumerate().filter(|(_, t)| is_mixed(t)).map(|(at, _)| at)
    }

    /// The prebuilt headers of all backends, table after table: nothing for a backend with an IPv6 address.
    pub(crate) fn heads(&self) -> impl Iterator<Item = Option<Head<'_>>> {
        self.hops.iter().map(|hop| match hop {
            Hop::V4(hop) => {
                Some(Head { octets: &hop.head, address: hop.address.into(), linked: hop.way == Way::Link })
            }
            Hop::V6(_) => None,
        })
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

    /// The hop list of the row of a hash, as positions among the table's backends.
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
    fn new(table: &Table, first_hop: &mut usize) -> Self {
        let path = Self {
            key: table.hash_key,
            fields: table.hash_fields,
            alt_fields: table.alt_hash_fields,
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
    mut route: impl FnMut(IpAddr) -> Route,
) -> Vec<Hop> {
    let backends = forwarding.tables().iter().flat_map(|table| &table.backends);
    backends.map(|backend| Hop::new(backend.address, underlay, route(backend.address))).collect()
}

impl Hop {
    fn new(address: IpAddr, underlay: &Underlay, route: Route) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(template_v4(address, underlay.source_ipv4, route)),
            IpAddr::V6(address) => Self::V6(template_v6(address, underlay.source_ipv6, route)),
        }
    }
}

fn template_v4(address: Ipv4Addr, source: Option<Ipv4Addr>, route: Route) -> Template<FIXED_V4, 4> {
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
    let (link, way) = link_header(ethernet::TYPE_IPV4, source.is_some(), route);
    let head = concatenate(&[&link, &header.emit(), &tunnel_header(4)]);
    Template { head, address: address.octets(), way }
}

fn template_v6(address: Ipv6Addr, source: Option<Ipv6Addr>, route: Route) -> Template<FIXED_V6, 16> {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: 0,
        next_header: protocol::UDP,
        hop_limit: ipv6::DEFAULT_HOP_LIMIT,
        source: source.unwrap_or(Ipv6Addr::UNSPECIFIED).octets(),
        destination: address.octets(),
    };
    let (link, way) = link_header(ethernet::TYPE_IPV6, source.is_some(), route);
    let head = concatenate(&[&link, &header.emit(), &tunnel_header(16)]);
    Template { head, address: address.octets(), way }
}

fn link_header(ether_type: u16, has_source: bool, route: Route) -> ([u8; ethernet::HEADER_LEN], Way) {
    let (source, destination, way) = match route {
        Route::Via { source, destination } if has_source => (source, destination, Way::Link),
        Route::Local if has_source => (Mac::default(), Mac::default(), Way::Local),
        _ => (Mac::default(), Mac::default(), Way::None),
    };
    (ethernet::Header { destination, source, ether_type }.emit(), way)
}

fn tunnel_header(hop_len: usize) -> [u8; udp::HEADER_LEN + gue::FIXED_LEN] {
    let ports = Ports { source: 0, destination: gue::PORT };
    concatenate(&[&udp::Header { ports, length: 0 }.emit(), &gue::emit(protocol::IPV4, hop_len, 0)])
}

/// The parts one after the other. Their lengths add up to `N` at every call, by the constants above.
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

    /// `tablegen` reports, and the director warns, by the rule in `common`.
    #[test]
    fn the_headers_are_as_long_as_the_rule_of_the_tunnel_says() {
        let alone = |wide| usize::try_from(common::tunnel::overhead(1, wide, false)).unwrap();
        assert_eq!(FIXED_V4 - ethernet::HEADER_LEN, alone(false));
        assert_eq!(FIXED_V6 - ethernet::HEADER_LEN, alone(true));
    }
}
