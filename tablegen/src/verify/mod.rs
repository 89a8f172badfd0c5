//! An independent proof that a table is what its configuration and its parent make of it.
//!
//! Every row is computed a second time ([`slow`]), in the most obvious way and without a line of the generator's
//! ranking or hop-list code; then minimality, survival and balance are checked on the rows as they stand in the file.
//! What is shared is the reading of files: configuration and table.

mod changes;
mod hash;
mod parameters;
mod rows;
pub mod slow;

use crate::config::{Config, TableSpec};
use crate::format::number::{counted, either, grouped};
use crate::progress::Progress;
use common::table::{Built, Digest, ForwardingTable, Table};
use serde::Serialize;
use slow::Before;
use std::fmt;

/// What is wrong with a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It does not say what the configuration says.
    Config,
    /// It was not built from the table in service.
    Parent,
    /// A row belongs to another backend.
    Owner,
    /// A hop list lacks a backend.
    MissingHop,
    /// A hop list has one backend too many.
    ExtraHop,
    /// The hops of a row stand in another order.
    HopOrder,
    /// A hop that is down stands before one that is up.
    DeadHopFirst,
    /// The former owners of a row are others.
    Lineage,
    /// A row moved for no reason.
    Unnecessary,
    /// A backend that may hold connections of a row is no hop of it.
    AtRisk,
    /// A backend owns more or fewer rows than chance allows.
    Balance,
}

/// Something that is wrong, with the number of rows that show it and the first of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is wrong.
    pub reason: Reason,
    /// The table; empty for the file as a whole.
    pub table: String,
    /// Rows that show it; 0 where it is not about rows.
    pub rows: u32,
    /// In words, by the example of the first row.
    pub text: String,
}

/// What was checked of one table, in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableProof {
    /// Its name.
    pub name: String,
    /// Rows that were computed again.
    pub rows: u32,
    /// Rows that came out otherwise.
    pub differing: u32,
    /// Rows with another owner than in the parent.
    pub moved: u32,
    /// Of these, those that no backend's change accounts for.
    pub unnecessary: u32,
    /// Of these, those for which a bound of shares does.
    pub by_max_share: u32,
    /// Pairs of a row and a backend that may hold connections of it.
    pub may_hold: u32,
    /// Of these, those where it is a hop.
    pub reachable: u32,
    /// Only the parent's own owners were kept.
    pub settled: bool,
    /// The backend farthest from its fair share, and by how many standard deviations.
    pub farthest: Option<(String, f64)>,
}

/// The result: a certificate if nothing was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proof {
    /// The table's name.
    #[serde(serialize_with = "as_text")]
    pub digest: Digest,
    /// SHA-256 of the configuration in it.
    #[serde(serialize_with = "as_text")]
    pub config_digest: Digest,
    /// The table it was proved to follow.
    #[serde(serialize_with = "as_optional_text")]
    pub parent: Option<Digest>,
    /// Number of the build.
    pub generation: u64,
    /// How it was built: first, child, settled, or unknown.
    pub built: &'static str,
    /// What was checked.
    pub tables: Vec<TableProof>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

fn as_text<S: serde::Serializer>(digest: &Digest, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(digest)
}

fn as_optional_text<S: serde::Serializer>(digest: &Option<Digest>, to: S) -> Result<S::Ok, S::Error> {
    match digest {
        Some(digest) => to.collect_str(digest),
        None => to.serialize_none(),
    }
}

impl Proof {
    /// Checks `new` against its configuration and the table that it was built from.
    pub fn new(new: &ForwardingTable, config: &Config, previous: Option<&ForwardingTable>) -> Self {
        Self::counted(new, config, previous, &Progress::default())
    }

    /// The same, while `progress` counts rows.
    pub fn counted(
        new: &ForwardingTable,
        config: &Config,
        previous: Option<&ForwardingTable>,
        progress: &Progress,
    ) -> Self {
        let mut findings = parent(new, previous);
        findings.extend(tables_missing(new, config));
        let mut tables = Vec::new();
        for table in new.tables() {
            let Some(spec) = config.tables.iter().find(|spec| spec.name == table.name) else { continue };
            let before = previous.and_then(|file| {
                let settled = new.built() == Built::Settled;
                Some(Before { table: file.table(&table.name)?, built: file.built(), settled })
            });
            let (proof, found) = prove(table, spec, before, progress);
            tables.push(proof);
            findings.extend(found);
        }
        Self {
            digest: new.digest(),
            config_digest: new.config_digest(),
            parent: new.parent(),
            generation: new.generation(),
            built: new.built().name(),
            tables,
            findings,
        }
    }

    /// Is everything as it must be?
    pub fn holds(&self) -> bool {
        self.findings.is_empty()
    }
}

