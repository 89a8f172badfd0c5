//! Text in columns.

use common::text::PrintableLine;
use std::fmt;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// Lines of cells, displayed in aligned columns. Widths count characters, not octets.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    indent: usize,
    align: Vec<Align>,
    lines: Vec<Vec<String>>,
}

impl Columns {
    /// No lines. Columns beyond those in `align` are aligned left.
    pub(crate) fn new(indent: usize, align: &[Align]) -> Self {
        Self { indent, align: align.to_vec(), lines: Vec::new() }
    }

    /// Adds a line. Hidden characters in cells are escaped.
    pub(crate) fn push<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let shown = |cell: S| PrintableLine(cell.into()).to_string();
        self.lines.push(cells.into_iter().map(shown).collect());
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.lines.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..count).map(width).collect();
        for line in &self.lines {
            let mut text = " ".repeat(self.indent);
            for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                match self.align.get(column).unwrap_or(&Align::Left) {
                    Align::Left => text += &format!("{cell:<width$}  "),
                    Align::Right => text += &format!("{cell:>width$}  "),
                }
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_under_each_other() {
        let mut columns = Columns::new(2, &[Align::Left, Align::Right]);
        columns.push(["a", "1,000", "x"]);
        columns.push(["bé", "7"]);
        assert_eq!(columns.to_string(), "  a   1,000  x\n  bé      7\n");
    }
}
