//! The section of one table.

use super::moves::{self, MovesPicture};
use super::pixels::{self, colour, hex};
use super::{Room, png, script_json};
use crate::format::natural;
use crate::format::number::{counted, grouped, percent, signed};
use crate::report::changes::ChangeGroup;
use crate::report::text;
use crate::review::diff::{BackendDiff, Failed, Failure, Mapping, Shape, TableDiff, USUAL_MTU};
use crate::review::remarks;
use common::table::Table;

/// Entries of a list that are shown.
const LISTED: usize = 40;
/// Owners in the legend of the picture of owners.
const OWNERS: usize = 16;
/// What stands for a value that does not exist.
const NONE: &str = "–";
/// Width of a bar in units of its picture.
const BAR: f64 = 250.0;

/// The section of one table, for the template `change.html`.
pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    pub(super) tiles: Vec<(String, String)>,
    pub(super) changes: Shown<(String, ChangeGroup)>,
    pub(super) risks: Shown<String>,
    pub(super) pictures: Option<RowPictures>,
    pub(super) readout: Option<Readout>,
    pub(super) moves: Option<MovesPicture>,
    pub(super) backends: Shown<BackendLine<'a>>,
    pub(super) shapes: Vec<(String, String, String)>,
    pub(super) failures: Shown<FailureLine>,
}

/// The first entries of a list, and the number of the others.
pub(super) struct Shown<T> {
    pub(super) shown: Vec<T>,
    pub(super) hidden: usize,
}

impl<T> Shown<T> {
    fn first(most: usize, mut entries: Vec<T>) -> Self {
        let hidden = entries.len().saturating_sub(most);
        entries.truncate(most);
        Self { shown: entries, hidden }
    }

    pub(super) fn hidden_count(&self) -> String {
        grouped(self.hidden as u64)
    }

    /// The note on hidden entries, as HTML.
    pub(super) fn more(&self) -> String {
        match self.hidden {
            0 => String::new(),
            _ => format!("<p class=\"muted\">and {} more</p>", self.hidden_count()),
        }
    }
}

/// The two pictures of all rows, as data URIs, with their legends: colour and words.
pub(super) struct RowPictures {
    pub(super) changes: String,
    pub(super) owners: String,
    pub(super) scale: String,
    pub(super) change_legend: Vec<(String, String)>,
    pub(super) owner_legend: Shown<(String, String)>,
}

/// The lists of single rows, for the script of the page.
pub(super) struct Readout {
    pub(super) last_row: u32,
    pub(super) data: String,
}

/// A backend before and after.
pub(super) struct BackendLine<'a> {
    pub(super) id: &'a str,
    pub(super) old_condition: &'a str,
    pub(super) new_condition: &'a str,
    /// Rows before, rows after, their difference.
    pub(super) numbers: [String; 3],
    /// Lengths of the bars before and after.
    pub(super) bars: [String; 2],
    /// Position of the mark for the fair share.
    pub(super) fair: Option<String>,
    pub(super) share: String,
    pub(super) load: String,
    pub(super) flows: String,
}

/// A failure and the most loaded survivor: id, rows, load.
pub(super) struct FailureLine {
    pub(super) name: String,
    pub(super) rows: String,
    pub(super) heirs: String,
    pub(super) worst: Option<(String, String, String)>,
}

impl<'a> Section<'a> {
    pub(super) fn new(
        table: &'a TableDiff,
        old: Option<&Table>,
        new: Option<&Table>,
        room: &mut Room,
    ) -> Self {
        let pictured = new.filter(|_| room.tables > 0);
        room.tables = room.tables.saturating_sub(usize::from(pictured.is_some()));
        let mapping = Mapping::new(old, new);
        let groups = ChangeGroup::of(&table.config);
        let subject = |group: &ChangeGroup| {
            if group.ids.is_empty() { "table".to_owned() } else { group.subject() }
        };
        Self {
            name: &table.name,
            tiles: tiles(table),
            changes: Shown::first(LISTED, groups.into_iter().map(|group| (subject(&group), group)).collect()),
            risks: Shown::first(LISTED, remarks::risks(table)),
            pictures: pictured.map(|new| pictures(table, new, &mapping)),
            readout: old.zip(pictured).and_then(|(old, new)| readout(table, old, new, &mapping, room)),
            moves: moves::picture(table),
            backends: backends(table),
            shapes: shapes(table),
            failures: failures(table),
        }
    }
}

fn tiles(table: &TableDiff) -> Vec<(String, String)> {
    let rows = &table.rows;
    let tile = |part: u32, words: &str| {
        (grouped(part), format!("{words}, {}", percent(part.into(), rows.total.into())))
    };
    let mut tiles = vec![
        (grouped(rows.total), "rows".to_owned()),
        tile(rows.changed, "changed"),
        tile(rows.moved, "change owner"),
        tile(rows.unnecessary, "unnecessarily"),
    ];
    if rows.by_max_share > 0 {
        tiles.push(tile(rows.by_max_share, "by max_share"));
    }
    tiles.push(tile(rows.at_risk, "at risk"));
    tiles
}

fn pictures(table: &TableDiff, new: &Table, mapping: &Mapping) -> RowPictures {
    let step = pixels::rows_per_pixel(table.rows.each.len());
    RowPictures {
        changes: pixels::changes(table),
        owners: pixels::owners(new, &mapping.numbers[1]),
        scale: if step == 1 { "one pixel per row".to_owned() } else { format!("one pixel per {step} rows") },
        change_legend: pixels::legend(table),
        owner_legend: owner_legend(table),
    }
}

