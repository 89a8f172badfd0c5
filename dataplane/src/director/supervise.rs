//! The control loop: takes over tables, follows routes, answers signals. It is the only one to publish plans.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::flow::HashFields;
use common::table::ForwardingTable;
use crossbeam::channel::{Receiver, RecvTimeoutError};

use super::events::Event;
use super::narrow;
use super::plan::{self, Plan, PlanError};
use super::table_file::{Poke, Poker};
use super::tally::{History, Identity, Report, counted};
use super::worker::Shared;
use super::{Options, log, settings, show};
use crate::control::config::{ASSUMED, Config, ConfigError};
use crate::control::socket::Format;
use crate::control::table::{LoadError, LoadedTable};
use crate::host::route::Resolver;
use crate::host::sys::signal::Signal;

/// What the control loop knows.
#[derive(Debug)]
pub(crate) struct Supervisor {
    identity: Identity,
    options: Options,
    config_path: PathBuf,
    history: Mutex<History>,
    /// Locked by the loop for as long as it runs.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    config: Config,
    resolver: Resolver,
    refreshed: Instant,
}

/// What came of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// It is published, or refused for good.
    Done,
    /// The kernel could not be queried: the same table may be taken later.
    Again,
}

impl Taken {
    fn is_retried(self) -> bool {
        self == Self::Again
    }
}

/// How long a backend without a next hop waits to be looked at again, if nothing happens before.
const TICK: Duration = Duration::from_secs(1);
/// How often neighbours in use are checked: as often as the kernel takes a reachable one to be so
/// (base_reachable_time, 30 s), less some.
const REFRESH: Duration = Duration::from_secs(20);

impl Supervisor {
    pub(crate) fn new(
        config_path: &Path,
        config: Config,
        resolver: Resolver,
        identity: Identity,
        options: Options,
    ) -> Self {
        Self {
            identity,
            options,
            config_path: config_path.to_owned(),
            history: Mutex::default(),
            state: Mutex::new(State { config, resolver, refreshed: Instant::now() }),
        }
    }

    /// Reads the configuration, in whatever thread.
    pub(crate) fn config_reader(&self) -> impl Fn() -> Result<Config, ConfigError> + Send + use<> {
        let (options, path) = (self.options, self.config_path.clone());
        move || options.load(&path)
    }

    /// Prints the counters.
    pub(crate) fn print(&self, shared: &Shared) {
        let format = if self.options.json { Format::Json } else { Format::Text };
        show(&self.report(shared, format), format);
    }

    /// Says what runs, once.
    pub(crate) fn introduce(&self, config: &Config, shared: &Shared) {
        let plan = shared.plan.load();
        let Identity { interface, mode, workers } = &self.identity;
        let (workers, table, path) = (counted(*workers, "worker"), plan.name(), config.table.display());
        log(format_args!("{interface}, {mode}, {workers}; table {table} from {path}"));
        for at in plan.pipeline.mixed_tables() {
            if let Some(table) = plan.pipeline.forwarding().tables().get(at) {
                log(format_args!(
                    "table {}: backends of both families; a packet carries hops of its primary's family only",
                    table.name
                ));
            }
        }
        tell_unresolved(&plan, &[]);
        tell_narrow(&plan, None);
    }

    /// The counters as text or JSON.
    pub(crate) fn report(&self, shared: &Shared, format: Format) -> String {
        let plan = shared.plan.load_full();
        let mut totals = shared.board.totals();
        let fast_path = shared.fast.report(&mut totals);
        let report = Report::new(&self.identity, lock(&self.history).clone(), &plan, &totals, fast_path);
        if format == Format::Json {
            serde_json::to_string(&report).map_or_else(|error| format!("{error}\n"), |json| json + "\n")
        } else {
            report.to_string()
        }
    }

