//! Next hops, from the kernel's own route and neighbour tables (rtnetlink), so that the operator configures
//! routes in a single place. Synchronous, off the packet path: the control loop resolves all backends and
//! publishes the result.
//!
//! This module requests unknown neighbours, and keeps known ones fresh: frames from a packet socket bypass
//! the kernel's neighbour table, so otherwise a gateway's new link address would not be noticed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use std::{fmt, io, iter};

pub use self::local::{LocalAddresses, LocalTable};
use netlink_packet_route::route::RouteType;

use self::message::{Message, Neighbour, Route, messages};
pub use self::monitor::{Changes, Monitor};
use crate::host::sys::interface::Interface;
use crate::host::sys::netlink::{Groups, NetlinkSocket};
use crate::pipeline::NextHop;
use crate::wire::ethernet::Mac;

mod local;
mod message;
mod monitor;

/// The kernel's route to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedRoute {
    /// Where packets are sent.
    pub next_hop: NextHop,
    /// The address of this host that the kernel would send from.
    pub source: IpAddr,
    /// Length of the longest IP packet that the route carries, in octets.
    pub mtu: u32,
}

/// Why a backend has no next hop now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// There is no route, or one that refuses packets. The kernel's errno.
    NoRoute(i32),
    /// The route's interface is removed, down, or not Ethernet.
    Interface(u32),
    /// There is a route to this backend, but no address of this host to send from.
    NoSource(IpAddr),
    /// The backend, or its gateway, has not answered the neighbour request yet.
    Neighbour(IpAddr),
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoute(errno) => write!(f, "no route ({})", io::Error::from_raw_os_error(*errno)),
            Self::Interface(index) => write!(f, "interface {index} is down or not Ethernet"),
            Self::NoSource(backend) => {
                let (family, key) =
                    if backend.is_ipv4() { ("IPv4", "source_ipv4") } else { ("IPv6", "source_ipv6") };
                write!(f, "a route, but this host has no {family} address to send from: set {key}")
            }
            Self::Neighbour(address) => write!(f, "no answer from neighbour {address} yet"),
        }
    }
}

/// Values that the operator configured instead of the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// Send every frame to this link address and ignore the neighbour table.
    pub mac: Option<[u8; 6]>,
    /// Source address for IPv4 backends, if the route has none.
    pub source_ipv4: Option<Ipv4Addr>,
    /// Source address for IPv6 backends, if the route has none.
    pub source_ipv6: Option<Ipv6Addr>,
}

impl Pinned {
    fn source(&self, backend: IpAddr) -> Option<IpAddr> {
        match backend {
            IpAddr::V4(_) => self.source_ipv4.map(IpAddr::V4),
            IpAddr::V6(_) => self.source_ipv6.map(IpAddr::V6),
        }
    }
}

/// Resolves next hops with the kernel.
#[derive(Debug)]
pub struct Resolver {
    socket: NetlinkSocket,
    sequence: u32,
    buffer: Box<[u8]>,
    pinned: Pinned,
    /// The neighbours that the current pass has looked up.
    neighbours: HashMap<(u32, IpAddr), Option<[u8; 6]>>,
    interfaces: HashMap<u32, Option<Interface>>,
}

impl Resolver {
    /// Opens a socket to the kernel.
    pub fn open(pinned: Pinned) -> io::Result<Self> {
        Ok(Self {
            socket: NetlinkSocket::open(Groups::NONE, TIMEOUT)?,
            sequence: 0,
            buffer: vec![0; BUFFER].into(),
            pinned,
            neighbours: HashMap::new(),
            interfaces: HashMap::new(),
        })
    }

    /// Replaces the operator's values.
    pub fn pin(&mut self, pinned: Pinned) {
        self.pinned = pinned;
    }

    /// The current next hops of backends, in the order of the arguments. An error means that the kernel does
    /// not answer.
    pub fn resolve(
        &mut self,
        backends: impl IntoIterator<Item = IpAddr>,
    ) -> io::Result<Vec<Result<ResolvedRoute, Unresolved>>> {
        self.neighbours.clear();
        self.interfaces.clear();
        backends.into_iter().map(|backend| self.resolve_one(backend)).collect()
    }

