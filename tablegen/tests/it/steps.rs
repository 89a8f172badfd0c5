//! The files of a plan's steps: each configuration makes its table from the table before, and is still the operator's.

use crate::commands::{Folder, json, run, tablegen};
use serde_json::Value;
use std::fs;
use tablegen::config::Config;

const HEAD: &str = "\
# The shop.
version: 1
tables:
  - name: web        # behind the shop
    seed: 000102030405060708090a0b0c0d0e0f
    hash_key: { file: secrets/web.key }   # rotated in May
    max_hops: 2
    binds: [{ address: 203.0.113.10, protocol: tcp, port: 443 }]
    backends:
";

const OLD: &str = "      - { id: web-1, address: 10.0.0.11 }   # rack 1
      - { id: web-2, address: 10.0.0.12, zone: 'b #1' }
      - id: web-3     # the old one
        address: 10.0.0.13
        weight: 1.5
      - { id: web-4, address: 10.0.0.14, state: draining }
      - { id: web-5, address: 10.0.0.15 }
";

const NEW: &str = "      - { id: web-1, address: 10.0.0.11 }   # rack 1
      # A comment between.
      - id: web-3     # the old one
        address: 10.0.0.13
        weight: 2
        state: draining   # until June
      - { id: web-6, address: \"10.0.0.16\", zone: c }   # the new one
      - { id: web-5, address: 10.0.0.15 }";

/// The same list where it can only be written anew.
fn in_brackets(list: &str) -> String {
    let items = list.replace("- id: web-3     # the old one\n        address", "- { id: web-3, address");
    let items = items.replace("\n        weight", ", weight").replace("\n        state", ", state");
    let items: Vec<String> = items
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- "))
        .map(|line| line.split("   #").next().unwrap())
        .map(|line| if line.ends_with('}') { line.to_owned() } else { format!("{line} }}") })
        .collect();
    format!("[{}]   # ] no end\n", items.join(",\n      "))
}

struct Files {
    folder: Folder,
    current: String,
    target: String,
    out: String,
}

fn files(head: &str, old: &str, new: &str) -> Files {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("home/secrets")).unwrap();
    fs::write(folder.path("home/secrets/web.key"), "f0e0d0c0b0a090807060504030201000").unwrap();
    let write = |name: &str, text: String| {
        fs::write(folder.path(name), text).unwrap();
        folder.path(name)
    };
    // web-4 was drained from a table before, so that a row of two hops has no room for another.
    let before = write("home/before.yaml", format!("{head}{old}").replace("draining", "active"));
    let config = write("home/old.yaml", format!("{head}{old}"));
    let target = write("home/target.yaml", format!("{head}{new}"));
    let (first, current, out) = (folder.path("first"), folder.path("current"), folder.path("plans/of/today"));
    tablegen(&["build", &before, "-o", &first]);
    tablegen(&["build", &config, "-o", &current, "--previous", &first]);
    Files { folder, current, target, out }
}

/// Plans, builds every step's configuration from the table before, and gives the plan.
fn rebuilt(files: &Files) -> Vec<Value> {
    let Files { folder, current, target, out } = files;
    let plan = json(&["plan", current, target, "--fill", "10,50", "--out", out, "--json"]);
    let steps = plan.as_array().unwrap().clone();
    let mut before = current.clone();
    for step in &steps {
        let (config, table) = (step["config"].as_str().unwrap(), step["table"].as_str().unwrap());
        let again = folder.path("again");
        let mut build = vec!["build", config, "-o", &again, "--previous", &before];
        if step["settle"] == true {
            build.push("--settle");
        }
        tablegen(&build);
        assert!(fs::read(&again).unwrap() == fs::read(table).unwrap(), "{config}");
        before = table.to_owned();
    }
    let last = Config::load(steps.last().unwrap()["config"].as_str().unwrap().as_ref()).unwrap();
    assert_eq!(last.tables, Config::load(target.as_ref()).unwrap().tables);
    steps
}

