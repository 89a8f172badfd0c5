//! Facts of a [`Diff`] as sentences: what the numbers alone do not say. Reports and refusals use the same sentences.

use super::diff::{ConfigChange, Descent, Diff, Risk, Subject, TableDiff};
use crate::format::number::counted;
use crate::format::{listed, natural};

/// Ids that a sentence lists before it says `and N more`.
const LISTED_IDS: usize = 8;

/// Remarks on the whole change, then on each table; one sentence each, without a full stop.
pub(crate) fn remarks(diff: &Diff) -> Vec<String> {
    let old = diff.old.digest.short();
    let descent = match (diff.descent, diff.new.parent) {
        (Descent::Child, _) => None,
        (Descent::Same, _) => Some("both files are the same table".to_owned()),
        (Descent::Stranger, Some(parent)) => {
            Some(format!("the new table was built from {}, not from {old}", parent.short()))
        }
        (Descent::Rootless | Descent::Stranger, _) => Some(format!(
            "the new table was built without --previous {old}, so it does not know former owners"
        )),
    };
    descent.into_iter().chain(diff.tables.iter().flat_map(table_remarks)).collect()
}

fn table_remarks(table: &TableDiff) -> Vec<String> {
    let name = &table.name;
    let mut remarks = Vec::new();
    match table.present {
        [true, false] => {
            remarks.push(format!("table {name} is removed: directors no longer forward its binds"))
        }
        [false, true] => remarks.push(format!("table {name} is new")),
        _ => {}
    }
    if table.rows.rehashed {
        remarks.push(format!(
            "table {name}: the hash key or the hash fields changed, so every flow uses another row"
        ));
    }
    if table.rows.settled {
        remarks.push(format!(
            "table {name} was built with --settle: owners before the last are assumed to hold no connections"
        ));
    }
    remarks.extend(removed(table, "bind").filter_map(|change| change.old.as_ref()).map(|bind| {
        format!(
            "table {name}: {bind} is no longer bound; its connections end unless another bind matches them"
        )
    }));
    let mut drained: Vec<String> =
        removed(table, "backend").filter_map(|change| drained(change, table)).collect();
    drained.sort_by(|a, b| natural(a, b));
    if !drained.is_empty() {
        let ids = listed(&drained, LISTED_IDS);
        remarks.push(format!("table {name}: connections that {ids} still holds end when it is removed"));
    }
    remarks
}

fn removed<'t>(table: &'t TableDiff, key: &'static str) -> impl Iterator<Item = &'t ConfigChange> {
    table.config.iter().filter(move |change| change.key == key && change.new.is_none())
}

/// The id of a removed backend whose removal is no risk that [`risks`] lists already.
fn drained(change: &ConfigChange, table: &TableDiff) -> Option<String> {
    let Subject::Backend(id) = &change.subject else { return None };
    let cut = table.rows.risks.keys().any(|(number, risk)| *risk == Risk::Cut && table.id(*number) == id);
    (table.present == [true, true] && !cut).then(|| id.clone())
}

/// One sentence for each backend and reason, most rows first.
pub(crate) fn risks(table: &TableDiff) -> Vec<String> {
    let mut risks: Vec<_> = table.rows.risks.iter().collect();
    let id = |(backend, _): &(u32, Risk)| table.id(*backend);
    risks.sort_by(|(a, a_rows), (b, b_rows)| {
        b_rows.cmp(a_rows).then_with(|| natural(id(a), id(b))).then(a.cmp(b))
    });
    risks.into_iter().map(|((backend, risk), rows)| sentence(table.id(*backend), *risk, *rows)).collect()
}

fn sentence(id: &str, risk: Risk, rows: u32) -> String {
    let rows = counted(rows, "row");
    match risk {
        Risk::Dropped => format!("{id} may hold connections of {rows} and is no longer a hop there"),
        Risk::Cut => format!("{id} leaves {rows} while it accepts connections: drain it first"),
        Risk::Rehashed => format!("{id} may hold connections of {rows} whose flows use other rows now"),
    }
}
