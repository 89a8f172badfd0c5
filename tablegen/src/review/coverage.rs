//! Binds before and after: which table each flow of a bind belongs to in the new file.
//!
//! The addresses of all binds of both files are cut at every prefix, and the ports of each part at every range. Within
//! one piece one bind of each file wins: the longest prefix, then the narrowest range of ports. What counts is the share
//! of the old bind's own addresses and ports, not of its traffic, which no file knows.

use common::bind::{Bind, Prefix, Protocol};
use common::table::ForwardingTable;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A part of a bind, and the table that it leads to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    /// The bind of the old file.
    pub(crate) bind: Bind,
    /// Index of its table in the old file.
    pub(crate) from: usize,
    /// Index of the table in the new file; none if no bind matches.
    pub(crate) to: Option<usize>,
    /// Share of the addresses and ports for which the old bind wins.
    pub(crate) share: f64,
}

/// A bind of one file and its table.
type Owned = (Bind, usize);

/// All parts of all binds of the old file, in order of bind.
pub(crate) fn parts(old: &ForwardingTable, new: &ForwardingTable) -> Vec<Part> {
    let (before, after) = (binds(old), binds(new));
    let named: BTreeMap<Bind, &str> =
        after.iter().filter_map(|(bind, at)| Some((*bind, new.tables().get(*at)?.name.as_str()))).collect();
    let name = |at: usize| old.tables().get(at).map(|table| table.name.as_str());
    let same = before.len() == after.len()
        && before.iter().all(|(bind, at)| name(*at).is_some_and(|name| named.get(bind) == Some(&name)));
    if same {
        let to: BTreeMap<Bind, usize> = after.into_iter().collect();
        let whole = |(bind, from)| Part { bind, from, to: to.get(&bind).copied(), share: 1.0 };
        return before.into_iter().map(whole).collect();
    }
    cut(&before, &after)
}

fn binds(file: &ForwardingTable) -> Vec<Owned> {
    let of_table = |(at, table): (usize, &common::table::Table)| {
        table.binds.iter().map(move |bind| (*bind, at)).collect::<Vec<_>>()
    };
    file.tables().iter().enumerate().flat_map(of_table).collect()
}

fn cut(before: &[Owned], after: &[Owned]) -> Vec<Part> {
    let mut sizes = BTreeMap::<(Bind, usize), BTreeMap<Option<usize>, f64>>::new();
    let both = before.iter().chain(after);
    let prefixes: BTreeSet<(bool, Prefix)> =
        both.map(|(bind, _)| (bind.prefix.address().is_ipv6(), bind.prefix)).collect();
    let [by_prefix, new_by_prefix] = [before, after].map(by_prefix);
    // In this order a prefix comes after all that contain it.
    let mut chain: Vec<Prefix> = Vec::new();
    let own = own_sizes(&prefixes);
    for (_, prefix) in &prefixes {
        while chain.last().is_some_and(|last| !last.contains(prefix.address())) {
            chain.pop();
        }
        chain.push(*prefix);
        let addresses = own.get(prefix).copied().unwrap_or(0.0);
        if addresses <= 0.0 {
            continue;
        }
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let [old, new] = [&by_prefix, &new_by_prefix].map(|binds| ranked(binds, &chain, protocol));
            for (ports, winners) in pieces(&old, &new) {
                let [Some(was), is] = winners else { continue };
                let to = is.map(|(_, table)| table);
                *sizes.entry(was).or_default().entry(to).or_default() += addresses * f64::from(ports);
            }
        }
    }
    let mut parts = Vec::new();
    for ((bind, from), to) in sizes {
        let all: f64 = to.values().sum();
        parts.extend(to.into_iter().map(|(to, size)| Part { bind, from, to, share: size / all }));
    }
    parts
}

type ByPrefix = BTreeMap<Prefix, Vec<Owned>>;

fn by_prefix(binds: &[Owned]) -> ByPrefix {
    let mut all = ByPrefix::new();
    binds.iter().for_each(|(bind, table)| all.entry(bind.prefix).or_default().push((*bind, *table)));
    all
}

