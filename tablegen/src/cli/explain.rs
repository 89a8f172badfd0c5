//! `tablegen explain`.

use crate::review::explain::{self, Explanation, Flow};
use crate::{files, store};
use anyhow::Context as _;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct ExplainArgs {
    /// Table file
    table: PathBuf,
    /// Flow, for example "tcp 198.51.100.7:51234 > 203.0.113.10:443"
    #[arg(required_unless_present = "pcap", conflicts_with = "pcap")]
    flow: Option<Flow>,
    /// Explain the flows of this capture that match a bind
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Number of flows to explain
    #[arg(long, value_name = "N", default_value_t = 10, requires = "pcap")]
    flows: usize,
    /// Print the explanation as JSON
    #[arg(long)]
    json: bool,
}

impl ExplainArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let table = store::load(&self.table)?;
        let explained: Vec<Explanation> = match (&self.flow, &self.pcap) {
            (Some(flow), _) => vec![explain::explain(&table, flow)],
            (None, Some(file)) => {
                let (open, _) = files::opened(file).with_context(|| file.display().to_string())?;
                let wanted = |flow: &Flow| explain::explain(&table, flow).matched.is_some();
                let capture =
                    explain::flows(open, self.flows, wanted).with_context(|| file.display().to_string())?;
                super::say(
                    "capture",
                    format_args!("{} packets read; {} belong to no flow", capture.packets, capture.others),
                );
                capture.flows.iter().map(|flow| explain::explain(&table, flow)).collect()
            }
            // Clap asks for one of the two.
            (None, None) => Vec::new(),
        };
        match (explained.as_slice(), self.json) {
            ([one], true) if self.flow.is_some() => super::print_json(one)?,
            (all, true) => super::print_json(&all)?,
            (all, false) => all.iter().try_for_each(super::print)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
