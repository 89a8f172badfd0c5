//! What encapsulation adds to a packet.

/// Octets of GUE and its private data before the addresses of hops, and of UDP.
const FIXED: u32 = 16;

/// Octets that go before a packet: outer IP, UDP (8), GUE (4), private data (4) and the addresses of the hops after the
/// first. `wide` hops have IPv6 addresses. Where the hops of a second look-up are appended (`twice`) there may be twice
/// as many.
#[must_use]
pub fn overhead(hops: usize, wide: bool, twice: bool) -> u32 {
    let Ok(hops) = u32::try_from(hops) else { return u32::MAX };
    let later = match hops {
        0 => return 0,
        hops if twice => hops.saturating_mul(2) - 1,
        hops => hops - 1,
    };
    let (header, address) = if wide { (40, 16) } else { (20, 4) };
    later.saturating_mul(address).saturating_add(header + FIXED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_that_of_the_wire_format() {
        assert_eq!(overhead(2, false, false), 40);
        assert_eq!(overhead(4, false, false), 48);
        assert_eq!(overhead(2, true, false), 72);
        assert_eq!(overhead(2, false, true), 48);
        assert_eq!(overhead(0, false, false), 0);
    }
}
