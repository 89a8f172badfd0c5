//! A worker: one thread, one driver, one loop. Per frame it does what the pipeline says; a new table is looked at
//! between batches, so that a frame is never forwarded by half of one and half of another.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Cache};

use super::fast::FastPath;
use super::limiter::Limiter;
use super::plan::Plan;
use super::tally::{Board, Tally};
use crate::drivers::{Link, Merged, Outgoing, Received};
use crate::host::sys::packet::SelfSender;
use crate::pipeline::{Answer, Verdict};

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) plan: ArcSwap<Plan>,
    pub(crate) board: Board,
    pub(crate) fast: FastPath,
    pub(crate) stop: AtomicBool,
    /// Frames come in here, and answers go out.
    pub(crate) ifindex: u32,
}

impl Shared {
    /// Makes `plan` the one that frames are forwarded by. Reports name the workers' plan, so theirs is the last to
    /// change: what a report names is true of all frames.
    pub(crate) fn publish(&self, plan: Plan) {
        let plan = Arc::new(plan);
        self.fast.follow(&plan);
        self.plan.store(plan);
    }
}

/// How soon a worker without packets notices that it should stop, and lets go of an old table.
const PATIENCE: Duration = Duration::from_millis(100);
/// Asking the kernel what it lost is a call.
const BETWEEN_LOSSES: Duration = Duration::from_secs(1);

/// Forwards until it is told to stop.
pub(crate) fn work(number: usize, mut link: impl Link, own: &SelfSender, shared: &Shared) -> io::Result<()> {
    let mut plan = Cache::new(&shared.plan);
    let mut decider = Decider { own, limiter: Limiter::new(Instant::now()), ifindex: shared.ifindex };
    let mut asked = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        link.wait(PATIENCE)?;
        let plan = plan.load();
        let Some(mut tally) = shared.board.tally(number, plan) else { break };
        link.set_room(plan.pipeline.room(0));
        let moved = link.turn(|received, out| decider.decide(plan, &mut tally, received, out))?;
        tally.around.moved.add(moved);
        if asked.elapsed() >= BETWEEN_LOSSES {
            asked = Instant::now();
            tally.around.lost += link.lost()?;
        }
    }
    // What came in last is counted too.
    if let Some(mut tally) = shared.board.tally(number, &Arc::clone(plan.load())) {
        tally.around.lost += link.lost()?;
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
        plan: &Plan,
        tally: &mut Tally,
        received: &Received<'_>,
        out: &mut [u8],
    ) -> Option<Outgoing> {
        let verdict = plan.pipeline.process(received.frame, out);
        if received.merged != Merged::No && !forwards_merged(received.merged, &verdict) {
            tally.around.merged += 1;
            return None;
        }
        tally.counters.count(&verdict);
        match verdict {
            Verdict::Encapsulate(done) => {
                Some(Outgoing { len: octets(done.len), ifindex: plan.egress(&done) })
            }
            Verdict::Pass(_) | Verdict::Drop(_) => None,
            Verdict::Answer { answer, len } => self.answer(plan, tally, answer, len),
            Verdict::Local(done) => {
                let packet = out.get(LINK_HEADER..octets(done.len)).unwrap_or_default();
                let sent = plan.address(&done).map(|address| self.own.send(packet, address));
                tally.around.undelivered += u64::from(!matches!(sent, Some(Ok(_))));
                None
            }
        }
    }

    /// Echo replies are no more than what was asked; what a packet that is too big provokes is limited.
    #[cold]
    fn answer(&mut self, plan: &Plan, tally: &mut Tally, answer: Answer, len: u32) -> Option<Outgoing> {
        let allowed = answer == Answer::Echo || self.limiter.allows(Instant::now(), plan.too_big_per_second);
        tally.around.suppressed += u64::from(!allowed);
        allowed.then_some(Outgoing { len: octets(len), ifindex: self.ifindex })
    }
}

/// Segments that were merged into one that still fits mean the same, and what is the host's is its own to judge. But
/// a frame that is too big only because it was merged must not be answered so.
fn forwards_merged(merged: Merged, verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Pass(_) => true,
        Verdict::Encapsulate(_) | Verdict::Local(_) => merged == Merged::Segments,
        Verdict::Answer { .. } | Verdict::Drop(_) => false,
    }
}

/// Octets of an Ethernet header without tags, as the pipeline writes it.
const LINK_HEADER: usize = 14;

fn octets(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
