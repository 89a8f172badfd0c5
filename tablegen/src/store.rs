//! Files that are whole or not there: written beside, synced, renamed.
//!
//! What a killed build leaves beside is taken away by the next one. Whether its writer still lives the lock tells that it
//! holds on it: locks die with their process.

use crate::files;
use common::table::{ForwardingTable, ReadError, TableError};
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A table file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It could not be read.
    #[error("{}: {cause}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// It is no table.
    #[error("{}: {cause}", file.display())]
    Table {
        /// The file.
        file: PathBuf,
        /// Where it is wrong.
        cause: TableError,
    },
}

/// Reads a table file of either format.
pub fn load(file: &Path) -> Result<ForwardingTable, LoadError> {
    let unread = |cause| LoadError::Read { file: file.to_owned(), cause };
    let (open, len) = files::opened(file).map_err(unread)?;
    ForwardingTable::read_from(open, len).map_err(|error| match error {
        ReadError::Io(cause) => unread(cause),
        ReadError::Table(cause) => LoadError::Table { file: file.to_owned(), cause },
    })
}

/// Replaces `file` in one step. Whoever opens it sees the old content or the new, also after a crash.
///
/// A new file has mode 0600; one that exists keeps its mode and owner: never use this for a new content that may hold
/// secrets, but [`write_private`]. A symbolic link stays, and what it points to is replaced. A pipe or a device
/// (`/dev/stdout`) has no content that could be replaced, and is written to.
pub fn write(file: &Path, octets: &[u8]) -> io::Result<()> {
    write_as(file, octets, Mode::Kept)
}

/// Replaces `file` as [`write()`] does, with octets that may hold keys. The file has mode 0600 then, also where one of
/// another mode was there. Returns what the operator should know about the file that was there and its folder.
pub fn write_private(file: &Path, octets: &[u8]) -> io::Result<Vec<Exposure>> {
    let exposures = exposures(file);
    write_as(file, octets, Mode::Private).map(|()| exposures)
}

/// Who else could read or replace a file that holds keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// The file that was replaced had this mode.
    Readable(PathBuf, u32),
    /// Every user may replace files in this folder.
    Replaceable(PathBuf),
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Readable(file, mode) => write!(
                f,
                "{}: its mode was {mode:04o} and is 0600 now, as it holds keys; if others could read it, change the keys",
                file.display()
            ),
            Self::Replaceable(folder) => write!(
                f,
                "{}: every user may replace files in this folder, and so choose where packets go: chmod o-w it",
                folder.display()
            ),
        }
    }
}

fn exposures(file: &Path) -> Vec<Exposure> {
    const OTHERS_WRITE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let mode = |path: &Path| fs::metadata(path).map(|found| found.permissions().mode());
    let there = fs::metadata(file).ok().filter(Metadata::is_file);
    let readable = there.map(|there| there.permissions().mode() & 0o7777).filter(|mode| mode & 0o077 != 0);
    let place = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let folder = folder_of(&place).to_owned();
    let open = mode(&folder).is_ok_and(|mode| mode & OTHERS_WRITE != 0 && mode & STICKY == 0);
    let readable = readable.map(|mode| Exposure::Readable(file.to_owned(), mode));
    readable.into_iter().chain(open.then_some(Exposure::Replaceable(folder))).collect()
}

/// What becomes of the mode of a file that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Kept,
    /// 0600.
    Private,
}

