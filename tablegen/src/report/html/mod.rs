//! A diff as one page: no network, no script but for the read-out of single rows, light and dark, printable.
//!
//! Large changes are summed up, so that the page stays below 1.5 MB and opens at once: pictures show blocks of rows,
//! tables the backends that change most, and single rows can be read while they fit.

mod flow;
mod pixels;
mod png;
mod sections;

use super::number::{counted, either, grouped, percent};
use super::{Report, remarks};
use crate::diff::{Mapping, TableDiff, Verdict, Version};
use common::table::{ForwardingTable, Table};
use common::text::Printable;
use std::fmt::Write as _;

/// Octets of base64 that the lists of single rows may take on a page.
const ROW_DATA: usize = 1_000_000;
/// Tables that are shown with pictures.
const PICTURED: usize = 2;

/// The page; `old` and `new` are the files that the report is about.
pub fn page(report: &Report<'_>, old: &ForwardingTable, new: &ForwardingTable) -> String {
    let mut page = String::with_capacity(1 << 20);
    let title = format!("{} → {}", report.diff.old.digest.short(), report.diff.new.digest.short());
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <link rel=\"icon\" href=\"data:,\"><title>Table change {title}: {}</title><style>{}</style></head><body><main>",
        report.verdict,
        include_str!("style.css")
    );
    verdict(&mut page, report);
    let (changed, same): (Vec<&TableDiff>, Vec<&TableDiff>) =
        report.diff.tables.iter().partition(|table| is_changed(table));
    let mut room = Room { tables: PICTURED, row_data: ROW_DATA };
    for table in changed {
        section(&mut page, table, old.table(&table.name), new.table(&table.name), &mut room);
    }
    if !same.is_empty() {
        let names: Vec<String> = same.iter().map(|table| escape(&table.name)).collect();
        let _ = write!(page, "<h2>Unchanged tables</h2><p>{}</p>", super::some_of(&names, 40));
    }
    certificate(&mut page, report);
    let _ = writeln!(page, "</main><script>{}</script></body></html>", include_str!("hover.js"));
    page
}

/// What large changes leave out.
struct Room {
    tables: usize,
    row_data: usize,
}

fn is_changed(table: &TableDiff) -> bool {
    table.rows.changed > 0 || !table.config.is_empty() || table.present != [true, true]
}

fn verdict(page: &mut String, report: &Report<'_>) {
    let diff = report.diff;
    let words = match report.verdict {
        Verdict::Safe => "Safe".to_owned(),
        Verdict::AtRisk(_) => report.verdict.to_string(),
        Verdict::OverLimit => "Over limit".to_owned(),
    };
    let _ = write!(
        page,
        "<h1>Forwarding table change</h1><div class=\"verdict {}\"><strong>{words}</strong>",
        report.verdict.name()
    );
    let moved = percent(diff.moved() as f64, diff.total() as f64);
    let get = either(diff.moved(), "gets", "get");
    let _ = match report.verdict {
        Verdict::Safe => write!(
            page,
            "<p>{} of {} rows ({moved}) {get} another owner; every backend that may hold their connections is still a hop.</p>",
            grouped(diff.moved()),
            grouped(diff.total())
        ),
        _ => write!(
            page,
            "<p>{} may lose connections; {} {get} another owner.</p>",
            counted(diff.at_risk(), "row"),
            grouped(diff.moved())
        ),
    };
    for excess in report.excesses {
        let _ = write!(
            page,
            "<p><code>{}</code> table {}: {}</p>",
            excess.limit,
            escape(&excess.table),
            escape(&excess.text)
        );
    }
    page.push_str("</div><div class=\"scroll\"><table class=\"versions\"><tbody>");
    for (name, version) in [("before", &diff.old), ("after", &diff.new)] {
        version_line(page, name, version);
    }
    page.push_str("</tbody></table></div>");
    for remark in remarks(diff) {
        let _ = write!(page, "<p>Note: {}.</p>", escape(&remark));
    }
}

