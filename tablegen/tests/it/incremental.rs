//! Tables that follow their configuration against tables built anew.

use crate::support::{backends, build, spec};
use common::backend::{Backend, Health, State};
use proptest::prelude::*;
use proptest::sample::Index;
use tablegen::config::TableSpec;
use tablegen::generate::{History, Incremental};

#[derive(Clone, Debug)]
enum Edit {
    Add(String, State),
    Remove(Index),
    State(Index, State),
    Health(Index, Health),
    Weight(Index, f64),
    Fill(Index, u8),
    Zone(Index, Option<&'static str>),
    Address(Index),
    AllDown,
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    let state = || prop::sample::select(&State::ALL[..]);
    prop_oneof![
        3 => ("[a-z]{1,3}", state()).prop_map(|(id, state)| Edit::Add(id, state)),
        2 => at().prop_map(Edit::Remove),
        4 => (at(), state()).prop_map(|(at, state)| Edit::State(at, state)),
        4 => (at(), prop::bool::ANY).prop_map(|(at, up)| Edit::Health(at, if up { Health::Up } else { Health::Down })),
        2 => (at(), prop::sample::select(vec![0.5, 1.0, 2.0, 7.3])).prop_map(|(at, weight)| Edit::Weight(at, weight)),
        1 => (at(), 1u8..=100).prop_map(|(at, fill)| Edit::Fill(at, fill)),
        1 => (at(), prop::sample::select(vec![None, Some("a"), Some("b")])).prop_map(|(at, zone)| Edit::Zone(at, zone)),
        1 => at().prop_map(Edit::Address),
        1 => Just(Edit::AllDown),
    ]
}

fn apply(backends: &mut Vec<Backend>, step: u8, edit: &Edit) {
    let address = [10, 1, 0, step].into();
    let count = backends.len();
    match edit {
        Edit::Add(id, state) => {
            if backends.iter().all(|backend| backend.id != *id) {
                backends.push(Backend { state: *state, ..Backend::new(id.clone(), address) });
            }
        }
        Edit::Remove(at) => {
            if count > 1 {
                backends.remove(at.index(count));
            }
        }
        Edit::State(at, state) => backends[at.index(count)].state = *state,
        Edit::Health(at, health) => backends[at.index(count)].health = *health,
        Edit::Weight(at, weight) => backends[at.index(count)].weight = *weight,
        Edit::Fill(at, fill) => backends[at.index(count)].fill = *fill,
        Edit::Zone(at, zone) => backends[at.index(count)].zone = zone.map(str::to_owned),
        Edit::Address(at) => backends[at.index(count)].address = address,
        Edit::AllDown => backends.iter_mut().for_each(|backend| backend.health = Health::Down),
    }
}

fn start(spread_zones: bool) -> TableSpec {
    let ids = ["m", "n", "o", "p", "q", "r", "s", "t", "u", "v"];
    TableSpec { spread_zones, ..spec(backends(&ids)) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn every_edit_gives_the_octets_of_a_full_build(
        edits in prop::collection::vec(edit(), 1..10),
        before in prop::collection::vec(edit(), 0..6),
        (spread_zones, kind) in (any::<bool>(), 0..4),
    ) {
        let mut spec = start(spread_zones);
        let (mut first, mut second) = (spec.clone(), spec.clone());
        before.iter().take(3).zip(100..).for_each(|(edit, step)| apply(&mut first.backends, step, edit));
        before.iter().zip(150..).for_each(|(edit, step)| apply(&mut second.backends, step, edit));
        first.rows <<= u32::from(kind == 3);
        let grandparent = build(&first, History::None);
        let parent = build(&second, History::Parent(&grandparent));
        let history = match kind {
            0 => History::None,
            1 => History::Parent(&parent),
            2 => History::Settled(&parent),
            _ => History::Parent(&grandparent),
        };
        let mut live = Incremental::new(std::slice::from_ref(&spec), history);
        for (step, edit) in (0..).zip(&edits) {
            apply(&mut spec.backends, step, edit);
            live.update(std::slice::from_ref(&spec));
            let (sealed, full) = (live.seal().unwrap(), build(&spec, history));
            prop_assert!(sealed.encode() == full.encode(), "step {} of {:?}", step, edits);
        }
    }
}

/// A flip of one backend concerns the rows that know it and no others.
#[test]
fn a_health_flip_touches_few_rows() {
    let mut spec = start(false);
    spec.backends = (0..200u8).map(|i| Backend::new(format!("b{i:03}"), [10, 0, 0, i].into())).collect();
    let mut live = Incremental::new(std::slice::from_ref(&spec), History::None);
    spec.backends[17].health = Health::Down;
    let touched = live.update(std::slice::from_ref(&spec));
    let known = 4 * 65_536 / 200;
    assert!((known / 2..known * 2).contains(&touched), "{touched}");
    assert_eq!(live.seal().unwrap(), build(&spec, History::None));
    assert_eq!(live.update(std::slice::from_ref(&spec)), 0);
}
