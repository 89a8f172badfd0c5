//! The first four octets of TCP and UDP: the ports. An ICMP error may quote only eight octets of a transport
//! header (RFC 792), so nothing more is read.

/// Source and destination port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ports {
    /// The sender's port.
    pub source: u16,
    /// The receiver's port.
    pub destination: u16,
}

impl Ports {
    /// Reads the ports at the start of a transport header.
    #[inline]
    #[must_use]
    pub fn parse(transport: &[u8]) -> Option<Self> {
        let [a, b, c, d] = *transport.first_chunk()?;
        Some(Self { source: u16::from_be_bytes([a, b]), destination: u16::from_be_bytes([c, d]) })
    }

    /// The ports in the other direction.
    #[inline]
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_and_every_cut() {
        for port in 0..=u16::MAX {
            let [a, b] = port.to_be_bytes();
            let octets = [a, b, b, a];
            let ports = Ports { source: port, destination: port.swap_bytes() };
            assert_eq!(Ports::parse(&octets), Some(ports));
            assert_eq!(ports.reversed().reversed(), ports);
        }
        for cut in 0..4 {
            assert_eq!(Ports::parse(&[0; 4][..cut]), None);
        }
    }
}
