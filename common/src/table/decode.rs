//! Octets to table, in two steps: [`parse`] follows lengths and reads fields, and [`check`] holds the result against
//! every rule of the format. A table that was made in memory goes through the same [`check`].

use super::check::{check, check_count, error};
use super::{
    BACKEND_LEN, BIND_LEN, Built, DIGEST_LEN, Digest, ForwardingTable, HEADER_1_LEN, HOPS, Lists, MAGIC,
    MAX_BACKENDS, MAX_BINDS, MAX_TABLES, ROWS, Ranking, SECTIONS, Section, Seed, Table, TableError, VERSION,
    VERSION_1,
};
use crate::backend::{Backend, Health, State};
use crate::bind::{Bind, PortRange, Prefix, Protocol};
use crate::flow::HashFields;
use crate::hash::SipKey;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl ForwardingTable {
    /// Reads a file, checking all of it before anything is returned.
    pub fn decode(octets: &[u8]) -> Result<Self, TableError> {
        let table = parse(octets)?;
        check(&table)?;
        Ok(table)
    }
}

/// A place in a file that moves forward as fields are read. It never reads past `end`.
#[derive(Debug)]
struct Cursor<'a> {
    octets: &'a [u8],
    at: usize,
    end: usize,
    section: Section,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], TableError> {
        let left = self.end.saturating_sub(self.at);
        match self.octets.get(self.at..self.end).and_then(|rest| rest.get(..len)) {
            Some(taken) => {
                self.at += len;
                Ok(taken)
            }
            None => Err(self.error(format!("{len} octets of {what}"), format!("{left}"))),
        }
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], TableError> {
        let taken = self.take(N, what)?;
        taken.try_into().map_err(|_| self.error(what, "too few octets"))
    }

    fn u8(&mut self, what: &'static str) -> Result<u8, TableError> {
        self.array(what).map(u8::from_le_bytes)
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, TableError> {
        self.array(what).map(u16::from_le_bytes)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, TableError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, TableError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Reads one octet and translates it; the error points at the octet.
    fn octet<T>(
        &mut self,
        expected: &'static str,
        translate: impl FnOnce(u8) -> Option<T>,
    ) -> Result<T, TableError> {
        let octet = self.u8(expected)?;
        translate(octet).ok_or_else(|| error(self.section, self.at - 1, expected, octet.to_string()))
    }

    fn text(&mut self, len: u8, what: &'static str) -> Result<&'a str, TableError> {
        let start = self.at;
        let octets = self.take(len.into(), what)?;
        std::str::from_utf8(octets).map_err(|_| {
            error(self.section, start, format!("{what} in UTF-8"), octets.escape_ascii().to_string())
        })
    }

    fn address(&mut self, family: u8) -> Result<IpAddr, TableError> {
        let start = self.at;
        let octets: [u8; 16] = self.array("address")?;
        if family == 6 {
            return Ok(Ipv6Addr::from(octets).into());
        }
        let [a, b, c, d, rest @ ..] = octets;
        if rest != [0; 12] {
            return Err(error(self.section, start + 4, "twelve zero octets after an IPv4 address", "others"));
        }
        Ok(Ipv4Addr::new(a, b, c, d).into())
    }

    fn error(
        &self,
        expected: impl Into<Cow<'static, str>>,
        found: impl Into<Cow<'static, str>>,
    ) -> TableError {
        error(self.section, self.at, expected, found)
    }

    /// Nothing may be left over.
    fn finish(self) -> Result<(), TableError> {
        match self.end.saturating_sub(self.at) {
            0 => Ok(()),
            left => Err(self.error("the end", format!("{left} octets more"))),
        }
    }
}

/// Reads the first octets of a file, up to its length.
pub(super) fn parse_length(start: &[u8]) -> Result<u64, TableError> {
    let mut cursor = Cursor { octets: start, at: 0, end: start.len(), section: Section::Header };
    parse_start(&mut cursor).map(|start| start.length)
}

/// The fields up to the length, which have the same places in every version.
struct Start {
    version: u32,
    tables: u32,
    length: u64,
}

fn parse_start(cursor: &mut Cursor<'_>) -> Result<Start, TableError> {
    let magic: [u8; 8] = cursor.array("magic")?;
    if magic != MAGIC {
        return Err(error(Section::Header, 0, "magic TRYSTFWD", magic.escape_ascii().to_string()));
    }
    let version = cursor.u32("version")?;
    if ![VERSION_1, VERSION].contains(&version) {
        return Err(error(Section::Header, 8, "version 1 or 2", version.to_string()));
    }
    let tables = cursor.u32("number of tables")?;
    Ok(Start { version, tables, length: cursor.u64("length")? })
}

fn parse(octets: &[u8]) -> Result<ForwardingTable, TableError> {
    let end = octets.len().saturating_sub(DIGEST_LEN);
    let mut cursor = Cursor { octets, at: 0, end: octets.len(), section: Section::Header };
    let Start { version, tables, length } = parse_start(&mut cursor)?;
    if octets.len() < HEADER_1_LEN + DIGEST_LEN || length != octets.len() as u64 {
        return Err(error(
            Section::File,
            octets.len(),
            format!("{length} octets"),
            format!("{}", octets.len()),
        ));
    }
    let digest = check_digest(octets, end)?;
    let generation = cursor.u64("generation")?;
    let config_digest = Digest(cursor.array("config digest")?);
    let parent = Some(Digest(cursor.array("parent digest")?)).filter(|parent| *parent != Digest::default());
    cursor.end = end;
    let built = match version {
        VERSION_1 => Built::Unknown,
        _ => cursor.octet("built from 1 to 3", Built::from_number)?,
    };
    check_count(Section::Header, 12, "tables", tables as usize, MAX_TABLES)?;
    let tables = (0..tables).map(|at| parse_table(&mut cursor, at)).collect::<Result<Vec<_>, _>>()?;
    cursor.section = Section::File;
    cursor.finish()?;
    Ok(ForwardingTable { digest, config_digest, generation, parent, built, tables })
}

fn check_digest(octets: &[u8], end: usize) -> Result<Digest, TableError> {
    let (content, stored) = octets.split_at_checked(end).unwrap_or((octets, &[]));
    let computed = Digest::of(content);
    if stored == computed.0 {
        return Ok(computed);
    }
    let stored = stored.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
    Err(error(Section::Digest, end, format!("SHA-256 {computed}"), stored))
}

/// The fixed part of a HEAD section.
struct Counts {
    rows: u32,
    backends: u32,
    binds: u32,
}

fn parse_table(file: &mut Cursor<'_>, at: u32) -> Result<Table, TableError> {
    let [head, back, bind, rows, line] = SECTIONS;
    let (counts, mut table) = parse_head(section(file, at, head)?)?;
    table.backends = parse_records(section(file, at, back)?, counts.backends, BACKEND_LEN, parse_backend)?;
    table.binds = parse_records(section(file, at, bind)?, counts.binds, BIND_LEN, parse_bind)?;
    table.hops = parse_lists(section(file, at, rows)?, counts.rows, table.max_hops)?;
    table.lineage = parse_lists(section(file, at, line)?, counts.rows, table.max_hops - 1)?;
    Ok(table)
}

/// Steps over the next section of the file and returns a cursor at its payload.
fn section<'a>(file: &mut Cursor<'a>, at: u32, tag: [u8; 4]) -> Result<Cursor<'a>, TableError> {
    file.section = Section::Table(at, tag);
    let start = file.at;
    let found: [u8; 4] = file.array("tag")?;
    if found != tag {
        let expected = format!("section {}", tag.escape_ascii());
        return Err(error(file.section, start, expected, found.escape_ascii().to_string()));
    }
    let length = file.u64("length")?;
    let start = file.at;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    file.take(length, "payload")?;
    Ok(Cursor { octets: file.octets, at: start, end: file.at, section: file.section })
}

