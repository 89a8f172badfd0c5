//! `dataplane run` and `dataplane status`: what was typed.

use std::io;
use std::path::PathBuf;

use super::{Director, Options};
use crate::control::config::{Mode, control_of};
use crate::control::console;
use crate::control::socket::{self, Format};

/// Encapsulates clients' packets for the backends of a forwarding table
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Configuration, for example configs/dataplane.yaml
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and the table, and stop
    #[arg(long)]
    check: bool,
    /// Take over a table that is older than the running one
    #[arg(long)]
    allow_rollback: bool,
    /// How frames are forwarded, whatever the configuration says: auto, xdp, af-packet or pnet
    #[arg(long, value_name = "MODE", value_parser = Mode::from_name)]
    mode: Option<Mode>,
    /// Print the counters as JSON (on SIGUSR1 and at the end)
    #[arg(long)]
    json: bool,
}

impl RunArgs {
    /// Runs until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// If the configuration or the table is refused, or the system says no.
    pub fn run(&self) -> anyhow::Result<()> {
        if self.check {
            return Director::check(&self.config);
        }
        let options = Options { mode: self.mode, allow_rollback: self.allow_rollback, json: self.json };
        Director::start(&self.config, options)?.run()
    }
}

/// Shows what a running director or redirector counted
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("whom").required(true))]
pub struct StatusArgs {
    /// The program's configuration, which says where it listens
    #[arg(long, value_name = "FILE", group = "whom")]
    config: Option<PathBuf>,
    /// Its control socket
    #[arg(long, value_name = "SOCKET", group = "whom")]
    control: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    /// Asks and prints.
    ///
    /// # Errors
    /// If nobody answers there.
    pub fn run(&self) -> anyhow::Result<()> {
        let path = match (&self.control, &self.config) {
            (Some(path), _) => path.clone(),
            (None, Some(config)) => control_of(config)?,
            (None, None) => anyhow::bail!("neither --config nor --control"),
        };
        let format = if self.json { Format::Json } else { Format::Text };
        let answer = socket::ask(&path, format).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::PermissionDenied => "only root and the user that runs it may ask",
                _ => "nobody answers, is it running?",
            };
            anyhow::Error::new(error).context(format!("{}: {why}", path.display()))
        })?;
        console::show(&answer, format);
        Ok(())
    }
}
