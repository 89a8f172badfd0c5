//! Tables that follow each other: what moves, what must not, and who is still reachable.

use crate::support::{backends, build, spec};
use common::backend::{Backend, Health, State};
use common::table::{Built, Digest, ForwardingTable, Table};
use std::collections::{BTreeSet, HashMap};
use tablegen::config::TableSpec;
use tablegen::generate::History;

const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn set(backends: &mut [Backend], id: &str, change: impl Fn(&mut Backend)) {
    backends.iter_mut().filter(|backend| backend.id == id).for_each(change);
}

fn with(before: &[Backend], ids: &[&str], change: impl Fn(&mut Backend) + Copy) -> Vec<Backend> {
    let mut after = before.to_vec();
    ids.iter().for_each(|id| set(&mut after, id, change));
    after
}

fn drain(before: &[Backend], ids: &[&str]) -> Vec<Backend> {
    with(before, ids, |backend| backend.state = State::Draining)
}

fn activate(before: &[Backend], ids: &[&str]) -> Vec<Backend> {
    with(before, ids, |backend| backend.state = State::Active)
}

fn fail(before: &[Backend], ids: &[&str]) -> Vec<Backend> {
    with(before, ids, |backend| backend.health = Health::Down)
}

fn recover(before: &[Backend], ids: &[&str]) -> Vec<Backend> {
    with(before, ids, |backend| backend.health = Health::Up)
}

fn remove(before: &[Backend], ids: &[&str]) -> Vec<Backend> {
    before.iter().filter(|backend| !ids.contains(&backend.id.as_str())).cloned().collect()
}

fn add(before: &[Backend], ids: &[&str], fill: Option<u8>) -> Vec<Backend> {
    let mut after = before.to_vec();
    for (id, at) in ids.iter().zip(100u8..) {
        let mut new = Backend::new(*id, [10, 0, 1, at].into());
        if let Some(fill) = fill {
            (new.state, new.fill) = (State::Filling, fill);
        }
        after.push(new);
    }
    after
}

fn refill(before: &[Backend], ids: &[&str], fill: u8) -> Vec<Backend> {
    with(before, ids, |backend| backend.fill = fill)
}

fn primary(table: &Table, row: u32) -> &str {
    &table.backend(table.primary(row).unwrap()).unwrap().id
}

fn hops(table: &Table, row: u32) -> Vec<&str> {
    table.hops.get(row).iter().map(|at| table.backend(*at).unwrap().id.as_str()).collect()
}

fn without_history(steps: &[Vec<Backend>]) -> Vec<ForwardingTable> {
    steps.iter().map(|backends| build(&spec(backends.clone()), History::None)).collect()
}

fn with_history(steps: &[Vec<Backend>]) -> Vec<ForwardingTable> {
    let mut tables: Vec<ForwardingTable> = Vec::new();
    for backends in steps {
        let history = tables.last().map_or(History::None, History::Parent);
        tables.push(build(&spec(backends.clone()), history));
    }
    tables
}

/// Share of rows that, at some step, lost a backend which owned them at an earlier step and is still there.
fn lost(tables: &[ForwardingTable]) -> f64 {
    let rows = tables[0].tables()[0].rows();
    let mut lost = 0;
    for row in 0..rows {
        let mut holders: BTreeSet<&str> = BTreeSet::new();
        let row_lost = tables.iter().any(|table| {
            let table = &table.tables()[0];
            let stays: HashMap<&str, bool> =
                table.backends.iter().map(|b| (b.id.as_str(), b.is_candidate())).collect();
            holders.retain(|id| stays.get(id) == Some(&true));
            let hops = hops(table, row);
            let lost = holders.iter().any(|id| !hops.contains(id));
            holders.insert(primary(table, row));
            lost
        });
        lost += u32::from(row_lost);
    }
    f64::from(lost) / f64::from(rows)
}

#[test]
fn draining_or_losing_one_moves_its_rows_alone_and_keeps_it_reachable() {
    for n in 2..=6 {
        let base = backends(&IDS[..n]);
        for after in [drain(&base, &["b"]), fail(&base, &["b"])] {
            for tables in
                [without_history(&[base.clone(), after.clone()]), with_history(&[base.clone(), after])]
            {
                let [before, after] = [0, 1].map(|at| &tables[at].tables()[0]);
                for row in 0..before.rows() {
                    if primary(before, row) == "b" {
                        assert_eq!(hops(after, row)[1], "b", "row {row} of {n}");
                        assert_eq!(primary(after, row), hops(before, row)[1], "the heir is the second hop");
                    } else {
                        assert_eq!(hops(after, row)[0], primary(before, row), "row {row} of {n}");
                    }
                }
            }
        }
    }
}

