//! Frame counters by verdict and reason. Each worker has a set of its own, without atomics; reports add the
//! sets up.

use super::{Answer, BackendKey, DropReason, PassReason, Pipeline, Verdict};

/// Frames by verdict; encapsulated frames also by table and backend.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames processed.
    pub frames: u64,
    /// Encapsulated for another host.
    pub encapsulated: u64,
    /// Encapsulated for this host.
    pub local: u64,
    passed: [u64; PassReason::ALL.len()],
    dropped: [u64; DropReason::ALL.len()],
    answered: [u64; Answer::ALL.len()],
    /// Encapsulated frames by table index, then by backend index.
    primary: Vec<Vec<u64>>,
}

impl Counters {
    /// Counters at zero, for the tables of `pipeline`.
    #[must_use]
    pub fn new(pipeline: &Pipeline) -> Self {
        let tables = pipeline.forwarding().tables();
        Self {
            primary: tables.iter().map(|table| vec![0; table.backends.len()]).collect(),
            ..Self::default()
        }
    }

    /// Counts a frame. A "too big" answer also counts as a drop for that reason, whether or not it is then
    /// sent.
    #[inline]
    pub fn count(&mut self, verdict: &Verdict) {
        self.frames += 1;
        match verdict {
            Verdict::Encapsulate(done) => {
                self.encapsulated += 1;
                self.count_primary(done.primary);
            }
            Verdict::Local(done) => {
                self.local += 1;
                self.count_primary(done.primary);
            }
            Verdict::Answer { answer, .. } => {
                add(&mut self.answered, answer.number(), 1);
                if *answer == Answer::TooBig {
                    add(&mut self.dropped, DropReason::TooBig.number(), 1);
                }
            }
            Verdict::Pass(reason) => add(&mut self.passed, reason.number(), 1),
            Verdict::Drop(reason) => add(&mut self.dropped, reason.number(), 1),
        }
    }

    #[inline]
    fn count_primary(&mut self, primary: BackendKey) {
        let table = self.primary.get_mut(usize::from(primary.table));
        if let Some(cell) = table.and_then(|table| table.get_mut(usize::from(primary.backend))) {
            *cell += 1;
        }
    }

    /// Counts frames that the kernel program encapsulated for a backend.
    pub fn count_encapsulated(&mut self, backend: BackendKey, frames: u64) {
        self.primary[usize::from(backend.table)][usize::from(backend.backend)] += frames;
        self.frames += frames;
        self.encapsulated += frames;
    }

    /// Frames passed for this reason.
    #[must_use]
    pub fn passed(&self, reason: PassReason) -> u64 {
        self.passed[usize::from(reason.number())]
    }

    /// Frames dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[usize::from(reason.number())]
    }

    /// Answers of this kind.
    #[must_use]
    pub fn answered(&self, answer: Answer) -> u64 {
        self.answered[usize::from(answer.number())]
    }

    /// Frames encapsulated for each backend of the table at this index.
    #[must_use]
    pub fn backends(&self, table: usize) -> &[u64] {
        self.primary.get(table).map_or(&[], Vec::as_slice)
    }

    /// Adds the counters of another worker. Backends are added by index: both must count for the same table
    /// file.
    pub fn merge(&mut self, other: &Self) {
        self.frames += other.frames;
        self.encapsulated += other.encapsulated;
        self.local += other.local;
        let pairs = [
            (&mut self.passed[..], &other.passed[..]),
            (&mut self.dropped[..], &other.dropped[..]),
            (&mut self.answered[..], &other.answered[..]),
        ];
        for (to, from) in pairs {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
        for (to, from) in self.primary.iter_mut().zip(&other.primary) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    }
}

#[inline]
fn add(cells: &mut [u64], number: u8, by: u64) {
    if let Some(cell) = cells.get_mut(usize::from(number)) {
        *cell += by;
    }
}
