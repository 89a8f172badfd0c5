//! Forwarding tables built without tablegen: rows ranked by GLB's rule with the siphasher crate, so that an
//! error in this project's ranking or hashing is detected.

use std::{
    hash::Hasher,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use common::{
    backend::{Backend, Health, State},
    bind::{Bind, PortRange, Prefix, Protocol},
    flow::HashFields,
    hash::SipKey,
    table::glb::{self, GlbBackend, GlbTable},
    table::{ForwardingTable, Lists, Ranking, Seed, Table},
};
use dataplane::{
    pipeline::{BackendKey, Echo, NextHop, Pipeline, Underlay},
    wire::ethernet::Mac,
};

pub(crate) const ROWS: u32 = 65_536;
/// The director's own link address in all tests: the destination of clients' frames.
pub(crate) const OWN_MAC: Mac = Mac([0x56, 0x0e, 0x37, 0x46, 0xa2, 0x21]);
pub(crate) const GATEWAY_MAC: Mac = Mac([0x3a, 0x89, 0x7c, 0x7b, 0x5d, 0x1f]);
pub(crate) const SOURCE_V4: Ipv4Addr = Ipv4Addr::new(65, 65, 65, 65);
pub(crate) const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x65);

pub(crate) const UNDERLAY: Underlay =
    Underlay { source_ipv4: Some(SOURCE_V4), source_ipv6: Some(SOURCE_V6), mtu: 1_500, echo: Echo::Forward };

pub(crate) fn hex16(text: &str) -> [u8; 16] {
    hex(text).try_into().unwrap()
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Frames leave through interface 1, the loopback interface of the test's namespace.
pub(crate) fn via_gateway(_: BackendKey, _: IpAddr) -> Option<NextHop> {
    Some(NextHop::Link { ifindex: 1, source: OWN_MAC, destination: GATEWAY_MAC })
}

pub(crate) fn pipeline(tables: Vec<Table>) -> Pipeline {
    Pipeline::new(ForwardingTable::new(None, tables).unwrap(), UNDERLAY, via_gateway).unwrap()
}

fn sip(key: [u8; 16], message: &[u8]) -> [u8; 8] {
    let mut hasher = siphasher::sip::SipHasher24::new_with_key(&key);
    hasher.write(message);
    hasher.finish().to_le_bytes()
}

/// GLB's digest of a backend in a row; the lowest ranks first.
fn rank(seed: [u8; 16], row: u32, address: IpAddr) -> [u8; 8] {
    let row_seed = sip(seed, &row.to_be_bytes());
    let address = match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    };
    sip(seed, &[row_seed.to_vec(), address].concat())
}

/// GLB's own hop rule (two hops; swapped if the first is not in service and the second is active).
fn glb_hops(seed: [u8; 16], backends: &[Backend]) -> Lists {
    let mut hops = Lists::empty(ROWS, 2);
    for row in 0..ROWS {
        let mut ranked: Vec<_> = (0u16..)
            .zip(backends)
            .filter(|(_, b)| b.state != State::Inactive)
            .map(|(at, b)| (rank(seed, row, b.address), at))
            .collect();
        ranked.sort_unstable();
        let mut pair: Vec<u16> = ranked.iter().take(2).map(|(_, at)| *at).collect();
        if let [first, second] = pair[..] {
            let backend = |at: u16| &backends[usize::from(at)];
            let serves = backend(first).state != State::Draining && backend(first).health == Health::Up;
            if !serves && backend(second).state == State::Active {
                pair.reverse();
            }
        }
        hops.set(row, pair);
    }
    hops
}

#[derive(Debug, Clone)]
pub(crate) struct TableSpec {
    pub(crate) name: &'static str,
    pub(crate) key: [u8; 16],
    pub(crate) seed: [u8; 16],
    pub(crate) fields: HashFields,
    pub(crate) alt_fields: HashFields,
    pub(crate) binds: Vec<Bind>,
    pub(crate) backends: Vec<Backend>,
}

