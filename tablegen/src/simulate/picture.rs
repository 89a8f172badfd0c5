//! Open connections of each backend over time, as an SVG picture.

use super::{Outcome, SAMPLES};
use crate::report::natural::natural;
use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
/// Backends that are drawn by name; the others are left out.
const DRAWN: usize = 20;

/// The picture; changes of tables are upright lines.
pub fn picture(outcome: &Outcome) -> String {
    let most = outcome.load.values().flatten().copied().max().unwrap_or(0).max(1);
    let x = |sample: f64| LEFT + sample / (SAMPLES - 1) as f64 * WIDTH;
    let y = |count: u32| 10.0 + HEIGHT * (1.0 - f64::from(count) / f64::from(most));
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1080 370\" role=\"img\" font-family=\"sans-serif\" \
         font-size=\"12\"><title>Open connections of each backend over time</title>\
         <rect width=\"1080\" height=\"370\" fill=\"#fff\"/>",
    );
    let tables = outcome.changes.len() + 1;
    for change in 1..tables {
        let at = x((SAMPLES * change) as f64 / tables as f64);
        let _ = write!(
            svg,
            "<path d=\"M{at:.1} 10V{:.1}\" stroke=\"#8c959f\" stroke-dasharray=\"4 4\"/>",
            HEIGHT + 10.0
        );
    }
    let _ =
        write!(svg, "<text x=\"8\" y=\"20\">{most}</text><text x=\"8\" y=\"{:.0}\">0</text>", HEIGHT + 10.0);
    let mut loads: Vec<_> = outcome.load.iter().collect();
    loads.sort_by(|(a, _), (b, _)| natural(a, b));
    for (at, (id, load)) in loads.into_iter().take(DRAWN).enumerate() {
        let colour = format!("hsl({:.0} 65% 42%)", at as f64 * 137.508 % 360.0);
        let points: Vec<String> = load
            .iter()
            .enumerate()
            .map(|(sample, count)| format!("{:.1},{:.1}", x(sample as f64), y(*count)))
            .collect();
        let safe: String = id.chars().filter(|letter| !matches!(letter, '<' | '>' | '&')).collect();
        let line = 20 + at * 17;
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>\
             <text x=\"935\" y=\"{line}\" fill=\"{colour}\">{safe}</text>",
            points.join(" ")
        );
    }
    svg + "</svg>\n"
}
