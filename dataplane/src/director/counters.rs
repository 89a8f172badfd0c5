//! The counters of a director, and the report that is made of them. Each worker has its own counters on its
//! own cache line, behind a lock that it takes once per batch. Only reports contend for that lock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam::utils::CachePadded;
use serde::Serialize;

use super::forwarding::ForwardingState;
use super::kernel_path::KernelPathReport;
use crate::drivers::FrameCounts;
use crate::pipeline::{Answer, Counters, DropReason, PassReason};

/// Counters outside of the pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DriverCounters {
    pub(crate) frames: FrameCounts,
    /// Frames that the kernel dropped because the worker was too slow.
    pub(crate) lost: u64,
    /// Frames that were merged from several and could not be forwarded in that form.
    pub(crate) merged: u64,
    /// Answers that were not sent because of the rate limit.
    pub(crate) suppressed: u64,
    /// Packets for this host that its own stack did not accept.
    pub(crate) undelivered: u64,
}

impl DriverCounters {
    fn add(&mut self, other: Self) {
        self.frames.add(other.frames);
        self.lost += other.lost;
        self.merged += other.merged;
        self.suppressed += other.suppressed;
        self.undelivered += other.undelivered;
    }

    /// Frames that were lost outside of the pipeline, by cause. Suppressed answers are not included: their
    /// frames count as dropped.
    fn losses(&self) -> [(&'static str, u64); 6] {
        [
            ("lost", self.lost),
            ("congested", self.frames.congested),
            ("refused", self.frames.refused),
            ("damaged", self.frames.damaged),
            ("merged", self.merged),
            ("undelivered", self.undelivered),
        ]
    }
}

/// A worker's counters for a forwarding state.
#[derive(Debug)]
pub(crate) struct WorkerCounters {
    state: Arc<ForwardingState>,
    pub(crate) verdicts: Counters,
    pub(crate) driver: DriverCounters,
}

impl WorkerCounters {
    fn new(state: Arc<ForwardingState>) -> Self {
        Self::of(Arc::clone(&state), Counters::new(&state.pipeline))
    }

    /// Given counters, for the tables of `state`.
    pub(crate) fn of(state: Arc<ForwardingState>, counters: Counters) -> Self {
        Self { verdicts: counters, driver: DriverCounters::default(), state }
    }
}

/// The counters of all workers, and the totals of earlier tables.
#[derive(Debug)]
pub(crate) struct Aggregate {
    workers: Vec<CachePadded<Mutex<WorkerCounters>>>,
    former: Mutex<Totals>,
}

impl Aggregate {
    pub(crate) fn new(workers: usize, state: &Arc<ForwardingState>) -> Self {
        let counters = || CachePadded::new(Mutex::new(WorkerCounters::new(Arc::clone(state))));
        Self { workers: (0..workers).map(|_| counters()).collect(), former: Mutex::default() }
    }

    /// Locks a worker's counters, for a batch that is forwarded by `state`.
    pub(crate) fn counters(
        &self,
        worker: usize,
        state: &Arc<ForwardingState>,
    ) -> Option<MutexGuard<'_, WorkerCounters>> {
        let mut counters = lock(self.workers.get(worker)?);
        if counters.state.serial != state.serial {
            let old = std::mem::replace(&mut *counters, WorkerCounters::new(Arc::clone(state)));
            lock(&self.former).add(&old);
        }
        Some(counters)
    }

    /// All counters until now.
    pub(crate) fn totals(&self) -> Totals {
        // Locks all at once: otherwise a table that is replaced meanwhile could be counted twice or not at
        // all. Same lock order as in a worker: its own counters, then the former totals.
        let workers: Vec<_> = self.workers.iter().map(|worker| lock(worker)).collect();
        let mut totals = lock(&self.former).clone();
        workers.iter().for_each(|worker| totals.add(worker));
        totals
    }
}

/// A worker's panic stops the director; its counters are still reported.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sums of counters by name, so that they outlive the tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) counters: Counters,
    pub(crate) driver: DriverCounters,
    /// Encapsulated frames by table name and backend id.
    backends: BTreeMap<(String, String), u64>,
}

impl Totals {
    /// Adds a worker's counters, by name.
    pub(crate) fn add(&mut self, counters: &WorkerCounters) {
        self.counters.merge(&counters.verdicts);
        self.driver.add(counters.driver);
        for (index, table) in counters.state.pipeline.forwarding().tables().iter().enumerate() {
            for (backend, frames) in table.backends.iter().zip(counters.verdicts.backends(index)) {
                if *frames > 0 {
                    let key = (table.name.clone(), backend.id.clone());
                    *self.backends.entry(key).or_default() += frames;
                }
            }
        }
    }

