//! The comparison as a page to play with: three methods side by side on the same keys.

use super::methods::Member;
use super::toy::{KEYS, NODES};
use super::{HEADINGS, Outcome};
use crate::report::html::escape;
use crate::report::number::grouped;
use serde_json::json;

/// Keys that the page shows at most; each is a chip.
pub const MOST_KEYS: u32 = 2_000;

/// The page: on these nodes with the real hash, or, without any, as the teaching demo. `all` is what is told below, by
/// [`all_methods`].
pub fn page(members: &[Member], keys: u32, all: &str) -> String {
    let nodes = members.iter().map(|one| json!({"id": one.id, "weight": one.weight}));
    let toys = NODES.iter().map(|(id, token)| json!({"id": id, "token": token}));
    let data = json!({
        "toy": members.is_empty(),
        "toyNodes": toys.collect::<Vec<_>>(),
        "toyKeys": [KEYS.start, KEYS.end],
        "nodes": nodes.collect::<Vec<_>>(),
        "keys": keys.min(MOST_KEYS),
    });
    include_str!("page.html")
        .replace("/*STYLE*/", include_str!("page.css"))
        .replace("/*SCRIPT*/", include_str!("page.js"))
        .replace("/*DATA*/", &data.to_string().replace('<', "\\u003c"))
        // Last, and after its data: ids are free text, and no place to put anything.
        .replace("<!--ALL-->", all)
}

/// All methods in one table.
pub fn all_methods(change: &str, keys: usize, outcomes: &[Outcome]) -> String {
    let change = escape(change);
    let mut table = format!(
        "<section class=\"all\"><h2>All methods: {change}</h2><p class=\"muted\">{} keys by the real hash. Nanoseconds \
         a look-up were measured when this page was made, octets are what a look-up needs.</p>\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All methods\"><table><thead><tr>",
        grouped(keys as u64)
    );
    HEADINGS.iter().for_each(|heading| table += &format!("<th scope=\"col\">{}</th>", words(heading)));
    table += "</tr></thead><tbody>";
    for one in outcomes {
        let cells = one.cells();
        let (first, rest) = cells.split_first().unwrap_or((&one.method, &[]));
        table += &format!("<tr><th scope=\"row\">{first}</th>");
        rest.iter().for_each(|cell| table += &format!("<td>{}</td>", escape(cell)));
        table += "</tr>";
    }
    table + "</tbody></table></div></section>"
}

/// A heading where there is room.
fn words(heading: &str) -> &str {
    match heading {
        "" => "method",
        "least" => "least keys",
        "most" => "most keys",
        other => other,
    }
}
