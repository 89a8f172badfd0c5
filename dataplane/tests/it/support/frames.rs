//! Frames made by hand, with their own checksum code.

use std::net::IpAddr;

use super::tables::OWN_MAC;

pub(crate) const CLIENT_MAC: [u8; 6] = [0xb6, 0x59, 0x5f, 0x11, 0xc1, 0x2a];

/// RFC 1071, word by word.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

pub(crate) fn octets(address: &str) -> Vec<u8> {
    match address.parse().unwrap() {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// An IPv4 packet; the fields that tests vary.
#[derive(Debug, Clone)]
pub(crate) struct V4 {
    pub(crate) source: &'static str,
    pub(crate) destination: &'static str,
    pub(crate) protocol: u8,
    pub(crate) traffic_class: u8,
    pub(crate) identification: u16,
    /// Flags and fragment offset.
    pub(crate) fragment: u16,
    pub(crate) options: Vec<u8>,
}

impl V4 {
    pub(crate) fn new(source: &'static str, destination: &'static str, protocol: u8) -> Self {
        let (traffic_class, identification, fragment) = (0, 0x1234, 0x4000);
        Self { source, destination, protocol, traffic_class, identification, fragment, options: Vec::new() }
    }

    pub(crate) fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let total_len = u16::try_from(header_len + payload.len()).unwrap();
        let first = 0x40 | u8::try_from(header_len / 4).unwrap();
        let mut packet = vec![first, self.traffic_class];
        packet.extend(total_len.to_be_bytes());
        packet.extend(self.identification.to_be_bytes());
        packet.extend(self.fragment.to_be_bytes());
        packet.extend([63, self.protocol, 0, 0]);
        packet.extend(octets(self.source));
        packet.extend(octets(self.destination));
        packet.extend(&self.options);
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(payload);
        packet
    }

    pub(crate) fn frame(&self, payload: &[u8]) -> Vec<u8> {
        ethernet(&[0x0800], &self.packet(payload))
    }
}

/// An IPv6 packet; the fields that tests vary.
#[derive(Debug, Clone)]
pub(crate) struct V6 {
    pub(crate) source: &'static str,
    pub(crate) destination: &'static str,
    pub(crate) next_header: u8,
    pub(crate) traffic_class: u8,
}

impl V6 {
    pub(crate) fn new(source: &'static str, destination: &'static str, next_header: u8) -> Self {
        Self { source, destination, next_header, traffic_class: 0 }
    }

    pub(crate) fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | 0x1_2345;
        let mut packet = first.to_be_bytes().to_vec();
        packet.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
        packet.extend([self.next_header, 63]);
        packet.extend(octets(self.source));
        packet.extend(octets(self.destination));
        packet.extend(payload);
        packet
    }

    pub(crate) fn frame(&self, payload: &[u8]) -> Vec<u8> {
        ethernet(&[0x86dd], &self.packet(payload))
    }
}

/// `types` are those of the tags, then that of the payload.
pub(crate) fn ethernet(types: &[u16], payload: &[u8]) -> Vec<u8> {
    let mut frame = [OWN_MAC.0, CLIENT_MAC].concat();
    for (at, ether_type) in types.iter().enumerate() {
        frame.extend(ether_type.to_be_bytes());
        if at + 1 < types.len() {
            frame.extend([0x20, 0x64]);
        }
    }
    frame.extend(payload);
    frame
}

/// Length of the link header of a frame with at most two tags.
pub(crate) fn link_len(frame: &[u8]) -> usize {
    let is_tag = |at: &usize| matches!(frame[*at..at + 2], [0x81, 0] | [0x88, 0xa8] | [0x91, 0]);
    [12, 16, 20].into_iter().find(|at| !is_tag(at)).unwrap() + 2
}

/// A TCP segment; its checksum is not filled in, since a director does not look at it.
pub(crate) fn tcp(source: u16, destination: u16, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut segment = ports(source, destination);
    segment.extend([1, 2, 3, 4, 0, 0, 0, 0, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    segment.extend(data);
    segment
}

pub(crate) fn udp(source: u16, destination: u16, data: &[u8]) -> Vec<u8> {
    let mut datagram = ports(source, destination);
    datagram.extend(u16::try_from(8 + data.len()).unwrap().to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(data);
    datagram
}

pub(crate) fn ports(source: u16, destination: u16) -> Vec<u8> {
    [source.to_be_bytes(), destination.to_be_bytes()].concat()
}

/// An ICMP message with its checksum.
pub(crate) fn icmp(kind: u8, code: u8, rest: [u8; 4], data: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest);
    message.extend(data);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// An ICMPv6 message with its checksum.
pub(crate) fn icmpv6(source: &str, destination: &str, kind: u8, rest: [u8; 4], data: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(rest);
    message.extend(data);
    let sum = checksum(&[pseudo(source, destination, 58, message.len()), message.clone()].concat());
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

pub(crate) fn pseudo(source: &str, destination: &str, protocol: u8, len: usize) -> Vec<u8> {
    let mut pseudo = [octets(source), octets(destination)].concat();
    pseudo.extend(u32::try_from(len).unwrap().to_be_bytes());
    pseudo.extend([0, 0, 0, protocol]);
    pseudo
}

/// A TCP or UDP segment as its sender leaves it to a network card (CHECKSUM_PARTIAL): the checksum field
/// contains the sum of the pseudo header.
pub(crate) fn unfinished(source: &str, destination: &str, protocol: u8, mut segment: Vec<u8>) -> Vec<u8> {
    let sum = !checksum(&pseudo(source, destination, protocol, segment.len()));
    let at = if protocol == 6 { 16 } else { 6 };
    segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    segment
}

/// An IPv6 extension header of eight octets: hop-by-hop, routing or destination options.
pub(crate) fn extension(next: u8) -> Vec<u8> {
    vec![next, 0, 1, 4, 0, 0, 0, 0]
}

/// An IPv6 fragment header.
pub(crate) fn fragment_header(next: u8, offset: u16, more: bool) -> Vec<u8> {
    let word = offset << 3 | u16::from(more);
    [&[next, 0][..], &word.to_be_bytes(), &[0, 0, 0, 1]].concat()
}
