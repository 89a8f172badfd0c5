//! Reachability: does a packet of the new table reach each host that may have its connections?
//!
//! A *holder* of a flow is a host, that is an address, which may have its connections. In the old table these are the
//! owner of the flow's row and the row's lineage; where the file does not record former owners (`Built::has_lineage`),
//! also the hops that are draining or down. If the old table looks flows up twice (`alt_hash_fields`), the holders of
//! the second row count too: they own the connections that are older than the change of fields.
//!
//! The new table reaches a holder if the packet's hop list has the holder's address. The packet carries the row's hops
//! of the primary's address family, then those of the second look-up. If the new table does not look up the holder's
//! row, the flow has another row, which has nothing to do with the first: then the result is a probability.

use common::backend::Backend;
use common::flow::HashFields;
use common::table::Table;
use std::collections::HashMap;
use std::net::IpAddr;

/// Why a connection ends, or what prevents that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The backend stays, and the packet does not carry it.
    Dropped,
    /// The backend leaves while it gets new connections.
    Cut,
    /// The flow has another row than before, in which the backend need not be a hop.
    Rehashed,
    /// The backend's address belongs to another id.
    Taken,
    /// The backend leaves; it got no new connections before. Safe if it holds none.
    Left,
    /// The backend has another address. Safe if that is the same host.
    Renumbered,
    /// The connection is older than the table in service. Safe if no such connections are left.
    Older,
    /// The operator states that the backend holds no connections.
    KnownGone,
}

impl Cause {
    /// Whether it breaks connections, and no accepted condition allows it.
    pub const fn is_risk(self) -> bool {
        matches!(self, Self::Dropped | Self::Cut | Self::Rehashed | Self::Taken)
    }
}

/// Rows in which connections of one holder may break, for one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Breaks {
    /// Rows in which that is possible.
    pub rows: u32,
    /// Rows in which it happens, on average. Less than `rows` where chance decides.
    pub expected: f64,
}

/// How the review reads histories.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    /// Ids of backends that hold no connections.
    pub(crate) gone: &'a dyn Fn(&str) -> bool,
    /// The old file does not record former owners: hops that are draining or down may have owned their rows.
    pub(crate) from_hops: bool,
    /// Connections older than the old table need the condition `settled`, and are no risk.
    pub(crate) older_settled: bool,
}

/// Holders of the rows of an old table, and the hop lists of the new one.
pub(crate) struct Reach<'a> {
    old: &'a Table,
    new: &'a Table,
    reading: Reading<'a>,
    /// By index in the old table.
    fates: Vec<Fate>,
    suspects: Vec<bool>,
    main: Lookup,
    /// The old table's second look-up, if it has one.
    alternative: Option<Lookup>,
    chances: Option<Chances>,
    mixed: bool,
}

/// What becomes of a backend of the old table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    KnownGone,
    Taken,
    Leaves(Cause),
    /// Index in the new table.
    Stays(u16),
    /// Index in the new table, where it has another address.
    Renumbered(u16),
}

/// Where the new table finds the row of a look-up of the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lookup {
    Main,
    Alternative,
    Lost,
}

impl<'a> Reach<'a> {
    /// Two versions of one table. Backends are the same by id.
    pub(crate) fn new(old: &'a Table, new: &'a Table, reading: Reading<'a>) -> Self {
        let by_address = by_address(new);
        let by_id: HashMap<&str, u16> = candidates(new).map(|(at, one)| (one.id.as_str(), at)).collect();
        let fate = |one: &Backend| {
            let stays = by_id.get(one.id.as_str()).copied();
            let there = by_address.get(&one.address).copied();
            match (stays, there) {
                _ if (reading.gone)(&one.id) => Fate::KnownGone,
                (Some(at), Some(there)) if at == there => Fate::Stays(at),
                (_, Some(_)) => Fate::Taken,
                (Some(at), None) => Fate::Renumbered(at),
                (None, None) => Fate::Leaves(if one.accepts() { Cause::Cut } else { Cause::Left }),
            }
        };
        Self::with(old, new, reading, old.backends.iter().map(fate).collect())
    }

