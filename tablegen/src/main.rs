//! `tablegen`: parse what was typed, do it, and say in the exit code how it went.

use clap::Parser as _;
use std::process::ExitCode;
use tablegen::cli::{self, Cli};

fn main() -> ExitCode {
    Cli::parse().run().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(cli::exit_code(&error))
    })
}
