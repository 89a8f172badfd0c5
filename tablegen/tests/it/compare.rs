//! Known facts about ways to place keys, and the page against the command line.

use crate::browser::document;
use tablegen::compare::methods::{Member, Method};
use tablegen::compare::toy::{self, NODES, ToyMethod};
use tablegen::compare::{MethodOutcome, Scenario, numbered_keys, page};

/// A page without the table of all methods.
pub(crate) const NOTHING: page::Comparison<'_> = page::Comparison { change: "", keys: 0, outcomes: &[] };

fn members(count: usize) -> Vec<Member> {
    (0..count).map(|at| Member { id: format!("node-{at}"), weight: 1.0 }).collect()
}

fn join(count: usize, method: Method) -> MethodOutcome {
    let (before, after) = (members(count), members(count + 1));
    Scenario { before, after, keys: numbered_keys(50_000), rows: 65_536 }.outcome(&method)
}

fn leave(count: usize, gone: usize, method: Method, keys: u32) -> MethodOutcome {
    let before = members(count);
    let mut after = before.clone();
    after.remove(gone);
    Scenario { before, after, keys: numbered_keys(keys), rows: 65_536 }.outcome(&method)
}

fn share(part: u32, keys: u32) -> f64 {
    f64::from(part) / f64::from(keys)
}

#[test]
fn mod_n_moves_nearly_all_keys_on_a_join() {
    for count in [3, 10, 50] {
        let moved = share(join(count, Method::ModN).moved, 50_000);
        let expected = 1.0 - 1.0 / (count as f64 + 1.0);
        assert!((moved - expected).abs() < 0.01, "{count}: {moved} {expected}");
    }
}

#[test]
fn rendezvous_and_jump_move_what_they_must() {
    for method in [Method::Rendezvous, Method::Weighted, Method::Jump] {
        let outcome = join(10, method);
        assert_eq!(outcome.unnecessary, 0, "{method:?}");
        assert!((share(outcome.moved, 50_000) - 1.0 / 11.0).abs() < 0.01, "{method:?}");
    }
    for method in [Method::Rendezvous, Method::Weighted] {
        let outcome = leave(10, 3, method, 50_000);
        assert_eq!((outcome.unnecessary, outcome.heirs), (0, 9));
    }
    assert!(leave(10, 3, Method::Jump, 50_000).unnecessary > 0, "only the last may leave");
}

#[test]
fn a_ring_with_one_token_has_one_heir() {
    let outcome = leave(10, 3, Method::Ring(1), 50_000);
    assert_eq!((outcome.unnecessary, outcome.heirs), (0, 1));
    assert!(leave(10, 3, Method::Ring(128), 50_000).heirs == 9);
    assert!(join(10, Method::Ring(1)).busiest.1 > join(10, Method::Ring(128)).busiest.1);
}

/// One leaver of 100, over several leavers.
#[test]
fn maglev_moves_a_few_for_no_reason_and_more_with_fewer_slots() {
    for (slots, low, high) in [(65_537, 0.004, 0.008), (4_093, 0.018, 0.034)] {
        let keys = 50_000;
        let of = |gone| share(leave(100, gone, Method::Maglev(slots), keys).unnecessary, keys);
        let mean = [7, 23, 51, 88].map(of).iter().sum::<f64>() / 4.0;
        assert!((low..high).contains(&mean), "{slots}: {mean}");
    }
}

#[test]
fn a_weight_draws_keys_to_its_node_alone() {
    let before = members(5);
    let mut after = before.clone();
    after[2].weight = 3.0;
    let scenario = Scenario { before, after, keys: numbered_keys(50_000), rows: 65_536 };
    let outcome = scenario.outcome(&Method::Weighted);
    assert_eq!(outcome.unnecessary, 0);
    assert!((share(outcome.keys[2].1, 50_000) - 3.0 / 7.0).abs() < 0.01);
}

/// A tree shares evenly and by weight; what it moves beyond need is what its levels cost.
#[test]
fn a_skeleton_moves_more_than_must_and_less_than_once_more_for_each_level() {
    let tree = Method::Skeleton(16);
    // One level: a plain rendezvous.
    assert_eq!(join(10, tree).unnecessary, 0);
    assert_eq!(join(10, tree).keys, join(10, Method::Weighted).keys);
    // 100 nodes stand on two levels, and 300 on three.
    for (nodes, levels) in [(100, 2.0), (300, 3.0)] {
        for outcome in [join(nodes, tree), leave(nodes, 41, tree, 50_000)] {
            let must = 1.0 / nodes as f64;
            let moved = share(outcome.moved, 50_000);
            assert!(outcome.unnecessary > 0 && moved < (levels + 1.0) * must, "{nodes}: {moved}");
        }
        assert!(join(nodes, tree).moved > join(nodes, Method::Rendezvous).moved);
    }
    let before = members(40);
    let mut after = before.clone();
    after[7].weight = 4.0;
    let outcome = Scenario { before, after, keys: numbered_keys(50_000), rows: 65_536 }.outcome(&tree);
    assert!((share(outcome.keys[7].1, 50_000) - 4.0 / 43.0).abs() < 0.01, "{:?}", outcome.keys[7]);
    // Others keep their places when one leaves: a tree built anew would put them elsewhere.
    let (before, after) = (members(64), members(64).split_off(1));
    let moved = Scenario { before, after, keys: numbered_keys(50_000), rows: 65_536 }.outcome(&tree).moved;
    assert!(share(moved, 50_000) < 3.0 / 64.0, "{moved}");
    assert!(join(100, tree).state_octets > 40 * 101);
}

