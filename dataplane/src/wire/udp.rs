//! UDP (RFC 768). A checksum of zero means that there is none: allowed on IPv4, and on IPv6 for tunnels (RFC
//! 6935).

use etherparse::UdpHeaderSlice;

use super::{WireError, ports::Ports};

/// Length of the header.
pub const HEADER_LEN: usize = 8;

/// A complete header. The length is unchecked.
#[derive(Debug, Clone)]
pub struct View<'a>(UdpHeaderSlice<'a>);

impl<'a> View<'a> {
    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// `Truncated` if it ends inside the header.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        UdpHeaderSlice::from_slice(bytes).map(Self).map_err(|_| WireError::Truncated)
    }

    /// Both ports.
    #[must_use]
    pub fn ports(&self) -> Ports {
        Ports { source: self.0.source_port(), destination: self.0.destination_port() }
    }

    /// Length of header and payload, as written.
    #[must_use]
    pub fn length(&self) -> usize {
        usize::from(self.0.length())
    }

    /// The checksum field.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        self.0.checksum()
    }
}

/// A header without checksum, for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Both ports.
    pub ports: Ports,
    /// Length of header and payload.
    pub length: u16,
}

impl Header {
    /// The header's octets; the checksum is zero.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let [a, b] = self.ports.source.to_be_bytes();
        let [c, d] = self.ports.destination.to_be_bytes();
        let [e, f] = self.length.to_be_bytes();
        [a, b, c, d, e, f, 0, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_round_trips_and_every_cut_fails() {
        for value in 0..=u16::MAX {
            let ports = Ports { source: value, destination: !value };
            let mut octets = Header { ports, length: value.rotate_left(3) }.emit();
            octets[6..].copy_from_slice(&value.to_be_bytes());
            let view = View::parse(&octets).unwrap();
            assert_eq!((view.ports(), view.length()), (ports, usize::from(value.rotate_left(3))));
            assert_eq!(view.checksum(), value);
        }
        for cut in 0..HEADER_LEN {
            assert_eq!(View::parse(&[0; 8][..cut]).unwrap_err(), WireError::Truncated);
        }
    }
}
