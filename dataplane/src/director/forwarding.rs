//! The forwarding state of the workers: a pipeline with the next hop of each backend. It never changes; a new
//! state replaces it as a whole.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use common::bind::BindTie;
use common::table::ForwardingTable;

use crate::control::config::{DEFAULT_MTU, LEAST_MTU, UnderlayConfig};
use crate::host::route::{ResolvedRoute, Resolver, Unresolved};
use crate::pipeline::{BackendKey, Encapsulated, NextHop, Pipeline, Underlay, backends};

/// A compiled table and the next hops of its backends.
#[derive(Debug)]
pub(crate) struct ForwardingState {
    pub(crate) pipeline: Pipeline,
    /// Number of the table since the start. States with the same number differ in next hops alone.
    pub(crate) serial: u64,
    pub(crate) too_big_per_second: u32,
    /// The routes that the pipeline was built with.
    routes: Routes,
    /// Backends without a next hop, and why.
    pub(crate) unresolved: Vec<(IpAddr, Unresolved)>,
}

/// What a state takes from the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) underlay: UnderlayConfig,
    pub(crate) too_big_per_second: u32,
}

impl ForwardingState {
    pub(crate) fn new(
        table: ForwardingTable,
        serial: u64,
        settings: Settings,
        resolver: &mut Resolver,
    ) -> Result<Self, StateError> {
        let routes = Routes::resolve(&table, resolver)?;
        let underlay = routes.underlay(settings.underlay);
        let pipeline = Pipeline::new(table, underlay, |backend, _| routes.next_hop(backend));
        Ok(Self::assemble(pipeline.map_err(StateError::Tie)?, serial, settings, routes))
    }

    /// The same table with the routes as they are now.
    pub(crate) fn reroute(&self, settings: Settings, resolver: &mut Resolver) -> io::Result<Self> {
        let routes = Routes::resolve(self.pipeline.forwarding(), resolver)?;
        let underlay = routes.underlay(settings.underlay);
        let pipeline = self.pipeline.with_underlay(underlay, |backend, _| routes.next_hop(backend));
        Ok(Self::assemble(pipeline, self.serial, settings, routes))
    }

    fn assemble(pipeline: Pipeline, serial: u64, settings: Settings, routes: Routes) -> Self {
        let too_big_per_second = settings.too_big_per_second;
        let unresolved = routes.unresolved().collect();
        Self { pipeline, serial, too_big_per_second, routes, unresolved }
    }

    /// The interface that a packet leaves through.
    #[inline]
    pub(crate) fn outgoing_interface(&self, done: &Encapsulated) -> u32 {
        let next_hop = self.pipeline.next_hop(done.primary);
        next_hop
            .and_then(NextHop::ifindex)
            .expect("invariant: only packets to a link are encapsulated for it")
    }

    /// The interfaces through which backends are reached.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = u32> {
        let keys = backends(self.pipeline.forwarding()).map(|(key, _)| key);
        keys.filter_map(|key| self.pipeline.next_hop(key)?.ifindex())
    }

    /// The address of a packet's primary.
    pub(crate) fn address(&self, done: &Encapsulated) -> IpAddr {
        let table = &self.pipeline.forwarding().tables()[usize::from(done.primary.table)];
        table.backends[usize::from(done.primary.backend)].address
    }

    /// Whether both states forward every frame in the same way.
    pub(crate) fn forwards_as(&self, other: &Self) -> bool {
        self.serial == other.serial
            && self.routes == other.routes
            && self.pipeline.underlay() == other.pipeline.underlay()
            && self.too_big_per_second == other.too_big_per_second
    }

    /// The table's name in logs.
    pub(crate) fn name(&self) -> String {
        name(self.pipeline.forwarding())
    }
}

/// A table's name in logs: the start of its digest, and its generation.
pub(crate) fn name(table: &ForwardingTable) -> String {
    format!("{} (generation {})", table.digest().short(), table.generation())
}

/// The route of each backend, by the backend's key.
#[derive(Debug, PartialEq, Eq)]
struct Routes(BTreeMap<BackendKey, BackendRoute>);

