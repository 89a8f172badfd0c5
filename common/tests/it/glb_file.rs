//! GLB Director's table file: round trips, truncation, and positions out of range.

use common::backend::{Health, State};
use common::bind::{Bind, PortRange, Prefix, Protocol};
use common::hash::SipKey;
use common::table::glb::{self, GlbBackend, GlbTable};
use common::table::{Digest, ForwardingTable};

fn sample() -> Vec<GlbTable> {
    let backend =
        |address: &str, state, health| GlbBackend { address: address.parse().unwrap(), state, health };
    let bind = |address: &str, bits, first| Bind {
        prefix: Prefix::new(address.parse().unwrap(), bits).unwrap(),
        protocol: Protocol::Tcp,
        ports: PortRange::new(first, 443).unwrap(),
    };
    let rows: Vec<[u32; 2]> = (0..glb::ROWS).map(|row| [row % 3, (row + 1) % 3]).collect();
    vec![GlbTable {
        backends: vec![
            backend("10.0.0.9", State::Active, Health::Up),
            backend("10.0.0.10", State::Draining, Health::Down),
            backend("2001:db8::1", State::Filling, Health::Up),
        ],
        binds: vec![bind("203.0.113.0", 24, 80), bind("2001:db8::80", 128, 443)],
        hash_key: SipKey::new([3; 16]),
        rows,
    }]
}

#[test]
fn a_file_has_the_published_size_and_reads_back() {
    let octets = glb::encode(&sample());
    assert_eq!(octets.len(), 24 + 537_624);
    assert_eq!(glb::decode(&octets).unwrap(), sample());
    assert_eq!(glb::encode(&glb::decode(&octets).unwrap()), octets);
}

#[test]
fn as_a_forwarding_table_it_keeps_its_meaning() {
    let octets = glb::encode(&sample());
    let table = ForwardingTable::read(&octets).unwrap();
    assert_eq!(table.digest(), Digest::of(&octets));
    let one = &table.tables()[0];
    let ids = |row| -> Vec<&str> {
        one.hops.get(row).iter().map(|at| one.backends[usize::from(*at)].id.as_str()).collect()
    };
    assert_eq!(ids(0), ["10.0.0.9", "10.0.0.10"]);
    assert_eq!(ids(1), ["10.0.0.10", "2001:db8::1"]);
    assert_eq!(ids(65_535), ["10.0.0.9", "10.0.0.10"]);
    assert_eq!(one.hash_fields.to_string(), "[src_addr]");
}

#[test]
fn one_backend_twice_in_a_row_becomes_one_hop() {
    let mut tables = sample();
    tables[0].rows[7] = [1, 1];
    let table = ForwardingTable::read(&glb::encode(&tables)).unwrap();
    assert_eq!(table.tables()[0].hops.get(7).len(), 1);
}

#[test]
fn every_cut_is_refused_and_so_are_wrong_numbers() {
    let octets = glb::encode(&sample());
    for len in (0..64).chain((64..octets.len()).step_by(1_021)) {
        assert!(ForwardingTable::read(&octets[..len]).is_err(), "{len}");
    }
    let cases: [(usize, &[u8], &str); 8] = [
        (4, &[1], "header, offset 4: expected 2, found 1"),
        (24, &[1, 1], "table 0 BACK, offset 24: expected 1…256 backends, found 257"),
        (24, &[0], "table 0 BACK, offset 24: expected 1…256 backends, found 0"),
        (28, &[3], "table 0 BACK, offset 28: expected address family 1 or 2, found 3"),
        (24 + 6_148, &[0], "table 0 BIND, offset 6172: expected 1…256 binds, found 0"),
        (24 + 6_152 + 20, &[8], "expected a prefix without host bits, found 203.0.113.0/8"),
        (24 + 6_152 + 26, &[1], "expected protocol 6 or 17, found 1"),
        (24 + 13_336 + 4, &[3], "table 0 ROWS, offset 13364: expected a position below 3, found 3"),
    ];
    for (at, patch, expected) in cases {
        let mut broken = octets.clone();
        broken[at..at + patch.len()].copy_from_slice(patch);
        let error = ForwardingTable::read(&broken).unwrap_err().to_string();
        assert!(error.contains(expected), "expected {expected:?} in {error:?}");
    }
}

#[test]
fn duplicate_addresses_are_refused() {
    let mut tables = sample();
    tables[0].backends[1].address = tables[0].backends[0].address;
    assert!(
        ForwardingTable::read(&glb::encode(&tables))
            .unwrap_err()
            .to_string()
            .contains("ids in ascending order")
    );
}
