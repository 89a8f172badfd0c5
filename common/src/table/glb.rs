//! GLB Director's table file, version 2: read and written so that tables can be exchanged with it.
//!
//! All integers little-endian, everything packed, arrays always of full size:
//!
//! ```text
//! file      0  "GLBD"   4  u32 version = 2   8  u32 tables   12  u32 65536   16  u32 256   20  u32 256   24  tables
//! table     0  u32 backends      4  256 × backend       6148  u32 binds      6152  256 × bind
//!       13320  16 octets hash key                       13336  65,536 × (u32 primary, u32 secondary)
//! backend   0  u32 family (1 IPv4, 2 IPv6)   4  16 octets address (IPv4 in the first four)
//!          20  u16 state (0 filling, 1 active, 2 draining or inactive)         22  u16 healthy
//! bind      0  u32 family   4  16 octets address   20  u16 prefix bits   22  u16 first port   24  u16 last port
//!          26  u8 protocol 27  u8 0
//! ```
//!
//! The file says less than ours: no names, ids, weights or hash fields, and no checksum. [`read`] fills in what GLB
//! means by that: a table is called by its position, a backend by its address, and only the source address is hashed.

use super::{
    Built, Digest, ForwardingTable, Lists, MAX_BINDS, MAX_TABLES, Ranking, Section, Seed, Table, TableError,
};
use crate::backend::{Backend, Health, State};
use crate::bind::{Bind, BindIndex, PortRange, Prefix, Protocol};
use crate::flow::HashFields;
use crate::hash::SipKey;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The first octets of a file.
pub const MAGIC: [u8; 4] = *b"GLBD";
/// Rows of every table.
pub const ROWS: u32 = 65_536;
/// Most backends, and most binds, of a table.
pub const MAX_ENTRIES: usize = 256;

const HEADER_LEN: usize = 24;
const BACKENDS_AT: usize = 4;
const BACKEND_LEN: usize = 24;
const BIND_COUNT_AT: usize = 6_148;
const BINDS_AT: usize = 6_152;
const BIND_LEN: usize = 28;
const KEY_AT: usize = 13_320;
const ROWS_AT: usize = 13_336;
const TABLE_LEN: usize = ROWS_AT + ROWS as usize * 8;

/// One table as the file has it, backends and binds in file order.
#[derive(Clone, Debug, PartialEq)]
pub struct GlbTable {
    /// Address, state and health of each backend.
    pub backends: Vec<GlbBackend>,
    /// Binds.
    pub binds: Vec<Bind>,
    /// Key of the flow hash.
    pub hash_key: SipKey,
    /// Primary and secondary of each of the 65,536 rows, as positions in `backends`.
    pub rows: Vec<[u32; 2]>,
}

/// A backend as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlbBackend {
    /// Where its packets go.
    pub address: IpAddr,
    /// Draining and inactive look alike.
    pub state: State,
    /// Up is 1, anything else down.
    pub health: Health,
}

/// The file's octets. What does not fit the format is cut; callers refuse it first.
pub fn encode(tables: &[GlbTable]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    let count = u32::try_from(tables.len()).unwrap_or(u32::MAX);
    for word in [2, count, ROWS, 256, 256] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    tables.iter().for_each(|table| encode_table(&mut file, table));
    file
}

fn encode_table(file: &mut Vec<u8>, table: &GlbTable) {
    let start = file.len();
    let count = |len: usize| u32::try_from(len.min(MAX_ENTRIES)).unwrap_or(u32::MAX).to_le_bytes();
    file.extend_from_slice(&count(table.backends.len()));
    table.backends.iter().take(MAX_ENTRIES).for_each(|backend| encode_backend(file, backend));
    file.resize(start + BIND_COUNT_AT, 0);
    file.extend_from_slice(&count(table.binds.len()));
    table.binds.iter().take(MAX_ENTRIES).for_each(|bind| encode_bind(file, bind));
    file.resize(start + KEY_AT, 0);
    file.extend_from_slice(&table.hash_key.octets());
    for word in table.rows.iter().take(ROWS as usize).flatten() {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.resize(start + TABLE_LEN, 0);
}

fn encode_address(file: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            file.extend_from_slice(&1u32.to_le_bytes());
            file.extend_from_slice(&v4.octets());
            file.extend_from_slice(&[0; 12]);
        }
        IpAddr::V6(v6) => {
            file.extend_from_slice(&2u32.to_le_bytes());
            file.extend_from_slice(&v6.octets());
        }
    }
}

