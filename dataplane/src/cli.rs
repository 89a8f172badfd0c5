//! What was typed. Each command keeps its arguments in its own module; here is only the list of them, and which exit
//! code an error means.

use clap::{Parser, Subcommand};
use common::table::TableError;

#[cfg(feature = "demo")]
use crate::demo;
use crate::{
    config::{ConfigError, NotGlb},
    director, redirect, replay,
};

/// Refused, or over a limit that was set.
pub const REFUSED: u8 = 1;
/// Wrong usage (clap exits with the same), or the system said no.
pub const FAILED: u8 = 2;

/// Forwards packets by a forwarding table
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
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
    /// Does what was asked.
    ///
    /// # Errors
    /// See [`exit_code`].
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

/// 1 if what was given was read and refused, 2 for all else.
#[must_use]
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let refused = error.chain().any(|e| {
        let refused = e.downcast_ref::<ConfigError>().is_some_and(|e| !e.is_unreadable());
        refused || e.is::<TableError>() || e.is::<NotGlb>()
    });
    if refused { REFUSED } else { FAILED }
}
