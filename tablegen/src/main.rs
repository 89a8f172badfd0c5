//! `tablegen`: parses the command line, runs the command, and returns its exit code.

use clap::Parser as _;
use std::process::ExitCode;
use tablegen::cli::{self, Cli};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return cli::usage(&error),
    };
    match cli.run() {
        Ok(code) => code,
        Err(error) if cli::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            cli::fail(&error);
            ExitCode::from(cli::exit_code(&error))
        }
    }
}
