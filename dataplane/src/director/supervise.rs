//! The control loop: takes over tables, follows routes, answers signals. It is the only one to publish plans.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::flow::HashFields;
use common::table::ForwardingTable;
use crossbeam::channel::{Receiver, RecvTimeoutError};

use super::events::Event;
use super::narrow;
use super::plan::{self, Plan};
use super::tally::{History, Identity, Report, counted};
use super::worker::Shared;
use super::{Options, say, settings, show};
use crate::config::{ASSUMED, Config, TableFile};
use crate::route::Resolver;
use crate::sys::signal::Signal;

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

    pub(crate) fn json(&self) -> bool {
        self.options.json
    }

    /// Says what runs, once.
    pub(crate) fn introduce(&self, config: &Config, shared: &Shared) {
        let plan = shared.plan.load();
        let Identity { interface, mode, workers } = &self.identity;
        let (workers, table, path) = (counted(*workers, "worker"), plan.name(), config.table.display());
        say(format_args!("{interface}, {mode}, {workers}; table {table} from {path}"));
        for at in plan.pipeline.mixed_tables() {
            if let Some(table) = plan.pipeline.forwarding().tables().get(at) {
                say(format_args!(
                    "table {}: backends of both families; a packet carries hops of its primary's family only",
                    table.name
                ));
            }
        }
        tell_unresolved(&plan, &[]);
        tell_narrow(&plan, None);
    }

    /// The counters as text or JSON.
    pub(crate) fn report(&self, shared: &Shared, json: bool) -> String {
        let plan = shared.plan.load_full();
        let mut totals = shared.board.totals();
        let fast_path = shared.fast.report(&mut totals);
        let report = Report::new(&self.identity, lock(&self.history).clone(), &plan, &totals, fast_path);
        if json {
            serde_json::to_string(&report).map_or_else(|error| format!("{error}\n"), |json| json + "\n")
        } else {
            report.to_string()
        }
    }

    /// Handles events until it is told to stop.
    pub(crate) fn run(&self, events: &Receiver<Event>, shared: &Shared) -> anyhow::Result<()> {
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
                    Event::Signal(Signal::Report) => show(&self.report(shared, self.options.json)),
                    Event::Signal(Signal::Reload) => self.reload(&mut state, shared),
                    Event::Files(names) => {
                        let table = state.config.table.file_name().unwrap_or(OsStr::new(""));
                        if names.iter().any(|name| name == table) {
                            self.take_table(&mut state, shared);
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

    /// SIGHUP: the configuration, then the table.
    fn reload(&self, state: &mut State, shared: &Shared) {
        let config = match self.options.load(&self.config_path) {
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
            say(format_args!("{} taken over", self.config_path.display()));
            self.reroute(state, shared);
        }
        self.take_table(state, shared);
    }

    /// Reads the table and publishes it, or says why not.
    fn take_table(&self, state: &mut State, shared: &Shared) {
        let running = shared.plan.load_full();
        let TableFile { table, assumes_fields } = match plan::read(&state.config.table, state.config.glb) {
            Ok(file) => file,
            Err(error) => return self.keep(&running, error),
        };
        let (old, new) = (running.pipeline.forwarding(), &table);
        if new.digest() == old.digest() && hash_fields(new).eq(hash_fields(old)) {
            return;
        }
        if new.generation() < old.generation() && !self.options.allow_rollback {
            return self.refuse(&format_args!(
                "{}: {} is older than the running {}, which stays; --allow-rollback permits it",
                state.config.table.display(),
                plan::name(new),
                running.name()
            ));
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
                say(format_args!("table {name} replaces {}{kin}", running.name()));
                if assumes_fields {
                    say(format_args!("{}: {ASSUMED}", state.config.table.display()));
                }
            }
            Err(error) => self.keep(&running, error),
        }
    }

    fn keep(&self, running: &Plan, error: plan::PlanError) {
        let error = anyhow::Error::from(error);
        self.refuse(&format_args!("table {} stays: {error:#}", running.name()));
    }

    fn refuse(&self, why: &dyn std::fmt::Display) {
        say(format_args!("refused: {why}"));
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
            Err(error) => say(format_args!("routes stay as they were: {error}")),
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
        say(format_args!("neighbours are not refreshed: {error}"));
    }
}

/// Tells which backends lost or found their next hop.
fn tell_unresolved(plan: &Plan, before: &[(std::net::IpAddr, crate::route::Unresolved)]) {
    for (address, why) in plan.unresolved.iter().filter(|one| !before.contains(one)) {
        say(format_args!("backend {address} gets no packets: {why}"));
    }
    let is_unresolved = |address| plan.unresolved.iter().any(|(other, _)| other == address);
    for (address, _) in before.iter().filter(|(address, _)| !is_unresolved(address)) {
        say(format_args!("backend {address} gets packets again"));
    }
}

/// Warns if IPv6 clients lose packets, unless the same was said of the plan before.
fn tell_narrow(plan: &Plan, before: Option<&Plan>) {
    let warning = |plan: &Plan| narrow::warning(plan.pipeline.forwarding(), plan.pipeline.underlay().mtu);
    let (now, said) = (warning(plan), before.and_then(warning));
    if let Some(now) = now.filter(|now| said.as_ref() != Some(now)) {
        say(format_args!("{now}"));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
