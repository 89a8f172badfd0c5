//! The fast path in the kernel: it takes the plain case off the UDP socket, and this keeps it to the network as it is.
//!
//! Program and workers keep nothing between packets that the other would need, so either may decide about any packet of
//! a flow, and the program may come and go. But for one thing: a SYN cookie is recognised by whichever of them saw
//! the SYN, or by the program in any case, which asks the kernel.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::config::{Mode, RedirectConfig};
use super::counters::Report;
use super::decide::Keep;
use super::run::say;
use crate::instance::InstanceLock;
use crate::route::{Egress, NextHop, Pinned, Resolver};
use crate::sys::interface::{Interface, driver};
use crate::sys::thread::monotonic;
use crate::xdp::{Attached, Neighbour, Placed, Redirect, RedirectCounts, XdpError};

/// How often next hops and own addresses are looked at again.
const REFRESH: Duration = Duration::from_secs(1);

/// The program on the interface, and what it was told.
#[derive(Debug)]
pub(super) struct FastPath {
    program: Redirect,
    attached: Attached,
    _lock: InstanceLock,
    config: RedirectConfig,
    interface: Interface,
    resolver: Resolver,
    own: Vec<Ipv4Addr>,
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
    pub(super) fn start(config: &RedirectConfig) -> anyhow::Result<Option<Self>> {
        let Some(name) = &config.interface else { return Ok(None) };
        if config.mode == Mode::Socket || !config.second_chance {
            return Ok(None);
        }
        match Self::on(name, config) {
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

    fn on(name: &str, config: &RedirectConfig) -> anyhow::Result<(Self, Placed)> {
        let interface = Interface::named(name)?;
        let lock = InstanceLock::on(&interface, say)?;
        let own = own_addresses()?;
        let (program, placed) = load(config, &own, &interface)?;
        let fast = Self {
            program,
            attached: placed.attached,
            _lock: lock,
            config: config.clone(),
            interface,
            resolver: Resolver::open(Pinned::default())?,
            own,
            neighbours: BTreeMap::new(),
            refreshed: None,
            former: RedirectCounts::default(),
        };
        Ok((fast, placed))
    }

    /// Looks at own addresses and next hops again, once in a while. Hops are those that packets were passed on to.
    pub(super) fn refresh(&mut self, report: &Report) -> anyhow::Result<()> {
        if self.refreshed.is_some_and(|last| last.elapsed() < REFRESH) {
            return Ok(());
        }
        self.refreshed = Some(Instant::now());
        let own = own_addresses()?;
        if own != self.own {
            self.replace(own)?;
        }
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

    fn tell(&mut self, hop: Ipv4Addr, way: Option<Neighbour>) -> Result<(), XdpError> {
        // Natively a frame goes out only where it came in: not every driver takes those that are redirected to it.
        let usable = way.filter(|way| {
            self.attached == Attached::Generic
                || way.ifindex == self.interface.index
                || self.config.mode == Mode::Xdp
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
    fn replace(&mut self, own: Vec<Ipv4Addr>) -> anyhow::Result<()> {
        let mut next = Redirect::load(&self.config, &own, self.interface.mac)?;
        self.program.detach();
        // Right for no program: should the next one be refused, it is tried again.
        self.own.clear();
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

fn load(
    config: &RedirectConfig,
    own: &[Ipv4Addr],
    interface: &Interface,
) -> anyhow::Result<(Redirect, Placed)> {
    // A veth hands on what is sent from inside it only to a peer that is prepared for it.
    let native = config.mode == Mode::Xdp || driver(&interface.name).is_ok_and(|driver| driver != "veth");
    let mut program = Redirect::load(config, own, interface.mac)?;
    let placed = program.attach(interface.index, native)?;
    Ok((program, placed))
}

fn neighbour(hop: NextHop) -> Option<Neighbour> {
    match (hop.egress, hop.source) {
        (Egress::Link { ifindex, from, to }, IpAddr::V4(source_address)) => {
            Some(Neighbour { destination: to, source: from, source_address, ifindex })
        }
        _ => None,
    }
}

/// This host's IPv4 addresses, ascending: the local table of its routes (proc(5), fib_trie). Those of the loopback and
/// single VIPs that lie there are among them; GUE for these is for this host too.
fn own_addresses() -> std::io::Result<Vec<Ipv4Addr>> {
    let mut own = local(&fs::read_to_string("/proc/thread-self/net/fib_trie")?);
    own.sort_unstable();
    own.dedup();
    Ok(own)
}

/// A leaf's address stands in the line before those of its routes.
fn local(trie: &str) -> Vec<Ipv4Addr> {
    let mut own = Vec::new();
    let mut leaf = None;
    for line in trie.lines() {
        let line = line.trim_start();
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.trim().parse::<Ipv4Addr>().ok();
        } else if line.starts_with("/32 host LOCAL") {
            own.extend(leaf.filter(|address| !address.is_loopback()));
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_the_local_host_routes() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.1.0\n        /24 link UNICAST\n     |-- 10.0.1.1\n        /32 host LOCAL\n     |-- 10.0.1.255\n        /32 link BROADCAST\n     +-- 127.0.0.0/8 2 0 2\n        |-- 127.0.0.1\n           /32 host LOCAL\n";
        assert_eq!(local(trie), [Ipv4Addr::new(10, 0, 1, 1)]);
        assert_eq!(local("nonsense\n/32 host LOCAL"), [] as [Ipv4Addr; 0]);
    }
}
