//! Receives notifications about changes of links, addresses, routes and neighbours.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::message::{Neighbour, messages};
use super::{BUFFER, Resolver};
use crate::host::sys::netlink::{Groups, NetlinkSocket};

/// A subscription to the kernel's notifications.
#[derive(Debug)]
pub struct Monitor {
    socket: NetlinkSocket,
    buffer: Box<[u8]>,
}

/// The changes since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// A link, an address or a route changed, or notifications were lost: resolve everything again.
    pub everything: bool,
    neighbours: Vec<Neighbour>,
}

impl Changes {
    /// Whether next hops that `resolver` found may differ now. Most neighbour notifications are not relevant:
    /// an entry that changes from reachable to stale and back keeps its address.
    pub fn concern(&self, resolver: &Resolver) -> bool {
        let concerns =
            |neighbour: &Neighbour| resolver.concerns(neighbour.ifindex, neighbour.address, neighbour.mac);
        self.everything || self.neighbours.iter().any(concerns)
    }

    /// The neighbours that changed, for logs.
    pub fn neighbours(&self) -> impl Iterator<Item = IpAddr> {
        self.neighbours.iter().map(|neighbour| neighbour.address)
    }
}

impl Monitor {
    /// Subscribes. Call it before the first pass, so that no change in between is missed.
    pub fn open() -> io::Result<Self> {
        Self::of(Groups::ROUTING)
    }

    /// Subscribes to some changes.
    pub(super) fn of(groups: Groups) -> io::Result<Self> {
        let socket = NetlinkSocket::open(groups, Duration::from_secs(1))?;
        Ok(Self { socket, buffer: vec![0; BUFFER].into() })
    }

    /// Reads the waiting notifications without blocking. The number is limited, so that a flood of them ends.
    pub fn changes(&mut self) -> io::Result<Changes> {
        let mut changes = Changes::default();
        for _ in 0..1000 {
            match self.socket.receive_now(&mut self.buffer) {
                Ok(datagram) => note(datagram, &mut changes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => changes.everything = true,
                Err(error) => return Err(error),
            }
        }
        Ok(changes)
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn note(datagram: &[u8], changes: &mut Changes) {
    for message in messages(datagram) {
        match Neighbour::read(&message) {
            Some(neighbour) => changes.neighbours.push(neighbour),
            None => changes.everything = true,
        }
    }
}
