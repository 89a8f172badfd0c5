//! The verdicts on a frame. Each reason is one variant, one counter and at least one test vector. Its number
//! is part of the interface with the kernel program and never changes its meaning.

use super::BackendKey;

/// The verdict on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Send `out[..len]` to the next hop.
    Encapsulate(Encapsulated),
    /// The primary is this host: deliver the packet in `out[14..len]`, encapsulated as usual, to the local
    /// stack. A driver sends it through a raw socket, whose packets pass the loopback interface. The kernel
    /// would drop a looped-back frame with our own source address as a martian.
    Local(Encapsulated),
    /// Drop the frame and, if the limiter allows, send `out[..len]` back on the link that it came from.
    Answer {
        /// What is answered, and why.
        answer: Answer,
        /// Length of the answer in octets.
        len: u32,
    },
    /// Leave the frame to the host.
    Pass(PassReason),
    /// Drop the frame.
    Drop(DropReason),
}

/// An encapsulated frame and its primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encapsulated {
    /// Length of the frame in octets, link header included.
    pub len: u32,
    /// The primary.
    pub primary: BackendKey,
}

/// Declares an enum of reasons with fixed numbers, their names, and a list of all.
macro_rules! reasons {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $variant = $number,)+ }

        impl $name {
            /// All reasons, ordered by number. Numbers start at 0 without gaps.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The number of the reason, also in the kernel program.
            #[inline]
            #[must_use]
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// The name of the counter.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    };
}
pub(crate) use reasons;

reasons! {
    /// Why a frame is left to the host.
    PassReason {
        /// Neither IPv4 nor IPv6, without or behind up to two VLAN tags.
        NotIp = 0 "not_ip",
        /// TCP or UDP that no bind matches; ICMP or an invalid packet to an address that no bind has.
        NoBind = 1 "no_bind",
        /// Neither TCP nor UDP nor the ICMP of the IP version.
        OtherProtocol = 2 "other_protocol",
        /// The link or IP header cannot be read.
        Malformed = 3 "malformed",
        /// ICMP to a VIP that is neither an error nor an echo request.
        IcmpOther = 4 "icmp_other",
        /// An ICMP error to a VIP that quotes no flow of a bind, or too little of the packet.
        IcmpUnmatched = 5 "icmp_unmatched",
        /// An echo request to a VIP, with `echo: pass`.
        Echo = 6 "echo",
    }
}

reasons! {
    /// Why a frame to a VIP is dropped.
    DropReason {
        /// A fragment to a VIP whose table hashes ports.
        Fragment = 0 "fragment",
        /// Larger than the underlay's MTU once encapsulated.
        TooBig = 1 "too_big",
        /// Shorter than its IP header says, or too short for ports.
        Truncated = 2 "truncated",
        /// The checksum of the IPv4 header is wrong.
        HeaderChecksum = 3 "header_checksum",
        /// More IPv6 extension headers than the parser follows.
        ExtensionChain = 4 "extension_chain",
        /// The row is empty.
        NoBackend = 5 "no_backend",
        /// The primary's next hop is not known, or there is no source address of its family.
        NoRoute = 6 "no_route",
        /// `out` is too small.
        NoRoom = 7 "no_room",
        /// The source, or the client that an ICMP error is about, is an address that no client can have.
        Source = 8 "source",
        /// The options of the IPv4 header cannot be read.
        Options = 9 "options",
    }
}

reasons! {
    /// The kind of an answer.
    Answer {
        /// ICMP 3/4 or ICMPv6 2. The frame that it is about counts as dropped too, by [`DropReason::TooBig`].
        TooBig = 0 "too_big",
        /// An echo reply.
        Echo = 1 "echo",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_from_zero_and_names_are_unique() {
        let pass: Vec<_> = PassReason::ALL.iter().map(|r| (r.number(), r.name())).collect();
        let drop: Vec<_> = DropReason::ALL.iter().map(|r| (r.number(), r.name())).collect();
        let answer: Vec<_> = Answer::ALL.iter().map(|r| (r.number(), r.name())).collect();
        for set in [pass, drop, answer] {
            for (index, (number, name)) in set.iter().enumerate() {
                assert_eq!(usize::from(*number), index, "{name}");
                assert!(set.iter().filter(|(_, other)| other == name).count() == 1, "{name}");
            }
        }
    }

    #[test]
    fn a_verdict_is_small() {
        assert!(size_of::<Verdict>() <= 12);
    }
}
