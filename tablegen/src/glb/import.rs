//! GLB's JSON to our configuration, keeping GLB's meaning.
//!
//! | GLB says | here |
//! |---|---|
//! | a backend | its address is its id: GLB ranks addresses |
//! | `healthy` missing | `health: down`, with a warning: GLB's generator takes it so |
//! | a table without a name | `table-0000`, `table-0001`, … by its place, as its version-2 file is read |
//! | nothing on fields | `hash_fields: [src_addr]`, GLB's default, whatever its director's own configuration says |
//! | other keys (`healthchecks` …) | left out, with a warning |
//!
//! Numbers, addresses and words are taken over as they stand; the configuration's own checks then judge them, by the
//! same key paths.

use crate::config::Quoted;
use crate::config::{Config, ConfigError};
use common::table::glb::table_name;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// A configuration of GLB's that cannot be taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Not GLB's JSON.
    #[error("{0}")]
    Json(String),
    /// JSON that says what makes no sense.
    #[error("{path}: found {found}, allowed {allowed}")]
    Refused {
        /// For example `tables[0].binds[1].ports`.
        path: String,
        /// What stands there.
        found: String,
        /// What may stand there.
        allowed: String,
    },
}

/// A configuration, as text, and what surprises in it.
#[derive(Clone, PartialEq, Eq)]
pub struct Imported {
    /// YAML, secrets included.
    pub yaml: String,
    /// One sentence each.
    pub warnings: Vec<String>,
}

impl fmt::Debug for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Imported").field("warnings", &self.warnings).finish_non_exhaustive()
    }
}

/// Translates `json`.
pub fn import(json: &str) -> Result<Imported, ImportError> {
    let file: GlbFile = serde_json::from_str(json).map_err(|error| ImportError::Json(error.to_string()))?;
    let mut warnings = Vec::new();
    left_out(&file.rest, "", &mut warnings);
    let mut yaml = String::from(
        "# Taken over from GLB Director. It hashes the client's address alone.\nversion: 1\ntables:\n",
    );
    for (at, table) in file.tables.iter().enumerate() {
        write_table(&mut yaml, table, at);
        surprises(table, at, &mut warnings);
    }
    if file.tables.is_empty() {
        yaml.truncate(yaml.trim_end().len());
        yaml += " []\n";
    }
    match Config::parse(&yaml, Path::new("")) {
        Ok(config) => {
            warnings.extend(config.warnings.iter().map(|one| format!("{}: {}", one.path, one.text)))
        }
        Err(ConfigError::Refused { refusal, .. }) => {
            let crate::config::Refusal { path, found, allowed, .. } = *refusal;
            return Err(ImportError::Refused { path, found, allowed });
        }
        Err(ConfigError::Read { cause, .. }) => return Err(ImportError::Json(cause.to_string())),
    }
    Ok(Imported { yaml, warnings })
}

type Rest = BTreeMap<String, Value>;

#[derive(Deserialize)]
struct GlbFile {
    tables: Vec<GlbTable>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Deserialize)]
struct GlbTable {
    name: Option<String>,
    #[serde(deserialize_with = "secret")]
    hash_key: String,
    #[serde(deserialize_with = "secret")]
    seed: String,
    binds: Vec<GlbBind>,
    backends: Vec<GlbBackend>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Deserialize)]
struct GlbBind {
    ip: String,
    proto: String,
    port: Option<i64>,
    port_start: Option<i64>,
    port_end: Option<i64>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Deserialize)]
struct GlbBackend {
    ip: String,
    state: String,
    healthy: Option<bool>,
    #[serde(flatten)]
    rest: Rest,
}

/// A text, or an error that does not repeat what stands there.
fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        _ => Err(serde::de::Error::custom("hash_key and seed must be texts of 32 hex digits")),
    }
}

fn write_table(yaml: &mut String, table: &GlbTable, at: usize) {
    let name = table.name.clone().unwrap_or_else(|| table_name(at));
    let (seed, hash_key) = (Quoted(&table.seed), Quoted(&table.hash_key));
    *yaml += &format!(
        "  - name: {}\n    ranking: glb\n    seed: {seed}\n    hash_key: {hash_key}\n    hash_fields: [src_addr]\n",
        Quoted(&name)
    );
    write_list(yaml, "binds", table.binds.iter().map(bind));
    write_list(yaml, "backends", table.backends.iter().map(backend));
}

fn write_list(yaml: &mut String, key: &str, items: impl ExactSizeIterator<Item = String>) {
    *yaml += &format!("    {key}:{}\n", if items.len() == 0 { " []" } else { "" });
    items.for_each(|item| *yaml += &format!("      - {{ {item} }}\n"));
}

fn bind(bind: &GlbBind) -> String {
    let mut text = format!("address: {}, protocol: {}", Quoted(&bind.ip), Quoted(&bind.proto));
    if let Some(port) = bind.port {
        text += &format!(", port: {port}");
    }
    if bind.port_start.is_some() || bind.port_end.is_some() {
        let side = |port: Option<i64>| port.map(|port| port.to_string()).unwrap_or_default();
        text +=
            &format!(", ports: {}", Quoted(&format!("{}-{}", side(bind.port_start), side(bind.port_end))));
    }
    text
}

