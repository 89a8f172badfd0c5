//! Files that are whole or not there: written beside, synced, renamed.

use common::table::{ForwardingTable, TableError};
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A table file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It could not be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no table.
    #[error("{}: {source}", file.display())]
    Table {
        /// The file.
        file: PathBuf,
        /// Where it is wrong.
        source: TableError,
    },
}

/// Reads a table file of either format.
pub fn load(file: &Path) -> Result<ForwardingTable, LoadError> {
    let octets = fs::read(file).map_err(|source| LoadError::Read { file: file.to_owned(), source })?;
    ForwardingTable::read(&octets).map_err(|source| LoadError::Table { file: file.to_owned(), source })
}

/// Replaces `file` in one step. Whoever opens it sees the old content or the new, also after a crash.
///
/// A new file can be read by its owner alone, for it may hold secrets; one that exists keeps its mode.
pub fn write(file: &Path, octets: &[u8]) -> io::Result<()> {
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mode = fs::metadata(file).map_or(0o600, |old| old.permissions().mode());
    let mut beside = tempfile::NamedTempFile::new_in(folder)?;
    beside.write_all(octets)?;
    beside.as_file().set_permissions(Permissions::from_mode(mode & 0o7777))?;
    beside.as_file().sync_all()?;
    beside.persist(file)?;
    File::open(folder)?.sync_all()
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

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a-folder");
        fs::create_dir(&file).unwrap();
        assert!(write(&file, b"octets").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write(&folder.path().join("missing/table"), b"octets").is_err());
    }
}
