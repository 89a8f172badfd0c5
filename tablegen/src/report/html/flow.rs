//! Who gives rows to whom: donors on the left, heirs on the right, a band for each pair as wide as its rows.

use super::pixels::{colour, hex};
use super::{escape, grouped};
use crate::diff::TableDiff;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Donors, and heirs, that are drawn by themselves; the others are drawn as one.
const DRAWN: usize = 14;
const HEIGHT: f64 = 460.0;
const GAP: f64 = 6.0;
const LEFT: f64 = 200.0;
const RIGHT: f64 = 660.0;
const BLOCK: f64 = 14.0;

/// A backend's number; none is an empty row; `Others` all that are not drawn by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Backend(Option<u32>),
    Others(usize),
}

/// An SVG picture; nothing where no row moved.
pub(super) fn picture(table: &TableDiff) -> Option<String> {
    let total: u32 = table.rows.moves.values().sum();
    if total == 0 {
        return None;
    }
    let [from, to] = [side(table, |(from, _)| from), side(table, |(_, to)| to)];
    let mut bands = BTreeMap::<(usize, usize), u32>::new();
    for ((donor, heir), rows) in &table.rows.moves {
        *bands.entry((place(&from, *donor), place(&to, *heir))).or_default() += rows;
    }
    let scale = |ends: &[(End, u32)]| (HEIGHT - GAP * ends.len() as f64) / f64::from(total);
    let scale = scale(&from).min(scale(&to));
    let mut svg = format!(
        "<svg viewBox=\"0 0 880 {:.0}\" width=\"880\" role=\"img\" aria-label=\"Rows given from the backends on the left to those \
         on the right\">",
        HEIGHT + 10.0
    );
    let [mut left, mut right] = [tops(&from, scale), tops(&to, scale)];
    for ((donor, heir), rows) in &bands {
        let width = f64::from(*rows) * scale;
        let (Some(y1), Some(y2), Some((end, _))) =
            (left.get_mut(*donor), right.get_mut(*heir), from.get(*donor))
        else {
            continue;
        };
        let (a, b) = (*y1, *y2);
        (*y1, *y2) = (*y1 + width, *y2 + width);
        let (start, stop, middle) = (LEFT + BLOCK, RIGHT, (LEFT + RIGHT) / 2.0);
        let (c, d) = (a + width.max(0.4), b + width.max(0.4));
        let _ = write!(
            svg,
            "<path class=\"band\" d=\"M{start} {a:.1}C{middle} {a:.1} {middle} {b:.1} {stop} {b:.1}V{d:.1}C{middle} {d:.1} \
             {middle} {c:.1} {start} {c:.1}Z\" fill=\"{}\"/>",
            tint(*end)
        );
    }
    blocks(&mut svg, table, &from, scale, LEFT, true);
    blocks(&mut svg, table, &to, scale, RIGHT, false);
    Some(svg + "</svg>")
}

/// The ends of one side with their rows, the most first.
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

fn place(ends: &[(End, u32)], backend: Option<u32>) -> usize {
    ends.iter().position(|(end, _)| *end == End::Backend(backend)).unwrap_or(ends.len().saturating_sub(1))
}

fn tops(ends: &[(End, u32)], scale: f64) -> Vec<f64> {
    let mut top = 5.0;
    let mut next = |rows: u32| {
        let this = top;
        top += f64::from(rows) * scale + GAP;
        this
    };
    ends.iter().map(|(_, rows)| next(*rows)).collect()
}

fn tint(end: End) -> String {
    match end {
        End::Backend(Some(number)) => hex(colour(number % 255)),
        _ => "#8c959f".to_owned(),
    }
}

fn blocks(svg: &mut String, table: &TableDiff, ends: &[(End, u32)], scale: f64, x: f64, left: bool) {
    let mut last_label = f64::NEG_INFINITY;
    for ((end, rows), top) in ends.iter().zip(tops(ends, scale)) {
        let height = (f64::from(*rows) * scale).max(1.0);
        let _ = write!(
            svg,
            "<rect class=\"block\" x=\"{x}\" y=\"{top:.1}\" width=\"{BLOCK}\" height=\"{height:.1}\" fill=\"{}\"/>",
            tint(*end)
        );
        let name = match end {
            End::Backend(number) => number.map_or("nobody", |number| table.id(number)).to_owned(),
            End::Others(count) => format!("{count} others"),
        };
        let middle = top + height / 2.0 + 4.0;
        if middle - last_label < 13.0 {
            continue;
        }
        last_label = middle;
        let (at, anchor) = if left { (x - 8.0, "end") } else { (x + BLOCK + 8.0, "start") };
        let short: String = name.chars().take(22).collect();
        let _ = write!(
            svg,
            "<text x=\"{at}\" y=\"{middle:.1}\" text-anchor=\"{anchor}\">{} <tspan class=\"small\">{}</tspan></text>",
            escape(&short),
            grouped(*rows)
        );
    }
}
