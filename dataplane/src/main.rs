//! `dataplane`: parses the command line, runs the command, prints the chain of errors, and exits.

use std::process::ExitCode;

use clap::Parser;
use dataplane::cli::Cli;
use dataplane::control::console;
use dataplane::control::exit::exit_code;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::fail(&error);
            ExitCode::from(exit_code(&error))
        }
    }
}
