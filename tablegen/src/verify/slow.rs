//! Every row of a table, computed a second time in the most obvious way: score all, sort all, then read the hop-list
//! rule from top to bottom. Nothing here is shared with the generator.
//!
//! The logarithm is the platform's and not the one that tables are made with. The two differ by a unit in the last
//! place at most, which could only show where two weighted scores are as close as that.

use super::hash::{finalise, hash_bytes, sip};
use crate::progress::Progress;
use common::backend::{Backend, Health, State};
use common::table::{Lists, Ranking, Table};
use rayon::prelude::*;
use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::net::IpAddr;

/// One row: its hop list and its lineage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The primary first.
    pub hops: Vec<u16>,
    /// Former owners, newest first.
    pub lineage: Vec<u16>,
}

/// The table in service when the table was built.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// Its rows and lineage.
    pub table: &'a Table,
    /// Do only its own owners count?
    pub settled: bool,
}

/// Recomputes all rows of `table` from its parameters and backends; its own rows and lineage are not looked at.
pub fn rows(table: &Table, before: Option<Before<'_>>, rows: u32, progress: &Progress) -> Vec<Row> {
    let work = Work::new(table, before, rows);
    let owners = table.max_share.map(|max_share| work.bounded_owners(max_share));
    let owner = |row: u32| owners.as_ref().and_then(|owners| owners[row as usize]);
    progress.expect(rows.into());
    let row = |row: u32| {
        let lists = work.row(row, owner(row));
        progress.advance(1);
        lists
    };
    (0..rows).into_par_iter().map(row).collect()
}

/// `table` with its rows and lineage replaced by recomputed ones: a generator to hold the real one against.
pub fn rebuilt(table: &Table, before: Option<Before<'_>>, rows: u32) -> Table {
    let computed = self::rows(table, before, rows, &Progress::default());
    let mut hops = Lists::empty(rows, table.max_hops);
    let mut lineage = Lists::empty(rows, table.max_hops.saturating_sub(1));
    for (row, lists) in (0u32..).zip(computed) {
        hops.set(row, lists.hops);
        lineage.set(row, lists.lineage);
    }
    Table { hops, lineage, ..table.clone() }
}

struct Work<'a> {
    table: &'a Table,
    /// Octets that are hashed once a backend: `hash_bytes` of the id.
    seeds: Vec<u64>,
    accepts: Vec<bool>,
    before: Option<Before<'a>>,
    /// By position in the table before: the position here, of those that are candidates.
    here: Vec<Option<u16>>,
    rows: u32,
}

impl<'a> Work<'a> {
    fn new(table: &'a Table, before: Option<Before<'a>>, rows: u32) -> Self {
        let same_flows = |old: &Table| old.hash_key == table.hash_key && old.hash_fields == table.hash_fields;
        let before = before.filter(|before| same_flows(before.table));
        let candidates = (0u16..).zip(&table.backends).filter(|(_, one)| one.state != State::Inactive);
        let by_id: HashMap<&str, u16> = candidates.map(|(at, one)| (one.id.as_str(), at)).collect();
        let old = before.map(|before| before.table.backends.as_slice()).unwrap_or_default();
        Self {
            table,
            seeds: table.backends.iter().map(|one| hash_bytes(one.id.as_bytes())).collect(),
            accepts: accepts(&table.backends),
            before,
            here: old.iter().map(|one| by_id.get(one.id.as_str()).copied()).collect(),
            rows,
        }
    }

    /// `owner` is the row's where shares are bounded.
    fn row(&self, row: u32, owner: Option<u16>) -> Row {
        let former = self.former(row);
        let hops = self.hops(&self.ranked(row), owner, &former);
        let mut lineage = former;
        lineage.retain(|one| hops.first() != Some(one));
        lineage.truncate(usize::from(self.table.max_hops.saturating_sub(1)));
        Row { hops, lineage }
    }

    fn one(&self, at: u16) -> &Backend {
        &self.table.backends[usize::from(at)]
    }

    fn takes(&self, at: u16) -> bool {
        self.accepts[usize::from(at)]
    }

    /// All backends that are not inactive, in order of rank.
    fn ranked(&self, row: u32) -> Vec<u16> {
        let candidates = (0u16..)
            .zip(&self.table.backends)
            .filter(|(_, one)| one.state != State::Inactive)
            .map(|(at, _)| at);
        match self.table.ranking {
            Ranking::Hrw => self.ranked_by_weight(row, candidates),
            Ranking::Glb => self.ranked_by_digest(row, candidates),
        }
    }

