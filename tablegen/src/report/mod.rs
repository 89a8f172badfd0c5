//! A diff for people and for machines: [`text`] for a terminal, [`json`] for scripts, [`html`] for a review.

pub mod columns;
pub mod html;
pub mod json;
pub mod natural;
pub mod number;
pub mod text;

use crate::diff::{Change, Diff, Excess, Subject, Verdict};
use natural::natural;
use std::collections::BTreeMap;

/// What is reported: the change, and the answer.
#[derive(Debug)]
pub struct Report<'a> {
    /// The change.
    pub diff: &'a Diff,
    /// The answer.
    pub verdict: Verdict,
    /// Limits that are broken.
    pub excesses: &'a [Excess],
    /// The proof of the new table by `verify`, as it was written there.
    pub certificate: Option<&'a serde_json::Value>,
}

/// Changes that are alike but for the backend, together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeGroup {
    /// What changed: ids of backends, or empty for the table itself and its binds.
    pub ids: Vec<String>,
    /// The key in the configuration.
    pub key: &'static str,
    /// Before.
    pub old: Option<String>,
    /// After.
    pub new: Option<String>,
}

impl ChangeGroup {
    /// Groups changes; those of the table come first, then backends in order of the first id.
    pub fn of(changes: &[Change]) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        let mut by_value = BTreeMap::<(&str, Option<&str>, Option<&str>), usize>::new();
        for change in changes {
            let Subject::Backend(id) = &change.subject else {
                groups.push(Self::new(change, Vec::new()));
                continue;
            };
            let value = (change.key, change.old.as_deref(), change.new.as_deref());
            match by_value.get(&value).and_then(|at| groups.get_mut(*at)) {
                Some(group) => group.ids.push(id.clone()),
                None => {
                    by_value.insert(value, groups.len());
                    groups.push(Self::new(change, vec![id.clone()]));
                }
            }
        }
        groups.iter_mut().for_each(|group| group.ids.sort_by(|a, b| natural(a, b)));
        groups.sort_by(|a, b| match (a.ids.first(), b.ids.first()) {
            (Some(a), Some(b)) => natural(a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        });
        groups
    }

    fn new(change: &Change, ids: Vec<String>) -> Self {
        Self { ids, key: change.key, old: change.old.clone(), new: change.new.clone() }
    }

    /// `web-1, web-2 and 7 more`; the key of a change that is about no backend.
    pub fn subject(&self) -> String {
        match self.ids.as_slice() {
            [] => self.key.to_owned(),
            ids => some_of(ids, 8),
        }
    }

    /// `state: active → draining`.
    pub fn value(&self) -> String {
        let change = match (&self.old, &self.new) {
            (Some(old), Some(new)) => format!("{old} → {new}"),
            (None, Some(new)) => format!("added: {new}"),
            (Some(old), None) => format!("removed: {old}"),
            (None, None) => String::new(),
        };
        if self.ids.is_empty() || self.key == "backend" { change } else { format!("{}: {change}", self.key) }
    }
}

/// The first few of a list, and how many there are besides.
pub fn some_of(ids: &[String], most: usize) -> String {
    match ids.get(..most) {
        Some(few) if few.len() < ids.len() => format!("{} and {} more", few.join(", "), ids.len() - most),
        _ => ids.join(", "),
    }
}

/// What the numbers alone do not say; each a sentence.
pub fn remarks(diff: &Diff) -> Vec<String> {
    use crate::diff::Descent;
    let mut all = Vec::new();
    match diff.descent {
        Descent::Same => all.push("both files are the same table".to_owned()),
        Descent::Child => {}
        Descent::Rootless => all.push(format!(
            "the new table was built without --previous {}: it knows no former owners",
            diff.old.digest.short()
        )),
        Descent::Stranger => {
            let parent = diff.new.parent.map(|parent| parent.short()).unwrap_or_default();
            all.push(format!("the new table was built from {parent}, not from {}", diff.old.digest.short()));
        }
    }
    all.extend(diff.tables.iter().flat_map(table_remarks));
    all
}

fn table_remarks(table: &crate::diff::TableDiff) -> Vec<String> {
    let name = &table.name;
    let mut all = Vec::new();
    match table.present {
        [true, false] => all.push(format!("table {name} is gone: its binds are no longer forwarded")),
        [false, true] => all.push(format!("table {name} is new")),
        _ => {}
    }
    if table.rows.rehashed {
        all.push(format!(
            "table {name}: the hash key or fields changed, so every flow is looked up in another row"
        ));
    }
    if table.rows.settled {
        all.push(format!(
            "table {name} was built with --settle: owners before the last are taken to hold no connections"
        ));
    }
    let gone = table.config.iter().filter(|change| change.key == "bind" && change.new.is_none());
    all.extend(gone.filter_map(|change| change.old.as_ref()).map(|bind| {
        format!("table {name}: {bind} is no longer bound; its connections end unless another bind takes them")
    }));
    let left = table.config.iter().filter(|change| change.key == "backend" && change.new.is_none());
    let mut drained: Vec<String> = left.filter_map(|change| drained(change, table)).collect();
    drained.sort_by(|a, b| natural(a, b));
    if !drained.is_empty() {
        let ids = some_of(&drained, 8);
        all.push(format!("table {name}: what connections {ids} still holds end with its removal"));
    }
    all
}

fn drained(change: &Change, table: &crate::diff::TableDiff) -> Option<String> {
    use crate::diff::Risk;
    let Subject::Backend(id) = &change.subject else { return None };
    let cut = table.rows.risks.keys().any(|(number, risk)| *risk == Risk::Cut && table.id(*number) == id);
    let held = table.present == [true, true] && !cut;
    held.then(|| id.clone())
}
