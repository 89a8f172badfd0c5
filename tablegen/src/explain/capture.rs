//! Flows of a capture: pcap or pcapng, Ethernet or bare IP.
//!
//! Only what starts or continues a flow to a service is taken: TCP, UDP and echo requests that are no fragments. The
//! rest is counted, not explained: errors and fragments find their row by other means.

use super::Flow;
use common::bind::Protocol;
use etherparse::{Icmpv4Type, Icmpv6Type, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};

/// The distinct flows of a capture, in order of appearance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capture {
    /// At most as many as were asked for.
    pub flows: Vec<Flow>,
    /// Packets that were read.
    pub packets: u64,
    /// Of these, packets that are no TCP, no UDP and no echo request, or fragments.
    pub others: u64,
}

/// A capture that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file system says no.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Not a capture, or a broken one.
    #[error("after {packets} packets: {source}")]
    Format {
        /// Packets read before.
        packets: u64,
        /// What is wrong.
        source: PcapError,
    },
    /// Frames of a kind that is not read.
    #[error("link type {0:?}: only Ethernet and bare IP are read")]
    Link(DataLink),
}

/// Octets that a pcapng file starts with.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Reads until there are `most` flows that `wanted` takes.
pub fn flows(
    reader: impl Read,
    most: usize,
    wanted: impl Fn(&Flow) -> bool,
) -> Result<Capture, CaptureError> {
    let mut reader = BufReader::new(reader);
    let mut collector = Collector { capture: Capture::default(), seen: HashSet::new(), most, wanted };
    if reader.fill_buf()?.starts_with(&PCAPNG) {
        collector.pcapng(reader)?;
    } else {
        collector.pcap(reader)?;
    }
    Ok(collector.capture)
}

struct Collector<W> {
    capture: Capture,
    seen: HashSet<Flow>,
    most: usize,
    wanted: W,
}

impl<W: Fn(&Flow) -> bool> Collector<W> {
    fn pcap(&mut self, reader: impl Read) -> Result<(), CaptureError> {
        let mut reader = PcapReader::new(reader).map_err(|source| self.broken(source))?;
        let link = reader.header().datalink;
        while let Some(packet) = reader.next_packet().filter(|_| !self.is_full()) {
            let packet = packet.map_err(|source| self.broken(source))?;
            self.packet(link, &packet.data)?;
        }
        Ok(())
    }

    fn pcapng(&mut self, reader: impl Read) -> Result<(), CaptureError> {
        let mut reader = PcapNgReader::new(reader).map_err(|source| self.broken(source))?;
        let mut links = Vec::new();
        while let Some(block) = reader.next_block().filter(|_| !self.is_full()) {
            let (interface, data) = match block.map_err(|source| self.broken(source))? {
                Block::SectionHeader(_) => {
                    links.clear();
                    continue;
                }
                Block::InterfaceDescription(interface) => {
                    links.push(interface.linktype);
                    continue;
                }
                Block::EnhancedPacket(packet) => (packet.interface_id, packet.data),
                Block::SimplePacket(packet) => (0, packet.data),
                _ => continue,
            };
            let link = usize::try_from(interface).ok().and_then(|at| links.get(at).copied());
            self.packet(link.unwrap_or(DataLink::ETHERNET), &data)?;
        }
        Ok(())
    }

    fn packet(&mut self, link: DataLink, octets: &[u8]) -> Result<(), CaptureError> {
        let packet = match link {
            DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(octets).ok(),
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => LaxSlicedPacket::from_ip(octets).ok(),
            other => return Err(CaptureError::Link(other)),
        };
        self.capture.packets += 1;
        match packet.as_ref().and_then(flow) {
            None => self.capture.others += 1,
            Some(flow) if (self.wanted)(&flow) && self.seen.insert(flow) => self.capture.flows.push(flow),
            Some(_) => {}
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.capture.flows.len() >= self.most
    }

    fn broken(&self, source: PcapError) -> CaptureError {
        CaptureError::Format { packets: self.capture.packets, source }
    }
}

fn flow(packet: &LaxSlicedPacket<'_>) -> Option<Flow> {
    let (src, dst): (IpAddr, IpAddr) = match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        LaxNetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        LaxNetSlice::Arp(_) => return None,
    };
    if packet.ip_payload()?.fragmented {
        return None;
    }
    let ports = |protocol, client, service| {
        Flow::ports(protocol, SocketAddr::new(src, client), SocketAddr::new(dst, service))
    };
    match packet.transport.as_ref()? {
        TransportSlice::Tcp(tcp) => Some(ports(Protocol::Tcp, tcp.source_port(), tcp.destination_port())),
        TransportSlice::Udp(udp) => Some(ports(Protocol::Udp, udp.source_port(), udp.destination_port())),
        TransportSlice::Icmpv4(icmp) => {
            matches!(icmp.icmp_type(), Icmpv4Type::EchoRequest(_)).then(|| Flow::echo(src, dst))
        }
        TransportSlice::Icmpv6(icmp) => {
            matches!(icmp.icmp_type(), Icmpv6Type::EchoRequest(_)).then(|| Flow::echo(src, dst))
        }
        TransportSlice::Igmp(_) => None,
    }
}
