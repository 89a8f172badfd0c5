//! Loads the table file that a configuration names.

use std::io;
use std::path::{Path, PathBuf};

use common::table::{ForwardingTable, ReadError, TableError, glb};

use super::config::{GlbFields, NotGlb};
use crate::host::files::{Stamp, open};

/// Loads a forwarding table.
pub(crate) fn load(path: &Path) -> Result<LoadedTable, LoadError> {
    load_stamped(path).1
}

/// Loads a forwarding table. Also returns the stamp of its file, if one could be opened. A file that changed
/// while it was read is not a table.
pub(crate) fn load_stamped(path: &Path) -> (Option<Stamp>, Result<LoadedTable, LoadError>) {
    let unread = |error| LoadError::Unreadable(path.to_owned(), error);
    let (file, found) = match open(path) {
        Ok(opened) => opened,
        Err(error) => return (None, Err(unread(error))),
    };
    let before = Stamp::of(&found);
    let read = ForwardingTable::octets_from(&file, Some(found.len()));
    match file.metadata() {
        Ok(after) if Stamp::of(&after).has_content_of(before) => {}
        Ok(_) => return (Some(before), Err(unread(io::Error::other("it changed while it was read")))),
        Err(error) => return (Some(before), Err(unread(error))),
    }
    let loaded = read.and_then(|octets| {
        Ok(LoadedTable { is_glb: octets.starts_with(&glb::MAGIC), table: ForwardingTable::read(&octets)? })
    });
    let loaded = loaded.map_err(|error| match error {
        ReadError::Io(error) => unread(error),
        ReadError::Table(error) => LoadError::Table(path.to_owned(), error),
    });
    (Some(before), loaded)
}

/// A table as its file defines it.
#[derive(Debug)]
pub(crate) struct LoadedTable {
    table: ForwardingTable,
    /// Whether it is a GLB Director file, which does not contain its hash fields.
    is_glb: bool,
}

impl LoadedTable {
    /// The table with the hash fields of the configuration, and whether GLB's default fields are assumed
    /// because the configuration has none. `path` is for the error.
    ///
    /// # Errors
    /// [`LoadError::NotGlb`] if `fields` are given for a file that contains its own.
    pub(crate) fn with_fields(
        self,
        path: &Path,
        fields: Option<GlbFields>,
    ) -> Result<(ForwardingTable, bool), LoadError> {
        match fields {
            Some(_) if !self.is_glb => Err(LoadError::NotGlb(path.to_owned(), NotGlb)),
            Some(GlbFields { hash_fields, alt_hash_fields }) => {
                Ok((glb::with_fields(self.table, hash_fields, alt_hash_fields), false))
            }
            None => Ok((self.table, self.is_glb)),
        }
    }
}

/// Why a table could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The file could not be read.
    #[error("{}", .0.display())]
    Unreadable(PathBuf, #[source] io::Error),
    /// The file is not a table.
    #[error("{}", .0.display())]
    Table(PathBuf, #[source] TableError),
    /// The configuration gives hash fields for a file that contains its own.
    #[error("{}", .0.display())]
    NotGlb(PathBuf, #[source] NotGlb),
}

impl LoadError {
    /// Whether the error may be temporary. It is not if the file itself is invalid.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreadable(_, error) if error.kind() != io::ErrorKind::InvalidInput)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::text;
    use std::fs::File;

    /// If opening blocked, this test would never end.
    #[test]
    fn a_path_that_is_not_a_regular_file_is_refused_without_blocking() {
        let (_reader, writer) = io::pipe().unwrap();
        let pipe = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer)));
        for path in [pipe, PathBuf::from("/dev/zero"), PathBuf::from("/")] {
            let read = load(&path);
            assert!(
                matches!(&read, Err(error @ LoadError::Unreadable(..)) if !error.may_pass()),
                "{path:?}: {read:?}"
            );
            assert_eq!(text(&path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_huge_file_is_refused_by_its_start_and_a_huge_text_by_its_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge");
        File::create(&path).unwrap().set_len(20 << 30).unwrap();
        let refused = load(&path);
        assert!(
            matches!(&refused, Err(LoadError::Table(_, error)) if error.to_string().contains("magic")),
            "{refused:?}"
        );
        assert_eq!(text(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
