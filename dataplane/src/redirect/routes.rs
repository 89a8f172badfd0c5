//! Source addresses for the next hops, and whether a next hop is this host.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use crate::wire::gue;

/// Number of next hops whose route is cached, and the lifetime of an entry.
const ROUTES: usize = 4_096;
const ROUTE_LIFETIME_MS: u64 = 5_000;

/// A cache of the kernel's routes to other hosts.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// By next hop: the route, and when the entry expires, in milliseconds.
    cached: HashMap<IpAddr, (Option<Route>, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The address belongs to this host.
    Local,
    /// Packets are sent from this address of this host.
    Source(IpAddr),
}

impl Routes {
    pub(super) fn to(&mut self, hop: IpAddr, now_ms: u64) -> Option<Route> {
        let cached = self.cached.get(&hop).filter(|(_, until_ms)| *until_ms > now_ms);
        if let Some(&(route, _)) = cached {
            return route;
        }
        if self.cached.len() >= ROUTES {
            self.cached.clear();
        }
        let route = route(hop).ok();
        self.cached.insert(hop, (route, now_ms + ROUTE_LIFETIME_MS));
        route
    }
}

/// Connects a UDP socket: it gets the source address that the kernel's routes prefer. For an address of this
/// host that is the address itself. Nothing is sent.
fn route(hop: IpAddr) -> io::Result<Route> {
    let any: IpAddr = if hop.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((hop, gue::PORT))?;
    let source = socket.local_addr()?.ip();
    Ok(if source == hop { Route::Local } else { Route::Source(source) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_host_is_local() {
        assert_eq!(route([127, 0, 0, 1].into()).unwrap(), Route::Local);
    }

    #[test]
    fn the_route_cache_is_bounded_and_expires() {
        let mut routes = Routes::default();
        let own: IpAddr = [127, 0, 0, 1].into();
        routes.cached.insert(own, (None, 10));
        assert_eq!(routes.to(own, 9), None);
        assert_eq!(routes.to(own, 10), Some(Route::Local));
        for n in 0..u32::try_from(ROUTES).unwrap() {
            routes.cached.insert(Ipv4Addr::from_bits(n).into(), (None, 0));
        }
        routes.to([127, 0, 0, 2].into(), 11);
        assert_eq!(routes.cached.len(), 1);
    }
}
