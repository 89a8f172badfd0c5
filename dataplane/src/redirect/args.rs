//! `dataplane redirect`: its command line.

use std::path::PathBuf;

use clap::Args;

use super::config::{Mode, Overrides, RedirectConfig};
use super::run;

/// Receive GUE packets on a backend host: accept those whose connection is here, forward the others
#[derive(Args, Debug)]
pub struct RedirectArgs {
    /// Configuration, for example configs/redirect.yaml
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Receive mode; overrides `mode` of the configuration
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<Mode>,
    /// Interface for `--mode auto` and `--mode xdp`; overrides `interface` of the configuration
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Check the configuration and exit
    #[arg(long)]
    check: bool,
    /// Print the counters as JSON, on SIGUSR1 and at exit [default: text]
    #[arg(long)]
    json: bool,
}

impl RedirectArgs {
    /// Runs until SIGTERM or SIGINT.
    pub fn run(&self) -> anyhow::Result<()> {
        let overrides = Overrides { mode: self.mode, interface: self.interface.clone() };
        let config = RedirectConfig::read(&self.config, overrides)?;
        if self.check {
            return Ok(());
        }
        run::run(config, self.json)
    }
}
