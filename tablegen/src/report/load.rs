//! A picture of the open connections of each backend over time, as SVG.

use crate::format::{natural, rendered};
use crate::review::simulate::{SAMPLES, SimulationOutcome};
use askama::Template;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 320.0;
const TOP: f64 = 10.0;
const LEFT: f64 = 60.0;
/// Backends that are drawn, in natural order of id. The others are left out.
const DRAWN: usize = 20;
/// Distance of two labels.
const LABEL: usize = 17;

#[derive(Template)]
#[template(path = "load.svg")]
struct LoadPicture<'a> {
    /// Greatest number of connections.
    most: u32,
    bottom: String,
    /// Positions of the changes of tables.
    changes: Vec<String>,
    lines: Vec<LoadLine<'a>>,
}

struct LoadLine<'a> {
    id: &'a str,
    colour: String,
    points: String,
    label_y: usize,
}

/// The picture. Vertical lines mark the changes of tables.
pub fn picture(outcome: &SimulationOutcome) -> String {
    let most = outcome.load.values().flatten().copied().max().unwrap_or(0).max(1);
    let tables = outcome.changes.len() + 1;
    let changes = (1..tables).map(|change| x((SAMPLES * change) as f64 / tables as f64));
    let mut loads: Vec<_> = outcome.load.iter().collect();
    loads.sort_by(|(a, _), (b, _)| natural(a, b));
    let lines = loads.into_iter().take(DRAWN).enumerate();
    let picture = LoadPicture {
        most,
        bottom: format!("{:.0}", TOP + HEIGHT),
        changes: changes.map(|x| format!("{x:.1}")).collect(),
        lines: lines.map(|(index, (id, load))| line(index, id, load, most)).collect(),
    };
    rendered(&picture) + "\n"
}

fn x(sample: f64) -> f64 {
    LEFT + sample / (SAMPLES - 1) as f64 * WIDTH
}

fn line<'a>(index: usize, id: &'a str, load: &[u32], most: u32) -> LoadLine<'a> {
    let y = |count: u32| TOP + HEIGHT * (1.0 - f64::from(count) / f64::from(most));
    let point = |(sample, count): (usize, &u32)| format!("{:.1},{:.1}", x(sample as f64), y(*count));
    LoadLine {
        id,
        colour: format!("hsl({:.0} 65% 42%)", index as f64 * 137.508 % 360.0),
        points: load.iter().enumerate().map(point).collect::<Vec<_>>().join(" "),
        label_y: 20 + index * LABEL,
    }
}
