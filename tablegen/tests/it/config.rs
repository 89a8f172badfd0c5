//! Configurations that are refused, each with its exact words; and what differs without a difference.

use crate::support::{backends, spec};
use common::backend::Backend;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tablegen::config::{Config, ConfigError};
use tablegen::generate::{History, generate};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn tablegen(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tablegen")).args(arguments).current_dir(root()).output().unwrap()
}

fn files(folder: &str, extension: &str) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let paths = entries.map(|entry| Path::new(folder).join(entry.unwrap().file_name()));
    paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

#[test]
fn every_refusal_says_exactly_what_stands_beside_it() {
    let files = files("configs/invalid", "yaml");
    assert!(files.len() > 90, "{}", files.len());
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table");
    for file in files {
        let expected = std::fs::read_to_string(root().join(&file).with_extension("txt")).unwrap();
        let output =
            tablegen(&["build", file.to_str().unwrap(), "-o", table.to_str().unwrap(), "--threads", "1"]);
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            format!("error: {expected}"),
            "{}",
            file.display()
        );
        assert_eq!(output.status.code(), Some(1), "{}", file.display());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{} left a file", file.display());
    }
}

#[test]
fn no_refusal_shows_a_secret() {
    let secrets = ["f0e0d0c0b0a0", "000102030405"];
    for message in files("configs/invalid", "txt") {
        let text = std::fs::read_to_string(root().join(&message)).unwrap();
        assert!(secrets.iter().all(|secret| !text.contains(secret)), "{}", message.display());
        assert!(root().join(message).with_extension("yaml").exists());
    }
}

#[test]
fn every_other_configuration_for_tables_is_accepted() {
    for name in ["minimal", "states", "two-tables"] {
        let config = Config::load(&root().join(format!("configs/{name}.yaml"))).unwrap();
        assert_eq!(config.warnings, [], "{name}");
    }
}

#[test]
fn a_file_that_is_not_there_is_the_systems_failure() {
    let output = tablegen(&["check", "configs/no-such-file.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("configs/no-such-file.yaml: No such file"));
}

#[test]
fn an_error_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing").display().to_string();
    for arguments in [&["check", &missing][..], &["dump", &missing], &["dump", "configs/minimal.yaml"]] {
        let error = String::from_utf8(tablegen(arguments).stderr).unwrap();
        let last = error.trim_end().rsplit(": ").next().unwrap();
        assert_eq!(error.matches(last).count(), 1, "{error}");
    }
}

/// Where a secret should not be, but may be by mistake.
#[test]
fn a_secret_that_is_a_key_a_tag_or_a_file_name_is_not_shown() {
    const KEY: &str = "f0e0d0c0b0a090807060504030201000";
    let text = text(BIND, BACKEND);
    for mistake in [
        "{ file: KEY }",
        "{ file: dir/KEY.key }",
        "!KEY x",
        "\n    KEY: 1",
        "x\n    KEY: 1",
        "{ KEY: 1 }",
        "*KEY",
    ] {
        let text = text.replace(KEY, &mistake.replace("KEY", KEY));
        let error = parse(&text).unwrap_err().to_string();
        assert!(!error.contains(&KEY[..16]), "{mistake}: {error}");
    }
    // A device without end is not read.
    let error = parse(&text.replace(KEY, "{ file: /dev/zero }")).unwrap_err().to_string();
    assert!(error.contains("/dev/zero: a device, and no regular file"), "{error}");
}

#[test]
fn names_look_as_they_are() {
    for (id, fine) in [
        ("web 1", true),
        ("wéb-1", true),
        (" web-1", false),
        ("web-1\u{a0}", false),
        ("web\u{200b}-1", false),
        ("\u{202e}1-bew", false),
        ("web\u{2028}1", false),
    ] {
        let text = text(BIND, &BACKEND.replace("web-1", &format!("\"{id}\"")));
        assert_eq!(parse(&text).is_ok(), fine, "{id:?}");
    }
}

#[test]
fn a_weight_is_not_octal() {
    for (weight, fine) in [("10", true), ("0.5", true), ("1e3", true), ("010", false), ("00.5", false)] {
        let text = text(BIND, &BACKEND.replace(" }", &format!(", weight: {weight} }}")));
        assert_eq!(parse(&text).is_ok(), fine, "{weight}");
    }
}

/// The text of a configuration: what surrounds lists that a test makes.
fn text(binds: &str, backends: &str) -> String {
    format!(
        "version: 1\ntables:\n  - name: web\n    seed: 000102030405060708090a0b0c0d0e0f\n    \
         hash_key: f0e0d0c0b0a090807060504030201000\n    binds:\n{binds}    backends:\n{backends}"
    )
}

const BIND: &str = "      - { address: 203.0.113.10, protocol: tcp, port: 443 }\n";
const BACKEND: &str = "      - { id: web-1, address: 10.0.0.11 }\n";

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("test.yaml"))
}

