//! A worker: a thread with its own driver. It carries out the pipeline's verdict on each frame. It checks for
//! a new forwarding state between batches, so that no frame is forwarded by parts of two.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Cache};

use super::counters::{Aggregate, WorkerCounters};
use super::forwarding::ForwardingState;
use super::kernel_path::KernelPath;
use super::limiter::Limiter;
use crate::drivers::{FrameDriver, Merged, Outgoing, Received};
use crate::host::sys::packet::SelfSender;
use crate::pipeline::{Answer, Verdict};

/// The data that all workers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) state: ArcSwap<ForwardingState>,
    pub(crate) aggregate: Aggregate,
    pub(crate) kernel_path: KernelPath,
    pub(crate) stop: AtomicBool,
    /// The interface on which frames arrive and answers leave.
    pub(crate) ifindex: u32,
}

impl Shared {
    /// Publishes `state` as the current one. Reports name the workers' state, so that is changed last: then
    /// the table in a report is used for all frames.
    pub(crate) fn publish(&self, state: ForwardingState) {
        let state = Arc::new(state);
        self.kernel_path.follow(&state);
        self.state.store(state);
    }
}

/// How long a worker waits for packets before it checks whether it should stop, and releases an old table.
const PATIENCE: Duration = Duration::from_millis(100);
/// Interval between queries of the kernel's drop counter, each of which is a system call.
const BETWEEN_LOSSES: Duration = Duration::from_secs(1);

/// Forwards until `shared.stop`.
pub(crate) fn work(
    number: usize,
    mut driver: impl FrameDriver,
    own: &SelfSender,
    shared: &Shared,
) -> io::Result<()> {
    let mut state = Cache::new(&shared.state);
    let mut decider = Decider { own, limiter: Limiter::new(Instant::now()), ifindex: shared.ifindex };
    let mut losses_read = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        driver.wait(PATIENCE)?;
        let state = state.load();
        let Some(mut counters) = shared.aggregate.counters(number, state) else { break };
        driver.set_room(state.pipeline.room(0));
        let frames =
            driver.process_batch(|received, out| decider.decide(state, &mut counters, received, out))?;
        counters.driver.frames.add(frames);
        if losses_read.elapsed() >= BETWEEN_LOSSES {
            losses_read = Instant::now();
            counters.driver.lost += driver.lost()?;
        }
    }
    // Counts the last losses too.
    if let Some(mut counters) = shared.aggregate.counters(number, &Arc::clone(state.load())) {
        counters.driver.lost += driver.lost()?;
    }
    Ok(())
}

struct Decider<'a> {
    own: &'a SelfSender,
    limiter: Limiter,
    ifindex: u32,
}

impl Decider<'_> {
    #[inline]
    fn decide(
        &mut self,
        state: &ForwardingState,
        counters: &mut WorkerCounters,
        received: &Received<'_>,
        out: &mut [u8],
    ) -> Option<Outgoing> {
        let verdict = state.pipeline.process(received.frame, out);
        if received.merged != Merged::No && !forwards_merged(received.merged, &verdict) {
            counters.driver.merged += 1;
            return None;
        }
        counters.verdicts.count(&verdict);
        match verdict {
            Verdict::Encapsulate(done) => {
                Some(Outgoing { len: done.len as usize, ifindex: state.outgoing_interface(&done) })
            }
            Verdict::Pass(_) | Verdict::Drop(_) => None,
            Verdict::Answer { answer, len } => self.answer(state, counters, answer, len),
            Verdict::Local(done) => {
                let packet = &out[LINK_HEADER..done.len as usize];
                let sent = self.own.send(packet, state.address(&done));
                counters.driver.undelivered += u64::from(sent.is_err());
                None
            }
        }
    }

    /// Echo replies are as many as the requests; answers to packets that are too big are limited.
    #[cold]
    fn answer(
        &mut self,
        state: &ForwardingState,
        counters: &mut WorkerCounters,
        answer: Answer,
        len: u32,
    ) -> Option<Outgoing> {
        let allowed = answer == Answer::Echo || self.limiter.allows(Instant::now(), state.too_big_per_second);
        counters.driver.suppressed += u64::from(!allowed);
        allowed.then_some(Outgoing { len: len as usize, ifindex: self.ifindex })
    }
}

/// Whether a merged frame may be forwarded. Segments merged into a packet that still fits have the same
/// meaning as before, and a passed frame is the host's to handle. But a frame that is too big only because it
/// was merged must not be answered "too big".
fn forwards_merged(merged: Merged, verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Pass(_) => true,
        Verdict::Encapsulate(_) | Verdict::Local(_) => merged == Merged::Segments,
        Verdict::Answer { .. } | Verdict::Drop(_) => false,
    }
}

/// Length of the Ethernet header that the pipeline writes, without tags, in octets.
const LINK_HEADER: usize = 14;