fn parse_head(mut head: Cursor<'_>) -> Result<(Counts, Table), TableError> {
    let counts = parse_counts(&mut head)?;
    let max_hops = head.octet("max_hops from 2 to 4", |hops| HOPS.contains(&hops).then_some(hops))?;
    let ranking = head.octet("ranking 0 or 1", |number| match number {
        0 => Some(Ranking::Hrw),
        1 => Some(Ranking::Glb),
        _ => None,
    })?;
    let fields = |bits| HashFields::from_bits(bits).filter(|fields| !fields.is_empty());
    let hash_fields = head.octet("hash_fields from 1 to 15", fields)?;
    let alt_hash_fields = head.octet("alt_hash_fields from 0 to 15", HashFields::from_bits)?;
    let [spread_zones, bounded] =
        head.octet("flags from 0 to 3", |flags| (flags < 4).then_some([flags & 1 != 0, flags & 2 != 0]))?;
    let name_len = head.u8("length of the name")?;
    let seed = Seed(head.array("seed")?);
    let hash_key = SipKey::new(head.array("hash key")?);
    let name = head.text(name_len, "name")?.to_owned();
    let max_share = bounded.then(|| head.u64("max_share")).transpose()?.map(f64::from_bits);
    head.finish()?;
    let table = Table {
        name,
        max_hops,
        ranking,
        seed,
        hash_key,
        hash_fields,
        alt_hash_fields,
        spread_zones,
        max_share,
        backends: Vec::new(),
        binds: Vec::new(),
        hops: Lists::empty(0, max_hops),
        lineage: Lists::empty(0, max_hops - 1),
    };
    Ok((counts, table))
}

