//! The command line: sub-commands and their arguments. Other modules do the work.
//!
//! Each sub-command is a module with its arguments and a `run` that returns the exit code: 0 done, 1 refused or not safe,
//! 3 safe only under conditions. An error in a configuration that the user wrote also gives 1; a table that cannot be
//! read, an error of the system or of usage gives 2 ([`exit_code`]): a script must be able to distinguish a broken file
//! from a change that is not safe.

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
mod review;
mod simulate;
mod verify;

use crate::config::ConfigError;
use crate::edit::{Action, step::StepError};
use crate::glb::{ExportError, ImportError};
use crate::store;
use anyhow::Context as _;
use clap::{Parser, Subcommand};
use common::text::{Printable, PrintableLine};
use std::fmt::Display;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// Builds forwarding tables from configurations, and helps to review and roll them out.
#[derive(Debug, Parser)]
#[command(name = "tablegen", bin_name = "tablegen", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build a table file from a configuration
    Build(build::BuildArgs),
    /// Check a configuration and print a summary of it
    Check(check::CheckArgs),
    /// Print the content of a table file
    Dump(dump::DumpArgs),
    /// Explain which backends a flow goes to, and why
    Explain(explain::ExplainArgs),
    /// Convert a configuration of GLB Director
    Import(import::ImportArgs),
    /// Show the differences between two tables, and whether the change is safe
    Diff(diff::DiffArgs),
    /// Compute a table a second time with independent code, and compare
    Verify(verify::VerifyArgs),
    /// Compare hashing methods on a configuration, or on a built-in example
    Compare(compare::CompareArgs),
    /// Find a sequence of safe tables from the table in service to a configuration
    Plan(plan::PlanArgs),
    /// Simulate connections across a sequence of tables, and count those that break
    Simulate(simulate::SimulateArgs),
    /// List the tables of a folder, newest first
    Log(log::LogArgs),
    /// Set backends to draining: they get no new connections and keep the open ones
    Drain(edit::EditArgs),
    /// Set backends to filling: they get new connections for a part of their weight
    Fill(edit::FillArgs),
    /// Set backends to active: they get their full share of new connections
    Activate(edit::EditArgs),
    /// Remove drained backends from the configuration
    Remove(edit::EditArgs),
}

impl Cli {
    /// Runs the sub-command.
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

/// The exit code of a failure: 1 if a configuration was refused, 2 if a table cannot be read, the system failed or the
/// usage was wrong.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let refused = error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(ConfigError::Refused { .. }))
            || matches!(cause.downcast_ref(), Some(ConfigError::Read { cause, .. }) if is_too_large(cause))
            || cause.downcast_ref().is_some_and(is_too_large)
            || cause.is::<common::table::TableError>()
            || cause.is::<build::InService>()
            || cause.is::<StepError>()
            || cause.is::<ExportError>()
            || cause.is::<ImportError>()
    });
    if refused { 1 } else { 2 }
}

fn is_too_large(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::FileTooLarge
}

/// Prints the error that ends the program.
pub fn fail(error: &anyhow::Error) {
    say("error", format_args!("{error:#}"));
}

/// Prints the help or the version that was asked for, or what is wrong with the command line. Hidden
/// characters in the arguments are escaped.
pub fn usage(error: &clap::Error) -> ExitCode {
    let printed = if error.use_stderr() {
        write!(std::io::stderr(), "{}", Printable(error.render()))
    } else {
        error.print()
    };
    // The program ends without a terminal too.
    let _ = printed;
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(u8::MAX))
}

/// Prints one line on standard error. Hidden characters in names and excerpts are escaped.
fn say(kind: &str, text: impl Display) {
    // The program continues without a terminal.
    let _ = writeln!(std::io::stderr(), "{kind}: {}", PrintableLine(text));
}

fn warn(warnings: impl IntoIterator<Item = impl Display>) {
    warnings.into_iter().for_each(|warning| say("warning", warning));
}

/// Writes a file that may contain keys. Warns if other users can read or replace it.
fn write_private(file: &Path, octets: &[u8]) -> anyhow::Result<()> {
    let exposures = store::write_private(file, octets);
    warn(exposures.with_context(|| format!("cannot write {}", file.display()))?);
    Ok(())
}

/// Prints a report.
fn print(report: impl Display) -> anyhow::Result<()> {
    written(Printable(report))
}

/// Prints a page for a browser, unchanged.
fn print_page(page: &str) -> anyhow::Result<()> {
    written(page)
}

fn written(text: impl Display) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    write!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Prints a report as JSON.
fn print_json(report: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, report)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Whether the reader of standard output closed it, as `head` does.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(closed))
}
