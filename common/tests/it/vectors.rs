//! Vectors that an independent implementation computed.

use common::flow::{FlowKey, HashFields};
use common::hash::{SipKey, mix};
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
fn mix_of_words() {
    for (input, output) in entries(&vectors()["mix"]) {
        let input = u64::from_str_radix(input, 16).unwrap();
        assert_eq!(format!("{:016x}", mix(input)), output.as_str().unwrap());
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