/// Backends that own rows after the change, with their colours.
fn owner_legend(table: &TableDiff) -> Shown<(String, String)> {
    let mut owners: Vec<_> =
        (0u32..).zip(&table.backends).filter(|(_, backend)| backend.rows[1] > 0).collect();
    owners.sort_by(|(_, a), (_, b)| natural(&a.id, &b.id));
    let entries = owners.into_iter().map(|(number, backend)| (hex(colour(number)), backend.id.clone()));
    Shown::first(OWNERS, entries.collect())
}

/// The lists of single rows, while the page has room for them.
fn readout(
    table: &TableDiff,
    old: &Table,
    new: &Table,
    mapping: &Mapping,
    room: &mut Room,
) -> Option<Readout> {
    if table.rows.each.len() != png::SIDE * png::SIDE {
        return None;
    }
    let (packed, width) =
        pixels::packed([(old, &mapping.numbers[0]), (new, &mapping.numbers[1])], mapping.ids.len());
    room.row_data = room.row_data.checked_sub(packed.len())?;
    let data =
        serde_json::json!({"rows": table.rows.total, "width": width, "ids": mapping.ids, "packed": packed});
    Some(Readout { last_row: table.rows.total - 1, data: script_json(&data) })
}

fn backends(table: &TableDiff) -> Shown<BackendLine<'_>> {
    let listed = text::most_changed(table, LISTED);
    let most = |backend: &&BackendDiff| f64::from(backend.rows[0].max(backend.rows[1])).max(backend.fair[1]);
    let most = listed.iter().map(most).fold(1.0, f64::max);
    let hidden = table.backends.len() - listed.len();
    Shown { shown: listed.into_iter().map(|backend| backend_line(backend, table, most)).collect(), hidden }
}

fn backend_line<'a>(backend: &'a BackendDiff, table: &TableDiff, most: f64) -> BackendLine<'a> {
    let [old_condition, new_condition] =
        backend.condition.each_ref().map(|condition| condition.as_deref().unwrap_or("absent"));
    let [before, after] = backend.rows;
    let fair = Some(backend.fair[1]).filter(|fair| *fair > 0.0);
    let length = |rows: f64| format!("{:.1}", rows / most * BAR);
    BackendLine {
        id: &backend.id,
        old_condition,
        new_condition,
        numbers: [grouped(before), grouped(after), signed(before, after)],
        bars: backend.rows.map(|rows| length(rows.into())),
        fair: fair.map(length),
        share: percent(after.into(), table.rows.total.into()),
        load: fair.map_or_else(|| NONE.to_owned(), |fair| format!("{:.3} ×", f64::from(after) / fair)),
        flows: text::flows(backend, table),
    }
}

fn shapes(table: &TableDiff) -> Vec<(String, String, String)> {
    let [old, new] = &table.shape;
    let line = |words: &str, of: &dyn Fn(&Shape) -> String| (words.to_owned(), of(old), of(new));
    let lengths = (0..old.hop_lengths.len()).filter_map(|hops| {
        let rows = |shape: &Shape| shape.hop_lengths[hops];
        let words = format!("rows with {}", counted(hops, "hop"));
        (rows(old) > 0 || rows(new) > 0).then(|| line(&words, &|shape| grouped(rows(shape))))
    });
    let load = |extreme: Option<(f64, u32)>| {
        extreme.map_or_else(|| NONE.to_owned(), |(load, id)| format!("{} {load:.3} ×", table.id(id)))
    };
    let others = [
        line("octets added to a packet, in most rows", &|shape| shape.overhead.0.to_string()),
        line("octets added to a packet, at most", &|shape| shape.overhead.1.to_string()),
        line(&format!("octets left of an MTU of {USUAL_MTU}"), &|shape| {
            USUAL_MTU.saturating_sub(shape.overhead.1).to_string()
        }),
        line("most loaded, × its fair share", &|shape| load(shape.most_loaded)),
        line("least loaded, × its fair share", &|shape| load(shape.least_loaded)),
    ];
    lengths.chain(others).collect()
}

/// Zones before backends, most loaded survivor first.
fn failures(table: &TableDiff) -> Shown<FailureLine> {
    let is_zone = |failure: &Failure| matches!(failure.failed, Failed::Zone(_));
    let load = |failure: &Failure| failure.worst.map_or(f64::INFINITY, |(_, _, load)| load);
    let mut failures: Vec<&Failure> = table.failures.iter().collect();
    failures.sort_by(|a, b| is_zone(b).cmp(&is_zone(a)).then(load(b).total_cmp(&load(a))));
    let line = |failure: &Failure| FailureLine {
        name: match &failure.failed {
            Failed::Backend(id) => table.id(*id).to_owned(),
            Failed::Zone(zone) => format!("zone {zone}"),
        },
        rows: grouped(failure.rows),
        heirs: grouped(failure.heirs),
        worst: failure
            .worst
            .map(|(id, rows, load)| (table.id(id).to_owned(), grouped(rows), format!("{load:.3} ×"))),
    };
    Shown::first(LISTED, failures.into_iter().map(line).collect())
}
