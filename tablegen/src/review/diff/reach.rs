//! Which flows of the old binds no longer reach their table.
//!
//! The prefixes of all binds divide the addresses into cells: the addresses of a prefix that no longer prefix inside it
//! holds. All addresses of a cell have the same binds, so one address stands for the cell. The ports of a cell divide at
//! the first port of each of its binds and after the last. So one look-up for each piece, in the old and in the new
//! binds, compares all flows.

use common::bind::{Bind, BindIndex, Prefix, Protocol};
use common::table::ForwardingTable;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;

/// A bind of the old table with flows that reach another table now, or none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unreached {
    /// The bind.
    pub bind: Bind,
    /// The table that the flows reach now; `None` if no bind holds them.
    pub now: Option<String>,
}

/// A bind, and the name of its table.
type Named<'f> = (&'f str, Bind);

/// For each table of the old file, by name: its binds with flows that the new file leads elsewhere.
pub(super) fn unreached(
    old: &ForwardingTable,
    new: &ForwardingTable,
) -> BTreeMap<String, BTreeSet<Unreached>> {
    let mut found = BTreeMap::<String, BTreeSet<Unreached>>::new();
    let [was, is] = [old, new].map(named);
    let changed: BTreeSet<Prefix> = was.symmetric_difference(&is).map(|(_, bind)| bind.prefix).collect();
    // The decoder has checked that no two binds tie.
    let [Ok(before), Ok(after)] = [old, new].map(|file| BindIndex::new(&file.binds())) else { return found };
    let name = |file: &ForwardingTable, table: u32| file.tables()[table as usize].name.clone();
    let mut by_prefix = BTreeMap::<Prefix, Vec<Named<'_>>>::new();
    for (table, bind) in was.union(&is) {
        by_prefix.entry(bind.prefix).or_default().push((table, *bind));
    }
    // The prefixes that hold the present one, the longest last. Prefixes are in order of their first address, outer first.
    let mut outer = Vec::<Prefix>::new();
    for prefix in by_prefix.keys() {
        while outer.last().is_some_and(|last| !last.contains(prefix.address())) {
            outer.pop();
        }
        outer.push(*prefix);
        if !outer.iter().any(|prefix| changed.contains(prefix)) {
            continue;
        }
        let Some(address) = outside_longer(*prefix, &by_prefix) else { continue };
        let binds: Vec<Named<'_>> = outer.iter().flat_map(|prefix| &by_prefix[prefix]).copied().collect();
        for (protocol, port) in pieces(&binds) {
            let Some(table) = before.lookup(address, protocol, port) else { continue };
            let table = name(old, table);
            let now = after.lookup(address, protocol, port).map(|table| name(new, table));
            if now.as_ref() != Some(&table) {
                let holds = |(of, bind): &&Named<'_>| {
                    *of == table && was.contains(&(*of, *bind)) && bind.matches(address, protocol, port)
                };
                let bind = binds.iter().filter(holds).max_by_key(|(_, bind)| narrowness(bind));
                found
                    .entry(table.clone())
                    .or_default()
                    .extend(bind.map(|(_, bind)| Unreached { bind: *bind, now }));
            }
        }
    }
    found
}

fn named(file: &ForwardingTable) -> BTreeSet<Named<'_>> {
    file.tables()
        .iter()
        .flat_map(|table| table.binds.iter().map(|bind| (table.name.as_str(), *bind)))
        .collect()
}

/// The longer prefix wins, then the range of fewer ports.
fn narrowness(bind: &Bind) -> (u8, std::cmp::Reverse<u32>) {
    (bind.prefix.bits(), std::cmp::Reverse(bind.ports.width()))
}

/// The first address of a prefix that no longer prefix holds.
fn outside_longer<T>(prefix: Prefix, all: &BTreeMap<Prefix, T>) -> Option<IpAddr> {
    let mut address = prefix.address();
    let longer = all.range((Bound::Excluded(prefix), Bound::Unbounded)).map(|(longer, _)| longer);
    for longer in longer.take_while(|longer| prefix.contains(longer.address())) {
        if longer.address() > address {
            break;
        }
        address = address.max(next_after(*longer)?);
    }
    prefix.contains(address).then_some(address)
}

/// The address after the last of a prefix; `None` if that is the last of its family.
fn next_after(prefix: Prefix) -> Option<IpAddr> {
    let host_bits = |width: u8| u32::from(width - prefix.bits());
    match prefix.address() {
        IpAddr::V4(first) => {
            let next = u64::from(first.to_bits()) + (1 << host_bits(32));
            u32::try_from(next).ok().map(|next| IpAddr::V4(next.into()))
        }
        IpAddr::V6(first) => {
            let next = first.to_bits().checked_add(1_u128.checked_shl(host_bits(128))?)?;
            Some(IpAddr::V6(next.into()))
        }
    }
}

/// A port of each piece, by protocol.
fn pieces(binds: &[Named<'_>]) -> BTreeSet<(Protocol, u16)> {
    let edges = |(_, bind): &Named<'_>| {
        let after = bind.ports.last().checked_add(1);
        [Some(bind.ports.first()), after]
            .into_iter()
            .flatten()
            .map(|port| (bind.protocol, port))
            .collect::<Vec<_>>()
    };
    binds.iter().flat_map(edges).collect()
}
