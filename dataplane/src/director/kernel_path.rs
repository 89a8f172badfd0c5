//! The kernel path: loads the director's kernel program and updates it when the forwarding state changes.
//!
//! Either the kernel program or a worker decides a frame, never both. During a change one of them may already
//! have the next forwarding state and the other not; each still uses a complete state.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::counters::{Totals, WorkerCounters};
use super::forwarding::ForwardingState;
use super::log;
use crate::control::config::{Config, Mode};
use crate::drivers::xdp::{Attached, Attachment, Counts, Director, PuntReason, XdpError};
use crate::host::sys::interface::{Interface, driver};
use crate::pipeline::{Counters, backends};

/// The attached program, or none.
#[derive(Debug, Default)]
pub(crate) struct KernelPath(Mutex<Option<Running>>);

#[derive(Debug)]
struct Running {
    program: Director,
    state: Arc<ForwardingState>,
    interface: u32,
    attached: Attached,
    /// Whether frames may leave through other interfaces than the one on which they arrived.
    redirects: bool,
    /// Counters of programs that were replaced.
    former: Totals,
    former_punted: Vec<u64>,
}

/// The kernel program's part of a report.
#[derive(Debug, Serialize)]
pub(crate) struct KernelPathReport {
    attached: &'static str,
    encapsulated: u64,
    /// Frames punted to the workers, which count them by their own reasons.
    #[serde(rename = "left")]
    punted: BTreeMap<&'static str, u64>,
}

impl fmt::Display for KernelPathReport {
    /// One line; omits counters that are zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  xdp {} encapsulated {}, punted", self.attached, self.encapsulated)?;
        for (name, count) in self.punted.iter().filter(|(_, count)| **count > 0) {
            write!(f, " {name} {count},")?;
        }
        write!(f, " total {}", self.punted.values().sum::<u64>())
    }
}

impl KernelPath {
    /// Starts the kernel path according to `mode`: with `xdp` a failure is an error; with `auto` it is logged
    /// and the workers forward all frames.
    pub(crate) fn start(
        config: &Config,
        interface: &Interface,
        state: &Arc<ForwardingState>,
    ) -> anyhow::Result<Self> {
        let (running, placed) = match config.mode {
            Mode::AfPacket | Mode::Pnet => return Ok(Self::default()),
            Mode::Xdp => Running::start(interface, state, true)?,
            Mode::Auto => match Running::start(interface, state, false) {
                Ok(running) => running,
                Err(error) => {
                    log(format_args!("{}: no XDP, the workers forward all frames: {error}", interface.name));
                    return Ok(Self::default());
                }
            },
        };
        log(format_args!("{}: XDP, {placed}", interface.name));
        Ok(Self(Mutex::new(Some(running))))
    }

    /// Switches to a new forwarding state. If that fails the program is detached, because it must not forward
    /// by an old table.
    pub(crate) fn follow(&self, state: &Arc<ForwardingState>) {
        let mut slot = self.lock();
        let Some(mut running) = slot.take() else { return };
        match running.follow(state) {
            Ok(()) => *slot = Some(running),
            Err(error) => log(format_args!("XDP is detached, the workers forward all frames: {error}")),
        }
    }

    /// Adds the program's counters to `totals` and returns its part of the report.
    pub(crate) fn report(&self, totals: &mut Totals) -> Option<KernelPathReport> {
        let slot = self.lock();
        let running = slot.as_ref()?;
        let counts = running.program.counts().unwrap_or_default();
        let mut own = running.former.clone();
        own.add(&from_kernel(&running.state, &counts));
        let encapsulated = own.counters.encapsulated;
        totals.merge(&own);
        let punted = PuntReason::ALL.iter().map(|reason| {
            let former = running.former_punted[usize::from(reason.number())];
            (reason.name(), counts.punted(*reason) + former)
        });
        Some(KernelPathReport { attached: running.attached.name(), encapsulated, punted: punted.collect() })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    fn start(
        interface: &Interface,
        state: &Arc<ForwardingState>,
        required: bool,
    ) -> Result<(Self, Attachment), XdpError> {
        let same = state.interfaces().all(|egress| egress == interface.index);
        // A veth passes on frames that are sent from inside it only to a peer that is prepared for them, and
        // otherwise drops them silently. And not every driver accepts frames that are redirected to it. With
        // `mode: xdp` the operator vouches for both.
        let native = required || (same && driver(&interface.name).is_ok_and(|driver| driver != "veth"));
        let mut program = Director::load(&state.pipeline, |_| true)?;
        let placed = if native {
            program.attach(interface.index)?
        } else {
            program.attach_as(interface.index, Attached::Generic)?;
            Attachment { attached: Attached::Generic, refused: None }
        };
        let attached = placed.attached;
        let redirects = required || attached == Attached::Generic;
        let (former, former_punted) = (Totals::default(), vec![0; PuntReason::ALL.len()]);
        let state = Arc::clone(state);
        let running =
            Self { program, state, interface: interface.index, attached, redirects, former, former_punted };
        Ok((running, placed))
    }

    fn follow(&mut self, state: &Arc<ForwardingState>) -> Result<(), XdpError> {
        let (redirects, interface) = (self.redirects, self.interface);
        // Frames to other interfaces are punted to the workers.
        let usable = |egress| redirects || egress == interface;
        let same_mtu = state.pipeline.underlay().mtu == self.state.pipeline.underlay().mtu;
        if state.serial == self.state.serial && same_mtu {
            self.program.set_hops(&state.pipeline, usable)?;
        } else {
            let mut next = Director::load(&state.pipeline, usable)?;
            let counts = next.replace(&mut self.program)?;
            self.former.add(&from_kernel(&self.state, &counts));
            self.former_punted.iter_mut().zip(&counts.punted).for_each(|(to, from)| *to += from);
            self.program = next;
        }
        self.state = Arc::clone(state);
        Ok(())
    }
}

/// The program's counters in the form of a worker's.
fn from_kernel(state: &Arc<ForwardingState>, counts: &Counts) -> WorkerCounters {
    let mut counters = Counters::new(&state.pipeline);
    for ((backend, _), frames) in backends(state.pipeline.forwarding()).zip(&counts.primaries) {
        counters.count_encapsulated(backend, *frames);
    }
    WorkerCounters::of(Arc::clone(state), counters)
}
