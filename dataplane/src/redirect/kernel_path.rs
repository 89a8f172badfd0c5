//! The kernel path: loads and attaches the kernel program, which takes the common packets off the UDP socket,
//! and updates its addresses and next hops when the network changes.
//!
//! The only per-flow state that program and workers share is the table of recently accepted SYNs
//! ([`recent`](super::recent)). So either may decide any packet of a flow, and the program can be attached
//! and detached at any time.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::clients::HostAddresses;
use super::config::Mode;
use super::counters::Report;
use super::decide::Accept;
use super::program::{Neighbour, Redirect, RedirectCounts, outer_addresses};
use super::run::{Shared, log};
use crate::control::instance::InstanceLock;
use crate::drivers::xdp::{Attached, Attachment, XdpError};
use crate::host::route::{Pinned, ResolvedRoute, Resolver};
use crate::host::sys::interface::{Interface, driver};
use crate::host::sys::thread::monotonic;
use crate::pipeline::NextHop;

/// Interval between two refreshes of the next hops.
const REFRESH: Duration = Duration::from_secs(1);

/// The attached program, and the state that was written to its maps.
#[derive(Debug)]
pub(super) struct KernelPath {
    program: Redirect,
    attached: Attached,
    _lock: InstanceLock,
    mode: Mode,
    interface: Interface,
    resolver: Resolver,
    own: Arc<HostAddresses>,
    neighbours: BTreeMap<Ipv4Addr, Neighbour>,
    refreshed: Option<Instant>,
    /// Counters of programs that were replaced.
    former: RedirectCounts,
}

/// The kernel program's part of a report. Its packets are also in the sums above, together with the workers'.
#[derive(Debug, Serialize)]
pub struct KernelPathReport {
    attached: &'static str,
    #[serde(rename = "kept")]
    accepted: u64,
    forwarded: u64,
    /// Packets punted to the workers, or to the kernel if they are not for the redirector, by reason.
    #[serde(rename = "left")]
    punted: BTreeMap<&'static str, u64>,
}

impl fmt::Display for KernelPathReport {
    /// One line; omits counters that are zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "by XDP ({}): kept {}, passed on {}; punted",
            self.attached, self.accepted, self.forwarded
        )?;
        for (name, count) in self.punted.iter().filter(|(_, count)| **count > 0) {
            write!(f, " {name} {count},")?;
        }
        write!(f, " total {}", self.punted.values().sum::<u64>())
    }
}

impl KernelPath {
    /// Starts the kernel path according to `mode`: with `xdp` a failure is an error; with `auto` it is logged
    /// and the socket takes all packets.
    pub(super) fn start(shared: &Shared) -> anyhow::Result<Option<Self>> {
        let config = &shared.config;
        let Some(name) = &config.interface else { return Ok(None) };
        if config.mode == Mode::Socket || !config.second_chance {
            return Ok(None);
        }
        match Self::on(name, shared) {
            Ok((kernel_path, placed)) => {
                log(format_args!("{name}: XDP, {placed}"));
                Ok(Some(kernel_path))
            }
            Err(error) if config.mode == Mode::Auto => {
                log(format_args!("{name}: no XDP, the socket takes all packets: {error:#}"));
                Ok(None)
            }
            Err(error) => Err(error.context(name.clone())),
        }
    }

