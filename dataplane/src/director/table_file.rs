//! The table's file while a director runs: when it is read again, in a thread that may wait.
//!
//! ```text
//! inotify ──┐ quick                          ┌─► Event::Config   read after SIGHUP
//! SIGHUP ───┼─ poke ─► thread: stat ─► read ─┤
//! each second ┘                              └─► Event::Table    new, or why it is not read
//! ```
//!
//! - Once a second the file that the path leads to *now* is looked at (one stat(2)) and compared with the one that was
//!   read last: device, inode, size, times. So no change is missed, whatever becomes of links, folders and inotify,
//!   which only makes it quicker.
//! - One file is read at a time. What is asked for meanwhile is done afterwards, once, and reads what is there then.
//! - A file that is no table is not read again before it changes, or SIGHUP comes. An error of the system (no
//!   descriptors, no memory, a disk) may pass, so the file is read again, after 1, 2, 4 and then every 8 s.
//! - The thread is not waited for at exit: it may be waiting for a file system that hangs.

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

/// Why the file is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poke {
    /// Something happened near it, or a second has passed.
    Look = 1,
    /// It was written or replaced.
    Changed = 2,
    /// SIGHUP: what it is now is reported, also if it was before.
    Reload = 4,
    /// What was read could not be taken over for want of something, and is read again after a pause.
    Retry = 8,
}

/// How often the file is looked at.
const TICK: Duration = Duration::from_secs(1);
/// The first pause after an error that may pass, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));

/// Asks the thread that reads.
#[derive(Clone, Debug)]
pub(crate) struct Poker {
    pokes: Arc<AtomicU8>,
    wake: Sender<()>,
}

impl Poker {
    pub(crate) fn poke(&self, poke: Poke) {
        self.pokes.fetch_or(poke as u8, Ordering::Relaxed);
        // Full: it will wake, and look then at all that was asked for.
        let _ = self.wake.try_send(());
    }
}

/// Starts the thread. It reads the configuration by `config`, and ends when nobody takes its events any more.
pub(crate) fn follow(
    file: TableFile,
    armer: Armer,
    config: impl Fn() -> Result<Config, ConfigError> + Send + 'static,
    events: Sender<Event>,
) -> io::Result<Poker> {
    let (wake, woken) = bounded(1);
    let poker = Poker { pokes: Arc::default(), wake };
    let pokes = Arc::clone(&poker.pokes);
    let reader = Reader { file, armer, config, events, pokes };
    thread::Builder::new().name("table-file".into()).spawn(move || reader.run(&woken))?;
    Ok(poker)
}

struct Reader<C> {
    file: TableFile,
    armer: Armer,
    config: C,
    events: Sender<Event>,
    pokes: Arc<AtomicU8>,
}

impl<C: Fn() -> Result<Config, ConfigError>> Reader<C> {
    fn run(mut self, woken: &Receiver<()>) {
        while woken.recv_timeout(TICK) != Err(RecvTimeoutError::Disconnected) {
            let pokes = self.pokes.swap(0, Ordering::Relaxed);
            if self.turn(|poke| pokes & poke as u8 != 0).is_none() {
                break;
            }
        }
    }

    /// None once nobody takes events.
    fn turn(&mut self, asked: impl Fn(Poke) -> bool) -> Option<()> {
        if asked(Poke::Reload) {
            self.events.send(Event::Config((self.config)())).ok()?;
        }
        if asked(Poke::Retry) {
            self.file.retry(Instant::now());
        }
        let why = [Poke::Reload, Poke::Changed].into_iter().find(|why| asked(*why)).unwrap_or(Poke::Look);
        let before = self.file.seen;
        let outcome = self.file.look(why, Instant::now());
        // What inotify did not tell may have happened where it does not look.
        if why == Poke::Reload || (why == Poke::Look && self.file.seen != before) {
            arm(&mut self.armer, &self.file.path);
        }
        outcome.map_or(Some(()), |outcome| self.events.send(Event::Table(outcome)).ok())
    }
}

/// Watches the folder of the path and, behind a link, that of the file. Changes are noticed without it too, later.
pub(crate) fn arm(armer: &mut Armer, path: &Path) {
    let target = fs::canonicalize(path).ok();
    let target = target.as_deref().map(folder).filter(|target| *target != folder(path));
    if let Err(error) = armer.watch([Some(folder(path)), target].into_iter().flatten()) {
        let path = folder(path).display();
        log(format_args!("{path} is not watched, changes of the table are noticed within a second: {error}"));
    }
}

