//! Watches folders (inotify(7)). A folder and not the file: editors and `tablegen` write beside and rename, and a
//! watch on a file follows the old one into oblivion.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use super::{check, check_len};

/// Tells when a file in one of its folders was replaced or written.
#[derive(Debug)]
pub struct Watch {
    fd: Arc<OwnedFd>,
    buffer: Box<[u8; 4096]>,
}

/// Says which folders a [`Watch`] watches.
#[derive(Debug)]
pub struct Armer {
    fd: Arc<OwnedFd>,
    /// The kernel's numbers for them.
    watched: BTreeSet<libc::c_int>,
}

impl Armer {
    /// Watches these folders as they are now, and no others.
    pub fn watch<'p>(&mut self, folders: impl Iterator<Item = &'p Path>) -> io::Result<()> {
        // A folder that is watched already keeps its number.
        let watched = folders.map(|folder| self.add(folder)).collect::<io::Result<BTreeSet<_>>>()?;
        for former in self.watched.difference(&watched) {
            // SAFETY: takes integers alone. A number that the kernel has given up already is refused, which is as good.
            let _ = unsafe { libc::inotify_rm_watch(self.fd.as_raw_fd(), *former) };
        }
        self.watched = watched;
        Ok(())
    }

    fn add(&self, path: &Path) -> io::Result<libc::c_int> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // A file that is being written is not looked at: only closed ones and those renamed to here. The folder itself
        // may be moved or removed.
        let mask = libc::IN_CLOSE_WRITE | libc::IN_MOVED_TO | libc::IN_MOVE_SELF | libc::IN_DELETE_SELF;
        // SAFETY: `path` ends in a zero and lives through the call.
        check(unsafe { libc::inotify_add_watch(self.fd.as_raw_fd(), path.as_ptr(), mask) })
    }
}

impl Watch {
    /// Watches nothing yet.
    pub fn open() -> io::Result<Self> {
        // SAFETY: takes and gives integers alone.
        let fd = check(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) })?;
        // SAFETY: the kernel has just opened `fd` for us and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd: Arc::new(fd), buffer: Box::new([0; 4096]) })
    }

    /// What says which folders are watched.
    pub fn armer(&self) -> Armer {
        Armer { fd: Arc::clone(&self.fd), watched: BTreeSet::new() }
    }

    /// Names of files that changed since the last call, without their folder; empty when there are none. That events
    /// were lost, or that something happened to a folder, has no name and is not among them.
    pub fn changed(&mut self) -> io::Result<Vec<OsString>> {
        let len = {
            let buffer = &mut self.buffer;
            // SAFETY: the kernel writes at most `buffer.len()` octets into `buffer`.
            check_len(unsafe { libc::read(self.fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) })
        };
        match len {
            Ok(len) => Ok(names(self.buffer.get(..len).unwrap_or_default())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `inotify_event`: i32 wd · u32 mask · u32 cookie · u32 len · len octets of name, padded with zeros.
fn names(mut events: &[u8]) -> Vec<OsString> {
    let mut found = Vec::new();
    while let Some((header, rest)) = events.split_first_chunk::<16>() {
        let [.., a, b, c, d] = *header;
        let len = u32::from_ne_bytes([a, b, c, d]);
        let Some((name, rest)) = rest.split_at_checked(usize::try_from(len).unwrap_or(usize::MAX)) else {
            break;
        };
        let name = name.split(|&octet| octet == 0).next().unwrap_or_default();
        if !name.is_empty() {
            found.push(OsStr::from_bytes(name).to_os_string());
        }
        events = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_into_the_folder_is_seen_and_a_file_elsewhere_is_not() {
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
        // Another folder in its place; what is no longer watched is silent.
        armer.watch([other.path()].into_iter()).unwrap();
        watch.changed().unwrap();
        std::fs::write(folder.path().join("old"), b"x").unwrap();
        std::fs::write(other.path().join("new"), b"x").unwrap();
        assert_eq!(watch.changed().unwrap(), ["new"]);
    }

    #[test]
    fn every_cut_of_an_answer_is_read_without_a_panic() {
        let mut answer = Vec::new();
        for name in [b"table\0\0\0".as_slice(), b"", b"config.yaml\0\0\0\0\0"] {
            answer.extend([0; 12]);
            answer.extend(u32::try_from(name.len()).unwrap().to_ne_bytes());
            answer.extend(name);
        }
        assert_eq!(names(&answer), ["table", "config.yaml"]);
        for cut in 0..answer.len() {
            assert!(names(&answer[..cut]).len() <= 1, "cut at {cut}");
        }
        answer[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(names(&answer).is_empty());
    }
}
