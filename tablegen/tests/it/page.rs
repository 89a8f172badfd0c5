//! The page of a diff: what it holds, that it stays small, and that it works in a browser.

use crate::browser::{Browser, document};
use crate::support::{backends, build, spec};
use crate::tables;
use common::backend::State;
use common::table::ForwardingTable;
use tablegen::config::TableSpec;
use tablegen::generate::History;
use tablegen::report::{Report, html};
use tablegen::review::diff::Diff;
use tablegen::review::verdict::{Judgement, Stated};

pub(crate) fn page(old: &ForwardingTable, new: &ForwardingTable) -> String {
    let diff = Diff::new(old, new);
    html::page(
        &Report { judgement: &Judgement::new(&diff, &Stated::default()), diff: &diff, certificate: None },
        old,
        new,
    )
}

pub(crate) fn drained() -> (ForwardingTable, ForwardingTable) {
    let mut all = backends(&["a<b>", "web-2", "web-3", "web-4"]);
    let old = build(&spec(all.clone()), History::None);
    all[1].state = State::Draining;
    let new = build(&spec(all), History::Parent(&old));
    (old, new)
}

/// A backend is cut while it serves, another is drained, and the rest is ranked anew.
pub(crate) fn risky() -> (ForwardingTable, ForwardingTable) {
    let mut all = backends(&["web-1", "web-2", "web-3", "web-4", "web-5"]);
    all[4].zone = Some("b".to_owned());
    let old = build(&spec(all.clone()), History::None);
    all.remove(0);
    all[0].state = State::Draining;
    all[1].weight = 2.0;
    let reseeded = TableSpec { seed: common::table::Seed([9; 16]), max_hops: 2, ..spec(all) };
    (old.clone(), build(&reseeded, History::Parent(&old)))
}

#[test]
fn the_page_is_one_file_with_the_verdict_first_and_no_secret() {
    let (old, new) = drained();
    let page = page(&old, &new);
    let text = page.split("</style>").nth(1).unwrap();
    assert!(text.find("<strong>Safe</strong>").unwrap() < text.find("<h2>").unwrap());
    assert!(!page.contains("a<b>") && page.contains("a&#60;b&#62;"));
    for outside in ["http://", "https://", "src=\"/", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(!page.contains("000102030405") && !page.contains("070707070707"));
}

#[test]
fn large_changes_stay_small_pages() {
    let thousand = |zone: &str| {
        let mut all = tables::backends(1_000);
        all.iter_mut().for_each(|one| one.zone = Some(zone.to_owned()));
        all
    };
    let old = build(&spec(thousand("a")), History::None);
    let reseeded = TableSpec { seed: common::table::Seed([9; 16]), ..spec(thousand("b")) };
    let new = build(&reseeded, History::Parent(&old));
    let page = page(&old, &new);
    assert!(page.len() < 1_500_000, "{}", page.len());
    assert!(page.contains("and 960 more"));
    opens("1,000 backends, all rows moved", &page);
}

/// In what people read `web-2` comes before `web-10`; in the table ids are in order of octets.
#[test]
fn people_find_names_where_they_look() {
    let ids: Vec<String> = (1..=12).map(|at| format!("web-{at}")).collect();
    let mut all = backends(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    let old = build(&spec(all.clone()), History::None);
    all.iter_mut()
        .filter(|one| ["web-2", "web-10"].contains(&one.id.as_str()))
        .for_each(|one| one.weight = 2.0);
    let new = build(&spec(all), History::Parent(&old));
    let diff = Diff::new(&old, &new);
    let judgement = Judgement::new(&diff, &Stated::default());
    let report = Report { judgement: &judgement, diff: &diff, certificate: None };
    let (text, page) = (report.to_string(), html::page(&report, &old, &new));
    assert!(text.contains("web-2, web-10  weight: 1 → 2"), "{text}");
    let lines = text.split("× fair  gained").nth(1).unwrap().lines().skip(1).take(12);
    let listed: Vec<&str> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(listed, ids);
    let table = page.split("<h3>Backends</h3>").nth(1).unwrap();
    assert!(table.find(">web-2<").unwrap() < table.find(">web-10<").unwrap());
    assert!(new.tables()[0].backends.is_sorted_by(|a, b| a.id < b.id));
}

/// Opens a page and says how long that took; a machine at other work is no reason to fail.
fn opens(what: &str, page: &str) {
    let Some(mut browser) = Browser::start() else { return };
    browser.open(page);
    let loaded = browser.value(
        "new Promise((done) => setTimeout(() => done(performance.getEntriesByType('navigation')[0].loadEventEnd), 0))",
    );
    println!("{what}: {} octets, opened in {loaded} ms", page.len());
    assert!(browser.value("document.body.innerText").as_str().unwrap().contains("If one fails next"));
    browser.is_silent();
}

/// What is too large to be shown row by row is summed up, and is there at once.
///
/// `cargo test --release -p tablegen --test it -- --ignored --nocapture the_largest_changes`
#[test]
#[ignore = "builds tables of a million rows"]
fn the_largest_changes_open_at_once() {
    for (rows, backends) in [(1 << 16, 10_000), (1 << 20, 100), (1 << 20, 10_000)] {
        let mut all = tables::backends(backends);
        all.iter_mut()
            .zip(["a", "b", "c"].iter().cycle())
            .for_each(|(one, zone)| one.zone = Some((*zone).to_owned()));
        let wide = |backends| TableSpec { rows, ..spec(backends) };
        let old = build(&wide(all.clone()), History::None);
        all.iter_mut().step_by(50).for_each(|one| one.state = State::Draining);
        let new = build(&wide(all), History::Parent(&old));
        let started = std::time::Instant::now();
        let page = page(&old, &new);
        println!("{rows} rows, {backends} backends: diff and page in {:.2?}", started.elapsed());
        assert!(page.len() <= 1_500_000, "{}", page.len());
        opens("that page", &page);
    }
}

#[test]
fn a_browser_shows_a_row_without_complaint() {
    let (old, new) = drained();
    let table = &new.tables()[0];
    let row = (0..table.rows()).find(|row| table.hops.get(*row).get(1) == Some(&1)).unwrap();
    let script = format!(
        "const input = document.querySelector('input'); input.value = {row}; input.dispatchEvent(new Event('input'));"
    );
    let Some(document) = document(&page(&old, &new), &script) else { return };
    let ids = |table: &common::table::Table| {
        let ids = crate::support::ids(table, table.hops.get(row)).join(" → ");
        ids.replace('<', "&lt;").replace('>', "&gt;")
    };
    let expected = format!("before: {}\nafter: {}", ids(&old.tables()[0]), ids(table));
    assert!(
        document.contains(&expected),
        "{expected}\n{}",
        document.split("<output").nth(1).unwrap_or_default().get(..300).unwrap_or_default()
    );
}
