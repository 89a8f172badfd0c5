//! Reports which files in a folder changed (inotify(7)). It watches folders because an editor or `tablegen`
//! writes a new file and renames it over the old one, and a watch on a file stays with the old file.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// Reports files that were written or replaced in the watched folders.
#[derive(Debug)]
pub struct Watch {
    fd: Arc<OwnedFd>,
    buffer: Box<[MaybeUninit<u8>; 4096]>,
}

/// Sets the folders that a [`Watch`] watches.
#[derive(Debug)]
pub struct Armer {
    fd: Arc<OwnedFd>,
    /// The kernel's numbers of the watched folders.
    watched: BTreeSet<i32>,
}

impl Armer {
    /// Watches these folders as they are now, and no other folder.
    pub fn watch<'p>(&mut self, folders: impl Iterator<Item = &'p Path>) -> io::Result<()> {
        // A folder that is already watched keeps its number.
        let watched = folders.map(|folder| self.add(folder)).collect::<io::Result<BTreeSet<_>>>()?;
        for former in self.watched.difference(&watched) {
            // The kernel refuses a number that it has already released, which has the same effect.
            let _ = inotify::remove_watch(&self.fd, *former);
        }
        self.watched = watched;
        Ok(())
    }

    fn add(&self, path: &Path) -> io::Result<i32> {
        // Only files that are complete: closed after writing, or renamed into the folder. And the folder
        // itself, which may be moved or removed.
        let events =
            WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
        Ok(inotify::add_watch(&self.fd, path, events)?)
    }
}

impl Watch {
    /// Creates a watch without a folder.
    pub fn open() -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { fd: Arc::new(fd), buffer: Box::new([MaybeUninit::uninit(); 4096]) })
    }

    /// The handle that sets the watched folders.
    pub fn armer(&self) -> Armer {
        Armer { fd: Arc::clone(&self.fd), watched: BTreeSet::new() }
    }

    /// Names of files that changed since the last call, without their folder; empty if no file changed. One
    /// call reads at most one buffer of events, so that a busy folder cannot hold up the caller.
    pub fn changed(&mut self) -> io::Result<Vec<OsString>> {
        let mut reader = Reader::new(&self.fd, self.buffer.as_mut_slice());
        let mut names = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    names.extend(event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).into()))
                }
                Err(Errno::AGAIN) => return Ok(names),
                Err(error) => return Err(error.into()),
            }
            if reader.is_buffer_empty() {
                return Ok(names);
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_into_the_folder_is_reported_and_a_file_elsewhere_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let mut watch = Watch::open().unwrap();
        let mut armer = watch.armer();
        armer.watch([folder.path()].into_iter()).unwrap();
        assert!(watch.changed().unwrap().is_empty());
        std::fs::write(other.path().join("new"), b"x").unwrap();
        std::fs::rename(other.path().join("new"), folder.path().join("table")).unwrap();
        std::fs::write(other.path().join("more"), b"x").unwrap();
        assert_eq!(watch.changed().unwrap(), ["table"]);
        assert!(watch.changed().unwrap().is_empty());
        // Another folder in its place. The former folder is no longer watched.
        armer.watch([other.path()].into_iter()).unwrap();
        watch.changed().unwrap();
        std::fs::write(folder.path().join("old"), b"x").unwrap();
        std::fs::write(other.path().join("new"), b"x").unwrap();
        assert_eq!(watch.changed().unwrap(), ["new"]);
    }

    #[test]
    fn events_that_do_not_fit_in_one_buffer_are_reported_by_later_calls() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = Watch::open().unwrap();
        let mut armer = watch.armer();
        armer.watch([folder.path()].into_iter()).unwrap();
        let expected: Vec<OsString> = (0..300).map(|n| format!("file-{n:03}").into()).collect();
        for name in &expected {
            std::fs::write(folder.path().join(name), b"x").unwrap();
        }
        let calls = (0..300).map(|_| watch.changed().unwrap()).take_while(|names| !names.is_empty());
        let calls: Vec<_> = calls.collect();
        assert!(calls.len() > 1);
        assert_eq!(calls.concat(), expected);
    }
}