    fn ranked_by_weight(&self, row: u32, candidates: impl Iterator<Item = u16>) -> Vec<u16> {
        let key = self.key(row);
        let scored = candidates.map(|at| {
            let score = self.score(key, at);
            Scored {
                at,
                score,
                weight: weight(self.one(at)),
                weighted: weighted(score, weight(self.one(at))),
            }
        });
        let mut all: Vec<Scored> = scored.collect();
        all.sort_unstable_by(|a, b| self.order(a, b));
        all.chunk_by_mut(|a, b| a.weighted.total_cmp(&b.weighted).is_eq())
            .filter(|tied| tied.len() > 1)
            .for_each(|tied| self.order_tied(tied));
        all.into_iter().map(|one| one.at).collect()
    }

    fn order(&self, a: &Scored, b: &Scored) -> Ordering {
        let weighted = b.weighted.total_cmp(&a.weighted);
        weighted.then(b.score.cmp(&a.score)).then_with(|| self.one(b.at).id.cmp(&self.one(a.at).id))
    }

    /// Of equal weighted scores, those of different weights stand by the greater id, whatever their raw scores.
    fn order_tied(&self, tied: &mut [Scored]) {
        let distinct = tied.windows(2).all(|pair| pair[0].weight.total_cmp(&pair[1].weight).is_ne());
        if distinct {
            tied.sort_unstable_by(|a, b| self.one(b.at).id.cmp(&self.one(a.at).id));
        }
    }

    fn ranked_by_digest(&self, row: u32, candidates: impl Iterator<Item = u16>) -> Vec<u16> {
        let seed = &self.table.seed.0;
        let row_seed = sip(seed, &row.to_be_bytes());
        let digest = |at: u16| {
            let mut message = row_seed.to_vec();
            match self.one(at).address {
                IpAddr::V4(address) => message.extend(address.octets()),
                IpAddr::V6(address) => message.extend(address.octets()),
            }
            sip(seed, &message)
        };
        let mut all: Vec<_> =
            candidates.map(|at| (digest(at), std::cmp::Reverse(self.one(at).id.as_str()), at)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, _, at)| at).collect()
    }

    /// Owners where none has more rows than so many times its share. In rounds: every row without an owner asks the next
    /// of its ranking, and of all that asked it so far a backend keeps those rows that it scores highest, as many as it
    /// has room for. The others ask again.
    fn bounded_owners(&self, max_share: f64) -> Vec<Option<u16>> {
        let room = rooms(&self.table.backends, self.rows, max_share);
        let mut asked = vec![0; self.rows as usize];
        let mut kept = vec![Vec::<(u64, u32)>::new(); room.len()];
        let mut asking: Vec<u32> = (0..self.rows).collect();
        while !asking.is_empty() {
            let ask = |row: &u32| {
                let mut choices = self.ranked(*row).into_iter().filter(|one| self.takes(*one));
                let at = choices.nth(asked[*row as usize])?;
                Some((usize::from(at), self.score(self.key(*row), at), *row))
            };
            let answers: Vec<_> = asking.par_iter().filter_map(ask).collect();
            for (at, score, row) in answers {
                asked[row as usize] += 1;
                kept[at].push((score, row));
            }
            asking.clear();
            for (rows, room) in kept.iter_mut().zip(&room) {
                rows.sort_unstable_by_key(|(score, row)| (Reverse(*score), *row));
                asking.extend(rows.drain((*room).min(rows.len())..).map(|(_, row)| row));
            }
        }
        let mut owners = vec![None; self.rows as usize];
        for (at, rows) in (0u16..).zip(kept) {
            rows.into_iter().for_each(|(_, row)| owners[row as usize] = Some(at));
        }
        owners
    }

    /// The hash that ranks a row.
    fn key(&self, row: u32) -> u64 {
        let mut key = self.table.seed.0.to_vec();
        key.extend(row.to_le_bytes());
        hash_bytes(&key)
    }

    /// What a backend scores for a key, whatever its weight.
    fn score(&self, key: u64, at: u16) -> u64 {
        finalise(key ^ self.seeds[usize::from(at)])
    }

    /// Owners of the row in earlier tables, newest first, each once.
    fn former(&self, row: u32) -> Vec<u16> {
        let Some(Before { table, settled }) = self.before else { return Vec::new() };
        // Rows of the smaller table are those of the larger that are equal in the low bits.
        let fewer = table.rows().min(self.rows);
        let old_rows: Vec<u32> = (row % fewer..table.rows()).step_by(fewer as usize).collect();
        let mut former = Vec::new();
        let depth = if settled { 0 } else { table.lineage.width() };
        for generation in 0..=depth {
            for old in &old_rows {
                let owner = match generation {
                    0 => table.hops.get(*old).first(),
                    before => table.lineage.get(*old).get(before - 1),
                };
                let here = owner.and_then(|owner| self.here[usize::from(*owner)]);
                former.extend(here.filter(|here| !former.contains(here)));
            }
        }
        former
    }

    /// The hop-list rule.
    fn hops(&self, ranked: &[u16], owner: Option<u16>, former: &[u16]) -> Vec<u16> {
        let owns = |one: &u16| owner.map_or_else(|| self.takes(*one), |owner| owner == *one);
        let Some(at) = ranked.iter().position(owns) else { return Vec::new() };
        let (primary, below) = (ranked[at], &ranked[at + 1..]);
        let (full, above): (Vec<u16>, Vec<u16>) = ranked[..at].iter().partition(|one| self.takes(**one));
        let state = |one: &u16| self.one(*one).state;
        let up = |one: &u16| self.one(*one).health == Health::Up;

        let mut may_hold = former.to_vec();
        may_hold.extend(above.iter().filter(|one| state(one) == State::Draining));
        if state(&primary) == State::Filling {
            let accepting: Vec<u16> = below.iter().copied().filter(|one| self.takes(*one)).collect();
            if let Some(first_active) = accepting.iter().position(|one| state(one) == State::Active) {
                may_hold.push(accepting[first_active]);
                may_hold.extend(&accepting[..first_active]);
            }
        }
        let mut hops = vec![primary];
        hops.extend(may_hold.iter().filter(|one| up(one)));
        hops.extend(may_hold.iter().filter(|one| !up(one)));
        hops.extend(above);
        let mut seen = Vec::new();
        hops.retain(|one| {
            !seen.contains(one) && {
                seen.push(*one);
                true
            }
        });

        if hops.len() == 1 {
            let zone = |one: u16| self.one(one).zone.as_deref();
            let mut next = below.iter().chain(&full).copied().filter(|one| self.takes(*one));
            let nearest = next.clone().next();
            let elsewhere = next.find(|one| zone(*one) != zone(primary));
            hops.extend(if self.table.spread_zones { elsewhere.or(nearest) } else { nearest });
        }
        hops.truncate(self.table.max_hops.into());
        hops
    }
}

