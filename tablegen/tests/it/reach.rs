//! Changes that take connections away without moving a row: addresses, binds, and tables without an accepting backend.
//! What breaks is counted here from addresses and single flows.

use crate::tables::{ROWS, backends, first, next, parameters, with_health, with_state};
use common::backend::{Backend, Health, State};
use common::bind::{Bind, PortRange, Prefix, Protocol};
use common::table::{ForwardingTable, Lists, Table};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use tablegen::review::condition::Condition;
use tablegen::review::diff::Diff;
use tablegen::review::verdict::{Judgement, ReviewVerdict, Stated};

/// Rows whose old owner's address is in no packet of the new row.
fn lost(old: &ForwardingTable, new: &ForwardingTable) -> u32 {
    let [old, new] = [old, new].map(|file| &file.tables()[0]);
    let address = |table: &Table, hop: u16| table.backends[usize::from(hop)].address;
    let is_lost = |row: &u32| {
        let owner = address(old, old.hops.get(*row)[0]);
        let hops: Vec<IpAddr> = new.hops.get(*row).iter().map(|hop| address(new, *hop)).collect();
        let carried = |hop: &IpAddr| hop.is_ipv4() == hops[0].is_ipv4();
        !hops.iter().filter(|hop| carried(hop)).any(|hop| *hop == owner)
    };
    u32::try_from((0..ROWS).filter(is_lost).count()).unwrap()
}

fn with_address(mut backends: Vec<Backend>, index: usize, address: &str) -> Vec<Backend> {
    backends[index].address = address.parse().unwrap();
    backends
}

#[test]
fn a_backend_with_another_address_is_another_host() {
    let old = first(backends(4));
    for address in ["10.0.0.99", "10.9.9.9"] {
        let new = next(&old, with_address(backends(4), 2, address));
        let diff = Diff::new(&old, &new);
        let judgement = Judgement::new(&diff, &Stated::default());
        assert_eq!(diff.moved(), 0, "rows are ranked by id");
        let [asked] = &judgement.conditions[..] else { panic!("{address}: {:?}", judgement.conditions) };
        assert_eq!(asked.condition, Condition::SameHost("b-002".to_owned()), "{address}");
        assert!(asked.rows >= lost(&old, &new) && lost(&old, &new) > 10_000, "{address}: {asked:?}");
        assert_eq!((judgement.verdict, judgement.reasons.len()), (ReviewVerdict::SafeIf, 0), "{address}");
        let stated = Stated { accepted: vec![asked.condition.clone()], ..Stated::default() };
        let confirmed = Judgement::new(&Diff::stated(&old, &new, &stated), &stated);
        assert_eq!(confirmed.outcome(), ReviewVerdict::Safe, "{address}");
    }
    // An address that belongs to another id now cannot be the same host.
    let mut swapped = backends(4);
    let [a, b] = [swapped[0].address, swapped[1].address];
    (swapped[0].address, swapped[1].address) = (b, a);
    let judgement = Judgement::new(&Diff::new(&old, &next(&old, swapped)), &Stated::default());
    assert_eq!(judgement.outcome(), ReviewVerdict::NotSafe, "{:?}", judgement.conditions);
}

/// A first address of 203.0.113.0/29 or of one of its halves and quarters, with ports 1 to 4.
fn bind() -> impl Strategy<Value = Bind> {
    (29..=32_u8, 0..8_u32, any::<bool>(), 1..=4_u16, 0..=3_u16).prop_map(|(bits, host, tcp, port, more)| {
        let first = Ipv4Addr::new(203, 0, 113, 0).to_bits() | (host & (u32::MAX << (32 - bits)));
        Bind {
            prefix: Prefix::new(Ipv4Addr::from(first).into(), bits).unwrap(),
            protocol: if tcp { Protocol::Tcp } else { Protocol::Udp },
            ports: PortRange::new(port, (port + more).min(4)).unwrap(),
        }
    })
}

fn elsewhere(table: &str) -> Bind {
    let port = if table == "a" { 1 } else { 2 };
    let prefix = Prefix::host(Ipv4Addr::new(198, 51, 100, 1).into());
    Bind { prefix, protocol: Protocol::Tcp, ports: PortRange::single(port) }
}

