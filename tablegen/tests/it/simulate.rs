//! Connections across changes whose losses are known.

use crate::support::{self, build, spec};
use common::backend::{Backend, State};
use common::table::{ForwardingTable, Table};
use tablegen::generate::History;
use tablegen::simulate::{Flow, Lives, Outcome, Rule, Synthetic, from_csv, picture, play};

fn named(count: usize) -> Vec<Backend> {
    let ids: Vec<String> = (1..=count).map(|at| format!("web-{at}")).collect();
    support::backends(&ids.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Connections that all start under the first table and outlive the last.
fn long_lived() -> Vec<Flow> {
    let vip = ("203.0.113.10".parse().unwrap(), 443);
    let synthetic =
        Synthetic { count: 60_000, seed: 7, starts: 0.0..1.0, lives: Lives::LogNormal, median: 30.0, vip };
    synthetic.flows().into_iter().map(|flow| Flow { life: 1e6, ..flow }).collect()
}

fn both(tables: &[&ForwardingTable]) -> [Outcome; 2] {
    let tables: Vec<&Table> = tables.iter().map(|table| &table.tables()[0]).collect();
    [Rule::Tables, Rule::Glb].map(|rule| play(&tables, &long_lived(), 10.0, rule))
}

fn share(outcome: &Outcome, change: usize) -> f64 {
    f64::from(outcome.changes[change].broken) / f64::from(outcome.changes[change].open)
}

/// 2 / ((N + 1)(N + 2)): 6.7 % at N = 4.
#[test]
fn adding_two_at_once_loses_one_in_fifteen_by_glbs_rule_and_none_by_ours() {
    let old = build(&spec(named(4)), History::None);
    let new = build(&spec(named(6)), History::Parent(&old));
    let [ours, glb] = both(&[&old, &new]);
    assert_eq!((ours.opened, ours.refused, ours.changes[0].open), (60_000, 0, 60_000));
    assert_eq!(ours.changes[0].broken, 0);
    assert!((share(&glb, 0) - 1.0 / 15.0).abs() < 0.006, "{}", share(&glb, 0));
}

#[test]
fn a_drain_loses_nothing_by_either_and_needs_the_second_hop_for_its_share() {
    let old = build(&spec(named(5)), History::None);
    let mut all = named(5);
    all[2].state = State::Draining;
    let new = build(&spec(all.clone()), History::Parent(&old));
    all.remove(2);
    let removed = build(&spec(all), History::Parent(&new));
    let [ours, glb] = both(&[&old, &new, &removed]);
    assert_eq!((ours.changes[0].broken, glb.changes[0].broken), (0, 0));
    let second = f64::from(ours.changes[0].later_hop) / f64::from(ours.changes[0].open);
    assert!((second - 0.2).abs() < 0.02, "{second}");
    assert_eq!(
        ours.changes[1].broken, ours.changes[0].later_hop,
        "connections without end are cut by the removal"
    );
}

#[test]
fn made_up_connections_follow_from_their_seed() {
    let vip = ("203.0.113.10".parse().unwrap(), 443);
    let of =
        |seed, lives| Synthetic { count: 20_000, seed, starts: 0.0..60.0, lives, median: 30.0, vip }.flows();
    assert_eq!(of(1, Lives::Heavy), of(1, Lives::Heavy));
    assert_ne!(of(1, Lives::Heavy), of(2, Lives::Heavy));
    for lives in [Lives::LogNormal, Lives::Heavy] {
        let longer = of(3, lives).iter().filter(|flow| flow.life > 30.0).count();
        assert!((9_500..10_500).contains(&longer), "{lives:?} {longer}");
    }
}

#[test]
fn connections_are_read_from_lines() {
    let flows = from_csv("# start,life,…\n0.5, 10, 198.51.100.7, 51234, 203.0.113.10, 443\n\n").unwrap();
    assert_eq!((flows.len(), flows[0].start, flows[0].key.ports), (1, 0.5, Some((51_234, 443))));
    assert_eq!(from_csv("1,2,3\n").unwrap_err().line, 1);
    assert!(from_csv("-1,2,198.51.100.7,1,203.0.113.10,443").is_err());
}

#[test]
fn the_picture_has_a_line_for_each_backend() {
    let table = build(&spec(named(3)), History::None);
    let [ours, _] = both(&[&table, &table]);
    assert_eq!(picture(&ours).matches("<polyline").count(), 3);
    assert_eq!(ours.load.values().map(|load| load[60]).sum::<u32>(), 60_000);
}
