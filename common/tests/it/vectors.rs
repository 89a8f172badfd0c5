//! Vectors that an independent implementation computed.

use common::flow::{FlowKey, HashFields};
use common::hash::{SipKey, hash_bytes, mix};
use common::hrw::{self, Node, NodeSet, Ranker};
use serde_json::Value;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../data/hash.json")).unwrap()
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().unwrap().iter().map(|(key, value)| (key.as_str(), value))
}

fn hex(text: &str) -> [u8; 16] {
    assert_eq!(text.len(), 32);
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

#[test]
fn mix_and_hash_bytes() {
    for (input, output) in entries(&vectors()["mix"]) {
        let input = u64::from_str_radix(input, 16).unwrap();
        assert_eq!(format!("{:016x}", mix(input)), output.as_str().unwrap());
    }
    for (input, output) in entries(&vectors()["hash_bytes"]) {
        assert_eq!(format!("{:016x}", hash_bytes(input.as_bytes())), output.as_str().unwrap(), "{input:?}");
    }
}

#[test]
fn the_first_three_of_five() {
    let ids = ["a", "b", "c", "d", "e"];
    let nodes = ids.map(Node::new);
    for (key, expected) in entries(&vectors()["top3_of_a_b_c_d_e_equal_weights"]) {
        let ranked: Vec<_> = hrw::top_k(key.as_bytes(), &nodes, 3).into_iter().map(|at| ids[at]).collect();
        assert_eq!(serde_json::to_value(ranked).unwrap(), *expected, "{key:?}");
    }
}

#[test]
fn shares_of_many_keys() {
    let node = |id: &str, weight| Node::weighted(id, weight).unwrap();
    let cases = [
        (
            "nodes a:1 b:1 c:2, keys 0..100000 as u32 little-endian",
            vec![node("a", 1.0), node("b", 1.0), node("c", 2.0)],
        ),
        (
            "nodes a:1 b:2.5 c:0.5 d:4, keys 0..1000000",
            vec![node("a", 1.0), node("b", 2.5), node("c", 0.5), node("d", 4.0)],
        ),
        ("nodes a..e equal, keys 0..1000000", ["a", "b", "c", "d", "e"].map(Node::new).to_vec()),
    ];
    let all = vectors();
    for (name, nodes) in cases {
        let expected: Vec<u64> = serde_json::from_value(all["counts"][name].clone()).unwrap();
        let set = NodeSet::new(&nodes);
        let mut ranker = Ranker::new(&set);
        let mut counts = vec![0u64; nodes.len()];
        let keys = u32::try_from(expected.iter().sum::<u64>()).unwrap();
        for key in 0..keys {
            ranker.start(hash_bytes(&key.to_le_bytes()));
            counts[ranker.next_node().unwrap()] += 1;
        }
        assert_eq!(counts, expected, "{name}");
    }
}

#[test]
fn glb_flow_hashes_and_row_seeds() {
    let all = vectors();
    let key = SipKey::new(hex("12345678901234561234567890123456"));
    for (name, expected) in entries(&all["glb"]["flow hash, key 12345678901234561234567890123456"]) {
        let (address, port) = match name.split_once(" + source port ") {
            Some((address, port)) => (address, Some(port.parse().unwrap())),
            None => (name, None),
        };
        let flow = FlowKey {
            src_addr: address.parse().unwrap(),
            dst_addr: "192.0.2.1".parse().unwrap(),
            ports: Some((port.unwrap_or(1), 80)),
        };
        let fields = if port.is_some() { HashFields::DEFAULT } else { HashFields::SRC_ADDR };
        assert_eq!(format!("{:016x}", flow.hash(key, fields).0), expected.as_str().unwrap(), "{name}");
    }
    let seed = SipKey::new(hex("49a3d861d661ae5ab06ed9326871a2f5"));
    for (row, expected) in entries(&all["glb"]["seed 49a3d861d661ae5ab06ed9326871a2f5 row_seed"]) {
        let row = u32::from_str_radix(row, 16).unwrap();
        let octets = seed.hash(&row.to_be_bytes()).to_le_bytes();
        assert_eq!(
            octets.map(|octet| format!("{octet:02x}")).concat(),
            expected.as_str().unwrap(),
            "row {row:x}"
        );
    }
}
