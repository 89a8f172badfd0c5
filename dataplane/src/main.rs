//! `dataplane`: parses the command line, runs the command, prints the chain of errors, and exits.

use std::process::ExitCode;

use clap::Parser;
use dataplane::cli::Cli;
use dataplane::control::console;
use dataplane::control::exit::exit_code;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return console::usage(&error),
    };
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::fail(&error);
            ExitCode::from(exit_code(&error))
        }
    }
}
