//! What a director counts. Each worker has counters of its own, on a cache line of its own, behind a lock that it takes
//! once a batch and that nobody else wants but for the moment in which somebody asks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam::utils::CachePadded;
use serde::Serialize;

use super::fast::FastReport;
use super::plan::Plan;
use crate::drivers::Moved;
use crate::pipeline::{Answer, Counters, DropReason, PassReason};

/// What happens around the pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Around {
    pub(crate) moved: Moved,
    /// Frames that the kernel dropped because the worker was late.
    pub(crate) lost: u64,
    /// Frames that were merged on their way and could not be forwarded so.
    pub(crate) merged: u64,
    /// Answers over the limit.
    pub(crate) suppressed: u64,
    /// Packets for this host that it did not take.
    pub(crate) undelivered: u64,
}

impl Around {
    fn add(&mut self, other: Self) {
        self.moved.add(other.moved);
        self.lost += other.lost;
        self.merged += other.merged;
        self.suppressed += other.suppressed;
        self.undelivered += other.undelivered;
    }

    /// Frames that were lost outside of the pipeline, by where. An answer that was suppressed is not among them: the
    /// frame that it is about counts as dropped.
    fn losses(&self) -> [(&'static str, u64); 6] {
        [
            ("lost", self.lost),
            ("congested", self.moved.congested),
            ("refused", self.moved.refused),
            ("damaged", self.moved.damaged),
            ("merged", self.merged),
            ("undelivered", self.undelivered),
        ]
    }
}

/// A worker's counters, of one table.
#[derive(Debug)]
pub(crate) struct Tally {
    plan: Arc<Plan>,
    pub(crate) counters: Counters,
    pub(crate) around: Around,
}

impl Tally {
    fn new(plan: Arc<Plan>) -> Self {
        Self::of(Arc::clone(&plan), Counters::new(&plan.pipeline))
    }

    /// Counters by the tables of `plan`.
    pub(crate) fn of(plan: Arc<Plan>, counters: Counters) -> Self {
        Self { counters, around: Around::default(), plan }
    }
}

/// The counters of all workers, and what was counted by tables that are gone.
#[derive(Debug)]
pub(crate) struct Board {
    workers: Vec<CachePadded<Mutex<Tally>>>,
    former: Mutex<Totals>,
}

impl Board {
    pub(crate) fn new(workers: usize, plan: &Arc<Plan>) -> Self {
        let tally = || CachePadded::new(Mutex::new(Tally::new(Arc::clone(plan))));
        Self { workers: (0..workers).map(|_| tally()).collect(), former: Mutex::default() }
    }

    /// A worker's counters, for the frames of a batch that is forwarded by `plan`.
    pub(crate) fn tally(&self, worker: usize, plan: &Arc<Plan>) -> Option<MutexGuard<'_, Tally>> {
        let mut tally = lock(self.workers.get(worker)?);
        if tally.plan.serial != plan.serial {
            let old = std::mem::replace(&mut *tally, Tally::new(Arc::clone(plan)));
            lock(&self.former).add(&old);
        }
        Some(tally)
    }

    /// All that was counted until now.
    pub(crate) fn totals(&self) -> Totals {
        // All at once, else a table that is replaced meanwhile would be missed here and there. In the order in
        // which a worker takes them: its own, then the former ones.
        let workers: Vec<_> = self.workers.iter().map(|worker| lock(worker)).collect();
        let mut totals = lock(&self.former).clone();
        workers.iter().for_each(|worker| totals.add(worker));
        totals
    }
}

/// A panic of a worker stops the director; its counters are still worth reading.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sums, by name, so that they outlive the tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) counters: Counters,
    pub(crate) around: Around,
    /// By table and backend.
    backends: BTreeMap<(String, String), u64>,
}