fn parse_counts(head: &mut Cursor<'_>) -> Result<Counts, TableError> {
    let start = head.at;
    let counts =
        Counts { rows: head.u32("rows")?, backends: head.u32("backends")?, binds: head.u32("binds")? };
    if !ROWS.contains(&counts.rows) || !counts.rows.is_power_of_two() {
        return Err(error(
            head.section,
            start,
            "a power of two from 65536 to 4194304",
            counts.rows.to_string(),
        ));
    }
    check_count(head.section, start + 4, "backends", counts.backends as usize, MAX_BACKENDS)?;
    check_count(head.section, start + 8, "binds", counts.binds as usize, MAX_BINDS)?;
    Ok(counts)
}

/// Reads `count` records of at least `least` octets each.
fn parse_records<T>(
    mut cursor: Cursor<'_>,
    count: u32,
    least: usize,
    parse: impl Fn(&mut Cursor<'_>) -> Result<T, TableError>,
) -> Result<Vec<T>, TableError> {
    let room = (cursor.end - cursor.at) / least;
    if room < count as usize {
        return Err(cursor.error(format!("{count} records"), format!("room for {room}")));
    }
    let records = (0..count).map(|_| parse(&mut cursor)).collect::<Result<_, _>>()?;
    cursor.finish()?;
    Ok(records)
}

fn family(octet: u8) -> Option<u8> {
    [4, 6].contains(&octet).then_some(octet)
}

fn parse_backend(cursor: &mut Cursor<'_>) -> Result<Backend, TableError> {
    let family = cursor.octet("address family 4 or 6", family)?;
    let state = cursor.octet("state from 0 to 3", |octet| State::ALL.get(usize::from(octet)).copied())?;
    let health = cursor.octet("health 0 or 1", |octet| match octet {
        0 => Some(Health::Down),
        1 => Some(Health::Up),
        _ => None,
    })?;
    let fill = cursor.u8("fill")?;
    let (id_len, zone_len) = (cursor.u8("length of the id")?, cursor.u8("length of the zone")?);
    let weight = f64::from_bits(cursor.u64("weight")?);
    let address = cursor.address(family)?;
    let id = cursor.text(id_len, "id")?.to_owned();
    let zone = Some(cursor.text(zone_len, "zone")?.to_owned()).filter(|zone| !zone.is_empty());
    Ok(Backend { id, address, weight, fill, zone, state, health })
}

fn parse_bind(cursor: &mut Cursor<'_>) -> Result<Bind, TableError> {
    let start = cursor.at;
    let family = cursor.octet("address family 4 or 6", family)?;
    let bits = cursor.u8("prefix length")?;
    let protocol = cursor.octet("protocol 6 or 17", Protocol::from_number)?;
    cursor.octet("0", |octet| (octet == 0).then_some(()))?;
    let (first, last) = (cursor.u16("first port")?, cursor.u16("last port")?);
    let address = cursor.address(family)?;
    let prefix = Prefix::new(address, bits).ok_or_else(|| {
        error(cursor.section, start, "a prefix without host bits", format!("{address}/{bits}"))
    })?;
    let ports = PortRange::new(first, last)
        .ok_or_else(|| error(cursor.section, start + 4, "ports in order", format!("{first}-{last}")))?;
    Ok(Bind { prefix, protocol, ports })
}

fn parse_lists(mut cursor: Cursor<'_>, rows: u32, width: u8) -> Result<Lists, TableError> {
    let octets = cursor.take(rows as usize * usize::from(width) * 2, "lists")?;
    cursor.finish()?;
    let cells = octets.as_chunks::<2>().0.iter().map(|cell| u16::from_le_bytes(*cell)).collect();
    Ok(Lists { width: width.into(), cells })
}
