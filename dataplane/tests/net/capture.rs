//! Real traffic, captured on a wire, replayed, and read by an independent parser.
//!
//! curl downloads from and uploads to real servers over IPv4 and IPv6; `dumpcap` records; `dataplane replay`
//! encapsulates; `tshark`, with the GUE dissector `tests/data/gue.lua`, must find every packet complete and
//! every checksum right.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dataplane::testkit::lab::{folder::Folder, netns::Namespace};

const TOOLS: [&str; 4] = ["curl", "python3", "dumpcap", "tshark"];
const LARGE: usize = 8 << 20;
const TABLE: &str = "version: 1
tables:
  - name: web
    seed: 000102030405060708090a0b0c0d0e0f
    hash_key: f0e0d0c0b0a090807060504030201000
    binds:
      - { address: 203.0.113.10, protocol: tcp, ports: 8000-8001 }
      - { address: \"2001:db8:1::10\", protocol: tcp, ports: 8000-8001 }
    backends:
      - { id: a, address: 10.0.0.11 }
      - { id: b, address: 10.0.0.12 }
      - { id: c, address: 10.0.0.13, state: draining }
";

/// A child that does not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(namespace: &Namespace, program: &'static str, arguments: &[&str]) -> Running {
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    namespace.run(move || {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().unwrap())
    })
}

fn curl(namespace: &Namespace, arguments: &[&str]) {
    let mut arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    arguments.extend(
        ["-sS", "-f", "--max-time", "60", "--retry", "20", "--retry-connrefused", "-o", "/dev/null"]
            .map(str::to_owned),
    );
    let output = namespace.run(move || Command::new("curl").args(arguments).output().unwrap());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Accepts uploads: reads each request to its end and answers 200.
fn take_uploads(namespace: &Namespace, requests: usize) -> std::thread::JoinHandle<()> {
    let listener = namespace.run(|| TcpListener::bind("[::]:8001").unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().take(requests) {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while stream.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.to_ascii_lowercase().starts_with("expect:") {
                    stream.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
                }
                line.clear();
            }
            std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink()).unwrap();
            stream
                .get_mut()
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                .unwrap();
        }
    })
}

fn network() -> (Namespace, Namespace) {
    let (client, server) = (Namespace::new("client").unwrap(), Namespace::new("server").unwrap());
    client.connect("wire", &server, "wire", 1_500).unwrap();
    // The capture is of frames as on a wire.
    [&client, &server].iter().for_each(|end| end.finish_checksums("wire").unwrap());
    [&client, &server].iter().for_each(|end| end.ip("link set wire up").unwrap());
    [&client, &server].iter().for_each(|end| end.wait_for("wire").unwrap());
    client.ip("addr add 198.51.100.2/24 dev wire\nroute add 203.0.113.10 via 198.51.100.1").unwrap();
    client
        .ip("addr add 2001:db8:c::2/64 dev wire nodad\nroute add 2001:db8:1::10 via 2001:db8:c::1")
        .unwrap();
    server.ip("addr add 198.51.100.1/24 dev wire\naddr add 203.0.113.10/32 dev lo").unwrap();
    server.ip("addr add 2001:db8:c::1/64 dev wire nodad\naddr add 2001:db8:1::10/128 dev lo nodad").unwrap();
    (client, server)
}

fn record(folder: &Folder, capture: &Path) {
    let (client, server) = network();
    std::fs::write(folder.file("large"), vec![0x5a; LARGE]).unwrap();
    let large = folder.file("large").display().to_string();
    let directory = folder.path().display().to_string();
    let _web =
        spawn(&server, "python3", &["-m", "http.server", "8000", "--bind", "::", "--directory", &directory]);
    let uploads = take_uploads(&server, 2);
    let capture = capture.display().to_string();
    let mut dumpcap = spawn(&server, "dumpcap", &["-q", "-i", "wire", "-B", "64", "-w", &capture]);
    wait_until(|| std::fs::metadata(&capture).is_ok_and(|file| file.len() > 0));
    for host in ["203.0.113.10", "[2001:db8:1::10]"] {
        (0..3).for_each(|_| curl(&client, &["-g", &format!("http://{host}:8000/large")]));
        curl(&client, &["-g", "-T", &large, &format!("http://{host}:8001/")]);
    }
    uploads.join().unwrap();
    let pid = dumpcap.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    wait_until(|| dumpcap.0.try_wait().unwrap().is_some());
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing came of it in 20 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn replay(folder: &Folder, capture: &Path, out: &Path) -> serde_json::Value {
    let config = tablegen::config::Config::parse(TABLE, Path::new("table.yaml")).unwrap();
    let built = tablegen::generate::generate(&config.tables, tablegen::generate::History::None).unwrap();
    let table = folder.write("table", built.table.encode()).unwrap();
    let underlay =
        folder.write("dataplane.yaml", "version: 1\ninterface: wire\ntable: table\nmtu: 1600\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_dataplane"))
        .args(["replay", "--json", "--table"])
        .args([&table, Path::new("--config"), &underlay, capture, out])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Frames of `capture` that match a display filter.
fn tshark(capture: &Path, filter: &str) -> usize {
    matches(capture, filter).lines().count()
}

/// One line for each frame of `capture` that matches a display filter.
fn matches(capture: &Path, filter: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gue.lua");
    let checks = ["ip.check_checksum", "tcp.check_checksum"].map(|check| format!("{check}:TRUE"));
    let output = Command::new("tshark")
        .args(["-X", &format!("lua_script:{script}"), "-o", &checks[0], "-o", &checks[1], "-n", "-r"])
        .args([capture, Path::new("-Y"), Path::new(filter)])
        .output()
        .unwrap();
    assert!(output.status.success(), "{filter}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_installed(tool: &str) -> bool {
    let search = format!("command -v {tool}");
    Command::new("sh")
        .args(["-c", &search])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[test]
fn frames_sent_for_a_capture_are_valid_for_another_parser() {
    if let Some(tool) = TOOLS.iter().find(|tool| !is_installed(tool)) {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "CI must have {tool}");
        println!("SKIPPED: {tool} is not installed");
        return;
    }
    if !super::privileged() {
        return;
    }
    let folder = Folder::new().unwrap();
    let (capture, out) = (folder.file("in.pcapng"), folder.file("out.pcap"));
    record(&folder, &capture);
    let counts = replay(&folder, &capture, &out);
    println!("{counts:#}");
    let total = tshark(&capture, "frame");
    assert!(total >= 10_000, "{total} frames captured");
    for (inside, outside) in
        [(4, "ip.version == 4 && ip.dst == 203.0.113.10"), (41, "ipv6.dst == 2001:db8:1::10 && tcp")]
    {
        let wrapped = tshark(&out, &format!("tryst_gue.proto == {inside}"));
        assert_eq!(wrapped, tshark(&capture, outside), "protocol {inside}");
        assert!(wrapped > 1_000, "{wrapped}");
    }
    assert_eq!(tshark(&out, "frame"), tshark(&out, "tryst_gue && tcp"));
    // Linux writes a TCP checksum of 0 as 0xffff, the other zero of ones' complement; tshark does not take it
    // for one.
    let wrong = "_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 || \
                 (tcp.checksum.status == 0 && tcp.checksum != 0xffff)";
    assert_eq!(matches(&out, wrong), "");
    let right =
        "tryst_gue.version == 0 && tryst_gue.control == 0 && tryst_gue.flags == 0 && tryst_gue.next_hop == 0";
    assert_eq!(tshark(&out, right), tshark(&out, "frame"));
}
