//! The comparison as a page to play with: three methods side by side on the same keys.

use super::methods::Member;
use super::toy::{KEYS, NODES};
use serde_json::json;

/// Keys that the page shows at most; each is a chip.
pub const MOST_KEYS: u32 = 2_000;

/// The page: on these nodes with the real hash, or, without any, as the teaching demo.
pub fn page(members: &[Member], keys: u32) -> String {
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
        .replace("/*DATA*/", &data.to_string().replace('<', "\\u003c"))
        .replace("/*SCRIPT*/", include_str!("page.js"))
}
