//! Why the kernel program punts a frame to user space. The numbers are those of `enum left` in `bpf/abi.h`.

use crate::pipeline::reasons;

reasons! {
    /// Why the kernel program punted a frame to the worker, which then decides it and counts it by its own
    /// reasons.
    PuntReason {
        /// Neither IPv4 nor IPv6.
        NotIp = 0 "not_ip",
        /// More than one VLAN tag.
        Tags = 1 "tags",
        /// The frame ends before the ports.
        Short = 2 "short",
        /// IPv4 with options, or a version other than the link header's type.
        IpHeader = 3 "ip_header",
        /// An IPv4 fragment.
        Fragment = 4 "fragment",
        /// Neither TCP nor UDP, for example an extension header.
        Protocol = 5 "protocol",
        /// Shorter than its IP header says, or too short for ports.
        Truncated = 6 "truncated",
        /// No bind matches.
        NoBind = 7 "no_bind",
        /// The checksum of the IPv4 header is wrong.
        Checksum = 8 "checksum",
        /// The row is empty.
        NoBackend = 9 "no_backend",
        /// The primary is not reached over a link, or has an IPv6 address.
        NoRoute = 10 "no_route",
        /// Larger than the underlay's MTU once encapsulated.
        TooBig = 11 "too_big",
        /// The driver left no room in front of the frame.
        NoRoom = 12 "no_room",
        /// The sender left the transport checksum to hardware; only user space can finish it.
        Unfinished = 13 "unfinished",
        /// The source is an address that no client can have.
        Source = 14 "source",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        let header = include_str!("../../../bpf/abi.h");
        for (index, reason) in PuntReason::ALL.iter().enumerate() {
            assert_eq!(usize::from(reason.number()), index);
            let line = format!("\tLEFT_{} = {index},\n", reason.name().to_uppercase());
            assert!(header.contains(&line), "{line}");
        }
        assert!(header.contains(&format!("\tLEFT_REASONS = {},\n", PuntReason::ALL.len())));
    }
}
