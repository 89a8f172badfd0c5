//! Configuration changes in groups: backends whose values change alike share a line.

use crate::format::{listed, natural};
use crate::review::diff::{ConfigChange, Subject};
use std::collections::BTreeMap;

/// Ids that a line lists before it says `and N more`.
const LISTED_IDS: usize = 8;

/// Changes of one key from one value to another.
#[derive(Debug)]
pub(super) struct ChangeGroup {
    /// Ids of the backends; empty for a change of the table itself or of a bind.
    pub(super) ids: Vec<String>,
    /// The key in the configuration.
    pub(super) key: &'static str,
    /// The value before.
    pub(super) old: Option<String>,
    /// The value after.
    pub(super) new: Option<String>,
}

impl ChangeGroup {
    /// Groups changes. Those of the table come first, then backends in natural order of the first id.
    pub(super) fn of(changes: &[ConfigChange]) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        let mut by_value = BTreeMap::<(&str, Option<&str>, Option<&str>), usize>::new();
        for change in changes {
            let Subject::Backend(id) = &change.subject else {
                groups.push(Self::new(change, Vec::new()));
                continue;
            };
            let value = (change.key, change.old.as_deref(), change.new.as_deref());
            match by_value.get(&value).and_then(|index| groups.get_mut(*index)) {
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

    fn new(change: &ConfigChange, ids: Vec<String>) -> Self {
        Self { ids, key: change.key, old: change.old.clone(), new: change.new.clone() }
    }

    /// `web-1, web-2 and 7 more`; the key for a change that concerns no backend.
    pub(super) fn subject(&self) -> String {
        if self.ids.is_empty() { self.key.to_owned() } else { listed(&self.ids, LISTED_IDS) }
    }

    /// `state: active → draining`.
    pub(super) fn value(&self) -> String {
        let change = match (&self.old, &self.new) {
            (Some(old), Some(new)) => format!("{old} → {new}"),
            (None, Some(new)) => format!("added: {new}"),
            (Some(old), None) => format!("removed: {old}"),
            (None, None) => String::new(),
        };
        if self.ids.is_empty() || self.key == "backend" { change } else { format!("{}: {change}", self.key) }
    }
}
