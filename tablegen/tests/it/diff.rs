//! What `diff` says of changes whose effect is known.

use crate::tables::{self, ROWS, backend, backends, first, next, sealed, settled, with_health, with_state};
use common::backend::{Health, State};
use common::flow::HashFields;
use common::table::ForwardingTable;
use tablegen::review::condition::Condition;
use tablegen::review::diff::{Descent, Diff, Failed, RowChange, TableDiff};
use tablegen::review::holders::Cause;
use tablegen::review::verdict::{Amount, Judgement, Limits, ReviewVerdict, Stated};
use tablegen::verify::slow;

fn only(diff: &Diff) -> &TableDiff {
    assert_eq!(diff.tables.len(), 1);
    &diff.tables[0]
}

fn verdict(diff: &Diff) -> ReviewVerdict {
    judged(diff).verdict
}

fn judged(diff: &Diff) -> Judgement {
    Judgement::new(diff, &Stated::default())
}

#[test]
fn the_same_table_changes_nothing() {
    let table = first(backends(5));
    let diff = Diff::new(&table, &table);
    assert_eq!((diff.descent, diff.moved(), diff.at_risk()), (Descent::Same, 0, 0));
    assert!(only(&diff).config.is_empty());
    assert!(only(&diff).rows.each.iter().all(|row| *row == RowChange::Same));
}

#[test]
fn a_drain_moves_its_own_rows_only_and_keeps_it_as_a_hop() {
    let old = first(backends(10));
    let new = next(&old, with_state(backends(10), 3, State::Draining));
    let diff = Diff::new(&old, &new);
    let table = only(&diff);
    let owned = old.tables()[0].rows_owned()[3];
    assert_eq!(table.rows.moved, owned);
    let was_a_hop = old.tables()[0].hops.iter().filter(|hops| hops.contains(&3)).count();
    assert_eq!(table.rows.changed as usize, was_a_hop, "where it was the heir there is a new heir");
    assert_eq!((table.rows.unnecessary, table.rows.at_risk), (0, 0));
    assert_eq!(table.backends[3].rows, [owned, 0]);
    assert_eq!(table.backends[3].lost.len(), 9);
    assert_eq!(table.backends[3].lost.iter().map(|(_, rows)| rows).sum::<u32>(), owned);
    assert_eq!(table.shape[1].hop_lengths[2], ROWS);
    assert_eq!(diff.descent, Descent::Child);
    assert_eq!(verdict(&diff), ReviewVerdict::Safe);
}

#[test]
fn a_failure_is_as_safe_as_a_drain() {
    let old = first(backends(10));
    let new = next(&old, with_health(backends(10), 3, Health::Down));
    let diff = Diff::new(&old, &new);
    assert_eq!(only(&diff).rows.moved, old.tables()[0].rows_owned()[3]);
    assert_eq!(verdict(&diff), ReviewVerdict::Safe);
}

/// The two-hop rule loses 2 / ((N + 1)(N + 2)) of the rows here, 6.7 % at N = 4.
#[test]
fn two_added_at_once_take_only_what_they_win_and_lose_nothing() {
    let old = first(backends(4));
    let new = next(&old, backends(6));
    let diff = Diff::new(&old, &new);
    let table = only(&diff);
    assert_eq!((table.rows.unnecessary, table.rows.at_risk), (0, 0));
    let won: u32 = [4, 5].map(|at: usize| table.backends[at].rows[1]).iter().sum();
    assert_eq!(table.rows.moved, won);
    assert_eq!(verdict(&diff), ReviewVerdict::Safe);
}

#[test]
fn without_previous_two_added_at_once_lose_one_row_in_fifteen() {
    let old = first(backends(4));
    let new = first(backends(6));
    let diff = Diff::new(&old, &new);
    let share = f64::from(only(&diff).rows.at_risk) / f64::from(ROWS);
    assert!((share - 2.0 / 30.0).abs() < 0.004, "{share}");
    assert_eq!(diff.descent, Descent::Rootless);
    assert_eq!(verdict(&diff), ReviewVerdict::NotSafe);
}

