//! Switches receive offloads off while a director runs: it must see frames as they were on the wire.
//!
//! GRO and LRO merge frames of a flow, up to 64 KiB. Encapsulated, the result fits no link, and no client sent it so. The
//! setting is the interface's, not the director's: it is restored at exit. A director that is killed (SIGKILL) cannot
//! restore it, so what was on is noted in the runtime folder first; the next start restores that at its exit. A note of
//! another boot, network namespace or interface is ignored.

use std::fs;
use std::io;
use std::sync::Arc;

use anyhow::Context;

use super::log;
use crate::control::instance::InstanceLock;
use crate::host::sys::interface::{Interface, Offload, namespace_cookie};

/// Offloads that were on and are off now; dropped, they are on again.
#[derive(Debug)]
pub(crate) struct OffloadGuard {
    interface: String,
    restored: Vec<Offload>,
    /// The note is that of whoever holds the lock.
    lock: Arc<InstanceLock>,
}

const RECEIVE: [Offload; 2] = [Offload::Gro, Offload::Lro];

impl OffloadGuard {
    /// Switches off what is on.
    pub(crate) fn switch_off(interface: &Interface, lock: &Arc<InstanceLock>) -> anyhow::Result<Self> {
        let mut guard = Self::left(interface, lock);
        for offload in on(&interface.name) {
            if !guard.restored.contains(&offload) {
                guard.restored.push(offload);
            }
        }
        if !guard.restored.is_empty() {
            write(interface, lock, &guard.restored).context("the note of what was on")?;
        }
        for offload in on(&interface.name) {
            offload.switch(&interface.name, false)?;
        }
        Ok(guard)
    }

    /// What a director that was killed left off.
    pub(crate) fn left(interface: &Interface, lock: &Arc<InstanceLock>) -> Self {
        Self { interface: interface.name.clone(), restored: left(interface, lock), lock: Arc::clone(lock) }
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

/// Receive offloads that are on. A device that does not know one does not do it.
pub(crate) fn on(interface: &str) -> impl Iterator<Item = Offload> + '_ {
    RECEIVE.into_iter().filter(move |offload| offload.is_on(interface).unwrap_or(false))
}

const NOTE: &str = "offloads";

fn write(interface: &Interface, lock: &InstanceLock, offloads: &[Offload]) -> io::Result<()> {
    let names: Vec<&str> = offloads.iter().map(|offload| offload.name()).collect();
    lock.folder().write(&lock.note(NOTE), &format!("{}{}\n", identity(interface)?, names.join(" ")))
}

/// What a director that was killed on this interface had switched off.
fn left(interface: &Interface, lock: &InstanceLock) -> Vec<Offload> {
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

/// What the note is about, as it is written. The cookie of a network namespace is unique until the next boot, where the
/// inode in the note's name is not; a kernel before 5.14 has none.
fn identity(interface: &Interface) -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = namespace_cookie().unwrap_or(0);
    Ok(format!("boot {}\nnamespace {namespace}\ninterface {}\non ", boot.trim(), interface.index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_about_something_else_names_nothing() {
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
