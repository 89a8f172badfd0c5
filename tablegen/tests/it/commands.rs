//! The command line: what scripts rely on.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tablegen::review::explain::{Flow, flows};

pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Builds one of the example configurations.
    pub(crate) fn table(&self, config: &str) -> String {
        let table = self.path(config);
        tablegen(&["build", &example(config), "-o", &table]);
        table
    }
}

pub(crate) fn example(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../configs/{name}.yaml"));
    path.to_str().unwrap().to_owned()
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tablegen")).args(arguments).output().unwrap()
}

/// Runs a command that must succeed, and gives what it printed.
pub(crate) fn tablegen(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&tablegen(arguments)).unwrap()
}

#[test]
fn build_dump_and_build_on_it() {
    let folder = Folder::new();
    let (first, second) = (folder.path("first"), folder.path("second"));
    let built = json(&["build", &example("minimal"), "-o", &first, "--json"]);
    assert_eq!(built["generation"], 1);
    assert_eq!(built["tables"][0]["rows_by_hops"], serde_json::json!([0, 0, 65_536, 0, 0]));
    let next = json(&["build", &example("minimal"), "-o", &second, "--previous", &first, "--json"]);
    assert_eq!((&next["generation"], &next["parent"]), (&2.into(), &built["digest"]));
    assert_eq!([&built["built"], &next["built"]], ["first", "child"]);
    let settled = folder.path("settled");
    let last =
        json(&["build", &example("minimal"), "-o", &settled, "--previous", &second, "--settle", "--json"]);
    assert_eq!(last["built"], "settled");
    for (file, built) in [(&first, "first"), (&second, "child"), (&settled, "settled")] {
        assert_eq!(json(&["dump", file, "--json", "--rows", "1"])["built"], built);
        assert!(tablegen(&["dump", file]).contains(&format!("\nbuilt          {built}\n")), "{file}");
    }
    let listed = json(&["log", &folder.path(""), "--json"]);
    let listed: Vec<&Value> = listed.as_array().unwrap().iter().map(|entry| &entry["built"]).collect();
    assert_eq!(listed, ["settled", "child", "first"]);
    let dump = json(&["dump", &second, "--json"]);
    let keys: Vec<&String> = dump.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["built", "digest", "generation", "parents", "tables"]);
    assert_eq!(dump["digest"], next["digest"]);
    assert_eq!(dump["parents"], serde_json::json!([built["digest"]]));
    let table = &dump["tables"][0];
    assert_eq!(
        (&table["name"], &table["rows"], &table["max_hops"]),
        (&"web".into(), &65_536.into(), &4.into())
    );
    assert_eq!(table["backends"][1]["id"], "web-2");
    let hops = table["hops"].as_array().unwrap();
    assert_eq!(hops.len(), 65_536);
    let owned = hops.iter().filter(|list| list[0] == "web-2").count();
    assert_eq!(table["backends"][1]["rows"], owned);
    let mut names = folder.names();
    names.sort();
    assert_eq!(names, ["first", "second", "settled"]);
}

#[test]
fn dump_selects_tables_and_rows() {
    let folder = Folder::new();
    let table = folder.table("two-tables");
    let dump = json(&["dump", &table, "--table", "dns", "--json", "--rows", "3"]);
    assert_eq!(dump["tables"].as_array().unwrap().len(), 1);
    assert_eq!(dump["tables"][0]["hops"].as_array().unwrap().len(), 3);
    let text = tablegen(&["dump", &table, "--table", "web", "--rows", "all"]);
    assert_eq!(text.matches("\n  row ").count(), 65_536);
    assert!(!text.contains("table dns"));
    assert_eq!(run(&["dump", &table, "--table", "api"]).status.code(), Some(2));
}