    /// Two different tables, by address alone.
    pub(crate) fn of_hosts(old: &'a Table, new: &'a Table, reading: Reading<'a>) -> Self {
        let by_address = by_address(new);
        let fate = |one: &Backend| match by_address.get(&one.address) {
            _ if (reading.gone)(&one.id) => Fate::KnownGone,
            Some(at) => Fate::Stays(*at),
            None => Fate::Leaves(Cause::Cut),
        };
        Self::with(old, new, reading, old.backends.iter().map(fate).collect())
    }

    fn with(old: &'a Table, new: &'a Table, reading: Reading<'a>, fates: Vec<Fate>) -> Self {
        let lookup = |fields: HashFields| match () {
            () if old.hash_key != new.hash_key => Lookup::Lost,
            () if fields == new.hash_fields => Lookup::Main,
            () if fields == new.alt_hash_fields => Lookup::Alternative,
            () => Lookup::Lost,
        };
        let main = lookup(old.hash_fields);
        let alternative = (!old.alt_hash_fields.is_empty()).then(|| lookup(old.alt_hash_fields));
        let certain = main == Lookup::Main && alternative.is_none() && new.alt_hash_fields.is_empty();
        Self {
            old,
            new,
            reading,
            suspects: old.backends.iter().map(Backend::is_passed_over).collect(),
            fates,
            main,
            alternative,
            chances: (!certain).then(|| Chances::new(new)),
            mixed: is_mixed(new),
        }
    }

    /// Does the new table find the rows that the old one chose first?
    pub(crate) fn finds_rows(&self) -> bool {
        self.main != Lookup::Lost
    }

    /// Calls `found` for each holder of a row that the packet does not reach: index in the old table, cause,
    /// probability. `row` counts rows of the larger table.
    pub(crate) fn row(&self, row: u32, mut found: impl FnMut(u16, Cause, f64)) {
        let old_row = row & (self.old.rows() - 1);
        let (hops, lineage) = (self.old.hops.get(old_row), self.old.lineage.get(old_row));
        let new_row = row & (self.new.rows() - 1);
        for (place, holder) in hops.iter().take(1).chain(lineage).enumerate() {
            self.holder(*holder, place > 0, new_row, &mut found);
        }
        if self.reading.from_hops {
            let unlisted = |hop: &&u16| {
                self.suspects.get(usize::from(**hop)).copied().unwrap_or(false) && !lineage.contains(hop)
            };
            hops.iter().skip(1).filter(unlisted).for_each(|hop| self.holder(*hop, true, new_row, &mut found));
        }
    }

    fn holder(&self, holder: u16, is_former: bool, new_row: u32, found: &mut impl FnMut(u16, Cause, f64)) {
        let Some(fate) = self.fates.get(usize::from(holder)).copied() else { return };
        let excused = is_former && self.reading.older_settled;
        let or_older = |cause| if excused { Cause::Older } else { cause };
        match fate {
            Fate::KnownGone => found(holder, Cause::KnownGone, 1.0),
            Fate::Taken => found(holder, or_older(Cause::Taken), 1.0),
            Fate::Leaves(cause) => found(holder, or_older(cause), 1.0),
            Fate::Stays(at) | Fate::Renumbered(at) => {
                let missed = self.missed(self.main, new_row, at);
                if missed > 0.0 {
                    let cause = if self.finds_rows() { Cause::Dropped } else { Cause::Rehashed };
                    return found(holder, or_older(cause), missed);
                }
                if matches!(fate, Fate::Renumbered(_)) {
                    return found(holder, Cause::Renumbered, 1.0);
                }
                let older = self.alternative.map_or(0.0, |lookup| self.missed(lookup, new_row, at));
                if older > 0.0 {
                    found(holder, Cause::Older, older);
                }
            }
        }
    }

    /// The probability that the packet of a flow with this row does not carry a backend of the new table.
    fn missed(&self, lookup: Lookup, row: u32, at: u16) -> f64 {
        let chances = || self.chances.as_ref().expect("invariant: computed unless one row decides");
        match lookup {
            Lookup::Main if self.sends(row, at) => 0.0,
            Lookup::Main if self.chances.is_none() => 1.0,
            Lookup::Main => 1.0 - chances().of_second(self.new, self.new.primary(row), at),
            Lookup::Alternative if self.new.hops.get(row).contains(&at) => {
                1.0 - chances().of_family(self.new, at)
            }
            Lookup::Alternative => 1.0 - chances().of_first(at),
            Lookup::Lost => chances().of_none(self.new, at),
        }
    }

