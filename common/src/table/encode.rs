//! Table to octets. The inverse of `decode`, field by field.

use super::{
    DIGEST_LEN, Digest, ForwardingTable, Lists, MAGIC, Ranking, SECTIONS, Table, VERSION, VERSION_1,
};
use crate::backend::{Backend, Health, State};
use crate::bind::Bind;
use std::net::IpAddr;

impl ForwardingTable {
    /// The file's octets.
    pub fn encode(&self) -> Vec<u8> {
        let mut file = encode_content(self);
        file.extend_from_slice(&self.digest.0);
        file
    }
}

/// SHA-256 of everything but the digest.
pub(super) fn digest(table: &ForwardingTable) -> Digest {
    Digest::of(&encode_content(table))
}

/// SHA-256 over the parts of the file that come from the configuration.
pub(super) fn config_digest(tables: &[Table]) -> Digest {
    let parts = tables.iter().flat_map(|table| [head(table), backends(table), binds(table)]);
    Digest::of(&parts.flatten().collect::<Vec<u8>>())
}

fn encode_content(table: &ForwardingTable) -> Vec<u8> {
    let bodies: Vec<Vec<u8>> = table.tables.iter().map(encode_table).collect();
    let built = table.built.number();
    let version = if built.is_some() { VERSION } else { VERSION_1 };
    let length = table.built.header_len() + bodies.iter().map(Vec::len).sum::<usize>() + DIGEST_LEN;
    let mut file = Vec::with_capacity(length);
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(&version.to_le_bytes());
    file.extend_from_slice(&count(table.tables.len()));
    file.extend_from_slice(&(length as u64).to_le_bytes());
    file.extend_from_slice(&table.generation.to_le_bytes());
    file.extend_from_slice(&table.config_digest.0);
    file.extend_from_slice(&table.parent.unwrap_or_default().0);
    file.extend(built);
    bodies.iter().for_each(|body| file.extend_from_slice(body));
    file
}

fn encode_table(table: &Table) -> Vec<u8> {
    let payloads = [head(table), backends(table), binds(table), cells(&table.hops), cells(&table.lineage)];
    let mut body = Vec::with_capacity(payloads.iter().map(|payload| payload.len() + 12).sum());
    for (tag, payload) in SECTIONS.iter().zip(&payloads) {
        body.extend_from_slice(tag);
        body.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        body.extend_from_slice(payload);
    }
    body
}

fn head(table: &Table) -> Vec<u8> {
    let mut head = Vec::new();
    head.extend_from_slice(&table.rows().to_le_bytes());
    head.extend_from_slice(&count(table.backends.len()));
    head.extend_from_slice(&count(table.binds.len()));
    let ranking = match table.ranking {
        Ranking::Hrw => 0,
        Ranking::Glb => 1,
    };
    let fields = [table.hash_fields.bits(), table.alt_hash_fields.bits()];
    let flags = u8::from(table.spread_zones) | u8::from(table.max_share.is_some()) << 1;
    head.extend_from_slice(&[table.max_hops, ranking, fields[0], fields[1], flags]);
    head.push(text_len(&table.name));
    head.extend_from_slice(&table.seed.0);
    head.extend_from_slice(&table.hash_key.octets());
    head.extend_from_slice(table.name.as_bytes());
    head.extend(table.max_share.into_iter().flat_map(|share| share.to_bits().to_le_bytes()));
    head
}

fn backends(table: &Table) -> Vec<u8> {
    table.backends.iter().flat_map(backend).collect()
}

fn backend(backend: &Backend) -> Vec<u8> {
    let zone = backend.zone.as_deref().unwrap_or_default();
    let (family, address) = address(backend.address);
    let state = match backend.state {
        State::Filling => 0,
        State::Active => 1,
        State::Draining => 2,
        State::Inactive => 3,
    };
    let health = u8::from(backend.health == Health::Up);
    let mut record = vec![family, state, health, backend.fill, text_len(&backend.id), text_len(zone)];
    record.extend_from_slice(&backend.weight.to_bits().to_le_bytes());
    record.extend_from_slice(&address);
    record.extend_from_slice(backend.id.as_bytes());
    record.extend_from_slice(zone.as_bytes());
    record
}

fn binds(table: &Table) -> Vec<u8> {
    table.binds.iter().flat_map(bind).collect()
}

fn bind(bind: &Bind) -> Vec<u8> {
    let (family, address) = address(bind.prefix.address());
    let mut record = vec![family, bind.prefix.bits(), bind.protocol.number(), 0];
    record.extend_from_slice(&bind.ports.first().to_le_bytes());
    record.extend_from_slice(&bind.ports.last().to_le_bytes());
    record.extend_from_slice(&address);
    record
}

fn cells(lists: &Lists) -> Vec<u8> {
    lists.cells().iter().flat_map(|cell| cell.to_le_bytes()).collect()
}

fn address(address: IpAddr) -> (u8, [u8; 16]) {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            (4, [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        }
        IpAddr::V6(v6) => (6, v6.octets()),
    }
}

/// Lengths beyond what the format can say are caught by the check that every table passes first; saturating keeps
/// such a length wrong rather than wrapped to a right one.
fn count(len: usize) -> [u8; 4] {
    u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes()
}

fn text_len(text: &str) -> u8 {
    u8::try_from(text.len()).unwrap_or(u8::MAX)
}
