//! Changes that take connections away without moving a row: addresses, binds, and tables without an accepting backend.
//! What breaks is counted here from addresses and single flows.

use crate::tables::{ROWS, backends, first, next, parameters, with_health, with_state};
use common::backend::{Backend, Health, State};
use common::bind::{Bind, PortRange, Prefix, Protocol};
use common::table::{ForwardingTable, Lists, Table};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use tablegen::config::Config;
use tablegen::generate::{History, generate};
use tablegen::review::diff::{Diff, Risk};
use tablegen::review::verdict::{Limits, ReviewVerdict};
use tablegen::verify::Proof;

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
    let swapped = {
        let mut all = backends(4);
        let [a, b] = [all[0].address, all[1].address];
        (all[0].address, all[1].address) = (b, a);
        all
    };
    for (name, changed) in [
        ("a wrong digit", with_address(backends(4), 2, "10.0.0.99")),
        ("another family", with_address(backends(4), 2, "2001:db8::2")),
        ("two swap", swapped),
    ] {
        let new = next(&old, changed);
        let diff = Diff::new(&old, &new);
        let rows = &diff.tables[0].rows;
        assert_eq!(rows.moved, 0, "{name}: rows are ranked by id");
        assert!(rows.at_risk > 10_000, "{name}: {}", rows.at_risk);
        assert_eq!(rows.at_risk, lost(&old, &new), "{name}");
        assert!(matches!(ReviewVerdict::new(&diff, &[]), ReviewVerdict::AtRisk(_)), "{name}");
    }
    let diff = Diff::new(&old, &next(&old, with_address(backends(4), 2, "10.0.0.99")));
    assert_eq!(
        diff.tables[0].rows.risks.keys().map(|(_, risk)| *risk).collect::<BTreeSet<_>>(),
        [Risk::Renumbered].into()
    );
}

/// The proof counts the same rows by other code.
#[test]
fn verify_finds_the_rows_of_another_address() {
    let config = |addresses: [&str; 4]| {
        let mut text =
            "version: 1\ntables:\n  - name: web\n    seed: 000102030405060708090a0b0c0d0e0f\n".to_owned();
        text += "    hash_key: 0102030405060708090a0b0c0d0e0f10\n    binds: [{ address: 203.0.113.10, protocol: tcp, port: 443 }]\n    backends:\n";
        for (number, address) in addresses.iter().enumerate() {
            text += &format!("      - {{ id: web-{number}, address: {address} }}\n");
        }
        Config::parse(&text, std::path::Path::new("web.yaml")).unwrap()
    };
    let before = config(["10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13"]);
    let old = generate(&before.tables, History::None).unwrap().table;
    for addresses in [
        ["10.0.0.11", "10.0.0.10", "10.0.0.12", "10.0.0.13"],
        ["10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.99"],
    ] {
        let after = config(addresses);
        let new = generate(&after.tables, History::Parent(&old)).unwrap().table;
        let proof = Proof::new(&new, &after, Some(&old));
        let table = &proof.tables[0];
        assert!(!proof.holds(), "{addresses:?}");
        assert_eq!(table.may_hold - table.reachable, lost(&old, &new), "{addresses:?}");
        assert_eq!(Diff::new(&old, &new).at_risk(), u64::from(lost(&old, &new)), "{addresses:?}");
    }
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
    let mut tables = ["a", "b"].map(|name| Table {
        name: name.to_owned(),
        binds: vec![elsewhere(name)],
        hops: Lists::empty(ROWS, 4),
        lineage: Lists::empty(ROWS, 3),
        ..parameters(with_state(backends(1), 0, State::Inactive))
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
        let found: BTreeSet<_> = diff.tables.iter().flat_map(|table| {
            table.unreached.iter().map(|lost| (table.name.clone(), lost.bind, lost.now.clone()))
        }).collect();
        for table in &diff.tables {
            prop_assert_eq!(table.rows.at_risk > 0, !table.unreached.is_empty());
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_table_that_newly_fails_open_is_over_a_limit() {
    let old = first(backends(4));
    let all = |change: fn(Vec<Backend>, usize) -> Vec<Backend>| (0..4).fold(backends(4), change);
    for changed in [
        all(|backends, index| with_state(backends, index, State::Draining)),
        all(|backends, index| with_health(backends, index, Health::Down)),
    ] {
        let new = next(&old, changed.clone());
        let excesses = Limits::default().excesses(&Diff::new(&old, &new));
        assert_eq!(excesses.iter().map(|excess| excess.limit).collect::<Vec<_>>(), ["fail-open"]);
        // It is said when it begins, and again only after it has ended.
        assert_eq!(Limits::default().excesses(&Diff::new(&new, &next(&new, changed))), []);
    }
    let three = (0..3).fold(backends(4), |backends, index| with_state(backends, index, State::Draining));
    assert_eq!(Limits::default().excesses(&Diff::new(&old, &next(&old, three))), []);
}
