//! Bounded shares: `max_share`.

use crate::support::{backends, build, ids, spec};
use common::backend::{Backend, State};
use common::table::{ForwardingTable, Table};
use tablegen::config::TableSpec;
use tablegen::generate::{History, Incremental};
use tablegen::review::diff::Diff;
use tablegen::review::explain::explain;

fn many(count: u16) -> Vec<Backend> {
    let one = |at: u16| {
        let [high, low] = at.to_be_bytes();
        Backend::new(format!("b{at:03}"), [10, 0, high, low].into())
    };
    (0..count).map(one).collect()
}

fn bounded(max_share: f64, backends: Vec<Backend>) -> TableSpec {
    TableSpec { max_share: Some(max_share), ..spec(backends) }
}

/// The fullest backend over its fair share.
fn fullest(table: &Table) -> f64 {
    let accepting = table.backends.iter().filter(|one| one.accepts()).map(Backend::effective_weight);
    let sum: f64 = accepting.sum();
    let over = |(one, owned): (&Backend, u32)| f64::from(owned) / (65_536.0 * one.effective_weight() / sum);
    table.backends.iter().zip(table.rows_owned()).map(over).fold(0.0, f64::max)
}

#[test]
fn the_fullest_of_256_is_held_to_its_bound() {
    let [free, held] = [spec(many(256)), bounded(1.05, many(256))].map(|spec| build(&spec, History::None));
    let [free, held] = [&free.tables()[0], &held.tables()[0]];
    assert!(fullest(free) > 1.15, "{}", fullest(free));
    // 256 rows are a fair share, so the bound is 268.8, and 269 the rows of the fullest.
    assert_eq!(held.rows_owned().into_iter().max(), Some(269));
    let turned_away = (0..held.rows()).filter(|row| held.primary(*row) != free.primary(*row)).count();
    assert!((500..3_000).contains(&turned_away), "{turned_away} rows take another choice than their first");
    let at_rest = (0..held.rows()).all(|row| held.hops.get(row).len() == 2);
    assert!(at_rest, "two hops in every row");
}

#[test]
fn weights_count() {
    let mut backends = many(40);
    backends
        .iter_mut()
        .zip([0.5, 1.0, 7.0].into_iter().cycle())
        .for_each(|(one, weight)| one.weight = weight);
    let table = build(&bounded(1.05, backends), History::None);
    // Rounding up adds one row at most, to a share of 282 or more.
    assert!(fullest(&table.tables()[0]) < 1.05 + 1.0 / 200.0);
}

/// A row that lost its owner keeps it as a hop, whether it moved by need or by the bound; and the moves by the bound
/// are counted as such.
#[test]
fn what_the_bound_moves_stays_reachable_and_is_told() {
    let steps = [
        many(24),
        many(25),
        many(25)
            .into_iter()
            .map(|one| if one.id == "b003" { Backend { state: State::Draining, ..one } } else { one })
            .collect(),
        many(25).into_iter().filter(|one| one.id != "b003").collect(),
    ];
    let mut tables: Vec<ForwardingTable> = Vec::new();
    for backends in steps {
        let history = tables.last().map_or(History::None, History::Parent);
        tables.push(build(&bounded(1.01, backends), history));
    }
    let mut by_max_share = 0;
    for pair in tables.windows(2) {
        let diff = Diff::new(&pair[0], &pair[1]);
        let rows = &diff.tables[0].rows;
        assert_eq!((rows.at_risk, rows.unnecessary), (0, 0));
        by_max_share += rows.by_max_share;
        let [old, new] = [&pair[0].tables()[0], &pair[1].tables()[0]];
        for row in 0..old.rows() {
            let before = ids(old, &old.hops.get(row)[..1]);
            let stays = new.backends.iter().any(|one| one.id == before[0]);
            assert!(!stays || ids(new, new.hops.get(row)).contains(&before[0]), "row {row}");
        }
        let worst = diff.tables[0].failures.iter().filter_map(|failure| failure.worst).map(|worst| worst.2);
        // One of 24 gone: 24/23 of the share, times the bound.
        assert!(worst.fold(0.0, f64::max) < 1.01 * 24.0 / 23.0 + 0.001);
    }
    assert!(by_max_share > 0);
}

#[test]
fn order_threads_and_increments_do_not_show() {
    let first = bounded(1.01, many(30));
    let built = build(&first, History::None);
    let mut turned = first.clone();
    turned.backends.reverse();
    assert_eq!(build(&turned, History::None).encode(), built.encode());
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(one.install(|| build(&first, History::None)).encode(), built.encode());

    let next = bounded(1.01, many(31));
    let whole = build(&next, History::Parent(&built)).encode();
    let mut live = Incremental::new(std::slice::from_ref(&first), History::Parent(&built));
    live.update(std::slice::from_ref(&next));
    assert_eq!(live.seal().unwrap().encode(), whole);
}

#[test]
fn a_full_favourite_is_explained() {
    let even = TableSpec { max_share: Some(1.0), ..spec(backends(&["a", "b", "c"])) };
    let [even, free] = [even, spec(backends(&["a", "b", "c"]))].map(|spec| build(&spec, History::None));
    let [held, free] = [&even.tables()[0], &free.tables()[0]];
    let flow = |port: u16| format!("tcp 198.51.100.7:{port} > 203.0.113.10:443").parse().unwrap();
    let rows = (1..=u16::MAX).map(|port| explain(&even, &flow(port)).matched.unwrap().lookup);
    let lookup = rows.into_iter().find(|at| held.primary(at.row) != free.primary(at.row)).unwrap();
    assert_eq!(lookup.candidates[0].why, "preferred, but full (max_share)");
    assert_eq!(lookup.candidates[1].why, "primary: the first that accepts and has room (max_share)");
}
