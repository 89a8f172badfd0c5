//! The Rust side of `bpf/redirect_abi.h`.

use std::net::{IpAddr, Ipv4Addr};

use common::bind::Prefix;
use common::hash::SipKey;

use super::config::{RedirectConfig, Udp};
use crate::drivers::xdp::XdpError;
use crate::drivers::xdp::abi::{Octets, high_bits_v4, high_bits_v6};

/// Size of `struct redirect_config` in octets.
const CONFIG: usize = 992;
/// `MAX_PREFIXES`: largest number of prefixes in each list.
const MAX_PREFIXES: usize = 16;
/// `KEPT_LATER`: number of reasons to accept that the program counts.
pub(super) const KEPT: usize = 6;
/// `FORWARDED`: index of the counter of forwarded packets.
pub(super) const FORWARDED: usize = 2 * KEPT;
/// Names of the reasons to punt, from `LEFT_NOT_OURS` on.
pub(super) const LEFT: [&str; 7] =
    ["not_ours", "outer", "sender", "gue", "inner", "unresolved", "inner_unfinished"];
/// `FATES`: number of counters.
pub(super) const FATES: usize = FORWARDED + 1 + LEFT.len();

/// The octets of `struct redirect_config`. Packets with IPv6 outer headers are punted, so the lists of
/// senders and hops have IPv4 prefixes only.
pub(super) fn config(
    from: &RedirectConfig,
    own: &[Ipv4Addr],
    mac: [u8; 6],
    syn_key: SipKey,
) -> Result<Vec<u8>, XdpError> {
    let v4 = |list: &[Prefix]| list.iter().copied().filter(|p| p.address().is_ipv4()).collect::<Vec<_>>();
    let (directors, backends, vips_v4) = (v4(&from.directors), v4(&from.backends), v4(&from.vips));
    let vips_v6: Vec<_> = from.vips.iter().copied().filter(|p| p.address().is_ipv6()).collect();
    let mut to = Octets::with_capacity(CONFIG);
    to.put(mac);
    to.put(from.listen.port().to_be_bytes());
    to.u8(from.max_hops);
    to.u8(u8::from(from.udp == Udp::Keep));
    to.u8(limited("own addresses", own.len())?);
    to.u8(limited("directors", directors.len())?);
    to.u8(limited("backends", backends.len())?);
    to.u8(limited("IPv4 VIPs", vips_v4.len())?);
    to.u8(limited("IPv6 VIPs", vips_v6.len())?);
    to.u8(0);
    for index in 0..MAX_PREFIXES {
        to.put(own.get(index).map_or([0; 4], Ipv4Addr::octets));
    }
    for list in [directors, backends, vips_v4] {
        (0..MAX_PREFIXES).for_each(|index| write_v4(&mut to, list.get(index)));
    }
    (0..MAX_PREFIXES).for_each(|index| write_v6(&mut to, vips_v6.get(index)));
    to.put(syn_key.octets());
    Ok(to.into_inner())
}

/// The fields of `struct prefix`: length in bits, and the address in octets.
pub(super) fn prefix(prefix: Prefix) -> (u32, [u8; 16]) {
    match prefix.address() {
        IpAddr::V4(v4) => (96 + u32::from(prefix.bits()), v4.to_ipv6_mapped().octets()),
        IpAddr::V6(v6) => (prefix.bits().into(), v6.octets()),
    }
}

fn limited(what: &'static str, found: usize) -> Result<u8, XdpError> {
    let error = XdpError::TooMany { what, most: MAX_PREFIXES as u64, found: found as u64 };
    u8::try_from(found).ok().filter(|_| found <= MAX_PREFIXES).ok_or(error)
}

fn write_v4(to: &mut Octets, prefix: Option<&Prefix>) {
    let (address, bits) = match prefix.map(|prefix| (prefix.address(), prefix.bits())) {
        Some((IpAddr::V4(address), bits)) => (address, bits),
        _ => (Ipv4Addr::UNSPECIFIED, 32),
    };
    to.put(address.octets());
    to.put(high_bits_v4(bits).to_be_bytes());
}

fn write_v6(to: &mut Octets, prefix: Option<&Prefix>) {
    let (address, bits) = match prefix.map(|prefix| (prefix.address(), prefix.bits())) {
        Some((IpAddr::V6(address), bits)) => (address.octets(), bits),
        _ => ([0; 16], 128),
    };
    to.put(address);
    to.put(high_bits_v6(bits).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redirect::decide::Accept;

    const TEXT: &str = "{version: 1, directors: [10.0.0.1], backends: [10.0.1.0/24], vips: [203.0.113.10, \"2001:db8::/64\"]}";

    #[test]
    fn sizes_and_numbers_are_those_of_the_header() {
        let header = include_str!("../../bpf/redirect_abi.h");
        assert!(header.contains(&format!("sizeof(struct redirect_config) == {CONFIG},")));
        assert!(header.contains(&format!("\tFATES = {FATES},\n")));
        assert!(header.contains(&format!("\tFORWARDED = {FORWARDED},\n")));
        for (index, reason) in Accept::ALL.iter().take(KEPT).enumerate() {
            let line = format!("\tKEPT_{} = {index},\n", reason.name().to_uppercase());
            assert!(header.contains(&line), "{line}");
        }
        for (index, name) in LEFT.iter().enumerate() {
            assert!(header.contains(&format!(
                "\tLEFT_{} = {},\n",
                name.to_uppercase(),
                FORWARDED + 1 + index
            )));
        }
        let words = crate::redirect::SYN_WORDS.trailing_zeros();
        assert!(header.contains(&format!("\tRECENT_SYNS = 1 << {words},\n")));
        let config = RedirectConfig::parse("t", TEXT).unwrap();
        let config = super::config(&config, &[[10, 0, 1, 1].into()], [2; 6], SipKey::new([7; 16])).unwrap();
        assert_eq!((config.len(), config[CONFIG - 16..].to_vec()), (CONFIG, vec![7; 16]));
        assert_eq!(config[..20], [2, 2, 2, 2, 2, 2, 0x4c, 0x43, 7, 1, 1, 1, 1, 1, 1, 0, 10, 0, 1, 1]);
    }

    #[test]
    fn too_many_prefixes_are_refused() {
        let own = vec![Ipv4Addr::LOCALHOST; 17];
        let key = SipKey::new([7; 16]);
        let error = config(&RedirectConfig::parse("t", TEXT).unwrap(), &own, [2; 6], key).unwrap_err();
        assert_eq!(error.to_string(), "own addresses: expected at most 16, found 17");
    }
}