fn encode_backend(file: &mut Vec<u8>, backend: &GlbBackend) {
    encode_address(file, backend.address);
    let state: u16 = match backend.state {
        State::Filling => 0,
        State::Active => 1,
        State::Draining | State::Inactive => 2,
    };
    file.extend_from_slice(&state.to_le_bytes());
    file.extend_from_slice(&u16::from(backend.health == Health::Up).to_le_bytes());
}

fn encode_bind(file: &mut Vec<u8>, bind: &Bind) {
    encode_address(file, bind.prefix.address());
    file.extend_from_slice(&u16::from(bind.prefix.bits()).to_le_bytes());
    file.extend_from_slice(&bind.ports.first().to_le_bytes());
    file.extend_from_slice(&bind.ports.last().to_le_bytes());
    file.extend_from_slice(&[bind.protocol.number(), 0]);
}

/// Reads a file. The format has no checksum, so every count, number and position is checked instead.
pub fn decode(octets: &[u8]) -> Result<Vec<GlbTable>, TableError> {
    let (tables, length) = parse_header(octets)?;
    if octets.len() as u64 != length {
        let reader = Reader { octets, section: Section::Glb("file") };
        return Err(reader.error(octets.len(), format!("{length} octets"), octets.len().to_string()));
    }
    (0..tables).map(|at| decode_table(octets, at)).collect()
}

/// The length of the file that starts with these octets.
pub(super) fn parse_length(start: &[u8]) -> Result<u64, TableError> {
    parse_header(start).map(|(_, length)| length)
}

/// The number of tables, and the length that follows from it.
fn parse_header(octets: &[u8]) -> Result<(u32, u64), TableError> {
    let reader = Reader { octets, section: Section::Glb("header") };
    let magic = reader.take::<4>(0)?;
    if magic != MAGIC {
        return Err(reader.error(0, "magic GLBD", magic.escape_ascii().to_string()));
    }
    let fixed =
        [(4, "version", 2), (12, "rows", ROWS), (16, "backends at most", 256), (20, "binds at most", 256)];
    for (at, what, expected) in fixed {
        let found = reader.u32(at)?;
        if found != expected {
            return Err(reader.error(at, format!("{what} {expected}"), found.to_string()));
        }
    }
    let tables = reader.u32(8)?;
    if tables == 0 || tables as usize > MAX_TABLES {
        return Err(reader.error(8, "1…4096 tables", tables.to_string()));
    }
    Ok((tables, HEADER_LEN as u64 + u64::from(tables) * TABLE_LEN as u64))
}

#[derive(Clone, Copy, Debug)]
struct Reader<'a> {
    octets: &'a [u8],
    section: Section,
}

impl Reader<'_> {
    fn take<const N: usize>(&self, at: usize) -> Result<[u8; N], TableError> {
        let found = self.octets.get(at..).and_then(|rest| rest.first_chunk::<N>());
        found.copied().ok_or_else(|| {
            let left = self.octets.len().saturating_sub(at);
            self.error(at, format!("{N} octets"), left.to_string())
        })
    }

    fn u32(&self, at: usize) -> Result<u32, TableError> {
        self.take(at).map(u32::from_le_bytes)
    }

    fn u16(&self, at: usize) -> Result<u16, TableError> {
        self.take(at).map(u16::from_le_bytes)
    }

    fn address(&self, at: usize) -> Result<IpAddr, TableError> {
        let octets: [u8; 16] = self.take(at + 4)?;
        match self.u32(at)? {
            1 => {
                let [a, b, c, d, ..] = octets;
                Ok(Ipv4Addr::new(a, b, c, d).into())
            }
            2 => Ok(Ipv6Addr::from(octets).into()),
            other => Err(self.error(at, "address family 1 or 2", other.to_string())),
        }
    }

    fn error(
        &self,
        at: usize,
        expected: impl Into<std::borrow::Cow<'static, str>>,
        found: impl Into<std::borrow::Cow<'static, str>>,
    ) -> TableError {
        TableError {
            section: self.section,
            offset: at as u64,
            expected: expected.into(),
            found: found.into(),
        }
    }

    fn count(&self, at: usize, what: &'static str) -> Result<usize, TableError> {
        let found = self.u32(at)?;
        match usize::try_from(found) {
            Ok(count) if (1..=MAX_ENTRIES).contains(&count) => Ok(count),
            _ => Err(self.error(at, format!("1…256 {what}"), found.to_string())),
        }
    }
}

