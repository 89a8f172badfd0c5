//! Faults put into a right table, each of which must be found for the right reason.

use crate::support::{self, spec};
use common::backend::{Backend, Health, State};
use common::bind::PortRange;
use common::flow::HashFields;
use common::hash::SipKey;
use common::table::{ForwardingTable, Table};
use tablegen::config::{Config, TableSpec};
use tablegen::generate::History;
use tablegen::review::diff::Diff;
use tablegen::review::holders::Cause;
use tablegen::verify::{Proof, Reason};

/// Three tables in a row: four backends; two more; then one drains and one is down.
struct Line {
    grandparent: ForwardingTable,
    parent: ForwardingTable,
    config: Config,
    right: ForwardingTable,
}

fn named(count: usize) -> Vec<Backend> {
    let zone = |at: usize| Some(["a", "b", "c"][at % 3].to_owned());
    let ids: Vec<String> = (1..=count).map(|at| format!("web-{at}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let all = support::backends(&ids).into_iter().enumerate();
    all.map(|(at, one)| Backend { zone: zone(at), ..one }).collect()
}

fn line() -> Line {
    let with_zones = |backends| TableSpec { spread_zones: true, ..spec(backends) };
    let grandparent = support::build(&with_zones(named(4)), History::None);
    let parent = support::build(&with_zones(named(6)), History::Parent(&grandparent));
    let mut last = named(6);
    last[0].state = State::Draining;
    last[1].health = Health::Down;
    last[5].state = State::Filling;
    last[5].fill = 50;
    last[2].weight = 2.0;
    let spec = with_zones(last);
    let right = support::build(&spec, History::Parent(&parent));
    Line { grandparent, parent, config: Config { tables: vec![spec], ..Config::default() }, right }
}

/// The first row whose lists please.
fn row(table: &Table, wanted: impl Fn(&[u16], &[u16]) -> bool) -> u32 {
    (0..table.rows())
        .find(|row| wanted(table.hops.get(*row), table.lineage.get(*row)))
        .expect("a row like that")
}

/// Rewrites one hop list.
fn with_hops(table: &mut Table, row: u32, change: impl FnOnce(&mut Vec<u16>)) {
    let mut list = table.hops.get(row).to_vec();
    change(&mut list);
    table.hops.set(row, list);
}

/// Gives a row to a backend that is one of its later hops.
fn owned_by(table: &mut Table, owner: u16) {
    let row = row(table, |hops, _| hops.iter().skip(1).any(|hop| *hop == owner));
    with_hops(table, row, |hops| {
        let at = hops.iter().position(|hop| *hop == owner).unwrap();
        hops.swap(0, at);
    });
    let lineage: Vec<u16> = table.lineage.get(row).iter().copied().filter(|one| *one != owner).collect();
    table.lineage.set(row, lineage);
}

type Fault = (&'static str, fn(&mut Table), &'static [Reason]);

const FAULTS: &[Fault] = &[
    (
        "owner and heir change places",
        |t| {
            let r = row(t, |h, l| h.len() == 2 && l.is_empty());
            with_hops(t, r, |h| h.swap(0, 1))
        },
        &[Reason::Owner, Reason::Unnecessary],
    ),
    ("a draining backend owns a row", |t| owned_by(t, 0), &[Reason::Owner]),
    ("a backend that is down owns a row", |t| owned_by(t, 1), &[Reason::Owner]),
    (
        "the old owner is no hop",
        |t| {
            let r = row(t, |h, l| h.len() == 2 && l.first() == h.get(1));
            with_hops(t, r, |h| h.truncate(1))
        },
        &[Reason::MissingHop, Reason::AtRisk],
    ),
    (
        "an owner before the last is no hop",
        |t| {
            let r = row(t, |h, l| h.len() == 3 && l.len() == 2);
            with_hops(t, r, |h| h.truncate(2))
        },
        &[Reason::MissingHop, Reason::AtRisk],
    ),
    (
        "a dead hop stands before a live one",
        |t| {
            let r = row(t, |h, _| h.len() == 3 && h[2] == 1);
            with_hops(t, r, |h| h.swap(1, 2))
        },
        &[Reason::DeadHopFirst],
    ),
    (
        "live hops in another order",
        |t| {
            let r = row(t, |h, _| h.len() == 3 && h[1] != 1 && h[2] != 1);
            with_hops(t, r, |h| h.swap(1, 2))
        },
        &[Reason::HopOrder],
    ),
    (
        "a hop too many",
        |t| {
            let r = row(t, |h, _| h.len() == 2);
            with_hops(t, r, |h| h.push((0..6).find(|one| !h.contains(one)).unwrap()))
        },
        &[Reason::ExtraHop],
    ),
    (
        "the heir is of the owner's zone",
        |t| {
            let r = row(t, |h, l| h.len() == 2 && l.is_empty() && h[0] == 2 && h[1] != 5);
            with_hops(t, r, |h| h[1] = 5)
        },
        &[Reason::MissingHop],
    ),
    ("an empty row", |t| with_hops(t, 7, Vec::clear), &[Reason::Owner, Reason::AtRisk]),
    (
        "rows shifted by one",
        |t| {
            t.hops.cells_mut().rotate_right(4);
            t.lineage.cells_mut().rotate_right(3)
        },
        &[Reason::Owner],
    ),
    (
        "a row's lineage is lost",
        |t| {
            let r = row(t, |_, l| !l.is_empty());
            t.lineage.set(r, [])
        },
        &[Reason::Lineage],
    ),
    (
        "lineage in another order",
        |t| {
            let r = row(t, |_, l| l.len() == 2);
            let mut l = t.lineage.get(r).to_vec();
            l.reverse();
            t.lineage.set(r, l)
        },
        &[Reason::Lineage],
    ),
    ("another weight", |t| t.backends[2].weight = 3.0, &[Reason::Config]),
    ("another state", |t| t.backends[3].state = State::Draining, &[Reason::Config]),
    ("another health", |t| t.backends[3].health = Health::Down, &[Reason::Config]),
    ("another fill", |t| t.backends[5].fill = 100, &[Reason::Config]),
    ("another address", |t| t.backends[3].address = [10, 9, 9, 9].into(), &[Reason::Config]),
    ("another zone", |t| t.backends[3].zone = None, &[Reason::Config]),
    ("another id", |t| t.backends[5].id = "web-7".to_owned(), &[Reason::Config, Reason::Owner]),
    ("another bind", |t| t.binds[0].ports = PortRange::single(8_443), &[Reason::Config]),
    ("another seed", |t| t.seed.0[3] ^= 1, &[Reason::Config]),
    ("another hash key", |t| t.hash_key = SipKey::new([8; 16]), &[Reason::Config, Reason::AtRisk]),
    ("other hash fields", |t| t.hash_fields = HashFields::SRC_ADDR, &[Reason::Config, Reason::AtRisk]),
    ("zones not spread", |t| t.spread_zones = false, &[Reason::Config]),
];

#[test]
fn a_right_table_is_proved() {
    let Line { grandparent, parent, config, right } = line();
    let proof = Proof::new(&right, &config, Some(&parent));
    assert!(proof.holds(), "{proof}");
    let table = &proof.tables[0];
    assert_eq!((table.differing, table.unnecessary, table.may_hold), (0, 0, table.reachable));
    assert!(table.moved > 0 && table.may_hold > 65_536);
    assert!(!Proof::new(&right, &config, Some(&grandparent)).holds());
}

#[test]
fn every_fault_is_found_for_the_right_reason() {
    let Line { parent, config, right, .. } = line();
    assert!(FAULTS.len() >= 20);
    for (name, fault, reasons) in FAULTS {
        let mut table = right.tables()[0].clone();
        fault(&mut table);
        assert_ne!(table, right.tables()[0], "{name}: nothing changed");
        let wrong = ForwardingTable::new(Some(&parent), vec![table])
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let proof = Proof::new(&wrong, &config, Some(&parent));
        let found: Vec<Reason> = proof.findings.iter().map(|finding| finding.reason).collect();
        for reason in *reasons {
            assert!(found.contains(reason), "{name}: {reason:?} not among {found:?}\n{proof}");
        }
    }
}

/// A table whose rows moved because shares are bounded is proved, and one that breaks the bound is not.
#[test]
fn a_bound_of_shares_is_proved_and_held() {
    let bounded = |backends| TableSpec { max_share: Some(1.002), ..spec(backends) };
    let parent = support::build(&bounded(named(4)), History::None);
    let config = Config { tables: vec![bounded(named(5))], ..Config::default() };
    let right = support::build(&config.tables[0], History::Parent(&parent));
    let proof = Proof::new(&right, &config, Some(&parent));
    assert!(proof.holds() && proof.tables[0].by_max_share > 0, "{proof}");
    let mut table = right.tables()[0].clone();
    let owned = table.rows_owned();
    let fullest = (0..5u16).max_by_key(|at| owned[usize::from(*at)]).unwrap();
    // 65,536 / 5 × 1.002 is 13,133.4.
    let room = 13_134;
    let mut wanted = room + 1 - owned[usize::from(fullest)];
    for row in 0..table.rows() {
        if wanted > 0 && table.hops.get(row)[1..].contains(&fullest) {
            let mut list = table.hops.get(row).to_vec();
            list.retain(|at| *at != fullest);
            let former =
                table.lineage.get(row).iter().copied().filter(|at| *at != fullest).collect::<Vec<_>>();
            table.lineage.set(row, former);
            table.hops.set(row, std::iter::once(fullest).chain(list));
            wanted -= 1;
        }
    }
    let wrong = ForwardingTable::new(Some(&parent), vec![table]).unwrap();
    let proof = Proof::new(&wrong, &config, Some(&parent));
    assert!(proof.findings.iter().any(|one| one.reason == Reason::Balance), "{proof}");
}

#[test]
fn a_stale_parent_is_found_by_both() {
    let Line { grandparent, parent, config, .. } = line();
    let stale = support::build(&config.tables[0], History::Parent(&grandparent));
    let proof = Proof::new(&stale, &config, Some(&parent));
    assert!(proof.findings.iter().any(|finding| finding.reason == Reason::Parent), "{proof}");
    let report = Diff::new(&parent, &stale);
    assert_eq!(report.descent, tablegen::review::diff::Descent::Stranger);
    let rootless = support::build(&config.tables[0], History::None);
    assert!(!Proof::new(&rootless, &config, Some(&parent)).holds());
}

/// What a reader without the configuration can see, `diff` sees too.
#[test]
fn diff_finds_lost_owners_by_itself() {
    let Line { parent, right, .. } = line();
    assert_eq!(Diff::new(&parent, &right).at_risk(), 0);
    for (name, fault, reasons) in FAULTS.iter().filter(|(.., reasons)| reasons.contains(&Reason::AtRisk)) {
        let mut table = right.tables()[0].clone();
        fault(&mut table);
        let diff = Diff::new(&parent, &ForwardingTable::new(Some(&parent), vec![table]).unwrap());
        assert!(diff.at_risk() > 0, "{name} {reasons:?}");
        assert!(diff.tables[0].rows.breaks.keys().all(|(_, cause)| *cause != Cause::Cut), "{name}");
    }
}

#[test]
fn a_table_without_a_parent_is_proved_alone_and_a_settled_one_with_it() {
    let Line { grandparent, parent, config, right } = line();
    let first =
        Config { tables: vec![TableSpec { spread_zones: true, ..spec(named(4)) }], ..Config::default() };
    assert!(Proof::new(&grandparent, &first, None).holds());
    let settled = support::build(&config.tables[0], History::Settled(&parent));
    let proof = Proof::new(&settled, &config, Some(&parent));
    assert!(proof.holds() && proof.tables[0].settled, "{proof}");
    assert!(!Proof::new(&right, &config, None).holds(), "its parent was not given");
}
