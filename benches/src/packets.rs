//! Frames of each kind that the packet path tells apart, and a pipeline for them: one table of 65,536 rows, 100
//! backends and two hops, hashed by source address and port, with ten binds.

use std::net::IpAddr;

use common::{
    backend::Backend,
    hash::mix,
    table::{ForwardingTable, Table},
};
use dataplane::{
    pipeline::{Echo, NextHop, Pipeline, Underlay},
    wire::{checksum, ethernet, ipv4, ipv6},
};

use crate::table::{self, https};

const BACKENDS: u64 = 100;
const VIP: [u8; 4] = [203, 0, 113, 10];
const VIP6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10];
const CLIENT: [u8; 4] = [198, 51, 100, 7];
const CLIENT6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0xc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

/// Kinds of frames, by name.
pub const KINDS: [&str; 8] =
    ["ipv4_syn", "ipv6_syn", "data_1400", "too_big", "no_bind", "icmp_error", "arp", "changing_source"];

/// The frames of a kind; more than one only where that is the point.
///
/// # Panics
/// If there is no such kind.
#[must_use]
pub fn frames(kind: &str) -> Vec<Vec<u8>> {
    match kind {
        "ipv4_syn" => vec![v4(CLIENT, VIP, 6, &tcp(443, 2, 0))],
        "ipv6_syn" => vec![v6(&tcp(443, 2, 0))],
        "data_1400" => vec![v4(CLIENT, VIP, 6, &tcp(443, 16, 1_400))],
        "too_big" => vec![v4(CLIENT, VIP, 6, &tcp(443, 16, 1_460))],
        "no_bind" => vec![v4(CLIENT, VIP, 6, &tcp(444, 2, 0))],
        "icmp_error" => vec![icmp_error()],
        "arp" => vec![[&[0xff; 6][..], &[2; 6], &[8, 6], &[0; 46]].concat()],
        "changing_source" => (0..4_096_u64).map(changed).collect(),
        _ => panic!("no kind {kind}"),
    }
}

fn changed(seed: u64) -> Vec<u8> {
    let [a, b, c, d, ..] = mix(seed).to_le_bytes();
    v4([a, b, c, d], VIP, 6, &tcp(443, 2, 0))
}

fn icmp_error() -> Vec<u8> {
    let quoted =
        ip4(VIP, CLIENT, 6, &[&443_u16.to_be_bytes()[..], &51_234_u16.to_be_bytes(), &[0; 4]].concat());
    let mut message = [&[3, 4, 0, 0, 0, 0, 5, 0x78][..], &quoted].concat();
    let sum = checksum::checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    v4([192, 0, 2, 99], VIP, 1, &message)
}

fn tcp(port: u16, flags: u8, data: usize) -> Vec<u8> {
    let mut segment = [51_234_u16.to_be_bytes(), port.to_be_bytes()].concat();
    segment.extend([1, 2, 3, 4, 0, 0, 0, 0, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    segment.resize(20 + data, b'x');
    segment
}

fn ip4(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total_len = u16::try_from(20 + payload.len()).unwrap_or(u16::MAX);
    let header = ipv4::Header {
        traffic_class: 0,
        total_len,
        identification: 1,
        dont_fragment: true,
        ttl: 60,
        protocol,
        source,
        destination,
    };
    [&header.emit(), payload].concat()
}

fn v4(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    frame(ethernet::TYPE_IPV4, &ip4(source, destination, protocol, payload))
}

fn v6(payload: &[u8]) -> Vec<u8> {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0x1_2345,
        payload_len: u16::try_from(payload.len()).unwrap_or(u16::MAX),
        next_header: 6,
        hop_limit: 60,
        source: CLIENT6,
        destination: VIP6,
    };
    frame(ethernet::TYPE_IPV6, &[&header.emit(), payload].concat())
}

fn frame(ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let (destination, source) = (ethernet::Mac([2, 0, 0, 0, 0, 1]), ethernet::Mac([2, 0, 0, 0, 0, 2]));
    let mut frame = [&ethernet::Header { destination, source, ether_type }.emit(), packet].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// The pipeline for [`frames`].
///
/// # Panics
/// Never: the table is a valid one.
#[must_use]
pub fn pipeline() -> Pipeline {
    let forwarding = ForwardingTable::new(None, vec![table()]).expect("a valid table");
    let underlay = Underlay {
        source_ipv4: Some([192, 0, 2, 1].into()),
        source_ipv6: None,
        mtu: 1_500,
        echo: Echo::Forward,
    };
    let link = NextHop::Link {
        ifindex: 1,
        source: ethernet::Mac([2, 0, 0, 0, 0, 1]),
        destination: ethernet::Mac([2, 0, 0, 0, 0, 3]),
    };
    Pipeline::new(forwarding, underlay, |_, _| Some(link)).expect("binds that do not tie")
}

fn table() -> Table {
    let backends = (0..BACKENDS).map(|at| {
        let octet = u8::try_from(at).unwrap_or(u8::MAX);
        Backend::new(format!("b{at:03}"), IpAddr::from([10, 0, 0, octet]))
    });
    let vips = (1..9).map(|last| [203, 0, 113, last].into()).chain([VIP.into(), VIP6.into()]);
    table::table("web", 4, backends.collect(), vips.map(https).collect(), |row| {
        let draw = mix(u64::from(row));
        let (first, step) = (draw % BACKENDS, 1 + (draw >> 32) % (BACKENDS - 1));
        [first, (first + step) % BACKENDS].map(|b| u16::try_from(b).unwrap_or(0))
    })
}
