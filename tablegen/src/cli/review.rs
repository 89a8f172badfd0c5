//! Options of every command that judges a change: limits, confirmed conditions, and a reason that overrides the verdict.

use super::plan::Time;
use crate::config::{Amount, Config};
use crate::files;
use crate::review::condition::Condition;
use crate::review::diff::{Diff, unannounced};
use crate::review::verdict::{Capacities, Judgement, Limits, ReviewVerdict, Stated};
use anyhow::{Context as _, ensure};
use common::table::ForwardingTable;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

/// Each limit holds for every table.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReviewArgs {
    /// Confirm a condition, such as 'idle(web-2)', 'gone(web-2)', 'same_host(web-2)', 'settled' or 'hop2(83 %)'. May be
    /// given several times; the report keeps it
    #[arg(long, value_name = "CONDITION")]
    accept: Vec<Condition>,
    /// Confirm that a backend is idle by the JSON status of the redirector on its host. ID is not needed if only one
    /// backend is asked for. May be given several times
    #[arg(long, value_name = "[ID=]FILE")]
    status: Vec<Status>,
    /// Time without a packet for an older connection, after which --status counts a backend as idle
    #[arg(long, value_name = "TIME", default_value = "2h")]
    idle_time: Time,
    /// Go on although the change is not safe; the report keeps the reason
    #[arg(long, value_name = "REASON", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    force: Option<String>,
    #[command(flatten)]
    limits: LimitArgs,
}

/// The limits alone.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct LimitArgs {
    /// Most rows that may change owner without the condition hop2: a number, or a percentage such as 2%
    #[arg(long, value_name = "AMOUNT", default_value = "50%")]
    max_moved: Amount,
    /// Most rows in which a backend that may hold connections may be lost
    #[arg(long, value_name = "AMOUNT", default_value = "0")]
    max_at_risk: Amount,
    /// Most rows that may change owner unnecessarily [default: no limit]
    #[arg(long, value_name = "AMOUNT")]
    max_unnecessary: Option<Amount>,
    /// Greatest ratio of a backend's rows to its rows today or to its fair share, whichever is more, among all backends
    /// that are not inactive. Four standard deviations are allowed on top, because shares vary by chance
    #[arg(long, value_name = "RATIO", value_parser = ratio, default_value = "1.5")]
    max_load: f64,
}

impl From<LimitArgs> for Limits {
    fn from(args: LimitArgs) -> Self {
        let LimitArgs { max_moved, max_at_risk, max_unnecessary, max_load } = args;
        Self { max_moved, max_at_risk, max_unnecessary, max_load }
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio: &f64| ratio.is_finite() && *ratio > 0.0);
    ratio.ok_or_else(|| format!("expected a number greater than 0 such as 1.10, found {text:?}"))
}

impl ReviewArgs {
    /// What the operator states, without what the status files confirm.
    pub(super) fn stated(&self, capacities: &Capacities) -> Stated {
        Stated {
            accepted: self.accept.clone(),
            forced: self.force.clone(),
            limits: self.limits.into(),
            capacities: capacities.clone(),
        }
    }

    /// What the operator states about this change, with what the status files confirm.
    pub(super) fn stated_on(
        &self,
        old: &ForwardingTable,
        new: &ForwardingTable,
        capacities: &Capacities,
    ) -> anyhow::Result<Stated> {
        let mut stated = self.stated(capacities);
        if self.status.is_empty() {
            return Ok(stated);
        }
        let judgement = Judgement::new(&Diff::stated(old, new, &stated), &stated);
        let asked: Vec<&str> =
            judgement.open().filter_map(|asked| asked.condition.without_connections()).collect();
        for status in &self.status {
            let id = status.backend(&asked)?;
            ensure!(
                asked.contains(&id),
                "--status {}: the change does not ask for idle({id})",
                status.file.display()
            );
            if status.is_idle(self.idle_time.seconds)? {
                stated.accepted.push(Condition::Idle(id.to_owned()));
            } else {
                let file = status.file.display();
                super::say(
                    "warning",
                    format_args!(
                        "{file}: {id} got packets of older connections within the last {}",
                        self.idle_time
                    ),
                );
            }
        }
        Ok(stated)
    }

    /// The facts of a change and the verdict on it. `announced`: backends must be listed before they own rows.
    pub(super) fn review(
        &self,
        old: &ForwardingTable,
        new: &ForwardingTable,
        capacities: &Capacities,
        announced: bool,
    ) -> anyhow::Result<(Diff, Judgement)> {
        let stated = self.stated_on(old, new, capacities)?;
        let diff = Diff::stated(old, new, &stated);
        let mut judgement = Judgement::new(&diff, &stated);
        if announced {
            judgement = judgement.with_unannounced(&unannounced(old, new), &stated);
        }
        Ok((diff, judgement))
    }
}

/// Exit code 0 safe, 3 under conditions, 1 not safe.
pub(super) fn exit_code(verdict: ReviewVerdict) -> ExitCode {
    ExitCode::from(verdict.exit_code())
}

/// Capacities that a configuration states.
pub(super) fn capacities(file: Option<&Path>) -> anyhow::Result<Capacities> {
    Ok(file.map(Config::load).transpose()?.map(|config| config.capacities).unwrap_or_default())
}

/// The status of the redirector on a backend's host.
#[derive(Clone, Debug)]
struct Status {
    id: Option<String>,
    file: PathBuf,
}

impl FromStr for Status {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (id, file) = text.split_once('=').map_or((None, text), |(id, file)| (Some(id.to_owned()), file));
        Ok(Self { id, file: file.into() })
    }
}

/// The keys of the status that say when the host last got a packet for an older connection.
#[derive(Debug, Deserialize)]
struct SecondHop {
    since_second_hop_ms: Option<u64>,
    running_ms: u64,
}

impl Status {
    fn backend<'a>(&'a self, asked: &[&'a str]) -> anyhow::Result<&'a str> {
        match (&self.id, asked) {
            (Some(id), _) => Ok(id),
            (None, [only]) => Ok(only),
            (None, []) => anyhow::bail!("--status: the change does not ask for an idle backend"),
            (None, several) => {
                anyhow::bail!("--status: name the backend, as in {}=FILE", several.join("=FILE or "))
            }
        }
    }

    /// Did the host get no packet of an older connection for this time? Before its redirector started, nothing is known.
    fn is_idle(&self, seconds: u64) -> anyhow::Result<bool> {
        let octets =
            files::octets(&self.file).with_context(|| format!("cannot read {}", self.file.display()))?;
        let status: SecondHop = serde_json::from_slice(&octets)
            .with_context(|| format!("{} is not the JSON status of a redirector", self.file.display()))?;
        let idle = status.since_second_hop_ms.unwrap_or(status.running_ms).min(status.running_ms);
        Ok(idle >= seconds.saturating_mul(1_000))
    }
}
