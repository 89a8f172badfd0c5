//! Every rule of the format about values, for tables that were read from a file and for those made in memory.

use super::{
    BACKEND_LEN, BIND_LEN, Built, DIGEST_LEN, ForwardingTable, HEAD_LEN, HEADER_1_LEN, HOPS, MAX_BACKENDS,
    MAX_BINDS, MAX_FILE, MAX_SHARES, MAX_TABLES, MAX_TEXT, NONE, ROWS, Ranking, SECTIONS, Section, Table,
    TableError, encode,
};
use crate::backend::Backend;
use crate::bind::{Bind, BindIndex, BindTie};
use std::borrow::Cow;
use std::collections::HashSet;

/// Errors point to where the value stands in the file.
pub(super) fn check(table: &ForwardingTable) -> Result<(), TableError> {
    check_count(Section::Header, 12, "tables", table.tables.len(), MAX_TABLES)?;
    let rooted = table.parent.is_none();
    if table.generation == 0 || (table.generation == 1) != rooted {
        let expected =
            if rooted { "1, for there is no parent" } else { "more than 1, for there is a parent" };
        return Err(error(
            Section::Header,
            24,
            format!("generation {expected}"),
            table.generation.to_string(),
        ));
    }
    if table.built != Built::Unknown && (table.built == Built::First) != rooted {
        let expected =
            if rooted { "first, for there is no parent" } else { "child or settled, for there is a parent" };
        return Err(error(Section::Header, HEADER_1_LEN, format!("built as {expected}"), table.built.name()));
    }
    let config_digest = encode::config_digest(&table.tables);
    if config_digest != table.config_digest {
        let expected = format!("config digest {config_digest}");
        return Err(error(Section::Header, 32, expected, table.config_digest.to_string()));
    }
    let mut place = Place { at: 0, start: table.built.header_len() };
    for (at, one) in (0..).zip(&table.tables) {
        place.at = at;
        check_table(one, &place)?;
        if table.built == Built::First {
            check_no_lineage(one, &place)?;
        }
        let before = at.checked_sub(1).and_then(|before| table.tables.get(before as usize));
        if before.is_some_and(|before| before.name >= one.name) {
            return Err(place.error(0, HEAD_LEN, "names in ascending order", one.name.clone()));
        }
        place.start += table_len(one);
    }
    check_length(place.start + DIGEST_LEN)?;
    check_binds(table)
}

/// A file that no program reads is not written either.
fn check_length(length: usize) -> Result<(), TableError> {
    if length as u64 <= MAX_FILE {
        return Ok(());
    }
    Err(error(Section::File, length, format!("at most {MAX_FILE} octets (1 GiB)"), length.to_string()))
}

/// Where a table begins in the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u32,
    start: usize,
}

impl Place {
    /// `offset` counts from the start of the table, its section being the one at position `section`.
    fn error(
        &self,
        section: usize,
        offset: usize,
        expected: impl Into<Cow<'static, str>>,
        found: impl Into<Cow<'static, str>>,
    ) -> TableError {
        let tag = SECTIONS.get(section).copied().unwrap_or_default();
        error(Section::Table(self.at, tag), self.start + offset, expected, found)
    }
}

/// Octets of a section's payload.
fn section_len(table: &Table, section: usize) -> usize {
    match section {
        0 => HEAD_LEN + table.name.len() + table.max_share.map_or(0, |_| size_of::<f64>()),
        1 => table.backends.iter().map(backend_len).sum(),
        2 => table.binds.len() * BIND_LEN,
        3 => table.hops.cells().len() * 2,
        _ => table.lineage.cells().len() * 2,
    }
}

fn backend_len(backend: &Backend) -> usize {
    BACKEND_LEN + backend.id.len() + backend.zone.as_ref().map_or(0, String::len)
}

/// Octets of a table's sections, each with its tag and length.
fn table_len(table: &Table) -> usize {
    (0..SECTIONS.len()).map(|section| 12 + section_len(table, section)).sum()
}