#[test]
fn each_steps_configuration_makes_its_table_and_keeps_comments() {
    let files = files(HEAD, OLD, NEW);
    let steps = rebuilt(&files);
    assert!(steps.len() >= 4, "{steps:#?}");
    assert!(steps.iter().any(|step| step["settle"] == true), "{steps:#?}");
    for step in &steps {
        let text = fs::read_to_string(step["config"].as_str().unwrap()).unwrap();
        for kept in [
            "# The shop.",
            "# behind the shop",
            "# rotated in May",
            "# rack 1",
            "# A comment between.",
            "# the old one",
        ] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
        assert!(text.contains("{ file: \"../../../home/secrets/web.key\" }"), "{text}");
    }
    let last = fs::read_to_string(steps.last().unwrap()["config"].as_str().unwrap()).unwrap();
    let target = format!("{HEAD}{NEW}").replace("secrets/web.key", "\"../../../home/secrets/web.key\"");
    assert_eq!(last, target, "the last step is the target, letter by letter");
}

#[test]
fn a_list_in_brackets_is_written_anew() {
    let head = HEAD.trim_end();
    let head = format!("{head} ");
    let files = files(&head, &in_brackets(OLD), &in_brackets(NEW));
    assert!(
        fs::read_to_string(&files.target).unwrap().contains("backends: [{ id: web-1"),
        "the layout is tried"
    );
    assert!(rebuilt(&files).len() >= 4);
}

/// The removal waits for the backends that left and for no other, and says where to look.
#[test]
fn a_plan_says_whose_connections_to_wait_for() {
    let files = files(HEAD, OLD, NEW);
    let steps = rebuilt(&files);
    let waits: Vec<&Value> = steps.iter().filter(|step| step["wait"] == "connections").collect();
    assert!(!waits.is_empty());
    for step in &waits {
        assert_eq!(step["wait_seconds"], 7_200);
        assert_eq!(step["watch"][0]["counter"], "kept_on_second_hop_from");
    }
    let of_last: Vec<&str> = steps.last().unwrap()["watch"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    assert_eq!(of_last, ["web-2", "web-4"]);
    let text = fs::read_to_string(format!("{}/plan.txt", files.out)).unwrap();
    assert!(text.contains("`dataplane status` of 10.0.0.12, 10.0.0.14\n"), "{text}");
    assert!(text.contains("that web-2, web-4 may still hold"), "{text}");
}

/// A plan that goes on from a step of the plan before must not write over it: it may be what directors run.
#[test]
fn what_a_plan_is_made_of_is_not_replaced() {
    let files = files(HEAD, OLD, NEW);
    assert!(rebuilt(&files).len() >= 2);
    let [table, config] = ["table", "yaml"].map(|kind| format!("{}/step-1.{kind}", files.out));
    let before = [&table, &config].map(|file| fs::read(file).unwrap());
    for (current, target) in [(&table, &files.target), (&files.current, &config)] {
        let refused = run(&["plan", current, target, "--out", &files.out]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8(refused.stderr).unwrap().contains("choose another folder"));
    }
    assert_eq!([&table, &config].map(|file| fs::read(file).unwrap()), before);
}

#[test]
fn steps_of_another_plan_and_times_that_are_none_are_refused() {
    let files = files(HEAD, OLD, NEW);
    let Files { current, target, out, .. } = &files;
    let steps = rebuilt(&files).len();
    let left = format!("{out}/step-{}.table", steps + 1);
    fs::write(&left, "").unwrap();
    let plan = |more: &[&str]| {
        run(&[&["plan", current.as_str(), target, "--fill", "10,50", "--out", out], more].concat())
    };
    assert!(String::from_utf8(plan(&[]).stderr).unwrap().contains("belongs to another plan"));
    fs::remove_file(&left).unwrap();
    assert_eq!(plan(&["--longest-connection", "soon"]).status.code(), Some(2));
    assert_eq!(plan(&["--longest-connection", "1d"]).status.code(), Some(0));
}
