//! The forwarding table: the one artefact that `tablegen` writes and `dataplane` reads.
//!
//! # The file, octet by octet
//!
//! All integers are little-endian. Nothing is aligned or padded. Texts are UTF-8 without control characters.
//!
//! ```text
//! file      header (97) │ table │ table │ … │ digest (32)
//!
//! header     0   8  magic, the ASCII letters TRYSTFWD
//!            8   4  version, 2
//!           12   4  number of tables, 1…4,096
//!           16   8  length of the whole file, header and digest included
//!           24   8  generation: 1 for a table without a parent, else the parent's plus 1
//!           32  32  config digest: SHA-256 over the payloads of all HEAD, BACK and BIND sections in file order
//!           64  32  digest of the parent, all zero if there is none
//!           96   1  how the table was built: 1 first (without a parent), 2 child (of the parent), 3 settled (child of the
//!                   parent; owners before the parent's own were let go)
//!
//! table     five sections, each once and in this order:  HEAD  BACK  BIND  ROWS  LINE
//! section    0   4  tag, four ASCII letters
//!            4   8  length of the payload
//!           12   …  payload
//!
//! HEAD       0   4  rows R: a power of two, 2^16…2^22
//!            4   4  backends N: 1…65,534
//!            8   4  binds M: 1…65,536, over all tables together too
//!           12   1  max_hops H: 2…4
//!           13   1  ranking: 0 hrw (version 1), 1 glb
//!           14   1  hash_fields, not 0: 1 src_addr + 2 dst_addr + 4 src_port + 8 dst_port
//!           15   1  alt_hash_fields, likewise; 0 for none
//!           16   1  flags: 1 spread_zones + 2 max_share
//!           17   1  octets of the name, 1…255
//!           18  16  seed of the ranking
//!           34  16  key of the flow hash, not all zero
//!           50   …  name; tables stand in ascending order of name, no two alike
//!            …   8  with flag 2 alone: max_share, an IEEE 754 double, 1…16; never with ranking glb
//!
//! BACK      N times:
//!            0   1  address family, 4 or 6
//!            1   1  state: 0 filling, 1 active, 2 draining, 3 inactive
//!            2   1  health: 0 down, 1 up
//!            3   1  fill in percent, 1…100
//!            4   1  octets of the id, 1…255
//!            5   1  octets of the zone, 0 for none
//!            6   8  weight, an IEEE 754 double, finite and > 0
//!           14  16  address; IPv4 in the first four octets, the rest zero
//!           30   …  id, then zone; backends stand in ascending order of id, no two alike, no two of one address
//!
//! BIND      M times 24 octets, in strictly ascending order of (address family, address, prefix, protocol, ports);
//!           no two binds of the file may tie (crate::bind)
//!            0   1  address family, 4 or 6
//!            1   1  prefix length in bits
//!            2   1  protocol: 6 TCP, 17 UDP
//!            3   1  0
//!            4   2  first port
//!            6   2  last port
//!            8  16  address as in BACK, without host bits
//!
//! ROWS      R × H × u16: the hop list of each row as positions in BACK, the primary first. 0xffff fills the unused
//!           end of a list. No position twice in a list, none of an inactive backend
//! LINE      R × (H − 1) × u16: the lineage of each row, its former owners, newest first, in the same manner; never
//!           the row's primary; empty in every row of a file that was built as first
//!
//! digest     0  32  SHA-256 of everything before it
//! ```
//!
//! [`ForwardingTable::decode`] checks every one of these statements before it returns, the digest first: a value of
//! the type is right, and look-ups in it cannot fail. The encoding is canonical: each table has exactly one file.
//!
//! # Version 1
//!
//! A file of version 1 has no octet 96: its header has 96 octets, and all else is the same. It does not say how it was
//! built, so it reads as [`Built::Unknown`] and is written as version 1 again. The next build treats such a parent like
//! one that was built as first. A file of GLB Director's reads as `Unknown` too.
//!
//! The digest is the table's name; tools print its first 12 hex digits.
//!
//! A file has at most 1 GiB ([`MAX_FILE`]), whatever its counts would allow.

