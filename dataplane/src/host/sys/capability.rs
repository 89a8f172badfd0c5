//! Privileges of the process (capabilities(7)), so that a program can name the missing ones before it starts.

use std::{fmt, io};

use rustix::thread::CapabilitySet;

/// A privilege that the programs need to move frames or to create namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Packet and raw IP sockets.
    NetRaw,
    /// Offloads, neighbour requests, fanout groups.
    NetAdmin,
    /// Namespaces.
    SysAdmin,
}

impl Capability {
    fn bit(self) -> CapabilitySet {
        match self {
            Self::NetRaw => CapabilitySet::NET_RAW,
            Self::NetAdmin => CapabilitySet::NET_ADMIN,
            Self::SysAdmin => CapabilitySet::SYS_ADMIN,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NetRaw => "CAP_NET_RAW",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::SysAdmin => "CAP_SYS_ADMIN",
        })
    }
}

/// The capabilities in `wanted` that the calling thread does not have in its effective set.
pub fn missing(wanted: &[Capability]) -> io::Result<Vec<Capability>> {
    let effective = rustix::thread::capabilities(None)?.effective;
    Ok(wanted.iter().copied().filter(|capability| !effective.contains(capability.bit())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those of linux/capability.h; `CapEff` in proc(5) is the same set in hexadecimal.
    #[test]
    fn the_missing_ones_are_the_bits_that_proc_shows_as_zero() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        let effective = u64::from_str_radix(effective.trim(), 16).unwrap();
        let numbers = [(Capability::NetAdmin, 12), (Capability::NetRaw, 13), (Capability::SysAdmin, 21)];
        for (capability, number) in numbers {
            assert_eq!(capability.bit().bits(), 1 << number, "{capability}");
            let expected = if effective >> number & 1 == 1 { vec![] } else { vec![capability] };
            assert_eq!(missing(&[capability]).unwrap(), expected);
        }
    }
}