    fn sends(&self, row: u32, at: u16) -> bool {
        if self.mixed {
            self.new.sent(row).any(|hop| hop == at)
        } else {
            self.new.hops.get(row).contains(&at)
        }
    }
}

/// How often a row that is drawn at random lists and sends each backend.
struct Chances {
    /// By index: rows that list it.
    listed: Vec<f64>,
    /// By index: rows that send to it.
    sent: Vec<f64>,
    /// Rows whose primary has an IPv4 and an IPv6 address.
    families: [f64; 2],
    has_second: bool,
}

impl Chances {
    fn new(table: &Table) -> Self {
        let mut counts = [vec![0_u32; table.backends.len()], vec![0; table.backends.len()]];
        let mut families = [0_u32; 2];
        let count = |counts: &mut Vec<u32>, hop: u16| {
            if let Some(count) = counts.get_mut(usize::from(hop)) {
                *count += 1;
            }
        };
        for row in 0..table.rows() {
            let [listed, sent] = &mut counts;
            table.hops.get(row).iter().for_each(|hop| count(listed, *hop));
            table.sent(row).for_each(|hop| count(sent, hop));
            if let Some(primary) = table.primary(row).and_then(|primary| table.backend(primary)) {
                families[usize::from(primary.address.is_ipv6())] += 1;
            }
        }
        let share = |rows: u32| f64::from(rows) / f64::from(table.rows());
        let [listed, sent] = counts.map(|counts| counts.into_iter().map(share).collect());
        Self { listed, sent, families: families.map(share), has_second: !table.alt_hash_fields.is_empty() }
    }

    fn of_first(&self, at: u16) -> f64 {
        self.sent.get(usize::from(at)).copied().unwrap_or(0.0)
    }

    fn of_list(&self, at: u16) -> f64 {
        if self.has_second { self.listed.get(usize::from(at)).copied().unwrap_or(0.0) } else { 0.0 }
    }

    /// The primary of a row has the address family of this backend.
    fn of_family(&self, table: &Table, at: u16) -> f64 {
        table.backend(at).map_or(0.0, |one| self.families[usize::from(one.address.is_ipv6())])
    }

    /// The second look-up adds this backend to a packet for `primary`.
    fn of_second(&self, table: &Table, primary: Option<u16>, at: u16) -> f64 {
        let both = primary.and_then(|primary| table.backend(primary)).zip(table.backend(at));
        if both.is_some_and(|(primary, one)| primary.carries(one)) { self.of_list(at) } else { 0.0 }
    }

    /// Neither look-up gives this backend.
    fn of_none(&self, table: &Table, at: u16) -> f64 {
        let first = self.of_first(at);
        let second = (self.of_family(table, at) - first).max(0.0) * self.of_list(at);
        (1.0 - first - second).max(0.0)
    }
}

/// Expected share of flows that do not reach one of their holders.
pub(crate) fn broken_share(reach: &Reach<'_>) -> f64 {
    let total = reach.old.rows().max(reach.new.rows());
    let mut broken = 0.0;
    for row in 0..total {
        let mut worst: f64 = 0.0;
        reach.row(row, |_, cause, chance| {
            if cause != Cause::KnownGone {
                worst = worst.max(chance);
            }
        });
        broken += worst;
    }
    broken / f64::from(total)
}

fn candidates(table: &Table) -> impl Iterator<Item = (u16, &Backend)> {
    (0u16..).zip(&table.backends).filter(|(_, one)| one.is_candidate())
}

fn by_address(table: &Table) -> HashMap<IpAddr, u16> {
    candidates(table).map(|(at, one)| (one.address, at)).collect()
}

fn is_mixed(table: &Table) -> bool {
    table.backends.windows(2).any(|pair| matches!(pair, [a, b] if !a.carries(b)))
}
