//! Small configurations.

use common::backend::Backend;
use common::bind::{Bind, PortRange, Prefix, Protocol};
use common::flow::HashFields;
use common::hash::SipKey;
use common::table::{ForwardingTable, Ranking, Seed, Table};
use tablegen::config::TableSpec;
use tablegen::generate::{History, generate};

/// The seed of the vectors.
pub(crate) const SEED: Seed = Seed([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

/// Backends of these ids, in this order.
pub(crate) fn backends(ids: &[&str]) -> Vec<Backend> {
    let numbered = ids.iter().zip(1u8..);
    numbered.map(|(id, at)| Backend::new(*id, [10, 0, 0, at].into())).collect()
}

/// A table of 65,536 rows.
pub(crate) fn spec(backends: Vec<Backend>) -> TableSpec {
    TableSpec {
        name: "web".to_owned(),
        rows: 1 << 16,
        max_hops: 4,
        ranking: Ranking::Hrw,
        seed: SEED,
        hash_key: SipKey::new([7; 16]),
        hash_fields: HashFields::DEFAULT,
        alt_hash_fields: HashFields::NONE,
        spread_zones: false,
        max_share: None,
        binds: vec![Bind {
            prefix: Prefix::host([203, 0, 113, 10].into()),
            protocol: Protocol::Tcp,
            ports: PortRange::single(443),
        }],
        backends,
    }
}

/// Builds one table.
pub(crate) fn build(spec: &TableSpec, history: History<'_>) -> ForwardingTable {
    generate(std::slice::from_ref(spec), history).unwrap().table
}

/// Hop list of a row, as ids.
pub(crate) fn ids(table: &Table, list: &[u16]) -> Vec<String> {
    list.iter().map(|at| table.backend(*at).unwrap().id.clone()).collect()
}
