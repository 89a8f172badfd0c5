//! Byte for byte what GLB Director's own generator writes, and refusals where it would write nonsense.

use crate::support::{backends, spec};
use common::backend::{Backend, State};
use common::bind::PortRange;
use common::table::{Digest, ForwardingTable, Ranking};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use tablegen::config::{Config, TableSpec};
use tablegen::generate::{History, generate};
use tablegen::glb::{export, import};
use tryst_hrw::hash::mix;

fn through_yaml(json: &str) -> Config {
    Config::parse(&import(json).unwrap().yaml, Path::new("imported.yaml")).unwrap()
}

#[test]
fn the_published_digests() {
    let sums = include_str!("../data/glb/SHA256SUMS");
    let vectors = [
        ("t1-basic.bin", include_str!("../data/glb/t1-basic.json")),
        ("t2-states.bin", include_str!("../data/glb/t2-states.json")),
    ];
    for (name, json) in vectors {
        let octets = export(&through_yaml(json).tables).unwrap().octets;
        assert!(sums.contains(&format!("{}  {name}", Digest::of(&octets))), "{name}");
    }
}

#[test]
fn tables_keep_their_order_in_glbs_file_and_none_in_ours() {
    let json = include_str!("../data/glb/packets-table.json");
    let mut config = through_yaml(json);
    let in_order = export(&config.tables).unwrap().octets;
    let native = generate(&config.tables, History::None).unwrap().table;
    config.tables.reverse();
    assert_ne!(export(&config.tables).unwrap().octets, in_order);
    assert_eq!(generate(&config.tables, History::None).unwrap().table, native);
}

/// GLB's file does not hold the seed: it cannot be compared, and nothing says that it changed to another one.
#[test]
fn a_seed_that_is_not_in_the_file_is_not_another_one() {
    let config = through_yaml(include_str!("../data/glb/two-unnamed-tables.json"));
    let native = generate(&config.tables, History::None).unwrap().table;
    let theirs = ForwardingTable::read(&export(&config.tables).unwrap().octets).unwrap();
    let seeds = |old: &ForwardingTable, new: &ForwardingTable| -> Vec<String> {
        let diff = tablegen::review::diff::Diff::new(old, new);
        let seeds = diff.tables[0].config.iter().filter(|change| change.key == "seed");
        seeds
            .map(|change| format!("{} → {}", change.old.as_ref().unwrap(), change.new.as_ref().unwrap()))
            .collect()
    };
    assert_eq!(seeds(&theirs, &native), ["(not in the file) → (secret)"]);
    assert_eq!(seeds(&native, &theirs), ["(secret) → (not in the file)"]);
    assert_eq!(seeds(&theirs, &theirs), [""; 0]);
    let proof = tablegen::verify::Proof::new(&theirs, &config, None);
    let texts: Vec<&str> = proof.findings.iter().map(|finding| finding.text.as_str()).collect();
    assert!(texts.contains(&"seed is not in the file, configured is as configured"), "{texts:?}");
    assert!(texts.contains(&"it was built as unknown, and should be first"), "{texts:?}");
}

/// In our own format a table ranked by GLB's rule has GLB's owners wherever nobody drains or is down.
#[test]
fn native_tables_of_that_ranking_have_the_same_owners() {
    let config = through_yaml(include_str!("../data/glb/t1-basic.json"));
    let native = generate(&config.tables, History::None).unwrap().table;
    let theirs = ForwardingTable::read(&export(&config.tables).unwrap().octets).unwrap();
    let [native, theirs] = [&native.tables()[0], &theirs.tables()[0]];
    let ids = |table, row| crate::support::ids(table, table.hops.get(row));
    assert!((0..1 << 16).all(|row| ids(native, row) == ids(theirs, row)));
}