#[test]
fn removal_after_a_drain_is_safe_and_removal_in_service_is_not() {
    let serving = first(backends(6));
    let mut without = backends(6);
    without.remove(2);
    let cut = Diff::new(&serving, &next(&serving, without.clone()));
    let owned = serving.tables()[0].rows_owned()[2];
    assert_eq!(only(&cut).rows.breaks.get(&(2, Cause::Cut)).unwrap().rows, owned);
    assert_eq!((only(&cut).rows.at_risk, verdict(&cut)), (owned, ReviewVerdict::NotSafe));

    let inactive = Diff::new(&serving, &next(&serving, with_state(backends(6), 2, State::Inactive)));
    assert_eq!(only(&inactive).rows.breaks.get(&(2, Cause::Cut)).unwrap().rows, owned);

    let draining = next(&serving, with_state(backends(6), 2, State::Draining));
    let removed = Diff::new(&draining, &next(&draining, without));
    assert_eq!((only(&removed).rows.moved, verdict(&removed)), (0, ReviewVerdict::SafeIf));
    let asked: Vec<(Condition, u32)> =
        judged(&removed).conditions.iter().map(|asked| (asked.condition.clone(), asked.rows)).collect();
    assert_eq!(asked, [(Condition::Idle("b-002".into()), owned)]);
    assert_eq!(only(&removed).backends[2].condition[1], None);
}

#[test]
fn undraining_one_and_draining_another_loses_nothing_with_lineage() {
    let a = first(backends(5));
    let b = next(&a, with_state(backends(5), 0, State::Draining));
    let c = next(&b, with_state(backends(5), 1, State::Draining));
    assert_eq!(verdict(&Diff::new(&b, &c)), ReviewVerdict::Safe);
    let rootless = first(with_state(backends(5), 1, State::Draining));
    assert!(Diff::new(&b, &rootless).at_risk() > 0);
}

#[test]
fn a_settled_table_forgives_owners_before_the_last() {
    let a = first(backends(4));
    let b = next(&a, backends(6));
    let c = settled(&b, backends(6));
    let diff = Diff::new(&b, &c);
    assert!(only(&diff).rows.settled);
    assert_eq!((diff.moved(), diff.at_risk(), verdict(&diff)), (0, 0, ReviewVerdict::SafeIf));
    let (before, after) = (&b.tables()[0], &c.tables()[0]);
    let unlisted =
        |row: u32| before.lineage.get(row).iter().filter(move |one| !after.hops.get(row).contains(one));
    let lost = u32::try_from((0..ROWS).flat_map(unlisted).count()).unwrap();
    let judged = judged(&diff);
    assert_eq!((&judged.conditions[0].condition, judged.conditions[0].rows), (&Condition::Settled, lost));
    assert!(only(&diff).rows.changed > 0, "third hops go away");
    let unsettled = Diff::new(&b, &next(&b, backends(6)));
    assert!(!only(&unsettled).rows.settled);
    assert_eq!(only(&unsettled).rows.changed, 0);
}

#[test]
fn another_seed_moves_rows_for_no_reason() {
    let old = first(backends(4));
    let mut table = tables::parameters(backends(4));
    table.seed.0[0] ^= 1;
    let new = sealed(None, slow::rebuilt(&table, None, ROWS));
    let diff = Diff::new(&old, &new);
    let rows = &only(&diff).rows;
    assert_eq!(rows.unnecessary, rows.moved);
    assert!((f64::from(rows.moved) / f64::from(ROWS) - 0.75).abs() < 0.02);
    let change = &only(&diff).config[0];
    assert_eq!((change.key, change.new.as_deref()), ("seed", Some("(another secret)")));
}

#[test]
fn another_hash_puts_every_row_at_risk_unless_the_old_one_is_looked_up_too() {
    let old = first(backends(4));
    let mut table = tables::parameters(backends(4));
    table.hash_fields = HashFields::SRC_ADDR;
    let new = sealed(None, slow::rebuilt(&table, None, ROWS));
    let diff = Diff::new(&old, &new);
    assert!(only(&diff).rows.rehashed);
    assert_eq!(only(&diff).rows.at_risk, ROWS);
    table.alt_hash_fields = HashFields::DEFAULT;
    let covered = sealed(None, slow::rebuilt(&table, None, ROWS));
    assert_eq!(Diff::new(&old, &covered).at_risk(), 0);
}

#[test]
fn rows_of_tables_of_two_sizes_are_compared_as_flows_see_them() {
    let old = first(backends(3));
    let before = slow::Before { table: &old.tables()[0], built: old.built(), settled: false };
    let new = sealed(Some(&old), slow::rebuilt(&tables::parameters(backends(3)), Some(before), 2 * ROWS));
    let diff = Diff::new(&old, &new);
    let rows = &only(&diff).rows;
    assert_eq!((rows.total, rows.at_risk), (2 * ROWS, 0));
    assert!(rows.moved > ROWS / 4 && rows.moved == rows.unnecessary, "half the rows are ranked anew");
    let back = Diff::new(&new, &old);
    assert_eq!(only(&back).rows.moved, rows.moved);
}

