//! The fast path in the kernel: it takes the plain case off the UDP socket, and this keeps it to the network as it is.
//!
//! Program and workers keep nothing between packets that the other would need but the SYNs that were kept lately, which
//! they share ([`recent`](super::recent)). So either may decide about any packet of a flow, and the program may come and go.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::clients::Own;
use super::config::Mode;
use super::counters::Report;
use super::decide::Keep;
use super::program::{Neighbour, Redirect, RedirectCounts, outer_addresses};
use super::run::{Shared, say};
use crate::control::instance::InstanceLock;
use crate::drivers::xdp::{Attached, Placed, XdpError};
use crate::host::route::{Egress, NextHop, Pinned, Resolver};
use crate::host::sys::interface::{Interface, driver};
use crate::host::sys::thread::monotonic;

/// How often next hops are looked at again.
const REFRESH: Duration = Duration::from_secs(1);

/// The program on the interface, and what it was told.
#[derive(Debug)]
pub(super) struct FastPath {
    program: Redirect,
    attached: Attached,
    _lock: InstanceLock,
    mode: Mode,
    interface: Interface,
    resolver: Resolver,
    own: Arc<Own>,
    neighbours: BTreeMap<Ipv4Addr, Neighbour>,
    refreshed: Option<Instant>,
    /// What programs counted that are gone.
    former: RedirectCounts,
}

/// What a report says of it; its packets are counted above, with the workers'.
#[derive(Debug, Serialize)]
pub struct FastReport {
    attached: &'static str,
    kept: u64,
    forwarded: u64,
    /// Packets left to the workers, or to the kernel if they were none of ours.
    left: BTreeMap<&'static str, u64>,
}

impl fmt::Display for FastReport {
    /// One line; what is zero is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by XDP ({}): kept {}, passed on {}; left", self.attached, self.kept, self.forwarded)?;
        for (name, count) in self.left.iter().filter(|(_, count)| **count > 0) {
            write!(f, " {name} {count},")?;
        }
        write!(f, " total {}", self.left.values().sum::<u64>())
    }
}

impl FastPath {
    /// As `mode` wants it: `xdp` must have it, `auto` does without where it cannot be had, and says why.
    pub(super) fn start(shared: &Shared) -> anyhow::Result<Option<Self>> {
        let config = &shared.config;
        let Some(name) = &config.interface else { return Ok(None) };
        if config.mode == Mode::Socket || !config.second_chance {
            return Ok(None);
        }
        match Self::on(name, shared) {
            Ok((fast, placed)) => {
                say(format_args!("{name}: XDP, {placed}"));
                Ok(Some(fast))
            }
            Err(error) if config.mode == Mode::Auto => {
                say(format_args!("{name}: no XDP, the socket takes everything: {error:#}"));
                Ok(None)
            }
            Err(error) => Err(error.context(name.clone())),
        }
    }

    fn on(name: &str, shared: &Shared) -> anyhow::Result<(Self, Placed)> {
        let interface = Interface::named(name)?;
        let lock = InstanceLock::on(&interface, say)?;
        let own = shared.own.load_full();
        let mode = shared.config.mode;
        let mut program = load(shared, &own, &interface)?;
        // A veth hands on what is sent from inside it only to a peer that is prepared for it.
        let native = mode == Mode::Xdp || driver(&interface.name).is_ok_and(|driver| driver != "veth");
        let placed = program.attach(interface.index, native)?;
        let fast = Self {
            program,
            attached: placed.attached,
            _lock: lock,
            mode,
            interface,
            resolver: Resolver::open(Pinned::default())?,
            own,
            neighbours: BTreeMap::new(),
            refreshed: None,
            former: RedirectCounts::default(),
        };
        Ok((fast, placed))
    }

    /// Takes over this host's addresses, and looks at next hops again, once in a while. Hops are those that packets were
    /// passed on to.
    pub(super) fn refresh(&mut self, report: &Report, shared: &Shared) -> anyhow::Result<()> {
        self.follow(shared)?;
        if self.refreshed.is_some_and(|last| last.elapsed() < REFRESH) {
            return Ok(());
        }
        self.refreshed = Some(Instant::now());
        let hops = report.forwarded_to.keys().filter_map(|hop| match hop {
            IpAddr::V4(hop) => Some(*hop),
            IpAddr::V6(_) => None,
        });
        let hops: Vec<_> = hops.collect();
        let found = self.resolver.resolve(hops.iter().map(|hop| IpAddr::from(*hop)))?;
        for (hop, found) in hops.into_iter().zip(found) {
            self.tell(hop, found.ok().and_then(neighbour))?;
        }
        Ok(self.resolver.refresh()?)
    }

