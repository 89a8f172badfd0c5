//! The table file against every prefix, flipped bits, and one broken rule at a time.

use common::backend::{Backend, State};
use common::bind::{Bind, PortRange, Prefix, Protocol};
use common::flow::HashFields;
use common::hash::SipKey;
use common::table::{Built, Digest, ForwardingTable, Lists, Ranking, Seed, Table, TableError};
use proptest::prelude::*;

const ROWS: u32 = 1 << 16;

fn table(name: &str, vip: &str) -> Table {
    let backend = |id: &str, address: &str| Backend::new(id, address.parse().unwrap());
    let backends = vec![
        Backend { zone: Some("zone-ä".into()), weight: 2.5, ..backend("a", "10.0.0.1") },
        Backend { state: State::Filling, fill: 25, ..backend("b", "2001:db8::b") },
        Backend { state: State::Draining, ..backend("c", "10.0.0.3") },
        Backend { state: State::Inactive, ..backend("d", "10.0.0.4") },
    ];
    let bind = |protocol, last| Bind {
        prefix: Prefix::host(vip.parse().unwrap()),
        protocol,
        ports: PortRange::new(80, last).unwrap(),
    };
    let (mut hops, mut lineage) = (Lists::empty(ROWS, 3), Lists::empty(ROWS, 2));
    for row in 0..ROWS {
        hops.set(row, [[0, 1, 2], [1, 0, 2]][row as usize % 2].into_iter().take(2 + row as usize % 2));
        lineage.set(row, [2].into_iter().take(row as usize % 2));
    }
    Table {
        name: name.into(),
        max_hops: 3,
        ranking: Ranking::Hrw,
        seed: Seed([7; 16]),
        hash_key: SipKey::new([9; 16]),
        hash_fields: HashFields::DEFAULT,
        alt_hash_fields: HashFields::SRC_ADDR,
        spread_zones: true,
        max_share: None,
        backends,
        binds: vec![bind(Protocol::Tcp, 80), bind(Protocol::Udp, 90)],
        hops,
        lineage,
    }
}

/// A table without former owners: what a file that was built as first can hold.
fn fresh(name: &str, vip: &str) -> Table {
    Table { lineage: Lists::empty(ROWS, 2), ..table(name, vip) }
}

fn parent() -> ForwardingTable {
    ForwardingTable::new(None, vec![fresh("one", "203.0.113.1")]).unwrap()
}

/// Generation 2, a child of [`parent`].
fn sample() -> ForwardingTable {
    let bounded = Table { max_share: Some(1.25), ..table("two", "2001:db8::1") };
    ForwardingTable::new(Some(&parent()), vec![table("one", "203.0.113.1"), bounded]).unwrap()
}

/// The child with one table that most tests break.
fn child(table: Table) -> Result<ForwardingTable, TableError> {
    ForwardingTable::new(Some(&parent()), vec![table])
}

/// The same content as a file of version 1, made by the specification: octet 96 goes, and with it one octet of length.
fn as_version_1(file: &[u8]) -> Vec<u8> {
    let mut octets = [&file[..96], &file[97..]].concat();
    octets[8] = 1;
    let length = octets.len() as u64;
    octets[16..24].copy_from_slice(&length.to_le_bytes());
    reseal(&mut octets);
    octets
}

/// Gives changed octets a right digest again, so that the checks behind it are reached.
fn reseal(octets: &mut [u8]) {
    let at = octets.len() - 32;
    let digest = Digest::of(&octets[..at]);
    octets[at..].copy_from_slice(&digest.0);
}

#[test]
fn a_file_reads_back_and_encodes_to_the_same_octets() {
    let table = sample();
    let octets = table.encode();
    assert_eq!(Digest::of(&octets[..octets.len() - 32]), table.digest());
    let again = ForwardingTable::decode(&octets).unwrap();
    assert_eq!(again, table);
    assert_eq!(again.encode(), octets);
    let first = parent();
    assert_eq!((first.generation(), first.parent(), first.built()), (1, None, Built::First));
    assert_eq!(ForwardingTable::decode(&first.encode()).unwrap(), first);
    assert_eq!((table.generation(), table.parent(), table.built()), (2, Some(first.digest()), Built::Child));
    let settled =
        ForwardingTable::settled(&table, vec![super::table_file::table("one", "203.0.113.1")]).unwrap();
    assert_eq!(
        (settled.generation(), settled.parent(), settled.built()),
        (3, Some(table.digest()), Built::Settled)
    );
    assert_eq!(ForwardingTable::decode(&settled.encode()).unwrap(), settled);
    assert_eq!([&first, &table, &settled].map(|file| file.encode()[96]), [1, 2, 3]);
}

