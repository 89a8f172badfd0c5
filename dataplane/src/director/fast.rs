//! The fast path in the kernel, kept to the plan that the workers have.
//!
//! Each frame is decided by the kernel program or by a worker, never by both; while one of them has the next plan
//! already and the other has not, each still forwards by a whole one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::log;
use super::plan::Plan;
use super::tally::{Tally, Totals};
use crate::control::config::{Config, Mode};
use crate::drivers::xdp::{Attached, Counts, Director, Left, Placed, XdpError};
use crate::host::sys::interface::{Interface, driver};
use crate::pipeline::Counters;

/// The program on the interface, or none.
#[derive(Debug, Default)]
pub(crate) struct FastPath(Mutex<Option<Running>>);

#[derive(Debug)]
struct Running {
    program: Director,
    plan: Arc<Plan>,
    interface: u32,
    attached: Attached,
    /// Whether frames may leave by other interfaces than the one they came in by.
    redirects: bool,
    /// What programs counted that are gone.
    former: Totals,
    former_left: Vec<u64>,
}

/// What `status` says of it.
#[derive(Debug, Serialize)]
pub(crate) struct FastReport {
    attached: &'static str,
    encapsulated: u64,
    /// Frames left to the workers, which count them under their own reasons.
    left: BTreeMap<&'static str, u64>,
}

impl fmt::Display for FastReport {
    /// One line; what is zero is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  xdp {} encapsulated {}, left", self.attached, self.encapsulated)?;
        for (name, count) in self.left.iter().filter(|(_, count)| **count > 0) {
            write!(f, " {name} {count},")?;
        }
        write!(f, " total {}", self.left.values().sum::<u64>())
    }
}

impl FastPath {
    /// As `mode` wants it: `xdp` must have it, `auto` does without it where it cannot be had, and says why.
    pub(crate) fn start(config: &Config, interface: &Interface, plan: &Arc<Plan>) -> anyhow::Result<Self> {
        let (running, placed) = match config.mode {
            Mode::AfPacket | Mode::Pnet => return Ok(Self::default()),
            Mode::Xdp => Running::start(interface, plan, true)?,
            Mode::Auto => match Running::start(interface, plan, false) {
                Ok(running) => running,
                Err(error) => {
                    log(format_args!("{}: no XDP, workers forward everything: {error}", interface.name));
                    return Ok(Self::default());
                }
            },
        };
        log(format_args!("{}: XDP, {placed}", interface.name));
        Ok(Self(Mutex::new(Some(running))))
    }

    /// Takes over a plan. Where that fails the program goes, for it must not forward by an old table.
    pub(crate) fn follow(&self, plan: &Arc<Plan>) {
        let mut slot = self.lock();
        let Some(mut running) = slot.take() else { return };
        match running.follow(plan) {
            Ok(()) => *slot = Some(running),
            Err(error) => log(format_args!("XDP ends, workers forward everything: {error}")),
        }
    }

    /// Adds what was counted here, and says what else there is to know.
    pub(crate) fn report(&self, totals: &mut Totals) -> Option<FastReport> {
        let slot = self.lock();
        let running = slot.as_ref()?;
        let counts = running.program.counts().unwrap_or_default();
        let mut own = running.former.clone();
        own.add(&tally(&running.plan, &counts));
        let encapsulated = own.counters.encapsulated;
        totals.merge(&own);
        let left = Left::ALL.iter().map(|reason| {
            let former = running.former_left.get(usize::from(reason.number())).copied().unwrap_or(0);
            (reason.name(), counts.left(*reason) + former)
        });
        Some(FastReport { attached: running.attached.name(), encapsulated, left: left.collect() })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    fn start(interface: &Interface, plan: &Arc<Plan>, insists: bool) -> Result<(Self, Placed), XdpError> {
        let same = plan.interfaces().all(|egress| egress == interface.index || egress == 0);
        // A veth hands on what is sent from inside it only to a peer that is prepared for it, and loses it without a
        // word; and not every driver takes frames that are redirected to it. Whoever asks for XDP may know better.
        let native = insists || (same && driver(&interface.name).is_ok_and(|driver| driver != "veth"));
        let mut program = Director::load(&plan.pipeline, &plan.interfaces().collect::<Vec<_>>())?;
        let placed = if native {
            program.attach(interface.index)?
        } else {
            program.attach_as(interface.index, Attached::Generic)?;
            Placed { attached: Attached::Generic, refused: None }
        };
        let attached = placed.attached;
        let redirects = insists || attached == Attached::Generic;
        let (former, former_left) = (Totals::default(), vec![0; Left::ALL.len()]);
        let plan = Arc::clone(plan);
        let running =
            Self { program, plan, interface: interface.index, attached, redirects, former, former_left };
        Ok((running, placed))
    }

    fn follow(&mut self, plan: &Arc<Plan>) -> Result<(), XdpError> {
        let egress: Vec<_> = plan.interfaces().map(|egress| self.usable(egress)).collect();
        let same_mtu = plan.pipeline.underlay().mtu == self.plan.pipeline.underlay().mtu;
        if plan.serial == self.plan.serial && same_mtu {
            self.program.set_hops(&plan.pipeline, &egress)?;
        } else {
            let mut next = Director::load(&plan.pipeline, &egress)?;
            let counts = next.replace(&mut self.program)?;
            self.former.add(&tally(&self.plan, &counts));
            self.former_left.iter_mut().zip(&counts.left).for_each(|(to, from)| *to += from);
            self.program = next;
        }
        self.plan = Arc::clone(plan);
        Ok(())
    }

    /// 0, which leaves a backend's frames to the workers, for an interface that the program may not send by.
    fn usable(&self, egress: u32) -> u32 {
        if self.redirects || egress == self.interface { egress } else { 0 }
    }
}

/// What the program counted, as a worker would have.
fn tally(plan: &Arc<Plan>, counts: &Counts) -> Tally {
    let mut counters = Counters::new(&plan.pipeline);
    let mut primaries = counts.primaries.iter();
    for (at, table) in plan.pipeline.forwarding().tables().iter().enumerate() {
        for (backend, frames) in (0..table.backends.len()).zip(&mut primaries) {
            counters.count_encapsulated(at, backend, *frames);
        }
    }
    Tally::of(Arc::clone(plan), counters)
}
