//! The network between director and backends, as far as a packet needs to know it.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::wire::ethernet::Mac;

/// How packets leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Underlay {
    /// Outer source towards backends with an IPv4 address; without one they have no route.
    pub source_ipv4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub source_ipv6: Option<Ipv6Addr>,
    /// Largest IP packet that the path to every backend carries, outer header included.
    pub mtu: u16,
    /// What to do with echo requests to a VIP.
    pub echo: Echo,
}

/// What to do with an echo request to a VIP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Echo {
    /// Send it to a backend, chosen by the addresses: the answer then says that the whole path works.
    #[default]
    Forward,
    /// Leave it to the host.
    Pass,
    /// Answer it here.
    Answer,
}

/// The way to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Route {
    /// Over the link, between these two addresses.
    Via {
        /// Of the interface that sends.
        source: Mac,
        /// Of the backend or the gateway to it.
        destination: Mac,
    },
    /// The backend is this host.
    Local,
    /// Not known, or not known yet.
    #[default]
    Unknown,
}