impl Totals {
    /// Adds counters by name.
    pub(crate) fn add(&mut self, tally: &Tally) {
        self.counters.merge(&tally.counters);
        self.around.add(tally.around);
        for (at, table) in tally.plan.pipeline.forwarding().tables().iter().enumerate() {
            for (backend, frames) in table.backends.iter().zip(tally.counters.backends(at)) {
                if *frames > 0 {
                    let key = (table.name.clone(), backend.id.clone());
                    *self.backends.entry(key).or_default() += frames;
                }
            }
        }
    }

    /// Adds sums.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.counters.merge(&other.counters);
        self.around.add(other.around);
        for (key, frames) in &other.backends {
            *self.backends.entry(key.clone()).or_default() += frames;
        }
    }

    fn backend(&self, table: &str, id: &str) -> u64 {
        self.backends.get(&(table.to_owned(), id.to_owned())).copied().unwrap_or(0)
    }
}

/// What `status`, SIGUSR1 and the end of a run show.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    program: &'static str,
    interface: String,
    mode: &'static str,
    workers: usize,
    table: TableName,
    /// Tables taken over since the start.
    swaps: u64,
    /// Tables and configurations refused since the start.
    refused: u64,
    /// Why the last one was.
    last_refusal: Option<String>,
    mtu: u16,
    frames: u64,
    encapsulated: u64,
    local: u64,
    answered: BTreeMap<&'static str, u64>,
    passed: BTreeMap<&'static str, u64>,
    dropped: BTreeMap<&'static str, u64>,
    /// The sum of `dropped` and of what was lost in `driver`: [`Around::losses`].
    dropped_total: u64,
    driver: BTreeMap<&'static str, u64>,
    /// Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    fast_path: Option<FastReport>,
    tables: Vec<TableReport>,
    /// Backends of tables that are gone.
    former: Vec<FormerReport>,
}

#[derive(Debug, Serialize)]
struct TableName {
    digest: String,
    generation: u64,
}

#[derive(Debug, Serialize)]
struct TableReport {
    name: String,
    frames: u64,
    backends: Vec<BackendReport>,
}

#[derive(Debug, Serialize)]
struct BackendReport {
    id: String,
    address: String,
    frames: u64,
    /// Why it gets no packets now.
    unreachable: Option<String>,
}

#[derive(Debug, Serialize)]
struct FormerReport {
    table: String,
    id: String,
    frames: u64,
}

/// What a report says beside the counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) swaps: u64,
    pub(crate) refused: u64,
    pub(crate) last_refusal: Option<String>,
}

/// What does not change while a director runs.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) interface: String,
    pub(crate) mode: &'static str,
    pub(crate) workers: usize,
}

impl Report {
    pub(crate) fn new(
        identity: &Identity,
        history: History,
        plan: &Plan,
        totals: &Totals,
        fast_path: Option<FastReport>,
    ) -> Self {
        let (Around { moved, suppressed, .. }, losses) = (totals.around, totals.around.losses());
        let dropped_by_driver: u64 = losses.iter().map(|(_, frames)| frames).sum();
        let drop_reasons = DropReason::ALL.iter();
        let dropped: BTreeMap<_, _> =
            drop_reasons.map(|reason| (reason.name(), totals.counters.dropped(*reason))).collect();
        let counters = &totals.counters;
        let forwarding = plan.pipeline.forwarding();
        Self {
            program: "director",
            interface: identity.interface.clone(),
            mode: identity.mode,
            workers: identity.workers,
            table: TableName { digest: forwarding.digest().to_string(), generation: forwarding.generation() },
            swaps: history.swaps,
            refused: history.refused,
            last_refusal: history.last_refusal,
            mtu: plan.pipeline.underlay().mtu,
            frames: counters.frames,
            encapsulated: counters.encapsulated,
            local: counters.local,
            answered: Answer::ALL.iter().map(|one| (one.name(), counters.answered(*one))).collect(),
            passed: PassReason::ALL.iter().map(|one| (one.name(), counters.passed(*one))).collect(),
            dropped_total: dropped.values().sum::<u64>() + dropped_by_driver,
            dropped,
            driver: [
                ("received", moved.received),
                ("sent", moved.sent),
                ("foreign", moved.foreign),
                ("suppressed", suppressed),
            ]
            .into_iter()
            .chain(losses)
            .collect(),
            fast_path,
            tables: tables(plan, totals),
            former: former(plan, totals),
        }
    }
}

