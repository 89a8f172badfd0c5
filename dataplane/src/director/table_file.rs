//! The table's file while a director runs: decides when to read it again. Works in a thread of its own, which
//! may block.
//!
//! ```text
//! inotify ──┐ fast                           ┌─► Event::Config   read after SIGHUP
//! SIGHUP ───┼─ wake ─► thread: stat ─► read ─┤
//! each second ┘                              └─► Event::Table    new, or why it cannot be read
//! ```
//!
//! - Once a second one stat(2) compares the file that the path leads to *now* with the file that was last
//!   read: device, inode, size, times. So no change is missed, whatever happens to links, folders and
//!   inotify. inotify only makes it faster.
//! - One file is read at a time. Requests that arrive meanwhile are handled afterwards, together, with the
//!   file as it is then.
//! - A file that is not a table is read again only when it changes or SIGHUP arrives. An error of the system
//!   (no descriptors, no memory, a disk) may be temporary, so the file is read again after 1, 2, 4 and then
//!   every 8 s.
//! - The director does not wait for the thread at exit, because it may be blocked by a file system that
//!   hangs.
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::events::Event;
use super::{folder, log};
use crate::control::config::{Config, ConfigError};
use crate::control::table::{LoadError, LoadedTable, load_stamped};
use crate::host::files::Stamp;
use crate::host::sys::inotify::Armer;

/// Why the file is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadReason {
    /// Something changed in its folder, or a second has passed.
    Look = 1,
    /// The file was written or replaced.
    Changed = 2,
    /// SIGHUP: the result is reported even if it was reported before.
    Reload = 4,
    /// The table could not be used because the kernel could not be queried; it is read again after a pause.
    Retry = 8,
}

/// Interval between two checks of the file.
const TICK: Duration = Duration::from_secs(1);
/// The first and the longest pause after a temporary error.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));

/// Wakes the thread that reads the file.
#[derive(Clone, Debug)]
pub(crate) struct Waker {
    reasons: Arc<AtomicU8>,
    wake: Sender<()>,
}

impl Waker {
    pub(crate) fn wake(&self, reason: ReadReason) {
        self.reasons.fetch_or(reason as u8, Ordering::Relaxed);
        // If the channel is full, the thread will wake anyway and see all reasons.
        let _ = self.wake.try_send(());
    }
}

/// Starts the thread. It reads the configuration with `config`, and ends when the receiver of its events is
/// gone.
pub(crate) fn follow(
    file: TableFile,
    armer: Armer,
    config: impl Fn() -> Result<Config, ConfigError> + Send + 'static,
    events: Sender<Event>,
) -> io::Result<Waker> {
    let (wake, woken) = bounded(1);
    let waker = Waker { reasons: Arc::default(), wake };
    let reasons = Arc::clone(&waker.reasons);
    let reader = Reader { file, armer, config, events, reasons };
    thread::Builder::new().name("table-file".into()).spawn(move || reader.run(&woken))?;
    Ok(waker)
}

struct Reader<C> {
    file: TableFile,
    armer: Armer,
    config: C,
    events: Sender<Event>,
    reasons: Arc<AtomicU8>,
}

impl<C: Fn() -> Result<Config, ConfigError>> Reader<C> {
    fn run(mut self, woken: &Receiver<()>) {
        while woken.recv_timeout(TICK) != Err(RecvTimeoutError::Disconnected) {
            let reasons = self.reasons.swap(0, Ordering::Relaxed);
            if self.turn(|reason| reasons & reason as u8 != 0).is_none() {
                break;
            }
        }
    }

    /// Handles the reasons of a wake-up. `None` once the receiver of events is gone.
    fn turn(&mut self, asked: impl Fn(ReadReason) -> bool) -> Option<()> {
        if asked(ReadReason::Reload) {
            self.events.send(Event::Config((self.config)())).ok()?;
        }
        if asked(ReadReason::Retry) {
            self.file.retry(Instant::now());
        }
        let why = [ReadReason::Reload, ReadReason::Changed]
            .into_iter()
            .find(|why| asked(*why))
            .unwrap_or(ReadReason::Look);
        let before = self.file.seen;
        let outcome = self.file.look(why, Instant::now());
        // A change that inotify did not report may be in a folder that it does not watch.
        if why == ReadReason::Reload || (why == ReadReason::Look && self.file.seen != before) {
            arm(&mut self.armer, &self.file.path);
        }
        outcome.map_or(Some(()), |outcome| self.events.send(Event::Table(outcome)).ok())
    }
}

/// Watches the folder of the path and, if the path is a link, that of its target. Changes are noticed without
/// it too, but later.
pub(crate) fn arm(armer: &mut Armer, path: &Path) {
    let target = fs::canonicalize(path).ok();
    let target = target.as_deref().map(folder).filter(|target| *target != folder(path));
    if let Err(error) = armer.watch([Some(folder(path)), target].into_iter().flatten()) {
        let path = folder(path).display();
        log(format_args!("{path} is not watched, table changes are noticed within a second: {error}"));
    }
}