fn glb_spec(count: u8) -> TableSpec {
    let ids: Vec<String> = (0..count).map(|at| format!("b{at}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    TableSpec { ranking: Ranking::Glb, ..spec(backends(&ids)) }
}

fn many(count: u16) -> Vec<Backend> {
    let backend = |at: u16| {
        let [high, low] = at.to_be_bytes();
        Backend::new(format!("b{at}"), [10, 1, high, low].into())
    };
    (0..count).map(backend).collect()
}

#[test]
fn what_the_format_cannot_say_is_refused() {
    let mut ok = glb_spec(2);
    ok.backends = many(256);
    assert!(export(&[ok]).is_ok());
    /// What the refusal says, and what is refused.
    type Case = (&'static str, fn(&mut TableSpec));
    let cases: [Case; 10] = [
        ("257 backends, at most 256", |spec| spec.backends = many(257)),
        ("257 binds, at most 256", |spec| {
            spec.binds = (1..=257)
                .map(|at| {
                    let mut bind = spec.binds[0];
                    bind.ports = PortRange::single(at);
                    bind
                })
                .collect();
        }),
        ("all backends are inactive, at least 1 that is not is needed", |spec| {
            spec.backends.iter_mut().for_each(|one| one.state = State::Inactive);
        }),
        ("backend b1: address 2001:db8::1", |spec| spec.backends[1].address = "2001:db8::1".parse().unwrap()),
        ("backend b1: address 10.0.0.1 a second time", |spec| {
            spec.backends[1].address = [10, 0, 0, 1].into()
        }),
        ("backend b1: weight 2", |spec| spec.backends[1].weight = 2.0),
        ("backend b0: weight 1 and fill 50", |spec| spec.backends[0].fill = 50),
        ("131072 rows", |spec| spec.rows = 1 << 17),
        ("ranking hrw", |spec| spec.ranking = Ranking::Hrw),
        ("spread_zones", |spec| spec.spread_zones = true),
    ];
    for (expected, change) in cases {
        let mut spec = glb_spec(2);
        change(&mut spec);
        let error = export(&[spec]).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

/// GLB's file has two hops in every row; the only backend is both, and its reader is told.
#[test]
fn the_only_backend_is_both_hops_of_every_row() {
    let mut beside_an_inactive_one = glb_spec(2);
    beside_an_inactive_one.backends[0].state = State::Inactive;
    for (spec, only) in [(glb_spec(1), 0), (beside_an_inactive_one, 1)] {
        let exported = export(std::slice::from_ref(&spec)).unwrap();
        let tables = common::table::glb::decode(&exported.octets).unwrap();
        assert!(tables[0].rows.iter().all(|row| *row == [only; 2]));
        let expected = format!(
            "table web: b{only} is the only backend that is not inactive, so it is both hops of every row: no second chance"
        );
        assert!(exported.warnings.contains(&expected), "{:?}", exported.warnings);
        let read = ForwardingTable::read(&exported.octets).unwrap();
        assert!((0..1 << 16).all(|row| read.tables()[0].hops.get(row).len() == 1));
    }
}

/// GLB's own test configurations have tables without names. They are called as the reader of the version-2 file calls
/// them, so that the two ways of taking a table over agree.
#[test]
fn tables_without_names_are_called_by_their_place() {
    let json = include_str!("../data/glb/two-unnamed-tables.json");
    let imported = import(json).unwrap();
    assert_eq!(
        imported.warnings,
        ["tables[0]: no name; called table-0000", "tables[1]: no name; called table-0001"]
    );
    let config = through_yaml(json);
    let native = generate(&config.tables, History::None).unwrap().table;
    let theirs = ForwardingTable::read(&export(&config.tables).unwrap().octets).unwrap();
    let names = |file: &ForwardingTable| -> Vec<String> {
        file.tables().iter().map(|table| table.name.clone()).collect()
    };
    assert_eq!(names(&native), ["table-0000", "table-0001"]);
    assert_eq!(names(&theirs), names(&native));
    let third = json.replacen("{\"hash_key\"", "{\"name\": \"table-0001\", \"hash_key\"", 1);
    let error = import(&third).unwrap_err().to_string();
    assert!(error.starts_with("tables[1].name: found `table-0001`"), "{error}");
}

/// A configuration of GLB's that only this number decides: two to four backends in any state, one to three binds.
fn random_json(number: u64) -> String {
    let mut word = mix(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut below = move |limit: u64| {
        word = mix(word.wrapping_add(0x9e37_79b9_7f4a_7c15));
        word % limit
    };
    let mut hex = String::new();
    (0..64).for_each(|_| write!(hex, "{:x}", 1 + below(15)).unwrap());
    let list = |items: Vec<String>| items.join(",");
    let binds = (0..1 + below(3)).map(|at| match below(3) {
        0 => format!(r#"{{"ip":"192.0.2.{at}","proto":"tcp","port":{}}}"#, 1 + below(65_535)),
        1 => format!(
            r#"{{"ip":"2001:db8:{at}::/48","proto":"udp","port_start":1,"port_end":{}}}"#,
            1 + below(65_535)
        ),
        _ => format!(
            r#"{{"ip":"198.51.{at}.0/24","proto":"udp","port_start":{},"port_end":65535}}"#,
            1 + below(9)
        ),
    });
    let binds = list(binds.collect());
    let backend = |at, state: u64, healthy: u64, octet: u64| {
        let state = ["active", "active", "filling", "draining", "inactive"][usize::try_from(state).unwrap()];
        let words = ["", r#","healthy":true"#, r#","healthy":true"#, r#","healthy":false"#];
        let healthy = words[usize::try_from(healthy).unwrap()];
        format!(r#"{{"ip":"10.{octet}.0.{at}","state":"{state}"{healthy}}}"#)
    };
    let count = 2 + below(3);
    // The first two are never inactive: GLB's generator needs two candidates.
    let listed = (0..count).map(|at| backend(at, below(if at < 2 { 4 } else { 5 }), below(4), below(256)));
    let backends = list(listed.collect());
    let (key, seed) = hex.split_at(32);
    format!(
        r#"{{"tables":[{{"name":"r{number}","hash_key":"{key}","seed":"{seed}","binds":[{binds}],"backends":[{backends}]}}]}}"#
    )
}

/// Writes the JSON, has the oracle build it, and compares the two files.
fn equals_the_oracle(number: u64, folder: &Path) {
    let json = random_json(number);
    let (config, table) = (folder.join(format!("{number}.json")), folder.join(format!("{number}.bin")));
    std::fs::write(&config, &json).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/glbtab.py");
    let oracle = Command::new("python3").arg(script).arg("build").args([&config, &table]).output().unwrap();
    assert!(oracle.status.success(), "{}", String::from_utf8_lossy(&oracle.stderr));
    let ours = export(&through_yaml(&json).tables).unwrap().octets;
    assert!(ours == std::fs::read(&table).unwrap(), "differs: {json}");
}

/// Twenty whole files against an implementation in another language.
#[test]
fn twenty_random_configurations() {
    if Command::new("python3").arg("--version").output().is_err() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "python3 is needed in CI");
        eprintln!("SKIPPED: no python3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let next = AtomicU32::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let number @ 0..20 = next.fetch_add(1, Ordering::Relaxed) {
                    equals_the_oracle(number.into(), folder.path());
                }
            });
        }
    });
}