#[test]
fn too_many_of_anything_is_refused_and_as_many_as_allowed_are_not() {
    let backends = |count: u32| {
        (0..count).fold(String::new(), |mut text, at| {
            let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + at);
            writeln!(text, "      - {{ id: b{at}, address: {address} }}").unwrap();
            text
        })
    };
    assert_eq!(parse(&text(BIND, &backends(65_534))).unwrap().tables[0].backends.len(), 65_534);
    let error = parse(&text(BIND, &backends(65_535))).unwrap_err().to_string();
    assert!(error.ends_with("found 65535 backends, allowed 1 to 65534"), "{error}");

    let binds = (0..65_537u32).fold(String::new(), |mut text, at| {
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + at);
        writeln!(text, "      - {{ address: {address}, protocol: udp, port: 53 }}").unwrap();
        text
    });
    let error = parse(&text(&binds, BACKEND)).unwrap_err().to_string();
    assert!(error.ends_with("found 65537 binds, allowed 1 to 65536"), "{error}");
}

#[test]
fn one_table_too_many_is_refused() {
    let one = text(BIND, BACKEND);
    let table = one.strip_prefix("version: 1\ntables:\n").unwrap();
    let error = parse(&format!("version: 1\ntables:\n{}", table.repeat(4_097))).unwrap_err().to_string();
    assert!(error.ends_with("tables: found 4097 tables, allowed 1 to 4096"), "{error}");
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let mut bomb = "version: 1\ntables:\n  - &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        writeln!(bomb, "  - &a{level} [{before}]").unwrap();
    }
    assert!(parse(&bomb).is_err());
}

#[test]
fn what_surprises_is_said() {
    let yaml = text(
        BIND,
        "      - { id: web-1, address: 10.0.0.11, state: draining }\n      - { id: web-2, address: '2001:db8::1', health: down }\n",
    );
    let yaml = yaml.replace("f0e0d0c0b0a090807060504030201000", "000102030405060708090a0b0c0d0e0f");
    let warnings: Vec<String> = parse(&yaml).unwrap().warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "test.yaml:4:11: tables[0].seed: the same as hash_key, which must stay secret",
            "test.yaml:9:7: tables[0].backends: no backend accepts new connections (active or filling, and up): fail-open is \
             in force, and new connections go to servers that are draining or down",
            "test.yaml:9:7: tables[0].backends: IPv4 and IPv6 are mixed: a packet carries hops of its primary's family only",
        ]
    );
}

/// Inactive backends are in no hop list, so their address family does not matter.
#[test]
fn an_inactive_backend_of_another_family_gives_no_warning() {
    for (state, warnings) in [("inactive", 0), ("draining", 1)] {
        let backends = format!(
            "      - {{ id: web-1, address: 10.0.0.11 }}\n      - {{ id: web-2, address: '2001:db8::1', state: {state} }}\n"
        );
        assert_eq!(parse(&text(BIND, &backends)).unwrap().warnings.len(), warnings, "{state}");
    }
}