#[test]
fn every_report_has_every_method() {
    use crate::commands::{example, json, tablegen};
    let config = example("minimal");
    let methods = |outcomes: &serde_json::Value| -> Vec<String> {
        let all = outcomes.as_array().unwrap().iter();
        all.map(|one| one["method"].as_str().unwrap().to_owned()).collect()
    };
    let names = methods(&json(&["compare", &config, "--keys", "1000", "--add", "x", "--json"]));
    assert!(names.contains(&"skeleton, fan-out 16".to_owned()), "{names:?}");
    let text = tablegen(&["compare", &config, "--keys", "1000", "--add", "x"]);
    let page = tablegen(&["compare", &config, "--keys", "1000", "--html"]);
    for name in &names {
        assert!(text.contains(name) && page.contains(&format!("<th scope=\"row\">{name}</th>")), "{name}");
    }
    assert!(page.contains("All methods: node-4 joins"));
    assert!(tablegen(&["compare", "--html"]).contains("All methods: D joins A, B and C"));
}

/// The text of the three lines under each side.
fn lines(document: &str) -> Vec<String> {
    let items = document.split("<ul class=\"lines\">").skip(1).flat_map(|list| {
        let list = list.split("</ul>").next().unwrap_or_default();
        list.split("<li>").skip(1).map(|item| item.split("</li>").next().unwrap_or_default().to_owned())
    });
    items.collect()
}

#[test]
fn clicking_in_the_demo_gives_the_numbers_of_the_command_line() {
    let script = "document.getElementById('add').click();";
    let Some(joined) = document(&page::page(&[], 240, NOTHING), script) else { return };
    let expected = [ToyMethod::ModN, ToyMethod::Ring(1), ToyMethod::Rendezvous]
        .map(|side| side.lines(&NODES[..3], &NODES));
    assert_eq!(lines(&joined), expected.as_flattened());

    let script = "const tokens = document.getElementById('tokens'); tokens.value = '4'; tokens.dispatchEvent(new Event('change'));
        document.getElementById('add').click(); document.querySelector('[data-remove=B]').focus();
        document.getElementById('lookup').requestSubmit();";
    let looked_up = document(&page::page(&[], 240, NOTHING), script).unwrap();
    assert_eq!(lines(&looked_up)[3..6], ToyMethod::Ring(4).lines(&NODES[..3], &NODES));
    assert!(looked_up.contains("(37 · 43 + 11) mod 100 = 2"));

    let script = "document.querySelector('[data-remove=B]').focus();";
    let marked = document(&page::page(&[], 240, NOTHING), script).unwrap();
    let without: Vec<(&str, u32)> = NODES[..3].iter().copied().filter(|(id, _)| *id != "B").collect();
    let moving: usize = [ToyMethod::ModN, ToyMethod::Ring(1), ToyMethod::Rendezvous]
        .iter()
        .map(|side| {
            toy::KEYS.filter(|key| side.owner(*key, &NODES[..3]) != side.owner(*key, &without)).count()
        })
        .sum();
    assert_eq!(marked.matches("class=\"chip will-move\"").count(), moving);
}

#[test]
fn clicking_on_own_backends_gives_the_numbers_of_the_command_line() {
    let before = members(4);
    let script = "document.querySelector('[data-remove=\"node-2\"]').click();";
    let Some(document) = document(&page::page(&before, 500, NOTHING), script) else { return };
    let mut after = before.clone();
    after.remove(2);
    let scenario = Scenario { before, after: after.clone(), keys: numbered_keys(500), rows: 65_536 };
    let expected = [Method::ModN, Method::Ring(1), Method::Rendezvous].map(|method| {
        let outcome = scenario.outcome(&method);
        let keys: Vec<u32> = outcome.keys.iter().map(|(_, keys)| *keys).collect();
        toy::lines(&after, &keys, outcome.moved as usize, outcome.unnecessary as usize)
    });
    assert_eq!(lines(&document), expected.as_flattened());
}
