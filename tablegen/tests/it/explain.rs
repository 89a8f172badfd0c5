//! Explanations agree with the table they explain, whatever its states.

use crate::support::{backends, build, spec};
use common::backend::{Backend, Health, State};
use common::flow::HashFields;
use common::table::ForwardingTable;
use std::collections::BTreeSet;
use std::path::Path;
use tablegen::config::Config;
use tablegen::generate::{History, generate};
use tablegen::glb;
use tablegen::review::explain::{Candidate, Flow, Lookup, explain};

fn lookup(table: &ForwardingTable, flow: &str) -> Lookup {
    explain(table, &flow.parse::<Flow>().unwrap()).matched.unwrap().lookup
}

/// What is said of the backends of many rows, and that it fits each row's hop list.
fn reasons(table: &ForwardingTable) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for port in 1..=2_000 {
        let lookup = lookup(table, &format!("tcp 198.51.100.7:{port} > 203.0.113.10:443"));
        let one = &table.tables()[0];
        assert_eq!(lookup.hops, crate::support::ids(one, one.hops.get(lookup.row)));
        assert_eq!(lookup.candidates.len(), one.backends.len());
        for candidate in &lookup.candidates {
            fits(candidate, &lookup);
            all.insert(candidate.why.clone());
        }
    }
    all
}

fn fits(candidate: &Candidate, lookup: &Lookup) {
    let Candidate { id, hop, why, .. } = candidate;
    assert_eq!(*hop, lookup.hops.iter().position(|hop| hop == id));
    match hop {
        Some(0) => assert!(why.starts_with("primary"), "{why}"),
        Some(_) => {
            assert!(
                !why.contains("not needed") && !why.contains("in the past") && !why.contains("cut"),
                "{why}"
            )
        }
        None => assert!(
            why == "not needed" || why.starts_with("inactive") || why.ends_with("cut, the list is full"),
            "{why}"
        ),
    }
}

#[test]
fn every_reason_in_one_table() {
    let base = backends(&["a", "b", "c", "d", "e", "f", "g"]);
    let parent = build(&spec(base.clone()), History::None);
    let mut after = base;
    after[0].state = State::Draining;
    after[1].health = Health::Down;
    after[2].state = State::Inactive;
    (after[3].state, after[3].health) = (State::Draining, Health::Down);
    for (id, at) in [("x", 1), ("y", 2)] {
        let new = Backend::new(id, [10, 1, 0, at].into());
        after.push(Backend { state: State::Filling, fill: 50, ..new });
    }
    let child = build(&spec(after.clone()), History::Parent(&parent));
    let said = reasons(&child);
    for expected in [
        "primary: the first that accepts",
        "owned this row before (newest)",
        "owned this row before (newest), and down, so after the live ones",
        "preferred, but draining: keeps its connections",
        "preferred, but draining: keeps its connections, and down, so after the live ones",
        "preferred, but down: last, in case the probes are wrong",
        "filling, between the primary and the next active backend",
        "heir: the next that accepts, if the primary fails",
        "preferred, but down: last, in case the probes are wrong; cut, the list is full",
        "inactive: in no hop list",
        "not needed",
    ] {
        assert!(said.contains(expected), "{expected}: {said:#?}");
    }
    let said = reasons(&build(&spec(after), History::None));
    assert!(said.contains("the owner without the filling primary"), "{said:#?}");
}

#[test]
fn where_nobody_accepts() {
    let mut all = backends(&["a", "b", "c"]);
    all.iter_mut().for_each(|one| one.health = Health::Down);
    let said = reasons(&build(&spec(all.clone()), History::None));
    assert!(said.contains("primary: no backend of the table accepts, so health is ignored"), "{said:#?}");
    all.iter_mut().for_each(|one| one.state = State::Draining);
    let said = reasons(&build(&spec(all.clone()), History::None));
    assert!(said.iter().any(|why| why.starts_with("primary: no backend accepts and none is in service")));
    all.iter_mut().for_each(|one| one.state = State::Inactive);
    let table = build(&spec(all), History::None);
    assert_eq!(lookup(&table, "tcp 198.51.100.7:1 > 203.0.113.10:443").hops, [""; 0]);
}

/// What packets do not carry is listed and marked.
#[test]
fn hops_that_are_not_sent_are_marked() {
    let base = backends(&["a", "b", "c", "d"]);
    let parent = build(&spec(base.clone()), History::None);
    let six = |id: &str, address: &str| Backend::new(id, address.parse().unwrap());
    let next = [base, vec![six("s", "2001:db8::1"), six("t", "2001:db8::2")]].concat();
    let child = build(&spec(next), History::Parent(&parent));
    let won_by = |port: u16| {
        let flow = format!("tcp 198.51.100.7:{port} > 203.0.113.10:443");
        let found = lookup(&child, &flow);
        (found.hops[0] == "s").then_some((flow, found))
    };
    let (flow, found) = (1..1_000).find_map(won_by).unwrap();
    assert_eq!((&found.hops[1], found.not_sent.as_slice()), (&"t".to_owned(), &found.hops[2..]));
    let why = |hop: usize| &found.candidates.iter().find(|one| one.hop == Some(hop)).unwrap().why;
    assert!(why(1).starts_with("heir: the next that accepts"), "{}", why(1));
    assert_eq!(
        why(2),
        "owned this row before (newest); not sent: its address is of another family than the primary's"
    );
    let text = explain(&child, &flow.parse().unwrap()).to_string();
    let line = format!("  not sent    {}, of another address family than the primary\n", found.hops[2]);
    assert!(text.contains(&line), "{text}");
}

#[test]
fn a_change_of_fields_shows_both_rows() {
    let mut both = spec(backends(&["a", "b", "c"]));
    both.alt_hash_fields = HashFields::SRC_ADDR;
    let table = build(&both, History::None);
    let flow = "tcp 198.51.100.7:1 > 203.0.113.10:443".parse().unwrap();
    let matched = explain(&table, &flow).matched.unwrap();
    assert_eq!(matched.lookup.hash_input, "c63364070001");
    assert_eq!(matched.alternate.unwrap().hash_input, "c6336407");
}

/// GLB's digests are compared octet by octet, the lowest first; its table file does not hold what they are made of.
#[test]
fn tables_of_glbs_ranking() {
    let imported = glb::import(include_str!("../data/glb/t1-basic.json")).unwrap();
    let config = Config::parse(&imported.yaml, Path::new("")).unwrap();
    let flow = "tcp 10.11.12.13:45678 > 1.1.1.1:80";
    let native = lookup(&generate(&config.tables, History::None).unwrap().table, flow);
    assert_eq!((native.hash.as_str(), native.row), ("008972f1657a5cbd", 0x5cbd));
    assert_eq!(native.hops, ["3.4.5.6", "2.3.4.5"]);
    let scores: Vec<&String> = native.candidates.iter().flat_map(|one| &one.score).collect();
    assert!(scores.len() == 3 && scores.is_sorted());
    let theirs = ForwardingTable::read(&glb::export(&config.tables).unwrap().octets).unwrap();
    let theirs = lookup(&theirs, flow);
    assert_eq!(theirs.hops, native.hops);
    assert!(theirs.candidates.iter().all(|one| one.score.is_none()));
    assert!(theirs.candidates[0].why.contains("does not hold the seed"));
}
