//! A temporary folder for the files of a run, removed at its end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The folders that exist now, for [`remove_all`].
static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes all folders of this process, which is about to be ended by a signal.
pub fn remove_all() {
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    for path in live.drain(..) {
        remove(&path);
    }
}

/// Errors are ignored: the system cleans its temporary folder itself.
fn remove(path: &Path) {
    drop(fs::remove_dir_all(path));
}

/// A new folder in the system's temporary folder.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates the folder, readable for its owner only.
    pub fn new() -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tryst-{}-{number}", process::id()));
        let mut builder = fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path)?;
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        Ok(Self(path))
    }

    /// The path of a file with this name.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a temporary file and renames it, so that no reader sees a partial file.
    pub fn write(&self, name: &str, octets: impl AsRef<[u8]>) -> io::Result<PathBuf> {
        let (path, beside) = (self.file(name), self.file(&format!("{name}.new")));
        fs::write(&beside, octets)?;
        fs::rename(&beside, &path)?;
        Ok(path)
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| *path != self.0);
        remove(&self.0);
    }
}
