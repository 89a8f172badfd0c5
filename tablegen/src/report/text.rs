//! A change as text for a terminal. The verdict comes first. With many backends, only those that change most
//! are listed.

use super::Report;
use super::changes::ChangeGroup;
use crate::format::columns::{Align, Columns};
use crate::format::natural;
use crate::format::number::{counted, grouped, percent, rows, signed};
use crate::review::diff::{BackendDiff, Failed, Failure, NO_BACKEND, Shape, TableDiff, USUAL_MTU, Version};
use crate::review::remarks::{remarks, risks};
use crate::review::verdict::{Asked, Judgement, Unsafe};
use std::cmp::Reverse;
use std::fmt;

/// Backends that are listed one by one.
const LISTED: usize = 12;
/// Configuration changes that are listed.
const CHANGES: usize = 12;

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.judgement)?;
        writeln!(f, "old {}", version(&self.diff.old))?;
        writeln!(f, "new {}", version(&self.diff.new))?;
        for remark in remarks(self.diff) {
            writeln!(f, "note: {remark}")?;
        }
        if self.certificate.is_some() {
            writeln!(
                f,
                "certificate of verify: independent code computed every row again, with the same result"
            )?;
        }
        self.diff.tables.iter().try_for_each(|table| write_table(f, table))
    }
}

impl fmt::Display for Judgement {
    /// The verdict, then why: reasons, conditions that are open, conditions that are accepted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |table: &str| if table.is_empty() { String::new() } else { format!("table {table}: ") };
        writeln!(f, "verdict: {}", self.verdict)?;
        for Unsafe { table, limit, text } in &self.reasons {
            let limit = if limit.is_empty() { String::new() } else { format!("{limit}: ") };
            writeln!(f, "  not safe: {limit}{}{text}", of(table))?;
        }
        if let Some(reason) = &self.forced {
            writeln!(f, "  forced: {reason}")?;
        }
        for asked in &self.conditions {
            let Asked { condition, table, text, .. } = asked;
            let word = if asked.is_accepted { "accepted" } else { "if" };
            writeln!(f, "  {word} {condition}: {}{text}", of(table))?;
            if !asked.is_accepted {
                writeln!(f, "     confirmed by {}; then: --accept '{condition}'", condition.confirmed_by())?;
            }
        }
        self.unneeded.iter().try_for_each(|condition| writeln!(f, "  not needed: {condition}"))
    }
}

fn version(version: &Version) -> String {
    let parent = version.parent.map_or_else(|| "none".to_owned(), |parent| parent.short());
    format!("{}  generation {}  parent {parent}", version.digest.short(), version.generation)
}

fn write_table(f: &mut fmt::Formatter<'_>, table: &TableDiff) -> fmt::Result {
    writeln!(f, "\ntable {}  {}", table.name, counted(table.rows.total, "row"))?;
    write_config(f, table)?;
    write_rows(f, table)?;
    write_backends(f, table)?;
    write_shapes(f, table)?;
    write_failures(f, table)
}

fn write_config(f: &mut fmt::Formatter<'_>, table: &TableDiff) -> fmt::Result {
    let groups = ChangeGroup::of(&table.config);
    if groups.is_empty() {
        return writeln!(f, "  config     unchanged");
    }
    writeln!(f, "  config")?;
    let mut columns = Columns::new(4, &[]);
    groups.iter().take(CHANGES).for_each(|group| columns.push([group.subject(), group.value()]));
    write!(f, "{columns}")?;
    match groups.len().saturating_sub(CHANGES) {
        0 => Ok(()),
        more => writeln!(f, "    and {more} more"),
    }
}

fn write_rows(f: &mut fmt::Formatter<'_>, table: &TableDiff) -> fmt::Result {
    let counted = &table.rows;
    let show = |part| rows(part, counted.total);
    writeln!(f, "  rows       changed {}   owner {}", show(counted.changed), show(counted.moved))?;
    writeln!(
        f,
        "             unnecessary {}   at risk {}",
        show(counted.unnecessary),
        show(counted.at_risk)
    )?;
    if counted.by_max_share > 0 {
        writeln!(f, "             by max_share {}", show(counted.by_max_share))?;
    }
    for (line, _) in risks(table).iter().zip(0..LISTED) {
        writeln!(f, "    at risk  {line}")?;
    }
    Ok(())
}

fn write_backends(f: &mut fmt::Formatter<'_>, table: &TableDiff) -> fmt::Result {
    let listed = most_changed(table, LISTED);
    let rest = table.backends.len() - listed.len();
    let mut columns =
        Columns::new(4, &[Align::Left, Align::Right, Align::Right, Align::Right, Align::Right, Align::Right]);
    columns.push(["", "before", "after", "", "share", "× fair", "gained from, lost to"]);
    for backend in &listed {
        columns.push([
            backend.id.clone(),
            grouped(backend.rows[0]),
            grouped(backend.rows[1]),
            signed(backend.rows[0], backend.rows[1]),
            percent(backend.rows[1].into(), table.rows.total.into()),
            over_fair(backend),
            flows(backend, table),
        ]);
    }
    writeln!(f, "  backends{}", if rest == 0 { "" } else { ": those that change most" })?;
    write!(f, "{columns}")?;
    match rest {
        0 => Ok(()),
        rest => writeln!(f, "    and {}", counted(rest, "other")),
    }
}

