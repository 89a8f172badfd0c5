//! TCP (RFC 9293): the header's length and the meaning of its flags. Ports are read by
//! [`Ports`](super::ports::Ports).

/// Length of a header without options, in octets.
pub const HEADER_LEN: usize = 20;

/// The low eight flags of a header (RFC 9293 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    const FIN: u8 = 0x01;
    const SYN: u8 = 0x02;
    const RST: u8 = 0x04;
    const ACK: u8 = 0x10;

    /// Whether the segment opens a connection: SYN, and neither ACK nor RST.
    #[must_use]
    pub const fn opens(self) -> bool {
        self.0 & (Self::SYN | Self::ACK | Self::RST) == Self::SYN
    }

    /// Whether the segment ends a connection: FIN or RST. Afterwards the client may use the same ports again.
    #[must_use]
    pub const fn closes(self) -> bool {
        self.0 & (Self::FIN | Self::RST) != 0
    }

    /// Whether the segment can complete a handshake: ACK, and neither SYN nor RST.
    #[must_use]
    pub const fn acknowledges(self) -> bool {
        self.0 & (Self::SYN | Self::ACK | Self::RST) == Self::ACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::TcpHeaderSlice;

    /// etherparse reads the flags of a header independently.
    #[test]
    fn every_combination_of_flags() {
        let mut octets = [0; HEADER_LEN];
        octets[12] = 5 << 4;
        for flags in 0..=u8::MAX {
            octets[13] = flags;
            let header = TcpHeaderSlice::from_slice(&octets).unwrap();
            let (syn, ack, rst, fin) = (header.syn(), header.ack(), header.rst(), header.fin());
            let flags = Flags(flags);
            assert_eq!(flags.opens(), syn && !ack && !rst, "{flags:?}");
            assert_eq!(flags.closes(), fin || rst, "{flags:?}");
            assert_eq!(flags.acknowledges(), ack && !syn && !rst, "{flags:?}");
        }
    }
}
