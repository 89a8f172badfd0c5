//! The network between director and backends: the facts that the encapsulation of a packet depends on.

use std::net::{Ipv4Addr, Ipv6Addr};

use common::backend::Backend;
use common::table::{ForwardingTable, Table};

use crate::wire::ethernet::Mac;

/// The addresses and limits of encapsulated packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Underlay {
    /// Outer source address towards IPv4 backends; without it they are unreachable.
    pub source_ipv4: Option<Ipv4Addr>,
    /// Outer source address towards IPv6 backends; without it they are unreachable.
    pub source_ipv6: Option<Ipv6Addr>,
    /// Length of the largest IP packet that the path to every backend carries, in octets, outer header
    /// included.
    pub mtu: u16,
    /// How echo requests to a VIP are handled.
    pub echo: Echo,
}

/// How an echo request to a VIP is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Echo {
    /// Send it to a backend, chosen by the addresses; a reply then shows that the whole path works.
    #[default]
    Forward,
    /// Leave it to the host.
    Pass,
    /// Answer it here.
    Answer,
}

/// Identifies a backend of a forwarding table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendKey {
    /// Index of the table in the file.
    pub table: u16,
    /// Index of the backend in the table.
    pub backend: u16,
}

/// All backends of a forwarding table with their keys, table after table.
pub(crate) fn backends(forwarding: &ForwardingTable) -> impl Iterator<Item = (BackendKey, &Backend)> {
    let of_table = |(table, entry)| {
        let entry: &Table = entry;
        (0..).zip(&entry.backends).map(move |(backend, entry)| (BackendKey { table, backend }, entry))
    };
    (0..).zip(forwarding.tables()).flat_map(of_table)
}

/// Where packets to a backend are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// In an Ethernet frame to the backend or its gateway.
    Link {
        /// Index of the outgoing interface.
        ifindex: u32,
        /// Address of that interface.
        source: Mac,
        /// Address of the backend or of its gateway.
        destination: Mac,
    },
    /// To this host's own network stack: the backend's address belongs to this host.
    Local,
}

impl NextHop {
    /// The outgoing interface, if there is one.
    #[must_use]
    pub fn ifindex(self) -> Option<u32> {
        match self {
            Self::Link { ifindex, .. } => Some(ifindex),
            Self::Local => None,
        }
    }
}
