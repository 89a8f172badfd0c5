//! The hop-list rule: which backends a packet of a row may visit, and in which order.
//!
//! The *primary* gets the row's new connections. The hops after it exist for connections that started while
//! somebody else was primary: whoever may still hold such a connection must be in the list, or it breaks.
//!
//! 1. *Candidates* are all backends that are not inactive, in the row's order of preference. Those *accept* that are
//!    active or filling, and up. If no backend of the table accepts, health is ignored (probes that fail everywhere are
//!    probably wrong); if then none accepts, draining ones accept too. Without candidates the list is empty.
//! 2. The primary is the first candidate that accepts.
//! 3. Then the backends that may hold live connections, each once:
//!    (a) the row's former owners, newest first;
//!    (b) candidates preferred to the primary that were passed over, because they are draining or down;
//!    (c) if the primary is filling, the owner that the row has without it (the first active candidate below it that
//!    accepts), then the accepting ones between the two, any of which may have filled first.
//!    *Selection*, if there are more of them than places: (a) before (c) before (b), up or down. A false alarm must not
//!    cut live connections, and a backend that never owned the row holds none.
//!    *Order* of the selected: those that are up, in the order a, b, c; then those that are down, in the same order. A
//!    dead hop must not hide a live one.
//! 4. If that leaves the primary alone: the next candidate that accepts, of another zone if `spread_zones` is set and
//!    there is one. It is the heir: the owner, should the primary fail next.
//! 5. The list ends at `max_hops`. A packet carries hops of the primary's address family only. Backends of the other
//!    family take the places that are left after rules 3 and 4, in the same order; they are listed, and not reached.
//!
//! Where shares are bounded ([`max_share`](common::table::Table::max_share)), the row's owner is given, and is the
//! primary: those preferred to it that accept have no room for the row. They are heirs if there are no others.
//!
//! In the steady state a row has two hops, and the ranking is asked for two backends only.

use common::backend::{Backend, Health, State};
use std::collections::HashMap;

/// The rule for one table.
#[derive(Clone, Debug)]
pub struct HopRule {
    facts: Vec<Fact>,
    max_hops: usize,
    spread_zones: bool,
    terms: Terms,
    at_rest: bool,
}

/// What the rule needs to know of one backend.
#[derive(Clone, Copy, Debug)]
struct Fact {
    accepts: bool,
    state: State,
    up: bool,
    /// Zones by number; 0 is "in none".
    zone: usize,
    is_ipv6: bool,
}

/// Why a backend may hold connections of a row, in the order in which hops are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    /// (a) It owned the row.
    Former,
    /// (b) It is preferred to the primary, and draining or down.
    PassedOver,
    /// (c) It owns the row, or may have owned it, but for the filling primary.
    StandIn,
}

/// Room to work in, kept from row to row.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    hops: Vec<u16>,
    passed_over: Vec<u16>,
    below: Vec<u16>,
    /// Preferred to the primary, accepting, and without room.
    full: Vec<u16>,
    holders: Holders,
}

/// The selected of those that may hold connections, at most one a place.
#[derive(Clone, Debug, Default)]
struct Holders {
    /// Of the primary's address family.
    carried: Vec<(Holder, u16)>,
    /// Of the other one.
    not_carried: Vec<(Holder, u16)>,
}

impl HopRule {
    /// Positions in rankings and lists refer to `backends`.
    pub fn new(backends: &[Backend], max_hops: u8, spread_zones: bool) -> Self {
        let terms = Terms::of(backends);
        let mut zones: HashMap<&str, usize> = HashMap::new();
        let fact = |backend| Fact {
            accepts: terms.accept(backend),
            state: backend.state,
            up: backend.health == Health::Up,
            zone: backend.zone.as_deref().map_or(0, |zone| {
                let next = zones.len() + 1;
                *zones.entry(zone).or_insert(next)
            }),
            is_ipv6: backend.address.is_ipv6(),
        };
        let facts: Vec<Fact> = backends.iter().map(fact).collect();
        let at_rest =
            |fact: &Fact| matches!((fact.state, fact.up), (State::Active, true) | (State::Inactive, _));
        let is_ipv6 = |wanted| move |fact: &Fact| fact.state != State::Inactive && fact.is_ipv6 == wanted;
        let one_family = !(facts.iter().any(is_ipv6(false)) && facts.iter().any(is_ipv6(true)));
        let at_rest = !spread_zones && one_family && facts.iter().all(at_rest);
        Self { facts, max_hops: max_hops.into(), spread_zones, terms, at_rest }
    }

    /// Does the table as a whole accept on the same terms?
    pub(super) fn accepts_like(&self, other: &Self) -> bool {
        self.terms == other.terms
    }

    /// As many of a ranking's first as are seldom not enough.
    pub(super) const DEEP: usize = 4;

    /// How many of a ranking's first most rows will ask for. More may be asked for at any row.
    pub fn depth(&self) -> usize {
        if self.at_rest { 2 } else { Self::DEEP }
    }

    /// Is the list of every row that nobody else may hold connections of just the first two of its ranking?
    pub(super) const fn is_at_rest(&self) -> bool {
        self.at_rest
    }

    /// Those that may own rows.
    pub(super) fn accepts(&self, position: u16) -> bool {
        self.fact(position).accepts
    }

