//! Facts of a [`Diff`] as sentences: what the numbers alone do not say. Reports and refusals use the same sentences.

use super::diff::{Descent, Diff, TableDiff};
use super::verdict::fail_open;
pub(crate) use super::verdict::lost_rows as risks;

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
        [true, false] => remarks.push(format!("table {name} is removed")),
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
            "table {name} was built with --settle: it lets go of owners before those of the table in service"
        ));
    }
    if table.fail_open == [true, true] {
        remarks.push(format!("table {name}: {}, as before", fail_open(table)));
    }
    if let Some(old) = &table.old_name {
        remarks.push(format!(
            "table {name} is compared with table {old} of the old file, which has the same binds"
        ));
    }
    remarks
}
