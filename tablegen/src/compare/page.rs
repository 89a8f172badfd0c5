//! The comparison as an interactive page: three methods side by side on the same keys.

use super::methods::Member;
use super::toy::{KEYS, NODES};
use super::{HEADINGS, MethodOutcome};
use crate::format::number::grouped;
use crate::format::{rendered, script_json};
use askama::Template;
use serde_json::json;

/// Keys that the page shows at most; each is an element of the page.
pub const MOST_KEYS: u32 = 2_000;

#[derive(Template)]
#[template(path = "compare.html")]
struct ComparePage<'a> {
    style: &'static str,
    script: &'static str,
    data: String,
    change: &'a str,
    keys: String,
    headings: Vec<&'static str>,
    methods: Vec<(String, Vec<String>)>,
}

/// All methods on one change, for the table at the end of the page.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// The change, in words.
    pub change: &'a str,
    /// Number of keys.
    pub keys: usize,
    /// One entry for each method.
    pub outcomes: &'a [MethodOutcome],
}

/// The page for these nodes with the real hash or, without nodes, for the teaching example.
pub fn page(members: &[Member], keys: u32, comparison: Comparison<'_>) -> String {
    let nodes = members.iter().map(|member| json!({"id": member.id, "weight": member.weight}));
    let toys = NODES.iter().map(|(id, token)| json!({"id": id, "token": token}));
    let data = json!({
        "toy": members.is_empty(),
        "toyNodes": toys.collect::<Vec<_>>(),
        "toyKeys": [KEYS.start, KEYS.end],
        "nodes": nodes.collect::<Vec<_>>(),
        "keys": keys.min(MOST_KEYS),
    });
    let method = |outcome: &MethodOutcome| {
        let [method, cells @ ..] = outcome.cells();
        (method, cells.into())
    };
    let page = ComparePage {
        style: include_str!("../../templates/compare.css"),
        script: include_str!("../../templates/compare.js"),
        data: script_json(&data),
        change: comparison.change,
        keys: grouped(comparison.keys as u64),
        headings: HEADINGS.into_iter().map(long_heading).collect(),
        methods: comparison.outcomes.iter().map(method).collect(),
    };
    rendered(&page)
}

/// A column heading without the abbreviations of the terminal.
fn long_heading(heading: &'static str) -> &'static str {
    match heading {
        "" => "method",
        "least" => "least keys",
        "most" => "most keys",
        other => other,
    }
}
