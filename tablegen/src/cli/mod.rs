//! What is typed: sub-commands and their arguments. What it means is elsewhere.
//!
//! Each sub-command is a module with an `Args` and a `run` that gives the exit code: 0 done, 1 refused or over a limit
//! that was set. An error that is the user's file's fault is 1 too, one of the system 2 ([`exit_code`]).

mod build;
mod check;
mod compare;
mod diff;
mod dump;
mod edit;
mod explain;
mod import;
mod log;
mod plan;
mod simulate;
mod verify;

use crate::config::ConfigError;
use crate::edit::{Action, step::StepError};
use crate::glb::{ExportError, ImportError};
use crate::store::{self, LoadError};
use anyhow::Context as _;
use clap::{Parser, Subcommand};
use common::text::{Printable, PrintableLine};
use std::fmt::Display;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// Builds forwarding tables from configurations, and helps to review and roll them out.
#[derive(Debug, Parser)]
#[command(name = "tablegen", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build a table file from a configuration
    Build(build::Args),
    /// Say whether a configuration makes sense, and what it holds
    Check(check::Args),
    /// Show what a table file holds
    Dump(dump::Args),
    /// Say why a flow goes where it goes
    Explain(explain::Args),
    /// Take over a configuration of GLB Director
    Import(import::Args),
    /// Show what changes from one table to the next, and whether it is safe
    Diff(diff::Args),
    /// Prove a table by computing it a second time, another way
    Verify(verify::Args),
    /// Hold the ways to give keys to nodes against each other; without CONFIG, as a teaching demo
    Compare(compare::Args),
    /// Find the shortest sequence of safe tables from the one in service to a configuration
    Plan(plan::Args),
    /// Play connections across a sequence of tables, and count those that break
    Simulate(simulate::Args),
    /// List a folder of tables as a history
    Log(log::Args),
    /// Have the configuration give backends no new connections; they keep those they have
    Drain(edit::Args),
    /// Have the configuration give backends new connections for a part of their weight
    Fill(edit::FillArgs),
    /// Have the configuration give backends their full share of new connections
    Activate(edit::Args),
    /// Take drained backends out of the configuration
    Remove(edit::Args),
}

impl Cli {
    /// Does what was asked for.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Build(args) => args.run(),
            Command::Check(args) => args.run(),
            Command::Dump(args) => args.run(),
            Command::Explain(args) => args.run(),
            Command::Import(args) => args.run(),
            Command::Diff(args) => args.run(),
            Command::Verify(args) => args.run(),
            Command::Compare(args) => args.run(),
            Command::Plan(args) => args.run(),
            Command::Simulate(args) => args.run(),
            Command::Log(args) => args.run(),
            Command::Drain(args) => args.run(Action::Drain),
            Command::Fill(args) => args.run(),
            Command::Activate(args) => args.run(Action::Activate),
            Command::Remove(args) => args.run(Action::Remove),
        }
    }
}

/// The exit code of a failure: 1 where a file was refused, 2 where the system failed or the usage was wrong.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let refused = error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(ConfigError::Refused { .. }))
            || matches!(cause.downcast_ref(), Some(LoadError::Table { .. }))
            || matches!(cause.downcast_ref(), Some(ConfigError::Read { cause, .. }) if is_too_large(cause))
            || cause.downcast_ref().is_some_and(is_too_large)
            || cause.is::<common::table::TableError>()
            || cause.is::<StepError>()
            || cause.is::<ExportError>()
            || cause.is::<ImportError>()
    });
    if refused { 1 } else { 2 }
}

fn is_too_large(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::FileTooLarge
}

/// Reports why the program fails.
pub fn fail(error: &anyhow::Error) {
    say("error", format_args!("{error:#}"));
}

/// One line on standard error. Names and excerpts in it may hold any character.
fn say(kind: &str, text: impl Display) {
    // A terminal that is gone is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{kind}: {}", PrintableLine(text));
}

fn warn(warnings: impl IntoIterator<Item = impl Display>) {
    warnings.into_iter().for_each(|warning| say("warning", warning));
}

/// Writes what may hold keys, and warns where others could read or replace it.
fn write_private(file: &Path, octets: &[u8]) -> anyhow::Result<()> {
    let exposures = store::write_private(file, octets);
    warn(exposures.with_context(|| format!("cannot write {}", file.display()))?);
    Ok(())
}

/// Prints a report for people.
fn print(report: impl Display) -> anyhow::Result<()> {
    written(Printable(report))
}

/// Prints a page for a browser, as it is.
fn print_page(page: &str) -> anyhow::Result<()> {
    written(page)
}

fn written(text: impl Display) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    write!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Prints a report for a script.
fn print_json(report: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, report)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Did the reader of our output go away, as `head` does when it has seen enough?
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(closed))
}
