//! The command line: the list of commands. Each command's module defines its arguments.

use clap::{Parser, Subcommand};

#[cfg(feature = "demo")]
use crate::testkit::demo;
use crate::{director, redirect, replay};

/// Forward packets by a forwarding table
#[derive(Debug, Parser)]
#[command(bin_name = "dataplane", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "demo")]
    Demo(demo::DemoArgs),
    Redirect(redirect::args::RedirectArgs),
    Replay(replay::Args),
    Run(director::RunArgs),
    Status(director::StatusArgs),
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// See [`exit_code`](crate::control::exit::exit_code).
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            #[cfg(feature = "demo")]
            Command::Demo(args) => args.run(),
            Command::Redirect(args) => args.run(),
            Command::Replay(args) => args.run(),
            Command::Run(args) => args.run(),
            Command::Status(args) => args.run(),
        }
    }
}
