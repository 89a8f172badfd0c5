//! A change as JSON. Shares are numbers from 0 to 1; a load is a number of rows divided by the fair share.

use super::Report;
use crate::review::diff::{Descent, Failed, Shape, Subject, TableDiff, USUAL_MTU, Version};
use crate::review::holders::Cause;
use crate::review::remarks::remarks;
use crate::review::verdict::{Asked, Judgement, Unsafe};
use serde_json::{Value, json};

/// The whole report.
pub(crate) fn value(report: &Report<'_>) -> Value {
    let diff = report.diff;
    let mut value = judgement(report.judgement);
    let facts = json!({
        "at_risk": diff.at_risk(),
        "moved": diff.moved(),
        "rows": diff.total(),
        "old": version(&diff.old),
        "new": version(&diff.new),
        "descent": descent(diff.descent),
        "notes": remarks(diff),
        "certificate": report.certificate,
        "tables": diff.tables.iter().map(table).collect::<Vec<_>>(),
    });
    if let (Some(value), Value::Object(facts)) = (value.as_object_mut(), facts) {
        value.extend(facts);
    }
    value
}

/// The verdict, and what it follows from.
pub(crate) fn judgement(judgement: &Judgement) -> Value {
    let asked = |asked: &Asked| {
        json!({
            "condition": asked.condition.to_string(),
            "table": asked.table,
            "text": asked.text,
            "rows": asked.rows,
            "share": asked.share,
            "accepted": asked.is_accepted,
            "confirmed_by": asked.condition.confirmed_by(),
        })
    };
    let reason = |reason: &Unsafe| json!({"table": reason.table, "limit": reason.limit, "text": reason.text});
    json!({
        "verdict": judgement.verdict.name(),
        "outcome": judgement.outcome().name(),
        "conditions": judgement.conditions.iter().map(asked).collect::<Vec<_>>(),
        "reasons": judgement.reasons.iter().map(reason).collect::<Vec<_>>(),
        "forced": judgement.forced,
        "unneeded": judgement.unneeded.iter().map(ToString::to_string).collect::<Vec<_>>(),
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
        "old_name": table.old_name,
        "fail_open": {"old": table.fail_open[0], "new": table.fail_open[1]},
        "present": {"old": table.present[0], "new": table.present[1]},
        "config": table.config.iter().map(change).collect::<Vec<_>>(),
        "rows": {
            "total": rows.total,
            "changed": rows.changed,
            "moved": rows.moved,
            "unnecessary": rows.unnecessary,
            "by_max_share": rows.by_max_share,
            "at_risk": rows.at_risk,
            "expected_at_risk": rows.expected,
            "rehashed": rows.rehashed,
            "settled": rows.settled,
        },
        "breaks": rows.breaks.iter().map(|((backend, cause), breaks)| json!({
            "backend": table.id(*backend),
            "cause": cause_name(*cause),
            "risk": cause.is_risk(),
            "rows": breaks.rows,
            "expected_rows": breaks.expected,
        })).collect::<Vec<_>>(),
        "backends": table.backends.iter().map(|backend| backend_value(backend, table)).collect::<Vec<_>>(),
        "before": shape(&table.shape[0], table),
        "after": shape(&table.shape[1], table),
        "failures": table.failures.iter().map(|failure| failure_value(failure, table)).collect::<Vec<_>>(),
    })
}

const fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Dropped => "dropped",
        Cause::Cut => "cut",
        Cause::Rehashed => "rehashed",
        Cause::Taken => "address_taken",
        Cause::Left => "left",
        Cause::Renumbered => "renumbered",
        Cause::Older => "older",
        Cause::KnownGone => "known_gone",
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
