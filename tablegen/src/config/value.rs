//! Single values: text to number, address, prefix, range, octets.

use super::error::{KeyPath, Refusal};
use super::raw::Text;
use super::{Amount, WEIGHTS};
use common::bind::{PortRange, Prefix};
use common::flow::HashFields;
use common::table;
use common::text::is_hidden;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// What a list of fields may hold.
pub(super) const FIELDS: &str = "any of src_addr, dst_addr, src_port, dst_port, each once";

/// `found` is the text itself, cut where it is long: never use this for a secret.
pub(super) fn refuse(raw: &Text, at: &KeyPath<'_>, allowed: &str) -> Refusal {
    Refusal {
        line: raw.referenced.line(),
        column: raw.referenced.column(),
        path: at.to_string(),
        found: quote(&raw.value),
        allowed: allowed.to_owned(),
    }
}

fn quote(text: &str) -> String {
    const SHOWN: usize = 64;
    let escaped: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!("`{escaped}{more}`")
}

pub(super) fn text(raw: &Text, at: &KeyPath<'_>) -> Result<String, Refusal> {
    let text = &raw.value;
    if !(1..=table::MAX_TEXT).contains(&text.len()) || text.chars().any(char::is_control) {
        let octets = table::MAX_TEXT;
        return Err(refuse(raw, at, &format!("1 to {octets} octets of text without control characters")));
    }
    if text.chars().any(is_hidden) {
        return Err(refuse(raw, at, "text without invisible characters and marks of direction"));
    }
    Ok(text.clone())
}

/// Text by which people tell backends apart.
pub(super) fn label(raw: &Text, at: &KeyPath<'_>) -> Result<String, Refusal> {
    let label = text(raw, at)?;
    if label.trim() != label {
        return Err(refuse(raw, at, "text without white space around it"));
    }
    Ok(label)
}

/// Text of the file that is repeated in a message, where a secret may have slipped in: as a key, a tag, or the name of
/// a file; or stands beside what is shown. Half a secret is not shown either.
pub(crate) fn without_secrets(text: &str) -> String {
    const TOO_LONG: usize = 16;
    let is_other = |character: char| !character.is_ascii_hexdigit();
    let shown = text.split_inclusive(is_other).flat_map(|piece| {
        let (digits, rest) = piece.split_at(piece.find(is_other).unwrap_or(piece.len()));
        [if digits.len() < TOO_LONG { digits } else { "…" }, rest]
    });
    shown.collect()
}

/// A number in plain decimal digits: no sign, no leading zero (YAML 1.1 reads those as octal), no underscore.
fn digits<T: FromStr + PartialOrd>(text: &str, range: &RangeInclusive<T>) -> Option<T> {
    let plain =
        text.bytes().all(|octet| octet.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|number| plain && range.contains(number))
}

fn number<T: FromStr + PartialOrd>(
    raw: &Text,
    at: &KeyPath<'_>,
    range: RangeInclusive<T>,
    allowed: &str,
) -> Result<T, Refusal> {
    digits(&raw.value, &range).ok_or_else(|| refuse(raw, at, allowed))
}

/// Most rows of a backend: a number, or a percentage of the table's.
pub(super) fn capacity(raw: &Text, at: &KeyPath<'_>) -> Result<Amount, Refusal> {
    let capacity = raw.value.parse().ok();
    let is_some = |amount: &Amount| !matches!(amount, Amount::Rows(0)) && *amount != Amount::Percent(0.0);
    capacity
        .filter(is_some)
        .ok_or_else(|| refuse(raw, at, "a number of rows, or a percentage of the table's rows such as 30%"))
}

/// Rows as given, or as many as `backends` make even.
pub(super) fn rows(raw: &Text, at: &KeyPath<'_>, backends: usize) -> Result<u32, Refusal> {
    let allowed = "a power of two from 65536 to 4194304, or auto";
    if raw.value == "auto" {
        return Ok(even_rows(backends));
    }
    let rows = number(raw, at, table::ROWS, allowed)?;
    if rows.is_power_of_two() { Ok(rows) } else { Err(refuse(raw, at, allowed)) }
}

/// The fewest rows by which four standard deviations of a fair share stay within 5 % of it; the most there are if
/// even those are too few.
///
/// Of `R` rows each of `N` backends owns `R / N` on average, with a standard deviation of `√((N − 1) / R)` of that. All
/// backends count, whatever their state, so that a drain never changes the number of rows.
fn even_rows(backends: usize) -> u32 {
    let wanted = wanted_rows(backends).next_power_of_two();
    u32::try_from(wanted).unwrap_or(u32::MAX).clamp(*table::ROWS.start(), *table::ROWS.end())
}

/// 4² ∕ 0.05² for each backend beyond the first.
fn wanted_rows(backends: usize) -> u64 {
    6_400 * (backends as u64).saturating_sub(1)
}

/// What to say if `auto` could not find rows enough.
pub(super) fn uneven(backends: usize) -> Option<String> {
    let most = *table::ROWS.end();
    #[expect(clippy::cast_precision_loss, reason = "a rounded percentage")]
    let percent = 400.0 * ((backends as f64 - 1.0) / f64::from(most)).sqrt();
    (wanted_rows(backends) > u64::from(most)).then(|| {
        format!("{most} rows are the most there are, and shares of {backends} backends may be off by {percent:.0} %")
    })
}

pub(super) fn max_hops(raw: &Text, at: &KeyPath<'_>) -> Result<u8, Refusal> {
    number(raw, at, table::HOPS, "a number from 2 to 4")
}

