//! Does the file say what the configuration says? Secrets are compared and never shown.

use super::{Finding, Reason};
use crate::config::TableSpec;
use common::backend::Backend;
use common::bind::Bind;
use common::table::{Lists, Table};
use std::collections::{BTreeMap, BTreeSet};

/// The table that a configuration asks for, without rows.
///
/// Much like the generator's `empty` on purpose: verification shares no code with the generator, so that a mistake there
/// is not made here, too.
pub(super) fn table(spec: &TableSpec) -> Table {
    let mut backends = spec.backends.clone();
    backends.sort_by(|a, b| a.id.cmp(&b.id));
    Table {
        name: spec.name.clone(),
        max_hops: spec.max_hops,
        ranking: spec.ranking,
        seed: spec.seed,
        hash_key: spec.hash_key,
        hash_fields: spec.hash_fields,
        alt_hash_fields: spec.alt_hash_fields,
        spread_zones: spec.spread_zones,
        max_share: spec.max_share,
        backends,
        binds: spec.binds.clone(),
        hops: Lists::empty(0, spec.max_hops),
        lineage: Lists::empty(0, spec.max_hops),
    }
}

pub(super) fn compare(table: &Table, spec: &TableSpec) -> Vec<Finding> {
    let secret = |same: bool| if same { "as configured" } else { "another" }.to_owned();
    let configured = || "as configured".to_owned();
    let share = |share: Option<f64>| share.map_or_else(|| "none".to_owned(), |share| share.to_string());
    let known = table.seed.is_known();
    let seed = if known { secret(table.seed == spec.seed) } else { "not in the file".to_owned() };
    let values = [
        ("rows", table.rows().to_string(), spec.rows.to_string()),
        ("max_hops", table.max_hops.to_string(), spec.max_hops.to_string()),
        ("ranking", table.ranking.name().to_owned(), spec.ranking.name().to_owned()),
        ("seed", seed, configured()),
        ("hash_key", secret(table.hash_key == spec.hash_key), configured()),
        ("hash_fields", table.hash_fields.to_string(), spec.hash_fields.to_string()),
        ("alt_hash_fields", table.alt_hash_fields.to_string(), spec.alt_hash_fields.to_string()),
        ("spread_zones", table.spread_zones.to_string(), spec.spread_zones.to_string()),
        ("max_share", share(table.max_share), share(spec.max_share)),
    ];
    let mut texts: Vec<String> = values.into_iter().filter_map(differs).collect();
    let [binds, wanted]: [BTreeSet<Bind>; 2] =
        [&table.binds, &spec.binds].map(|all| all.iter().copied().collect());
    texts.extend(wanted.difference(&binds).map(|bind| format!("bind {bind} is missing")));
    texts.extend(binds.difference(&wanted).map(|bind| format!("bind {bind} is not configured")));
    texts.extend(backends(&table.backends, &spec.backends));
    let finding = |text| Finding { reason: Reason::Config, table: table.name.clone(), rows: 0, text };
    texts.into_iter().map(finding).collect()
}

fn differs((key, found, wanted): (&str, String, String)) -> Option<String> {
    (found != wanted).then(|| format!("{key} is {found}, configured is {wanted}"))
}

fn backends(found: &[Backend], wanted: &[Backend]) -> Vec<String> {
    let mut by_id = BTreeMap::<&str, [Option<&Backend>; 2]>::new();
    for (side, all) in [found, wanted].into_iter().enumerate() {
        all.iter().for_each(|one| by_id.entry(&one.id).or_default()[side] = Some(one));
    }
    let texts = |(id, pair): (&str, [Option<&Backend>; 2])| match pair {
        [Some(found), Some(wanted)] => backend(found, wanted),
        [None, _] => vec![format!("backend {id} is missing")],
        [_, None] => vec![format!("backend {id} is not configured")],
    };
    by_id.into_iter().flat_map(texts).collect()
}

fn backend(found: &Backend, wanted: &Backend) -> Vec<String> {
    let values = |one: &Backend| {
        [
            ("address", one.address.to_string()),
            ("weight", one.weight.to_string()),
            ("fill", one.fill.to_string()),
            ("zone", one.zone.clone().unwrap_or_else(|| "none".to_owned())),
            ("state", one.state.to_string()),
            ("health", one.health.to_string()),
        ]
    };
    let pairs = values(found).into_iter().zip(values(wanted));
    pairs
        .filter_map(|((key, is), (_, should))| differs((key, is, should)))
        .map(|text| format!("backend {}: {text}", found.id))
        .collect()
}