fn decode_table(octets: &[u8], at: u32) -> Result<GlbTable, TableError> {
    let start = HEADER_LEN + at as usize * TABLE_LEN;
    let section = |part| Reader { octets, section: Section::GlbTable(at, part) };
    let back = section("backends");
    let count = back.count(start, "backends")?;
    let backends = (0..count)
        .map(|i| decode_backend(&back, start + BACKENDS_AT + i * BACKEND_LEN))
        .collect::<Result<Vec<_>, _>>()?;
    let mut addresses = HashSet::with_capacity(count);
    if let Some(twice) = backends.iter().position(|one| !addresses.insert(one.address)) {
        let found = format!(
            "{} a second time",
            backends.get(twice).map_or_else(String::new, |one| one.address.to_string())
        );
        return Err(back.error(start + BACKENDS_AT + twice * BACKEND_LEN, "an address of its own", found));
    }
    let bind = section("binds");
    let binds = (0..bind.count(start + BIND_COUNT_AT, "binds")?)
        .map(|i| decode_bind(&bind, start + BINDS_AT + i * BIND_LEN))
        .collect::<Result<_, _>>()?;
    let hash_key = section("hash key").take(start + KEY_AT)?;
    if hash_key == [0; 16] {
        return Err(section("hash key").error(start + KEY_AT, "a key that is not all zero", "zeros"));
    }
    let hash_key = SipKey::new(hash_key);
    let rows = section("rows");
    let rows = (0..ROWS as usize)
        .map(|row| decode_row(&rows, start + ROWS_AT + row * 8, backends.len()))
        .collect::<Result<_, _>>()?;
    Ok(GlbTable { backends, binds, hash_key, rows })
}

fn decode_backend(reader: &Reader<'_>, at: usize) -> Result<GlbBackend, TableError> {
    let state = match reader.u16(at + 20)? {
        0 => State::Filling,
        1 => State::Active,
        2 => State::Draining,
        other => return Err(reader.error(at + 20, "state from 0 to 2", other.to_string())),
    };
    let health = if reader.u16(at + 22)? == 1 { Health::Up } else { Health::Down };
    Ok(GlbBackend { address: reader.address(at)?, state, health })
}

fn decode_bind(reader: &Reader<'_>, at: usize) -> Result<Bind, TableError> {
    let address = reader.address(at)?;
    let bits = reader.u16(at + 20)?;
    let prefix = u8::try_from(bits).ok().and_then(|bits| Prefix::new(address, bits));
    let (first, last) = (reader.u16(at + 22)?, reader.u16(at + 24)?);
    let [protocol, reserved] = reader.take(at + 26)?;
    if reserved != 0 {
        return Err(reader.error(at + 27, "0", reserved.to_string()));
    }
    Ok(Bind {
        prefix: prefix.ok_or_else(|| {
            reader.error(at + 20, "a prefix without host bits", format!("{address}/{bits}"))
        })?,
        protocol: Protocol::from_number(protocol)
            .ok_or_else(|| reader.error(at + 26, "protocol 6 or 17", protocol.to_string()))?,
        ports: PortRange::new(first, last)
            .ok_or_else(|| reader.error(at + 22, "ports in order", format!("{first}-{last}")))?,
    })
}

fn decode_row(reader: &Reader<'_>, at: usize, backends: usize) -> Result<[u32; 2], TableError> {
    let row = [reader.u32(at)?, reader.u32(at + 4)?];
    match row.iter().position(|hop| *hop as usize >= backends) {
        None => Ok(row),
        Some(wrong) => {
            let found = row.get(wrong).copied().unwrap_or_default().to_string();
            Err(reader.error(at + 4 * wrong, format!("a position below {backends}"), found))
        }
    }
}

