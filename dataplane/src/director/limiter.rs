//! Limits the answers that a worker sends: a token bucket, outside of the packet path, which has no clock.

use std::time::{Duration, Instant};

/// A token bucket that holds the answers of one second.
#[derive(Debug)]
pub(crate) struct Limiter {
    tokens: u32,
    filled: Instant,
}

impl Limiter {
    pub(crate) fn new(now: Instant) -> Self {
        Self { tokens: 0, filled: now.checked_sub(Duration::from_secs(1)).unwrap_or(now) }
    }

    /// Takes a token if there is one; returns whether there was.
    pub(crate) fn allows(&mut self, now: Instant, per_second: u32) -> bool {
        self.fill(now, per_second);
        let allowed = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        allowed
    }

    /// Adds whole tokens, and advances the clock only by the time that they stand for.
    fn fill(&mut self, now: Instant, per_second: u32) {
        self.tokens = self.tokens.min(per_second);
        if per_second == 0 {
            return;
        }
        let nanos = now.saturating_duration_since(self.filled).as_nanos();
        let earned = nanos * u128::from(per_second) / NANOS;
        if earned >= u128::from(per_second - self.tokens) {
            self.tokens = per_second;
            self.filled = now;
        } else {
            #[expect(clippy::cast_possible_truncation, reason = "less than `per_second`")]
            let earned = earned as u32;
            self.tokens += earned;
            let used = u128::from(earned) * NANOS / u128::from(per_second);
            #[expect(clippy::cast_possible_truncation, reason = "at most a second")]
            let used = Duration::from_nanos(used as u64);
            self.filled += used;
        }
    }
}

const NANOS: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(limiter: &mut Limiter, at: Instant, rate: u32, tries: u32) -> usize {
        (0..tries).filter(|_| limiter.allows(at, rate)).count()
    }

    #[test]
    fn the_answers_of_one_second_at_once_and_then_the_rate() {
        let start = Instant::now();
        let mut limiter = Limiter::new(start);
        assert_eq!(allowed(&mut limiter, start, 100, 1000), 100);
        assert_eq!(allowed(&mut limiter, start + Duration::from_millis(50), 100, 1000), 5);
        assert_eq!(allowed(&mut limiter, start + Duration::from_secs(60), 100, 1000), 100);
    }

    #[test]
    fn parts_of_a_token_are_not_lost() {
        let start = Instant::now();
        let mut limiter = Limiter::new(start);
        allowed(&mut limiter, start, 3, 10);
        let sent: usize = (1..=1000)
            .map(|step| allowed(&mut limiter, start + Duration::from_millis(step * 10), 3, 5))
            .sum();
        assert!((29..=30).contains(&sent), "3 a second for 10 s: {sent}");
    }

    #[test]
    fn zero_means_never_and_time_that_goes_back_adds_nothing() {
        let start = Instant::now();
        let mut limiter = Limiter::new(start);
        assert_eq!(allowed(&mut limiter, start, 0, 10), 0);
        assert_eq!(allowed(&mut limiter, start, 5, 10), 5);
        assert_eq!(allowed(&mut limiter, start.checked_sub(Duration::from_millis(1)).unwrap(), 5, 10), 0);
    }
}
