//! Progress of long computations. The computation counts; a bar on standard error shows the count.
//!
//! ```text
//! verify      ████████████░░░░░░░░░░░░  48 %
//! ```
//!
//! The bar appears only on a terminal and only after one second, so that pipes and short commands show nothing.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// A computation is silent for this time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two updates of the bar.
const UPDATE: Duration = Duration::from_millis(100);

/// The progress of a computation, in its own units. Any number of threads may count.
#[derive(Debug, Default)]
pub struct Progress {
    whole: AtomicU64,
    done: AtomicU64,
}

impl Progress {
    /// Adds `more` units to the work that is to be done.
    pub fn expect(&self, more: u64) {
        self.whole.fetch_add(more, Ordering::Relaxed);
    }

    /// Adds `more` units to the work that is done.
    pub fn advance(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
    }

    /// Copies the counts to a bar. Without a known amount of work the bar shows no percentage.
    fn show(&self, bar: &ProgressBar) {
        let [whole, done] = [&self.whole, &self.done].map(|count| count.load(Ordering::Relaxed));
        let template = if whole == 0 { "{msg:10}  …" } else { "{msg:10}  {bar:24} {percent:>3} %" };
        let style = ProgressStyle::with_template(template).expect("invariant: the template is valid");
        bar.set_style(style.progress_chars("█░"));
        bar.set_length(whole);
        bar.set_position(done.min(whole));
    }
}

/// Runs `work`, and shows its progress if standard error is a terminal.
pub(crate) fn shown<T>(words: &'static str, work: impl FnOnce(&Progress) -> T) -> T {
    let progress = Progress::default();
    if !io::stderr().is_terminal() {
        return work(&progress);
    }
    drawn(words, &progress, ProgressDrawTarget::stderr(), PATIENCE, work)
}

fn drawn<T>(
    words: &'static str,
    progress: &Progress,
    target: ProgressDrawTarget,
    patience: Duration,
    work: impl FnOnce(&Progress) -> T,
) -> T {
    std::thread::scope(|scope| {
        let (done, wait) = mpsc::channel::<()>();
        scope.spawn(move || draw(words, progress, target, patience, &wait));
        let result = work(progress);
        drop(done);
        result
    })
}

/// Draws the bar until the sender of `wait` is dropped, then removes it.
fn draw(
    words: &'static str,
    progress: &Progress,
    target: ProgressDrawTarget,
    patience: Duration,
    wait: &mpsc::Receiver<()>,
) {
    if wait.recv_timeout(patience) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let bar = ProgressBar::with_draw_target(None, target).with_message(words);
    loop {
        progress.show(&bar);
        bar.tick();
        if wait.recv_timeout(UPDATE) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    bar.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::sync::{Arc, Mutex};

    /// A terminal that keeps what is written, and reports each line.
    #[derive(Clone, Debug)]
    struct Terminal {
        written: Arc<Mutex<String>>,
        line: mpsc::Sender<()>,
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.written.lock().unwrap().push_str(text);
            let _ = self.line.send(());
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.written.lock().unwrap().push_str("<cleared>");
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn terminal() -> (Terminal, mpsc::Receiver<()>) {
        let (line, lines) = mpsc::channel();
        (Terminal { written: Arc::default(), line }, lines)
    }

    #[test]
    fn long_work_is_shown_and_its_bar_removed() {
        let (terminal, lines) = terminal();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let progress = Progress::default();
        let result = drawn("verify", &progress, target, Duration::ZERO, |progress| {
            progress.expect(65_536);
            progress.advance(32_768);
            // The work ends when the bar was drawn with these counts.
            (0..1_000).find(|_| {
                lines.recv_timeout(Duration::from_secs(10)).unwrap();
                terminal.written.lock().unwrap().contains(" 50 %")
            })
        });
        assert!(result.is_some());
        let written = terminal.written.lock().unwrap().clone();
        assert!(written.contains("verify      ████████████░░░░░░░░░░░░  50 %"), "{written}");
        assert!(written.ends_with("<cleared>"), "{written}");
    }

    #[test]
    fn short_work_shows_nothing() {
        let (terminal, _lines) = terminal();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        drawn("verify", &Progress::default(), target, Duration::from_secs(60), |progress| progress.expect(1));
        assert_eq!(*terminal.written.lock().unwrap(), "");
    }
}
