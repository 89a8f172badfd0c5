//! GLB's own frames, octet by octet, and the cases of its test suite (hashes, rows and ports as published).

use common::{backend::Health, flow::HashFields, table::ForwardingTable};
use dataplane::pipeline::{Pipeline, Verdict};

use crate::support::{
    frames::{V4, icmp, tcp},
    judge::{read, run},
    tables::{UNDERLAY, glb_file, glb_specs, hex, pipeline, via_gateway},
};

const SOURCE_AND_PORT: HashFields = HashFields::DEFAULT;

fn glb_pipeline(fields: HashFields, alt: HashFields) -> Pipeline {
    pipeline(glb_specs(fields, alt).into_iter().map(|spec| spec.build()).collect())
}

fn check_frames(pipeline: &Pipeline, frames: &serde_json::Value) -> usize {
    let frames = frames.as_array().unwrap();
    for vector in frames {
        let name = vector["name"].as_str().unwrap();
        let frame = hex(vector["in"].as_str().unwrap());
        let outcome = run(pipeline, &frame);
        if vector["verdict"] == "pass" {
            assert!(matches!(outcome.verdict, Verdict::Pass(_)), "{name}: {:?}", outcome.verdict);
            continue;
        }
        assert!(matches!(outcome.verdict, Verdict::Encapsulate(_)), "{name}: {:?}", outcome.verdict);
        assert_eq!(outcome.frame, hex(vector["out"].as_str().unwrap()), "{name}");
    }
    frames.len()
}

fn vectors() -> serde_json::Value {
    serde_json::from_str(include_str!("../data/glb/packets.json")).unwrap()
}

#[test]
fn every_frame_octet_by_octet() {
    let pipeline = glb_pipeline(HashFields::SRC_ADDR, HashFields::NONE);
    assert_eq!(check_frames(&pipeline, &vectors()["frames"]), 11);
}

#[test]
fn every_frame_of_a_second_look_up_octet_by_octet() {
    let pipeline = glb_pipeline(SOURCE_AND_PORT, HashFields::SRC_ADDR);
    assert_eq!(check_frames(&pipeline, &vectors()["frames_alt"]["frames"]), 1);
}

#[test]
fn every_frame_through_its_own_file_format() {
    let read = ForwardingTable::read(&glb_file()).unwrap();
    let pipeline = Pipeline::new(read, UNDERLAY, via_gateway).unwrap();
    assert_eq!(check_frames(&pipeline, &vectors()["frames"]), 11);
}

fn syn(port: u16) -> Vec<u8> {
    V4::new("10.11.12.13", "1.1.1.1", 6).frame(&tcp(port, 80, 2, b""))
}

fn hops(pipeline: &Pipeline, frame: &[u8]) -> (Vec<String>, u16) {
    let read = read(&run(pipeline, frame).frame);
    let all = [vec![read.primary], read.hops].concat();
    (all.iter().map(ToString::to_string).collect(), read.port)
}

#[test]
fn the_source_alone_chooses_the_row() {
    let pipeline = glb_pipeline(HashFields::SRC_ADDR, HashFields::NONE);
    assert_eq!(hops(&pipeline, &syn(45_678)), (vec!["3.4.5.6".into(), "2.3.4.5".into()], 0xeed3));
}

#[test]
fn an_error_follows_the_flow_that_it_quotes() {
    let pipeline = glb_pipeline(HashFields::SRC_ADDR, HashFields::NONE);
    let quoted = V4::new("1.1.1.1", "10.11.12.13", 6).packet(&tcp(80, 45_678, 16, b""));
    // The IP header and exactly eight octets, as RFC 792 asks; any code; any router.
    for (kind, code) in [(3, 4), (3, 0), (3, 13), (11, 0), (12, 0), (4, 0)] {
        let message = icmp(kind, code, [0, 0, 5, 0x78], &quoted[..28]);
        let frame = V4::new("10.11.99.99", "1.1.1.1", 1).frame(&message);
        assert_eq!(hops(&pipeline, &frame), hops(&pipeline, &syn(45_678)), "type {kind} code {code}");
    }
}

#[test]
fn rows_of_source_and_port() {
    let plain = glb_pipeline(SOURCE_AND_PORT, HashFields::NONE);
    let appended = glb_pipeline(SOURCE_AND_PORT, HashFields::SRC_ADDR);
    for (port, row, expected) in [
        (45_678, 0x29ea, ["1.2.3.4", "2.3.4.5"]),
        (45_679, 0x9ae1, ["1.2.3.4", "3.4.5.6"]),
        (45_680, 0x32c4, ["2.3.4.5", "3.4.5.6"]),
    ] {
        let (list, outer_port) = hops(&plain, &syn(port));
        assert_eq!(list, expected, "port {port}");
        assert_eq!((outer_port ^ port) & 0x7fff, row & 0x7fff, "port {port}");
        let (list, _) = hops(&appended, &syn(port));
        let second = ["3.4.5.6", "2.3.4.5"];
        assert_eq!(list, [expected, second].concat(), "port {port}, second look-up");
    }
}

#[test]
fn the_second_serves_while_the_first_is_down() {
    let mut specs = glb_specs(HashFields::SRC_ADDR, HashFields::NONE);
    specs[0].backends[2].health = Health::Down;
    let pipeline = pipeline(specs.into_iter().map(|spec| spec.build()).collect());
    assert_eq!(hops(&pipeline, &syn(45_678)).0, ["2.3.4.5", "3.4.5.6"]);
}