#[test]
fn no_output_of_any_command_holds_a_secret() {
    let folder = Folder::new();
    let (config, table) = (example("two-tables"), folder.table("two-tables"));
    let flow = "udp 198.51.100.7:1 > 203.0.113.53:53";
    let outputs = [
        run(&["check", &config]),
        run(&["check", &config, "--json"]),
        run(&["build", &config, "-o", &folder.path("again"), "--json"]),
        run(&["dump", &table, "--rows", "all"]),
        run(&["dump", &table, "--json"]),
        run(&["explain", &table, flow]),
        run(&["explain", &table, flow, "--json"]),
        run(&["drain", &config, &table, "dns-2"]),
        run(&["drain", &config, &table, "dns-2", "--json"]),
        run(&["fill", &config, &table, "dns-1", "--percent", "10"]),
        run(&["remove", &config, &table, "dns-2", "--json"]),
        run(&["diff", &table, &table]),
        run(&["diff", &table, &table, "--json"]),
        run(&["diff", &table, &table, "--format", "html"]),
        run(&["verify", &table, "--config", &config, "--json"]),
        run(&["plan", &table, &config, "--json"]),
        run(&["simulate", &table, "--synthetic", "100", "--json"]),
        run(&["compare", &config, "--keys", "100", "--json"]),
        run(&["log", &folder.path("")]),
    ];
    // The lines around the change of dns-2 are where another table's secrets stand.
    let patch = String::from_utf8(run(&["drain", &config, &table, "dns-2"]).stdout).unwrap();
    assert!(patch.contains("hash_key: …"), "{patch}");
    for output in outputs {
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        for secret in ["101112131415", "e0d0c0b0a090", "000102030405", "f0e0d0c0b0a0"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[test]
fn a_table_that_cannot_be_written_leaves_nothing_and_fails_as_the_systems() {
    let folder = Folder::new();
    let output = run(&["build", &example("minimal"), "-o", &folder.path("missing/table")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(folder.names().is_empty());
}

#[test]
fn a_broken_parent_is_refused_and_the_old_table_stays() {
    let folder = Folder::new();
    let (table, broken) = (folder.table("minimal"), folder.path("broken"));
    let octets = std::fs::read(&table).unwrap();
    std::fs::write(&broken, &octets[..octets.len() - 1]).unwrap();
    let output = run(&["build", &example("states"), "-o", &table, "--previous", &broken]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read(&table).unwrap(), octets);
    assert_eq!(run(&["build", &example("states"), "-o", &table, "--settle"]).status.code(), Some(2));
}

#[test]
fn glb_from_json_to_file_by_the_command_line() {
    let folder = Folder::new();
    let json = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/glb/t2-states.json");
    let (config, table) = (folder.path("config.yaml"), folder.path("table"));
    let imported = run(&["import", json.to_str().unwrap(), "-o", &config]);
    assert!(imported.status.success());
    assert!(String::from_utf8(imported.stderr).unwrap().contains("10.0.0.6"), "its health is missing");
    tablegen(&["build", &config, "-o", &table, "--format", "glb"]);
    let digest = common::table::Digest::of(&std::fs::read(&table).unwrap()).to_string();
    assert!(include_str!("../data/glb/SHA256SUMS").contains(&digest));
    let dump = self::json(&["dump", &table, "--json"]);
    assert_eq!(dump["digest"], digest);
    let web = example("minimal");
    let refused = run(&["build", &web, "-o", &folder.path("none"), "--format", "glb"]);
    assert_eq!(refused.status.code(), Some(1));
    let previous = run(&["build", &config, "-o", &table, "--format", "glb", "--previous", &table]);
    assert_eq!(previous.status.code(), Some(2));
}

#[test]
fn explain_agrees_with_the_table_for_every_state() {
    let folder = Folder::new();
    let table = folder.table("states");
    let mut reasons = std::collections::BTreeSet::new();
    for port in 1000..1060 {
        let flow = format!("tcp 198.51.100.7:{port} > 203.0.113.10:443");
        let matched = json(&["explain", &table, &flow, "--json"])["matched"].take();
        assert_eq!(matched["bind"], "tcp 203.0.113.10:443");
        let lookup = &matched["lookup"];
        assert_eq!(lookup["hash_input"], format!("c6336407{port:04x}"));
        let candidates = lookup["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), 6);
        for (place, id) in lookup["hops"].as_array().unwrap().iter().enumerate() {
            let one = candidates.iter().find(|one| one["id"] == *id).unwrap();
            assert_eq!(one["hop"], place);
            assert_ne!(one["why"], "not needed");
        }
        for one in candidates {
            assert!(
                one["hop"].is_number()
                    || ["not needed", "inactive: in no hop list"].contains(&one["why"].as_str().unwrap()),
                "{one}"
            );
            reasons.insert(one["why"].as_str().unwrap().to_owned());
        }
        let weighted: Vec<f64> =
            candidates.iter().take(5).map(|one| one["weighted_score"].as_f64().unwrap()).collect();
        assert!(weighted.is_sorted_by(|a, b| a >= b), "{weighted:?}");
    }
    assert!(reasons.len() >= 6, "{reasons:#?}");
}

#[test]
fn explain_says_what_no_bind_matches_and_what_it_cannot_know() {
    let folder = Folder::new();
    let table = folder.table("minimal");
    let text = tablegen(&["explain", &table, "udp 198.51.100.7:1 > 203.0.113.10:443"]);
    assert!(text.contains("no bind matches"), "{text}");
    assert_eq!(run(&["explain", &table, "gre 1.2.3.4 > 1.2.3.5"]).status.code(), Some(2));
    let echo = tablegen(&["explain", &table, "icmp 198.51.100.7 > 203.0.113.10"]);
    assert!(echo.contains("hash input  c6336407 (src_addr)"), "{echo}");
}

/// A capture of an Ethernet, a VLAN and an IPv6 frame, and two that are no flows.
#[test]
fn flows_of_a_capture() {
    use etherparse::PacketBuilder;
    let mut frames: Vec<Vec<u8>> = Vec::new();
    let mut push = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Vec::new();
        write(&mut frame);
        frames.push(frame);
    };
    let ethernet = || PacketBuilder::ethernet2([1; 6], [2; 6]);
    let v4 = || ethernet().ipv4([198, 51, 100, 7], [203, 0, 113, 10], 64);
    push(&|frame| v4().tcp(51_234, 443, 1, 1000).write(frame, &[]).unwrap());
    push(&|frame| v4().tcp(51_234, 443, 2, 1000).write(frame, &[1]).unwrap());
    let vlan =
        || ethernet().single_vlan(7.try_into().unwrap()).ipv4([198, 51, 100, 8], [203, 0, 113, 10], 64);
    push(&|frame| vlan().udp(9, 53).write(frame, &[]).unwrap());
    let v6 = || ethernet().ipv6([0x20; 16], [0x21; 16], 64);
    push(&|frame| v6().icmpv6_echo_request(1, 1).write(frame, &[]).unwrap());
    push(&|frame| v4().icmpv4_echo_reply(1, 1).write(frame, &[]).unwrap());
    frames.push(vec![0xff; 60]);

    let mut writer = pcap_file::pcap::PcapWriter::new(Vec::new()).unwrap();
    for frame in &frames {
        let len = u32::try_from(frame.len()).unwrap();
        let packet = pcap_file::pcap::PcapPacket::new(std::time::Duration::ZERO, len, frame);
        writer.write_packet(&packet).unwrap();
    }
    let capture = flows(writer.into_writer().as_slice(), 10, |_| true).unwrap();
    let found: Vec<String> = capture.flows.iter().map(Flow::to_string).collect();
    let v6 = |octet: u8| std::net::Ipv6Addr::from([octet; 16]);
    assert_eq!(
        found,
        [
            "tcp 198.51.100.7:51234 > 203.0.113.10:443".to_owned(),
            "udp 198.51.100.8:9 > 203.0.113.10:53".to_owned(),
            format!("icmp {} > {}", v6(0x20), v6(0x21)),
        ]
    );
    assert_eq!((capture.packets, capture.others), (6, 2));
    assert!(flows(&b"no capture at all, but long enough to be one"[..], 1, |_| true).is_err());
}

/// Commands that change a file say in JSON what they did, or why not.
#[test]
fn changes_and_imports_tell_scripts_too() {
    let folder = Folder::new();
    let (config, table) = (folder.path("config.yaml"), folder.table("minimal"));
    std::fs::copy(example("minimal"), &config).unwrap();
    let shown = json(&["drain", &config, &table, "web-2", "--json"]);
    assert_eq!((&shown["changed"], &shown["written"]), (&true.into(), &false.into()));
    assert!(shown["patch"].as_str().unwrap().contains("+      - { id: web-2, state: draining, address"));
    assert_eq!((&shown["diff"]["verdict"], &shown["refusals"]), (&"safe".into(), &serde_json::json!([])));
    assert_eq!(std::fs::read(&config).unwrap(), std::fs::read(example("minimal")).unwrap());
    let refused = run(&["drain", &config, &table, "web-1", "web-2", "web-3", "--write", "--json"]);
    assert_eq!(refused.status.code(), Some(1));
    let refused: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!((&refused["written"], &refused["safe_now"]), (&false.into(), &serde_json::json!(["web-1"])));
    let filled = json(&["fill", &config, &table, "web-2", "--percent", "50", "--write", "--json"]);
    assert_eq!((&filled["action"], &filled["written"]), (&"fill".into(), &true.into()));
    assert!(std::fs::read_to_string(&config).unwrap().contains("id: web-2, fill: 50, state: filling"));
    let next = folder.path("next");
    tablegen(&["build", &config, "-o", &next, "--previous", &table]);
    assert_eq!(json(&["diff", &table, &next, "--json"]), json(&["diff", &table, &next, "--format", "json"]));
    assert_eq!(run(&["diff", &table, &next, "--json", "--format", "html"]).status.code(), Some(2));
    let glb = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/glb/t2-states.json");
    let imported = run(&["import", glb.to_str().unwrap(), "-o", &folder.path("glb.yaml"), "--json"]);
    assert!(imported.stderr.is_empty());
    let imported: Value = serde_json::from_slice(&imported.stdout).unwrap();
    assert!(imported["warnings"][0].as_str().unwrap().contains("10.0.0.6"), "{imported}");
}

/// A build that was killed while it wrote leaves a part of a file; the next one takes it away.
#[test]
fn a_killed_build_leaves_nothing_for_good() {
    let folder = Folder::new();
    let table = folder.path("table");
    std::fs::write(folder.path(".tablegen-dead.tmp"), "half").unwrap();
    tablegen(&["build", &example("minimal"), "-o", &table]);
    assert_eq!(folder.names(), ["table"]);
}

/// No terminal, no progress.
#[test]
fn a_pipe_is_told_nothing_but_words() {
    use std::io::Read as _;
    let folder = Folder::new();
    let table = folder.table("minimal");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tablegen"))
        .args(["verify", &table, "--config", &example("minimal")])
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success() && said.is_empty(), "{said:?}");
}
