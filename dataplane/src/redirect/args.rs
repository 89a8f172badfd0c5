//! `dataplane redirect`: what was typed.

use std::path::PathBuf;

use clap::Args;

use super::config::RedirectConfig;
use super::run;

/// Takes GUE packets on a backend's host: keeps those that belong here, passes the others on.
#[derive(Args, Debug)]
pub struct RedirectArgs {
    /// Configuration, for example configs/redirect.yaml.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and stop.
    #[arg(long)]
    check: bool,
    /// Print counters as JSON (on SIGUSR1 and at exit).
    #[arg(long)]
    json: bool,
}

impl RedirectArgs {
    /// Runs until SIGTERM or SIGINT.
    pub fn run(&self) -> anyhow::Result<()> {
        let config = RedirectConfig::read(&self.config)?;
        if self.check {
            return Ok(());
        }
        run::run(config, self.json)
    }
}