mod built;
mod check;
mod decode;
mod dump;
mod encode;
pub mod glb;
mod read;

pub use built::Built;
pub use dump::{Dump, DumpRows};
pub use read::{MAX_FILE, ReadError, START_LEN};

use crate::backend::Backend;
use crate::bind::Bind;
use crate::flow::{FlowKey, HashFields};
use crate::hash::SipKey;
use std::borrow::Cow;
use std::fmt;

/// Fewest and most rows of a table.
pub const ROWS: std::ops::RangeInclusive<u32> = 1 << 16..=1 << 22;
/// Most backends of a table: two positions of sixteen bits stay free.
pub const MAX_BACKENDS: usize = 65_534;
/// Most binds of a file.
pub const MAX_BINDS: usize = 65_536;
/// Most tables of a file.
pub const MAX_TABLES: usize = 4_096;
/// Shortest and longest hop list that can be asked for.
pub const HOPS: std::ops::RangeInclusive<u8> = 2..=4;
/// Least and greatest `max_share`.
pub const MAX_SHARES: std::ops::RangeInclusive<f64> = 1.0..=16.0;
/// Longest name, id or zone, in octets.
pub const MAX_TEXT: usize = 255;

const MAGIC: [u8; 8] = *b"TRYSTFWD";
/// The version of files that do not say how they were built.
const VERSION_1: u32 = 1;
const VERSION: u32 = 2;
/// Octets of the header of version 1, and of what both versions have in common.
const HEADER_1_LEN: usize = 96;
const DIGEST_LEN: usize = 32;
const HEAD_LEN: usize = 50;
const BACKEND_LEN: usize = 30;
const BIND_LEN: usize = 24;
const SECTIONS: [[u8; 4]; 5] = [*b"HEAD", *b"BACK", *b"BIND", *b"ROWS", *b"LINE"];

/// SHA-256, the name of a table file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// SHA-256 of `octets`.
    pub fn of(octets: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(octets).into())
    }

    /// The first 12 hex digits: what people call the table.
    pub fn short(&self) -> String {
        self.to_string().chars().take(12).collect()
    }
}

impl fmt::Display for Digest {
    /// All 64 hex digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How backends are ranked for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ranking {
    /// Weighted rendezvous hashing by id (the crate `tryst-hrw`), version 1.
    Hrw,
    /// GLB Director's: SipHash-2-4 of the address, unweighted, lowest digest first.
    Glb,
}

impl Ranking {
    /// The word in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hrw => "hrw",
            Self::Glb => "glb",
        }
    }
}

/// The seed of a table's ranking: kept out of `Debug`, like a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub [u8; 16]);

impl Seed {
    /// Stands for the seed of a table whose file does not hold it: GLB Director's. Configurations refuse it.
    pub const UNKNOWN: Self = Self([0; 16]);

    /// Does the file say what it is?
    pub fn is_known(&self) -> bool {
        *self != Self::UNKNOWN
    }

    /// The ranking key of a row: seed, then the row's number in little-endian order.
    pub fn row_key(&self, row: u32) -> [u8; 20] {
        let mut key = [0; 20];
        let (seed, number) = key.split_at_mut(16);
        seed.copy_from_slice(&self.0);
        number.copy_from_slice(&row.to_le_bytes());
        key
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(secret)")
    }
}

/// Fills the end of a list that is shorter than its row allows.
const NONE: u16 = u16::MAX;

/// One list of backend positions for each row, all of one greatest length.
#[derive(Clone, PartialEq, Eq)]
pub struct Lists {
    width: usize,
    cells: Vec<u16>,
}

impl Lists {
    /// `rows` empty lists of at most `width` positions.
    pub fn empty(rows: u32, width: u8) -> Self {
        Self { width: width.into(), cells: vec![NONE; rows as usize * usize::from(width)] }
    }

