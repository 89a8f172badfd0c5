//! A unified diff of two texts, line by line.
//!
//! Source: E. W. Myers, *An O(ND) difference algorithm and its variations*, Algorithmica 1986. The edits made here
//! change few lines of a file that may be long, which is what that algorithm is good at.

use std::fmt::Write as _;

/// Unchanged lines shown around a change.
const CONTEXT: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'t> {
    Kept(&'t str),
    Gone(&'t str),
    Come(&'t str),
}

/// The changes from `old` to `new`; empty if there are none.
pub fn unified(name: &str, old: &str, new: &str) -> String {
    let lines = compare(&old.lines().collect::<Vec<_>>(), &new.lines().collect::<Vec<_>>());
    let changed: Vec<usize> = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| !matches!(line, Line::Kept(_)))
        .map(|(at, _)| at)
        .collect();
    let mut text = String::new();
    for group in changed.chunk_by(|a, b| b - a <= 2 * CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let from = first.saturating_sub(CONTEXT);
        let to = lines.len().min(last + CONTEXT + 1);
        if text.is_empty() {
            let _ = writeln!(text, "--- {name}\n+++ {name}");
        }
        hunk(&mut text, &lines, from, to);
    }
    text
}

fn hunk(text: &mut String, lines: &[Line<'_>], from: usize, to: usize) {
    let (before, shown) = (lines.get(..from).unwrap_or_default(), lines.get(from..to).unwrap_or_default());
    let old = |lines: &[Line<'_>]| lines.iter().filter(|line| !matches!(line, Line::Come(_))).count();
    let new = |lines: &[Line<'_>]| lines.iter().filter(|line| !matches!(line, Line::Gone(_))).count();
    let _ = writeln!(text, "@@ -{},{} +{},{} @@", old(before) + 1, old(shown), new(before) + 1, new(shown));
    for line in shown {
        let _ = match line {
            Line::Kept(line) => writeln!(text, " {line}"),
            Line::Gone(line) => writeln!(text, "-{line}"),
            Line::Come(line) => writeln!(text, "+{line}"),
        };
    }
}

/// The shortest script: for each number of edits, how far each diagonal gets; then the way back.
fn compare<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<Line<'t>> {
    let most = old.len() + new.len();
    let offset = most + 1;
    let mut reach = vec![0usize; 2 * offset + 1];
    let mut trace = Vec::new();
    for edits in 0..=most {
        trace.push(reach[offset - edits - 1..=offset + edits + 1].to_vec());
        for diagonal in (offset - edits..=offset + edits).step_by(2) {
            let mut x = start(&reach, diagonal, offset, edits);
            let mut y = (x + offset).saturating_sub(diagonal);
            while x < old.len() && y < new.len() && old[x] == new[y] {
                (x, y) = (x + 1, y + 1);
            }
            reach[diagonal] = x;
            if x >= old.len() && y >= new.len() {
                return way_back(old, new, &trace);
            }
        }
    }
    Vec::new()
}

/// Where a diagonal starts after one more edit.
fn start(reach: &[usize], diagonal: usize, middle: usize, edits: usize) -> usize {
    if goes_down(reach, diagonal, middle, edits) { reach[diagonal + 1] } else { reach[diagonal - 1] + 1 }
}

/// Is a diagonal reached from its upper neighbour, by a line that comes, or from the lower one, by a line that goes?
fn goes_down(reach: &[usize], diagonal: usize, middle: usize, edits: usize) -> bool {
    diagonal == middle - edits || (diagonal != middle + edits && reach[diagonal - 1] < reach[diagonal + 1])
}

fn way_back<'t>(old: &[&'t str], new: &[&'t str], trace: &[Vec<usize>]) -> Vec<Line<'t>> {
    let (mut x, mut y) = (old.len(), new.len());
    let mut lines = Vec::new();
    for (edits, reach) in trace.iter().enumerate().rev() {
        // Only the diagonals that so many edits can reach were kept.
        let middle = edits + 1;
        let diagonal = x + middle - y;
        let down = goes_down(reach, diagonal, middle, edits);
        let before = if down { diagonal + 1 } else { diagonal - 1 };
        let (from_x, from_y) =
            if edits == 0 { (0, 0) } else { (reach[before], reach[before] + middle - before) };
        while x > from_x && y > from_y {
            (x, y) = (x - 1, y - 1);
            lines.push(Line::Kept(old[x]));
        }
        if edits > 0 && down {
            y -= 1;
            lines.push(Line::Come(new[y]));
        } else if edits > 0 {
            x -= 1;
            lines.push(Line::Gone(old[x]));
        }
    }
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_changed_line_is_shown_with_its_surroundings() {
        let old: String = (1..=20).map(|line| format!("line {line}\n")).collect();
        let new = old.replace("line 9\n", "line nine\n");
        let expected = "--- f\n+++ f\n@@ -6,7 +6,7 @@\n line 6\n line 7\n line 8\n-line 9\n+line nine\n line 10\n line 11\n line 12\n";
        assert_eq!(unified("f", &old, &new), expected);
        assert_eq!(unified("f", &old, &old), "");
    }

    proptest! {
        #[test]
        fn the_script_leads_from_one_to_the_other(
            old in prop::collection::vec("[abc]", 0..14),
            new in prop::collection::vec("[abc]", 0..14),
        ) {
            let [old, new] = [&old, &new].map(|all| all.iter().map(String::as_str).collect::<Vec<_>>());
            let script = compare(&old, &new);
            let side = |gone: bool| -> Vec<&str> {
                script.iter().filter_map(|line| match line {
                    Line::Kept(line) => Some(*line),
                    Line::Gone(line) => gone.then_some(*line),
                    Line::Come(line) => (!gone).then_some(*line),
                }).collect()
            };
            prop_assert_eq!(side(true), old);
            prop_assert_eq!(side(false), new);
        }
    }
}
