//! Vectors that an independent implementation computed.

use serde_json::Value;
use tryst_hrw::hash::{hash_bytes, mix};
use tryst_hrw::{Node, NodeSet, Ranker, top_k};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../data/hash.json")).unwrap()
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().unwrap().iter().map(|(key, value)| (key.as_str(), value))
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
        let ranked: Vec<_> = top_k(key.as_bytes(), &nodes, 3).into_iter().map(|at| ids[at]).collect();
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
