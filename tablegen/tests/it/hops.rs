//! The hop-list rule against a second statement of it, over every vector of states and health.
//!
//! The rule takes a ranking as given, and all vectors of states are tried: so one ranking, 0 before 1 before 2, is as
//! good as all of them.

use common::backend::{Backend, Health, State};
use tablegen::generate::hops::{HopRule, Scratch};

/// Why a backend may hold connections: former owner, passed over, or stand-in of a filling primary.
const A: u8 = 0;
const B: u8 = 1;
const C: u8 = 2;

/// The rule as two sorts: every backend that may hold connections has a kind and an age within it. The first sort, by the
/// order of selection, says which of them get a place; the second, by the order of the list, says where they stand.
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
    let foreign = |i: u16| at(i).address.is_ipv6() != at(primary).address.is_ipv6();

    let active_below = accepting.iter().find(|i| **i > primary && at(**i).state == State::Active);
    let kind = |i: u16| -> Option<(u8, usize)> {
        if i == primary || at(i).state == State::Inactive {
            return None;
        }
        if let Some(age) = former.iter().position(|owner| *owner == i) {
            return Some((A, age));
        }
        if let (State::Filling, Some(&active)) = (at(primary).state, active_below)
            && primary < i
            && i <= active
            && accepting.contains(&i)
        {
            return Some((C, if i == active { 0 } else { 1 + usize::from(i) }));
        }
        let passed_over = at(i).state == State::Draining || at(i).health == Health::Down;
        (i < primary && passed_over && !full(i)).then_some((B, usize::from(i)))
    };
    let selected = |of_primary: bool| -> Vec<u16> {
        let mut holders: Vec<(u8, usize, u16)> = all()
            .filter(|i| foreign(*i) != of_primary)
            .filter_map(|i| kind(i).map(|(kind, age)| (kind, age, i)))
            .collect();
        holders.sort_unstable_by_key(|(kind, age, _)| ([0, 2, 1][usize::from(*kind)], *age));
        holders.truncate(max_hops - 1);
        holders.sort_unstable_by_key(|(kind, age, i)| (at(*i).health == Health::Down, *kind, *age));
        holders.into_iter().map(|(.., i)| i).collect()
    };
    let (mut list, strangers) = ([vec![primary], selected(true)].concat(), selected(false));
    if list.len() == 1 {
        let heirs: Vec<u16> = accepting
            .iter()
            .filter(|i| **i > primary)
            .chain(accepting.iter().filter(|i| full(**i)))
            .copied()
            .collect();
        let elsewhere = |i: u16| !spread_zones || at(i).zone != at(primary).zone;
        let near = |i: &&u16| !foreign(**i);
        let best = heirs.iter().filter(near).find(|i| elsewhere(**i));
        let heir = best.or_else(|| heirs.iter().find(near));
        list.extend(heir.or_else(|| heirs.first().filter(|_| strangers.is_empty())));
    }
    list.extend(strangers);
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
        let one = |b: &Backend| format!("{} {} {} {:?}", b.address, b.state, b.health, b.zone);
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

/// A packet to an IPv4 backend carries no IPv6 hops, and the other way round.
#[test]
fn all_address_families_of_four_backends() {
    let mut scratch = Scratch::default();
    for n in 2..=4 {
        for (turn, conditions) in vectors(8, n).enumerate() {
            for families in vectors(2, n) {
                let mut backends = backends(&conditions);
                for ((backend, family), zone) in backends.iter_mut().zip(families).zip(["a", "a", "b", "b"]) {
                    if family == 1 {
                        backend.address = "2001:db8::1".parse().unwrap();
                    }
                    backend.zone = Some(zone.to_owned());
                }
                let mut former = candidates(&backends);
                let count = former.len().max(1);
                former.rotate_left(turn % count);
                for count in 0..4 {
                    let former = &former[..count.min(former.len())];
                    compare(
                        &backends,
                        former,
                        2 + u8::try_from(turn % 3).unwrap(),
                        turn % 2 == 0,
                        &mut scratch,
                    );
                }
            }
        }
    }
}

/// Each case by hand: states in the row's order of preference (A active, F filling, D draining; lower case is down; a
/// prime marks IPv6), former owners, places, and the list that rules 3 to 5 give.
#[test]
fn the_order_of_selection_and_the_order_of_the_list() {
    let cases: [(&str, &[u16], u8, &[u16]); 14] = [
        ("A A A A", &[], 4, &[0, 1]),
        // A former owner that is down keeps its place before stand-ins (c), and stands last.
        ("F F A a", &[3], 4, &[0, 2, 1, 3]),
        ("F F F A a", &[4], 4, &[0, 3, 1, 4]),
        ("F F F A a", &[4], 3, &[0, 3, 4]),
        ("F F F A a", &[4], 2, &[0, 4]),
        // (c) before (b): the active one that owns the row but for the filling primary, not one that drains.
        ("D F A", &[], 2, &[1, 2]),
        ("D F A", &[], 3, &[1, 0, 2]),
        ("D d F F A", &[], 3, &[2, 4, 3]),
        // Within (a) the newest first, also if it is down: an older owner never displaces a newer one.
        ("A a A A", &[1, 2, 3], 3, &[0, 2, 1]),
        ("A a a A", &[1, 2, 3], 2, &[0, 1]),
        ("D a A", &[], 4, &[2, 0, 1]),
        // No place for what the packet does not carry, before what it does.
        ("A A' A", &[1], 4, &[0, 2, 1]),
        ("A A' A", &[1], 2, &[0, 2]),
        ("A A'", &[], 4, &[0, 1]),
    ];
    let mut scratch = Scratch::default();
    for (states, former, max_hops, expected) in cases {
        let backend = |word: &str| {
            let state = match word[..1].to_ascii_uppercase().as_str() {
                "A" => State::Active,
                "F" => State::Filling,
                _ => State::Draining,
            };
            let health = if word.starts_with(char::is_lowercase) { Health::Down } else { Health::Up };
            let address = if word.ends_with('\'') { "2001:db8::1" } else { "10.0.0.1" };
            Backend { state, health, ..Backend::new("b", address.parse().unwrap()) }
        };
        let backends: Vec<Backend> = states.split(' ').map(backend).collect();
        let rule = HopRule::new(&backends, max_hops, false);
        let list = rule.list(former, None, candidates(&backends).into_iter(), &mut scratch);
        assert_eq!(list, expected, "{states}, former {former:?}, {max_hops} hops");
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