#[derive(Debug, PartialEq, Eq)]
struct BackendRoute {
    address: IpAddr,
    /// `None` for an inactive backend, which gets no packets.
    route: Option<Result<ResolvedRoute, Unresolved>>,
}

impl Routes {
    fn resolve(forwarding: &ForwardingTable, resolver: &mut Resolver) -> io::Result<Self> {
        let candidates: Vec<_> = backends(forwarding).filter(|(_, backend)| backend.is_candidate()).collect();
        let routes = resolver.resolve(candidates.iter().map(|(_, backend)| backend.address))?;
        let keys = candidates.into_iter().map(|(key, _)| key);
        Ok(Self::new(forwarding, keys.zip(routes)))
    }

    /// `resolved` are the routes of some backends, in any order.
    fn new(
        forwarding: &ForwardingTable,
        resolved: impl IntoIterator<Item = (BackendKey, Result<ResolvedRoute, Unresolved>)>,
    ) -> Self {
        let unknown = backends(forwarding)
            .map(|(key, backend)| (key, BackendRoute { address: backend.address, route: None }));
        let mut routes: BTreeMap<_, _> = unknown.collect();
        for (key, route) in resolved {
            routes.get_mut(&key).expect("invariant: the key is of this table").route = Some(route);
        }
        Self(routes)
    }

    /// The next hop of a backend, if it is known.
    fn next_hop(&self, backend: BackendKey) -> Option<NextHop> {
        Some(self.0[&backend].route.as_ref()?.as_ref().ok()?.next_hop)
    }

    fn resolved(&self) -> impl Iterator<Item = &ResolvedRoute> {
        self.0.values().filter_map(|backend| backend.route.as_ref()?.as_ref().ok())
    }

    fn unresolved(&self) -> impl Iterator<Item = (IpAddr, Unresolved)> {
        self.0
            .values()
            .filter_map(|backend| Some((backend.address, backend.route.as_ref()?.as_ref().err()?.clone())))
    }

    /// The underlay of the configuration. Missing values come from the routes: the source address of the
    /// first route of each family, and the smallest MTU.
    fn underlay(&self, config: UnderlayConfig) -> Underlay {
        let mtu = self.resolved().map(|hop| hop.mtu).min().unwrap_or(DEFAULT_MTU.into());
        let mtu = u16::try_from(mtu.min(u16::MAX.into())).expect("invariant: limited").max(LEAST_MTU);
        let source_ipv4 = self.sources().find_map(|source| match source {
            IpAddr::V4(source) => Some(source),
            IpAddr::V6(_) => None,
        });
        let source_ipv6 = self.sources().find_map(|source| match source {
            IpAddr::V4(_) => None,
            IpAddr::V6(source) => Some(source),
        });
        Underlay {
            source_ipv4: config.source_ipv4.or(source_ipv4),
            source_ipv6: config.source_ipv6.or(source_ipv6),
            mtu: config.mtu.unwrap_or(mtu),
            echo: config.echo,
        }
    }

    /// Source addresses of the routes; those of links first, because the source of a local route is the
    /// backend's own address, which other backends may not reach.
    fn sources(&self) -> impl Iterator<Item = IpAddr> {
        let of = |local: bool| {
            let routes = self.resolved().filter(move |route| (route.next_hop == NextHop::Local) == local);
            routes.map(|route| route.source)
        };
        of(false).chain(of(true))
    }
}