    /// Number of lists.
    pub fn len(&self) -> usize {
        self.cells.len() / self.width.max(1)
    }

    /// Are there no lists?
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Greatest length of a list.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// The list of a row; empty for a row that does not exist. Always inlined, since each packet needs it.
    #[inline(always)]
    pub fn get(&self, row: u32) -> &[u16] {
        let start = row as usize * self.width;
        let Some(cells) = self.cells.get(start..start + self.width) else { return &[] };
        trim(cells)
    }

    /// All lists in row order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u16]> + Clone {
        self.cells.chunks_exact(self.width.max(1)).map(trim)
    }

    /// All cells, row after row, unused ones `0xffff`.
    pub fn cells(&self) -> &[u16] {
        &self.cells
    }

    /// All cells, to be written to: for builds that split the rows among threads.
    pub fn cells_mut(&mut self) -> &mut [u16] {
        &mut self.cells
    }

    /// Replaces a row's list; what does not fit is cut.
    pub fn set(&mut self, row: u32, list: impl IntoIterator<Item = u16>) {
        let start = row as usize * self.width;
        let Some(cells) = self.cells.get_mut(start..start + self.width) else { return };
        let mut list = list.into_iter();
        cells.iter_mut().for_each(|cell| *cell = list.next().unwrap_or(NONE));
    }
}

impl fmt::Debug for Lists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lists({} of at most {})", self.len(), self.width)
    }
}

#[inline]
fn trim(cells: &[u16]) -> &[u16] {
    let used = cells.iter().position(|cell| *cell == NONE).unwrap_or(cells.len());
    cells.get(..used).unwrap_or(cells)
}

/// One table of the file: its parameters, backends and binds, and what was made of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Unique in the file.
    pub name: String,
    /// Longest hop list.
    pub max_hops: u8,
    /// How backends are ranked.
    pub ranking: Ranking,
    /// Seed of the ranking.
    pub seed: Seed,
    /// Key of the flow hash.
    pub hash_key: SipKey,
    /// What the flow hash reads.
    pub hash_fields: HashFields,
    /// What a second look-up reads whose hops are appended, while a change of fields is rolled out.
    pub alt_hash_fields: HashFields,
    /// Prefer a second hop of another zone.
    pub spread_zones: bool,
    /// No backend owns more rows than so many times its share by weight, rounded up; none for no bound.
    pub max_share: Option<f64>,
    /// In ascending order of id.
    pub backends: Vec<Backend>,
    /// In ascending order.
    pub binds: Vec<Bind>,
    /// Hop list of each row, the primary first.
    pub hops: Lists,
    /// Former owners of each row, newest first.
    pub lineage: Lists,
}

impl Table {
    /// Number of rows.
    pub fn rows(&self) -> u32 {
        u32::try_from(self.hops.len()).unwrap_or(u32::MAX)
    }

    /// The row of a flow by `fields`: [`Table::hash_fields`] or [`Table::alt_hash_fields`].
    #[inline]
    pub fn row(&self, flow: &FlowKey, fields: HashFields) -> u32 {
        flow.hash(self.hash_key, fields).row(self.rows())
    }

    /// The owner of a row; none if the row is empty.
    #[inline]
    pub fn primary(&self, row: u32) -> Option<u16> {
        self.hops.get(row).first().copied()
    }

    /// Hops of a row as a packet carries them: the primary, and those of its address family.
    pub fn sent(&self, row: u32) -> impl Iterator<Item = u16> + Clone {
        let list = self.hops.get(row);
        let primary = list.first().and_then(|primary| self.backend(*primary));
        let carried =
            move |hop: &u16| primary.zip(self.backend(*hop)).is_some_and(|(one, hop)| one.carries(hop));
        list.iter().copied().filter(carried)
    }

    /// Hops of a row that are listed and not sent: those of another address family than the primary.
    pub fn not_sent(&self, row: u32) -> impl Iterator<Item = u16> {
        let sent = self.sent(row);
        self.hops.get(row).iter().copied().filter(move |hop| !sent.clone().any(|one| one == *hop))
    }

