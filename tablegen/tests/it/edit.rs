//! Changes of a configuration file: what is touched, what is not, and what is refused.

use common::backend::State;
use std::path::Path;
use tablegen::config::Config;
use tablegen::edit::step::Request;
use tablegen::edit::{Action, EditError, Layout, apply, rewrite};
use tablegen::generate::{History, generate};
use tablegen::review::verdict::Stated;

const TEXT: &str = "\
# The shop.
version: 1
tables:
  - name: web        # behind the shop
    seed: 000102030405060708090a0b0c0d0e0f
    hash_key: f0e0d0c0b0a090807060504030201000
    binds: [{ address: 203.0.113.10, protocol: tcp, port: 443 }]
    backends:
      - { id: web-1, address: 10.0.0.11 }   # rack 1
      - {id: 'web-2', address: 10.0.0.12, state: \"active\"}
      # A comment between.
      - id: web-3     # the old one
        address: 10.0.0.13

        state: active # for now
      - address: 10.0.0.14
        id: web-4
";

fn edited(backend: &str, action: Action) -> String {
    apply(TEXT, Path::new("shop.yaml"), None, backend, action).unwrap()
}

fn replaced(old: &str, new: &str) -> String {
    assert_eq!(TEXT.matches(old).count(), 1, "{old}");
    TEXT.replace(old, new)
}

#[test]
fn a_value_that_is_there_is_replaced_and_one_that_is_not_is_added() {
    assert_eq!(edited("web-1", Action::Drain), replaced("id: web-1,", "id: web-1, state: draining,"));
    assert_eq!(edited("web-2", Action::Drain), replaced("\"active\"", "draining"));
    assert_eq!(edited("web-3", Action::Drain), replaced("state: active #", "state: draining #"));
    assert_eq!(
        edited("web-4", Action::Drain),
        replaced("id: web-4\n", "id: web-4\n        state: draining\n")
    );
    assert_eq!(edited("web-3", Action::Activate), TEXT);
    assert_eq!(
        edited("web-2", Action::Fill(25)),
        replaced(
            "id: 'web-2', address: 10.0.0.12, state: \"active\"",
            "id: 'web-2', fill: 25, address: 10.0.0.12, state: filling"
        )
    );
}

#[test]
fn a_backend_is_removed_with_its_lines_and_nothing_else() {
    assert_eq!(
        edited("web-1", Action::Remove),
        replaced("      - { id: web-1, address: 10.0.0.11 }   # rack 1\n", "")
    );
    assert_eq!(
        edited("web-4", Action::Remove),
        replaced("      - address: 10.0.0.14\n        id: web-4\n", "")
    );
}

#[test]
fn a_layout_that_is_too_unusual_is_left_to_a_person() {
    let flow = TEXT.replace(
        "    backends:\n",
        "    backends: [{ id: a, address: 10.0.0.9 }, { id: b, address: 10.0.0.8 }]\n",
    );
    let flow = flow.lines().take(8).map(|line| format!("{line}\n")).collect::<String>();
    let file = Path::new("flow.yaml");
    assert!(matches!(apply(&flow, file, None, "a", Action::Remove), Err(EditError::Layout(_))));
    assert!(
        apply(&flow, file, None, "a", Action::Drain).unwrap().contains("{ id: a, state: draining, address")
    );
    assert!(matches!(apply(TEXT, file, None, "web-9", Action::Drain), Err(EditError::Unknown(_))));
    assert!(matches!(apply(TEXT, file, Some("api"), "web-1", Action::Drain), Err(EditError::Unknown(_))));
}

#[test]
fn every_edit_of_the_example_means_what_was_asked() {
    for backend in ["web-1", "web-2", "web-3", "web-4"] {
        let config = Config::parse(&edited(backend, Action::Fill(7)), Path::new("shop.yaml")).unwrap();
        let one = config.tables[0].backends.iter().find(|one| one.id == backend).unwrap();
        assert_eq!((one.state, one.fill), (State::Filling, 7));
    }
}

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn unsafe_steps_are_refused_and_the_safe_part_is_named() {
    let file = Path::new("shop.yaml");
    let config = Config::parse(TEXT, file).unwrap();
    let current = generate(&config.tables, History::None).unwrap().table;
    let stated = &Stated::default();
    let request = |text, current, action| Request { file, text, current, table: None, action, stated };

    let drain = request(TEXT, &current, Action::Drain);
    let all = ids(&["web-1", "web-2", "web-3", "web-4"]);
    assert!(drain.step(&all[..1]).unwrap().refusals().is_empty());
    assert!(drain.step(&all).unwrap().refusals()[0].contains("fail-open is in force"));
    assert_eq!(drain.safe_part(&all), &all[..1], "two of four would leave the others twice their rows");

    let remove = request(TEXT, &current, Action::Remove);
    assert!(remove.step(&all[..1]).unwrap().refusals()[1].contains("drain it first"));
    assert!(remove.safe_part(&all).is_empty());

    let drained = drain.step(&all[..1]).unwrap();
    let next = generate(&Config::parse(&drained.text, file).unwrap().tables, History::Parent(&current))
        .unwrap()
        .table;
    assert!(request(&drained.text, &next, Action::Remove).step(&all[..1]).unwrap().refusals().is_empty());
}

/// With lists of two hops, a row has room for one owner in flight: a second drain while the first lasts is too much.
#[test]
fn more_owners_in_flight_than_hops_are_refused() {
    let file = Path::new("shop.yaml");
    let text = TEXT.replace("    seed:", "    max_hops: 2\n    seed:");
    let build =
        |text: &str, history| generate(&Config::parse(text, file).unwrap().tables, history).unwrap().table;
    let first = build(&text, History::None);
    let one = apply(&text, file, None, "web-1", Action::Drain).unwrap();
    let second = build(&one, History::Parent(&first));
    let request = Request {
        file,
        text: &one,
        current: &second,
        table: None,
        action: Action::Drain,
        stated: &Stated::default(),
    };
    let step = request.step(&ids(&["web-2"])).unwrap();
    assert!(
        step.refusals().iter().any(|refusal| refusal.contains("is no longer a hop there")),
        "{:?}",
        step.refusals()
    );
}

/// A list that two tables share can only be written anew for one of them, and only where that was asked for.
#[test]
fn an_alias_gives_way_to_a_list() {
    let text = TEXT.replace("    backends:\n", "    backends: &all\n")
        + "  - name: api\n    seed: 000102030405060708090a0b0c0d0e0f\n    hash_key: { file: it.key }\n    \
           backends: *all # as above\n    binds: [{ address: 203.0.113.11, protocol: tcp, port: 443 }]\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.yaml");
    std::fs::write(folder.path().join("it.key"), "f0e0d0c0b0a090807060504030201000").unwrap();
    let mut wanted = Config::parse(&text, &file).unwrap().tables;
    wanted[1].backends[2].state = State::Draining;
    wanted[1].backends.remove(0);
    assert!(matches!(rewrite(&text, &file, &wanted, Layout::Kept), Err(EditError::Layout(_))));
    let edited = rewrite(&text, &file, &wanted, Layout::RewriteLists).unwrap();
    let list = "[\n      { id: web-2, address: 10.0.0.12 },\n      { id: web-3, address: 10.0.0.13, state: draining },\n      \
                { id: web-4, address: 10.0.0.14 }]";
    assert_eq!(edited, text.replace("*all", list));
}
