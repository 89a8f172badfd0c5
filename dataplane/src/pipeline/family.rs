//! Address families as types. On the hot path the family is known from the link header on. An `IpAddr` would
//! be written to memory and read back in other widths at each use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use common::{
    bind::{BindIndex, Protocol},
    flow::{self, FlowHash, FlowKey, HashFields},
    hash::SipKey,
};

use super::source::{is_client_v4, is_client_v6};

/// An address of a known family.
pub(super) trait Address: Copy + Into<IpAddr> {
    fn lookup(self, binds: &BindIndex, protocol: Protocol, port: u16) -> Option<u32>;

    fn hash(pair: (Self, Self), ports: Option<(u16, u16)>, key: SipKey, fields: HashFields) -> FlowHash;

    /// Whether a client of these binds can have this address ([`source`](super::source)); no client has the
    /// address of a VIP.
    fn is_client(self, binds: &BindIndex) -> bool;
}

impl Address for Ipv4Addr {
    #[inline(always)]
    fn lookup(self, binds: &BindIndex, protocol: Protocol, port: u16) -> Option<u32> {
        binds.lookup_v4(self, protocol, port)
    }

    #[inline(always)]
    fn hash(pair: (Self, Self), ports: Option<(u16, u16)>, key: SipKey, fields: HashFields) -> FlowHash {
        flow::hash_v4(pair, ports, key, fields)
    }

    #[inline(always)]
    fn is_client(self, binds: &BindIndex) -> bool {
        is_client_v4(self) && !binds.names_v4(self)
    }
}

impl Address for Ipv6Addr {
    #[inline(always)]
    fn lookup(self, binds: &BindIndex, protocol: Protocol, port: u16) -> Option<u32> {
        binds.lookup_v6(self, protocol, port)
    }

    #[inline(always)]
    fn hash(pair: (Self, Self), ports: Option<(u16, u16)>, key: SipKey, fields: HashFields) -> FlowHash {
        flow::hash_v6(pair, ports, key, fields)
    }

    #[inline(always)]
    fn is_client(self, binds: &BindIndex) -> bool {
        is_client_v6(self) && !binds.names_v6(self)
    }
}

/// A flow that can be hashed to a row.
pub(super) trait Flow {
    fn hash(&self, key: SipKey, fields: HashFields) -> FlowHash;

    /// Whether a client of these binds can have the flow's source address.
    fn has_client(&self, binds: &BindIndex) -> bool;
}

impl Flow for FlowKey {
    fn hash(&self, key: SipKey, fields: HashFields) -> FlowHash {
        Self::hash(self, key, fields)
    }

    fn has_client(&self, binds: &BindIndex) -> bool {
        match self.src_addr {
            IpAddr::V4(v4) => v4.is_client(binds),
            IpAddr::V6(v6) => v6.is_client(binds),
        }
    }
}

/// A flow with ports, of a known family.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tuple<A> {
    /// Addresses of client and VIP.
    pub(super) addresses: (A, A),
    /// Ports of client and VIP.
    pub(super) ports: (u16, u16),
}

impl<A: Address> Flow for Tuple<A> {
    #[inline(always)]
    fn hash(&self, key: SipKey, fields: HashFields) -> FlowHash {
        A::hash(self.addresses, Some(self.ports), key, fields)
    }

    #[inline(always)]
    fn has_client(&self, binds: &BindIndex) -> bool {
        self.addresses.0.is_client(binds)
    }
}