/// The file, and its state at the last check.
#[derive(Debug)]
pub(crate) struct TableFile {
    path: PathBuf,
    seen: Seen,
    /// The last reported error, to report it only once.
    reported: Option<String>,
    /// When the file is read again although it did not change.
    retry_at: Option<Instant>,
    /// The next pause before a retry.
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Missing,
    /// stat(2) failed.
    Unreadable,
    File(Stamp),
}

impl Seen {
    fn at(path: &Path) -> Self {
        match fs::metadata(path) {
            Ok(found) => Self::File(Stamp::of(&found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Missing,
            Err(_) => Self::Unreadable,
        }
    }
}

impl TableFile {
    /// Reads the file for the first time.
    pub(crate) fn open(path: &Path) -> Result<(Self, LoadedTable), LoadError> {
        let (stamp, table) = load_stamped(path);
        let seen = stamp.map_or(Seen::Missing, Seen::File);
        Ok((Self { path: path.to_owned(), seen, reported: None, retry_at: None, pause: PAUSES.0 }, table?))
    }

    /// Reads the file if there is a reason to. `None` if there is nothing to report.
    fn look(&mut self, why: ReadReason, now: Instant) -> Option<Result<LoadedTable, LoadError>> {
        let found = Seen::at(&self.path);
        let due = self.retry_at.is_some_and(|time| time <= now);
        if why == ReadReason::Look && found == self.seen && !due {
            return None;
        }
        if found != self.seen || why == ReadReason::Reload {
            (self.retry_at, self.pause) = (None, PAUSES.0);
        }
        // A file may be missing for a moment while it is replaced: not an error.
        if found == Seen::Missing && why != ReadReason::Reload {
            self.seen = found;
            return None;
        }
        let (stamp, outcome) = load_stamped(&self.path);
        self.seen = stamp.map_or(found, Seen::File);
        self.judge(why, outcome, now)
    }

    fn judge(
        &mut self,
        why: ReadReason,
        outcome: Result<LoadedTable, LoadError>,
        now: Instant,
    ) -> Option<Result<LoadedTable, LoadError>> {
        let Err(error) = &outcome else {
            (self.reported, self.retry_at) = (None, None);
            return Some(outcome);
        };
        if error.may_pass() {
            self.retry(now);
        } else {
            self.retry_at = None;
        }
        // The same decoding error of another file is a new error; an error of the system is the same for
        // both.
        let text = if error.may_pass() { format!("{error:?}") } else { format!("{:?} {error:?}", self.seen) };
        let is_known = self.reported.as_ref() == Some(&text);
        self.reported = Some(text);
        (why == ReadReason::Reload || !is_known).then_some(outcome)
    }

    /// Schedules another read after a pause; the next pause is twice as long.
    fn retry(&mut self, now: Instant) {
        self.retry_at = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSES.1);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn file(path: &Path) -> TableFile {
        let path = path.to_owned();
        TableFile { path, seen: Seen::Missing, reported: None, retry_at: None, pause: PAUSES.0 }
    }

    #[test]
    fn a_file_that_is_not_a_table_is_read_again_when_it_changes_or_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.table");
        let (mut file, now) = (file(&path), Instant::now());
        let mut look = |why| file.look(why, now).map(|read| read.unwrap_err().may_pass());
        assert_eq!(look(ReadReason::Look), None, "nothing there");
        assert_eq!(look(ReadReason::Reload), Some(true), "reported on request");
        fs::write(&path, "no table").unwrap();
        assert_eq!(look(ReadReason::Look), Some(false));
        assert_eq!([ReadReason::Look, ReadReason::Changed].map(&mut look), [None, None], "the same");
        assert_eq!(look(ReadReason::Reload), Some(false));
        for round in 0..3 {
            fs::write(folder.path().join("new"), format!("no table {round}")).unwrap();
            fs::rename(folder.path().join("new"), &path).unwrap();
            assert_eq!([ReadReason::Look, ReadReason::Look].map(&mut look), [Some(false), None], "another");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(look(ReadReason::Changed), None);
    }

    /// The system refuses a link to itself as too many links: a temporary error, also for root.
    #[test]
    fn an_error_of_the_system_is_reported_once_and_retried_after_one_two_four_and_eight_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.table");
        symlink("web.table", &path).unwrap();
        let (mut file, start) = (file(&path), Instant::now());
        assert!(file.look(ReadReason::Look, start).unwrap().unwrap_err().may_pass());
        let mut time = start;
        for seconds in [1, 2, 4, 8, 8] {
            let next = time + Duration::from_secs(seconds);
            assert_eq!(file.retry_at, Some(next));
            assert!(file.look(ReadReason::Look, next - Duration::from_millis(1)).is_none());
            assert_eq!(file.retry_at, Some(next), "not tried before");
            assert!(file.look(ReadReason::Look, next).is_none(), "reported once");
            time = next;
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, "no table").unwrap();
        assert!(!file.look(ReadReason::Look, time).unwrap().unwrap_err().may_pass());
        assert_eq!(file.retry_at, None);
    }
}