    /// The hop list of a row. `ranking` gives the candidates in the row's order of preference, `former` its former
    /// owners that are still candidates, newest first. `owner` is the row's own where shares are bounded.
    pub fn list<'s>(
        &self,
        former: &[u16],
        owner: Option<u16>,
        mut ranking: impl Iterator<Item = u16>,
        scratch: &'s mut Scratch,
    ) -> &'s [u16] {
        let Scratch { hops, passed_over, below, full, holders } = scratch;
        [&mut *hops, &mut *passed_over, &mut *below, &mut *full].into_iter().for_each(Vec::clear);
        let Some(primary) = self.primary(owner, &mut ranking, passed_over, full) else { return hops };
        hops.push(primary);
        let without_it = match self.fact(primary).state {
            State::Filling => self.first_active(&mut ranking, below),
            _ => None,
        };
        let between = if without_it.is_some() { below.as_slice() } else { &[] };
        let stand_ins = without_it.iter().chain(between).map(|one| (Holder::StandIn, *one));
        let former = former.iter().map(|one| (Holder::Former, *one));
        let passed_over = passed_over.iter().map(|one| (Holder::PassedOver, *one));
        self.select(primary, former.chain(stand_ins).chain(passed_over), holders);
        let Holders { carried, not_carried } = holders;
        hops.extend(carried.iter().map(|(_, one)| *one));
        if carried.is_empty() {
            let below = below.iter().copied().chain(without_it);
            let heir = self.heir(primary, below.chain(ranking).chain(full.iter().copied()));
            let is_hop = |heir: &u16| not_carried.is_empty() || self.carries(primary, *heir);
            hops.extend(heir.filter(is_hop));
        }
        hops.extend(not_carried.iter().map(|(_, one)| *one));
        hops.truncate(self.max_hops);
        hops
    }

    /// Selects from `all`, which come in the order of selection, and puts the selected in the order of the list.
    fn select(&self, primary: u16, all: impl Iterator<Item = (Holder, u16)>, holders: &mut Holders) {
        let Holders { carried, not_carried } = holders;
        carried.clear();
        not_carried.clear();
        let places = self.max_hops.saturating_sub(1);
        for (holder, one) in all.filter(|(_, one)| *one != primary) {
            let list = if self.carries(primary, one) { &mut *carried } else { &mut *not_carried };
            if list.len() < places && list.iter().all(|(_, other)| *other != one) {
                list.push((holder, one));
            }
        }
        // A stable sort: within one kind the order of selection stays.
        carried.sort_by_key(|(holder, one)| (!self.fact(*one).up, *holder));
        not_carried.sort_by_key(|(holder, one)| (!self.fact(*one).up, *holder));
    }

    /// Does a packet whose outer header is of the primary's address family carry this hop?
    fn carries(&self, primary: u16, hop: u16) -> bool {
        self.fact(primary).is_ipv6 == self.fact(hop).is_ipv6
    }

    /// The first that accepts, or the given owner. Collects those before it.
    fn primary(
        &self,
        owner: Option<u16>,
        ranking: &mut impl Iterator<Item = u16>,
        passed_over: &mut Vec<u16>,
        full: &mut Vec<u16>,
    ) -> Option<u16> {
        ranking.find(|one| {
            let accepts = self.fact(*one).accepts;
            let has_room = owner.is_none_or(|owner| owner == *one);
            match (accepts, has_room) {
                (true, true) => return true,
                (true, false) => full.push(*one),
                (false, _) => passed_over.push(*one),
            }
            false
        })
    }

    /// Collects the accepting ones before it in `below`.
    fn first_active(&self, ranking: &mut impl Iterator<Item = u16>, below: &mut Vec<u16>) -> Option<u16> {
        ranking.filter(|one| self.fact(*one).accepts).find(|one| {
            let active = self.fact(*one).state == State::Active;
            if !active {
                below.push(*one);
            }
            active
        })
    }

    /// The next of `heirs` that accepts. One that the packet does not carry is the last resort.
    fn heir(&self, primary: u16, heirs: impl Iterator<Item = u16>) -> Option<u16> {
        let elsewhere = |one: u16| self.fact(one).zone != self.fact(primary).zone;
        let (mut near, mut not_carried) = (None, None);
        for one in heirs.filter(|one| self.fact(*one).accepts) {
            if !self.carries(primary, one) {
                not_carried = not_carried.or(Some(one));
            } else if !self.spread_zones || elsewhere(one) {
                return Some(one);
            } else {
                near = near.or(Some(one));
            }
        }
        near.or(not_carried)
    }

    /// A position that does not exist is as good as an inactive backend: nothing is asked of it.
    fn fact(&self, position: u16) -> Fact {
        const NOBODY: Fact =
            Fact { accepts: false, state: State::Inactive, up: false, zone: 0, is_ipv6: false };
        self.facts.get(usize::from(position)).copied().unwrap_or(NOBODY)
    }
}

/// Who accepts in a table: the strictest terms on which anybody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Terms {
    InServiceAndUp,
    InService,
    Candidate,
}

impl Terms {
    fn of(backends: &[Backend]) -> Self {
        let on = |terms: &Self| backends.iter().any(|backend| terms.accept(backend));
        [Self::InServiceAndUp, Self::InService].into_iter().find(on).unwrap_or(Self::Candidate)
    }

    fn accept(self, backend: &Backend) -> bool {
        match self {
            Self::InServiceAndUp => backend.accepts(),
            Self::InService => matches!(backend.state, State::Active | State::Filling),
            Self::Candidate => backend.is_candidate(),
        }
    }
}
