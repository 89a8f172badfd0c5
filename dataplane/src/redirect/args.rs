//! `dataplane redirect`: what was typed.

use std::path::PathBuf;

use clap::Args;

use super::config::{Mode, RedirectConfig, Typed};
use super::run;

/// Takes GUE packets on a backend's host: keeps those that belong here, passes the others on
#[derive(Args, Debug)]
pub struct RedirectArgs {
    /// Configuration, for example configs/redirect.yaml
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// How packets come in, whatever the configuration says
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<Mode>,
    /// The interface for `--mode auto` and `--mode xdp`, whatever the configuration says
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Check the configuration and stop
    #[arg(long)]
    check: bool,
    /// Print the counters as JSON (on SIGUSR1 and at the end)
    #[arg(long)]
    json: bool,
}

impl RedirectArgs {
    /// Runs until SIGTERM or SIGINT.
    pub fn run(&self) -> anyhow::Result<()> {
        let typed = Typed { mode: self.mode, interface: self.interface.clone() };
        let config = RedirectConfig::read(&self.config, typed)?;
        if self.check {
            return Ok(());
        }
        run::run(config, self.json)
    }
}
