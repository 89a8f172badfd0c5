//! How far long work has come: counted where it is done, shown where somebody waits for it.
//!
//! ```text
//! verify      ████████████░░░░░░░░░░░░  48 %
//! ```
//!
//! Only on a terminal, only on standard error, and only once a second has passed: what is piped or short shows nothing.

use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Counted by any number of threads.
#[derive(Debug, Default)]
pub struct Progress {
    whole: AtomicU64,
    done: AtomicU64,
}

impl Progress {
    /// There is so much more to do.
    pub fn expect(&self, more: u64) {
        self.whole.fetch_add(more, Ordering::Relaxed);
    }

    /// So much more is done.
    pub fn advance(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
    }

    /// The line that shows it; without a bar as long as nobody said how much there is to do.
    fn line(&self, words: &str) -> String {
        const WIDTH: u64 = 24;
        let [whole, done] = [&self.whole, &self.done].map(|count| count.load(Ordering::Relaxed));
        if whole == 0 {
            return format!("\r{words:<10}  …");
        }
        let part = |of: u64| done.min(whole).saturating_mul(of) / whole;
        let full = usize::try_from(part(WIDTH)).unwrap_or(0);
        let bar: String = (0..24).map(|at| if at < full { '█' } else { '░' }).collect();
        format!("\r{words:<10}  {bar} {:>3} %", part(100))
    }
}

/// Does `work`, and shows how far it has come to whoever sits at a terminal.
pub fn shown<T>(words: &str, work: impl FnOnce(&Progress) -> T) -> T {
    let progress = Progress::default();
    if !io::stderr().is_terminal() {
        return work(&progress);
    }
    drawn(words, &progress, io::stderr(), Duration::from_secs(1), work)
}

fn drawn<T>(
    words: &str,
    progress: &Progress,
    to: impl Write + Send,
    patience: Duration,
    work: impl FnOnce(&Progress) -> T,
) -> T {
    std::thread::scope(|scope| {
        let (done, wait) = mpsc::channel::<()>();
        scope.spawn(move || draw(words, progress, to, patience, &wait));
        let result = work(progress);
        drop(done);
        result
    })
}

/// Draws until the other end of `wait` is gone, and takes the line away.
fn draw(words: &str, progress: &Progress, mut to: impl Write, patience: Duration, wait: &mpsc::Receiver<()>) {
    let mut pause = patience;
    let mut any = false;
    // A terminal that takes nothing any more is no reason to stop the work.
    while wait.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let _ = to.write_all(progress.line(words).as_bytes()).and_then(|()| to.flush());
        (pause, any) = (Duration::from_millis(100), true);
    }
    if any {
        let _ = to.write_all(b"\r\x1b[K").and_then(|()| to.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let progress = Progress::default();
        assert_eq!(progress.line("verify"), "\rverify      …");
        progress.expect(65_536);
        progress.advance(32_768);
        assert_eq!(progress.line("verify"), "\rverify      ████████████░░░░░░░░░░░░  50 %");
        progress.advance(40_000);
        assert!(progress.line("verify").ends_with("████████████████████████ 100 %"));
    }

    #[test]
    fn what_takes_long_is_shown_and_taken_away() {
        /// Says when a line was drawn.
        struct Terminal<'t>(&'t mut Vec<u8>, mpsc::Sender<()>);
        impl Write for Terminal<'_> {
            fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
                self.0.write(octets)
            }

            fn flush(&mut self) -> io::Result<()> {
                let _ = self.1.send(());
                Ok(())
            }
        }
        let (mut terminal, (drew, drawing)) = (Vec::new(), mpsc::channel());
        let progress = Progress::default();
        progress.expect(2);
        progress.advance(1);
        let work = |_: &Progress| {
            drawing.recv().unwrap();
            7
        };
        assert_eq!(drawn("build", &progress, Terminal(&mut terminal, drew), Duration::ZERO, work), 7);
        let text = String::from_utf8(terminal).unwrap();
        assert!(text.starts_with("\rbuild") && text.ends_with("\r\x1b[K"), "{text:?}");
        assert!(text.contains("50 %"), "{text:?}");
    }

    #[test]
    fn what_is_quick_shows_nothing() {
        let mut terminal = Vec::new();
        drawn("build", &Progress::default(), &mut terminal, Duration::from_secs(60), |_| ());
        assert!(terminal.is_empty());
    }
}
