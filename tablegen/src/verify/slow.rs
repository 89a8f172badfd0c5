//! Every row of a table, computed a second time in the most obvious way: score all, sort the best, then read the hop-list
//! rule from top to bottom. Nothing here is shared with the generator.
//!
//! Every backend is scored for every row, one by one: `O(rows × backends)`, and what it costs is a multiplication or two
//! each. Only the best few are sorted, and more of them where the rule asks for more.
//!
//! The logarithm is the platform's and not the one that tables are made with. The two differ by a unit in the last
//! place at most, which could only show where two weighted scores are as close as that.

use super::hash::{finalise, hash_bytes, sip};
use crate::progress::Progress;
use common::backend::{Backend, Health, State};
use common::table::{Built, Lists, Ranking, Table};
use rayon::prelude::*;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    /// How its file was built.
    pub built: Built,
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
    accepts: Vec<bool>,
    /// All backends that are not inactive.
    peers: Vec<Peers>,
    before: Option<Before<'a>>,
    /// By position in the table before: the position here, of those that are candidates.
    here: Vec<Option<u16>>,
    rows: u32,
}

/// Backends of one weight: the higher raw score is the higher weighted score. GLB's ranking knows no weights.
struct Peers {
    weight: f64,
    at: Vec<u16>,
    /// Of each what is hashed with a row's key: `hash_bytes` of the id, or nothing with GLB's ranking.
    seeds: Vec<u64>,
}

/// The first of a row's ranking.
struct Ranked {
    first: Vec<u16>,
    /// Are they all?
    whole: bool,
}

impl Ranked {
    /// How many are ranked at first, and how many times as many next, until they are enough.
    const FEW: usize = 8;

    fn lengths() -> impl Iterator<Item = usize> {
        std::iter::successors(Some(Self::FEW), |few| few.checked_mul(Self::FEW))
    }
}

impl<'a> Work<'a> {
    fn new(table: &'a Table, before: Option<Before<'a>>, rows: u32) -> Self {
        // One of the two look-ups finds the old row.
        let same_flows = |old: &Table| {
            let fields = [table.hash_fields, table.alt_hash_fields];
            old.hash_key == table.hash_key && fields.contains(&old.hash_fields)
        };
        let before = before.filter(|before| same_flows(before.table));
        let candidates = (0u16..).zip(&table.backends).filter(|(_, one)| one.state != State::Inactive);
        let by_id: HashMap<&str, u16> = candidates.map(|(at, one)| (one.id.as_str(), at)).collect();
        let old = before.map(|before| before.table.backends.as_slice()).unwrap_or_default();
        Self {
            table,
            accepts: accepts(&table.backends),
            peers: Peers::of(table),
            before,
            here: old.iter().map(|one| by_id.get(one.id.as_str()).copied()).collect(),
            rows,
        }
    }

