//! The hop-list rule: which backends a packet of a row may visit, and in which order.
//!
//! The *primary* gets the row's new connections. The hops after it exist for connections that started while
//! somebody else was primary: whoever may still hold such a connection must be in the list, or it breaks.
//!
//! 1. *Candidates* are all backends that are not inactive, in the row's order of preference. Those *accept* that are
//!    active or filling, and up. Where nobody of the table does, health is ignored (probes that fail everywhere are
//!    likelier wrong than right); where then nobody does, draining ones accept. No candidates, no hops.
//! 2. The primary is the first that accepts.
//! 3. Then those that may hold live connections, each once:
//!    the row's former owners, newest first; candidates preferred to the primary that drain (they owned the row
//!    before they began to); and if the primary is filling, the owner that the row has without it (the first active
//!    one below that accepts), then the filling ones between the two, any of which may have filled first.
//!    Of all these the ones that are up stand before those that are down; last stand those that were preferred to the
//!    primary but are down. A false alarm must not cut live connections, and a dead hop must not hide a live one.
//! 4. If that leaves the primary alone: the next that accepts, of another zone if that is wanted and there is one.
//!    It is the heir: the owner, should the primary fail next.
//! 5. All cut to the table's longest list.
//!
//! Where shares are bounded ([`max_share`](common::table::Table::max_share)), the row's owner is given, and is the
//! primary: those preferred to it that accept have no room for the row. They are heirs if there are no others.
//!
//! So a row at rest has two hops, and the ranking is asked for two backends only.

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
}

/// Room to work in, kept from row to row.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    hops: Vec<u16>,
    passed_over: Vec<u16>,
    below: Vec<u16>,
    /// Preferred to the primary, accepting, and without room.
    full: Vec<u16>,
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
        };
        let facts: Vec<Fact> = backends.iter().map(fact).collect();
        let at_rest =
            |fact: &Fact| matches!((fact.state, fact.up), (State::Active, true) | (State::Inactive, _));
        let at_rest = !spread_zones && facts.iter().all(at_rest);
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
        let Scratch { hops, passed_over, below, full } = scratch;
        [&mut *hops, &mut *passed_over, &mut *below, &mut *full].into_iter().for_each(Vec::clear);
        let Some(primary) = self.primary(owner, &mut ranking, passed_over, full) else { return hops };
        hops.push(primary);
        let without_it = match self.fact(primary).state {
            State::Filling => self.first_active(&mut ranking, below),
            _ => None,
        };
        let between = if without_it.is_some() { below.as_slice() } else { &[] };
        let draining = passed_over.iter().filter(|one| self.fact(**one).state == State::Draining);
        let may_hold = former.iter().chain(draining).chain(&without_it).chain(between);
        may_hold.clone().filter(|one| self.fact(**one).up).for_each(|one| push_new(hops, *one));
        may_hold.filter(|one| !self.fact(**one).up).for_each(|one| push_new(hops, *one));
        passed_over.iter().for_each(|one| push_new(hops, *one));
        if hops.len() == 1 {
            let heirs = below.iter().copied().chain(ranking).chain(full.iter().copied());
            hops.extend(self.heir(primary, heirs));
        }
        hops.truncate(self.max_hops);
        hops
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

    fn heir(&self, primary: u16, heirs: impl Iterator<Item = u16>) -> Option<u16> {
        let mut accepting = heirs.filter(|one| self.fact(*one).accepts);
        let next = accepting.next()?;
        let elsewhere = |one: &u16| self.fact(*one).zone != self.fact(primary).zone;
        if !self.spread_zones || elsewhere(&next) {
            return Some(next);
        }
        Some(accepting.find(elsewhere).unwrap_or(next))
    }

    /// A position that does not exist is as good as an inactive backend: nothing is asked of it.
    fn fact(&self, position: u16) -> Fact {
        const NOBODY: Fact = Fact { accepts: false, state: State::Inactive, up: false, zone: 0 };
        self.facts.get(usize::from(position)).copied().unwrap_or(NOBODY)
    }
}

fn push_new(list: &mut Vec<u16>, one: u16) {
    if !list.contains(&one) {
        list.push(one);
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
