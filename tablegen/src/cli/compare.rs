//! `tablegen compare`.

use crate::compare::methods::Member;
use crate::compare::{Scenario, Shown, numbered_keys, page, toy};
use crate::config::{Config, TableSpec};
use crate::files;
use crate::progress::{self, Progress};
use anyhow::{Context as _, bail, ensure};
use common::backend::Backend;
use common::hash::hash_bytes;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration whose backends are the nodes; without it, the teaching demo
    config: Option<PathBuf>,
    /// The table, where there are several
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// A node that joins, of weight 1
    #[arg(long, value_name = "ID")]
    add: Vec<String>,
    /// A node that leaves
    #[arg(long, value_name = "ID")]
    remove: Vec<String>,
    /// A node that changes its weight
    #[arg(long, value_name = "ID=W", value_parser = weight)]
    weight: Vec<(String, f64)>,
    /// Number of keys: key-0, key-1, …
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u32,
    /// Keys, one a line
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    keys_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Print a page to play with
    #[arg(long)]
    html: bool,
}

/// Octets of a file of keys.
const MAX_KEYS_FILE: u64 = 1 << 30;

fn weight(text: &str) -> Result<(String, f64), String> {
    let parsed = text.split_once('=').and_then(|(id, weight)| Some((id.to_owned(), weight.parse().ok()?)));
    let sane = parsed.filter(|(_, weight): &(String, f64)| weight.is_finite() && *weight > 0.0);
    sane.ok_or_else(|| format!("expected ID=WEIGHT with a weight greater than 0, found {text:?}"))
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Some(config) = &self.config else {
            if self.html {
                super::print_page(&demo())?;
            } else {
                super::print(toy::text())?;
            }
            return Ok(ExitCode::SUCCESS);
        };
        let config = Config::load(config)?;
        let spec = self.spec(&config)?;
        let before: Vec<Member> = spec.backends.iter().filter(|one| one.accepts()).map(member).collect();
        ensure!(!before.is_empty(), "no backend of table {} accepts", spec.name);
        let (after, words) = self.changed(&before)?;
        let scenario = Scenario { before, after, keys: self.key_hashes()?, rows: spec.rows };
        let outcomes = progress::shown("compare", |progress| scenario.run(progress));
        if self.html {
            let all = page::all_methods(&words, scenario.keys.len(), &outcomes);
            super::print_page(&page::page(&scenario.before, self.keys.min(1_000), &all))?;
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
            (None, _) => bail!("several tables: name one with --table"),
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

    /// The nodes after the changes that were asked for, and those in words. On a page that shows what changes do, one
    /// joins if none was asked for.
    fn changed(&self, before: &[Member]) -> anyhow::Result<(Vec<Member>, String)> {
        let (mut after, mut words) = (before.to_vec(), Vec::new());
        for id in &self.remove {
            let at = after.iter().position(|one| one.id == *id).with_context(|| format!("no node {id:?}"))?;
            after.remove(at);
            words.push(format!("{id} leaves"));
        }
        for (id, weight) in &self.weight {
            let one =
                after.iter_mut().find(|one| one.id == *id).with_context(|| format!("no node {id:?}"))?;
            one.weight = *weight;
            words.push(format!("{id} weighs {weight}"));
        }
        let newcomer = (self.html && self.add.is_empty() && words.is_empty()).then(|| newcomer(before));
        for id in self.add.iter().chain(&newcomer) {
            ensure!(!after.iter().any(|one| one.id == *id), "there is a node {id:?} already");
            after.push(Member { id: id.clone(), weight: 1.0 });
            words.push(format!("{id} joins"));
        }
        ensure!(!after.is_empty(), "no node would be left");
        Ok((after, words.join(", ")))
    }
}

/// The id of the node that the page itself would add.
fn newcomer(before: &[Member]) -> String {
    let ids = (before.len() + 1..).map(|number| format!("node-{number}"));
    ids.into_iter().find(|id| !before.iter().any(|one| one.id == *id)).unwrap_or_default()
}

/// The teaching demo as a page; its table is of the same nodes with the real hash.
fn demo() -> String {
    let member = |(id, _): &(&str, u32)| Member { id: (*id).to_owned(), weight: 1.0 };
    let after: Vec<Member> = toy::NODES.iter().map(member).collect();
    let before = after.iter().take(3).cloned().collect();
    let scenario = Scenario { before, after, keys: numbered_keys(100_000), rows: 65_536 };
    let all =
        page::all_methods("D joins A, B and C", scenario.keys.len(), &scenario.run(&Progress::default()));
    page::page(&[], 240, &all)
}

fn member(backend: &Backend) -> Member {
    Member { id: backend.id.clone(), weight: backend.effective_weight() }
}