#[test]
fn a_secret_may_stand_in_a_file_beside() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key.hex"), "f0e0d0c0b0a090807060504030201000\n").unwrap();
    let yaml = text(BIND, BACKEND);
    let beside = yaml.replace("f0e0d0c0b0a090807060504030201000", "{ file: key.hex }");
    let config = Config::parse(&beside, &folder.path().join("config.yaml")).unwrap();
    assert_eq!(config, parse(&yaml).unwrap());
    std::fs::write(folder.path().join("key.hex"), "f0e0d0c0 and more").unwrap();
    let error = Config::parse(&beside, &folder.path().join("config.yaml")).unwrap_err().to_string();
    assert!(error.contains("hash_key: found a character that is not a hex digit"), "{error}");
}

/// Decimal digits alone must not become a number on their way.
#[test]
fn a_secret_of_digits_keeps_every_one() {
    let yaml =
        text(BIND, BACKEND).replace("000102030405060708090a0b0c0d0e0f", "12345678901234561234567890123456");
    assert_eq!(parse(&yaml).unwrap().tables[0].seed.0[..3], [0x12, 0x34, 0x56]);
}

/// One configuration, written in as many ways as there are.
#[test]
fn the_way_of_writing_never_shows_in_the_table() {
    let plain = "version: 1
tables:
  - name: api
    seed: 000102030405060708090a0b0c0d0e0f
    hash_key: f0e0d0c0b0a090807060504030201000
    binds:
      - { address: '2001:db8::10', protocol: tcp, port: 443 }
      - { address: 203.0.113.10, protocol: tcp, port: 443 }
    backends:
      - { id: a, address: '2001:db8::1', weight: 2 }
      - { id: b, address: '2001:db8::2' }
      - { id: c, address: '2001:db8::3', state: draining }
  - name: web
    seed: 101112131415161718191a1b1c1d1e1f
    hash_key: e0d0c0b0a09080706050403020100ff0
    binds:
      - { address: 203.0.113.0/24, protocol: tcp, ports: 1-65535 }
    backends:
      - { id: x, address: 10.0.0.1 }
      - { id: y, address: 10.0.0.2 }
";
    let other = "# the same
tables:
- backends: [{address: 10.0.0.2, id: y, weight: 1.0, health: up}, {address: 10.0.0.1, id: x, fill: 100}]
  binds: [{ports: 1-65535, protocol: tcp, address: 203.0.113.0/24}]
  hash_fields: [src_port, src_addr]
  hash_key: E0D0C0B0A09080706050403020100FF0
  seed: \"101112131415161718191a1b1c1d1e1f\"
  name: web
- name: 'api'
  max_hops: 4
  rows: 65536
  hash_key: f0e0d0c0b0a090807060504030201000
  seed: 000102030405060708090a0b0c0d0e0f
  backends:
  - {id: c, state: draining, address: '2001:0db8:0000::0003'}
  - {id: b, address: '2001:DB8::2'}
  - id: a
    weight: 2.000
    address: 2001:db8:0:0:0:0:0:1
  binds:
  - {address: 203.0.113.10/32, protocol: tcp, port: 443}
  - {address: '2001:db8:0::10/128', protocol: tcp, ports: 443-443}
version: 1
";
    let build = |text: &str| generate(&parse(text).unwrap().tables, History::None).unwrap().table.encode();
    assert!(build(plain) == build(other));
}

#[test]
fn neither_order_nor_threads_show_in_the_table() {
    let ids = ["a", "b", "c", "d", "e", "f", "g"];
    let mut all: Vec<Backend> = backends(&ids);
    all[2].weight = 2.5;
    all[4].state = common::backend::State::Draining;
    let built = |backends: Vec<Backend>, threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let parent = pool.install(|| generate(&[spec(backends.clone())], History::None)).unwrap().table;
        let child = pool.install(|| generate(&[spec(backends[1..].to_vec())], History::None)).unwrap().table;
        let grandchild =
            pool.install(|| generate(&[spec(backends)], History::Parent(&parent))).unwrap().table;
        (parent.encode(), child.digest(), grandchild.encode())
    };
    let expected = built(all.clone(), 1);
    for threads in [2, 7] {
        assert!(built(all.clone(), threads) == expected);
    }
    let (parent, _, grandchild) = expected;
    all.reverse();
    for _ in 0..ids.len() {
        all.rotate_left(1);
        let (again, _, and_again) = built(all.clone(), 2);
        assert!(again == parent && and_again == grandchild);
    }
}