#[test]
fn weights_move_rows_towards_the_heavier_only() {
    let old = first(backends(4));
    let mut heavier = backends(4);
    heavier[1].weight = 3.0;
    let new = next(&old, heavier);
    let diff = Diff::new(&old, &new);
    let table = only(&diff);
    assert_eq!((table.rows.unnecessary, table.rows.at_risk), (0, 0));
    assert_eq!(table.backends[1].gained.iter().map(|(_, rows)| rows).sum::<u32>(), table.rows.moved);
    assert!((table.backends[1].fair[1] - f64::from(ROWS) / 2.0).abs() < 1e-6);
    assert_eq!(table.config[0].old.as_deref(), Some("1"));
}

/// The heirs that `diff` names are those that the next table has.
#[test]
fn the_next_failure_is_foretold_exactly() {
    let mut all = backends(6);
    for (at, backend) in all.iter_mut().enumerate() {
        backend.zone = Some(["a", "b", "c"][at % 3].to_owned());
    }
    all[4].state = State::Draining;
    all[5].weight = 2.5;
    let older = first(all.clone());
    let mut filling = backend(6);
    (filling.state, filling.fill) = (State::Filling, 40);
    all.push(filling);
    let table = next(&older, all.clone());
    let diff = Diff::new(&older, &table);
    for failure in &only(&diff).failures {
        let mut failed = all.clone();
        let gone: Vec<usize> = match &failure.failed {
            Failed::Backend(at) => vec![*at as usize],
            Failed::Zone(zone) => (0..7).filter(|at| all[*at].zone.as_ref() == Some(zone)).collect(),
        };
        gone.iter().for_each(|at| failed[*at].health = Health::Down);
        let after = first(failed).tables()[0].rows_owned();
        let (survivor, rows, load) = failure.worst.unwrap();
        assert_eq!(after[survivor as usize], rows, "{failure:?}");
        let fair = only(&diff).backends[survivor as usize].fair[1];
        assert!((load - f64::from(rows) / fair).abs() < 1e-9);
        let owned = table.tables()[0].rows_owned();
        assert_eq!(gone.iter().map(|at| owned[*at]).sum::<u32>(), failure.rows);
    }
    assert_eq!(only(&diff).failures.len(), 6 + 3);
}

#[test]
fn limits_are_kept_or_broken_by_name() {
    let old = first(backends(10));
    let new = next(&old, with_state(backends(10), 3, State::Draining));
    let diff = Diff::new(&old, &new);
    let broken = |limits: Limits| -> Vec<String> {
        let judged = Judgement::new(&diff, &Stated { limits, ..Stated::default() });
        let open: Vec<String> = judged.open().map(|asked| asked.condition.to_string()).collect();
        judged.reasons.iter().map(|reason| reason.limit.to_owned()).chain(open).collect()
    };
    let usual = Limits::default();
    assert!(broken(usual).is_empty());
    assert_eq!(broken(Limits { max_moved: Amount::Percent(5.0), ..usual }), ["hop2(11 %)"]);
    assert!(broken(Limits { max_moved: Amount::Percent(12.0), ..usual }).is_empty());
    assert!(broken(Limits { max_unnecessary: Some(Amount::Rows(0)), ..usual }).is_empty());
    assert_eq!(broken(Limits { max_load: 1.0, ..usual })[0], "--max-load");
}

#[test]
fn a_table_that_goes_away_retires_its_binds() {
    let both = |names: &[&str]| {
        let made = slow::rebuilt(&tables::parameters(backends(3)), None, ROWS);
        let tables = names.iter().zip(0u16..).map(|(name, at)| {
            let mut table = common::table::Table { name: (*name).to_owned(), ..made.clone() };
            table.binds[0].ports = common::bind::PortRange::single(443 + at);
            table
        });
        ForwardingTable::new(None, tables.collect()).unwrap()
    };
    let diff = Diff::new(&both(&["api", "web"]), &both(&["api"]));
    let judged = judged(&diff);
    assert_eq!((diff.at_risk(), judged.verdict), (0, ReviewVerdict::SafeIf));
    assert_eq!(judged.conditions[0].condition, Condition::Retired("tcp 203.0.113.10:444".into()));
    assert_eq!(judged.conditions[0].share, 1.0);
    let diff = Diff::new(&both(&["api"]), &both(&["api", "web"]));
    assert_eq!(diff.at_risk(), 0);
}
