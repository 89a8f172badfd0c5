//! The parts of a table's section that are words and numbers.

use super::pixels::{colour, hex};
use super::{escape, grouped};
use crate::diff::{BackendDiff, Failed, Failure, Shape, TableDiff, USUAL_MTU};
use crate::report::natural::natural;
use crate::report::number::{counted, percent, signed};
use crate::report::{ChangeGroup, text};
use std::fmt::Write as _;

/// Lines of a table that are shown; the rest is summed up.
const LISTED: usize = 40;

pub(super) fn tiles(page: &mut String, table: &TableDiff) {
    let rows = &table.rows;
    let tile = |part: u32, words: &str| {
        let share = percent(part.into(), rows.total.into());
        format!("<li><b>{}</b><span>{words}, {share}</span></li>", grouped(part))
    };
    let _ = write!(
        page,
        "<ul class=\"tiles\"><li><b>{}</b><span>rows</span></li>{}{}{}{}{}</ul>",
        grouped(rows.total),
        tile(rows.changed, "changed"),
        tile(rows.moved, "change owner"),
        tile(rows.unnecessary, "for no reason"),
        if rows.by_max_share > 0 { tile(rows.by_max_share, "by max_share") } else { String::new() },
        tile(rows.at_risk, "at risk")
    );
}

pub(super) fn config(page: &mut String, table: &TableDiff) {
    let groups = ChangeGroup::of(&table.config);
    page.push_str("<h3>Configuration</h3>");
    if groups.is_empty() {
        page.push_str("<p>Unchanged.</p>");
        return;
    }
    page.push_str("<div class=\"scroll\"><table><thead><tr><th>what</th><th>key</th><th>before</th><th>after</th></tr></thead><tbody>");
    for group in groups.iter().take(LISTED) {
        let cell = |value: &Option<String>, tag: &str, class: &str| match value {
            Some(value) => format!("<{tag} class=\"{class}\">{}</{tag}>", escape(value)),
            None => "–".to_owned(),
        };
        let what = if group.ids.is_empty() { "table".to_owned() } else { group.subject() };
        let _ = write!(
            page,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&what),
            group.key,
            cell(&group.old, "del", "del"),
            cell(&group.new, "ins", "ins")
        );
    }
    page.push_str("</tbody></table></div>");
    more(page, groups.len());
}

fn more(page: &mut String, all: usize) {
    if let Some(rest) = all.checked_sub(LISTED).filter(|rest| *rest > 0) {
        let _ = write!(page, "<p class=\"muted\">and {} more</p>", grouped(rest as u64));
    }
}

pub(super) fn risks(page: &mut String, table: &TableDiff) {
    let risks = text::risks(table);
    if risks.is_empty() {
        return;
    }
    page.push_str("<h3>At risk</h3><ul>");
    risks.iter().take(LISTED).for_each(|risk| {
        let _ = write!(page, "<li>{}</li>", escape(risk));
    });
    page.push_str("</ul>");
    more(page, risks.len());
}

/// Backends with their colours, as far as they are few enough to be told apart.
pub(super) fn owner_legend(table: &TableDiff) -> String {
    let mut legend = String::from("<ul class=\"legend\">");
    let mut owners: Vec<_> = (0u32..).zip(&table.backends).filter(|(_, one)| one.rows[1] > 0).collect();
    owners.sort_by(|(_, a), (_, b)| natural(&a.id, &b.id));
    for (number, backend) in owners.iter().take(16) {
        let _ = write!(
            legend,
            "<li><i style=\"background:{}\"></i>{}</li>",
            hex(colour(number % 255)),
            escape(&backend.id)
        );
    }
    if owners.len() > 16 {
        let _ = write!(legend, "<li class=\"muted\">and {} more</li>", grouped((owners.len() - 16) as u64));
    }
    legend + "</ul>"
}

pub(super) fn backends(page: &mut String, table: &TableDiff) {
    let listed = text::most_changed(table, LISTED);
    let most =
        listed.iter().map(|one| f64::from(one.rows[0].max(one.rows[1])).max(one.fair[1])).fold(1.0, f64::max);
    let which = if listed.len() < table.backends.len() { ": those that change most" } else { "" };
    let _ = write!(
        page,
        "<h3>Backends{which}</h3><p class=\"muted\">Bars: before (grey), after (blue); the upright mark is the fair share by weight.</p>\
         <div class=\"scroll\"><table><thead><tr><th>backend</th><th>state</th><th class=\"n\">before</th><th class=\"n\">after</th>\
         <th class=\"n\">change</th><th>rows</th><th class=\"n\">share</th><th class=\"n\">of fair</th><th class=\"why\">gained from, lost to</th></tr></thead><tbody>"
    );
    for backend in listed {
        let load = if backend.fair[1] > 0.0 {
            format!("{:.3} ×", f64::from(backend.rows[1]) / backend.fair[1])
        } else {
            "–".to_owned()
        };
        let _ = write!(
            page,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{load}</td><td>{}</td></tr>",
            escape(&backend.id),
            condition(backend),
            grouped(backend.rows[0]),
            grouped(backend.rows[1]),
            signed(backend.rows[0], backend.rows[1]),
            bar(backend, most),
            percent(backend.rows[1].into(), table.rows.total.into()),
            escape(&text::flows(backend, table))
        );
    }
    page.push_str("</tbody></table></div>");
    more(page, table.backends.len());
}