/// Addresses of each prefix that are in no longer one.
fn own_sizes(prefixes: &BTreeSet<(bool, Prefix)>) -> BTreeMap<Prefix, f64> {
    let size = |prefix: &Prefix| {
        let width: i32 = if matches!(prefix.address(), IpAddr::V4(_)) { 32 } else { 128 };
        2.0_f64.powi(width - i32::from(prefix.bits()))
    };
    let mut own: BTreeMap<Prefix, f64> = prefixes.iter().map(|(_, one)| (*one, size(one))).collect();
    let mut covered = BTreeMap::<Prefix, u128>::new();
    let mut chain: Vec<Prefix> = Vec::new();
    for (_, prefix) in prefixes {
        while chain.last().is_some_and(|last| !last.contains(prefix.address())) {
            chain.pop();
        }
        if let Some(parent) = chain.last() {
            let free = if parent.address().is_ipv4() { 32 } else { 128 } - u32::from(prefix.bits());
            let covered = covered.entry(*parent).or_default();
            *covered = covered.wrapping_add(1_u128.checked_shl(free).unwrap_or(0));
        }
        chain.push(*prefix);
    }
    for (prefix, covered) in covered {
        let free = if prefix.address().is_ipv4() { 32 } else { 128 } - u32::from(prefix.bits());
        // Exact, so that a prefix which longer ones cover in full has no addresses of its own. 2¹²⁸ is 0 here.
        let rest = 1_u128.checked_shl(free).unwrap_or(0).wrapping_sub(covered);
        own.insert(prefix, rest as f64);
    }
    own
}

/// Binds that match addresses of the last prefix, those that win first.
fn ranked(binds: &ByPrefix, chain: &[Prefix], protocol: Protocol) -> Vec<Owned> {
    let mut all = Vec::new();
    for prefix in chain.iter().rev() {
        let mut here: Vec<Owned> = binds.get(prefix).into_iter().flatten().copied().collect();
        here.retain(|(bind, _)| bind.protocol == protocol);
        here.sort_by_key(|(bind, _)| (bind.ports.width(), bind.ports.first()));
        all.extend(here);
    }
    all
}

/// Numbers of ports, with the winners before and after.
fn pieces(old: &[Owned], new: &[Owned]) -> Vec<(u32, [Option<Owned>; 2])> {
    let bounds = |(bind, _): &Owned| [u32::from(bind.ports.first()), u32::from(bind.ports.last()) + 1];
    let starts: BTreeSet<u32> = old.iter().chain(new).flat_map(bounds).collect();
    let starts: Vec<u32> = starts.into_iter().collect();
    let [old, new] = [old, new].map(|binds| painted(binds, &starts));
    let ports = starts.windows(2).map(|pair| pair[1] - pair[0]);
    ports.zip(old.into_iter().zip(new)).map(|(ports, (old, new))| (ports, [old, new])).collect()
}

/// The winner of each piece: the first bind that covers it. Pieces that have a winner are skipped.
fn painted(binds: &[Owned], starts: &[u32]) -> Vec<Option<Owned>> {
    let mut winners = vec![None; starts.len().saturating_sub(1)];
    // The next piece at or after this one that is free.
    let mut next: Vec<usize> = (0..=winners.len()).collect();
    for owned in binds {
        let first = starts.partition_point(|start| *start < u32::from(owned.0.ports.first()));
        let end = starts.partition_point(|start| *start <= u32::from(owned.0.ports.last()));
        let mut at = free(&mut next, first);
        while at < end && at < winners.len() {
            winners[at] = Some(*owned);
            next[at] = at + 1;
            at = free(&mut next, at + 1);
        }
    }
    winners
}

fn free(next: &mut [usize], from: usize) -> usize {
    let mut at = from.min(next.len() - 1);
    while next[at] != at {
        next[at] = next[next[at]];
        at = next[at];
    }
    at
}
