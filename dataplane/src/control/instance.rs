//! The instance lock: a single program processes an interface's frames. Two directors would forward each
//! packet twice. And a packet that a redirector's kernel program decapsulates looks to a director like a
//! client's packet, which it would forward again.
//!
//! It is a file lock (flock(2)) in the [runtime folder](crate::host::runtime), where no other user can hold
//! it. The kernel releases it when the process ends, for any reason; an empty file remains, which the next
//! start uses. The file's name contains the inode of the network namespace and the index of the interface,
//! both unique while they exist. Programs of different users see each other's lock only if they share the
//! folder, as root and the user of `/run/tryst` do.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, bail};

use crate::host::runtime::RuntimeFolder;
use crate::host::sys::interface::Interface;

/// The lock of an interface. While it exists, no other process that shares the runtime folder gets it.
#[derive(Debug)]
pub(crate) struct InstanceLock {
    folder: RuntimeFolder,
    /// Identifies the network namespace and the interface in file names.
    key: String,
    _file: File,
}

impl InstanceLock {
    /// # Errors
    /// If another process holds it, or there is no folder that only this user can write to.
    pub(crate) fn on(interface: &Interface, log: impl Fn(std::fmt::Arguments<'_>)) -> anyhow::Result<Self> {
        Self::within(RuntimeFolder::open(log)?, interface)
    }

    fn within(folder: RuntimeFolder, interface: &Interface) -> anyhow::Result<Self> {
        let namespace = fs::metadata("/proc/thread-self/ns/net").context("the network namespace")?.ino();
        let key = format!("{namespace}-{}", interface.index);
        let name = lock_name(&key);
        for _ in 0..ATTEMPTS {
            let mut file =
                folder.open_or_make(&name).with_context(|| folder.shown(&name).display().to_string())?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => bail!(
                    "{}: another director, or a redirector in mode auto or xdp, processes its frames already ({}); a \
                     redirector on the host of a director runs in mode socket",
                    interface.name,
                    holder(&mut file)
                ),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| folder.shown(&name).display().to_string());
                }
            }
            // The previous holder may have removed the file between opening and locking it.
            if folder.has(&name, &file)? {
                file.set_len(0)?;
                write!(file, "{}", std::process::id())?;
                return Ok(Self { folder, key, _file: file });
            }
        }
        bail!(
            "{}: the instance lock {} is removed again and again",
            interface.name,
            folder.shown(&name).display()
        )
    }

    pub(crate) fn folder(&self) -> &RuntimeFolder {
        &self.folder
    }

    /// The file name of a note about the same interface.
    pub(crate) fn note(&self, what: &str) -> String {
        format!("{what}-{}", self.key)
    }
}

impl Drop for InstanceLock {
    fn drop(&mut self) {
        // Removed while it is held, so it is this process's file. If that fails, the next start uses the
        // file.
        drop(self.folder.remove(&lock_name(&self.key)));
    }
}

const ATTEMPTS: u32 = 10;

fn lock_name(key: &str) -> String {
    format!("frames-{key}.lock")
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(10).read_to_string(&mut text) {
        Ok(_) if !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit()) => {
            format!("process {text}")
        }
        _ => "its process is unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::runtime::tests::folder;

    fn interface(index: u32) -> Interface {
        Interface { name: format!("eth{index}"), index, mac: [2; 6], mtu: 1500, up: true, running: true }
    }

    #[test]
    fn an_interface_is_locked_once_and_free_again_afterwards() {
        let own = tempfile::tempdir().unwrap();
        let lock = |index| InstanceLock::within(folder(own.path()), &interface(index));
        let first = lock(5).unwrap();
        let refused = lock(5).unwrap_err().to_string();
        let holder = format!(
            "eth5: another director, or a redirector in mode auto or xdp, processes its frames already (process {})",
            std::process::id()
        );
        assert!(refused.starts_with(&holder), "{refused}");
        drop(lock(6).unwrap());
        drop(first);
        assert_eq!(fs::read_dir(own.path()).unwrap().count(), 0, "nothing is left");
        drop(lock(5).unwrap());
    }

    /// The state after SIGKILL.
    #[test]
    fn a_file_without_a_lock_is_used() {
        let own = tempfile::tempdir().unwrap();
        let lock = || InstanceLock::within(folder(own.path()), &interface(5));
        let name = lock_name(&lock().unwrap().key);
        fs::write(own.path().join(&name), "4194304 and more").unwrap();
        let held = lock().unwrap();
        assert_eq!(fs::read_to_string(own.path().join(&name)).unwrap(), std::process::id().to_string());
        drop(held);
    }

    /// Each thread holds the lock for a moment; if two held it at once, one would see the other's flag.
    #[test]
    fn a_lock_that_is_removed_while_others_wait_for_it_is_held_once() {
        use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
        let own = tempfile::tempdir().unwrap();
        let (held, taken) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let Ok(lock) = InstanceLock::within(folder(own.path()), &interface(5)) else {
                            continue;
                        };
                        assert!(!held.swap(true, Ordering::SeqCst), "held twice");
                        taken.fetch_add(1, Ordering::Relaxed);
                        held.store(false, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        // The number depends on the scheduler; zero would mean that the test tried nothing.
        assert!(taken.into_inner() > 0);
    }
}