#[test]
fn removing_after_draining_moves_no_row() {
    let base = backends(&IDS);
    let drained = drain(&base, &["c"]);
    for removed in [remove(&drained, &["c"]), with(&drained, &["c"], |b| b.state = State::Inactive)] {
        let tables = with_history(&[base.clone(), drained.clone(), removed]);
        let [_, before, after] = [0, 1, 2].map(|at| &tables[at].tables()[0]);
        assert!((0..before.rows()).all(|row| primary(before, row) == primary(after, row)));
        assert!((0..after.rows()).all(|row| !hops(after, row).contains(&"c")));
    }
}

#[test]
fn removing_at_once_moves_its_rows_alone() {
    let base = backends(&IDS);
    let tables = with_history(&[base.clone(), remove(&base, &["c"])]);
    let [before, after] = [0, 1].map(|at| &tables[at].tables()[0]);
    let moved = (0..before.rows()).filter(|row| primary(before, *row) != primary(after, *row));
    assert!(moved.into_iter().all(|row| primary(before, row) == "c"));
}

#[test]
fn adding_any_number_moves_rows_to_the_new_ones_alone_and_keeps_old_owners() {
    let new = ["u", "v", "w", "x"];
    for count in 1..=4 {
        for fill in [None, Some(30)] {
            let base = backends(&IDS);
            let tables = with_history(&[base.clone(), add(&base, &new[..count], fill)]);
            let [before, after] = [0, 1].map(|at| &tables[at].tables()[0]);
            for row in 0..before.rows() {
                let (old, now) = (primary(before, row), hops(after, row));
                assert!(now.contains(&old), "row {row}, {count} added, fill {fill:?}");
                assert!(now[0] == old || new[..count].contains(&now[0]));
            }
        }
    }
}

#[test]
fn with_two_of_four_down_no_row_starts_with_a_dead_hop() {
    let base = backends(&IDS[..4]);
    for (one, other) in [("a", "b"), ("a", "c"), ("b", "d")] {
        let tables = without_history(&[fail(&base, &[one, other])]);
        let table = &tables[0].tables()[0];
        assert!((0..table.rows()).all(|row| ![one, other].contains(&primary(table, row))));
    }
}

#[test]
fn filling_further_only_ever_gains_rows() {
    let base = backends(&IDS);
    let start = add(&base, &["new"], Some(10));
    let mut steps = vec![base, start.clone()];
    steps.extend([25, 50, 100].map(|fill| refill(&start, &["new"], fill)));
    steps.push(activate(&start, &["new"]));
    let tables = with_history(&steps);
    for pair in tables.windows(2) {
        let [before, after] = [&pair[0].tables()[0], &pair[1].tables()[0]];
        for row in 0..before.rows() {
            assert!(primary(after, row) == primary(before, row) || primary(after, row) == "new");
        }
    }
    // Full and active are the same share, so the last step moves nothing.
    let [full, active] = [4, 5].map(|at| &tables[at].tables()[0]);
    assert!((0..full.rows()).all(|row| primary(full, row) == primary(active, row)));
}

