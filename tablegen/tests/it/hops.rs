//! The hop-list rule against a second statement of it, over every vector of states and health.
//!
//! The rule takes a ranking as given, and all vectors of states are tried: so one ranking, 0 before 1 before 2, is as
//! good as all of them.

use common::backend::{Backend, Health, State};
use tablegen::generate::hops::{HopRule, Scratch};

/// The rule as a sort: everyone who belongs in the list has a key, and the list is in order of keys.
///
/// Key: (down, why, order within why). Why: 0 former owner, 1 passed over while draining, 2 the filling primary's
/// stand-ins, 3 passed over while down.
fn oracle(
    backends: &[Backend],
    former: &[u16],
    owner: Option<u16>,
    max_hops: usize,
    spread_zones: bool,
) -> Vec<u16> {
    let at = |i: u16| &backends[usize::from(i)];
    let all = || 0..u16::try_from(backends.len()).unwrap();
    let state_accepts = |i: &u16| [State::Active, State::Filling].contains(&at(*i).state);
    let strict: Vec<u16> = all().filter(|i| state_accepts(i) && at(*i).health == Health::Up).collect();
    let open: Vec<u16> = all().filter(state_accepts).collect();
    let last: Vec<u16> = all().filter(|i| at(*i).state == State::Draining).collect();
    let accepting = [strict, open, last].into_iter().find(|set| !set.is_empty()).unwrap_or_default();
    let Some(primary) = owner.or(accepting.first().copied()) else { return Vec::new() };
    // Where the owner is given, those that accept and are preferred to it are full.
    let full = |i: u16| i < primary && accepting.contains(&i);

    let active_below = accepting.iter().find(|i| **i > primary && at(**i).state == State::Active);
    let why = |i: u16| -> Option<(bool, u8, usize)> {
        let down = at(i).health == Health::Down;
        let order = usize::from(i);
        if i == primary || at(i).state == State::Inactive {
            return None;
        }
        if let Some(age) = former.iter().position(|owner| *owner == i) {
            return Some((down, 0, age));
        }
        if i < primary && at(i).state == State::Draining {
            return Some((down, 1, order));
        }
        if let (State::Filling, Some(&active)) = (at(primary).state, active_below) {
            if i == active {
                return Some((down, 2, 0));
            }
            if primary < i && i < active && accepting.contains(&i) {
                return Some((down, 2, 1 + order));
            }
        }
        (i < primary && !full(i)).then_some((true, 3, order))
    };
    let mut keyed: Vec<_> = all().filter_map(|i| Some((why(i)?, i))).collect();
    keyed.sort_unstable();
    let mut list = vec![primary];
    list.extend(keyed.into_iter().map(|(_, i)| i));
    if list.len() == 1 {
        let next = |elsewhere: bool| {
            let below = accepting.iter().filter(|i| **i > primary);
            let mut heirs = below.chain(accepting.iter().filter(|i| full(**i)));
            heirs.find(|i| !elsewhere || at(**i).zone != at(primary).zone)
        };
        list.extend(next(spread_zones).or_else(|| next(false)));
    }
    list.truncate(max_hops);
    list
}

/// All vectors of `n` things out of `choices`.
fn vectors(choices: usize, n: usize) -> impl Iterator<Item = Vec<usize>> {
    let count = choices.pow(u32::try_from(n).unwrap());
    (0..count).map(move |mut code| {
        let mut digit = || (code % choices, code /= choices).0;
        (0..n).map(|_| digit()).collect()
    })
}

fn backends(conditions: &[usize]) -> Vec<Backend> {
    let one = |(at, condition): (usize, &usize)| Backend {
        state: State::ALL[condition / 2],
        health: [Health::Up, Health::Down][condition % 2],
        ..Backend::new(format!("b{at}"), [10, 0, 0, 1].into())
    };
    conditions.iter().enumerate().map(one).collect()
}

/// Every ordered choice of up to three of the candidates.
fn histories(candidates: &[u16]) -> Vec<Vec<u16>> {
    let mut all = vec![vec![]];
    for start in 0..3 {
        let longest: Vec<Vec<u16>> = all.iter().filter(|list| list.len() == start).cloned().collect();
        for list in longest {
            let more = candidates.iter().filter(|one| !list.contains(one));
            all.extend(more.map(|one| [list.as_slice(), &[*one]].concat()));
        }
    }
    all
}

fn candidates(backends: &[Backend]) -> Vec<u16> {
    (0u16..).zip(backends).filter(|(_, one)| one.is_candidate()).map(|(at, _)| at).collect()
}

/// Compares one case, and that the ranking was asked for no more than it had to be.
fn compare(backends: &[Backend], former: &[u16], max_hops: u8, spread: bool, scratch: &mut Scratch) {
    compare_owned(backends, former, None, max_hops, spread, scratch);
}