/// It does not say how it was built, has all else, and is written as it was read.
#[test]
fn a_file_of_version_1_reads_as_unknown() {
    for new in [parent(), sample()] {
        let octets = as_version_1(&new.encode());
        let old = ForwardingTable::decode(&octets).unwrap();
        assert_eq!(old.built(), Built::Unknown);
        assert_eq!(
            (old.tables(), old.parent(), old.generation(), old.config_digest()),
            (new.tables(), new.parent(), new.generation(), new.config_digest())
        );
        assert_eq!(old.encode(), octets);
        let grandchild = ForwardingTable::new(Some(&old), vec![table("one", "203.0.113.1")]).unwrap();
        assert_eq!((grandchild.built(), grandchild.parent()), (Built::Child, Some(old.digest())));
    }
}

/// Its offsets are those of its own header.
#[test]
fn errors_in_a_file_of_version_1_point_into_it() {
    let mut octets = as_version_1(&parent().encode());
    octets[95 + 29] = 4;
    reseal(&mut octets);
    let error = ForwardingTable::decode(&octets).unwrap_err().to_string();
    assert_eq!(error, "table 0 HEAD, offset 124: expected flags from 0 to 3, found 4");
}

/// Read by following the specification only, with none of the decoder's code.
#[test]
fn the_octets_stand_where_the_specification_says() {
    let octets = sample().encode();
    let u32_at = |at: usize| u32::from_le_bytes(octets[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(octets[at..at + 8].try_into().unwrap());
    assert_eq!(&octets[..8], b"TRYSTFWD");
    assert_eq!((u32_at(8), u32_at(12), u64_at(16)), (2, 2, octets.len() as u64));
    assert_eq!((u64_at(24), &octets[64..96]), (2, parent().digest().0.as_slice()));
    assert_eq!(octets[96], 2);
    assert_eq!((&octets[97..101], u64_at(101)), (b"HEAD".as_slice(), 53));
    let head = 109;
    assert_eq!((u32_at(head), u32_at(head + 4), u32_at(head + 8)), (65_536, 4, 2));
    assert_eq!(octets[head + 12..head + 18], [3, 0, 5, 1, 1, 3]);
    assert_eq!(octets[head + 18..head + 53], [[7; 16].as_slice(), &[9; 16], b"one"].concat());
    let back = head + 53;
    assert_eq!(&octets[back..back + 4], b"BACK");
    assert_eq!(octets[back + 12..back + 18], [4, 1, 1, 100, 1, 7]);
    assert_eq!(u64_at(back + 18), 2.5f64.to_bits());
    assert_eq!(octets[back + 26..back + 42], [10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(&octets[back + 42..back + 50], "azone-ä".as_bytes());
    let bind = back + 12 + u64_at(back + 4) as usize;
    assert_eq!((&octets[bind..bind + 4], u64_at(bind + 4)), (b"BIND".as_slice(), 48));
    assert_eq!(octets[bind + 12..bind + 24], [4, 32, 6, 0, 80, 0, 80, 0, 203, 0, 113, 1]);
    let rows = bind + 12 + 48;
    assert_eq!((&octets[rows..rows + 4], u64_at(rows + 4)), (b"ROWS".as_slice(), 65_536 * 3 * 2));
    assert_eq!(octets[rows + 12..rows + 24], [0, 0, 1, 0, 0xff, 0xff, 1, 0, 0, 0, 2, 0]);
    let line = rows + 12 + 65_536 * 6;
    assert_eq!((&octets[line..line + 4], u64_at(line + 4)), (b"LINE".as_slice(), 65_536 * 2 * 2));
    assert_eq!(octets[line + 12..line + 20], [0xff, 0xff, 0xff, 0xff, 2, 0, 0xff, 0xff]);
    let two = line + 12 + 65_536 * 4;
    assert_eq!((&octets[two..two + 4], u64_at(two + 4)), (b"HEAD".as_slice(), 61));
    assert_eq!(octets[two + 12 + 16..two + 12 + 18], [3, 3]);
    assert_eq!((&octets[two + 62..two + 65], u64_at(two + 65)), (b"two".as_slice(), 1.25f64.to_bits()));
}

#[test]
fn every_prefix_is_refused() {
    let octets = sample().encode();
    for len in 0..octets.len() {
        let error = ForwardingTable::read(&octets[..len]).unwrap_err();
        assert!(!error.expected.is_empty() && !error.found.is_empty() || len < 8, "{len}: {error}");
    }
    let longer = [octets.as_slice(), &[0]].concat();
    assert!(ForwardingTable::decode(&longer).is_err());
}

/// All bits of what is not rows, and a spread of those of the rows.
fn bits_to_flip(octets: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let bits = octets.len() * 8;
    (0..8 * 420).chain((8 * 420..bits).step_by(99_991)).chain(bits - 256..bits)
}

#[test]
fn every_flipped_bit_is_refused() {
    let mut octets = sample().encode();
    for bit in bits_to_flip(&octets) {
        octets[bit / 8] ^= 1 << (bit % 8);
        assert!(ForwardingTable::read(&octets).is_err(), "bit {bit}");
        octets[bit / 8] ^= 1 << (bit % 8);
    }
}

/// With the digest made right again the other checks must hold: an error, or a table whose only file this is.
#[test]
fn a_flipped_bit_under_a_right_digest_is_refused_or_means_what_it_says() {
    let bounded = Table { max_share: Some(1.25), ..fresh("two", "2001:db8::1") };
    let clean = ForwardingTable::new(None, vec![fresh("one", "203.0.113.1"), bounded]).unwrap().encode();
    let mut accepted = 0;
    for bit in bits_to_flip(&clean).filter(|bit| bit / 8 < clean.len() - 32) {
        let mut octets = clean.clone();
        octets[bit / 8] ^= 1 << (bit % 8);
        reseal(&mut octets);
        if let Ok(table) = ForwardingTable::decode(&octets) {
            assert_eq!(table.encode(), octets, "bit {bit}");
            accepted += 1;
        }
    }
    // Generation, parent and `built` go together and the configuration has a digest of its own: only rows are left.
    assert!(accepted < 40, "{accepted}");
}

proptest! {
    #[test]
    fn random_octets_never_panic(mut octets in prop::collection::vec(any::<u8>(), 0..600), magic: bool, old: bool) {
        if magic && octets.len() > 128 {
            octets[..12].copy_from_slice(if old { b"TRYSTFWD\x01\0\0\0" } else { b"TRYSTFWD\x02\0\0\0" });
            octets[96] = 1;
            octets[12..16].copy_from_slice(&1u32.to_le_bytes());
            let len = octets.len() as u64;
            octets[16..24].copy_from_slice(&len.to_le_bytes());
            let head = if old { 96 } else { 97 };
            octets[head..head + 4].copy_from_slice(b"HEAD");
            reseal(&mut octets);
        }
        prop_assert!(ForwardingTable::read(&octets).is_err());
    }
}

type Fault = (&'static str, fn(&mut Table));

/// One broken rule, and what the error must say.
const FAULTS: [Fault; 26] = [
    ("table 0 HEAD, offset 109: expected rows: a power of two", |t| t.hops = Lists::empty(3 << 15, 3)),
    ("a lineage as long as the rows", |t| t.lineage = Lists::empty(ROWS, 3)),
    ("max_hops from 2 to 4", |t| t.max_hops = 5),
    ("hash_fields from 1 to 15, found 0", |t| t.hash_fields = HashFields::NONE),
    ("a hash key that is not all zero", |t| t.hash_key = SipKey::new([0; 16])),
    ("a name of 1…255 octets", |t| t.name = String::new()),
    ("a name of 1…255 octets", |t| t.name = "x".repeat(256)),
    ("1…65534 backends, found 0", |t| t.backends.clear()),
    ("an id of 1…255 octets without control characters", |t| t.backends[0].id = "a\n".into()),
    ("ids in ascending order, found b", |t| t.backends[0].id = "b".into()),
    ("a zone of 1…255 octets", |t| t.backends[0].zone = Some("z".repeat(256))),
    ("fill from 1 to 100, found 0", |t| t.backends[0].fill = 0),
    ("a finite weight greater than 0, found NaN", |t| t.backends[0].weight = f64::NAN),
    ("a finite weight greater than 0, found 0", |t| t.backends[0].weight = 0.0),
    ("an address of its own, found 10.0.0.1", |t| t.backends[2].address = t.backends[0].address),
    ("1…65536 binds, found 0", |t| t.binds.clear()),
    ("binds in ascending order, found 1", |t| t.binds.swap(0, 1)),
    ("a backend's position in row 5, found 4", |t| t.hops.set(5, [0, 4])),
    ("no inactive backend in row 5, found 3", |t| t.hops.set(5, [0, 3])),
    ("each backend once in row 5", |t| t.hops.set(5, [1, 0, 1])),
    ("no gap in row 0", |t| t.hops.cells_mut()[0] = u16::MAX),
    ("table 0 LINE", |t| t.lineage.set(0, [0])),
    ("offset 162: expected max_share from 1 to 16, with ranking hrw, found 0.5", |t| t.max_share = Some(0.5)),
    ("max_share from 1 to 16, with ranking hrw, found NaN", |t| t.max_share = Some(f64::NAN)),
    ("max_share from 1 to 16, with ranking hrw, found inf", |t| t.max_share = Some(f64::INFINITY)),
    ("max_share from 1 to 16, with ranking hrw, found 1.5", |t| {
        (t.ranking, t.max_share) = (Ranking::Glb, Some(1.5));
    }),
];

#[test]
fn every_rule_is_enforced() {
    for (expected, break_it) in FAULTS {
        let mut broken = table("one", "203.0.113.1");
        break_it(&mut broken);
        let error = child(broken).unwrap_err().to_string();
        assert!(error.contains(expected), "expected {expected:?} in {error:?}");
    }
}

#[test]
fn tables_are_sorted_and_their_binds_do_not_tie() {
    let pair = |a, b| ForwardingTable::new(None, vec![a, b]).unwrap_err().to_string();
    let error = pair(fresh("two", "203.0.113.1"), fresh("one", "203.0.113.2"));
    assert!(
        error.contains("table 1 HEAD") && error.contains("names in ascending order, found one"),
        "{error}"
    );
    let error = pair(fresh("one", "203.0.113.1"), fresh("two", "203.0.113.1"));
    assert!(error.contains("a bind that does not tie with tcp 203.0.113.1:80"), "{error}");
    assert!(ForwardingTable::new(None, vec![]).unwrap_err().to_string().contains("1…4096 tables, found 0"));
}

/// Patches octets at an offset, makes the digest right, and gives the error.
fn patched(at: usize, octets: &[u8]) -> String {
    patch(&child(table("one", "203.0.113.1")).unwrap(), at, octets)
}

fn patch(table: &ForwardingTable, at: usize, octets: &[u8]) -> String {
    let mut file = table.encode();
    file[at..at + octets.len()].copy_from_slice(octets);
    reseal(&mut file);
    ForwardingTable::decode(&file).unwrap_err().to_string()
}

#[test]
fn errors_name_section_offset_expected_and_found() {
    let back = 109 + 53 + 12;
    let cases: [(usize, &[u8], &str); 13] = [
        (0, b"X", "header, offset 0: expected magic TRYSTFWD, found XRYSTFWD"),
        (8, &[3], "header, offset 8: expected version 1 or 2, found 3"),
        (12, &[0, 0, 0, 0], "header, offset 12: expected 1…4096 tables, found 0"),
        (12, &[2], "table 1 HEAD, offset 655749: expected 4 octets of tag, found 0"),
        (32, &[0, 0, 0], "header, offset 32: expected config digest"),
        (97, b"X", "table 0 HEAD, offset 97: expected section HEAD, found XEAD"),
        (
            101,
            &[255, 255, 255, 255, 255, 255, 255, 255],
            "table 0 HEAD, offset 109: expected 18446744073709551615 octets",
        ),
        (125, &[4], "table 0 HEAD, offset 125: expected flags from 0 to 3, found 4"),
        (125, &[3], "table 0 HEAD, offset 162: expected 8 octets of max_share, found 0"),
        (113, &[0xfe, 0xff, 0, 0], "table 0 BACK, offset 174: expected 65534 records, found room for 4"),
        (back, &[5], "table 0 BACK, offset 174: expected address family 4 or 6, found 5"),
        (back + 18, &[1], "table 0 BACK, offset 192: expected twelve zero octets after an IPv4 address"),
        (back + 31, &[0xff], "table 0 BACK, offset 205: expected zone in UTF-8"),
    ];
    for (at, octets, expected) in cases {
        let error = patched(at, octets);
        assert!(error.contains(expected), "expected {expected:?} in {error:?}");
    }
}

/// Generation, parent and the way in which a file was built go together, and a first table has no former owners.
#[test]
fn history_that_contradicts_itself_is_refused() {
    let first = |at, octets: &[u8]| patch(&parent(), at, octets);
    let no_parent = "header, offset 24: expected generation 1, for there is no parent, found ";
    let a_parent = "header, offset 24: expected generation more than 1, for there is a parent, found ";
    assert_eq!(first(24, &[0]), format!("{no_parent}0"));
    assert_eq!(first(24, &[2]), format!("{no_parent}2"));
    assert_eq!(first(64, &[1]), format!("{a_parent}1"));
    assert_eq!(patched(24, &[1]), format!("{a_parent}1"));
    let built = "header, offset 96: expected built as ";
    for (number, name) in [(2, "child"), (3, "settled")] {
        assert_eq!(first(96, &[number]), format!("{built}first, for there is no parent, found {name}"));
    }
    assert_eq!(patched(96, &[1]), format!("{built}child or settled, for there is a parent, found first"));
    for number in [0, 4, 255] {
        assert_eq!(
            patched(96, &[number]),
            format!("header, offset 96: expected built from 1 to 3, found {number}")
        );
    }
    // 97 for the header; sections of 12 and 53, 12 and 4 × 30 + 11, 12 and 48, 12 and 6 × 65,536; 12; row 1 of 4 octets.
    let line = 97 + 12 + 53 + 12 + 131 + 12 + 48 + 12 + 6 * 65_536 + 12;
    assert_eq!(
        first(line + 4, &[2, 0]),
        format!(
            "table 0 LINE, offset {}: expected no former owner in row 1 of a table that was built as first, found 2",
            line + 4
        )
    );
}

#[test]
fn dump_covers_every_field_but_the_secrets() {
    use common::table::{Dump, DumpRows};
    let table = sample();
    let text = Dump { table: &table, name: Some("one"), rows: DumpRows::First(2) }.to_string();
    let digest = table.digest();
    let (config, parent) = (table.config_digest(), parent().digest());
    let expected = format!(
        "digest         {digest}\nconfig digest  {config}\nparent         {parent}\ngeneration     2\nbuilt          child\n\n\
         table one\n  rows 65536  max_hops 3  ranking hrw\n  hash_fields [src_addr, src_port]  alt_hash_fields [src_addr]\n  \
         spread_zones true  seed (secret)  hash_key (secret)\n  bind tcp 203.0.113.1:80\n  bind udp 203.0.113.1:80-90\n  \
         backend 0 a  10.0.0.1  weight 2.5  active  zone zone-ä  up  rows 32768\n  \
         backend 1 b  2001:db8::b  weight 1  filling  fill 25 %  up  rows 32768\n  \
         backend 2 c  10.0.0.3  weight 1  draining  up  rows 0\n  backend 3 d  10.0.0.4  weight 1  inactive  up  rows 0\n  \
         row 0: a b  (not sent, another address family: b)\n  \
         row 1: b a c  (not sent, another address family: a c)  (before: c)\n"
    );
    assert_eq!(text, expected);
    let debug = format!("{table:?}");
    assert!(debug.contains("Seed(secret)") && debug.contains("SipKey(secret)"));
}