    /// The addresses that GUE is for are constants of the program; those that no client has are not.
    fn follow(&mut self, shared: &Shared) -> anyhow::Result<()> {
        let own = shared.own.load_full();
        if own == self.own {
            return Ok(());
        }
        if outer_addresses(&own) != outer_addresses(&self.own) {
            return self.replace(own, shared);
        }
        self.program.set_own(&own)?;
        self.own = own;
        Ok(())
    }

    fn tell(&mut self, hop: Ipv4Addr, way: Option<Neighbour>) -> Result<(), XdpError> {
        // Natively a frame goes out only where it came in: not every driver takes those that are redirected to it.
        let usable = way.filter(|way| {
            self.attached == Attached::Generic
                || way.ifindex == self.interface.index
                || self.mode == Mode::Xdp
        });
        if self.neighbours.get(&hop) == usable.as_ref() {
            return Ok(());
        }
        self.program.set_neighbour(hop, usable.as_ref())?;
        match usable {
            Some(way) => drop(self.neighbours.insert(hop, way)),
            None => drop(self.neighbours.remove(&hop)),
        }
        Ok(())
    }

    /// Between the two programs the socket takes everything.
    fn replace(&mut self, own: Arc<Own>, shared: &Shared) -> anyhow::Result<()> {
        self.program.detach();
        // Right for no program: should the next one be refused, it is tried again.
        self.own = Arc::default();
        let mut next = load(shared, &own, &self.interface)?;
        let placed = next.attach(self.interface.index, self.attached == Attached::Native)?;
        self.former.add(&self.program.counts()?);
        say(format_args!("{}: other addresses; XDP, {placed}", self.interface.name));
        self.attached = placed.attached;
        self.program = next;
        self.neighbours.clear();
        self.own = own;
        Ok(())
    }

    /// Adds what was counted here to what the workers counted.
    pub(super) fn report(&self, report: &mut Report) {
        let mut counts = self.former.clone();
        counts.add(&self.program.counts().unwrap_or_default());
        for (reason, (kept, later)) in Keep::ALL.iter().zip(counts.kept.iter().zip(&counts.kept_later)) {
            *report.kept.entry(reason.name()).or_default() += kept + later;
            *report.kept_on_later_hop.entry(reason.name()).or_default() += later;
        }
        for (to, from) in [
            (&mut report.kept_on_second_hop_from, &counts.second_hop_from),
            (&mut report.forwarded_to, &counts.forwarded_to),
        ] {
            from.iter().for_each(|(address, packets)| *to.entry((*address).into()).or_default() += packets);
        }
        let since = (counts.last_second_hop_ns > 0).then(|| since_ms(counts.last_second_hop_ns)).flatten();
        report.since_second_hop_ms = [report.since_second_hop_ms, since].into_iter().flatten().min();
        report.fast_path = Some(FastReport {
            attached: self.attached.name(),
            kept: counts.kept.iter().chain(&counts.kept_later).sum(),
            forwarded: counts.forwarded,
            left: counts.left,
        });
    }
}

fn since_ms(last_ns: u64) -> Option<u64> {
    let elapsed = monotonic().ok()?.saturating_sub(Duration::from_nanos(last_ns));
    u64::try_from(elapsed.as_millis()).ok()
}

/// A program that is not attached yet, which has the memory of SYNs from now on.
fn load(shared: &Shared, own: &Own, interface: &Interface) -> Result<Redirect, XdpError> {
    let program = Redirect::load(&shared.config, own, interface.mac, shared.syns.key())?;
    shared.syns.share(program.recent_syns()?);
    Ok(program)
}

fn neighbour(hop: NextHop) -> Option<Neighbour> {
    match (hop.egress, hop.source) {
        (Egress::Link { ifindex, from, to }, IpAddr::V4(source_address)) => {
            Some(Neighbour { destination: to, source: from, source_address, ifindex })
        }
        _ => None,
    }
}
