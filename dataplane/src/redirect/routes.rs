//! How to reach the next hops, and whether one of them is this host.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use crate::wire::gue;

/// Next hops whose route is remembered, and for how long.
const ROUTES: usize = 4_096;
const ROUTE_LIFETIME_MS: u64 = 5_000;

/// How this host reaches another, asked of the kernel once in a while.
#[derive(Debug, Default)]
pub(super) struct Routes {
    known: HashMap<IpAddr, (Option<Route>, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The address is one of this host.
    Own,
    /// From this address of this host.
    From(IpAddr),
}

impl Routes {
    pub(super) fn to(&mut self, hop: IpAddr, now_ms: u64) -> Option<Route> {
        let known = self.known.get(&hop).filter(|(_, until_ms)| *until_ms > now_ms);
        if let Some(&(route, _)) = known {
            return route;
        }
        if self.known.len() >= ROUTES {
            self.known.clear();
        }
        let route = route(hop).ok();
        self.known.insert(hop, (route, now_ms + ROUTE_LIFETIME_MS));
        route
    }
}

/// A connected UDP socket has the source address that the kernel's routes prefer, and for an address of this host
/// that is the address itself. Nothing is sent.
fn route(hop: IpAddr) -> io::Result<Route> {
    let any: IpAddr = if hop.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((hop, gue::PORT))?;
    let source = socket.local_addr()?.ip();
    Ok(if source == hop { Route::Own } else { Route::From(source) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_host_is_its_own_hop() {
        assert_eq!(route([127, 0, 0, 1].into()).unwrap(), Route::Own);
    }

    #[test]
    fn the_memory_of_routes_is_bounded_and_ages() {
        let mut routes = Routes::default();
        let own: IpAddr = [127, 0, 0, 1].into();
        routes.known.insert(own, (None, 10));
        assert_eq!(routes.to(own, 9), None);
        assert_eq!(routes.to(own, 10), Some(Route::Own));
        for n in 0..u32::try_from(ROUTES).unwrap() {
            routes.known.insert(Ipv4Addr::from_bits(n).into(), (None, 0));
        }
        routes.to([127, 0, 0, 2].into(), 11);
        assert_eq!(routes.known.len(), 1);
    }
}