    fn on(name: &str, shared: &Shared) -> anyhow::Result<(Self, Attachment)> {
        let interface = Interface::named(name)?;
        let lock = InstanceLock::on(&interface, log)?;
        let own = shared.own.load_full();
        let mode = shared.config.mode;
        let mut program = load(shared, &own, &interface)?;
        // A veth passes on frames that are sent from inside it only to a peer that is prepared for them.
        let native = mode == Mode::Xdp || driver(&interface.name).is_ok_and(|driver| driver != "veth");
        let placed = program.attach(interface.index, native)?;
        let kernel_path = Self {
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
        Ok((kernel_path, placed))
    }

    /// Writes this host's addresses to the program if they changed, and refreshes the next hops once per
    /// [`REFRESH`]. The next hops are those that packets were forwarded to.
    pub(super) fn refresh(&mut self, report: &Report, shared: &Shared) -> anyhow::Result<()> {
        self.update_addresses(shared)?;
        if self.refreshed.is_some_and(|last| last.elapsed() < REFRESH) {
            return Ok(());
        }
        self.refreshed = Some(Instant::now());
        let hops = report.forwarded_to.keys().filter_map(|hop| match hop {
            IpAddr::V4(hop) => Some(*hop),
            IpAddr::V6(_) => None,
        });
        let hops: Vec<_> = hops.collect();
        // An error of the system says nothing about the next hops: they stay as they were.
        let found = match self.resolver.resolve(hops.iter().map(|hop| IpAddr::from(*hop))) {
            Ok(found) => found,
            Err(error) => {
                log(format_args!("next hops stay as they were: {error}"));
                return Ok(());
            }
        };
        for (hop, found) in hops.into_iter().zip(found) {
            self.set_neighbour(hop, found.ok().and_then(neighbour))?;
        }
        if let Err(error) = self.resolver.refresh() {
            log(format_args!("neighbours are not refreshed: {error}"));
        }
        Ok(())
    }

    /// The destination addresses of outer headers are constants of the program; a change replaces it. The
    /// forbidden sources are a map; a change updates it.
    fn update_addresses(&mut self, shared: &Shared) -> anyhow::Result<()> {
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

    fn set_neighbour(&mut self, hop: Ipv4Addr, neighbour: Option<Neighbour>) -> Result<(), XdpError> {
        // In native mode frames leave only through the interface that they arrived on: not every driver
        // accepts frames that are redirected to it.
        let usable = neighbour.filter(|neighbour| {
            self.attached == Attached::Generic
                || neighbour.ifindex == self.interface.index
                || self.mode == Mode::Xdp
        });
        if self.neighbours.get(&hop) == usable.as_ref() {
            return Ok(());
        }
        self.program.set_neighbour(hop, usable.as_ref())?;
        match usable {
            Some(neighbour) => drop(self.neighbours.insert(hop, neighbour)),
            None => drop(self.neighbours.remove(&hop)),
        }
        Ok(())
    }

    /// Replaces the program. Between the two the socket takes all packets.
    fn replace(&mut self, own: Arc<HostAddresses>, shared: &Shared) -> anyhow::Result<()> {
        self.program.detach();
        // Marks that no program is attached: if the next one cannot be loaded, the next refresh tries again.
        self.own = Arc::default();
        let mut next = load(shared, &own, &self.interface)?;
        let placed = next.attach(self.interface.index, self.attached == Attached::Native)?;
        self.former.add(&self.program.counts()?);
        log(format_args!("{}: addresses changed; XDP, {placed}", self.interface.name));
        self.attached = placed.attached;
        self.program = next;
        self.neighbours.clear();
        self.own = own;
        Ok(())
    }

    /// Adds the program's counters to the workers'.
    pub(super) fn report(&self, report: &mut Report) {
        let mut counts = self.former.clone();
        counts.add(&self.program.counts().unwrap_or_default());
        for (reason, (accepted, later)) in
            Accept::ALL.iter().zip(counts.accepted.iter().zip(&counts.accepted_later_hop))
        {
            *report.kept.entry(reason.name()).or_default() += accepted + later;
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
        report.kernel_path = Some(KernelPathReport {
            attached: self.attached.name(),
            accepted: counts.accepted.iter().chain(&counts.accepted_later_hop).sum(),
            forwarded: counts.forwarded,
            punted: counts.punted,
        });
    }
}

fn since_ms(last_ns: u64) -> Option<u64> {
    let elapsed = monotonic().ok()?.saturating_sub(Duration::from_nanos(last_ns));
    u64::try_from(elapsed.as_millis()).ok()
}

/// Loads a program, not attached yet, and moves the table of SYNs into its memory.
fn load(shared: &Shared, own: &HostAddresses, interface: &Interface) -> Result<Redirect, XdpError> {
    let program = Redirect::load(&shared.config, own, interface.mac, shared.syns.key())?;
    shared.syns.share(program.recent_syns()?);
    Ok(program)
}

fn neighbour(route: ResolvedRoute) -> Option<Neighbour> {
    match (route.next_hop, route.source) {
        (NextHop::Link { ifindex, source, destination }, IpAddr::V4(source_address)) => {
            Some(Neighbour { destination: destination.0, source: source.0, source_address, ifindex })
        }
        _ => None,
    }
}
