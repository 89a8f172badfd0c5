//! TCP (RFC 9293), as far as a balancer must look: ports and flags.

use etherparse::TcpHeaderSlice;

use super::{WireError, ports::Ports};

/// Length of a header without options.
pub const HEADER_LEN: usize = 20;

/// A header with its options, whole in its slice.
#[derive(Debug, Clone)]
pub struct View<'a>(TcpHeaderSlice<'a>);

impl<'a> View<'a> {
    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// `Truncated` if it ends inside the header, `Malformed` for a data offset under five words.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let header = TcpHeaderSlice::from_slice(bytes).map_err(|e| match e {
            etherparse::err::tcp::HeaderSliceError::Len(_) => WireError::Truncated,
            etherparse::err::tcp::HeaderSliceError::Content(_) => WireError::Malformed,
        })?;
        Ok(Self(header))
    }

    /// Both ports.
    #[must_use]
    pub fn ports(&self) -> Ports {
        Ports { source: self.0.source_port(), destination: self.0.destination_port() }
    }

    /// Whether it asks for a new connection: SYN, and neither ACK nor RST.
    #[must_use]
    pub fn opens(&self) -> bool {
        self.0.syn() && !self.0.ack() && !self.0.rst()
    }

    /// The SYN flag.
    #[must_use]
    pub fn syn(&self) -> bool {
        self.0.syn()
    }

    /// The ACK flag.
    #[must_use]
    pub fn ack(&self) -> bool {
        self.0.ack()
    }

    /// The RST flag.
    #[must_use]
    pub fn rst(&self) -> bool {
        self.0.rst()
    }

    /// The FIN flag.
    #[must_use]
    pub fn fin(&self) -> bool {
        self.0.fin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_offset_and_flags() {
        let mut octets = [0; 60];
        octets[..4].copy_from_slice(&[0xb2, 0x6e, 0, 80]);
        for word in 0..=u16::MAX {
            octets[12..14].copy_from_slice(&word.to_be_bytes());
            let Ok(view) = View::parse(&octets) else {
                assert!(word >> 12 < 5, "{word:04x}");
                continue;
            };
            assert!(word >> 12 >= 5, "{word:04x}");
            let flags = [view.fin(), view.syn(), view.rst(), view.ack()];
            assert_eq!(flags, [word & 1 != 0, word & 2 != 0, word & 4 != 0, word & 16 != 0], "{word:04x}");
            assert_eq!(view.opens(), word & 0x16 == 2, "{word:04x}");
            assert_eq!(view.ports(), Ports { source: 45_678, destination: 80 });
        }
    }

    #[test]
    fn every_cut() {
        for words in 5..16_u8 {
            let mut octets = [0; 60];
            octets[12] = words << 4;
            for cut in 0..usize::from(words) * 4 {
                assert_eq!(
                    View::parse(&octets[..cut]).unwrap_err(),
                    WireError::Truncated,
                    "{words} words, cut {cut}"
                );
            }
        }
    }
}
