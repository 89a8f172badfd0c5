//! The instance lock: one program takes an interface's frames. Two directors would forward each packet twice; and what a
//! redirector's kernel program hands up looks to a director like a client's packet, which it would forward again.
//!
//! It is a file lock (flock(2)) in the [runtime folder](crate::host::runtime), where no other user can hold it. The kernel
//! releases it when the process ends, however it ends; what is left then is an empty file, which the next start takes.
//! The name has the inode of the network namespace and the index of the interface, both of which are unique while they
//! exist. Programs of different users see each other's lock only where they share the folder, as root and the user of
//! `/run/tryst` do.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, bail};

use crate::host::runtime::RuntimeFolder;
use crate::host::sys::interface::Interface;

/// While it lives, no other process that shares the runtime folder gets it for the same interface.
#[derive(Debug)]
pub(crate) struct InstanceLock {
    folder: RuntimeFolder,
    /// Of the network namespace and the interface.
    place: String,
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
        let place = format!("{namespace}-{}", interface.index);
        let name = lock_name(&place);
        for _ in 0..ATTEMPTS {
            let mut file =
                folder.open_or_make(&name).with_context(|| folder.shown(&name).display().to_string())?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => bail!(
                    "{}: another director, or a redirector in mode auto or xdp, takes its frames already ({}); a \
                     redirector beside a director runs in mode socket",
                    interface.name,
                    holder(&mut file)
                ),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| folder.shown(&name).display().to_string());
                }
            }
            // The process that held it may have removed it between our opening and our locking.
            if folder.has(&name, &file)? {
                file.set_len(0)?;
                write!(file, "{}", std::process::id())?;
                return Ok(Self { folder, place, _file: file });
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

    /// The name of a note about the same interface.
    pub(crate) fn note(&self, what: &str) -> String {
        format!("{what}-{}", self.place)
    }
}

impl Drop for InstanceLock {
    fn drop(&mut self) {
        // Removed while it is held, so that it is ours; what cannot be removed is taken by the next start.
        drop(self.folder.remove(&lock_name(&self.place)));
    }
}

const ATTEMPTS: u32 = 10;

fn lock_name(place: &str) -> String {
    format!("frames-{place}.lock")
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(10).read_to_string(&mut text) {
        Ok(_) if !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit()) => {
            format!("process {text}")
        }
        _ => "its process is not known".to_owned(),
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
            "eth5: another director, or a redirector in mode auto or xdp, takes its frames already (process {})",
            std::process::id()
        );
        assert!(refused.starts_with(&holder), "{refused}");
        drop(lock(6).unwrap());
        drop(first);
        assert_eq!(fs::read_dir(own.path()).unwrap().count(), 0, "nothing is left");
        drop(lock(5).unwrap());
    }

    /// As it is after SIGKILL.
    #[test]
    fn a_file_that_nobody_locks_is_taken() {
        let own = tempfile::tempdir().unwrap();
        let lock = || InstanceLock::within(folder(own.path()), &interface(5));
        let name = lock_name(&lock().unwrap().place);
        fs::write(own.path().join(&name), "4194304 and more").unwrap();
        let held = lock().unwrap();
        assert_eq!(fs::read_to_string(own.path().join(&name)).unwrap(), std::process::id().to_string());
        drop(held);
    }

    /// Each thread holds it for a moment; if two did at once, one would see the other's mark.
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
        // How often depends on the scheduler; zero would mean that the test tried nothing.
        assert!(taken.into_inner() > 0);
    }
}