/// The sequences of a working day. With history no row ever loses a backend that could hold its connections.
#[test]
fn no_sequence_loses_a_connection() {
    let base = backends(&IDS);
    let a_drains = drain(&base, &["a"]);
    let ab_drain = drain(&base, &["a", "b"]);
    let two_new = add(&base, &["x", "y"], None);
    let four_new = add(&base, &["u", "v", "x", "y"], None);
    let filling = add(&base, &["x", "y"], Some(20));
    let swapped = drain(&activate(&a_drains, &["a"]), &["b"]);
    let alarm = fail(&base, &["c"]);
    let heavier = with(&base, &["d"], |backend| backend.weight = 2.0);
    let sequences = [
        ("drain, remove", vec![base.clone(), a_drains.clone(), remove(&a_drains, &["a"])]),
        ("drain two, remove two", vec![base.clone(), ab_drain.clone(), remove(&ab_drain, &["a", "b"])]),
        (
            "drain one, another, remove one, the other",
            vec![
                base.clone(),
                a_drains.clone(),
                ab_drain.clone(),
                remove(&ab_drain, &["a"]),
                remove(&ab_drain, &["a", "b"]),
            ],
        ),
        ("add two, drain one", vec![base.clone(), two_new.clone(), drain(&two_new, &["a"])]),
        ("add four", vec![base.clone(), four_new]),
        (
            "fill two",
            vec![
                base.clone(),
                filling.clone(),
                refill(&filling, &["x", "y"], 60),
                activate(&filling, &["x", "y"]),
            ],
        ),
        ("undrain one and drain another", vec![base.clone(), a_drains.clone(), swapped.clone()]),
        (
            "the same, and remove",
            vec![base.clone(), a_drains.clone(), swapped.clone(), remove(&swapped, &["b"])],
        ),
        ("false alarm", vec![base.clone(), alarm.clone(), recover(&alarm, &["c"])]),
        (
            "false alarm of two, one after the other",
            vec![base.clone(), alarm.clone(), fail(&alarm, &["d"]), recover(&fail(&base, &["d"]), &["d"])],
        ),
        ("heavier and back", vec![base.clone(), heavier, base.clone()]),
        ("drain, undrain", vec![base.clone(), a_drains, base.clone()]),
    ];
    for (name, steps) in sequences {
        assert_eq!(lost(&with_history(&steps)), 0.0, "{name}");
    }
}

/// Why the history is needed: today's states alone do not say who owned a row yesterday.
#[test]
fn without_history_two_of_those_sequences_lose_rows() {
    let base = backends(&IDS);
    let a_drains = drain(&base, &["a"]);
    let swapped = drain(&activate(&a_drains, &["a"]), &["b"]);
    // The rows whose first two are a, then b: 1/6 × 1/5.
    let undrained = lost(&without_history(&[base.clone(), a_drains, swapped]));
    assert!((undrained - 1.0 / 30.0).abs() < 0.003, "{undrained}");
    // The rows whose first two are both new: 2/8 × 1/7.
    let added = lost(&without_history(&[base.clone(), add(&base, &["x", "y"], None)]));
    assert!((added - 2.0 / 56.0).abs() < 0.003, "{added}");
}

/// Pseudo-random walks over states, health, weights and members, up to three changes at a time. After each step every
/// former owner of a row that is still a candidate is in its list: the newest ones, as many as there are places.
#[test]
fn random_walks_lose_nothing_that_fits() {
    let mut random = 1u64;
    let mut pick = |below: usize| {
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        usize::try_from(tryst_hrw::hash::mix(random) % u64::try_from(below).unwrap()).unwrap()
    };
    let mut drawn = BTreeSet::new();
    for walk in 0..9 {
        let mut steps = vec![backends(&IDS)];
        for _ in 0..8 {
            let mut next = steps.last().unwrap().clone();
            for _ in 0..=pick(3) {
                drawn.insert(change(&mut next, &mut pick));
            }
            steps.push(next);
        }
        if walk % 3 == 2 {
            // The walk begins in the middle: its first table has backends that drain, fill or are down.
            steps.remove(0);
        }
        check_walk(&tables_of(&steps, 2 + u8::try_from(walk % 3).unwrap()));
    }
    assert_eq!(drawn.len(), 7, "{drawn:?}");
}

/// Draws one change, and names it.
fn change(backends: &mut Vec<Backend>, pick: &mut impl FnMut(usize) -> usize) -> &'static str {
    let kind = pick(8);
    let at = pick(backends.len());
    if kind == 7 && backends.len() > 4 {
        backends.remove(at);
        return "removed";
    }
    let one = &mut backends[at];
    match kind {
        0 => {
            one.state = State::Draining;
            "drains"
        }
        1 => {
            one.state = State::Active;
            "active"
        }
        2 | 3 => {
            (one.state, one.fill) = (State::Filling, [10, 50, 100][pick(3)]);
            "fills"
        }
        4 => {
            one.health = Health::Down;
            "down"
        }
        5 => {
            one.health = Health::Up;
            "up"
        }
        _ => {
            one.weight = [0.5, 1.0, 3.0][pick(3)];
            "weight"
        }
    }
}

fn tables_of(steps: &[Vec<Backend>], max_hops: u8) -> Vec<ForwardingTable> {
    let mut tables: Vec<ForwardingTable> = Vec::new();
    for backends in steps {
        let history = tables.last().map_or(History::None, History::Parent);
        tables.push(build(&TableSpec { max_hops, ..spec(backends.clone()) }, history));
    }
    tables
}

