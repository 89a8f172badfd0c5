//! Socket addresses in the form that the kernel reads (`struct sockaddr`), encoded without `unsafe`.

use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};

/// Octets of the longest address in use, `sockaddr_in6`.
pub(super) const LONGEST: usize = 28;

/// An encoded address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketAddress {
    octets: [u8; LONGEST],
    /// At most [`LONGEST`].
    len: SocketAddrLen,
}

impl SocketAddress {
    /// An address of no family, to fill an array before its elements are set.
    pub(super) const EMPTY: Self = Self { octets: [0; LONGEST], len: 0 };

    /// An address that is already encoded in the first `len` octets.
    pub(super) fn new(octets: [u8; LONGEST], len: SocketAddrLen) -> Self {
        assert!(len as usize <= LONGEST, "invariant: an address has at most 28 octets");
        Self { octets, len }
    }

    /// `sockaddr_ll` of an interface: u16 family · u16 protocol, big-endian · i32 interface · u16 hardware
    /// type · u8 packet type · u8 address length · u8 × 8 address. The address stays zero: a frame that is
    /// sent over a SOCK_RAW socket carries its own addresses.
    pub(super) fn link(ifindex: u32, protocol: u16) -> Self {
        const AF_PACKET: u16 = 17;
        const MAC_LEN: u8 = 6;
        let mut octets = [0; LONGEST];
        octets[..2].copy_from_slice(&AF_PACKET.to_ne_bytes());
        octets[2..4].copy_from_slice(&protocol.to_be_bytes());
        // The kernel knows no index above `i32::MAX` and refuses a negative one.
        octets[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        octets[11] = MAC_LEN;
        Self { octets, len: 20 }
    }

    /// Pointer to the first of [`Self::len`] octets.
    pub(super) fn as_ptr(&self) -> *const u8 {
        self.octets.as_ptr()
    }

    /// Length in octets.
    pub(super) fn len(&self) -> SocketAddrLen {
        self.len
    }
}

// SAFETY: `with_sockaddr` passes a pointer to the octets of `self`, which are initialised and outlive the
// call of `f`, and a length that the constructors keep within the array. The kernel reads an address of any
// alignment and refuses an invalid one.
unsafe impl SocketAddrArg for SocketAddress {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        f(self.as_ptr().cast(), self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_address_has_the_fields_of_sockaddr_ll() {
        let address = SocketAddress::link(0x0102_0304, 0x88a8);
        let octets = address.octets;
        assert_eq!(address.len as usize, size_of::<libc::sockaddr_ll>());
        let fields = [
            (
                std::mem::offset_of!(libc::sockaddr_ll, sll_family),
                libc::AF_PACKET.to_ne_bytes()[..2].to_vec(),
            ),
            (std::mem::offset_of!(libc::sockaddr_ll, sll_protocol), vec![0x88, 0xa8]),
            (std::mem::offset_of!(libc::sockaddr_ll, sll_ifindex), 0x0102_0304_i32.to_ne_bytes().to_vec()),
            (std::mem::offset_of!(libc::sockaddr_ll, sll_halen), vec![6]),
            (std::mem::offset_of!(libc::sockaddr_ll, sll_addr), vec![0; 8]),
        ];
        for (offset, expected) in fields {
            assert_eq!(&octets[offset..offset + expected.len()], expected, "offset {offset}");
        }
    }
}