fn write_as(file: &Path, octets: &[u8], mode: Mode) -> io::Result<()> {
    match fs::metadata(file) {
        Ok(old) if old.is_file() => replace(&fs::canonicalize(file)?, Some((&old, mode)), octets),
        Ok(old) if !old.is_dir() => OpenOptions::new().write(true).open(file)?.write_all(octets),
        Err(_) if fs::symlink_metadata(file).is_ok_and(|link| link.is_symlink()) => {
            Err(io::Error::new(io::ErrorKind::NotFound, "a symbolic link to no file"))
        }
        _ => replace(file, None, octets),
    }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// `old`: the file that is there, and what becomes of its mode.
fn replace(file: &Path, old: Option<(&Metadata, Mode)>, octets: &[u8]) -> io::Result<()> {
    let folder = folder_of(file);
    sweep(folder);
    let mut beside = beside(folder)?;
    beside.write_all(octets)?;
    if let Some((old, mode)) = old {
        take_over(beside.as_file(), old, mode)?;
    }
    beside.as_file().sync_all()?;
    beside.persist(file)?;
    File::open(folder)?.sync_all()
}

/// How files are called that are not whole yet.
const UNFINISHED: (&str, &str) = (".tablegen-", ".tmp");

/// A file of our own in `folder`, locked as long as it is open.
fn beside(folder: &Path) -> io::Result<NamedTempFile> {
    loop {
        let file = tempfile::Builder::new().prefix(UNFINISHED.0).suffix(UNFINISHED.1).tempfile_in(folder)?;
        // Where there are no locks nobody sweeps either.
        let _ = file.as_file().lock();
        // Between its making and its lock another build may have taken it for a dead one's.
        if file.as_file().metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// Takes away what killed builds left in `folder`. What cannot be looked at, locked or removed stays: this is a courtesy.
fn sweep(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let unfinished = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        name.starts_with(UNFINISHED.0) && name.ends_with(UNFINISHED.1)
    });
    for entry in unfinished.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())) {
        if let Ok(file) = File::open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Owner of the file that is replaced, and its mode unless that is to be private. Where the system does not let its
/// owner be set, the group's rights go too, as they would be another group's.
fn take_over(new: &File, old: &Metadata, mode: Mode) -> io::Result<()> {
    let now = new.metadata()?;
    let same = (now.uid(), now.gid()) == (old.uid(), old.gid());
    let owned = same || fchown(new, Some(old.uid()), Some(old.gid())).is_ok();
    let mode = match mode {
        Mode::Private => 0o600,
        Mode::Kept => old.permissions().mode() & if owned { 0o777 } else { 0o707 },
    };
    new.set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_private_and_an_old_one_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("table");
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        write(&file, b"one").unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        write(&file, b"two").unwrap();
        assert_eq!((mode(), fs::read(&file).unwrap()), (0o640, b"two".to_vec()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// What a process of another user could do before, and cannot now.
    #[test]
    fn a_private_file_has_mode_0600_whatever_was_there_and_the_operator_is_warned() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("table"), folder.path().join("link"));
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let mode = || fs::metadata(&file).unwrap().mode() & 0o7777;
        assert_eq!(write_private(&file, b"one").unwrap(), []);
        assert_eq!(mode(), 0o600);
        std::os::unix::fs::symlink("table", &link).unwrap();
        for (path, before) in [(&file, 0o644), (&link, 0o640), (&file, 0o400), (&file, 0o777)] {
            set(&file, before);
            let warned = write_private(path, b"two").unwrap();
            let expected = (before & 0o077 != 0).then(|| Exposure::Readable(path.clone(), before));
            assert_eq!((mode(), warned), (0o600, expected.into_iter().collect()));
        }
        for (before, warned) in [(0o755, false), (0o777, true), (0o1777, false)] {
            set(folder.path(), before);
            let folder = folder.path().canonicalize().unwrap();
            let expected = warned.then_some(Exposure::Replaceable(folder));
            assert_eq!(write_private(&file, b"three").unwrap(), Vec::from_iter(expected), "{before:o}");
        }
    }

    #[test]
    fn a_huge_file_is_refused_by_its_start() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("table");
        for (start, len, expected) in [
            (&b""[..], 20 << 30, "header, offset 0: expected magic TRYSTFWD"),
            (
                b"TRYSTFWD\x01\0\0\0\x01\0\0\0\xe8\x03\0\0\0\0\0\0",
                1 << 30,
                "expected 1000 octets, found 1073741824",
            ),
        ] {
            fs::write(&file, start).unwrap();
            OpenOptions::new().write(true).open(&file).unwrap().set_len(len).unwrap();
            let refused = load(&file).unwrap_err();
            assert!(
                matches!(refused, LoadError::Table { .. }) && refused.to_string().contains(expected),
                "{refused}"
            );
        }
    }

    #[test]
    fn what_a_killed_build_left_is_taken_away_and_what_is_being_written_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (dead, live, link) =
            (path(".tablegen-dead.tmp"), path(".tablegen-live.tmp"), path(".tablegen-link.tmp"));
        for file in [&dead, &live, &path("other.tmp")] {
            fs::write(file, b"half").unwrap();
        }
        std::os::unix::fs::symlink("other.tmp", &link).unwrap();
        let writer = File::open(&live).unwrap();
        writer.lock().unwrap();
        write(&path("table"), b"one").unwrap();
        assert_eq!(
            [&dead, &live, &link, &path("other.tmp")].map(|file| file.exists()),
            [false, true, true, true]
        );
        drop(writer);
        write(&path("table"), b"two").unwrap();
        assert!(!live.exists());
    }

    /// Whoever writes holds the lock, so that others at work in the same folder do not take its file.
    #[test]
    fn builds_at_once_do_not_take_each_others_files() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..8u8 {
                let file = folder.path().join(format!("table-{writer}"));
                scope.spawn(move || (0..50u8).for_each(|round| write(&file, &[writer, round]).unwrap()));
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 8);
        assert_eq!(fs::read(folder.path().join("table-3")).unwrap(), [3, 49]);
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a-folder");
        fs::create_dir(&file).unwrap();
        assert!(write(&file, b"octets").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write(&folder.path().join("missing/table"), b"octets").is_err());
    }

    #[test]
    fn a_link_stays_and_what_it_points_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("table"), folder.path().join("current"));
        std::os::unix::fs::symlink("table", &link).unwrap();
        // To nothing yet: whose mode and owner would it have?
        assert_eq!(write(&link, b"one").unwrap_err().kind(), io::ErrorKind::NotFound);
        write(&file, b"one").unwrap();
        write(&link, b"two").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_pipe_is_written_to_and_not_replaced() {
        use std::os::fd::AsRawFd as _;
        let (mut reader, writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        write(Path::new(&path), b"octets").unwrap();
        drop(writer);
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "octets");
    }

    /// Only the superuser can give files away; for others there is no other owner to keep.
    #[test]
    fn the_owner_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("table");
        write(&file, b"one").unwrap();
        if std::os::unix::fs::chown(&file, Some(12), Some(34)).is_err() {
            return;
        }
        write(&file, b"two").unwrap();
        let now = fs::metadata(&file).unwrap();
        assert_eq!((now.uid(), now.gid(), now.mode() & 0o777), (12, 34, 0o600));
    }
}