pub(super) fn fill(raw: &Text, at: &KeyPath<'_>) -> Result<u8, Refusal> {
    number(raw, at, 1..=100, "a number from 1 to 100 (percent)")
}

pub(super) fn weight(raw: &Text, at: &KeyPath<'_>) -> Result<f64, Refusal> {
    decimal(raw, at, &WEIGHTS)
}

pub(super) fn max_share(raw: &Text, at: &KeyPath<'_>) -> Result<f64, Refusal> {
    decimal(raw, at, &table::MAX_SHARES)
}

fn decimal(raw: &Text, at: &KeyPath<'_>, range: &RangeInclusive<f64>) -> Result<f64, Refusal> {
    // YAML 1.1 reads a leading zero as octal.
    let octal =
        raw.value.strip_prefix('0').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let number = raw.value.parse::<f64>().ok().filter(|number| !octal && range.contains(number));
    number.ok_or_else(|| refuse(raw, at, &format!("a decimal from {} to {}", range.start(), range.end())))
}

pub(super) fn boolean(raw: &Text, at: &KeyPath<'_>) -> Result<bool, Refusal> {
    raw.value.parse().map_err(|_| refuse(raw, at, "true or false"))
}

const PORTS: RangeInclusive<u16> = 1..=u16::MAX;

pub(super) fn port(raw: &Text, at: &KeyPath<'_>) -> Result<PortRange, Refusal> {
    number(raw, at, PORTS, "a port from 1 to 65535").map(PortRange::single)
}

pub(super) fn ports(raw: &Text, at: &KeyPath<'_>) -> Result<PortRange, Refusal> {
    let range = raw
        .value
        .split_once('-')
        .and_then(|(first, last)| PortRange::new(digits(first, &PORTS)?, digits(last, &PORTS)?));
    range.ok_or_else(|| refuse(raw, at, "FIRST-LAST, ports from 1 to 65535 in ascending order"))
}

pub(super) fn prefix(raw: &Text, at: &KeyPath<'_>) -> Result<Prefix, Refusal> {
    let (address, bits) = match raw.value.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (raw.value.as_str(), None),
    };
    let not_a_prefix = || refuse(raw, at, "an IPv4 or IPv6 address, or ADDRESS/BITS");
    let address: IpAddr = address.parse().map_err(|_| not_a_prefix())?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(width), |bits| digits(bits, &(0..=width))).ok_or_else(not_a_prefix)?;
    let found = Prefix::new(address, bits)
        .ok_or_else(|| refuse(raw, at, "a prefix whose address has no bits set beyond its length"))?;
    match unfit(address) {
        Some(_) if bits == 0 => Ok(found),
        Some(kind) => Err(refuse(raw, at, &format!("a service's address, not {kind}"))),
        None => Ok(found),
    }
}

/// Loopback stays allowed: laboratories, and a director that is itself a backend.
pub(super) fn backend_address(raw: &Text, at: &KeyPath<'_>) -> Result<IpAddr, Refusal> {
    let address: IpAddr = raw.value.parse().map_err(|_| refuse(raw, at, "an IPv4 or IPv6 address"))?;
    match unfit(address) {
        Some(kind) => Err(refuse(raw, at, &format!("a host's address, not {kind}"))),
        None => Ok(address),
    }
}

/// Why no packet can be sent to this address as such.
fn unfit(address: IpAddr) -> Option<&'static str> {
    if address.is_unspecified() {
        return Some("the unspecified one");
    }
    if address.is_multicast() {
        return Some("a multicast group");
    }
    match address {
        IpAddr::V4(Ipv4Addr::BROADCAST) => Some("the broadcast one"),
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Some("an IPv4 one in IPv6 form"),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some("a link-local one, which needs a link"),
        IpAddr::V6(_) => None,
    }
}

pub(super) fn fields(list: &[Text], at: &KeyPath<'_>) -> Result<HashFields, Refusal> {
    let mut fields = HashFields::NONE;
    for (i, raw) in list.iter().enumerate() {
        let field = HashFields::from_name(&raw.value).filter(|field| !fields.contains(*field));
        fields = fields.with(field.ok_or_else(|| refuse(raw, &at.item(i), FIELDS))?);
    }
    Ok(fields)
}

/// Sixteen octets in hex; on failure what was found, without the text.
pub(super) fn octets(digits: &str) -> Result<[u8; 16], String> {
    let values: Option<Vec<u8>> =
        digits.chars().map(|digit| digit.to_digit(16).and_then(|value| u8::try_from(value).ok())).collect();
    let Some(values) = values else { return Err("a character that is not a hex digit".to_owned()) };
    let (pairs, []) = values.as_chunks::<2>() else { return Err(format!("{} hex digits", values.len())) };
    let octets: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    octets.try_into().map_err(|_| format!("{} hex digits", values.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_takes_the_fewest_rows_that_keep_shares_within_five_percent() {
        let cases = [(1, 16), (11, 16), (12, 17), (100, 20), (256, 21), (656, 22), (657, 22), (65_534, 22)];
        for (backends, bits) in cases {
            assert_eq!(even_rows(backends), 1 << bits, "{backends}");
            let sigma = ((backends as f64 - 1.0) / f64::from(even_rows(backends))).sqrt();
            assert_eq!(4.0 * sigma > 0.05, uneven(backends).is_some(), "{backends}");
        }
        let text = uneven(10_000).unwrap();
        assert!(text.starts_with("4194304 rows are the most") && text.ends_with("off by 20 %"), "{text}");
    }
}