/// Why a table cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("binds {} and {} tie", .0.earlier, .0.later)]
    Tie(BindTie),
    #[error("querying the kernel's routes")]
    Routes(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Echo;
    use crate::wire::ethernet::Mac;
    use common::backend::Backend;
    use common::bind::{Bind, PortRange, Prefix, Protocol};
    use common::flow::HashFields;
    use common::hash::SipKey;
    use common::table::{Lists, Ranking, Seed, Table};
    use std::net::Ipv4Addr;

    /// Backends 10.0.TABLE.1 and up.
    fn table(number: u8, backends: u8) -> Table {
        let backend = |last| Backend::new(format!("b{last}"), [10, 0, number, last].into());
        Table {
            name: format!("t{number}"),
            max_hops: 2,
            ranking: Ranking::Hrw,
            seed: Seed([1; 16]),
            hash_key: SipKey::new([2; 16]),
            hash_fields: HashFields::DEFAULT,
            alt_hash_fields: HashFields::NONE,
            spread_zones: false,
            max_share: None,
            lineage: Lists::empty(65_536, 1),
            backends: (1..=backends).map(backend).collect(),
            binds: vec![Bind {
                prefix: Prefix::host([203, 0, 113, number].into()),
                protocol: Protocol::Tcp,
                ports: PortRange::single(443),
            }],
            hops: Lists::empty(65_536, 2),
        }
    }

    /// The interface and the link address of the backend with this address.
    fn expected(address: Ipv4Addr) -> (u32, [u8; 6]) {
        let [.., number, last] = address.octets();
        (u32::from(number) * 100 + u32::from(last), [2, 1, 0, 0, number, last])
    }

    fn route_to(address: Ipv4Addr) -> ResolvedRoute {
        let (ifindex, mac) = expected(address);
        let next_hop = NextHop::Link { ifindex, source: Mac([2; 6]), destination: Mac(mac) };
        ResolvedRoute { next_hop, source: [192, 0, 2, 1].into(), mtu: 1_500 }
    }

    fn permutations<T: Copy>(items: &[T]) -> Vec<Vec<T>> {
        let Some((first, rest)) = items.split_first() else { return vec![Vec::new()] };
        let insert = |shorter: Vec<T>| {
            (0..=shorter.len()).map(move |index| {
                let mut longer = shorter.clone();
                longer.insert(index, *first);
                longer
            })
        };
        permutations(rest).into_iter().flat_map(insert).collect()
    }

    /// A next hop that is taken by position would send packets to the link address of another backend.
    #[test]
    fn every_backend_gets_its_own_next_hop_in_every_order_of_routes() {
        let forwarding = ForwardingTable::new(None, vec![table(1, 3), table(2, 2)]).unwrap();
        let backends = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)].map(|(table, backend)| {
            let address =
                Ipv4Addr::new(10, 0, u8::try_from(table + 1).unwrap(), u8::try_from(backend + 1).unwrap());
            (BackendKey { table, backend }, address)
        });
        let source_ipv4 = Some([192, 0, 2, 1].into());
        let underlay = Underlay { source_ipv4, source_ipv6: None, mtu: 1_500, echo: Echo::Forward };
        let orders = permutations(&backends);
        assert_eq!(orders.len(), 120);
        for order in orders {
            let routes =
                Routes::new(&forwarding, order.iter().map(|(key, address)| (*key, Ok(route_to(*address)))));
            let pipeline =
                Pipeline::new(forwarding.clone(), underlay, |backend, _| routes.next_hop(backend)).unwrap();
            for (key, address) in backends {
                let (ifindex, mac) = expected(address);
                let head = pipeline.head(key).unwrap();
                assert_eq!((head.address, head.ifindex), (address, Some(ifindex)));
                assert_eq!(head.octets[..6], mac, "{address}");
                let next_hop = pipeline.next_hop(key);
                assert!(
                    matches!(next_hop, Some(NextHop::Link { destination, .. }) if destination == Mac(mac))
                );
            }
        }
    }

    #[test]
    fn backends_without_a_route_have_no_next_hop_and_are_reported() {
        let forwarding = ForwardingTable::new(None, vec![table(1, 3)]).unwrap();
        let key = |backend| BackendKey { table: 0, backend };
        let routes = Routes::new(&forwarding, [(key(1), Err(Unresolved::NoRoute(101)))]);
        assert_eq!([0, 1, 2].map(|backend| routes.next_hop(key(backend))), [None; 3]);
        let unresolved: Vec<_> = routes.unresolved().collect();
        assert_eq!(unresolved, [([10, 0, 1, 2].into(), Unresolved::NoRoute(101))]);
    }
}