    /// For each address, whether this host's own stack would accept a client's packet to it that arrives on
    /// an interface.
    pub fn accepts(&mut self, all: impl IntoIterator<Item = IpAddr>, ifindex: u32) -> io::Result<Vec<bool>> {
        let all: Vec<IpAddr> = all.into_iter().collect();
        let client = if all.iter().any(IpAddr::is_ipv4) { self.accepted_client(ifindex)? } else { None };
        all.into_iter().map(|to| self.accepts_to(to, client, ifindex)).collect()
    }

    /// `client` is an IPv4 client whose packets are accepted.
    fn accepts_to(&mut self, to: IpAddr, client: Option<IpAddr>, ifindex: u32) -> io::Result<bool> {
        let local = |route: Route| route.kind == RouteType::Local;
        let client = if to.is_ipv4() { client } else { Some(STRANGER_V6.into()) };
        if let Some(client) = client {
            return Ok(self.arrival(client, to, ifindex)?.is_ok_and(local));
        }
        match self.arrival(STRANGER_V4.into(), to, ifindex)? {
            Ok(route) => Ok(local(route)),
            Err(libc::EHOSTUNREACH) => Ok(false),
            // The reverse path filter may be the cause of the refusal, which says nothing about `to`.
            Err(_) => Ok(self.route(to)?.is_ok_and(local)),
        }
    }

    /// An IPv4 client whose packets to an address of this host are accepted on an interface, so that no
    /// reverse path filter interferes: an address that no host has, or else a neighbour of the host's own
    /// address.
    fn accepted_client(&mut self, ifindex: u32) -> io::Result<Option<IpAddr>> {
        let own = match Interface::indexed(ifindex).and_then(|interface| interface.v4()) {
            Ok(own) => Some(own.into()),
            Err(_) => self.route(STRANGER_V4.into())?.ok().and_then(|route| route.source),
        };
        let Some(IpAddr::V4(own)) = own else { return Ok(None) };
        let neighbours = (1..=3).map(|change| Ipv4Addr::from_bits(own.to_bits() ^ change));
        for client in iter::once(STRANGER_V4).chain(neighbours).map(IpAddr::from) {
            if self.arrival(client, own.into(), ifindex)?.is_ok_and(|route| route.kind == RouteType::Local) {
                return Ok(Some(client));
            }
        }
        Ok(None)
    }