fn condition(backend: &BackendDiff) -> String {
    let words = |one: &Option<String>| one.clone().unwrap_or_else(|| "not there".to_owned());
    let [before, after] = [words(&backend.condition[0]), words(&backend.condition[1])];
    if before == after {
        escape(&after)
    } else {
        format!("<del class=\"del\">{}</del> <ins class=\"ins\">{}</ins>", escape(&before), escape(&after))
    }
}

fn bar(backend: &BackendDiff, most: f64) -> String {
    let x = |rows: f64| rows / most * 250.0;
    let [before, after] = backend.rows.map(|rows| x(rows.into()));
    let fair = x(backend.fair[1]);
    let mark = if fair > 0.0 {
        format!("<line class=\"fair\" x1=\"{fair:.1}\" x2=\"{fair:.1}\" y1=\"0\" y2=\"20\"/>")
    } else {
        String::new()
    };
    format!(
        "<svg class=\"bar\" viewBox=\"0 0 256 20\" aria-hidden=\"true\"><rect class=\"before\" y=\"2\" width=\"{before:.1}\" height=\"7\"/>\
         <rect class=\"after\" y=\"11\" width=\"{after:.1}\" height=\"7\"/>{mark}</svg>"
    )
}

pub(super) fn shapes(page: &mut String, table: &TableDiff) {
    let [old, new] = &table.shape;
    page.push_str("<h3>Hop lists, octets, balance</h3><div class=\"scroll\"><table><thead><tr><th></th><th class=\"n\">before</th><th class=\"n\">after</th></tr></thead><tbody>");
    let mut line = |words: &str, of: &dyn Fn(&Shape) -> String| {
        let _ = write!(
            page,
            "<tr><th scope=\"row\">{words}</th><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(&of(old)),
            escape(&of(new))
        );
    };
    for hops in 0..5 {
        let rows = |shape: &Shape| shape.hop_lengths.get(hops).copied().unwrap_or(0);
        if rows(old) > 0 || rows(new) > 0 {
            line(&format!("rows with {}", counted(hops, "hop")), &|shape| grouped(rows(shape)));
        }
    }
    line("octets added to a packet, in most rows", &|shape| shape.overhead.0.to_string());
    line("octets added to a packet, at most", &|shape| shape.overhead.1.to_string());
    line(&format!("left of an MTU of {USUAL_MTU}"), &|shape| {
        USUAL_MTU.saturating_sub(shape.overhead.1).to_string()
    });
    let load = |one: Option<(f64, u32)>| {
        one.map_or_else(|| "–".to_owned(), |(load, id)| format!("{} {load:.3} ×", table.id(id)))
    };
    line("fullest, over its fair share", &|shape| load(shape.fullest));
    line("emptiest, over its fair share", &|shape| load(shape.emptiest));
    page.push_str("</tbody></table></div>");
}

pub(super) fn failures(page: &mut String, table: &TableDiff) {
    let zone = |one: &&Failure| matches!(one.failed, Failed::Zone(_));
    let load = |one: &Failure| one.worst.map_or(f64::INFINITY, |(_, _, load)| load);
    let mut all: Vec<&Failure> = table.failures.iter().collect();
    all.sort_by(|a, b| zone(b).cmp(&zone(a)).then(load(b).total_cmp(&load(a))));
    if all.is_empty() {
        return;
    }
    page.push_str(
        "<h3>If one fails next</h3><p class=\"muted\">Its rows go to the next in their ranking; the worst hit survivor, over its fair share while all serve.</p>\
         <div class=\"scroll\"><table><thead><tr><th>fails</th><th class=\"n\">rows</th><th class=\"n\">heirs</th><th>worst hit</th><th class=\"n\">owns then</th><th class=\"n\">load</th></tr></thead><tbody>",
    );
    for one in all.iter().take(LISTED) {
        let name = match &one.failed {
            Failed::Backend(id) => escape(table.id(*id)),
            Failed::Zone(zone) => format!("zone {}", escape(zone)),
        };
        let _ = write!(
            page,
            "<tr><th scope=\"row\">{name}</th><td class=\"n\">{}</td><td class=\"n\">{}</td>",
            grouped(one.rows),
            grouped(one.heirs)
        );
        let _ = match one.worst {
            Some((id, rows, load)) => write!(
                page,
                "<td>{}</td><td class=\"n\">{}</td><td class=\"n\">{load:.3} ×</td></tr>",
                escape(table.id(id)),
                grouped(rows)
            ),
            None => write!(page, "<td>nobody is left</td><td></td><td></td></tr>"),
        };
    }
    page.push_str("</tbody></table></div>");
    more(page, all.len());
}
