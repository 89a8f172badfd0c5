//! `tablegen plan`.

use super::review::LimitArgs;
use crate::config::Config;
use crate::edit::{Layout, relocate, rewrite};
use crate::format::number::{counted, either, percent};
use crate::format::{listed, natural};
use crate::review::plan::{Joining, PlanStep, Wait, Watch, plan_within};
use crate::review::verdict::{ReviewVerdict, Stated};
use crate::{files, progress, store};
use anyhow::{Context as _, ensure};
use common::table::ForwardingTable;
use serde_json::json;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    /// Table in service
    current: PathBuf,
    /// Target configuration
    target: PathBuf,
    /// Lifetime of the longest connection, such as 90s, 30m, 2h or 1d
    #[arg(long, value_name = "TIME", default_value = "2h")]
    longest_connection: Time,
    /// Fill new backends in steps of these percentages, in ascending order, such as 10,50
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=99))]
    fill: Vec<u8>,
    /// Give rows only to backends that are hops of them in the table before, so that connections survive a
    /// move between directors during a rollout. New backends and those that gain weight drain for one step
    /// first
    #[arg(long, conflicts_with = "fill")]
    announce: bool,
    #[command(flatten)]
    limits: LimitArgs,
    /// Write the configuration and the table of each step to this folder, and the plan as plan.txt
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

impl PlanArgs {
    /// Exit code 1 if there is no safe plan.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        ensure!(self.fill.is_sorted(), "--fill must be in ascending order");
        let current = store::load(&self.current)?;
        let mut target = Config::load(&self.target)?;
        super::warn(target.keep_rows_of(&current));
        let joining = match self.fill.as_slice() {
            [] if self.announce => Joining::Announced,
            [] => Joining::AtOnce,
            percents => Joining::Filled(percents.to_vec()),
        };
        let stated = Stated { limits: self.limits.into(), ..Stated::default() };
        let steps = match progress::shown("plan", |_| plan_within(&current, &target, &joining, &stated)) {
            Ok(steps) => steps,
            Err(error) => {
                super::say("refused", &error);
                return Ok(ExitCode::FAILURE);
            }
        };
        if let Some(folder) = &self.out {
            self.write(folder, &steps)?;
        }
        if self.json {
            super::print_json(&self.entries(&steps))?;
        } else {
            super::print(self.text(&steps))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn text(&self, steps: &[PlanStep]) -> String {
        let mut text = match steps.len() {
            0 => "no steps: the table in service has the target configuration\n".to_owned(),
            count => {
                let conditional = |step: &&PlanStep| step.judgement.verdict == ReviewVerdict::SafeIf;
                match steps.iter().filter(conditional).count() {
                    0 => format!("{}\n", counted(count, "safe step")),
                    some => format!(
                        "{}, {} of them under conditions\n",
                        counted(count, "safe step"),
                        if some == count { "all".to_owned() } else { some.to_string() }
                    ),
                }
            }
        };
        let mut before = None;
        for (step, number) in steps.iter().zip(1..) {
            let settle = if step.settle { ", built with --settle" } else { "" };
            text += &format!("\n{number}  {}\n", self.wait(step, before));
            text += &format!("     table {}{settle}", step.table.digest().short());
            text += &self.files(number).map_or_else(
                || "\n".to_owned(),
                |[config, table]| format!(": {}, of {}\n", table.display(), config.display()),
            );
            let shown = 8.min(step.changes.len());
            step.changes.iter().take(shown).for_each(|change| text += &format!("     {change}\n"));
            if shown < step.changes.len() {
                text += &format!("     and {} more\n", counted(step.changes.len() - shown, "change"));
            }
            let change = either(step.diff.moved(), "changes", "change");
            let moved = percent(step.diff.moved() as f64, step.diff.total() as f64);
            text +=
                &format!("     {} ({moved}) {change} owner, 0 at risk", counted(step.diff.moved(), "row"));
            text += &worst(step).map_or_else(
                || "\n".to_owned(),
                |(id, load)| format!("; most loaded {id}, {load:.3} × its fair share\n"),
            );
            for asked in step.judgement.open() {
                text += &format!("     if {}: {}\n", asked.condition, asked.text);
            }
            before = Some(&step.table);
        }
        text
    }

    /// The condition for a step to begin. `before` is the table of the step before.
    fn wait(&self, step: &PlanStep, before: Option<&ForwardingTable>) -> String {
        let before = before.map_or_else(String::new, |table| table.digest().short());
        match step.wait {
            Wait::None => "now".to_owned(),
            Wait::Rollout => format!("when `dataplane status` of every director shows table {before}"),
            Wait::Connections => self.until_ended(step, &before),
        }
    }

    fn until_ended(&self, step: &PlanStep, before: &str) -> String {
        let time = &self.longest_connection;
        let table = if before.is_empty() { "the table in service" } else { &format!("table {before}") };
        let mut watch: Vec<&Watch> = step.watch.iter().collect();
        watch.sort_by(|a, b| natural(&a.id, &b.id));
        let mut ids: Vec<String> = watch.iter().map(|one| one.id.clone()).collect();
        let mut hosts: Vec<String> = watch.iter().map(|one| one.address.to_string()).collect();
        ids.dedup();
        hosts.dedup();
        if ids.is_empty() {
            return format!("{time} after every director has {table}");
        }
        format!(
            "when the connections have ended that {} may still hold from before {table}:\n     \
             {time} after every director has it, or as soon as \"last kept on the second hop\" is longer ago\n     \
             than a connection may be idle, in `dataplane status` of {}",
            listed(&ids, 8),
            listed(&hosts, 8)
        )
    }

    fn entries(&self, steps: &[PlanStep]) -> Vec<serde_json::Value> {
        let entry = |(step, number): (&PlanStep, usize)| {
            let files = self.files(number).map(|files| files.map(|file| file.display().to_string()));
            json!({
                "wait": step.wait,
                "wait_seconds": if step.wait == Wait::Connections { self.longest_connection.seconds } else { 0 },
                "watch": step.watch.iter().map(|one| json!({
                    "table": one.table,
                    "id": one.id,
                    "address": one.address,
                    "counter": "kept_on_second_hop_from",
                })).collect::<Vec<_>>(),
                "settle": step.settle,
                "changes": step.changes,
                "digest": step.table.digest().to_string(),
                "config": files.as_ref().map(|[config, _]| config),
                "table": files.as_ref().map(|[_, table]| table),
                "verdict": step.judgement.verdict.name(),
                "conditions": crate::report::json::judgement(&step.judgement)["conditions"],
                "moved": step.diff.moved(),
                "at_risk": step.diff.at_risk(),
                "fullest": worst(step).map(|(id, load)| json!({"id": id, "load": load})),
            })
        };
        steps.iter().zip(1..).map(entry).collect()
    }

    /// The configuration file and the table file of a step, if they are written.
    fn files(&self, number: usize) -> Option<[PathBuf; 2]> {
        let folder = self.out.as_ref()?;
        Some(["yaml", "table"].map(|kind| folder.join(format!("step-{number}.{kind}"))))
    }

    /// Writes `step-1.yaml` and `step-1.table`, `step-2.yaml` and so on. Each table is the parent of the
    /// next.
    fn write(&self, folder: &Path, steps: &[PlanStep]) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for file in (1..=steps.len()).filter_map(|number| self.files(number)).flatten() {
            self.spare_sources(&file)?;
        }
        // Steps of a longer plan would look like those after this one's last.
        for left in self.files(steps.len() + 1).into_iter().flatten() {
            ensure!(!left.exists(), "{} belongs to another plan: remove it first", left.display());
        }
        let texts = self.texts(folder, steps)?;
        for ((step, text), number) in steps.iter().zip(texts).zip(1..) {
            let contents = [text.into_bytes(), step.table.encode()];
            for (file, content) in self.files(number).into_iter().flatten().zip(contents) {
                super::write_private(&file, &content)?;
            }
        }
        super::write_private(&folder.join("plan.txt"), self.text(steps).as_bytes())
    }

