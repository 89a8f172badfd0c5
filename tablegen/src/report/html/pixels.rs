//! Pictures of all rows: one pixel a row, or one a block of rows where there are more than 65,536.

use super::png::{SIDE, base64, indexed};
use crate::diff::{RowChange, TableDiff};
use common::table::Table;
use std::fmt::Write as _;

/// The colour of each kind of change, its words, and how bad it is: from quiet to loud. All stand out from rows that
/// did not change by 3 : 1 or more, which is what it takes to see a single one (WCAG 2.2, 1.4.11).
pub(super) const CHANGES: [(RowChange, [u8; 3], &str); 5] = [
    (RowChange::Same, [0xee, 0xf0, 0xf2], "unchanged"),
    (RowChange::Hops, [0x4f, 0x86, 0xbd], "other hops"),
    (RowChange::Moved, [0xb8, 0x6e, 0x00], "moved"),
    (RowChange::Unnecessary, [0x8a, 0x4f, 0xc0], "moved for no reason"),
    (RowChange::AtRisk, [0xb8, 0x10, 0x10], "at risk"),
];

/// Rows to a pixel.
pub(super) fn rows_a_pixel(rows: usize) -> usize {
    rows.div_ceil(SIDE * SIDE).max(1)
}

/// The picture of changes, as a data URI; a pixel shows the worst of its rows.
pub(super) fn changes(table: &TableDiff) -> String {
    let each = &table.rows.each;
    let worst = |block: &[RowChange]| block.iter().max().map_or(0, |worst| *worst as u8);
    let pixels: Vec<u8> = each.chunks(rows_a_pixel(each.len())).map(worst).collect();
    uri(&CHANGES.map(|(_, colour, _)| colour), &pixels)
}

/// The picture of owners, as a data URI; a pixel shows the owner of its first row.
pub(super) fn owners(new: &Table, numbers: &[u32]) -> String {
    let palette: Vec<[u8; 3]> = (0..256).map(colour).collect();
    let step = rows_a_pixel(new.hops.len());
    let pixel = |list: &[u16]| {
        let number = list.first().and_then(|at| numbers.get(usize::from(*at)));
        number.map_or(255, |number| u8::try_from(number % 255).unwrap_or(0))
    };
    let pixels: Vec<u8> = new.hops.iter().step_by(step).map(pixel).collect();
    uri(&palette, &pixels)
}

fn uri(palette: &[[u8; 3]], pixels: &[u8]) -> String {
    format!("data:image/png;base64,{}", base64(&indexed(palette, pixels)))
}

/// A colour for a backend: hues a golden angle apart, in three lightnesses. 255 is nobody.
pub(super) fn colour(number: u32) -> [u8; 3] {
    if number == 255 {
        return [0xff, 0xff, 0xff];
    }
    let hue = f64::from(number % 255) * 137.508 % 360.0;
    let light = [0.52, 0.40, 0.66][number as usize % 3];
    let part = |shift: f64| {
        // HSL to RGB with saturation 0.62, one channel at a time.
        let k = (shift + hue / 30.0) % 12.0;
        let amplitude = 0.62 * f64::min(light, 1.0 - light);
        let value = light - amplitude * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0…255")]
        let octet = (value * 255.0).round() as u8;
        octet
    };
    [part(0.0), part(8.0), part(4.0)]
}

/// `#rrggbb`.
pub(super) fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Old and new hop lists of all rows for the script of the page, bit by bit, the lowest first:
/// new list, one bit, and the old list if that bit is 1. A list is its length in three bits, then its numbers.
pub(super) fn packed(lists: [(&Table, &[u32]); 2], ids: usize) -> (String, u32) {
    let width = usize::BITS - ids.leading_zeros();
    let mut bits = Bits::default();
    let numbers = |side: usize, row: u32| -> Vec<u32> {
        let Some((table, numbers)) = lists.get(side) else { return Vec::new() };
        let list = table.hops.get(row & (table.rows() - 1)).iter();
        list.filter_map(|at| numbers.get(usize::from(*at)).copied()).collect()
    };
    let rows = lists.iter().map(|(table, _)| table.rows()).max().unwrap_or(0);
    for row in 0..rows {
        let [before, after] = [numbers(0, row), numbers(1, row)];
        bits.push_list(&after, width);
        bits.push(u32::from(before != after), 1);
        if before != after {
            bits.push_list(&before, width);
        }
    }
    (base64(&bits.octets), width)
}

#[derive(Default)]
struct Bits {
    octets: Vec<u8>,
    used: u32,
}

impl Bits {
    fn push(&mut self, value: u32, count: u32) {
        for bit in 0..count {
            if self.used == 0 {
                self.octets.push(0);
            }
            if let Some(last) = self.octets.last_mut() {
                *last |= u8::from(value >> bit & 1 == 1) << self.used;
            }
            self.used = (self.used + 1) % 8;
        }
    }

    fn push_list(&mut self, list: &[u32], width: u32) {
        self.push(u32::try_from(list.len()).unwrap_or(0), 3);
        list.iter().for_each(|number| self.push(*number, width));
    }
}

/// Colours and words under a picture of changes, with the number of rows of each.
pub(super) fn legend(table: &TableDiff) -> String {
    let mut text = String::from("<ul class=\"legend\">");
    for (change, colour, words) in CHANGES {
        let rows = table.rows.each.iter().filter(|each| **each == change).count();
        let (colour, rows) = (hex(colour), super::grouped(rows as u64));
        let _ = write!(text, "<li><i style=\"background:{colour}\"></i>{words} {rows}</li>");
    }
    text + "</ul>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_stands_out() {
        let light = |colour: [u8; 3]| {
            let linear = |octet: u8| ((f64::from(octet) / 255.0 + 0.055) / 1.055).powf(2.4);
            0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2])
        };
        let [same, others @ ..] = CHANGES.map(|(_, colour, _)| light(colour) + 0.05);
        others.into_iter().for_each(|other| assert!(same / other >= 3.0, "{}", same / other));
    }
}
