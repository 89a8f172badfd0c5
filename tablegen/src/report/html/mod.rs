//! A change as one HTML page: it needs no network and no other file, has a light and a dark scheme, and can be printed.
//! Its only script shows the hop lists of single rows.
//!
//! Large changes are summarised, so that the page stays below 1.5 MB: a pixel stands for a block of rows, tables list
//! the backends that change most, and the lists of single rows are included only while they fit.
//!
//! The templates are in `templates/`. They escape every value, except where they say `safe`.

mod moves;
mod pixels;
mod png;
mod section;

use super::Report;
use crate::format::number::{counted, either, grouped, percent};
use crate::format::{listed, rendered, script_json};
use crate::review::diff::{Diff, TableDiff, Version};
use crate::review::remarks::remarks;
use crate::review::verdict::{Asked, Judgement, ReviewVerdict, Unsafe};
use askama::Template;
use common::table::ForwardingTable;
use section::Section;

/// Octets of base64 for the lists of single rows on a page.
const ROW_DATA: usize = 1_000_000;
/// Tables that are shown with pictures.
const PICTURED: usize = 2;
/// Unchanged tables that are listed.
const UNCHANGED: usize = 40;

#[derive(Template)]
#[template(path = "change.html")]
struct ChangePage<'a> {
    title: String,
    style: &'static str,
    script: &'static str,
    verdict: ReviewVerdict,
    heading: String,
    summary: String,
    reasons: &'a [Unsafe],
    conditions: &'a [Asked],
    forced: Option<&'a str>,
    versions: [(&'static str, &'a Version, String); 2],
    remarks: Vec<String>,
    sections: Vec<Section<'a>>,
    unchanged: String,
    certificate: Option<String>,
}

/// What a page has room for.
struct Room {
    /// Tables with pictures.
    tables: usize,
    /// Octets for the lists of single rows.
    row_data: usize,
}

/// The page. `old` and `new` are the files that the report is about.
pub fn page(report: &Report<'_>, old: &ForwardingTable, new: &ForwardingTable) -> String {
    let diff = report.diff;
    let (changed, same): (Vec<&TableDiff>, Vec<&TableDiff>) =
        diff.tables.iter().partition(|table| is_changed(table));
    let mut room = Room { tables: PICTURED, row_data: ROW_DATA };
    let section = |table: &'_ TableDiff| (old.table(&table.name), new.table(&table.name));
    let page = ChangePage {
        title: format!("{} → {}", diff.old.digest.short(), diff.new.digest.short()),
        style: include_str!("../../../templates/change.css"),
        script: include_str!("../../../templates/change.js"),
        verdict: report.judgement.verdict,
        heading: heading(report.judgement),
        summary: summary(diff),
        reasons: &report.judgement.reasons,
        conditions: &report.judgement.conditions,
        forced: report.judgement.forced.as_deref(),
        versions: [version("before", &diff.old), version("after", &diff.new)],
        remarks: remarks(diff),
        sections: changed
            .into_iter()
            .map(|table| {
                let (old, new) = section(table);
                Section::new(table, old, new, &mut room)
            })
            .collect(),
        unchanged: listed(&same.iter().map(|table| table.name.clone()).collect::<Vec<_>>(), UNCHANGED),
        certificate: report.certificate.map(|certificate| format!("{certificate:#}")),
    };
    rendered(&page)
}

fn is_changed(table: &TableDiff) -> bool {
    table.rows.changed > 0 || !table.config.is_empty() || table.present != [true, true]
}

fn heading(judgement: &Judgement) -> String {
    match judgement.verdict {
        ReviewVerdict::Safe => "Safe".to_owned(),
        ReviewVerdict::SafeIf => {
            format!("Safe if {} true", counted_conditions(judgement.open().count()))
        }
        ReviewVerdict::NotSafe => "Not safe".to_owned(),
    }
}

fn counted_conditions(count: usize) -> String {
    format!("{} {}", counted(count, "condition"), either(count, "is", "are"))
}

fn summary(diff: &Diff) -> String {
    let moved = percent(diff.moved() as f64, diff.total() as f64);
    let change = either(diff.moved(), "changes", "change");
    let [all, total] = [diff.moved(), diff.total()].map(grouped);
    match diff.at_risk() {
        0 => format!("{all} of {total} rows ({moved}) {change} owner; no row is at risk."),
        rows => format!(
            "{} may lose connections; {all} of {total} rows ({moved}) {change} owner.",
            counted(rows, "row")
        ),
    }
}

fn version<'a>(name: &'static str, version: &'a Version) -> (&'static str, &'a Version, String) {
    (name, version, version.parent.map_or_else(|| "none".to_owned(), |parent| parent.short()))
}