fn check_walk(tables: &[ForwardingTable]) {
    for row in 0..tables[0].tables()[0].rows() {
        let mut former: Vec<&str> = Vec::new();
        for (step, table) in tables.iter().enumerate() {
            let table = &table.tables()[0];
            let list = hops(table, row);
            let one = |id: &str| table.backends.iter().find(|one| one.id == id);
            former.retain(|id| *id != list[0] && one(id).is_some_and(Backend::is_candidate));
            former.truncate(usize::from(table.max_hops) - 1);
            let lost: Vec<&&str> = former.iter().filter(|id| !list.contains(id)).collect();
            assert!(lost.is_empty(), "row {row}, step {step}: {lost:?} of {former:?} is not in {list:?}");
            if step == 0 {
                // What a first table cannot know: who owned the row before.
                let idle = |id: &&&str| one(id).is_some_and(Backend::is_passed_over);
                former.extend(list[1..].iter().filter(idle));
            }
            former.insert(0, list[0]);
        }
    }
}

/// Rows whose old owner, or older ones, are in the new table and not in the row's list.
fn rows_that_lose(before: &Table, after: &Table, holders: impl Fn(u32) -> Vec<String>) -> usize {
    let stays = |id: &String| after.backends.iter().any(|one| one.id == *id && one.is_candidate());
    let lost = |row: &u32| {
        let list = hops(after, *row);
        holders(*row).into_iter().filter(stays).any(|id| !list.contains(&id.as_str()))
    };
    (0..before.rows()).filter(lost).count()
}

/// A false alarm while new backends fill: the backend that is taken for down keeps its connections, also where several
/// of the filling ones are up and might have owned the row.
#[test]
fn a_false_alarm_while_others_fill_loses_no_former_owner() {
    let base = backends(&IDS);
    for max_hops in 2..=4 {
        for count in 1..=4 {
            let filling = fail(&add(&base, &["u", "v", "w", "x"][..count], Some(50)), &["c"]);
            let tables = tables_of(&[base.clone(), filling], max_hops);
            let [before, after] = [0, 1].map(|at| &tables[at].tables()[0]);
            let owner = |row| vec![primary(before, row).to_owned()];
            assert_eq!(rows_that_lose(before, after, owner), 0, "{count} fill, {max_hops} hops");
        }
    }
}

/// A first table cannot know who owned its rows: what drains or is down in its lists is kept in the next tables.
#[test]
fn what_drains_in_a_first_table_is_kept_while_others_are_added() {
    let base = backends(&IDS);
    for first in [drain(&base, &["b"]), fail(&base, &["b"]), fail(&drain(&base, &["b"]), &["e"])] {
        let more = add(&first, &["x"], None);
        let still_more = drain(&more, &["a"]);
        let tables = tables_of(&[first, more, still_more], 4);
        let [before, ..] = [0, 1, 2].map(|at| &tables[at].tables()[0]);
        let idle = |row| -> Vec<String> {
            let all = hops(before, row).into_iter().filter(|id| ["b", "e"].contains(id));
            let one = |id: &str| before.backends.iter().find(|one| one.id == id).unwrap().is_passed_over();
            all.filter(|id| one(id)).map(str::to_owned).collect()
        };
        assert!((0..before.rows()).any(|row| !idle(row).is_empty()));
        for after in &tables[1..] {
            assert_eq!(rows_that_lose(before, &after.tables()[0], idle), 0);
        }
    }
}

/// A file of version 1 does not say how it was built, and is built on like a first table.
#[test]
fn a_parent_of_version_1_is_built_on_like_a_first_one() {
    let base = drain(&backends(&IDS), &["b"]);
    let next = spec(add(&base, &["x", "y"], Some(40)));
    let first = build(&spec(base), History::None);
    // By the specification: version 1 has no octet 96.
    let file = first.encode();
    let mut old = [&file[..96], &file[97..file.len() - 32]].concat();
    old[8] = 1;
    let length = u64::try_from(old.len() + 32).unwrap();
    old[16..24].copy_from_slice(&length.to_le_bytes());
    let digest = Digest::of(&old);
    old.extend(digest.0);
    let old = ForwardingTable::read(&old).unwrap();
    assert_eq!((old.built(), old.tables()), (Built::Unknown, first.tables()));
    let [on_old, on_first] = [&old, &first].map(|parent| build(&next, History::Parent(parent)));
    assert_eq!(on_old.tables(), on_first.tables());
    assert!((0..1 << 16).any(|row| hops(&on_old.tables()[0], row)[1..].contains(&"b")));
}