/// Octets from the start of a table to the payload of a section.
fn payload_offset(table: &Table, section: usize) -> usize {
    (0..section).map(|before| 12 + section_len(table, before)).sum::<usize>() + 12
}

fn check_table(table: &Table, place: &Place) -> Result<(), TableError> {
    let head = |offset: usize, expected: &'static str, found: String| {
        Err(place.error(0, 12 + offset, expected, found))
    };
    let rows = table.rows();
    if !ROWS.contains(&rows) || !rows.is_power_of_two() {
        return head(0, "rows: a power of two from 65536 to 4194304", rows.to_string());
    }
    if !HOPS.contains(&table.max_hops) || table.hops.width() != usize::from(table.max_hops) {
        return head(12, "max_hops from 2 to 4, as wide as the rows", table.max_hops.to_string());
    }
    if table.lineage.width() + 1 != table.hops.width() || table.lineage.len() != table.hops.len() {
        return head(12, "a lineage as long as the rows and one narrower", table.lineage.width().to_string());
    }
    if table.hash_fields.is_empty() {
        return head(14, "hash_fields from 1 to 15", "0".into());
    }
    if table.hash_key.octets() == [0; 16] {
        return head(34, "a hash key that is not all zero", "zeros".into());
    }
    if !is_text(&table.name) {
        return head(
            50,
            "a name of 1…255 octets without control characters",
            table.name.escape_debug().to_string(),
        );
    }
    if let Some(share) = table.max_share
        && !(MAX_SHARES.contains(&share) && table.ranking == Ranking::Hrw)
    {
        let at = HEAD_LEN + table.name.len();
        return head(at, "max_share from 1 to 16, with ranking hrw", share.to_string());
    }
    check_backends(table, place)?;
    check_rows(table, place)
}