fn backend(backend: &GlbBackend) -> String {
    let health = if backend.healthy == Some(true) { "up" } else { "down" };
    let (ip, state) = (Quoted(&backend.ip), Quoted(&backend.state));
    format!("id: {ip}, address: {ip}, state: {state}, health: {health}")
}

fn surprises(table: &GlbTable, at: usize, warnings: &mut Vec<String>) {
    let path = format!("tables[{at}]");
    if table.name.is_none() {
        warnings.push(format!("{path}: no name; called {}", table_name(at)));
    }
    let silent: Vec<&str> =
        table.backends.iter().filter(|one| one.healthy.is_none()).map(|one| one.ip.as_str()).collect();
    if !silent.is_empty() {
        let list = silent.join(", ");
        warnings.push(format!("{path}.backends: without `healthy`, and so down as GLB takes it: {list}"));
    }
    left_out(&table.rest, &path, warnings);
    for (i, one) in table.binds.iter().enumerate() {
        left_out(&one.rest, &format!("{path}.binds[{i}]"), warnings);
    }
    for (i, one) in table.backends.iter().enumerate() {
        left_out(&one.rest, &format!("{path}.backends[{i}]"), warnings);
    }
}

fn left_out(rest: &Rest, path: &str, warnings: &mut Vec<String>) {
    if !rest.is_empty() {
        let keys: Vec<&str> = rest.keys().map(String::as_str).collect();
        let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
        warnings.push(format!("{place}left out: {}", keys.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(binds: &str, backends: &str) -> String {
        format!(
            r#"{{"tables":[{{"name":"t","hash_key":"12345678901234561234567890123456",
            "seed":"34567890123456783456789012345678","binds":[{binds}],"backends":[{backends}]}}]}}"#
        )
    }

    const BIND: &str = r#"{"ip":"1.1.1.1","proto":"tcp","port":80}"#;
    const BACKEND: &str = r#"{"ip":"10.0.0.1","state":"active","healthy":true}"#;

    #[test]
    fn what_surprises_is_said() {
        let silent = r#"{"ip":"10.0.0.2","state":"active","hostname":"b"}"#;
        let json = table(BIND, &format!("{BACKEND},{silent}"));
        let imported = import(&json).unwrap();
        assert!(imported.yaml.contains("id: 10.0.0.2, address: 10.0.0.2, state: active, health: down"));
        assert_eq!(
            imported.warnings,
            [
                "tables[0].backends: without `healthy`, and so down as GLB takes it: 10.0.0.2",
                "tables[0].backends[1]: left out: hostname"
            ]
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_path() {
        let cases = [
            (
                r#"{"ip":"1.1.1.1","proto":"tcp"}"#,
                BACKEND,
                "tables[0].binds[0]: found neither port nor ports",
            ),
            (
                r#"{"ip":"1.1.1.1","proto":"tcp","port_start":90,"port_end":80}"#,
                BACKEND,
                "tables[0].binds[0].ports: found `90-80`",
            ),
            (r#"{"ip":"1.1.1.1/24","proto":"tcp","port":1}"#, BACKEND, "tables[0].binds[0].address"),
            (
                r#"{"ip":"1.1.1.1","proto":"tcp","port":65536}"#,
                BACKEND,
                "tables[0].binds[0].port: found `65536`",
            ),
            (BIND, "", "tables[0].backends: found 0 backends"),
            ("", BACKEND, "tables[0].binds: found 0 binds"),
            (BIND, r#"{"ip":"10.0.0.1","state":"on"}"#, "tables[0].backends[0].state: found `on`"),
            (
                BIND,
                r#"{"ip":"a\": b\u0007","state":"active"}"#,
                "tables[0].backends[0].id: found `a\\\": b\\u{7}`",
            ),
        ];
        for (binds, backends, expected) in cases {
            let error = import(&table(binds, backends)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn any_name_reads_back() {
        for name in
            ["null", "~", "true", "1.5", "- a", "a: b", "a # b", "{x}", "ä \u{a0}é", "\\ \"", "*a", "%", "@"]
        {
            let json = table(BIND, BACKEND).replace("\"t\"", &serde_json::to_string(name).unwrap());
            let config = Config::parse(&import(&json).unwrap().yaml, Path::new("")).unwrap();
            assert_eq!(config.tables[0].name, name);
        }
        let json = table(BIND, BACKEND).replace("\"t\"", "\"a\\u2028\"");
        let error = import(&json).unwrap_err().to_string();
        assert!(error.starts_with("tables[0].name: found `a\\u{2028}`"), "{error}");
    }

    #[test]
    fn a_key_of_the_wrong_kind_is_not_repeated() {
        let json = table(BIND, BACKEND).replace("\"12345678901234561234567890123456\"", "98765");
        let error = import(&json).unwrap_err().to_string();
        assert!(!error.contains("98765"), "{error}");
        let json = table(BIND, BACKEND).replace("12345678901234561234567890123456", "secret-that-is-no-hex");
        let error = import(&json).unwrap_err().to_string();
        assert!(!error.contains("secret-that"), "{error}");
    }
}
