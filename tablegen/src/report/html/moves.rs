//! A picture of rows that change owner: old owners on the left, new owners on the right. Each pair has a band whose
//! width is proportional to its rows.

use super::pixels::{colour, hex};
use crate::format::number::grouped;
use crate::review::diff::{NO_BACKEND, TableDiff};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Backends of a side that are drawn one by one. The others share a block.
const DRAWN: usize = 14;
const HEIGHT: f64 = 460.0;
const TOP: f64 = 5.0;
const GAP: f64 = 6.0;
const LEFT: f64 = 200.0;
const RIGHT: f64 = 660.0;
const BLOCK: f64 = 14.0;
/// Least distance of two labels, in units of the picture.
const LABEL_GAP: f64 = 13.0;
const LABEL_CHARACTERS: usize = 22;

/// The picture, for the template `moves.svg`. Coordinates are text, rounded for the file.
pub(super) struct MovesPicture {
    pub(super) height: String,
    pub(super) bands: Vec<Band>,
    pub(super) blocks: Vec<Block>,
}

/// A band between two blocks; `top` and `bottom` hold the left and the right edge.
pub(super) struct Band {
    pub(super) start: f64,
    pub(super) middle: f64,
    pub(super) stop: f64,
    pub(super) top: [String; 2],
    pub(super) bottom: [String; 2],
    pub(super) fill: String,
}

/// The block of a backend on one side.
pub(super) struct Block {
    pub(super) x: f64,
    pub(super) top: String,
    pub(super) width: f64,
    pub(super) height: String,
    pub(super) fill: String,
    /// None where the labels would overlap.
    pub(super) label: Option<BlockLabel>,
}

pub(super) struct BlockLabel {
    pub(super) x: f64,
    pub(super) y: String,
    pub(super) anchor: &'static str,
    pub(super) name: String,
    pub(super) rows: String,
}

/// One block of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// A backend by its number; None stands for rows without an owner.
    Backend(Option<u32>),
    /// All backends that are not drawn one by one, and how many they are.
    Others(usize),
}

/// The picture; None where no row changed owner.
pub(super) fn picture(table: &TableDiff) -> Option<MovesPicture> {
    let total: u32 = table.rows.moves.values().sum();
    if total == 0 {
        return None;
    }
    let [from, to] = [side(table, |(from, _)| from), side(table, |(_, to)| to)];
    let scale = |ends: &[(End, u32)]| (HEIGHT - GAP * ends.len() as f64) / f64::from(total);
    let scale = scale(&from).min(scale(&to));
    let mut pairs = BTreeMap::<(usize, usize), u32>::new();
    for ((old, new), rows) in &table.rows.moves {
        *pairs.entry((index(&from, *old), index(&to, *new))).or_default() += rows;
    }
    let mut tops = [tops(&from, scale), tops(&to, scale)];
    let bands = pairs.into_iter().map(|((old, new), rows)| {
        let width = f64::from(rows) * scale;
        let [left, right] = &mut tops;
        let edges = [left[old], right[new]];
        left[old] += width;
        right[new] += width;
        band(edges, width, tint(from[old].0))
    });
    Some(MovesPicture {
        height: format!("{:.0}", HEIGHT + 2.0 * TOP),
        bands: bands.collect(),
        blocks: [(&from, true), (&to, false)]
            .into_iter()
            .flat_map(|(ends, left)| blocks(table, ends, scale, left))
            .collect(),
    })
}

fn band(top: [f64; 2], width: f64, fill: String) -> Band {
    // A band of one row is still visible.
    let bottom = top.map(|edge| edge + width.max(0.4));
    let text = |edges: [f64; 2]| edges.map(|edge| format!("{edge:.1}"));
    let (start, stop) = (LEFT + BLOCK, RIGHT);
    Band { start, middle: (LEFT + RIGHT) / 2.0, stop, top: text(top), bottom: text(bottom), fill }
}

/// The blocks of one side with their rows, most rows first.
fn side(table: &TableDiff, end: impl Fn((Option<u32>, Option<u32>)) -> Option<u32>) -> Vec<(End, u32)> {
    let mut rows = BTreeMap::<Option<u32>, u32>::new();
    table.rows.moves.iter().for_each(|(pair, count)| *rows.entry(end(*pair)).or_default() += count);
    let mut ends: Vec<(End, u32)> = rows.into_iter().map(|(end, rows)| (End::Backend(end), rows)).collect();
    ends.sort_by_key(|(end, rows)| (Reverse(*rows), *end));
    if ends.len() > DRAWN + 1 {
        let others = ends.split_off(DRAWN);
        ends.push((End::Others(others.len()), others.iter().map(|(_, rows)| rows).sum()));
    }
    ends
}

/// The index of a backend's block. Backends without a block of their own belong to the last one.
fn index(ends: &[(End, u32)], backend: Option<u32>) -> usize {
    ends.iter().position(|(end, _)| *end == End::Backend(backend)).unwrap_or(ends.len() - 1)
}

fn tops(ends: &[(End, u32)], scale: f64) -> Vec<f64> {
    let tops = ends.iter().scan(TOP, |next, (_, rows)| {
        let top = *next;
        *next += f64::from(*rows) * scale + GAP;
        Some(top)
    });
    tops.collect()
}

fn tint(end: End) -> String {
    match end {
        End::Backend(Some(number)) => hex(colour(number)),
        _ => "#8c959f".to_owned(),
    }
}

fn blocks(table: &TableDiff, ends: &[(End, u32)], scale: f64, left: bool) -> Vec<Block> {
    let mut last_label = f64::NEG_INFINITY;
    let block = |((end, rows), top): (&(End, u32), f64)| {
        let height = (f64::from(*rows) * scale).max(1.0);
        let y = top + height / 2.0 + 4.0;
        let is_free = y - last_label >= LABEL_GAP;
        if is_free {
            last_label = y;
        }
        Block {
            x: if left { LEFT } else { RIGHT },
            top: format!("{top:.1}"),
            width: BLOCK,
            height: format!("{height:.1}"),
            fill: tint(*end),
            label: is_free.then(|| label(table, *end, *rows, y, left)),
        }
    };
    ends.iter().zip(tops(ends, scale)).map(block).collect()
}

fn label(table: &TableDiff, end: End, rows: u32, y: f64, left: bool) -> BlockLabel {
    let name = match end {
        End::Backend(number) => number.map_or(NO_BACKEND, |number| table.id(number)).to_owned(),
        End::Others(count) => format!("{count} others"),
    };
    let (x, anchor) = if left { (LEFT - 8.0, "end") } else { (RIGHT + BLOCK + 8.0, "start") };
    let name = name.chars().take(LABEL_CHARACTERS).collect();
    BlockLabel { x, y: format!("{y:.1}"), anchor, name, rows: grouped(rows) }
}
