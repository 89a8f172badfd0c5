//! Capture files: reads pcap and pcapng, writes pcap.
//!
//! The reader accepts Ethernet frames only. A pcapng file may mix interfaces and resolutions; a packet of
//! another link type is an error, because its octets would be misread as Ethernet.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    time::Duration,
};

use pcap_file::{
    DataLink, PcapError, TsResolution,
    pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter},
    pcapng::{
        Block, PcapNgReader,
        blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption},
    },
};

/// First octets of a pcapng file: a section header block.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Why a capture cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not a valid capture.
    #[error("packet {packet}: {cause}")]
    Format {
        /// Packets read before.
        packet: u64,
        /// The error.
        cause: PcapError,
    },
    /// The frame is not Ethernet.
    #[error("packet {packet}: expected link type ETHERNET, found {found:?}")]
    LinkType {
        /// Packets read before.
        packet: u64,
        /// The link type.
        found: DataLink,
    },
}

/// A captured frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Time of arrival since 1970.
    pub time: Duration,
    /// The captured octets.
    pub frame: Vec<u8>,
    /// Length of the frame on the wire, in octets.
    pub original_len: u32,
}

/// Reads the frames of a capture in either format.
pub struct Reader<R: Read> {
    format: Format<R>,
    packets: u64,
}

enum Format<R: Read> {
    Pcap(Box<PcapReader<BufReader<R>>>),
    PcapNg(Box<PcapNgReader<BufReader<R>>>),
}

impl<R: Read> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("packets", &self.packets).finish_non_exhaustive()
    }
}

impl<R: Read> Reader<R> {
    /// Reads the file header.
    ///
    /// # Errors
    /// If the file is neither pcap nor pcapng, or a pcap with another link type than Ethernet.
    pub fn new(reader: R) -> Result<Self, CaptureError> {
        let mut reader = BufReader::new(reader);
        let broken = |cause| CaptureError::Format { packet: 0, cause };
        let format = if reader.fill_buf()?.starts_with(&PCAPNG) {
            Format::PcapNg(Box::new(PcapNgReader::new(reader).map_err(broken)?))
        } else {
            let reader = PcapReader::new(reader).map_err(broken)?;
            ethernet_only(0, reader.header().datalink)?;
            Format::Pcap(Box::new(reader))
        };
        Ok(Self { format, packets: 0 })
    }

    /// The next frame; `None` at the end.
    ///
    /// # Errors
    /// If the file is invalid, or the frame is not Ethernet.
    pub fn next_frame(&mut self) -> Result<Option<Captured>, CaptureError> {
        let packet = self.packets;
        let next = match &mut self.format {
            Format::Pcap(reader) => next_pcap(reader, packet),
            Format::PcapNg(reader) => next_pcapng(reader, packet),
        };
        self.packets += 1;
        next
    }
}

fn ethernet_only(packet: u64, found: DataLink) -> Result<(), CaptureError> {
    if found == DataLink::ETHERNET { Ok(()) } else { Err(CaptureError::LinkType { packet, found }) }
}

fn next_pcap<R: Read>(
    reader: &mut PcapReader<BufReader<R>>,
    packet: u64,
) -> Result<Option<Captured>, CaptureError> {
    let Some(read) = reader.next_packet() else { return Ok(None) };
    let read = read.map_err(|cause| CaptureError::Format { packet, cause })?;
    let frame = read.data.into_owned();
    Ok(Some(Captured { time: read.timestamp, frame, original_len: read.orig_len }))
}

fn next_pcapng<R: Read>(
    reader: &mut PcapNgReader<BufReader<R>>,
    packet: u64,
) -> Result<Option<Captured>, CaptureError> {
    loop {
        let Some(block) = reader.next_block() else { return Ok(None) };
        let block = block.map_err(|cause| CaptureError::Format { packet, cause })?.into_owned();
        let (interface, ticks, data, original_len) = match block {
            Block::EnhancedPacket(b) => (b.interface_id, b.timestamp.as_nanos(), b.data, b.original_len),
            Block::SimplePacket(b) => (0, 0, b.data, b.original_len),
            _ => continue,
        };
        let known = reader.interfaces().get(interface as usize);
        let missing = || PcapError::InvalidField("packet of an interface that was not described");
        let interface = known.ok_or_else(|| CaptureError::Format { packet, cause: missing() })?;
        ethernet_only(packet, interface.linktype)?;
        let frame = data.into_owned();
        return Ok(Some(Captured { time: to_time(ticks, resolution(interface)), frame, original_len }));
    }
}

/// The interface's `if_tsresol`, or the default, microseconds. pcap-file does not apply it.
fn resolution(interface: &InterfaceDescriptionBlock<'_>) -> u8 {
    let option = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    option.unwrap_or(6)
}

