//! What workers forward by: a pipeline, and where each backend's packets leave. Never changed, only replaced.

use std::io;
use std::net::IpAddr;

use common::bind::BindTie;
use common::table::ForwardingTable;

use crate::control::config::{DEFAULT_MTU, LEAST_MTU, UnderlayConfig};
use crate::host::route::{Egress, NextHop, Resolver, Unresolved};
use crate::pipeline::{Encapsulated, Pipeline, Route, Underlay};
use crate::wire::ethernet::Mac;

/// A table together with the network as it is now.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) pipeline: Pipeline,
    /// Counts tables: plans with the same number differ in routes alone.
    pub(crate) serial: u64,
    pub(crate) too_big_per_second: u32,
    /// The interface for each backend of each table.
    egress: Vec<Vec<u32>>,
    /// What it was made from, to tell whether anything changed.
    hops: Vec<Hop>,
    /// Backends that get no packets now, and why.
    pub(crate) unresolved: Vec<(IpAddr, Unresolved)>,
}

/// What a plan takes from the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) underlay: UnderlayConfig,
    pub(crate) too_big_per_second: u32,
}

impl Plan {
    pub(crate) fn new(
        table: ForwardingTable,
        serial: u64,
        settings: Settings,
        resolver: &mut Resolver,
    ) -> Result<Self, PlanError> {
        let found = Found::ask(&table, resolver)?;
        let underlay = found.underlay(settings.underlay);
        let pipeline = Pipeline::new(table, underlay, found.routes()).map_err(PlanError::Tie)?;
        Ok(Self::assemble(pipeline, serial, settings, found))
    }

    /// The same table over the network as it is now.
    pub(crate) fn reroute(&self, settings: Settings, resolver: &mut Resolver) -> io::Result<Self> {
        let found = Found::ask(self.pipeline.forwarding(), resolver)?;
        let underlay = found.underlay(settings.underlay);
        let pipeline = self.pipeline.with_underlay(underlay, found.routes());
        Ok(Self::assemble(pipeline, self.serial, settings, found))
    }

    fn assemble(pipeline: Pipeline, serial: u64, settings: Settings, found: Found) -> Self {
        let mut hops = found.hops.iter();
        let interface = |hop: Option<&Hop>| match hop {
            Some((_, Some(Ok(NextHop { egress: Egress::Link { ifindex, .. }, .. })))) => *ifindex,
            _ => 0,
        };
        let tables = pipeline.forwarding().tables().iter();
        let egress = tables.map(|table| table.backends.iter().map(|_| interface(hops.next())).collect());
        let egress = egress.collect();
        let failed = |(address, hop): &Hop| Some((*address, hop.as_ref()?.as_ref().err()?.clone()));
        let unresolved = found.hops.iter().filter_map(failed).collect();
        let too_big_per_second = settings.too_big_per_second;
        Self { pipeline, serial, too_big_per_second, egress, hops: found.hops, unresolved }
    }

    /// The interface that a packet leaves by.
    #[inline]
    pub(crate) fn egress(&self, done: &Encapsulated) -> u32 {
        let table = self.egress.get(usize::from(done.table));
        table.and_then(|table| table.get(usize::from(done.backend))).copied().unwrap_or(0)
    }

    /// The interfaces of all backends, in the order of the file; 0 for one that is not reached over a link.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = u32> {
        self.egress.iter().flatten().copied()
    }

    /// The address that a packet is for.
    pub(crate) fn address(&self, done: &Encapsulated) -> Option<IpAddr> {
        let table = self.pipeline.forwarding().tables().get(usize::from(done.table))?;
        table.backend(done.backend).map(|backend| backend.address)
    }

    /// Would the same frames leave, to the same places?
    pub(crate) fn forwards_as(&self, other: &Self) -> bool {
        self.serial == other.serial
            && self.hops == other.hops
            && self.pipeline.underlay() == other.pipeline.underlay()
            && self.too_big_per_second == other.too_big_per_second
    }

    /// As people name the table.
    pub(crate) fn name(&self) -> String {
        name(self.pipeline.forwarding())
    }
}

/// As people name a table.
pub(crate) fn name(table: &ForwardingTable) -> String {
    format!("{} (generation {})", table.digest().short(), table.generation())
}

type Hop = (IpAddr, Option<Result<NextHop, Unresolved>>);

/// The next hop of each backend of each table, table after table; none for inactive ones, which get no packets.
#[derive(Debug)]
struct Found {
    hops: Vec<Hop>,
}

impl Found {
    fn ask(table: &ForwardingTable, resolver: &mut Resolver) -> io::Result<Self> {
        let backends = || table.tables().iter().flat_map(|table| &table.backends);
        let candidates = backends().filter(|backend| backend.is_candidate()).map(|backend| backend.address);
        let mut hops = resolver.resolve(candidates)?.into_iter();
        let hops = backends()
            .map(|backend| {
                let hop = if backend.is_candidate() { hops.next() } else { None };
                (backend.address, hop)
            })
            .collect();
        Ok(Self { hops })
    }

    fn resolved(&self) -> impl Iterator<Item = &NextHop> {
        self.hops.iter().filter_map(|(_, hop)| hop.as_ref()?.as_ref().ok())
    }

    /// What is not configured comes from the routes: the source of the first one of a family, and the least MTU.
    fn underlay(&self, config: UnderlayConfig) -> Underlay {
        let mtu = self.resolved().map(|hop| hop.mtu).min().unwrap_or(DEFAULT_MTU.into());
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX).max(LEAST_MTU);
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

    /// Those of links first: the source of a local route is the backend's own address, which other backends may not
    /// reach.
    fn sources(&self) -> impl Iterator<Item = IpAddr> {
        let of = |local: bool| {
            self.resolved().filter(move |hop| (hop.egress == Egress::Local) == local).map(|hop| hop.source)
        };
        of(false).chain(of(true))
    }

    /// Gives routes in the order in which a pipeline asks for them.
    fn routes(&self) -> impl FnMut(IpAddr) -> Route {
        let mut hops = self.hops.iter();
        move |_| match hops.next() {
            Some((_, Some(Ok(hop)))) => match hop.egress {
                Egress::Link { from, to, .. } => Route::Via { source: Mac(from), destination: Mac(to) },
                Egress::Local => Route::Local,
            },
            _ => Route::Unknown,
        }
    }
}

/// Why a table cannot be forwarded by.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("binds {} and {} tie", .0.earlier, .0.later)]
    Tie(BindTie),
    #[error("asking the kernel for routes")]
    Routes(#[from] io::Error),
}