fn version_line(page: &mut String, name: &str, version: &Version) {
    let parent = version.parent.map_or_else(|| "none".to_owned(), |parent| parent.short());
    let _ = write!(
        page,
        "<tr><th scope=\"row\">{name}</th><td class=\"mono\">{}</td><td>generation {}</td><td>parent <span class=\"mono\">{parent}</span></td></tr>",
        version.digest.short(),
        version.generation
    );
}

fn section(page: &mut String, table: &TableDiff, old: Option<&Table>, new: Option<&Table>, room: &mut Room) {
    let _ = write!(page, "<section data-rows><h2>Table {}</h2>", escape(&table.name));
    sections::tiles(page, table);
    sections::config(page, table);
    sections::risks(page, table);
    if let (Some(new), true) = (new, room.tables > 0) {
        room.tables -= 1;
        let mapping = Mapping::new(old, Some(new));
        pictures(page, table, new, &mapping);
        readout(page, table, old, new, &mapping, room);
    }
    if let Some(picture) = flow::picture(table) {
        let _ = write!(page, "<h3>Who gives rows to whom</h3><figure class=\"scroll\">{picture}</figure>");
    }
    sections::backends(page, table);
    sections::shapes(page, table);
    sections::failures(page, table);
    page.push_str("</section>");
}

fn pictures(page: &mut String, table: &TableDiff, new: &Table, mapping: &Mapping) {
    let step = pixels::rows_a_pixel(table.rows.each.len());
    let scale = if step == 1 { "one pixel a row".to_owned() } else { format!("one pixel for {step} rows") };
    let _ = write!(
        page,
        "<h3>All rows</h3><div class=\"pictures\"><figure><img class=\"rows\" width=\"512\" height=\"512\" alt=\"Rows by what changed\" \
         src=\"{}\"><figcaption>By change, {scale}</figcaption>{}</figure>\
         <figure><img class=\"rows\" width=\"512\" height=\"512\" alt=\"Rows by owner\" src=\"{}\">\
         <figcaption>By owner after the change</figcaption>{}</figure></div>",
        pixels::changes(table),
        pixels::legend(table),
        pixels::owners(new, &mapping.numbers[1]),
        sections::owner_legend(table)
    );
}

/// The lists of single rows, while there is room for them.
fn readout(
    page: &mut String,
    table: &TableDiff,
    old: Option<&Table>,
    new: &Table,
    mapping: &Mapping,
    room: &mut Room,
) {
    let fits = table.rows.each.len() == png::SIDE * png::SIDE;
    let Some(old) = old.filter(|_| fits) else { return };
    let (packed, width) =
        pixels::packed([(old, &mapping.numbers[0]), (new, &mapping.numbers[1])], mapping.ids.len());
    let Some(left) = room.row_data.checked_sub(packed.len()) else { return };
    room.row_data = left;
    let data =
        serde_json::json!({"rows": table.rows.total, "width": width, "ids": mapping.ids, "packed": packed});
    let _ = write!(
        page,
        "<div class=\"readout\" hidden><label>Row <input type=\"number\" min=\"0\" max=\"{}\" value=\"\"></label> \
         <span class=\"muted\">type a number, or point at a picture</span><br><output class=\"mono\" style=\"white-space:pre-line\"></output></div>\
         <script type=\"application/json\">{}</script>",
        table.rows.total.saturating_sub(1),
        data.to_string().replace('<', "\\u003c")
    );
}

fn certificate(page: &mut String, report: &Report<'_>) {
    let Some(certificate) = report.certificate else { return };
    page.push_str("<h2>Certificate</h2><p>Every row was computed again by an independent path, and is the same.</p><pre class=\"mono scroll\">");
    page.push_str(&escape(&format!("{certificate:#}")));
    page.push_str("</pre>");
}

/// Text for HTML, in content and in quoted attributes. Characters that a browser would not show, or by which it would
/// turn the direction of a line, are written as their numbers.
pub(crate) fn escape(text: &str) -> String {
    Printable(text)
        .to_string()
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}