/// `resolution` is a negative power of 10 of a second, or of 2 if its high bit is set.
fn to_time(ticks: u128, resolution: u8) -> Duration {
    let power = u32::from(resolution & 0x7f);
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    // A time stamp has 64 bits: more than 64 binary or 19 decimal digits of a second do not fit. Limit the
    // power.
    let per_second = base.checked_pow(power.min(63)).unwrap_or(u128::MAX);
    let seconds = u64::try_from(ticks / per_second).unwrap_or(u64::MAX);
    let nanos = (ticks % per_second).checked_mul(1_000_000_000).map_or(0, |nanos| nanos / per_second);
    Duration::new(seconds, u32::try_from(nanos).expect("invariant: less than a second"))
}

/// Writes Ethernet frames as a pcap file with time stamps in nanoseconds.
#[derive(Debug)]
pub struct Writer<W: Write>(PcapWriter<W>);

impl<W: Write> Writer<W> {
    /// Writes the file header.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(writer: W) -> Result<Self, CaptureError> {
        // 262,144 is the largest length that readers accept everywhere.
        let header = PcapHeader {
            snaplen: 262_144,
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        PcapWriter::with_header(writer, header).map(Self).map_err(written)
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// If it cannot be written, or is longer than 2^32 - 1 octets.
    pub fn write(&mut self, time: Duration, frame: &[u8]) -> Result<(), CaptureError> {
        let len = u32::try_from(frame.len()).map_err(io::Error::other)?;
        self.0.write_packet(&PcapPacket::new(time, len, frame)).map(|_| ()).map_err(written)
    }

    /// The writer, for flushing.
    pub fn into_inner(self) -> W {
        self.0.into_writer()
    }
}

fn written(error: PcapError) -> CaptureError {
    match error {
        PcapError::IoError(error) => CaptureError::Io(error),
        cause => CaptureError::Format { packet: 0, cause },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file).unwrap();
        let time = Duration::new(1_700_000_000, 123_456_789);
        writer.write(time, &[1; 60]).unwrap();
        writer.write(time * 2, &[2; 1_514]).unwrap();
        let mut reader = Reader::new(file.as_slice()).unwrap();
        assert_eq!(
            reader.next_frame().unwrap(),
            Some(Captured { time, frame: vec![1; 60], original_len: 60 })
        );
        assert_eq!(reader.next_frame().unwrap().map(|c| (c.time, c.frame.len())), Some((time * 2, 1_514)));
        assert_eq!(reader.next_frame().unwrap(), None);
    }

    #[test]
    fn every_cut_is_an_end_or_an_error() {
        let mut file = Vec::new();
        Writer::new(&mut file).unwrap().write(Duration::ZERO, &[1; 60]).unwrap();
        for cut in 0..file.len() {
            let Ok(mut reader) = Reader::new(&file[..cut]) else { continue };
            let read = reader.next_frame();
            assert!(read.is_err() || (cut == 24 && read.unwrap().is_none()), "cut {cut}");
        }
    }

    #[test]
    fn time_stamps_of_every_resolution() {
        assert_eq!(to_time(1_700_000_000_123_456, 6), Duration::new(1_700_000_000, 123_456_000));
        assert_eq!(to_time(1_700_000_000_123_456_789, 9), Duration::new(1_700_000_000, 123_456_789));
        assert_eq!(to_time(3 << 20 | 1 << 19, 0x80 | 20), Duration::new(3, 500_000_000));
        for resolution in 0..=u8::MAX {
            let _ = to_time(u128::from(u64::MAX), resolution);
        }
    }

    /// A section header, an interface (Ethernet, microseconds) and one packet of four octets, by hand.
    fn pcapng(link: u8) -> Vec<u8> {
        let block = |kind: u32, body: &[u8]| {
            let len = u32::try_from(12 + body.len()).unwrap().to_le_bytes();
            [&kind.to_le_bytes()[..], &len, body, &len].concat()
        };
        let section = [0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];
        let interface = [link, 0, 0, 0, 0, 0, 4, 0];
        let packet = [0, 0, 0, 0, 0, 0, 0, 0, 64, 66, 15, 0, 4, 0, 0, 0, 60, 0, 0, 0, 9, 8, 7, 6];
        [block(0x0a0d_0d0a, &section), block(1, &interface), block(6, &packet)].concat()
    }

    #[test]
    fn pcapng_in_microseconds() {
        let file = pcapng(1);
        let mut reader = Reader::new(file.as_slice()).unwrap();
        let expected = Captured { time: Duration::from_secs(1), frame: vec![9, 8, 7, 6], original_len: 60 };
        assert_eq!(reader.next_frame().unwrap(), Some(expected));
        assert_eq!(reader.next_frame().unwrap(), None);
    }

    #[test]
    fn other_link_types_are_refused() {
        let file = pcapng(101);
        let read = Reader::new(file.as_slice()).unwrap().next_frame();
        assert!(matches!(read, Err(CaptureError::LinkType { packet: 0, .. })), "{read:?}");
    }
}