/// An IPv6 newcomer among IPv4 backends: packets to one family carry no hops of the other, so no place goes to those
/// while there are others; and what a packet cannot reach counts as lost.
#[test]
fn hops_of_another_address_family_are_listed_last_and_count_as_lost() {
    let base = backends(&IDS);
    let mut mixed = base.clone();
    mixed.push(Backend::new("six", "2001:db8::6".parse().unwrap()));
    let tables = with_history(&[base, mixed.clone()]);
    let [before, after] = [0, 1].map(|at| &tables[at].tables()[0]);
    let mut won = 0;
    for row in 0..after.rows() {
        let (old, list) = (primary(before, row), hops(after, row));
        if list[0] == "six" {
            won += 1;
            assert_eq!(list, ["six", old], "row {row}");
            assert_eq!(after.sent(row).count(), 1);
        } else {
            assert_eq!(list[..1], [old]);
            assert!(list.len() == 2 && list[1] != "six", "row {row} has a second chance: {list:?}");
        }
    }
    let six = after.backends.iter().position(|one| one.id == "six").unwrap();
    assert_eq!(won, after.rows_owned()[six]);
    let diff = tablegen::review::diff::Diff::new(&tables[0], &tables[1]);
    assert_eq!(diff.at_risk(), u64::from(won));
    let config =
        tablegen::config::Config { tables: vec![spec(mixed)], ..tablegen::config::Config::default() };
    let proof = tablegen::verify::Proof::new(&tables[1], &config, Some(&tables[0]));
    let lost: Vec<u32> = proof.findings.iter().map(|one| one.rows).collect();
    assert_eq!((proof.tables[0].differing, lost.iter().sum::<u32>()), (0, won), "{proof}");
}

#[test]
fn settling_keeps_the_parents_owners_alone() {
    let base = backends(&IDS);
    let tables = with_history(&[base.clone(), drain(&base, &["a"])]);
    let parent = &tables[1];
    let settled = build(&spec(drain(&base, &["a", "b"])), History::Settled(parent));
    let (before, after) = (&parent.tables()[0], &settled.tables()[0]);
    for row in 0..before.rows() {
        let remembered: Vec<&str> =
            after.lineage.get(row).iter().map(|at| after.backend(*at).unwrap().id.as_str()).collect();
        let expected =
            if primary(before, row) == primary(after, row) { vec![] } else { vec![primary(before, row)] };
        assert_eq!(remembered, expected, "row {row}");
    }
    assert_eq!((settled.generation(), settled.parent()), (3, Some(parent.digest())));
}

#[test]
fn more_rows_inherit_and_fewer_rows_gather() {
    let base = backends(&IDS);
    let mut small = spec(base.clone());
    let mut large = spec(drain(&base, &["a"]));
    large.rows = 1 << 17;
    let parent = build(&small, History::None);
    let grown = build(&large, History::Parent(&parent));
    let (before, after) = (&parent.tables()[0], &grown.tables()[0]);
    for row in 0..after.rows() {
        let old = primary(before, row % before.rows());
        assert!(hops(after, row).contains(&old), "row {row}");
    }
    small.backends = drain(&base, &["a"]);
    let shrunk = build(&small, History::Parent(&grown));
    let (before, after) = (&grown.tables()[0], &shrunk.tables()[0]);
    for row in 0..after.rows() {
        let list = hops(after, row);
        for old_row in [row, row + after.rows()] {
            assert!(list.contains(&primary(before, old_row)), "row {row}");
        }
    }
}

#[test]
fn a_new_flow_hash_forgets_and_says_so() {
    let base = spec(backends(&IDS));
    let parent = build(&base, History::None);
    let mut child = base.clone();
    child.hash_key = common::hash::SipKey::new([9; 16]);
    child.backends = drain(&base.backends, &["a"]);
    let generated = tablegen::generate::generate(&[child], History::Parent(&parent)).unwrap();
    assert!(generated.warnings[0].contains("table web: hash_key changed"), "{:?}", generated.warnings);
    let table = &generated.table.tables()[0];
    assert!((0..table.rows()).all(|row| table.lineage.get(row).is_empty()));
}
