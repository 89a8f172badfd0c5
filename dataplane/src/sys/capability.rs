//! Which privileges the process has (capabilities(7)), to refuse early and by name.

use std::{fmt, fs, io};

/// Those that moving frames needs, and the one that making namespaces needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Packet and raw IP sockets.
    NetRaw = 13,
    /// Offloads, neighbour requests, fanout groups.
    NetAdmin = 12,
    /// Namespaces.
    SysAdmin = 21,
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

/// Those of `wanted` that the calling process lacks.
pub fn missing(wanted: &[Capability]) -> io::Result<Vec<Capability>> {
    let effective = effective(&fs::read_to_string("/proc/self/status")?).unwrap_or(0);
    Ok(wanted.iter().copied().filter(|&one| effective >> (one as u8) & 1 == 0).collect())
}

fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_set_is_read_from_its_line_alone() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t0000000000003000\nCapBnd:\tff\n";
        assert_eq!(effective(status), Some(0x3000));
        assert_eq!(effective("CapEff:\tnonsense\n"), None);
        assert_eq!(effective(""), None);
    }
}
