//! Whole tables that an independent implementation of the ranking and the hop-list rule computed.

use crate::support::{SEED, build, ids, spec};
use common::backend::Backend;
use common::table::{Digest, Table};
use serde_json::Value;
use tablegen::generate::History;

fn backends(case: &Value) -> Vec<Backend> {
    let listed = case["config"]["backends"].as_array().unwrap().iter().zip(1u8..);
    let backend = |(one, at): (&Value, u8)| Backend {
        state: one["state"].as_str().unwrap().parse().unwrap(),
        weight: one["weight"].as_f64().unwrap_or(1.0),
        ..Backend::new(one["id"].as_str().unwrap(), [10, 0, 0, at].into())
    };
    listed.map(backend).collect()
}

fn check(name: &str, case: &Value, table: &Table) {
    let row = |row| serde_json::to_value(ids(table, table.hops.get(row))).unwrap();
    for (at, expected) in (0..).zip(case["rows_0_7"].as_array().unwrap()) {
        assert_eq!(row(at), *expected, "{name}, row {at}");
    }
    assert_eq!(row(65_535), case["row_65535"], "{name}");
    let owned = table.rows_owned();
    for (backend, owned) in table.backends.iter().zip(owned) {
        assert_eq!(case["primary_rows"][&backend.id].as_u64().unwrap_or(0), u64::from(owned), "{name}");
    }
    let lines: Vec<String> = table.hops.iter().map(|list| ids(table, list).join(" ")).collect();
    let digest = Digest::of(lines.join("\n").as_bytes());
    assert_eq!(digest.to_string(), case["sha256_of_hop_ids"].as_str().unwrap(), "{name}");
}

#[test]
fn every_row_of_every_vector() {
    let vectors: Value = serde_json::from_str(include_str!("../data/hrw.json")).unwrap();
    for (name, case) in vectors["cases"].as_object().unwrap() {
        let seed: String = SEED.0.iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(case["config"]["seed"], seed);
        let table = build(&spec(backends(case)), History::None);
        check(name, case, &table.tables()[0]);
    }
}