/// Two tables, each with a bind elsewhere, because none may be without one; a bind that ties with an earlier one is left
/// out.
fn file(all: &[(Bind, bool)]) -> ForwardingTable {
    let mut taken: Vec<Bind> = Vec::new();
    // Each table has a server of its own, so a flow that reaches the other table reaches another server.
    let mut hops = Lists::empty(ROWS, 4);
    (0..ROWS).for_each(|row| hops.set(row, [0]));
    let host = |table: &str| Ipv4Addr::new(10, 0, 0, if table == "a" { 1 } else { 2 });
    let mut tables = ["a", "b"].map(|name| Table {
        name: name.to_owned(),
        binds: vec![elsewhere(name)],
        hops: hops.clone(),
        lineage: Lists::empty(ROWS, 3),
        ..parameters(vec![Backend::new("web", host(name).into())])
    });
    for (bind, second) in all {
        if !taken.iter().any(|other| other.ties_with(bind)) {
            taken.push(*bind);
            tables[usize::from(*second)].binds.push(*bind);
        }
    }
    tables.iter_mut().for_each(|table| table.binds.sort());
    ForwardingTable::new(None, tables.into()).unwrap()
}

/// The table and the bind that a flow belongs to: the longest prefix, then the fewest ports.
fn owner(file: &ForwardingTable, address: IpAddr, protocol: Protocol, port: u16) -> Option<(String, Bind)> {
    let all =
        file.tables().iter().flat_map(|table| table.binds.iter().map(|bind| (table.name.clone(), *bind)));
    let mut best: Option<(String, Bind)> = None;
    for (name, bind) in all.filter(|(_, bind)| bind.matches(address, protocol, port)) {
        let better = best.as_ref().is_none_or(|(_, other)| {
            bind.prefix.bits() > other.prefix.bits()
                || (bind.prefix == other.prefix && bind.ports.width() < other.ports.width())
        });
        if better {
            best = Some((name, bind));
        }
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every flow of a small network is looked up in both files.
    #[test]
    fn binds_that_lose_flows_are_named(
        old in prop::collection::vec((bind(), any::<bool>()), 0..7),
        new in prop::collection::vec((bind(), any::<bool>()), 0..7),
        kept in 0..7_usize,
    ) {
        // Mostly the same binds, so that few flows change.
        let new: Vec<_> = old.iter().take(kept).chain(&new).copied().collect();
        let (old, new) = (file(&old), file(&new));
        let mut expected = BTreeSet::new();
        for host in 0..8 {
            let address: IpAddr = Ipv4Addr::new(203, 0, 113, host).into();
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                for port in 0..6 {
                    let Some((was, bind)) = owner(&old, address, protocol, port) else { continue };
                    let now = owner(&new, address, protocol, port).map(|(name, _)| name);
                    if now.as_ref() != Some(&was) {
                        expected.insert((was, bind, now));
                    }
                }
            }
        }
        let diff = Diff::new(&old, &new);
        let found: BTreeSet<_> =
            diff.retired.iter().map(|lost| (lost.table.clone(), lost.bind, lost.to.clone())).collect();
        // A bind is named once, with one of the tables that its flows reach now.
        prop_assert!(found.is_subset(&expected), "{found:?} {expected:?}");
        let binds = |all: &BTreeSet<(String, Bind, Option<String>)>| -> BTreeSet<(String, Bind)> {
            all.iter().map(|(table, bind, _)| (table.clone(), *bind)).collect()
        };
        prop_assert_eq!(binds(&found), binds(&expected));
        let judgement = Judgement::new(&diff, &Stated::default());
        prop_assert!(found.is_empty() || judgement.outcome() != ReviewVerdict::Safe);
    }
}

#[test]
fn a_table_that_newly_fails_open_is_not_safe() {
    let old = first(backends(4));
    let all = |change: fn(Vec<Backend>, usize) -> Vec<Backend>| (0..4).fold(backends(4), change);
    for changed in [
        all(|backends, index| with_state(backends, index, State::Draining)),
        all(|backends, index| with_health(backends, index, Health::Down)),
    ] {
        let diff = Diff::new(&old, &next(&old, changed));
        assert_eq!(Judgement::new(&diff, &Stated::default()).outcome(), ReviewVerdict::NotSafe);
    }
}
