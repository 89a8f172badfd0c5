//! Flows of a capture: pcap or pcapng, Ethernet or bare IP. Only packets that belong to a flow to a service
//! count as flows: TCP, UDP and echo requests, without fragments. ICMP errors and fragments find their row in
//! other ways; they are only counted.

use super::Flow;
use common::bind::Protocol;
use etherparse::{Icmpv4Type, Icmpv6Type, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::time::Duration;

/// The distinct flows of a capture, in order of appearance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capture {
    /// The flows, at most as many as requested.
    pub flows: Vec<Flow>,
    /// Number of packets read.
    pub packets: u64,
    /// Number of packets that are not TCP, UDP or an echo request, or are fragments.
    pub others: u64,
}

/// A capture that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The file is not a capture, or is damaged.
    #[error("after {packets} packets: {source}")]
    Format {
        /// Packets read before the error.
        packets: u64,
        /// The error.
        source: PcapError,
    },
    /// The link type is not supported.
    #[error("link type {0:?} is not supported; supported are Ethernet and bare IP")]
    Link(DataLink),
}

/// First octets of a pcapng file.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Whether a file starts like a capture.
pub fn is_capture(octets: &[u8]) -> bool {
    let magics = [PCAPNG, [0xa1, 0xb2, 0xc3, 0xd4], [0xa1, 0xb2, 0x3c, 0x4d]];
    magics.into_iter().any(|magic| {
        let mut turned = magic;
        turned.reverse();
        octets.starts_with(&magic) || octets.starts_with(&turned)
    })
}

/// Reads until `most` flows are found that `wanted` accepts.
pub fn flows(
    reader: impl Read,
    most: usize,
    wanted: impl Fn(&Flow) -> bool,
) -> Result<Capture, CaptureError> {
    let (mut capture, mut seen) = (Capture::default(), HashSet::new());
    if most == 0 {
        return Ok(capture);
    }
    packets(reader, |_, flow| {
        capture.packets += 1;
        match flow {
            None => capture.others += 1,
            Some(flow) if wanted(&flow) && seen.insert(flow) => capture.flows.push(flow),
            Some(_) => {}
        }
        if capture.flows.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(capture)
}

/// Reads packets until `visit` stops it. `visit` receives the time of each packet, and its flow if it belongs
/// to one.
pub fn packets(
    reader: impl Read,
    visit: impl FnMut(Duration, Option<Flow>) -> ControlFlow<()>,
) -> Result<(), CaptureError> {
    let mut reader = BufReader::new(reader);
    let mut walk = Walk { packets: 0, visit };
    if reader.fill_buf()?.starts_with(&PCAPNG) { walk.pcapng(reader) } else { walk.pcap(reader) }
}

struct Walk<V> {
    packets: u64,
    visit: V,
}

impl<V: FnMut(Duration, Option<Flow>) -> ControlFlow<()>> Walk<V> {
    fn pcap(&mut self, reader: impl Read) -> Result<(), CaptureError> {
        let mut reader = PcapReader::new(reader).map_err(|source| self.broken(source))?;
        let link = reader.header().datalink;
        while let Some(packet) = reader.next_packet() {
            let packet = packet.map_err(|source| self.broken(source))?;
            if self.packet(link, packet.timestamp, &packet.data)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn pcapng(&mut self, reader: impl Read) -> Result<(), CaptureError> {
        let mut reader = PcapNgReader::new(reader).map_err(|source| self.broken(source))?;
        let (mut interfaces, mut time) = (Vec::new(), Duration::ZERO);
        while let Some(block) = reader.next_block() {
            let (interface, data) = match block.map_err(|source| self.broken(source))? {
                Block::SectionHeader(_) => {
                    interfaces.clear();
                    continue;
                }
                Block::InterfaceDescription(interface) => {
                    interfaces.push((interface.linktype, tick(&interface)));
                    continue;
                }
                Block::EnhancedPacket(packet) => {
                    let index = usize::try_from(packet.interface_id).ok();
                    let interface = index.and_then(|index| interfaces.get(index));
                    // The reader returns ticks as nanoseconds.
                    let tick = interface.map_or(MICROSECOND, |(_, tick)| *tick);
                    time = Duration::try_from_secs_f64(packet.timestamp.as_nanos() as f64 * tick)
                        .unwrap_or(time);
                    (interface, packet.data)
                }
                Block::SimplePacket(packet) => (interfaces.first(), packet.data),
                _ => continue,
            };
            let link = interface.map_or(DataLink::ETHERNET, |(link, _)| *link);
            if self.packet(link, time, &data)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn packet(
        &mut self,
        link: DataLink,
        time: Duration,
        octets: &[u8],
    ) -> Result<ControlFlow<()>, CaptureError> {
        let packet = match link {
            DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(octets).ok(),
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => LaxSlicedPacket::from_ip(octets).ok(),
            other => return Err(CaptureError::Link(other)),
        };
        self.packets += 1;
        Ok((self.visit)(time, packet.as_ref().and_then(flow)))
    }

    fn broken(&self, source: PcapError) -> CaptureError {
        CaptureError::Format { packets: self.packets, source }
    }
}

/// Seconds per tick of an interface that does not state them.
const MICROSECOND: f64 = 1e-6;

/// Seconds per tick: a power of ten, or of two if the highest bit is set (draft-ietf-opsawg-pcapng,
/// `if_tsresol`).
fn tick(interface: &InterfaceDescriptionBlock<'_>) -> f64 {
    let resolution = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    resolution.map_or(MICROSECOND, |resolution| {
        let base: f64 = if resolution & 0x80 == 0 { 10.0 } else { 2.0 };
        base.powi(-i32::from(resolution & 0x7f))
    })
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
