//! How many frames met which fate. One set a worker, without atomics; sets are added up when somebody asks.

use super::{Answer, DropReason, PassReason, Pipeline, Verdict};

/// Frames by verdict, and encapsulated ones by table and backend.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames seen.
    pub frames: u64,
    /// Encapsulated for another host.
    pub encapsulated: u64,
    /// Encapsulated for this host.
    pub local: u64,
    passed: [u64; PassReason::ALL.len()],
    dropped: [u64; DropReason::ALL.len()],
    answered: [u64; Answer::ALL.len()],
    /// By table, then by backend, in the positions of the file.
    primary: Vec<Vec<u64>>,
}

impl Counters {
    /// All zero, with room for the tables of `pipeline`.
    #[must_use]
    pub fn new(pipeline: &Pipeline) -> Self {
        let tables = pipeline.forwarding().tables();
        Self {
            primary: tables.iter().map(|table| vec![0; table.backends.len()]).collect(),
            ..Self::default()
        }
    }

    /// Counts one frame. A "too big" answer counts as a drop for that reason, whether or not it is then sent.
    #[inline]
    pub fn count(&mut self, verdict: &Verdict) {
        self.frames += 1;
        match verdict {
            Verdict::Encapsulate(done) => {
                self.encapsulated += 1;
                self.count_primary(done.table, done.backend);
            }
            Verdict::Local(done) => {
                self.local += 1;
                self.count_primary(done.table, done.backend);
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
    fn count_primary(&mut self, table: u16, backend: u16) {
        let cell = self.primary.get_mut(usize::from(table)).and_then(|t| t.get_mut(usize::from(backend)));
        if let Some(cell) = cell {
            *cell += 1;
        }
    }

    /// Counts what somebody else encapsulated for a backend, by the positions of the file.
    pub fn count_encapsulated(&mut self, table: usize, backend: usize, frames: u64) {
        if let Some(cell) = self.primary.get_mut(table).and_then(|table| table.get_mut(backend)) {
            *cell += frames;
            self.frames += frames;
            self.encapsulated += frames;
        }
    }

    /// Frames passed for that reason.
    #[must_use]
    pub fn passed(&self, reason: PassReason) -> u64 {
        self.passed.get(usize::from(reason.number())).copied().unwrap_or_default()
    }

    /// Frames dropped for that reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped.get(usize::from(reason.number())).copied().unwrap_or_default()
    }

    /// Answers of that kind.
    #[must_use]
    pub fn answered(&self, answer: Answer) -> u64 {
        self.answered.get(usize::from(answer.number())).copied().unwrap_or_default()
    }

    /// Frames encapsulated for each backend of the table at that position.
    #[must_use]
    pub fn backends(&self, table: usize) -> &[u64] {
        self.primary.get(table).map_or(&[], Vec::as_slice)
    }

    /// Adds what another worker counted. Backends are added by position: both must count for one table file.
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
