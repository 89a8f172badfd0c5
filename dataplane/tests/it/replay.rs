//! The program itself: reads a capture, writes a capture and counters.

use std::{
    fs::File,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use common::{flow::HashFields, table::ForwardingTable};
use dataplane::drivers::pcap::{Reader, Writer};

use crate::support::{
    frames::{V4, tcp},
    judge::read,
    tables::{glb_file, glb_specs, hex},
};

fn vectors() -> Vec<serde_json::Value> {
    let json: serde_json::Value = serde_json::from_str(include_str!("../data/glb/packets.json")).unwrap();
    json["frames"].as_array().unwrap().clone()
}

fn write_table(path: &Path) -> ForwardingTable {
    let specs = glb_specs(HashFields::SRC_ADDR, HashFields::NONE);
    let table = ForwardingTable::new(None, specs.into_iter().map(|spec| spec.build()).collect()).unwrap();
    std::fs::write(path, table.encode()).unwrap();
    table
}

fn replay(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dataplane"))
        .arg("replay")
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap()
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

#[test]
fn replays_what_glb_would_send() {
    let dir = tempfile::tempdir().unwrap();
    let table = write_table(&dir.path().join("table.bin"));
    let mut writer = Writer::new(File::create(dir.path().join("in.pcap")).unwrap()).unwrap();
    for (second, vector) in (1..).zip(vectors()) {
        writer.write(Duration::new(second, 5), &hex(vector["in"].as_str().unwrap())).unwrap();
    }
    drop(writer);
    std::fs::write(
        dir.path().join("config.yaml"),
        "source_ipv4: 65.65.65.65\ngateway_mac: 3a:89:7c:7b:5d:1f\n",
    )
    .unwrap();

    let done = replay(
        dir.path(),
        &["--table", "table.bin", "--config", "config.yaml", "in.pcap", "out.pcap", "--json"],
    );
    assert!(done.status.success(), "{}", text(&done.stderr));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["table"], table.digest().to_string());
    assert_eq!((&report["frames"], &report["encapsulated"]), (&11.into(), &9.into()), "{report:#}");
    assert_eq!((&report["passed"]["no_bind"], &report["passed"]["not_ip"]), (&1.into(), &1.into()));
    let by_table: Vec<_> =
        report["tables"].as_array().unwrap().iter().map(|t| t["frames"].as_u64()).collect();
    assert_eq!(by_table, [Some(4), Some(3), Some(2)]);

    let mut reader = Reader::new(File::open(dir.path().join("out.pcap")).unwrap()).unwrap();
    for (second, vector) in (1..).zip(vectors()).filter(|(_, v)| v["verdict"] == "transmit") {
        let sent = reader.next_frame().unwrap().unwrap();
        assert_eq!(sent.time, Duration::new(second, 5), "{}", vector["name"]);
        assert_eq!(sent.frame, hex(vector["out"].as_str().unwrap()), "{}", vector["name"]);
    }
    assert_eq!(reader.next_frame().unwrap(), None);

    let done = replay(dir.path(), &["--table", "table.bin", "in.pcap", "out.pcap"]);
    let printed = text(&done.stdout);
    for line in ["11 frames", "encapsulated", "passed no_bind", "glb-0", "3.4.5.6"] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
}

/// GLB's file does not contain its fields: `glb` in the configuration gives them, and the rows are those of
/// GLB's director with the same fields (the pinned lists of `rows_of_source_and_port`).
#[test]
fn replays_glbs_file_with_the_fields_of_its_directors_configuration() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("glb.bin"), glb_file()).unwrap();
    let mut writer = Writer::new(File::create(dir.path().join("in.pcap")).unwrap()).unwrap();
    let syn = V4::new("10.11.12.13", "1.1.1.1", 6).frame(&tcp(45_679, 80, 2, b""));
    writer.write(Duration::ZERO, &syn).unwrap();
    drop(writer);
    let sent = |config: &str| {
        std::fs::write(dir.path().join("c.yaml"), config).unwrap();
        let done = replay(dir.path(), &["--table", "glb.bin", "--config", "c.yaml", "in.pcap", "out.pcap"]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        let frame = Reader::new(File::open(dir.path().join("out.pcap")).unwrap()).unwrap().next_frame();
        let read = read(&frame.unwrap().unwrap().frame);
        let hops = [vec![read.primary], read.hops].concat();
        (hops.iter().map(ToString::to_string).collect::<Vec<_>>(), text(&done.stderr))
    };
    let (hops, warning) = sent("mtu: 1500\n");
    assert_eq!(hops, ["3.4.5.6", "2.3.4.5"]);
    assert!(
        warning.starts_with("glb.bin: a GLB Director table file does not say which fields it hashes"),
        "{warning}"
    );
    let (hops, warning) = sent("glb: { hash_fields: [src_addr, src_port], alt_hash_fields: [src_addr] }\n");
    assert_eq!(
        (hops, warning.as_str()),
        (["1.2.3.4", "3.4.5.6", "3.4.5.6", "2.3.4.5"].map(str::to_owned).to_vec(), "")
    );
    write_table(&dir.path().join("glb.bin"));
    let done = replay(dir.path(), &["--table", "glb.bin", "--config", "c.yaml", "in.pcap", "out.pcap"]);
    assert_eq!(
        (done.status.code(), text(&done.stderr).as_str()),
        (
            Some(1),
            "dataplane: glb.bin: not a GLB Director table file, so it holds its hash fields: remove `glb` from the configuration\n"
        )
    );
}

