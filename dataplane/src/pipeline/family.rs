//! Address families as types. On the hot path the family is known from the link header on; an `IpAddr` would be
//! written to memory and read back in other widths for each question that is asked about it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use common::{
    bind::{BindIndex, Protocol},
    flow::{self, FlowHash, FlowKey, HashFields},
    hash::SipKey,
};

/// An address of a known family.
pub(super) trait Address: Copy + Into<IpAddr> {
    fn lookup(self, binds: &BindIndex, protocol: Protocol, port: u16) -> Option<u32>;

    fn hash(pair: (Self, Self), ports: Option<(u16, u16)>, key: SipKey, fields: HashFields) -> FlowHash;
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
}

/// What can be hashed to a row.
pub(super) trait Flow {
    fn hash(&self, key: SipKey, fields: HashFields) -> FlowHash;
}

impl Flow for FlowKey {
    fn hash(&self, key: SipKey, fields: HashFields) -> FlowHash {
        Self::hash(self, key, fields)
    }
}

/// A flow of a known family that has ports.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tuple<A> {
    /// Of client and VIP.
    pub(super) addresses: (A, A),
    /// Of client and VIP.
    pub(super) ports: (u16, u16),
}

impl<A: Address> Flow for Tuple<A> {
    #[inline(always)]
    fn hash(&self, key: SipKey, fields: HashFields) -> FlowHash {
        A::hash(self.addresses, Some(self.ports), key, fields)
    }
}
