//! Changed values of the configuration, by key. A changed secret is reported without its value.

use super::roles::condition;
use common::backend::Backend;
use common::bind::Bind;
use common::table::Table;
use std::collections::{BTreeMap, BTreeSet};

/// The subject of a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The table as a whole.
    Table,
    /// A bind of the table.
    Bind,
    /// A backend, by its id.
    Backend(String),
}

/// One changed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// The subject.
    pub subject: Subject,
    /// The key in the configuration.
    pub key: &'static str,
    /// The value before; None if it did not exist.
    pub old: Option<String>,
    /// The value after; None if it does not exist.
    pub new: Option<String>,
}

/// All changes of a table: its own keys, then binds, then backends in order of id.
pub(super) fn changes(old: Option<&Table>, new: Option<&Table>) -> Vec<ConfigChange> {
    let (Some(old), Some(new)) = (old, new) else {
        let name = |table: Option<&Table>| table.map(|table| table.name.clone());
        return vec![ConfigChange { subject: Subject::Table, key: "table", old: name(old), new: name(new) }];
    };
    let mut changes = table(old, new);
    changes.extend(binds(old, new));
    changes.extend(backends(old, new));
    changes
}

fn table(old: &Table, new: &Table) -> Vec<ConfigChange> {
    let secret = |same: bool| if same { ["(secret)"; 2] } else { ["(secret)", "(another secret)"] };
    let share = |table: &Table| table.max_share.map_or_else(|| "none".to_owned(), |share| share.to_string());
    let [mut seeds, keys] = [old.seed == new.seed, old.hash_key == new.hash_key].map(secret);
    if !(old.seed.is_known() && new.seed.is_known()) {
        seeds = [old, new].map(|table| if table.seed.is_known() { "(secret)" } else { "(not in the file)" });
    }
    let values = [
        ("rows", old.rows().to_string(), new.rows().to_string()),
        ("max_hops", old.max_hops.to_string(), new.max_hops.to_string()),
        ("ranking", old.ranking.name().to_owned(), new.ranking.name().to_owned()),
        ("seed", seeds[0].to_owned(), seeds[1].to_owned()),
        ("hash_key", keys[0].to_owned(), keys[1].to_owned()),
        ("hash_fields", old.hash_fields.to_string(), new.hash_fields.to_string()),
        ("alt_hash_fields", old.alt_hash_fields.to_string(), new.alt_hash_fields.to_string()),
        ("spread_zones", old.spread_zones.to_string(), new.spread_zones.to_string()),
        ("max_share", share(old), share(new)),
    ];
    changed(&Subject::Table, values)
}

fn changed<const N: usize>(
    subject: &Subject,
    values: [(&'static str, String, String); N],
) -> Vec<ConfigChange> {
    let differing = values.into_iter().filter(|(_, old, new)| old != new);
    let change =
        |(key, old, new)| ConfigChange { subject: subject.clone(), key, old: Some(old), new: Some(new) };
    differing.map(change).collect()
}

fn binds(old: &Table, new: &Table) -> Vec<ConfigChange> {
    let [before, after]: [BTreeSet<Bind>; 2] = [old, new].map(|table| table.binds.iter().copied().collect());
    let change = |old, new| ConfigChange { subject: Subject::Bind, key: "bind", old, new };
    let gone = before.difference(&after).map(|bind| change(Some(bind.to_string()), None));
    let come = after.difference(&before).map(|bind| change(None, Some(bind.to_string())));
    gone.chain(come).collect()
}

fn backends(old: &Table, new: &Table) -> Vec<ConfigChange> {
    let mut by_id = BTreeMap::<&str, [Option<&Backend>; 2]>::new();
    for (side, table) in [old, new].into_iter().enumerate() {
        for backend in &table.backends {
            by_id.entry(&backend.id).or_default()[side] = Some(backend);
        }
    }
    by_id.into_iter().flat_map(|(id, sides)| backend(id, sides)).collect()
}

fn backend(id: &str, [old, new]: [Option<&Backend>; 2]) -> Vec<ConfigChange> {
    let subject = Subject::Backend(id.to_owned());
    let whole =
        |backend: &Backend| format!("{}, {}, weight {}", backend.address, condition(backend), backend.weight);
    let (Some(old), Some(new)) = (old, new) else {
        return vec![ConfigChange { subject, key: "backend", old: old.map(whole), new: new.map(whole) }];
    };
    let zone = |backend: &Backend| backend.zone.clone().unwrap_or_else(|| "none".to_owned());
    let values = [
        ("state", old.state.to_string(), new.state.to_string()),
        ("health", old.health.to_string(), new.health.to_string()),
        ("weight", old.weight.to_string(), new.weight.to_string()),
        ("fill", old.fill.to_string(), new.fill.to_string()),
        ("zone", zone(old), zone(new)),
        ("address", old.address.to_string(), new.address.to_string()),
    ];
    changed(&subject, values)
}
