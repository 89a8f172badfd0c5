//! `dataplane run` and `dataplane status`: their command lines.

use std::io;
use std::path::PathBuf;

use super::{Director, Options};
use crate::control::config::{Mode, control_of};
use crate::control::console;
use crate::control::socket::{self, Format};

/// Encapsulate clients' packets for the backends of a forwarding table
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Configuration, for example configs/dataplane.yaml
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and the table, and exit
    #[arg(long)]
    check: bool,
    /// Accept a table that is older than the running one [default: refuse]
    #[arg(long)]
    allow_rollback: bool,
    /// Forwarding mode: auto, xdp, af-packet or pnet; overrides `mode` of the configuration
    #[arg(long, value_name = "MODE", value_parser = Mode::from_name)]
    mode: Option<Mode>,
    /// Print the counters as JSON, on SIGUSR1 and at exit [default: text]
    #[arg(long)]
    json: bool,
}

impl RunArgs {
    /// Runs until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// If the configuration or the table is refused, or a system call fails.
    pub fn run(&self) -> anyhow::Result<()> {
        if self.check {
            return Director::check(&self.config);
        }
        let options = Options { mode: self.mode, allow_rollback: self.allow_rollback, json: self.json };
        Director::start(&self.config, options)?.run()
    }
}

/// Show the counters of a running director or redirector
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("target").required(true))]
pub struct StatusArgs {
    /// Configuration of the running program; its `control` is the socket to connect to
    #[arg(long, value_name = "FILE", group = "target")]
    config: Option<PathBuf>,
    /// Control socket of the running program
    #[arg(long, value_name = "SOCKET", group = "target")]
    control: Option<PathBuf>,
    /// Print JSON [default: text]
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    /// Queries the program and prints its reply.
    ///
    /// # Errors
    /// If no program answers on the socket.
    pub fn run(&self) -> anyhow::Result<()> {
        let path = match (&self.control, &self.config) {
            (Some(path), _) => path.clone(),
            (None, Some(config)) => control_of(config)?,
            (None, None) => anyhow::bail!("neither --config nor --control"),
        };
        let format = if self.json { Format::Json } else { Format::Text };
        let answer = socket::query(&path, format).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::PermissionDenied => "only root and the user that runs the program may connect",
                _ => "no program answers; is it running?",
            };
            anyhow::Error::new(error).context(format!("{}: {why}", path.display()))
        })?;
        console::show(&answer, format);
        Ok(())
    }
}