/// 1…255 octets without control characters.
fn is_text(text: &str) -> bool {
    (1..=MAX_TEXT).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn check_backends(table: &Table, place: &Place) -> Result<(), TableError> {
    let mut offset = payload_offset(table, 1);
    check_count(
        Section::Table(place.at, SECTIONS[0]),
        place.start + 16,
        "backends",
        table.backends.len(),
        MAX_BACKENDS,
    )?;
    let mut addresses = HashSet::with_capacity(table.backends.len());
    let mut before: Option<&str> = None;
    for backend in &table.backends {
        if let Some((expected, found)) = backend_fault(backend, before, addresses.insert(backend.address)) {
            return Err(place.error(1, offset, expected, found));
        }
        before = Some(&backend.id);
        offset += backend_len(backend);
    }
    Ok(())
}

fn backend_fault(
    backend: &Backend,
    before: Option<&str>,
    new_address: bool,
) -> Option<(&'static str, String)> {
    let share = backend.effective_weight();
    if !is_text(&backend.id) {
        return Some((
            "an id of 1…255 octets without control characters",
            backend.id.escape_debug().to_string(),
        ));
    }
    if before.is_some_and(|before| before >= backend.id.as_str()) {
        return Some(("ids in ascending order", backend.id.clone()));
    }
    if backend.zone.as_deref().is_some_and(|zone| !is_text(zone)) {
        return Some(("a zone of 1…255 octets without control characters", format!("{:?}", backend.zone)));
    }
    if !(1..=100).contains(&backend.fill) {
        return Some(("fill from 1 to 100", backend.fill.to_string()));
    }
    if !(backend.weight.is_finite() && share.is_finite() && share > 0.0) {
        return Some(("a finite weight greater than 0", backend.weight.to_string()));
    }
    (!new_address).then(|| ("an address of its own", backend.address.to_string()))
}

fn check_rows(table: &Table, place: &Place) -> Result<(), TableError> {
    let usable: Vec<bool> = table.backends.iter().map(Backend::is_candidate).collect();
    for (section, lists) in [(3, &table.hops), (4, &table.lineage)] {
        let cells = lists.cells().chunks_exact(lists.width());
        for (row, (cells, hops)) in cells.zip(table.hops.iter()).enumerate() {
            let owner = hops.first().copied().filter(|_| section == 4);
            if let Some((expected, found)) = list_fault(cells, owner, &usable) {
                let offset = payload_offset(table, section) + row * lists.width() * 2;
                return Err(place.error(section, offset, format!("{expected} in row {row}"), found));
            }
        }
    }
    Ok(())
}

fn check_no_lineage(table: &Table, place: &Place) -> Result<(), TableError> {
    let Some(cell) = table.lineage.cells().iter().position(|cell| *cell != NONE) else { return Ok(()) };
    let row = cell / table.lineage.width().max(1);
    let expected = format!("no former owner in row {row} of a table that was built as first");
    let found = table.lineage.cells().get(cell).map(u16::to_string).unwrap_or_default();
    Err(place.error(4, payload_offset(table, 4) + cell * 2, expected, found))
}

/// What is wrong with one list: `owner` may not be in it.
#[inline]
fn list_fault(cells: &[u16], owner: Option<u16>, usable: &[bool]) -> Option<(&'static str, String)> {
    for (at, cell) in cells.iter().enumerate() {
        let before = cells.get(..at).unwrap_or_default();
        if *cell == NONE {
            let after = cells.get(at..).unwrap_or_default();
            return after.iter().any(|later| *later != NONE).then(|| ("no gap", format!("{cells:?}")));
        }
        match usable.get(usize::from(*cell)) {
            None => return Some(("a backend's position", cell.to_string())),
            Some(false) => return Some(("no inactive backend", cell.to_string())),
            Some(true) if before.contains(cell) => return Some(("each backend once", format!("{cells:?}"))),
            Some(true) if owner == Some(*cell) => {
                return Some(("no owner among former owners", cell.to_string()));
            }
            Some(true) => {}
        }
    }
    None
}

fn check_binds(table: &ForwardingTable) -> Result<(), TableError> {
    let binds = table.binds();
    let mut place = Place { at: 0, start: table.built.header_len() };
    for (at, one) in (0..).zip(&table.tables) {
        place.at = at;
        let section = Section::Table(at, SECTIONS[0]);
        check_count(section, place.start + 20, "binds", one.binds.len(), MAX_BINDS)?;
        if let Some(pair) = one.binds.windows(2).position(|pair| pair.first() >= pair.last()) {
            let offset = payload_offset(one, 2) + (pair + 1) * BIND_LEN;
            return Err(place.error(2, offset, "binds in ascending order", format!("{}", pair + 1)));
        }
        place.start += table_len(one);
    }
    check_count(Section::File, 0, "binds", binds.len(), MAX_BINDS)?;
    let tie = match BindIndex::new(&binds) {
        Ok(_) => return Ok(()),
        Err(tie) => tie,
    };
    Err(tie_error(table, &binds, tie))
}

fn tie_error(table: &ForwardingTable, binds: &[(Bind, u32)], tie: BindTie) -> TableError {
    let find = |at: usize| binds.get(at).map_or_else(String::new, |(bind, _)| bind.to_string());
    let at = binds.get(tie.later).map_or(0, |(_, at)| *at);
    let start =
        table.built.header_len() + table.tables.iter().take(at as usize).map(table_len).sum::<usize>();
    let first = binds.iter().position(|(_, of)| *of == at).unwrap_or_default();
    let within = table.tables.get(at as usize).map_or(0, |one| payload_offset(one, 2))
        + (tie.later - first) * BIND_LEN;
    let expected = format!("a bind that does not tie with {}", find(tie.earlier));
    error(Section::Table(at, SECTIONS[2]), start + within, expected, find(tie.later))
}

/// At least one, at most `max`.
pub(super) fn check_count(
    section: Section,
    offset: usize,
    what: &'static str,
    found: usize,
    max: usize,
) -> Result<(), TableError> {
    if (1..=max).contains(&found) {
        return Ok(());
    }
    Err(error(section, offset, format!("1…{max} {what}"), found.to_string()))
}

pub(super) fn error(
    section: Section,
    offset: usize,
    expected: impl Into<Cow<'static, str>>,
    found: impl Into<Cow<'static, str>>,
) -> TableError {
    TableError { section, offset: offset as u64, expected: expected.into(), found: found.into() }
}
