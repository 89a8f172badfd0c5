//! The addresses of this host according to its kernel: the routes of the table `local`. Each address of an
//! interface has a route of type `local`, and so does a prefix that `ip route add local 203.0.113.0/24 dev lo`
//! adds. Routes of the types `broadcast` and `anycast` have addresses that this host shares with others.

use std::io;

use common::bind::Prefix;

use super::message::{self, messages};
use super::monitor::Monitor;
use super::{BUFFER, TIMEOUT};
use crate::host::sys::netlink::{Groups, NetlinkSocket};

/// Reads the table, and reports when it may have changed.
#[derive(Debug)]
pub struct LocalTable {
    socket: NetlinkSocket,
    monitor: Monitor,
    sequence: u32,
    buffer: Box<[u8]>,
}

/// The addresses in the table `local`.
#[derive(Clone, Debug, Default)]
pub struct LocalAddresses {
    /// Addresses and prefixes that are this host's.
    pub own: Vec<Prefix>,
    /// Broadcast and anycast addresses.
    pub shared: Vec<Prefix>,
}

/// Largest number of datagrams of a dump: 32 KiB each, some hundred addresses.
const DATAGRAMS: usize = 4_096;

impl LocalTable {
    /// Needs no privilege.
    pub fn open() -> io::Result<Self> {
        // Before the first read, so that no change in between is missed.
        let monitor = Monitor::of(Groups::ADDRESSES)?;
        let socket = NetlinkSocket::open(Groups::NONE, TIMEOUT)?;
        socket.filter_dumps()?;
        Ok(Self { socket, monitor, sequence: 0, buffer: vec![0; BUFFER].into() })
    }

    /// Whether an address or a route changed since the last call.
    pub fn changed(&mut self) -> io::Result<bool> {
        Ok(self.monitor.changes()?.everything)
    }

    /// All addresses and prefixes of both families.
    pub fn read(&mut self) -> io::Result<LocalAddresses> {
        let mut all = self.dump(true)?;
        all.extend(self.dump(false)?);
        let (own, shared): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, is_own)| *is_own);
        let prefixes = |routes: Vec<(Prefix, bool)>| routes.into_iter().map(|(prefix, _)| prefix).collect();
        Ok(LocalAddresses { own: prefixes(own), shared: prefixes(shared) })
    }

    fn dump(&mut self, v4: bool) -> io::Result<Vec<(Prefix, bool)>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&message::local_request(v4, self.sequence))?;
        let mut all = Vec::new();
        for _ in 0..DATAGRAMS {
            let datagram = self.socket.receive(&mut self.buffer)?;
            for message in messages(datagram).filter(|message| message.sequence == self.sequence) {
                match message.errno() {
                    // A kernel without IPv6.
                    Some(libc::EAFNOSUPPORT) => return Ok(all),
                    Some(errno) => return Err(io::Error::from_raw_os_error(errno)),
                    None if message.is_done() => return Ok(all),
                    None => all.extend(message::local_prefix(&message)),
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "netlink: a dump without an end"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_this_host() {
        let mut table = LocalTable::open().unwrap();
        let own = table.read().unwrap().own;
        let holds = |address: &str| own.iter().any(|prefix| prefix.contains(address.parse().unwrap()));
        assert!(holds("127.0.0.1") && holds("127.9.9.9") && !holds("198.51.100.7"), "{own:?}");
        assert_eq!(own.len(), table.read().unwrap().own.len());
    }
}