    /// `owner` is the row's where shares are bounded.
    fn row(&self, row: u32, owner: Option<u16>) -> Row {
        let former = self.former(row);
        let hops = |length| self.hops(&self.ranked(row, length), owner, &former);
        let hops = Ranked::lengths().find_map(hops).unwrap_or_default();
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

    /// The first so many of all backends that are not inactive, in order of rank.
    fn ranked(&self, row: u32, count: usize) -> Ranked {
        let mut all: Vec<Scored> = match self.table.ranking {
            Ranking::Hrw => {
                let key = self.key(row);
                self.first_by(count, |seed, _| finalise(key ^ seed))
            }
            Ranking::Glb => {
                let row_seed = sip(&self.table.seed.0, &row.to_be_bytes());
                self.first_by(count, |_, at| self.digest(row_seed, at))
            }
        };
        if all.len() > count {
            all.select_nth_unstable_by(count, |a, b| self.order(a, b));
            all.truncate(count);
        }
        all.sort_unstable_by(|a, b| self.order(a, b));
        all.chunk_by_mut(|a, b| a.weighted.total_cmp(&b.weighted).is_eq())
            .filter(|tied| tied.len() > 1)
            .for_each(|tied| self.order_tied(tied));
        let whole = all.len() == self.peers.iter().map(|peers| peers.at.len()).sum::<usize>();
        Ranked { first: all.into_iter().map(|one| one.at).collect(), whole }
    }

    /// The first so many of each weight.
    fn first_by(&self, count: usize, score: impl Fn(u64, u16) -> u64) -> Vec<Scored> {
        let mut first = Vec::new();
        let mut all = Vec::new();
        for peers in &self.peers {
            peers.first(count, &score, |at| &self.one(at).id, &mut first);
            let weight = peers.weight;
            let scored = |(score, at)| Scored { at, score, weight, weighted: weighted(score, weight) };
            all.extend(first.drain(..).map(scored));
        }
        all
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

    /// GLB's score: the lowest digest is the best, octet by octet.
    fn digest(&self, row_seed: [u8; 8], at: u16) -> u64 {
        let mut message = [0; 24];
        message[..8].copy_from_slice(&row_seed);
        let length = match self.one(at).address {
            IpAddr::V4(address) => {
                message[8..12].copy_from_slice(&address.octets());
                12
            }
            IpAddr::V6(address) => {
                message[8..].copy_from_slice(&address.octets());
                24
            }
        };
        !u64::from_be_bytes(sip(&self.table.seed.0, &message[..length]))
    }

    /// Owners where none has more rows than so many times its share. In rounds: every row without an owner asks the next
    /// of its ranking, and of all that asked it so far a backend keeps those rows that it scores highest, as many as it
    /// has room for. The others ask again.
    fn bounded_owners(&self, max_share: f64) -> Vec<Option<u16>> {
        let room = rooms(&self.table.backends, self.rows, max_share);
        let mut asked = vec![0; self.rows as usize];
        let mut choices = vec![Vec::new(); self.rows as usize];
        let mut kept = vec![Vec::<(u64, u32)>::new(); room.len()];
        let mut asking: Vec<u32> = (0..self.rows).collect();
        while !asking.is_empty() {
            let at_end = |row: &&u32| asked[**row as usize] == choices[**row as usize].len();
            let more = asking.par_iter().filter(at_end);
            let more: Vec<_> = more.map(|row| (*row, self.choices(*row, asked[*row as usize] + 1))).collect();
            more.into_iter().for_each(|(row, more)| choices[row as usize] = more);
            let mut crowded = BTreeSet::new();
            for row in asking.drain(..) {
                let Some(at) = choices[row as usize].get(asked[row as usize]).copied() else { continue };
                asked[row as usize] += 1;
                kept[usize::from(at)].push((self.score(row, at), row));
                crowded.insert(usize::from(at));
            }
            for at in crowded {
                kept[at].sort_unstable_by_key(|(score, row)| (Reverse(*score), *row));
                let last = room[at].min(kept[at].len());
                asking.extend(kept[at].drain(last..).map(|(_, row)| row));
            }
        }
        let mut owners = vec![None; self.rows as usize];
        for (at, rows) in (0u16..).zip(kept) {
            rows.into_iter().for_each(|(_, row)| owners[row as usize] = Some(at));
        }
        owners
    }

    /// Those that may own a row, in order of rank: so many at least, if there are.
    fn choices(&self, row: u32, least: usize) -> Vec<u16> {
        let ranked = Ranked::lengths().skip_while(|length| *length < least).find_map(|length| {
            let Ranked { mut first, whole } = self.ranked(row, length);
            first.retain(|one| self.takes(*one));
            (whole || first.len() >= least).then_some(first)
        });
        ranked.unwrap_or_default()
    }

    /// The hash that ranks a row.
    fn key(&self, row: u32) -> u64 {
        let mut key = self.table.seed.0.to_vec();
        key.extend(row.to_le_bytes());
        hash_bytes(&key)
    }

    /// What a backend scores for a row, whatever its weight.
    fn score(&self, row: u32, at: u16) -> u64 {
        finalise(self.key(row) ^ hash_bytes(self.one(at).id.as_bytes()))
    }

    /// Owners of the row in earlier tables, newest first, each once.
    fn former(&self, row: u32) -> Vec<u16> {
        let Some(Before { table, built, settled }) = self.before else { return Vec::new() };
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
        if !settled && matches!(built, Built::First | Built::Unknown) {
            // It cannot know who owned the row before: those of its hops that are not in service there may have.
            let idle = |at: &u16| {
                let one = &table.backends[usize::from(*at)];
                one.state == State::Draining || one.health == Health::Down
            };
            for place in 1..usize::from(table.max_hops) {
                let hops = old_rows.iter().filter_map(|old| table.hops.get(*old).get(place));
                for hop in hops.copied().filter(idle) {
                    if let Some(here) = self.here[usize::from(hop)] {
                        former.push(here);
                    }
                }
            }
            let mut seen = BTreeSet::new();
            former.retain(|one| seen.insert(*one));
        }
        former
    }

    /// The hop-list rule; nothing where it asks for more than the first of the ranking.
    fn hops(&self, Ranked { first, whole }: &Ranked, owner: Option<u16>, former: &[u16]) -> Option<Vec<u16>> {
        let owns = |one: &u16| owner.map_or_else(|| self.takes(*one), |owner| owner == *one);
        let Some(at) = first.iter().position(owns) else { return whole.then(Vec::new) };
        let (primary, below) = (first[at], &first[at + 1..]);
        let (full, above): (Vec<u16>, Vec<u16>) = first[..at].iter().partition(|one| self.takes(**one));
        let accepting: Vec<u16> = below.iter().copied().filter(|one| self.takes(*one)).collect();
        let without_primary = self.without_filling(primary, &accepting, *whole)?;

        let places = usize::from(self.table.max_hops) - 1;
        let reached = |one: &u16| self.one(*one).address.is_ipv4() == self.one(primary).address.is_ipv4();
        let mut selected: Vec<u16> = Vec::new();
        for one in former.iter().chain(&without_primary).chain(&above) {
            if *one != primary && !selected.contains(one) {
                selected.push(*one);
            }
        }
        let (mut hops, mut unreached): (Vec<u16>, Vec<u16>) = selected.into_iter().partition(reached);
        hops.truncate(places);
        unreached.truncate(places);
        // Former owners, then those that were passed over, then those that serve without the filling primary.
        let listed = |one: &u16| {
            let kind = [former, above.as_slice(), &without_primary].iter().position(|all| all.contains(one));
            (self.one(*one).health == Health::Down, kind)
        };
        hops.sort_by_key(listed);
        unreached.sort_by_key(listed);
        if hops.is_empty() {
            let heir = self.heir(primary, &accepting, &full, *whole, &reached)?;
            hops.extend(heir.filter(|heir| reached(heir) || unreached.is_empty()));
        }
        let mut list = vec![primary];
        list.extend(hops);
        list.extend(unreached);
        list.truncate(places + 1);
        Some(list)
    }

    /// Those that own the row, or may have owned it, without a primary that is filling: the first active one that accepts,
    /// and then those before it. Nothing where more of the ranking is needed.
    fn without_filling(&self, primary: u16, accepting: &[u16], whole: bool) -> Option<Vec<u16>> {
        if self.one(primary).state != State::Filling {
            return Some(Vec::new());
        }
        let active = accepting.iter().position(|one| self.one(*one).state == State::Active);
        match active {
            Some(active) => Some([&accepting[active..=active], &accepting[..active]].concat()),
            None => whole.then(Vec::new),
        }
    }

    /// The next that accepts and is reached, of another zone if that is wanted and there is one; if none is reached, the
    /// next that accepts. Nothing where more of the ranking is needed.
    fn heir(
        &self,
        primary: u16,
        accepting: &[u16],
        full: &[u16],
        whole: bool,
        reached: &dyn Fn(&u16) -> bool,
    ) -> Option<Option<u16>> {
        let zone = |one: &u16| self.one(*one).zone.as_deref();
        let wanted = |one: &&u16| reached(one) && (!self.table.spread_zones || zone(one) != zone(&primary));
        if let Some(best) = accepting.iter().find(wanted) {
            return Some(Some(*best));
        }
        let all = || accepting.iter().chain(full);
        let heir = all().find(wanted).or_else(|| all().find(|one| reached(one))).or_else(|| all().next());
        whole.then(|| heir.copied())
    }
}

impl Peers {
    /// All that are not inactive, by weight.
    fn of(table: &Table) -> Vec<Self> {
        let mut by_weight = BTreeMap::<u64, Self>::new();
        let candidates = (0u16..).zip(&table.backends).filter(|(_, one)| one.state != State::Inactive);
        for (at, one) in candidates {
            let weight = if table.ranking == Ranking::Hrw { weight(one) } else { 1.0 };
            let new = || Self { weight, at: Vec::new(), seeds: Vec::new() };
            let peers = by_weight.entry(weight.to_bits()).or_insert_with(new);
            peers.at.push(at);
            peers.seeds.push(hash_bytes(one.id.as_bytes()));
        }
        by_weight.into_values().collect()
    }

    /// Replaces `first` with the so many that score highest, in any order; of equal scores those of the greater id.
    fn first<'t>(
        &self,
        count: usize,
        score: impl Fn(u64, u16) -> u64,
        id: impl Fn(u16) -> &'t String,
        first: &mut Vec<(u64, u16)>,
    ) {
        let order = |a: &(u64, u16), b: &(u64, u16)| b.0.cmp(&a.0).then_with(|| id(b.1).cmp(id(a.1)));
        first.clear();
        let mut least = 0;
        for (seed, at) in self.seeds.iter().zip(&self.at) {
            let score = score(*seed, *at);
            if score < least {
                continue;
            }
            first.push((score, *at));
            if first.len() >= 2 * count {
                let (_, last, _) = first.select_nth_unstable_by(count - 1, order);
                least = last.0;
                first.truncate(count);
            }
        }
        if first.len() > count {
            first.select_nth_unstable_by(count - 1, order);
            first.truncate(count);
        }
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