/// The same where shares are bounded and the row is `owner`'s.
fn compare_owned(
    backends: &[Backend],
    former: &[u16],
    owner: Option<u16>,
    max_hops: u8,
    spread: bool,
    scratch: &mut Scratch,
) {
    let rule = HopRule::new(backends, max_hops, spread);
    let list = rule.list(former, owner, candidates(backends).into_iter(), scratch);
    let expected = oracle(backends, former, owner, max_hops.into(), spread);
    let seen = || -> Vec<String> {
        let one = |b: &Backend| format!("{} {} {:?}", b.state, b.health, b.zone);
        backends.iter().map(one).collect()
    };
    assert_eq!(
        list,
        expected,
        "owner {owner:?}, max_hops {max_hops}, former {former:?}, spread {spread}, {:#?}",
        seen()
    );
}

#[test]
fn all_states_of_six_backends() {
    let mut scratch = Scratch::default();
    for n in 1..=6 {
        for conditions in vectors(8, n) {
            let backends = backends(&conditions);
            compare(&backends, &[], 4, false, &mut scratch);
            // One history each, another for every vector.
            let mut former = candidates(&backends);
            let turn = conditions.iter().sum::<usize>();
            let count = former.len().max(1);
            former.rotate_left(turn % count);
            former.truncate(turn % 4);
            compare(&backends, &former, 2 + u8::try_from(turn % 3).unwrap(), false, &mut scratch);
        }
    }
}

#[test]
fn all_states_and_all_histories_of_four_backends() {
    let mut scratch = Scratch::default();
    for n in 1..=4 {
        for conditions in vectors(8, n) {
            let backends = backends(&conditions);
            for former in histories(&candidates(&backends)) {
                for max_hops in 2..=4 {
                    compare(&backends, &former, max_hops, false, &mut scratch);
                }
            }
        }
    }
}

#[test]
fn all_zones_of_four_backends() {
    let mut scratch = Scratch::default();
    for conditions in vectors(8, 4) {
        let mut backends = backends(&conditions);
        for zones in vectors(3, 4) {
            for (backend, zone) in backends.iter_mut().zip(zones) {
                backend.zone = [None, Some("a".to_owned()), Some("b".to_owned())][zone].clone();
            }
            compare(&backends, &[], 4, true, &mut scratch);
        }
    }
}

#[test]
fn all_states_and_owners_of_five_backends_with_bounded_shares() {
    let mut scratch = Scratch::default();
    for n in 1..=5 {
        for conditions in vectors(8, n) {
            let mut backends = backends(&conditions);
            let accepting: Vec<u16> =
                (0u16..).zip(&backends).filter(|(_, one)| one.accepts()).map(|(at, _)| at).collect();
            let turn = conditions.iter().sum::<usize>();
            let mut former = candidates(&backends);
            let count = former.len().max(1);
            former.rotate_left(turn % count);
            former.truncate(turn % 3);
            for owner in accepting {
                compare_owned(&backends, &[], Some(owner), 4, false, &mut scratch);
                compare_owned(&backends, &former, Some(owner), 3, false, &mut scratch);
                backends[n / 2].zone = Some("a".to_owned());
                compare_owned(&backends, &[], Some(owner), 4, true, &mut scratch);
            }
        }
    }
}

#[test]
fn a_row_at_rest_asks_for_two_backends_only() {
    let backends = backends(&[2; 6]);
    let asked = std::cell::Cell::new(0);
    let ranking = (0..6).inspect(|_| asked.set(asked.get() + 1));
    let mut scratch = Scratch::default();
    assert_eq!(HopRule::new(&backends, 4, false).list(&[], None, ranking, &mut scratch), [0, 1]);
    assert_eq!(asked.get(), 2);
}

/// A list never repeats a backend, never holds an inactive one, and starts with a live one if there is any.
#[test]
fn what_holds_of_every_list() {
    let mut scratch = Scratch::default();
    for conditions in vectors(8, 5) {
        let backends = backends(&conditions);
        let list = HopRule::new(&backends, 4, false)
            .list(&[], None, candidates(&backends).into_iter(), &mut scratch)
            .to_vec();
        let at = |i: u16| &backends[usize::from(i)];
        assert_eq!(list.is_empty(), candidates(&backends).is_empty());
        assert!(list.iter().all(|i| at(*i).is_candidate()));
        assert!(list.iter().enumerate().all(|(n, i)| !list[..n].contains(i)));
        if backends.iter().any(Backend::accepts) {
            assert!(at(list[0]).accepts());
        }
        let live: Vec<bool> = list.iter().skip(1).map(|i| at(*i).health == Health::Up).collect();
        assert!(live.is_sorted_by(|a, b| a >= b), "a dead hop hides a live one: {list:?}");
    }
}
