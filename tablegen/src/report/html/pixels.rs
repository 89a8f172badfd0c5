//! Pictures of all rows: one pixel for each row, or for each block of rows if there are more than 65,536.

use super::png::{SIDE, base64, data_uri};
use crate::format::number::grouped;
use crate::review::diff::{RowChange, TableDiff};
use common::table::Table;

/// The colour and the words of each kind of change, from harmless to harmful. Each colour has a contrast of at least
/// 3 : 1 to that of unchanged rows, so that a single row is visible (WCAG 2.2, 1.4.11).
pub(super) const CHANGES: [(RowChange, [u8; 3], &str); 5] = [
    (RowChange::Same, [0xee, 0xf0, 0xf2], "unchanged"),
    (RowChange::Hops, [0x4f, 0x86, 0xbd], "other hops"),
    (RowChange::Moved, [0xb8, 0x6e, 0x00], "changed owner"),
    (RowChange::Unnecessary, [0x8a, 0x4f, 0xc0], "changed owner unnecessarily"),
    (RowChange::AtRisk, [0xb8, 0x10, 0x10], "at risk"),
];

/// Colours of backends. Backends whose numbers differ by a multiple of this share a colour.
const COLOURS: u32 = 255;
/// The palette index of a row without an owner.
const NO_OWNER: u8 = 255;

/// Rows per pixel.
pub(super) fn rows_per_pixel(rows: usize) -> usize {
    rows.div_ceil(SIDE * SIDE).max(1)
}

/// The picture of changes, as a data URI. A pixel shows the most harmful change of its rows.
pub(super) fn changes(table: &TableDiff) -> String {
    let each = &table.rows.each;
    let worst = |block: &[RowChange]| block.iter().max().map_or(0, |worst| *worst as u8);
    let pixels: Vec<u8> = each.chunks(rows_per_pixel(each.len())).map(worst).collect();
    data_uri(&CHANGES.map(|(_, colour, _)| colour), &pixels)
}

/// The picture of owners, as a data URI. A pixel shows the owner of its first row.
pub(super) fn owners(new: &Table, numbers: &[u32]) -> String {
    let palette: Vec<[u8; 3]> = (0..COLOURS).map(colour).chain([[0xff; 3]]).collect();
    let pixel =
        |list: &[u16]| list.first().map_or(NO_OWNER, |owner| (numbers[usize::from(*owner)] % COLOURS) as u8);
    let pixels: Vec<u8> = new.hops.iter().step_by(rows_per_pixel(new.hops.len())).map(pixel).collect();
    data_uri(&palette, &pixels)
}

/// The colour of a backend, by its number: hues a golden angle apart, in three lightnesses.
pub(super) fn colour(number: u32) -> [u8; 3] {
    let number = number % COLOURS;
    let hue = f64::from(number) * 137.508 % 360.0;
    let light = [0.52, 0.40, 0.66][number as usize % 3];
    let channel = |shift: f64| {
        // HSL to RGB with saturation 0.62.
        let k = (shift + hue / 30.0) % 12.0;
        let amplitude = 0.62 * f64::min(light, 1.0 - light);
        let value = light - amplitude * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0…255")]
        let octet = (value * 255.0).round() as u8;
        octet
    };
    [channel(0.0), channel(8.0), channel(4.0)]
}

/// `#rrggbb`.
pub(super) fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// The legend of the picture of changes: colour, and words with the number of rows.
pub(super) fn legend(table: &TableDiff) -> Vec<(String, String)> {
    let entry = |(change, colour, words)| {
        let rows = table.rows.each.iter().filter(|each| **each == change).count();
        (hex(colour), format!("{words} {}", grouped(rows as u64)))
    };
    CHANGES.map(entry).into()
}

/// Old and new hop lists of all rows for the script of the page, as base64, and the bits of a backend number.
///
/// The lists are packed bit by bit, the lowest bit first: the new list, one bit, and the old list if that bit is 1. A
/// list is its length in three bits, then the numbers of its backends.
pub(super) fn packed(lists: [(&Table, &[u32]); 2], ids: usize) -> (String, u32) {
    let width = usize::BITS - ids.leading_zeros();
    let mut bits = Bits::default();
    let numbers = |(table, numbers): (&Table, &[u32]), row: u32| -> Vec<u32> {
        let list = table.hops.get(row & (table.rows() - 1)).iter();
        list.map(|hop| numbers[usize::from(*hop)]).collect()
    };
    let [old, new] = lists;
    for row in 0..old.0.rows().max(new.0.rows()) {
        let [before, after] = [numbers(old, row), numbers(new, row)];
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
    /// Bits used in the last octet; 0 if it is full.
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
        self.push(u32::try_from(list.len()).expect("invariant: a list has at most 4 hops"), 3);
        list.iter().for_each(|number| self.push(*number, width));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_visible_among_unchanged_rows() {
        let light = |colour: [u8; 3]| {
            let linear = |octet: u8| ((f64::from(octet) / 255.0 + 0.055) / 1.055).powf(2.4);
            0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2])
        };
        let [same, others @ ..] = CHANGES.map(|(_, colour, _)| light(colour) + 0.05);
        others.into_iter().for_each(|other| assert!(same / other >= 3.0, "{}", same / other));
    }
}
