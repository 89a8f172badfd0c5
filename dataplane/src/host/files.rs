//! Reads regular files with a limit on their length, and opens them without blocking.
//!
//! Opening a pipe waits for its writer, and a device may never end, so neither is read. A file on a file
//! system that hangs blocks its reader, so a running director reads in a separate thread
//! (`director::table_file`).

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use common::bounded::{self, MAX_TEXT_FILE};

/// Opens a regular file.
pub(crate) fn open(path: &Path) -> io::Result<(File, Metadata)> {
    opened(path, 0)
}

/// Opens a regular file with additional flags of open(2).
pub(crate) fn opened(path: &Path, flags: i32) -> io::Result<(File, Metadata)> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC | flags;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok((file, found))
}

/// Reads a YAML text of at most [`MAX_TEXT_FILE`] octets.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    let (file, found) = open(path)?;
    bounded::text(file, Some(found.len()), MAX_TEXT_FILE)
}

/// Identifies a file and its content: two files that differ have different stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// Seconds and nanoseconds.
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// For two stamps of one open file: whether nothing was written to it in between. The time of the inode's
    /// change is ignored, because it also changes when another file takes the name.
    pub(crate) fn has_content_of(self, earlier: Self) -> bool {
        (self.size, self.modified) == (earlier.size, earlier.modified)
    }
}