fn parent(new: &ForwardingTable, previous: Option<&ForwardingTable>) -> Vec<Finding> {
    let name = |digest: Option<Digest>| digest.map_or_else(|| "none".to_owned(), |digest| digest.short());
    let finding = |text| Finding { reason: Reason::Parent, table: String::new(), rows: 0, text };
    let expected = previous.map(ForwardingTable::digest);
    let mut findings = Vec::new();
    if new.parent() != expected {
        let (found, expected) = (name(new.parent()), name(expected));
        findings.push(finding(format!("its parent is {found}, and should be {expected}")));
    }
    let (built, fits) = match (new.built(), previous) {
        (built, None) => (built, built == Built::First),
        (built, Some(_)) => (built, matches!(built, Built::Child | Built::Settled)),
    };
    if !fits {
        let expected = if previous.is_some() { "child or settled" } else { "first" };
        findings.push(finding(format!("it was built as {built}, and should be {expected}")));
    }
    let generation = previous.map_or(1, |previous| previous.generation() + 1);
    if new.generation() != generation {
        findings.push(finding(format!("it is generation {}, and should be {generation}", new.generation())));
    }
    findings
}

fn tables_missing(new: &ForwardingTable, config: &Config) -> Vec<Finding> {
    let finding = |table: &str, text: &str| Finding {
        reason: Reason::Config,
        table: table.to_owned(),
        rows: 0,
        text: text.to_owned(),
    };
    let missing = config.tables.iter().filter(|spec| new.table(&spec.name).is_none());
    let extra = new.tables().iter().filter(|table| !config.tables.iter().any(|spec| spec.name == table.name));
    missing
        .map(|spec| finding(&spec.name, "it is in the configuration and not in the file"))
        .chain(extra.map(|table| finding(&table.name, "it is in the file and not in the configuration")))
        .collect()
}

fn prove(
    table: &Table,
    spec: &TableSpec,
    before: Option<Before<'_>>,
    progress: &Progress,
) -> (TableProof, Vec<Finding>) {
    let mut findings = parameters::compare(table, spec);
    let wanted = parameters::table(spec);
    let rows = rows::compare(table, &wanted, &slow::rows(&wanted, before, spec.rows, progress));
    let settled = before.is_some_and(|before| before.settled);
    findings.extend(rows.findings);
    let changes = changes::count(table, before);
    findings.extend(changes.findings);
    let (farthest, unbalanced) = changes::balance(table);
    findings.extend(unbalanced);
    findings.extend(changes::within_bound(table));
    let proof = TableProof {
        name: table.name.clone(),
        rows: spec.rows,
        differing: rows.differing,
        moved: changes.moved,
        unnecessary: changes.unnecessary,
        by_max_share: changes.by_max_share,
        may_hold: changes.may_hold,
        reachable: changes.reachable,
        settled,
        farthest,
    };
    (proof, findings)
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds() { "proved" } else { "NOT proved" };
        writeln!(f, "{verdict}: {}", self.digest)?;
        writeln!(f, "config digest  {}", self.config_digest)?;
        match self.parent {
            Some(parent) => writeln!(f, "parent         {parent}")?,
            None => writeln!(f, "parent         none")?,
        }
        writeln!(f, "generation     {}", self.generation)?;
        writeln!(f, "built          {}", self.built)?;
        self.tables.iter().try_for_each(|table| write!(f, "{table}"))?;
        for Finding { reason, table, text, .. } in &self.findings {
            let table = if table.is_empty() { String::new() } else { format!("table {table}: ") };
            writeln!(f, "wrong ({}): {table}{text}", reason.name())?;
        }
        Ok(())
    }
}

impl fmt::Display for TableProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settled = if self.settled { ", settled" } else { "" };
        writeln!(f, "table {}", self.name)?;
        let [rows, differing, moved, unnecessary, by_max_share, reachable] =
            [self.rows, self.differing, self.moved, self.unnecessary, self.by_max_share, self.reachable]
                .map(grouped);
        let differ = either(self.differing, "differs", "differ");
        writeln!(f, "  rows         {rows} computed again, {differing} {differ}{settled}")?;
        write!(f, "  minimality   {moved} moved, {unnecessary} of them for no reason")?;
        match self.by_max_share {
            0 => writeln!(f)?,
            _ => writeln!(f, ", {by_max_share} by max_share")?,
        }
        let may_hold = counted(self.may_hold, "backend");
        writeln!(
            f,
            "  survival     {may_hold} may hold connections of a row, {reachable} of them as its hop"
        )?;
        match &self.farthest {
            Some((id, sigmas)) => {
                writeln!(f, "  balance      {id} is farthest from its share, by {sigmas:+.2} σ")
            }
            None => Ok(()),
        }
    }
}

impl Reason {
    /// The word in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Parent => "parent",
            Self::Owner => "owner",
            Self::MissingHop => "missing hop",
            Self::ExtraHop => "extra hop",
            Self::HopOrder => "hop order",
            Self::DeadHopFirst => "dead hop first",
            Self::Lineage => "lineage",
            Self::Unnecessary => "unnecessary move",
            Self::AtRisk => "at risk",
            Self::Balance => "balance",
        }
    }
}