    /// The backend at a position that a list holds.
    pub fn backend(&self, position: u16) -> Option<&Backend> {
        self.backends.get(usize::from(position))
    }
}

/// A whole, checked table file.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardingTable {
    digest: Digest,
    config_digest: Digest,
    generation: u64,
    parent: Option<Digest>,
    built: Built,
    tables: Vec<Table>,
}

impl ForwardingTable {
    /// Seals tables into a file's content, checking all that [`ForwardingTable::decode`] checks: built as first without
    /// a parent, else as a child.
    pub fn new(parent: Option<&Self>, tables: Vec<Table>) -> Result<Self, TableError> {
        Self::seal(parent, parent.map_or(Built::First, |_| Built::Child), tables)
    }

    /// The same for tables whose lineages hold the owners of `parent` alone.
    pub fn settled(parent: &Self, tables: Vec<Table>) -> Result<Self, TableError> {
        Self::seal(Some(parent), Built::Settled, tables)
    }

    fn seal(parent: Option<&Self>, built: Built, tables: Vec<Table>) -> Result<Self, TableError> {
        let generation = parent.map_or(0, Self::generation).saturating_add(1);
        let mut sealed = Self {
            digest: Digest::default(),
            config_digest: encode::config_digest(&tables),
            generation,
            parent: parent.map(Self::digest),
            built,
            tables,
        };
        check::check(&sealed)?;
        sealed.digest = encode::digest(&sealed);
        Ok(sealed)
    }

    /// The name of this table: SHA-256 of its file.
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// SHA-256 of the configuration in it, whatever its rows.
    pub const fn config_digest(&self) -> Digest {
        self.config_digest
    }

    /// 1 for a table without a parent, else the parent's plus 1.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The table that this one was built from, by `--previous`.
    pub const fn parent(&self) -> Option<Digest> {
        self.parent
    }

    /// How it was built: what its lineage can say.
    pub const fn built(&self) -> Built {
        self.built
    }

    /// The tables, in ascending order of name.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// The table of that name.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// All binds, each with the position of its table: what [`crate::bind::BindIndex::new`] takes.
    pub fn binds(&self) -> Vec<(Bind, u32)> {
        (0u32..)
            .zip(&self.tables)
            .flat_map(|(at, table)| table.binds.iter().map(move |bind| (*bind, at)))
            .collect()
    }

    /// Reads a file of either format: this one, or GLB Director's version 2 ([`glb`]).
    pub fn read(octets: &[u8]) -> Result<Self, TableError> {
        if octets.starts_with(&glb::MAGIC) { glb::read(octets) } else { Self::decode(octets) }
    }
}

/// Where in a file something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The file as a whole.
    File,
    /// Its header.
    Header,
    /// A section of the table at this position, by its tag.
    Table(u32, [u8; 4]),
    /// The digest at its end.
    Digest,
    /// A part of a file of GLB Director's.
    Glb(&'static str),
    /// A part of the table at this position in a file of GLB Director's.
    GlbTable(u32, &'static str),
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("file"),
            Self::Header => f.write_str("header"),
            Self::Table(at, tag) => write!(f, "table {at} {}", tag.escape_ascii()),
            Self::Digest => f.write_str("digest"),
            Self::Glb(part) => write!(f, "GLB {part}"),
            Self::GlbTable(at, part) => write!(f, "GLB table {at}, {part}"),
        }
    }
}

/// Why octets are not a table file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableError {
    /// The part of the file.
    pub section: Section,
    /// Octets from the start of the file.
    pub offset: u64,
    /// What should stand there.
    pub expected: Cow<'static, str>,
    /// What does.
    pub found: Cow<'static, str>,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { section, offset, expected, found } = self;
        write!(f, "{section}, offset {offset}: expected {expected}, found {found}")
    }
}

impl std::error::Error for TableError {}