    /// Handles events until it is told to stop.
    pub(crate) fn run(&self, events: &Receiver<Event>, shared: &Shared, table: &Poker) -> anyhow::Result<()> {
        let mut state = lock(&self.state);
        loop {
            let first = match events.recv_timeout(TICK) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("all threads ended"),
            };
            let mut stale = first.is_none() && !shared.plan.load().unresolved.is_empty();
            // Routes are looked at once for all events that came together.
            for event in first.into_iter().chain(events.try_iter()) {
                match event {
                    Event::Signal(Signal::Stop) => return Ok(()),
                    Event::Signal(Signal::Report) => self.print(shared),
                    Event::Signal(Signal::Reload) => table.poke(Poke::Reload),
                    Event::Config(config) => self.reload(&mut state, config, shared),
                    Event::Table(read) => {
                        if self.take_table(&mut state, read, shared).is_retried() {
                            table.poke(Poke::Retry);
                        }
                    }
                    Event::Network(changes) => stale |= changes.concern(&state.resolver),
                    Event::Failed(who, error) => anyhow::bail!("{who}: {error}"),
                }
            }
            if stale {
                self.reroute(&mut state, shared);
            }
            refresh(&mut state);
        }
    }

    /// The configuration, read after SIGHUP; the table comes after it.
    fn reload(&self, state: &mut State, config: Result<Config, ConfigError>, shared: &Shared) {
        let config = match config {
            Ok(config) => config,
            Err(error) => return self.refuse(&error),
        };
        if let Some(key) = config.needs_restart(&state.config) {
            return self.refuse(&format_args!(
                "{}: {key} cannot change while the director runs: restart it",
                self.config_path.display()
            ));
        }
        if config != state.config {
            state.resolver.pin(config.underlay.pinned());
            state.config = config;
            log(format_args!("{} taken over", self.config_path.display()));
            self.reroute(state, shared);
        }
    }

    /// Publishes a table, or says why not.
    fn take_table(&self, state: &mut State, read: Result<LoadedTable, LoadError>, shared: &Shared) -> Taken {
        let running = shared.plan.load_full();
        let usable = read.and_then(|loaded| loaded.with_fields(&state.config.table, state.config.glb));
        let (table, assumes_fields) = match usable {
            Ok(usable) => usable,
            Err(error) => return self.keep(&running, error.into()),
        };
        let (old, new) = (running.pipeline.forwarding(), &table);
        if new.digest() == old.digest() && hash_fields(new).eq(hash_fields(old)) {
            return Taken::Done;
        }
        if new.generation() < old.generation() && !self.options.allow_rollback {
            self.refuse(&format_args!(
                "{}: {} is older than the running {}, which stays; --allow-rollback permits it",
                state.config.table.display(),
                plan::name(new),
                running.name()
            ));
            return Taken::Done;
        }
        match Plan::new(table, running.serial + 1, settings(&state.config), &mut state.resolver) {
            Ok(plan) => {
                let name = plan.name();
                let kin = if plan.pipeline.forwarding().parent() == Some(old.digest()) {
                    ""
                } else {
                    ", which is not its parent"
                };
                tell_unresolved(&plan, &running.unresolved);
                tell_narrow(&plan, Some(&running));
                shared.publish(plan);
                lock(&self.history).swaps += 1;
                // Only now is it true of all frames.
                log(format_args!("table {name} replaces {}{kin}", running.name()));
                if assumes_fields {
                    log(format_args!("{}: {ASSUMED}", state.config.table.display()));
                }
                Taken::Done
            }
            Err(error @ PlanError::Routes(_)) => {
                self.keep(&running, error.into());
                Taken::Again
            }
            Err(error) => self.keep(&running, error.into()),
        }
    }

    fn keep(&self, running: &Plan, error: anyhow::Error) -> Taken {
        self.refuse(&format_args!("table {} stays: {error:#}", running.name()));
        Taken::Done
    }

    fn refuse(&self, why: &dyn std::fmt::Display) {
        log(format_args!("refused: {why}"));
        let mut history = lock(&self.history);
        history.refused += 1;
        history.last_refusal = Some(why.to_string());
    }

    /// Looks at the network again. Only what differs is published.
    fn reroute(&self, state: &mut State, shared: &Shared) {
        let running = shared.plan.load_full();
        match running.reroute(settings(&state.config), &mut state.resolver) {
            Ok(plan) if plan.forwards_as(&running) => {}
            Ok(plan) => {
                tell_unresolved(&plan, &running.unresolved);
                tell_narrow(&plan, Some(&running));
                shared.publish(plan);
            }
            Err(error) => log(format_args!("routes stay as they were: {error}")),
        }
    }
}

/// What decides rows besides the file: for a file of GLB Director's the configuration says it.
fn hash_fields(table: &ForwardingTable) -> impl Iterator<Item = [HashFields; 2]> {
    table.tables().iter().map(|one| [one.hash_fields, one.alt_hash_fields])
}

/// Keeps the neighbours that are in use from going stale.
fn refresh(state: &mut State) {
    if state.refreshed.elapsed() < REFRESH {
        return;
    }
    state.refreshed = Instant::now();
    if let Err(error) = state.resolver.refresh() {
        log(format_args!("neighbours are not refreshed: {error}"));
    }
}

/// Tells which backends lost or found their next hop.
fn tell_unresolved(plan: &Plan, before: &[(std::net::IpAddr, crate::host::route::Unresolved)]) {
    for (address, why) in plan.unresolved.iter().filter(|one| !before.contains(one)) {
        log(format_args!("backend {address} gets no packets: {why}"));
    }
    let is_unresolved = |address| plan.unresolved.iter().any(|(other, _)| other == address);
    for (address, _) in before.iter().filter(|(address, _)| !is_unresolved(address)) {
        log(format_args!("backend {address} gets packets again"));
    }
}

/// Warns if IPv6 clients lose packets, unless the same was said of the plan before.
fn tell_narrow(plan: &Plan, before: Option<&Plan>) {
    let warning = |plan: &Plan| narrow::warning(plan.pipeline.forwarding(), plan.pipeline.underlay().mtu);
    let (now, said) = (warning(plan), before.and_then(warning));
    if let Some(now) = now.filter(|now| said.as_ref() != Some(now)) {
        log(format_args!("{now}"));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