struct Scored {
    at: u16,
    score: u64,
    weight: f64,
    weighted: f64,
}

pub(super) fn weight(backend: &Backend) -> f64 {
    match backend.state {
        State::Filling => backend.weight * f64::from(backend.fill) / 100.0,
        _ => backend.weight,
    }
}

/// Most rows of each backend: so many times its share of the weight of all that may own rows, rounded up.
pub(super) fn rooms(backends: &[Backend], rows: u32, max_share: f64) -> Vec<usize> {
    let weights =
        backends.iter().zip(accepts(backends)).map(|(one, owns)| if owns { weight(one) } else { 0.0 });
    let weights: Vec<f64> = weights.collect();
    // In the order in which tables hold backends, so that the sum is the generator's to the last bit.
    let sum: f64 = weights.iter().sum();
    let room = |weight: &f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and saturating"
        )]
        let room = (f64::from(rows) * (weight / sum) * max_share).ceil() as usize;
        room
    };
    weights.iter().map(room).collect()
}

/// `−w / ln u` with `u = ((score >> 11) + ½) / 2⁵³`, kept below 1.
fn weighted(score: u64, weight: f64) -> f64 {
    let u = ((score >> 11) as f64 + 0.5) / 2f64.powi(53);
    -weight / u.min(1f64.next_down()).ln()
}

/// Who may own rows: the first of three rules by which anybody may.
pub(super) fn accepts(backends: &[Backend]) -> Vec<bool> {
    let serves = |one: &Backend| one.state == State::Active || one.state == State::Filling;
    let rules: [Vec<bool>; 3] = [
        backends.iter().map(|one| serves(one) && one.health == Health::Up).collect(),
        backends.iter().map(serves).collect(),
        backends.iter().map(|one| one.state != State::Inactive).collect(),
    ];
    rules.into_iter().find(|rule| rule.contains(&true)).unwrap_or_else(|| vec![false; backends.len()])
}