    /// Refuses to overwrite the table in service and the target. Steps of an earlier plan are overwritten.
    fn spare_sources(&self, file: &Path) -> anyhow::Result<()> {
        let Ok(there) = file.canonicalize() else { return Ok(()) };
        for source in [&self.current, &self.target] {
            let same = source.canonicalize().is_ok_and(|source| source == there);
            ensure!(!same, "{} would be overwritten by a step: choose another folder", source.display());
        }
        Ok(())
    }

    /// The configuration of each step: the text of the target with other values.
    fn texts(&self, folder: &Path, steps: &[PlanStep]) -> anyhow::Result<Vec<String>> {
        let text = files::text(&self.target).context("cannot read the target again")?;
        let home = self.target.parent().filter(|home| *home != Path::new("")).unwrap_or(Path::new("."));
        let [home, folder] = [home, folder].map(std::fs::canonicalize);
        let (home, folder) = (home?, folder?);
        let step = |step: &PlanStep| {
            let text = rewrite(&text, &self.target, &step.specs, Layout::RewriteLists)?;
            Ok(relocate(&text, &home, &folder)?)
        };
        steps.iter().map(step).collect()
    }
}

/// A duration as given on the command line.
#[derive(Clone, Debug)]
pub(super) struct Time {
    text: String,
    pub(super) seconds: u64,
}

impl FromStr for Time {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ALLOWED: &str = "a whole number of s, m, h or d, such as 90s or 2h";
        let units = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];
        let seconds = units.into_iter().find_map(|(unit, seconds)| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            number.checked_mul(seconds)
        });
        Ok(Self { text: text.to_owned(), seconds: seconds.ok_or(ALLOWED)? })
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn worst(step: &PlanStep) -> Option<(String, f64)> {
    let of_table = |table: &crate::review::diff::TableDiff| {
        let (load, id) = table.shape[1].most_loaded?;
        Some((table.id(id).to_owned(), load))
    };
    step.diff.tables.iter().filter_map(of_table).max_by(|a, b| a.1.total_cmp(&b.1))
}