/// The backends that change most. In natural order of id if they are all shown.
pub(super) fn most_changed(table: &TableDiff, most: usize) -> Vec<&BackendDiff> {
    let mut all: Vec<&BackendDiff> = table.backends.iter().collect();
    all.sort_by(|a, b| natural(&a.id, &b.id));
    if all.len() > most {
        let turnover =
            |one: &BackendDiff| one.gained.iter().chain(&one.lost).map(|(_, rows)| rows).sum::<u32>();
        all.sort_by_key(|one| Reverse(turnover(one)));
        all.truncate(most);
    }
    all
}

/// Rows divided by the fair share, or the state of a backend that has no fair share.
fn over_fair(backend: &BackendDiff) -> String {
    match (&backend.condition[1], backend.fair[1]) {
        (None, _) => "removed".to_owned(),
        (Some(condition), fair) if fair <= 0.0 => condition.clone(),
        (_, fair) => format!("{:.3}", f64::from(backend.rows[1]) / fair),
    }
}

/// `+719 from web-3`, `−6,544 to 9, most to web-1: 742 (+11.3 %)`.
pub(super) fn flows(backend: &BackendDiff, table: &TableDiff) -> String {
    let name = |id: Option<u32>| id.map_or(NO_BACKEND, |id| table.id(id));
    let total = |list: &[(Option<u32>, u32)]| list.iter().map(|(_, rows)| rows).sum::<u32>();
    let mut parts = Vec::new();
    match backend.gained.as_slice() {
        [] => {}
        [(from, count)] => parts.push(format!("+{} from {}", grouped(*count), name(*from))),
        many => parts.push(format!("+{} from {}", grouped(total(many)), many.len())),
    }
    match backend.lost.as_slice() {
        [] => {}
        [(to, count)] => {
            parts.push(format!("−{} to {}{}", grouped(*count), name(*to), extra(*to, *count, table)))
        }
        [(to, count), ..] => parts.push(format!(
            "−{} to {}, most to {}: {}{}",
            grouped(total(&backend.lost)),
            backend.lost.len(),
            name(*to),
            grouped(*count),
            extra(*to, *count, table)
        )),
    }
    parts.join("; ")
}

/// The rows that an heir gains, relative to the rows that it had.
fn extra(heir: Option<u32>, rows: u32, table: &TableDiff) -> String {
    let had = heir.and_then(|heir| table.backends.get(heir as usize)).map_or(0, |heir| heir.rows[0]);
    if had == 0 { String::new() } else { format!(" (+{})", percent(rows.into(), had.into())) }
}

fn write_shapes(f: &mut fmt::Formatter<'_>, table: &TableDiff) -> fmt::Result {
    let [old, new] = &table.shape;
    let lengths = (0..5).filter_map(|hops| {
        let [before, after] = [old, new].map(|shape| shape.hop_lengths.get(hops).copied().unwrap_or(0));
        let change = format!("{}: {} → {}", counted(hops, "hop"), grouped(before), grouped(after));
        (before > 0 || after > 0).then_some(change)
    });
    writeln!(f, "  hop lists  {}", lengths.collect::<Vec<_>>().join("   "))?;
    let (usual, most) = new.overhead;
    write!(
        f,
        "  wire       +{usual} octets a packet in most rows, +{most} at most (before +{})",
        old.overhead.1
    )?;
    writeln!(f, "; an MTU of {USUAL_MTU} leaves {}", USUAL_MTU.saturating_sub(most))?;
    let balance = |shape: &Shape| match (shape.most_loaded, shape.least_loaded) {
        (Some((most, full)), Some((least, empty))) => {
            format!("{} {most:.3} … {} {least:.3}", table.id(full), table.id(empty))
        }
        _ => NO_BACKEND.to_owned(),
    };
    writeln!(f, "  balance    {} → {}  (× fair share, most … least loaded)", balance(old), balance(new))
}

fn write_failures(f: &mut fmt::Formatter<'_>, table: &TableDiff) -> fmt::Result {
    let zone = |failure: &Failure| matches!(failure.failed, Failed::Zone(_));
    for (kind, zones) in [("backend", false), ("zone", true)] {
        let load = |failure: &&Failure| failure.worst.map_or(f64::INFINITY, |(_, _, load)| load);
        let of_kind = table.failures.iter().filter(|failure| zone(failure) == zones);
        if let Some(worst) = of_kind.max_by(|a, b| load(a).total_cmp(&load(b))) {
            writeln!(f, "  if a {kind:<7} fails next, at worst {}", failure(worst, table))?;
        }
    }
    Ok(())
}

/// `web-2 (7,221 rows): web-1 owns 7,400 rows, 1.13 × its fair share`.
pub(super) fn failure(failure: &Failure, table: &TableDiff) -> String {
    let failed = match &failure.failed {
        Failed::Backend(id) => table.id(*id),
        Failed::Zone(zone) => zone,
    };
    let rows = counted(failure.rows, "row");
    match failure.worst {
        None => format!("{failed} ({rows}): no backend is left"),
        Some((survivor, owns, load)) => {
            format!(
                "{failed} ({rows}): {} owns {}, {load:.3} × its fair share",
                table.id(survivor),
                grouped(owns)
            )
        }
    }
}