/// Reads a file as a forwarding table. Its digest is the SHA-256 of the GLB file, so it goes by the name that
/// `sha256sum` gives it.
pub fn read(octets: &[u8]) -> Result<ForwardingTable, TableError> {
    let tables = decode(octets)?;
    check_binds(&tables)?;
    let tables = tables.iter().zip(0u32..).map(|(table, index)| to_table(table, index)).collect();
    let mut table = ForwardingTable::seal(None, Built::Unknown, tables)?;
    table.digest = Digest::of(octets);
    Ok(table)
}

/// The table of a GLB file with the hash fields that the configuration of GLB's director names.
pub fn with_fields(
    mut table: ForwardingTable,
    hash_fields: HashFields,
    alt_hash_fields: HashFields,
) -> ForwardingTable {
    for named in &mut table.tables {
        (named.hash_fields, named.alt_hash_fields) = (hash_fields, alt_hash_fields);
    }
    table.config_digest = super::encode::config_digest(&table.tables);
    table
}

/// No two binds may tie, in all tables together: which of them won would depend on their order. Nor may there be more of
/// them than [`MAX_BINDS`]. All other rules of our own format hold of every file that [`decode`] returns.
fn check_binds(tables: &[GlbTable]) -> Result<(), TableError> {
    let listed: Vec<(usize, usize, Bind)> = (0..)
        .zip(tables)
        .flat_map(|(at, table)| (0..).zip(&table.binds).map(move |(place, bind)| (at, place, *bind)))
        .collect();
    let error = |(at, place): (usize, usize), expected: String, found: String| TableError {
        section: Section::GlbTable(u32::try_from(at).unwrap_or(u32::MAX), "binds"),
        offset: (HEADER_LEN + at * TABLE_LEN + BINDS_AT + place * BIND_LEN) as u64,
        expected: expected.into(),
        found: found.into(),
    };
    if let Some((at, place, _)) = listed.get(MAX_BINDS) {
        let expected = format!("at most {MAX_BINDS} binds in all tables");
        return Err(error((*at, *place), expected, listed.len().to_string()));
    }
    let binds: Vec<(Bind, u32)> = listed.iter().map(|(.., bind)| *bind).zip(0..).collect();
    let Err(tie) = BindIndex::new(&binds) else { return Ok(()) };
    let (Some((.., earlier)), Some((at, place, later))) = (listed.get(tie.earlier), listed.get(tie.later))
    else {
        return Ok(());
    };
    Err(error((*at, *place), format!("a bind that does not tie with {earlier}"), later.to_string()))
}

/// The name of a table, which the file does not hold, by its place there.
pub fn table_name(at: usize) -> String {
    format!("table-{at:04}")
}

/// Sorts by id and by bind, as our own format wants them.
fn to_table(glb: &GlbTable, at: u32) -> Table {
    let named = glb.backends.iter().map(|one| Backend {
        state: one.state,
        health: one.health,
        ..Backend::new(one.address.to_string(), one.address)
    });
    let mut sorted: Vec<(usize, Backend)> = named.enumerate().collect();
    sorted.sort_by(|(_, a), (_, b)| a.id.cmp(&b.id));
    let mut new_position = vec![0u16; sorted.len()];
    for ((old, _), new) in sorted.iter().zip(0u16..) {
        if let Some(cell) = new_position.get_mut(*old) {
            *cell = new;
        }
    }
    let mut hops = Lists::empty(ROWS, 2);
    for (row, pair) in (0u32..).zip(&glb.rows) {
        let mut list: Vec<u16> =
            pair.iter().filter_map(|hop| new_position.get(*hop as usize).copied()).collect();
        list.dedup();
        hops.set(row, list);
    }
    let mut binds = glb.binds.clone();
    binds.sort_unstable();
    Table {
        name: table_name(at as usize),
        max_hops: 2,
        ranking: Ranking::Glb,
        seed: Seed::UNKNOWN,
        hash_key: glb.hash_key,
        hash_fields: HashFields::SRC_ADDR,
        alt_hash_fields: HashFields::NONE,
        spread_zones: false,
        max_share: None,
        backends: sorted.into_iter().map(|(_, backend)| backend).collect(),
        binds,
        hops,
        lineage: Lists::empty(ROWS, 1),
    }
}
