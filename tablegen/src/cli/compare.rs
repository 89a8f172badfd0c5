//! `tablegen compare`.

use crate::compare::methods::Member;
use crate::compare::{Scenario, Shown, numbered_keys, page, toy};
use crate::config::{Config, TableSpec};
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

fn weight(text: &str) -> Result<(String, f64), String> {
    let parsed = text.split_once('=').and_then(|(id, weight)| Some((id.to_owned(), weight.parse().ok()?)));
    let sane = parsed.filter(|(_, weight): &(String, f64)| weight.is_finite() && *weight > 0.0);
    sane.ok_or_else(|| format!("expected ID=WEIGHT with a weight greater than 0, found {text:?}"))
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Some(config) = &self.config else {
            super::print(if self.html { page::page(&[], 240) } else { toy::text() })?;
            return Ok(ExitCode::SUCCESS);
        };
        let config = Config::load(config)?;
        let spec = self.spec(&config)?;
        let before: Vec<Member> = spec.backends.iter().filter(|one| one.accepts()).map(member).collect();
        ensure!(!before.is_empty(), "no backend of table {} accepts", spec.name);
        if self.html {
            super::print(page::page(&before, self.keys.min(1_000)))?;
            return Ok(ExitCode::SUCCESS);
        }
        let keys = self.key_hashes()?;
        let scenario = Scenario { after: self.changed(&before)?, before, keys, rows: spec.rows };
        let outcomes = scenario.run();
        if self.json {
            super::print_json(&outcomes)?;
        } else {
            super::print(Shown { outcomes: &outcomes, keys: scenario.keys.len() })?;
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
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(text.lines().map(|line| hash_bytes(line.as_bytes())).collect())
    }

    fn changed(&self, before: &[Member]) -> anyhow::Result<Vec<Member>> {
        let mut after = before.to_vec();
        for id in &self.remove {
            let at = after.iter().position(|one| one.id == *id).with_context(|| format!("no node {id:?}"))?;
            after.remove(at);
        }
        for (id, weight) in &self.weight {
            let one =
                after.iter_mut().find(|one| one.id == *id).with_context(|| format!("no node {id:?}"))?;
            one.weight = *weight;
        }
        for id in &self.add {
            ensure!(!after.iter().any(|one| one.id == *id), "there is a node {id:?} already");
            after.push(Member { id: id.clone(), weight: 1.0 });
        }
        ensure!(!after.is_empty(), "no node would be left");
        Ok(after)
    }
}

fn member(backend: &Backend) -> Member {
    Member { id: backend.id.clone(), weight: backend.effective_weight() }
}