/// The file, and what was last found in its place.
#[derive(Debug)]
pub(crate) struct TableFile {
    path: PathBuf,
    seen: Seen,
    /// The last error that was reported, to report it once.
    reported: Option<String>,
    /// When it is read again although it did not change.
    again: Option<Instant>,
    /// The next pause before that.
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Missing,
    /// The system does not let it be looked at.
    Hidden,
    File(Stamp),
}

impl Seen {
    fn at(path: &Path) -> Self {
        match fs::metadata(path) {
            Ok(found) => Self::File(Stamp::of(&found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Missing,
            Err(_) => Self::Hidden,
        }
    }
}

impl TableFile {
    /// Reads it for the first time.
    pub(crate) fn open(path: &Path) -> Result<(Self, LoadedTable), LoadError> {
        let (stamp, table) = load_stamped(path);
        let seen = stamp.map_or(Seen::Missing, Seen::File);
        Ok((Self { path: path.to_owned(), seen, reported: None, again: None, pause: PAUSES.0 }, table?))
    }

    /// Reads it if there is a reason to. None if there is nothing to report.
    fn look(&mut self, why: Poke, now: Instant) -> Option<Result<LoadedTable, LoadError>> {
        let found = Seen::at(&self.path);
        let due = self.again.is_some_and(|at| at <= now);
        if why == Poke::Look && found == self.seen && !due {
            return None;
        }
        if found != self.seen || why == Poke::Reload {
            (self.again, self.pause) = (None, PAUSES.0);
        }
        // Between the removal of one and the arrival of the next nothing is wrong.
        if found == Seen::Missing && why != Poke::Reload {
            self.seen = found;
            return None;
        }
        let (stamp, outcome) = load_stamped(&self.path);
        self.seen = stamp.map_or(found, Seen::File);
        self.judge(why, outcome, now)
    }

    fn judge(
        &mut self,
        why: Poke,
        outcome: Result<LoadedTable, LoadError>,
        now: Instant,
    ) -> Option<Result<LoadedTable, LoadError>> {
        let Err(error) = &outcome else {
            (self.reported, self.again) = (None, None);
            return Some(outcome);
        };
        if error.may_pass() {
            self.retry(now);
        } else {
            self.again = None;
        }
        // The same error of another file is another one; that of the system is the same for both.
        let text = if error.may_pass() { format!("{error:?}") } else { format!("{:?} {error:?}", self.seen) };
        let is_known = self.reported.as_ref() == Some(&text);
        self.reported = Some(text);
        (why == Poke::Reload || !is_known).then_some(outcome)
    }

    /// Has it read again after a pause; the next pause is twice as long.
    fn retry(&mut self, now: Instant) {
        self.again = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSES.1);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn file(path: &Path) -> TableFile {
        let path = path.to_owned();
        TableFile { path, seen: Seen::Missing, reported: None, again: None, pause: PAUSES.0 }
    }

    #[test]
    fn what_is_no_table_is_read_again_when_it_changes_or_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.table");
        let (mut file, now) = (file(&path), Instant::now());
        let mut look = |why| file.look(why, now).map(|read| read.unwrap_err().may_pass());
        assert_eq!(look(Poke::Look), None, "nothing there");
        assert_eq!(look(Poke::Reload), Some(true), "said on request");
        fs::write(&path, "no table").unwrap();
        assert_eq!(look(Poke::Look), Some(false));
        assert_eq!([Poke::Look, Poke::Changed].map(&mut look), [None, None], "the same");
        assert_eq!(look(Poke::Reload), Some(false));
        for round in 0..3 {
            fs::write(folder.path().join("new"), format!("no table {round}")).unwrap();
            fs::rename(folder.path().join("new"), &path).unwrap();
            assert_eq!([Poke::Look, Poke::Look].map(&mut look), [Some(false), None], "another");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(look(Poke::Changed), None);
    }

    /// A link to itself is refused by the system as too many links: an error that may pass, and that root gets too.
    #[test]
    fn an_error_of_the_system_is_said_once_and_tried_again_after_one_two_four_and_eight_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.table");
        symlink("web.table", &path).unwrap();
        let (mut file, start) = (file(&path), Instant::now());
        assert!(file.look(Poke::Look, start).unwrap().unwrap_err().may_pass());
        let mut at = start;
        for seconds in [1, 2, 4, 8, 8] {
            let next = at + Duration::from_secs(seconds);
            assert_eq!(file.again, Some(next));
            assert!(file.look(Poke::Look, next - Duration::from_millis(1)).is_none());
            assert_eq!(file.again, Some(next), "not tried before");
            assert!(file.look(Poke::Look, next).is_none(), "said once");
            at = next;
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, "no table").unwrap();
        assert!(!file.look(Poke::Look, at).unwrap().unwrap_err().may_pass());
        assert_eq!(file.again, None);
    }
}