impl TableSpec {
    pub(crate) fn new(name: &'static str, binds: Vec<Bind>, backends: &[&str]) -> Self {
        let backends = backends.iter().map(|a| Backend::new(*a, a.parse().unwrap())).collect();
        let fields = HashFields::SRC_ADDR;
        Self { name, key: [7; 16], seed: [9; 16], fields, alt_fields: HashFields::NONE, binds, backends }
    }

    pub(crate) fn build(mut self) -> Table {
        self.backends.sort_by(|a, b| a.id.cmp(&b.id));
        self.binds.sort_unstable();
        Table {
            name: self.name.into(),
            max_hops: 2,
            ranking: Ranking::Glb,
            seed: Seed(self.seed),
            hash_key: SipKey::new(self.key),
            hash_fields: self.fields,
            alt_hash_fields: self.alt_fields,
            spread_zones: false,
            max_share: None,
            hops: glb_hops(self.seed, &self.backends),
            backends: self.backends,
            binds: self.binds,
            lineage: Lists::empty(ROWS, 1),
        }
    }
}

pub(crate) fn bind(prefix: &str, protocol: Protocol, first: u16, last: u16) -> Bind {
    let (address, bits) = match prefix.split_once('/') {
        Some((address, bits)) => (address.parse::<IpAddr>().unwrap(), bits.parse().unwrap()),
        None => (prefix.parse().unwrap(), if prefix.contains(':') { 128 } else { 32 }),
    };
    let ports = PortRange::new(first, last).unwrap();
    Bind { prefix: Prefix::new(address, bits).unwrap(), protocol, ports }
}

/// The tables of GLB's vectors, read from its JSON.
pub(crate) fn glb_specs(fields: HashFields, alt_fields: HashFields) -> Vec<TableSpec> {
    let text = include_str!("../../../../tablegen/tests/data/glb/packets-table.json");
    let json: serde_json::Value = serde_json::from_str(text).unwrap();
    let names = ["glb-0", "glb-1", "glb-2"];
    let tables = json["tables"].as_array().unwrap().iter().zip(names);
    tables
        .map(|(table, name)| TableSpec {
            name,
            key: hex16(table["hash_key"].as_str().unwrap()),
            seed: hex16(table["seed"].as_str().unwrap()),
            fields,
            alt_fields,
            binds: table["binds"].as_array().unwrap().iter().map(glb_bind).collect(),
            backends: table["backends"].as_array().unwrap().iter().map(glb_backend).collect(),
        })
        .collect()
}

fn glb_bind(json: &serde_json::Value) -> Bind {
    let port = |key: &str| json.get(key).map(|p| u16::try_from(p.as_u64().unwrap()).unwrap());
    let first = port("port").or(port("port_start")).unwrap();
    let last = port("port").or(port("port_end")).unwrap();
    let protocol = if json["proto"] == "tcp" { Protocol::Tcp } else { Protocol::Udp };
    bind(json["ip"].as_str().unwrap(), protocol, first, last)
}

fn glb_backend(json: &serde_json::Value) -> Backend {
    let address = json["ip"].as_str().unwrap();
    let health = if json["healthy"] == true { Health::Up } else { Health::Down };
    let state = json["state"].as_str().unwrap().parse().unwrap();
    Backend { state, health, ..Backend::new(address, address.parse().unwrap()) }
}

/// The tables of [`glb_specs`] as GLB Director's file.
pub(crate) fn glb_file() -> Vec<u8> {
    let glb_table = |table: &Table| GlbTable {
        backends: (table.backends.iter())
            .map(|b| GlbBackend { address: b.address, state: b.state, health: b.health })
            .collect(),
        binds: table.binds.clone(),
        hash_key: table.hash_key,
        rows: table.hops.iter().map(|row| [row[0].into(), row[1].into()]).collect(),
    };
    let specs = glb_specs(HashFields::SRC_ADDR, HashFields::NONE);
    glb::encode(&specs.into_iter().map(|spec| glb_table(&spec.build())).collect::<Vec<_>>())
}
