//! Switches receive offloads off while a director runs: it must see frames as they were on the wire.
//!
//! GRO and LRO merge frames of a flow, up to 64 KiB. Encapsulated, the result fits no link, and nobody sent it so. The
//! setting is the interface's, not the director's: it is put back at exit. A director that is killed (SIGKILL) leaves
//! GRO off, which costs the host some CPU and nothing else; `ethtool -K IFACE gro on` puts it back.

use std::io;

use crate::sys::interface::Offload;

/// Offloads that were on and are off now; dropped, they are on again.
#[derive(Debug)]
pub(crate) struct OffloadGuard {
    interface: String,
    switched: Vec<Offload>,
}

const RECEIVE: [Offload; 2] = [Offload::Gro, Offload::Lro];

impl OffloadGuard {
    pub(crate) fn switch_off(interface: &str) -> io::Result<Self> {
        let mut guard = Self { interface: interface.to_owned(), switched: Vec::new() };
        for offload in on(interface) {
            offload.switch(interface, false)?;
            guard.switched.push(offload);
        }
        Ok(guard)
    }
}

impl Drop for OffloadGuard {
    fn drop(&mut self) {
        for offload in &self.switched {
            if let Err(error) = offload.switch(&self.interface, true) {
                super::say(format_args!("{}: {} stays off: {error}", self.interface, offload.name()));
            }
        }
    }
}

/// Receive offloads that are on. A device that does not know one does not do it.
pub(crate) fn on(interface: &str) -> impl Iterator<Item = Offload> + '_ {
    RECEIVE.into_iter().filter(move |offload| offload.is_on(interface).unwrap_or(false))
}
