//! GLB Director's table file: round trips, truncation, and positions out of range.

use common::backend::{Health, State};
use common::bind::{Bind, PortRange, Prefix, Protocol};
use common::hash::SipKey;
use common::table::glb::{self, GlbBackend, GlbTable};
use common::table::{Built, Digest, ForwardingTable};

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
    // The file says nothing of a parent or a seed.
    assert_eq!((table.built(), table.parent(), one.seed.is_known()), (Built::Unknown, None, false));
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
    let cases: [(usize, &[u8], &str); 11] = [
        (4, &[1], "GLB header, offset 4: expected version 2, found 1"),
        (12, &[1], "GLB header, offset 12: expected rows 65536, found 65537"),
        (8, &[2], "GLB file, offset 537648: expected 1075272 octets, found 537648"),
        (24, &[1, 1], "GLB table 0, backends, offset 24: expected 1…256 backends, found 257"),
        (24, &[0], "GLB table 0, backends, offset 24: expected 1…256 backends, found 0"),
        (28, &[3], "GLB table 0, backends, offset 28: expected address family 1 or 2, found 3"),
        (24 + 6_148, &[0], "GLB table 0, binds, offset 6172: expected 1…256 binds, found 0"),
        (24 + 6_152 + 20, &[8], "expected a prefix without host bits, found 203.0.113.0/8"),
        (24 + 6_152 + 26, &[1], "expected protocol 6 or 17, found 1"),
        (
            24 + 13_320,
            &[0; 16],
            "GLB table 0, hash key, offset 13344: expected a key that is not all zero, found zeros",
        ),
        (24 + 13_336 + 4, &[3], "GLB table 0, rows, offset 13364: expected a position below 3, found 3"),
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
    // 24 for the header, 4 for the count, 24 for the first backend.
    assert_eq!(
        ForwardingTable::read(&glb::encode(&tables)).unwrap_err().to_string(),
        "GLB table 0, backends, offset 52: expected an address of its own, found 10.0.0.9 a second time"
    );
}

/// By the offset where the bind stands in GLB's file, and not by the one that it would have in ours.
#[test]
fn binds_that_tie_are_refused_where_they_stand() {
    let mut tables = sample();
    tables.push(sample().remove(0));
    tables[1].binds.truncate(1);
    let refusal = |tables: &[GlbTable]| ForwardingTable::read(&glb::encode(tables)).unwrap_err().to_string();
    // 24 + 537,624 is where the second table begins, and its binds are 6,152 octets further on.
    assert_eq!(
        refusal(&tables),
        "GLB table 1, binds, offset 543800: expected a bind that does not tie with tcp 203.0.113.0/24:80-443, found tcp \
         203.0.113.0/24:80-443"
    );
    let mut one = sample();
    one[0].binds[1] = one[0].binds[0];
    assert!(refusal(&one).starts_with("GLB table 0, binds, offset 6204: expected a bind that does not tie"));
}
