//! The control loop: switches to new tables, follows route changes, handles signals. Only this loop publishes
//! forwarding states.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::flow::HashFields;
use common::table::ForwardingTable;
use crossbeam::channel::{Receiver, RecvTimeoutError};

use super::counters::{History, Identity, Report, counted};
use super::events::Event;
use super::forwarding::{self, ForwardingState, StateError};
use super::ipv6_mtu;
use super::table_file::{ReadReason, Waker};
use super::worker::Shared;
use super::{Options, log, settings, show};
use crate::control::config::{ASSUMED, Config, ConfigError};
use crate::control::socket::Format;
use crate::control::table::{LoadError, LoadedTable};
use crate::host::route::Resolver;
use crate::host::sys::signal::Signal;

/// The state of the control loop.
#[derive(Debug)]
pub(crate) struct Supervisor {
    identity: Identity,
    options: Options,
    config_path: PathBuf,
    history: Mutex<History>,
    /// Locked by the loop as long as it runs.
    control: Mutex<ControlState>,
}

#[derive(Debug)]
struct ControlState {
    config: Config,
    resolver: Resolver,
    refreshed: Instant,
}

/// The outcome of reading a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableOutcome {
    /// It was published, or refused for good.
    Done,
    /// The kernel could not be queried; the same table may be accepted later.
    Retry,
}

impl TableOutcome {
    fn is_retried(self) -> bool {
        self == Self::Retry
    }
}

/// Longest time until a backend without a next hop is resolved again.
const TICK: Duration = Duration::from_secs(1);
/// Interval between checks of the neighbours in use: a bit shorter than the time for which the kernel
/// considers a neighbour reachable (base_reachable_time, 30 s).
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
            control: Mutex::new(ControlState { config, resolver, refreshed: Instant::now() }),
        }
    }

    /// A function that reads the configuration, for another thread.
    pub(crate) fn config_reader(&self) -> impl Fn() -> Result<Config, ConfigError> + Send + use<> {
        let (options, path) = (self.options, self.config_path.clone());
        move || options.load(&path)
    }

    /// Prints the counters.
    pub(crate) fn print(&self, shared: &Shared) {
        let format = if self.options.json { Format::Json } else { Format::Text };
        show(&self.report(shared, format), format);
    }

    /// Logs what runs, once at start.
    pub(crate) fn log_start(&self, config: &Config, shared: &Shared) {
        let state = shared.state.load();
        let Identity { interface, mode, workers } = &self.identity;
        let (workers, table, path) = (counted(*workers, "worker"), state.name(), config.table.display());
        log(format_args!("{interface}, {mode}, {workers}; table {table} from {path}"));
        for table in state.pipeline.mixed_tables() {
            log(format_args!(
                "table {}: backends of both families; a packet carries hops of its primary's family only",
                state.pipeline.forwarding().tables()[table].name
            ));
        }
        log_unresolved(&state, &[]);
        log_mtu_warning(&state, None);
    }

    /// The counters as text or JSON.
    pub(crate) fn report(&self, shared: &Shared, format: Format) -> String {
        let state = shared.state.load_full();
        let mut totals = shared.aggregate.totals();
        let fast_path = shared.kernel_path.report(&mut totals);
        let report = Report::new(&self.identity, lock(&self.history).clone(), &state, &totals, fast_path);
        if format == Format::Json {
            serde_json::to_string(&report).map_or_else(|error| format!("{error}\n"), |json| json + "\n")
        } else {
            report.to_string()
        }
    }

    /// Handles events until the signal to stop.
    pub(crate) fn run(&self, events: &Receiver<Event>, shared: &Shared, table: &Waker) -> anyhow::Result<()> {
        let mut control = lock(&self.control);
        loop {
            let first = match events.recv_timeout(TICK) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("all threads ended"),
            };
            let mut stale = first.is_none() && !shared.state.load().unresolved.is_empty();
            // All events that arrived together cause a single route look-up.
            for event in first.into_iter().chain(events.try_iter()) {
                match event {
                    Event::Signal(Signal::Stop) => return Ok(()),
                    Event::Signal(Signal::Report) => self.print(shared),
                    Event::Signal(Signal::Reload) => table.wake(ReadReason::Reload),
                    Event::Config(config) => self.reload(&mut control, config, shared),
                    Event::Table(read) => {
                        if self.take_table(&mut control, read, shared).is_retried() {
                            table.wake(ReadReason::Retry);
                        }
                    }
                    Event::Network(changes) => stale |= changes.concern(&control.resolver),
                    Event::Failed(who, error) => anyhow::bail!("{who}: {error}"),
                }
            }
            if stale {
                self.reroute(&mut control, shared);
            }
            refresh(&mut control);
        }
    }

    /// Handles the configuration that was read after SIGHUP; the table follows.
    fn reload(&self, control: &mut ControlState, config: Result<Config, ConfigError>, shared: &Shared) {
        let config = match config {
            Ok(config) => config,
            Err(error) => return self.refuse(&error),
        };
        if let Some(key) = config.needs_restart(&control.config) {
            return self.refuse(&format_args!(
                "{}: {key} cannot change while the director runs: restart it",
                self.config_path.display()
            ));
        }
        if config != control.config {
            control.resolver.pin(config.underlay.pinned());
            control.config = config;
            log(format_args!("{}: new configuration in use", self.config_path.display()));
            self.reroute(control, shared);
        }
    }

    /// Publishes a table, or logs why not.
    fn take_table(
        &self,
        control: &mut ControlState,
        read: Result<LoadedTable, LoadError>,
        shared: &Shared,
    ) -> TableOutcome {
        let running = shared.state.load_full();
        let usable = read.and_then(|loaded| loaded.with_fields(&control.config.table, control.config.glb));
        let (table, assumes_fields) = match usable {
            Ok(usable) => usable,
            Err(error) => return self.refuse_table(&running, error.into()),
        };
        let (old, new) = (running.pipeline.forwarding(), &table);
        if new.digest() == old.digest() && hash_fields(new).eq(hash_fields(old)) {
            return TableOutcome::Done;
        }
        if new.generation() < old.generation() && !self.options.allow_rollback {
            self.refuse(&format_args!(
                "{}: {} is older than the running {}, which stays; --allow-rollback permits it",
                control.config.table.display(),
                forwarding::name(new),
                running.name()
            ));
            return TableOutcome::Done;
        }
        match ForwardingState::new(
            table,
            running.serial + 1,
            settings(&control.config),
            &mut control.resolver,
        ) {
            Ok(state) => {
                let name = state.name();
                let relation = if state.pipeline.forwarding().parent() == Some(old.digest()) {
                    ""
                } else {
                    ", which is not its parent"
                };
                log_unresolved(&state, &running.unresolved);
                log_mtu_warning(&state, Some(&running));
                shared.publish(state);
                lock(&self.history).swaps += 1;
                // Logged now, because only now the new table is used for all frames.
                log(format_args!("table {name} replaces {}{relation}", running.name()));
                if assumes_fields {
                    log(format_args!("{}: {ASSUMED}", control.config.table.display()));
                }
                TableOutcome::Done
            }
            Err(error @ StateError::Routes(_)) => {
                self.refuse_table(&running, error.into());
                TableOutcome::Retry
            }
            Err(error) => self.refuse_table(&running, error.into()),
        }
    }

    fn refuse_table(&self, running: &ForwardingState, error: anyhow::Error) -> TableOutcome {
        self.refuse(&format_args!("table {} stays in use: {error:#}", running.name()));
        TableOutcome::Done
    }

    fn refuse(&self, why: &dyn std::fmt::Display) {
        log(format_args!("refused: {why}"));
        let mut history = lock(&self.history);
        history.refused += 1;
        history.last_refusal = Some(why.to_string());
    }

    /// Resolves all next hops again. Publishes a new state only if it differs.
    fn reroute(&self, control: &mut ControlState, shared: &Shared) {
        let running = shared.state.load_full();
        match running.reroute(settings(&control.config), &mut control.resolver) {
            Ok(state) if state.forwards_as(&running) => {}
            Ok(state) => {
                log_unresolved(&state, &running.unresolved);
                log_mtu_warning(&state, Some(&running));
                shared.publish(state);
            }
            Err(error) => log(format_args!("cannot query routes, the previous ones stay in use: {error}")),
        }
    }
}

