//! `tablegen compare`.

use crate::compare::methods::Member;
use crate::compare::page::{Comparison, page};
use crate::compare::{Scenario, Shown, numbered_keys, toy};
use crate::config::{Config, TableSpec, WEIGHTS};
use crate::files;
use crate::progress::{self, Progress};
use anyhow::{Context as _, bail, ensure};
use common::backend::Backend;
use std::path::PathBuf;
use std::process::ExitCode;
use tryst_hrw::hash::hash_bytes;

/// Keys that a page of a configuration shows at first.
const PAGE_KEYS: u32 = 1_000;
/// Keys that the page of the example shows at first, with the real hash.
const EXAMPLE_PAGE_KEYS: u32 = 240;
/// Keys that the example is measured with.
const EXAMPLE_KEYS: u32 = 100_000;

#[derive(Debug, clap::Args)]
pub(super) struct CompareArgs {
    /// Configuration whose backends are the nodes [default: a built-in example]
    config: Option<PathBuf>,
    /// Name of the table, if the configuration has several
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Add a node of weight 1
    #[arg(long, value_name = "ID")]
    add: Vec<String>,
    /// Remove a node
    #[arg(long, value_name = "ID")]
    remove: Vec<String>,
    /// Change the weight of a node
    #[arg(long, value_name = "ID=W", value_parser = weight)]
    weight: Vec<(String, f64)>,
    /// Number of keys: key-0, key-1, …
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u32,
    /// Read keys from a file, one per line
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    keys_file: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Print an interactive HTML page
    #[arg(long)]
    html: bool,
}

/// Greatest size of a file of keys, in octets.
const MAX_KEYS_FILE: u64 = 1 << 30;

fn weight(text: &str) -> Result<(String, f64), String> {
    let parsed = text.split_once('=').and_then(|(id, weight)| Some((id.to_owned(), weight.parse().ok()?)));
    let allowed = parsed.filter(|(_, weight)| WEIGHTS.contains(weight));
    allowed.ok_or_else(|| {
        format!(
            "expected ID=WEIGHT with a weight from {} to {}, found {text:?}",
            WEIGHTS.start(),
            WEIGHTS.end()
        )
    })
}

impl CompareArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Some(config) = &self.config else {
            if self.html {
                super::print_page(&example_page())?;
            } else {
                super::print(toy::text())?;
            }
            return Ok(ExitCode::SUCCESS);
        };
        let config = Config::load(config)?;
        let spec = self.spec(&config)?;
        let accepting = spec.backends.iter().filter(|backend| backend.accepts());
        let before: Vec<Member> = accepting.map(member).collect();
        ensure!(!before.is_empty(), "no backend of table {} accepts connections", spec.name);
        let (after, change) = self.changed(&before)?;
        let scenario = Scenario { before, after, keys: self.key_hashes()?, rows: spec.rows };
        let outcomes = progress::shown("compare", |progress| scenario.run(progress));
        if self.html {
            let comparison = Comparison { change: &change, keys: scenario.keys.len(), outcomes: &outcomes };
            super::print_page(&page(&scenario.before, self.keys.min(PAGE_KEYS), comparison))?;
        } else if self.json {
            super::print_json(&outcomes)?;
        } else {
            super::print(Shown(&outcomes))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn spec<'c>(&self, config: &'c Config) -> anyhow::Result<&'c TableSpec> {
        match (&self.table, config.tables.as_slice()) {
            (None, [only]) => Ok(only),
            (None, _) => bail!("there are several tables: name one with --table"),
            (Some(name), tables) => {
                tables.iter().find(|spec| spec.name == *name).with_context(|| format!("no table {name:?}"))
            }
        }
    }

    fn key_hashes(&self) -> anyhow::Result<Vec<u64>> {
        let Some(file) = &self.keys_file else { return Ok(numbered_keys(self.keys)) };
        let octets = files::octets_up_to(file, MAX_KEYS_FILE)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let text = String::from_utf8(octets).with_context(|| file.display().to_string())?;
        Ok(text.lines().map(|line| hash_bytes(line.as_bytes())).collect())
    }

    /// The nodes after the requested changes, and these changes in words. A page shows what a change does, so one node
    /// joins if no change was requested.
    fn changed(&self, before: &[Member]) -> anyhow::Result<(Vec<Member>, String)> {
        let (mut after, mut words) = (before.to_vec(), Vec::new());
        for id in &self.remove {
            let index = index_of(&after, id)?;
            after.remove(index);
            words.push(format!("{id} leaves"));
        }
        for (id, weight) in &self.weight {
            let index = index_of(&after, id)?;
            after[index].weight = *weight;
            words.push(format!("{id} weighs {weight}"));
        }
        let new_id = (self.html && self.add.is_empty() && words.is_empty()).then(|| new_id(before));
        for id in self.add.iter().chain(&new_id) {
            ensure!(index_of(&after, id).is_err(), "node {id:?} exists already");
            after.push(Member { id: id.clone(), weight: 1.0 });
            words.push(format!("{id} joins"));
        }
        ensure!(!after.is_empty(), "no node would be left");
        Ok((after, words.join(", ")))
    }
}

fn index_of(members: &[Member], id: &str) -> anyhow::Result<usize> {
    members.iter().position(|member| member.id == id).with_context(|| format!("no node {id:?}"))
}

/// The id of the node that the page itself would add.
fn new_id(before: &[Member]) -> String {
    let mut number = before.len() + 1;
    while index_of(before, &format!("node-{number}")).is_ok() {
        number += 1;
    }
    format!("node-{number}")
}

/// The built-in example as a page. Its table compares the same nodes with the real hash.
fn example_page() -> String {
    let after: Vec<Member> =
        toy::NODES.iter().map(|(id, _)| Member { id: (*id).to_owned(), weight: 1.0 }).collect();
    let before = after.iter().take(3).cloned().collect();
    let scenario = Scenario { before, after, keys: numbered_keys(EXAMPLE_KEYS), rows: 65_536 };
    let outcomes = scenario.run(&Progress::default());
    let comparison =
        Comparison { change: "D joins A, B and C", keys: scenario.keys.len(), outcomes: &outcomes };
    page(&[], EXAMPLE_PAGE_KEYS, comparison)
}

fn member(backend: &Backend) -> Member {
    Member { id: backend.id.clone(), weight: backend.effective_weight() }
}