    /// The kernel's route for a packet to `to` that arrives on an interface.
    fn arrival(&mut self, from: IpAddr, to: IpAddr, ifindex: u32) -> io::Result<Result<Route, i32>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.ask(&message::arrival_request(from, to, ifindex, self.sequence), Route::read)
    }

    /// Whether the last pass used this neighbour, with another link address than `mac`.
    pub fn concerns(&self, ifindex: u32, address: IpAddr, mac: Option<[u8; 6]>) -> bool {
        self.neighbours.get(&(ifindex, address)).is_some_and(|known| *known != mac)
    }

    /// Makes the kernel check those neighbours of the last pass that it has no recent confirmation of.
    pub fn refresh(&mut self) -> io::Result<()> {
        let neighbours: Vec<_> = self.neighbours.keys().copied().collect();
        for (ifindex, address) in neighbours {
            // Looked up again, because an operator may have set it since.
            if !self.look_up(address, ifindex)?.is_some_and(|neighbour| neighbour.fixed) {
                self.use_neighbour(address, ifindex)?;
            }
        }
        Ok(())
    }

    fn resolve_one(&mut self, backend: IpAddr) -> io::Result<Result<ResolvedRoute, Unresolved>> {
        let route = match self.route(backend)? {
            Ok(route) => route,
            Err(errno) => return Ok(Err(Unresolved::NoRoute(errno))),
        };
        let no_route = Ok(Err(Unresolved::NoRoute(libc::ENETUNREACH)));
        let Some(ifindex) = route.ifindex else { return no_route };
        let Some(source) = route.source.or(self.pinned.source(backend)) else {
            return Ok(Err(Unresolved::NoSource(backend)));
        };
        match route.kind {
            RouteType::Local => {
                let mtu = route.mtu.unwrap_or(LOOPBACK_MTU);
                Ok(Ok(ResolvedRoute { next_hop: NextHop::Local, source, mtu }))
            }
            RouteType::Unicast => self.over_link(backend, ifindex, source, &route),
            _ => no_route,
        }
    }

    fn over_link(
        &mut self,
        backend: IpAddr,
        ifindex: u32,
        source: IpAddr,
        route: &Route,
    ) -> io::Result<Result<ResolvedRoute, Unresolved>> {
        let Some((own_mac, link_mtu)) = self.interface(ifindex)? else {
            return Ok(Err(Unresolved::Interface(ifindex)));
        };
        let neighbour = route.gateway.unwrap_or(backend);
        let mac = match self.pinned.mac {
            Some(pinned) => Some(pinned),
            None => self.neighbour(neighbour, ifindex)?,
        };
        let Some(destination) = mac else { return Ok(Err(Unresolved::Neighbour(neighbour))) };
        let mtu = route.mtu.map_or(link_mtu, |mtu| mtu.min(link_mtu));
        let next_hop = NextHop::Link { ifindex, source: Mac(own_mac), destination: Mac(destination) };
        Ok(Ok(ResolvedRoute { next_hop, source, mtu }))
    }

    /// The MAC address and the MTU of an interface that can be sent on. An error of the system, for example
    /// no free descriptor, says nothing about the interface.
    fn interface(&mut self, ifindex: u32) -> io::Result<Option<([u8; 6], u32)>> {
        let known = match self.interfaces.entry(ifindex) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(match Interface::indexed(ifindex) {
                Err(error) if !Interface::is_missing(&error) => return Err(error),
                found => found.ok(),
            }),
        };
        let usable = known.as_ref().filter(|interface| interface.up);
        Ok(usable.map(|interface| (interface.mac, interface.mtu)))
    }

    fn route(&mut self, to: IpAddr) -> io::Result<Result<Route, i32>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.ask(&message::route_request(to, self.sequence), Route::read)
    }

    /// The MAC address of a neighbour. If it is unknown, the kernel starts a neighbour request.
    fn neighbour(&mut self, to: IpAddr, ifindex: u32) -> io::Result<Option<[u8; 6]>> {
        if let Some(known) = self.neighbours.get(&(ifindex, to)) {
            return Ok(*known);
        }
        let found = self.look_up(to, ifindex)?;
        let mac = found.and_then(|neighbour| neighbour.mac);
        self.neighbours.insert((ifindex, to), mac);
        if mac.is_none() && !found.is_some_and(|neighbour| neighbour.fixed) {
            self.use_neighbour(to, ifindex)?;
        }
        Ok(mac)
    }

    fn look_up(&mut self, to: IpAddr, ifindex: u32) -> io::Result<Option<Neighbour>> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = message::neighbour_request(to, ifindex, self.sequence);
        Ok(self.ask(&request, Neighbour::read)?.ok())
    }

    fn use_neighbour(&mut self, to: IpAddr, ifindex: u32) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = message::use_request(to, ifindex, self.sequence);
        // Without CAP_NET_ADMIN the kernel refuses: ignored, because the neighbour's state shows the result.
        self.ask(&request, |_| None::<()>).map(drop)
    }

    /// Sends a request and waits for its answer. The inner error is the kernel's errno; an acknowledgement
    /// without an answer is `Err(0)`.
    fn ask<T>(&mut self, request: &[u8], read: impl Fn(&Message) -> Option<T>) -> io::Result<Result<T, i32>> {
        self.socket.send(request)?;
        // Late answers to earlier requests that timed out may come first.
        for _ in 0..64 {
            let datagram = self.socket.receive(&mut self.buffer)?;
            for message in messages(datagram).filter(|message| message.sequence == self.sequence) {
                if let Some(errno) = message.errno() {
                    return Ok(Err(errno));
                }
                if let Some(answer) = read(&message) {
                    return Ok(Ok(answer));
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "netlink: no answer to the request"))
    }
}

/// Time limit for a reply; the kernel normally replies within microseconds.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Size of the receive buffer in octets: netlink(7) recommends 8 KiB, and dumps use up to 32 KiB.
const BUFFER: usize = 32 << 10;
/// Addresses that no host has, from the networks for benchmarks (RFC 2544 and RFC 5180).
const STRANGER_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const STRANGER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
/// The MTU of `lo`.
const LOOPBACK_MTU: u32 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_without_a_source_is_not_called_no_route() {
        let words = |backend: &str| Unresolved::NoSource(backend.parse().unwrap()).to_string();
        assert_eq!(
            words("10.0.0.1"),
            "a route, but this host has no IPv4 address to send from: set source_ipv4"
        );
        assert_eq!(
            words("2001:db8::1"),
            "a route, but this host has no IPv6 address to send from: set source_ipv6"
        );
    }
}