#[test]
fn exit_codes_and_errors_that_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    write_table(&dir.path().join("table.bin"));
    drop(Writer::new(File::create(dir.path().join("in.pcap")).unwrap()).unwrap());
    let write = |name: &str, octets: &[u8]| std::fs::write(dir.path().join(name), octets).unwrap();
    write("cut.bin", &std::fs::read(dir.path().join("table.bin")).unwrap()[..1_000]);
    write("bad.yaml", b"mtu: 1500\nsource: 10.0.0.1\n");
    write("bad.pcap", b"not a capture at all, by any means");
    let base = ["in.pcap", "out.pcap"];
    for (code, named, arguments) in [
        (0, "", vec!["--table", "table.bin", base[0], base[1]]),
        (1, "cut.bin", vec!["--table", "cut.bin", base[0], base[1]]),
        (1, "bad.yaml", vec!["--table", "table.bin", "--config", "bad.yaml", base[0], base[1]]),
        (2, "none.bin", vec!["--table", "none.bin", base[0], base[1]]),
        (2, "bad.pcap", vec!["--table", "table.bin", "bad.pcap", base[1]]),
        (2, "none.pcap", vec!["--table", "table.bin", "none.pcap", base[1]]),
        (2, "nowhere/out.pcap", vec!["--table", "table.bin", base[0], "nowhere/out.pcap"]),
        (2, "--table", vec![base[0], base[1]]),
        (2, "--frob", vec!["--table", "table.bin", "--frob", base[0], base[1]]),
    ] {
        let done = replay(dir.path(), &arguments);
        let stderr = text(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(named), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_file_that_is_read_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    write_table(&path("table.bin"));
    Writer::new(File::create(path("in.pcap")).unwrap()).unwrap().write(Duration::ZERO, &[0; 60]).unwrap();
    std::fs::hard_link(path("in.pcap"), path("link.pcap")).unwrap();
    let before = std::fs::read(path("in.pcap")).unwrap();
    for out in ["in.pcap", "link.pcap", "./in.pcap", "table.bin"] {
        let done = replay(dir.path(), &["--table", "table.bin", "in.pcap", out]);
        assert_eq!(done.status.code(), Some(2), "{out}");
        assert!(text(&done.stderr).contains("would overwrite"), "{}", text(&done.stderr));
    }
    assert_eq!(std::fs::read(path("in.pcap")).unwrap(), before);
    let twice = |_| replay(dir.path(), &["--table", "table.bin", "in.pcap", "out.pcap"]).status.success();
    assert!((0..2).all(twice));
}

#[test]
fn an_invalid_capture_is_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    write_table(&dir.path().join("table.bin"));
    std::fs::write(dir.path().join("in.pcap"), b"nothing of the sort, but long enough").unwrap();
    let error = text(&replay(dir.path(), &["--table", "table.bin", "in.pcap", "out.pcap"]).stderr);
    assert_eq!(error.matches("wrong magic number").count(), 1, "{error}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    write_table(&dir.path().join("table.bin"));
    drop(Writer::new(File::create(dir.path().join("in.pcap")).unwrap()).unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_dataplane"));
    command.args(["replay", "--table", "table.bin", "in.pcap", "out.pcap", "--json"]).current_dir(dir.path());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let done = command.stdout(writer).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
}
