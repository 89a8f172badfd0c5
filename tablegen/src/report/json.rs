//! A change as JSON. Shares are numbers from 0 to 1; a load is a number of rows divided by the fair share.

use super::Report;
use crate::review::diff::{Descent, Failed, Risk, Shape, Subject, TableDiff, USUAL_MTU, Version};
use crate::review::remarks::remarks;
use serde_json::{Value, json};

/// The whole report.
pub(crate) fn value(report: &Report<'_>) -> Value {
    let diff = report.diff;
    let excess = |excess: &crate::review::verdict::Excess| json!({"table": excess.table, "limit": excess.limit, "text": excess.text});
    json!({
        "verdict": report.verdict.name(),
        "over": report.excesses.iter().map(excess).collect::<Vec<_>>(),
        "at_risk": diff.at_risk(),
        "moved": diff.moved(),
        "rows": diff.total(),
        "old": version(&diff.old),
        "new": version(&diff.new),
        "descent": descent(diff.descent),
        "notes": remarks(diff),
        "certificate": report.certificate,
        "tables": diff.tables.iter().map(table).collect::<Vec<_>>(),
    })
}

fn version(version: &Version) -> Value {
    json!({
        "digest": version.digest.to_string(),
        "generation": version.generation,
        "parent": version.parent.map(|parent| parent.to_string()),
    })
}

const fn descent(descent: Descent) -> &'static str {
    match descent {
        Descent::Same => "same",
        Descent::Child => "child",
        Descent::Rootless => "rootless",
        Descent::Stranger => "stranger",
    }
}

fn table(table: &TableDiff) -> Value {
    let rows = &table.rows;
    json!({
        "name": table.name,
        "present": {"old": table.present[0], "new": table.present[1]},
        "config": table.config.iter().map(change).collect::<Vec<_>>(),
        "rows": {
            "total": rows.total,
            "changed": rows.changed,
            "moved": rows.moved,
            "unnecessary": rows.unnecessary,
            "by_max_share": rows.by_max_share,
            "at_risk": rows.at_risk,
            "rehashed": rows.rehashed,
            "settled": rows.settled,
        },
        "risks": rows.risks.iter().map(|((backend, risk), count)| json!({
            "backend": table.id(*backend),
            "reason": reason(*risk),
            "rows": count,
        })).collect::<Vec<_>>(),
        "backends": table.backends.iter().map(|backend| backend_value(backend, table)).collect::<Vec<_>>(),
        "before": shape(&table.shape[0], table),
        "after": shape(&table.shape[1], table),
        "failures": table.failures.iter().map(|failure| failure_value(failure, table)).collect::<Vec<_>>(),
    })
}

/// Name of a reason.
pub(crate) const fn reason(risk: Risk) -> &'static str {
    match risk {
        Risk::Dropped => "dropped",
        Risk::Cut => "cut",
        Risk::Rehashed => "rehashed",
    }
}

fn change(change: &crate::review::diff::ConfigChange) -> Value {
    let (kind, id) = match &change.subject {
        Subject::Table => ("table", None),
        Subject::Bind => ("bind", None),
        Subject::Backend(id) => ("backend", Some(id)),
    };
    json!({"of": kind, "id": id, "key": change.key, "old": change.old, "new": change.new})
}

fn backend_value(backend: &crate::review::diff::BackendDiff, table: &TableDiff) -> Value {
    let flows = |list: &[(Option<u32>, u32)]| -> Vec<Value> {
        list.iter().map(|(id, rows)| json!({"id": id.map(|id| table.id(id)), "rows": rows})).collect()
    };
    let share = |side: usize| f64::from(backend.rows[side]) / f64::from(table.rows.total.max(1));
    json!({
        "id": backend.id,
        "condition": {"old": backend.condition[0], "new": backend.condition[1]},
        "rows": {"old": backend.rows[0], "new": backend.rows[1]},
        "share": {"old": share(0), "new": share(1)},
        "fair_rows": {"old": backend.fair[0], "new": backend.fair[1]},
        "gained": flows(&backend.gained),
        "lost": flows(&backend.lost),
    })
}

fn shape(shape: &Shape, table: &TableDiff) -> Value {
    let load =
        |extreme: Option<(f64, u32)>| extreme.map(|(load, id)| json!({"id": table.id(id), "load": load}));
    json!({
        "rows": shape.rows,
        "hop_lengths": shape.hop_lengths,
        "overhead": {"usual": shape.overhead.0, "most": shape.overhead.1},
        "mtu_left": USUAL_MTU.saturating_sub(shape.overhead.1),
        "fullest": load(shape.most_loaded),
        "emptiest": load(shape.least_loaded),
    })
}

fn failure_value(failure: &crate::review::diff::Failure, table: &TableDiff) -> Value {
    let (kind, id) = match &failure.failed {
        Failed::Backend(id) => ("backend", table.id(*id)),
        Failed::Zone(zone) => ("zone", zone.as_str()),
    };
    let worst = failure.worst.map(|(id, rows, load)| json!({"id": table.id(id), "rows": rows, "load": load}));
    json!({"failed": kind, "id": id, "rows": failure.rows, "heirs": failure.heirs, "worst": worst})
}