    /// Adds other totals.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.counters.merge(&other.counters);
        self.driver.add(other.driver);
        for (key, frames) in &other.backends {
            *self.backends.entry(key.clone()).or_default() += frames;
        }
    }

    fn backend(&self, table: &str, id: &str) -> u64 {
        self.backends.get(&(table.to_owned(), id.to_owned())).copied().unwrap_or(0)
    }
}

/// The report of `status`, SIGUSR1 and the end of a run. The field names are keys of the JSON report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    program: &'static str,
    interface: String,
    mode: &'static str,
    workers: usize,
    table: TableName,
    /// Number of table changes since the start.
    swaps: u64,
    /// Number of tables and configurations refused since the start.
    refused: u64,
    /// The reason of the last refusal.
    last_refusal: Option<String>,
    mtu: u16,
    frames: u64,
    encapsulated: u64,
    local: u64,
    answered: BTreeMap<&'static str, u64>,
    passed: BTreeMap<&'static str, u64>,
    dropped: BTreeMap<&'static str, u64>,
    /// The sum of `dropped` and of the frames lost in `driver`: [`DriverCounters::losses`].
    dropped_total: u64,
    driver: BTreeMap<&'static str, u64>,
    /// The kernel program's counters; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    fast_path: Option<KernelPathReport>,
    tables: Vec<TableReport>,
    /// Backends of earlier tables that the current tables lack.
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
    /// Why the backend gets no packets now.
    unreachable: Option<String>,
}

#[derive(Debug, Serialize)]
struct FormerReport {
    table: String,
    id: String,
    frames: u64,
}

/// The part of a report about table changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) swaps: u64,
    pub(crate) refused: u64,
    pub(crate) last_refusal: Option<String>,
}

/// The part of a report that does not change while a director runs.
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
        state: &ForwardingState,
        totals: &Totals,
        fast_path: Option<KernelPathReport>,
    ) -> Self {
        let (DriverCounters { frames, suppressed, .. }, losses) = (totals.driver, totals.driver.losses());
        let dropped_by_driver: u64 = losses.iter().map(|(_, frames)| frames).sum();
        let drop_reasons = DropReason::ALL.iter();
        let dropped: BTreeMap<_, _> =
            drop_reasons.map(|reason| (reason.name(), totals.counters.dropped(*reason))).collect();
        let counters = &totals.counters;
        let forwarding = state.pipeline.forwarding();
        Self {
            program: "director",
            interface: identity.interface.clone(),
            mode: identity.mode,
            workers: identity.workers,
            table: TableName { digest: forwarding.digest().to_string(), generation: forwarding.generation() },
            swaps: history.swaps,
            refused: history.refused,
            last_refusal: history.last_refusal,
            mtu: state.pipeline.underlay().mtu,
            frames: counters.frames,
            encapsulated: counters.encapsulated,
            local: counters.local,
            answered: Answer::ALL.iter().map(|answer| (answer.name(), counters.answered(*answer))).collect(),
            passed: PassReason::ALL.iter().map(|reason| (reason.name(), counters.passed(*reason))).collect(),
            dropped_total: dropped.values().sum::<u64>() + dropped_by_driver,
            dropped,
            driver: [
                ("received", frames.received),
                ("sent", frames.sent),
                ("foreign", frames.foreign),
                ("suppressed", suppressed),
            ]
            .into_iter()
            .chain(losses)
            .collect(),
            fast_path,
            tables: tables(state, totals),
            former: former(state, totals),
        }
    }
}

fn tables(state: &ForwardingState, totals: &Totals) -> Vec<TableReport> {
    let unreachable = |address| {
        state.unresolved.iter().find(|(other, _)| *other == address).map(|(_, why)| why.to_string())
    };
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
    state.pipeline.forwarding().tables().iter().map(table).collect()
}

fn former(state: &ForwardingState, totals: &Totals) -> Vec<FormerReport> {
    let forwarding = state.pipeline.forwarding();
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

/// A count with its noun: `1 swap`, `2 swaps`.
pub(crate) fn counted<N: fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    format!("{count} {noun}{}", if count == N::from(1) { "" } else { "s" })
}

/// Writes a line with the total; omits counters that are zero. `other` is an additional counter.
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