fn tables(plan: &Plan, totals: &Totals) -> Vec<TableReport> {
    let unreachable =
        |address| plan.unresolved.iter().find(|(other, _)| *other == address).map(|(_, why)| why.to_string());
    let table = |table: &common::table::Table| {
        let backends: Vec<_> = table
            .backends
            .iter()
            .map(|backend| BackendReport {
                id: backend.id.clone(),
                address: backend.address.to_string(),
                frames: totals.backend(&table.name, &backend.id),
                unreachable: unreachable(backend.address),
            })
            .collect();
        let frames = backends.iter().map(|backend| backend.frames).sum();
        TableReport { name: table.name.clone(), frames, backends }
    };
    plan.pipeline.forwarding().tables().iter().map(table).collect()
}

fn former(plan: &Plan, totals: &Totals) -> Vec<FormerReport> {
    let forwarding = plan.pipeline.forwarding();
    let is_there = |table: &str, id: &str| {
        forwarding.table(table).is_some_and(|table| table.backends.iter().any(|backend| backend.id == id))
    };
    let gone = totals.backends.iter().filter(|((table, id), _)| !is_there(table, id));
    let report = |((table, id), frames): (&(String, String), &u64)| FormerReport {
        table: table.clone(),
        id: id.clone(),
        frames: *frames,
    };
    gone.map(report).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, mode, workers, table, swaps, refused, mtu, .. } = self;
        let digest: String = table.digest.chars().take(12).collect();
        let (workers, swaps) = (counted(*workers, "worker"), counted(*swaps, "swap"));
        writeln!(f, "director   {interface}, {mode}, {workers}, mtu {mtu}")?;
        writeln!(f, "table      {digest}, generation {}; {swaps}, {refused} refused", table.generation)?;
        if let Some(why) = &self.last_refusal {
            writeln!(f, "           last refusal: {why}")?;
        }
        writeln!(f, "frames     {}", self.frames)?;
        writeln!(f, "  encapsulated {}, local {}", self.encapsulated, self.local)?;
        write_counts(f, "answered", &self.answered, None)?;
        write_counts(f, "passed", &self.passed, None)?;
        let by_driver = self.dropped_total - self.dropped.values().sum::<u64>();
        write_counts(f, "dropped", &self.dropped, Some(("by driver", by_driver)))?;
        write_counts(f, "driver", &self.driver, None)?;
        if let Some(fast_path) = &self.fast_path {
            writeln!(f, "{fast_path}")?;
        }
        for table in &self.tables {
            writeln!(f, "table {}    {}", table.name, table.frames)?;
            for BackendReport { id, address, frames, unreachable } in &table.backends {
                let why = unreachable.as_ref().map(|why| format!("   {why}")).unwrap_or_default();
                writeln!(f, "  {id:<20} {address:<20} {frames:>14}{why}")?;
            }
        }
        for FormerReport { table, id, frames } in &self.former {
            writeln!(f, "  {id:<20} {:<20} {frames:>14}   no longer in table {table}", "")?;
        }
        Ok(())
    }
}

/// A count and what is counted: `1 swap`, `2 swaps`.
pub(crate) fn counted<N: fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    format!("{count} {noun}{}", if count == N::from(1) { "" } else { "s" })
}

/// One line with the total; what is zero is left out. `other` is a count beside those.
fn write_counts(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    counts: &BTreeMap<&'static str, u64>,
    other: Option<(&str, u64)>,
) -> fmt::Result {
    write!(f, "  {what}")?;
    let all = || counts.iter().map(|(name, count)| (*name, *count)).chain(other);
    for (name, count) in all().filter(|(_, count)| *count > 0) {
        write!(f, " {name} {count},")?;
    }
    writeln!(f, " total {}", all().map(|(_, count)| count).sum::<u64>())
}