/// The hash fields of all tables. For a GLB Director file the configuration sets them, so they can change
/// without the file.
fn hash_fields(table: &ForwardingTable) -> impl Iterator<Item = [HashFields; 2]> {
    table.tables().iter().map(|table| [table.hash_fields, table.alt_hash_fields])
}

/// Prevents the entries of neighbours in use from becoming stale.
fn refresh(control: &mut ControlState) {
    if control.refreshed.elapsed() < REFRESH {
        return;
    }
    control.refreshed = Instant::now();
    if let Err(error) = control.resolver.refresh() {
        log(format_args!("cannot refresh neighbours: {error}"));
    }
}

/// Logs which backends lost or found their next hop.
fn log_unresolved(state: &ForwardingState, before: &[(std::net::IpAddr, crate::host::route::Unresolved)]) {
    for (address, why) in state.unresolved.iter().filter(|entry| !before.contains(entry)) {
        log(format_args!("backend {address} gets no packets: {why}"));
    }
    let is_unresolved = |address| state.unresolved.iter().any(|(other, _)| other == address);
    for (address, _) in before.iter().filter(|(address, _)| !is_unresolved(address)) {
        log(format_args!("backend {address} gets packets again"));
    }
}

/// Warns if IPv6 clients lose packets, unless the previous state had the same warning.
fn log_mtu_warning(state: &ForwardingState, before: Option<&ForwardingState>) {
    let warning = |state: &ForwardingState| {
        ipv6_mtu::warning(state.pipeline.forwarding(), state.pipeline.underlay().mtu)
    };
    let (now, previous) = (warning(state), before.and_then(warning));
    if let Some(now) = now.filter(|now| previous.as_ref() != Some(now)) {
        log(format_args!("{now}"));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
