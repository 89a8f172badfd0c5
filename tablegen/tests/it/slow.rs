//! The generator against the slow path, row by row, over random sequences of changes.

use common::backend::{Backend, Health, State};
use common::table::{ForwardingTable, Ranking};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv6Addr};
use tablegen::config::TableSpec;
use tablegen::generate::{History, generate};
use tablegen::verify::slow::{Before, rebuilt};

use crate::{support, tables};

type Drawn = (bool, State, Health, f64, u8, Option<u8>, bool);

fn any_backend() -> impl Strategy<Value = Drawn> {
    (
        prop::bool::weighted(0.85),
        prop::sample::select(vec![
            State::Active,
            State::Active,
            State::Filling,
            State::Draining,
            State::Inactive,
        ]),
        prop::sample::select(vec![Health::Up, Health::Up, Health::Up, Health::Down]),
        prop::sample::select(vec![1.0, 1.0, 2.5, 0.3]),
        1..=100u8,
        prop::option::of(0..3u8),
        prop::bool::weighted(0.2),
    )
}

fn address(at: u8, ipv6: bool) -> IpAddr {
    if ipv6 {
        Ipv6Addr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, at.into()]).into()
    } else {
        [10, 0, 0, at].into()
    }
}

/// Up to seven backends; those that are left out of a step keep their ids and addresses for the next.
fn any_backends() -> impl Strategy<Value = Vec<Backend>> {
    let present = |all: Vec<Drawn>| -> Vec<Backend> {
        let named = (1u8..).zip(all).filter(|(at, (present, ..))| *present || *at == 1);
        named
            .map(|(at, (_, state, health, weight, fill, zone, ipv6))| Backend {
                weight,
                fill,
                zone: zone.map(|zone| format!("z{zone}")),
                state,
                health,
                ..Backend::new(format!("b{at}"), address(at, ipv6))
            })
            .collect()
    };
    prop::collection::vec(any_backend(), 1..=7).prop_map(present)
}

/// Backends, `max_hops`, rows, a flag for what else there is, and a bound of shares.
type Step = (Vec<Backend>, u8, u32, bool, Option<f64>);

fn specs(steps: Vec<Step>, ranking: Ranking) -> impl Iterator<Item = (TableSpec, bool)> {
    steps.into_iter().map(move |(mut backends, max_hops, rows, flag, max_share)| {
        let spread_zones = flag;
        if ranking == Ranking::Glb {
            // It has no weights, and a configuration that sets any is refused.
            backends.iter_mut().for_each(|backend| (backend.weight, backend.fill) = (1.0, 100));
        }
        let max_share = max_share.filter(|_| ranking == Ranking::Hrw);
        (TableSpec { max_hops, rows, ranking, spread_zones, max_share, ..support::spec(backends) }, flag)
    })
}

/// Do both give the same rows? Gives the table.
fn agreed(spec: &TableSpec, parent: Option<&ForwardingTable>, settled: bool) -> ForwardingTable {
    let history = match parent {
        None => History::None,
        Some(parent) if settled => History::Settled(parent),
        Some(parent) => History::Parent(parent),
    };
    let generated = generate(std::slice::from_ref(spec), history).unwrap().table;
    let before = parent.map(|parent| Before { table: &parent.tables()[0], built: parent.built(), settled });
    let table = &generated.tables()[0];
    let slow = rebuilt(table, before, spec.rows);
    for row in 0..spec.rows {
        assert_eq!(table.hops.get(row), slow.hops.get(row), "hops of row {row}");
        assert_eq!(table.lineage.get(row), slow.lineage.get(row), "lineage of row {row}");
    }
    generated
}

/// Where most backends cannot own a row, its list asks for more of the ranking than its first few.
#[test]
fn generator_and_slow_path_agree_where_rows_are_ranked_deep() {
    let all = |change: fn(usize, &mut Backend)| {
        let mut all = tables::backends(40);
        all.iter_mut().enumerate().for_each(|(at, one)| change(at, one));
        all
    };
    let few_accept = all(|at, one| one.state = if at % 20 == 3 { State::Active } else { State::Draining });
    let few_up = all(|at, one| one.health = if at % 20 == 3 { Health::Up } else { Health::Down });
    let one_active = all(|at, one| one.state = if at == 3 { State::Active } else { State::Filling });
    let filling = all(|_, one| one.state = State::Filling);
    let zones = all(|at, one| one.zone = Some(if at == 3 { "b" } else { "a" }.to_owned()));
    let weights = all(|at, one| {
        one.weight = [1.0, 2.0, 0.5][at % 3];
        one.health = if at % 13 == 3 { Health::Up } else { Health::Down };
    });
    for backends in [few_accept, few_up, one_active, filling, zones, weights] {
        let weighted = backends.iter().any(|one| one.weight != 1.0);
        let spec = TableSpec { spread_zones: true, ..support::spec(backends) };
        let first = agreed(&spec, None, false);
        if weighted {
            agreed(&TableSpec { max_hops: 3, max_share: Some(1.0), ..spec }, Some(&first), false);
        } else {
            agreed(&TableSpec { ranking: Ranking::Glb, ..spec }, Some(&first), true);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn generator_and_slow_path_agree_on_every_row(
        steps in prop::collection::vec(
            (
                any_backends(),
                2..=4u8,
                prop::sample::select(vec![1 << 16, 1 << 16, 1 << 17]),
                any::<bool>(),
                prop::sample::select(vec![None, None, Some(1.0), Some(1.01)]),
            ),
            1..4,
        ),
        ranking in prop::sample::select(vec![Ranking::Hrw, Ranking::Hrw, Ranking::Glb]),
        settles in any::<bool>(),
    ) {
        let mut parent: Option<ForwardingTable> = None;
        for (spec, flag) in specs(steps, ranking) {
            parent = Some(agreed(&spec, parent.as_ref(), settles && flag));
        }
    }
}
