//! Tables for tests, made by the slow path, so that what is tested here does not depend on the generator.

use common::backend::{Backend, Health, State};
use common::bind::{Bind, PortRange, Prefix, Protocol};
use common::flow::HashFields;
use common::hash::SipKey;
use common::table::{ForwardingTable, Lists, Ranking, Seed, Table};
use tablegen::verify::slow::{self, Before};

pub(crate) const ROWS: u32 = 65_536;

/// `count` active backends b-000, b-001, … of weight 1.
pub(crate) fn backends(count: u16) -> Vec<Backend> {
    (0..count).map(backend).collect()
}

pub(crate) fn backend(at: u16) -> Backend {
    let [high, low] = at.to_be_bytes();
    Backend::new(format!("b-{at:03}"), std::net::Ipv4Addr::new(10, 0, high, low).into())
}

pub(crate) fn with_state(mut backends: Vec<Backend>, at: usize, state: State) -> Vec<Backend> {
    backends[at].state = state;
    backends
}

pub(crate) fn with_health(mut backends: Vec<Backend>, at: usize, health: Health) -> Vec<Backend> {
    backends[at].health = health;
    backends
}

/// A table without rows yet.
pub(crate) fn parameters(backends: Vec<Backend>) -> Table {
    Table {
        name: "web".to_owned(),
        max_hops: 4,
        ranking: Ranking::Hrw,
        seed: Seed(std::array::from_fn(|i| u8::try_from(i).unwrap())),
        hash_key: SipKey::new([7; 16]),
        hash_fields: HashFields::DEFAULT,
        alt_hash_fields: HashFields::NONE,
        spread_zones: false,
        max_share: None,
        backends,
        binds: vec![Bind {
            prefix: Prefix::host("203.0.113.10".parse().unwrap()),
            protocol: Protocol::Tcp,
            ports: PortRange::single(443),
        }],
        hops: Lists::empty(ROWS, 4),
        lineage: Lists::empty(ROWS, 3),
    }
}

/// The first table of its line.
pub(crate) fn first(backends: Vec<Backend>) -> ForwardingTable {
    sealed(None, slow::rebuilt(&parameters(backends), None, ROWS))
}

/// The next table, built with `--previous`.
pub(crate) fn next(previous: &ForwardingTable, backends: Vec<Backend>) -> ForwardingTable {
    let before = Before { table: &previous.tables()[0], built: previous.built(), settled: false };
    sealed(Some(previous), slow::rebuilt(&parameters(backends), Some(before), ROWS))
}

/// The next table, built with `--previous --settle`.
pub(crate) fn settled(previous: &ForwardingTable, backends: Vec<Backend>) -> ForwardingTable {
    let before = Before { table: &previous.tables()[0], built: previous.built(), settled: true };
    let table = slow::rebuilt(&parameters(backends), Some(before), ROWS);
    ForwardingTable::settled(previous, vec![table]).unwrap()
}

pub(crate) fn sealed(parent: Option<&ForwardingTable>, table: Table) -> ForwardingTable {
    ForwardingTable::new(parent, vec![table]).unwrap()
}
