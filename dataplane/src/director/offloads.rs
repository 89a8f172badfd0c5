//! Switches receive offloads off while a director runs, because it must see frames as they were on the wire.
//!
//! GRO and LRO merge frames of a flow, up to 64 KiB. An encapsulated merged frame fits no link, and no client
//! sent it in that form. The offloads are a setting of the interface, so they are restored at exit. A
//! director that is killed (SIGKILL) cannot restore them. Therefore a note in the runtime folder lists the
//! offloads that were on; the next start reads it and restores them at its exit. A note of another boot,
//! network namespace or interface is ignored.

use std::fs;
use std::io;
use std::sync::Arc;

use anyhow::Context;

use super::log;
use crate::control::instance::InstanceLock;
use crate::host::sys::interface::{Interface, Offload, namespace_cookie};

/// Offloads that were switched off. Dropping the guard switches them on again.
#[derive(Debug)]
pub(crate) struct OffloadGuard {
    interface: String,
    restored: Vec<Offload>,
    /// The note belongs to the holder of the lock.
    lock: Arc<InstanceLock>,
}

const RECEIVE: [Offload; 2] = [Offload::Gro, Offload::Lro];

impl OffloadGuard {
    /// Switches off the offloads that are on.
    pub(crate) fn switch_off(interface: &Interface, lock: &Arc<InstanceLock>) -> anyhow::Result<Self> {
        let mut guard = Self::left_off(interface, lock);
        for offload in on(&interface.name) {
            if !guard.restored.contains(&offload) {
                guard.restored.push(offload);
            }
        }
        if !guard.restored.is_empty() {
            write(interface, lock, &guard.restored).context("the note of the offloads")?;
        }
        for offload in on(&interface.name) {
            offload.switch(&interface.name, false)?;
        }
        Ok(guard)
    }

    /// A guard for the offloads that a killed director left off.
    pub(crate) fn left_off(interface: &Interface, lock: &Arc<InstanceLock>) -> Self {
        let restored = read_note(interface, lock);
        Self { interface: interface.name.clone(), restored, lock: Arc::clone(lock) }
    }
}

impl Drop for OffloadGuard {
    fn drop(&mut self) {
        let mut all = true;
        for offload in &self.restored {
            if let Err(error) = offload.switch(&self.interface, true) {
                all = false;
                log(format_args!("{}: {} stays off: {error}", self.interface, offload.name()));
            }
        }
        let (folder, note) = (self.lock.folder(), self.lock.note(NOTE));
        if all
            && !self.restored.is_empty()
            && let Err(error) = folder.remove(&note)
        {
            log(format_args!("{}: {error}", folder.shown(&note).display()));
        }
    }
}

/// Receive offloads that are on. An offload that a device does not know counts as off.
pub(crate) fn on(interface: &str) -> impl Iterator<Item = Offload> + '_ {
    RECEIVE.into_iter().filter(move |offload| offload.is_on(interface).unwrap_or(false))
}

const NOTE: &str = "offloads";

fn write(interface: &Interface, lock: &InstanceLock, offloads: &[Offload]) -> io::Result<()> {
    let names: Vec<&str> = offloads.iter().map(|offload| offload.name()).collect();
    lock.folder().write(&lock.note(NOTE), &format!("{}{}\n", identity(interface)?, names.join(" ")))
}

/// The offloads that a killed director had switched off on this interface.
fn read_note(interface: &Interface, lock: &InstanceLock) -> Vec<Offload> {
    let read = || -> io::Result<Vec<Offload>> {
        let Some(text) = lock.folder().read(&lock.note(NOTE))? else { return Ok(Vec::new()) };
        Ok(named(&text, &identity(interface)?))
    };
    read().unwrap_or_else(|error| {
        log(format_args!("{}: {error}", lock.folder().shown(&lock.note(NOTE)).display()));
        Vec::new()
    })
}

/// The offloads that a note names, if it is about this interface.
fn named(note: &str, identity: &str) -> Vec<Offload> {
    let names = note.strip_prefix(identity).unwrap_or_default();
    RECEIVE
        .into_iter()
        .filter(|offload| names.split_whitespace().any(|name| name == offload.name()))
        .collect()
}

/// The start of a note: boot, network namespace and interface. The cookie of a network namespace is unique
/// until the next boot, unlike the inode in the note's name; kernels before 5.14 have no cookie.
fn identity(interface: &Interface) -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = namespace_cookie().unwrap_or(0);
    Ok(format!("boot {}\nnamespace {namespace}\ninterface {}\non ", boot.trim(), interface.index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_of_another_boot_namespace_or_interface_is_ignored() {
        let identity = "boot a\nnamespace 7\ninterface 5\non ";
        assert_eq!(named(&format!("{identity}gro lro\n"), identity), [Offload::Gro, Offload::Lro]);
        assert_eq!(named(&format!("{identity}lro\n"), identity), [Offload::Lro]);
        for other in [
            "boot b\nnamespace 7\ninterface 5\non gro\n",
            "boot a\nnamespace 8\ninterface 5\non gro\n",
            "boot a\nnamespace 7\ninterface 55\non gro\n",
            "boot a\nnamespace 7\ninterface 5\non tso grou\n",
            "gro",
            "",
        ] {
            assert_eq!(named(other, identity), [], "{other:?}");
        }
    }
}
