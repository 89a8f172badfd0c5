//! A director in a namespace of its own, a client's cable on one side and the backends' on the other.
//!
//! ```text
//!  client ns          director ns (the test's thread)              backends ns
//!  client ──────────── front                    back ──────────────── far
//!  192.0.2.2           192.0.2.1           10.0.0.1                   10.0.0.2 (gateway), .11, .12, …
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::backend::Backend;
use common::bind::{Bind, PortRange, Prefix, Protocol};
use common::flow::{FlowKey, HashFields};
use common::hash::SipKey;
use common::table::{ForwardingTable, Lists, Ranking, Seed, Table};
use dataplane::control::socket::{Format, query};
use dataplane::host::sys::batch::{BATCH, Batch};
use dataplane::host::sys::interface::Interface;
use dataplane::host::sys::packet::PacketSocket;
use dataplane::host::sys::ring::{Ring, Shape};
use serde_json::Value;
use tempfile::TempDir;

use crate::namespace::{Peer, cable_to, ip};

pub(crate) const VIP: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
pub(crate) const FRONT: [u8; 6] = [2, 0, 0, 0, 0, 1];

pub(crate) struct Host {
    pub(crate) client: Peer,
    pub(crate) backends: Peer,
    pub(crate) folder: TempDir,
}

impl Host {
    /// Cables and addresses; nothing runs yet.
    pub(crate) fn new() -> Self {
        let (client, backends) = (Peer::new(), Peer::new());
        cable_to(&client, "front", "client");
        cable_to(&backends, "back", "far");
        ip("link set front address 02:00:00:00:00:01");
        ip("addr add 192.0.2.1/24 dev front");
        ip("addr add 10.0.0.1/24 dev back");
        ip("addr add fe80::1/64 dev back nodad");
        ip("addr add fd00::1/64 dev back nodad");
        backends.visit(|| {
            ip("link set far address 02:00:00:00:00:02");
            for last in [2, 11, 12, 13, 14] {
                ip(&format!("addr add 10.0.0.{last}/24 dev far"));
                ip(&format!("addr add fd00::{last}/64 dev far nodad"));
            }
        });
        Self { client, backends, folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a temporary file and renames it, as tablegen does.
    pub(crate) fn install(&self, octets: &[u8]) {
        fs::write(self.path("new"), octets).expect("a table");
        fs::rename(self.path("new"), self.path("web.table")).expect("a table");
    }

    /// Starts a director and waits until it answers.
    pub(crate) fn run(&self, settings: &str, arguments: &[&str]) -> Running {
        let config =
            format!("version: 1\ntable: web.table\ninterface: front\ncontrol: control\n{settings}\n");
        fs::write(self.path("dataplane.yaml"), config).expect("a configuration");
        let child = Command::new(env!("CARGO_BIN_EXE_dataplane"))
            .args(["run", "--json", "--config"])
            .arg(self.path("dataplane.yaml"))
            .args(arguments)
            .env("RUNTIME_DIRECTORY", self.folder.path())
            // Files instead of pipes, which fill up without a reader.
            .stdout(File::create(self.path("out")).expect("a file"))
            .stderr(File::create(self.path("said")).expect("a file"))
            .spawn()
            .expect("the director starts");
        let running = Running { child, folder: self.folder.path().to_owned() };
        running.until("it answers", |_| true);
        running
    }

    /// A ring on the backends' end.
    pub(crate) fn listen(&self) -> Ring {
        let shape = Shape { blocks: 512, ..Shape::default() };
        self.backends.visit(|| Ring::open(Interface::named("far").unwrap().index, shape, None).unwrap())
    }

    /// A socket for sending at the client's end.
    pub(crate) fn sender(&self) -> Sender {
        self.client.visit(|| Sender {
            socket: PacketSocket::open().unwrap(),
            ifindex: Interface::named("client").unwrap().index,
            batch: Batch::new(2048),
        })
    }

    /// Installs the second table, the first, and so on, each once the last is in use, while packets flow.
    /// `swapped` is called after each swap with its number, from 1.
    pub(crate) fn swap_under_load(
        &self,
        director: &Running,
        tables: &[ForwardingTable; 2],
        load: &Load,
        mut swapped: impl FnMut(u64),
    ) -> Flowed {
        let octets = tables.each_ref().map(ForwardingTable::encode);
        let (mut ring, mut sender) = (self.listen(), self.sender());
        let (done, sent) = (AtomicBool::new(false), AtomicU32::new(0));
        let all = std::thread::scope(|scope| {
            scope.spawn(|| sender.pour(load.pause, &sent, &done));
            let receiver = scope.spawn(|| {
                let mut all = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    all.extend(collect(&mut ring, 1_000));
                }
                all.extend(collect(&mut ring, usize::MAX));
                all
            });
            let (start, end) = (Instant::now(), SetAtDrop(&done));
            for swap in 1..=load.swaps {
                self.install(&octets[usize::try_from(swap % 2).unwrap()]);
                while director.status().is_none_or(|status| status["swaps"].as_u64() < Some(swap)) {
                    assert!(start.elapsed() < load.limit, "swap {swap}: {}", director.said());
                }
                swapped(swap);
            }
            eprintln!("{} swaps in {:?}", load.swaps, start.elapsed());
            drop(end);
            receiver.join().unwrap()
        });
        Flowed { sent: sent.into_inner(), all }
    }
}

/// Threads that wait for a flag end with the scope that they live in, also when an assertion there fails.
struct SetAtDrop<'a>(&'a AtomicBool);

impl Drop for SetAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How often tables are swapped, and what flows meanwhile.
pub(crate) struct Load {
    pub(crate) swaps: u64,
    /// Pause between batches of 32 packets: long enough that no packet is lost for lack of room.
    pub(crate) pause: Duration,
    /// For all swaps.
    pub(crate) limit: Duration,
}

/// The packets that were sent and received while tables were swapped.
pub(crate) struct Flowed {
    pub(crate) sent: u32,
    all: Vec<Seen>,
}

impl Flowed {
    /// Checks that each packet arrived once, forwarded by one of the two tables, and that the director's last
    /// report agrees.
    pub(crate) fn judge(&self, tables: &[ForwardingTable; 2], swaps: u64, report: &Value, said: &str) {
        let Self { sent, all } = self;
        let tail: String = said.lines().rev().take(5).collect();
        let numbers: BTreeSet<_> = all.iter().map(|seen| seen.number).collect();
        assert_eq!(all.len(), usize::try_from(*sent).unwrap(), "each once: {report:#} {tail}");
        assert_eq!(numbers.len(), all.len(), "none twice");
        let mut by_table = [0, 0, 0];
        for Seen { number, hops, .. } in all {
            let fits = tables.each_ref().map(|table| expected(table, *number) == *hops);
            assert!(fits[0] || fits[1], "packet {number} has hops {hops:?} of neither table");
            by_table[if fits[0] && fits[1] { 2 } else { usize::from(fits[1]) }] += 1;
        }
        eprintln!("{sent} packets: {by_table:?} by the first table, the second, either");
        assert!(by_table[0] > 0 && by_table[1] > 0, "both tables were used: {by_table:?}");
        assert_eq!(report["swaps"], swaps);
        assert_eq!(report["refused"], 0);
        assert_eq!(report["encapsulated"], *sent);
        let counted = by_backend(report).values().sum::<u64>();
        assert_eq!(counted, u64::from(*sent), "counters outlive their tables");
    }
}

pub(crate) struct Sender {
    pub(crate) socket: PacketSocket,
    pub(crate) ifindex: u32,
    batch: Batch,
}

impl Sender {
    /// One flow after the other, until that is `done`.
    fn pour(&mut self, pause: Duration, sent: &AtomicU32, done: &AtomicBool) {
        while !done.load(Ordering::Relaxed) {
            let first = sent.load(Ordering::Relaxed);
            self.send(&(first..first + 32).map(syn).collect::<Vec<_>>());
            sent.store(first + 32, Ordering::Relaxed);
            std::thread::sleep(pause);
        }
    }

    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) {
        for some in frames.chunks(BATCH) {
            for frame in some {
                self.batch.slot()[..frame.len()].copy_from_slice(frame);
                self.batch.push(frame.len(), self.ifindex);
            }
            let sent = self.batch.send(&self.socket);
            assert_eq!(sent.frames, some.len() as u64);
        }
    }
}

/// A running director; killed when dropped.
pub(crate) struct Running {
    child: Child,
    folder: PathBuf,
}

impl Running {
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &pid]).status().expect("kill runs");
        assert!(status.success());
    }

    pub(crate) fn status(&self) -> Option<Value> {
        serde_json::from_str(&query(&self.folder.join("control"), Format::Json).ok()?).ok()
    }

    /// Waits until the director's status is as wanted.
    pub(crate) fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = None;
        for _ in 0..1000 {
            match self.status() {
                Some(status) if wanted(&status) => return status,
                status => last = status,
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{what}: {last:#?}\n{}", self.said());
    }

    /// Its log until now.
    pub(crate) fn said(&self) -> String {
        self.read("said")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// How many files it has open.
    #[allow(dead_code, reason = "for the tests of the fast path")]
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }

    /// Its memory in KiB, and the kernel's that its maps and programs have in octets.
    #[allow(dead_code, reason = "for the tests of the fast path")]
    pub(crate) fn memory(&self) -> (u64, u64) {
        let process = format!("/proc/{}", self.child.id());
        let number = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let own = number(&fs::read_to_string(format!("{process}/status")).unwrap(), "VmRSS:");
        let files = fs::read_dir(format!("{process}/fdinfo")).unwrap();
        let locked = files.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
        (own, locked.map(|text| number(&text, "memlock:")).sum())
    }

    /// Stops it gracefully. Returns its final counters and its log.
    pub(crate) fn stop(mut self) -> (Value, String) {
        self.signal("TERM");
        let status = self.child.wait().expect("it ends");
        let (out, said) = (self.read("out"), self.said());
        assert!(status.success(), "{status}: {said}");
        (serde_json::from_str(out.lines().last().unwrap_or_default()).expect("a report"), said)
    }
}

impl Running {
    /// Waits for it to end by itself.
    pub(crate) fn ends(mut self) -> (Option<i32>, String) {
        for _ in 0..1000 {
            if let Some(status) = self.child.try_wait().expect("its state") {
                return (status.code(), self.said());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end: {}", self.said());
    }

    /// For tools that take one.
    #[allow(dead_code, reason = "for the tests of files")]
    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// CPU time that it has used, in ticks of the clock.
    pub(crate) fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// A table of these backends. `salt` makes its rows differ from those of another; `parent` makes it younger.
pub(crate) fn table(parent: Option<&ForwardingTable>, backends: &[&str], salt: u32) -> ForwardingTable {
    let rows = 1 << 16;
    let mut hops = Lists::empty(rows, 2);
    let count = u32::try_from(backends.len()).unwrap();
    for row in 0..rows {
        let primary = (row.wrapping_mul(0x9e37_79b9) ^ salt) % count;
        let second = (primary + 1 + salt % (count - 1).max(1)) % count;
        let list = if count == 1 { vec![primary] } else { vec![primary, second] };
        hops.set(row, list.into_iter().map(|at| u16::try_from(at).unwrap()));
    }
    let backend = |(at, address): (usize, &&str)| Backend::new(format!("web-{at}"), address.parse().unwrap());
    let table = Table {
        name: "web".into(),
        max_hops: 2,
        ranking: Ranking::Hrw,
        seed: Seed([1; 16]),
        hash_key: SipKey::new([2; 16]),
        hash_fields: HashFields::DEFAULT,
        alt_hash_fields: HashFields::NONE,
        spread_zones: false,
        max_share: None,
        backends: backends.iter().enumerate().map(backend).collect(),
        binds: vec![Bind {
            prefix: Prefix::new(IpAddr::V4(VIP), 32).unwrap(),
            protocol: Protocol::Tcp,
            ports: PortRange::new(443, 443).unwrap(),
        }],
        hops,
        lineage: Lists::empty(rows, 1),
    };
    ForwardingTable::new(parent, vec![table]).unwrap()
}

/// A client's flow: number to address and port.
pub(crate) fn flow(number: u32) -> (Ipv4Addr, u16) {
    let port = u16::try_from(1024 + number % 60_000).unwrap();
    (Ipv4Addr::from(0xc633_6400 + number / 60_000), port)
}

/// Its SYN; the sequence number is the flow's.
pub(crate) fn syn(number: u32) -> Vec<u8> {
    packet(number, &[])
}

/// A packet of the flow with that payload.
pub(crate) fn packet(number: u32, payload: &[u8]) -> Vec<u8> {
    let (address, port) = flow(number);
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], FRONT)
        .ipv4(address.octets(), VIP.octets(), 64)
        .tcp(port, 443, number, 1000)
        .syn();
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).unwrap();
    frame
}

/// The hop list of a flow in a table: the oracle.
pub(crate) fn expected(table: &ForwardingTable, number: u32) -> Vec<IpAddr> {
    let table = &table.tables()[0];
    let (address, port) = flow(number);
    let key = FlowKey { src_addr: address.into(), dst_addr: VIP.into(), ports: Some((port, 443)) };
    let row = table.row(&key, table.hash_fields);
    table.hops.get(row).iter().map(|at| table.backends[usize::from(*at)].address).collect()
}

/// An encapsulated packet as it was seen: the flow's number, the hops (primary first), the outer source and
/// MAC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) number: u32,
    pub(crate) hops: Vec<IpAddr>,
    pub(crate) source: IpAddr,
    pub(crate) to: [u8; 6],
}

/// Reads a frame if it is GUE.
pub(crate) fn seen(frame: &[u8]) -> Option<Seen> {
    let sliced = etherparse::SlicedPacket::from_ethernet(frame).ok()?;
    let (source, primary) = match sliced.net? {
        etherparse::NetSlice::Ipv4(ip) => {
            (IpAddr::from(ip.header().source()), IpAddr::from(ip.header().destination()))
        }
        etherparse::NetSlice::Ipv6(ip) => {
            (IpAddr::from(ip.header().source()), IpAddr::from(ip.header().destination()))
        }
        _ => return None,
    };
    let etherparse::TransportSlice::Udp(udp) = sliced.transport? else { return None };
    if udp.destination_port() != 19523 {
        return None;
    }
    let gue = udp.payload();
    let (count, width) = (usize::from(gue[7]), if primary.is_ipv4() { 4 } else { 16 });
    let (list, inner) = gue[8..].split_at(count * width);
    let hop = |octets: &[u8]| match width {
        4 => IpAddr::from(<[u8; 4]>::try_from(octets).unwrap()),
        _ => IpAddr::from(<[u8; 16]>::try_from(octets).unwrap()),
    };
    let hops = std::iter::once(primary).chain(list.chunks(width).map(hop)).collect();
    // Sequence number of the inner TCP header, behind an IPv4 header without options.
    let number = u32::from_be_bytes(inner[24..28].try_into().unwrap());
    Some(Seen { number, hops, source, to: frame[..6].try_into().unwrap() })
}

/// Receives from a ring until `count` encapsulated packets have arrived, or a time limit.
pub(crate) fn collect(ring: &mut Ring, count: usize) -> Vec<Seen> {
    let mut all = Vec::new();
    let mut quiet = 0;
    while all.len() < count && quiet < 200 {
        ring.wait(Duration::from_millis(10)).unwrap();
        quiet += 1;
        while let Some(mut block) = ring.block() {
            while let Some(frame) = block.frame() {
                if let Some(seen) = seen(frame.bytes) {
                    all.push(seen);
                    quiet = 0;
                }
            }
        }
    }
    all
}

/// Frames by backend, from a status report.
pub(crate) fn by_backend(status: &Value) -> BTreeMap<String, u64> {
    let backends = status["tables"][0]["backends"].as_array().unwrap();
    let pair = |one: &Value| (one["id"].as_str().unwrap().to_owned(), one["frames"].as_u64().unwrap());
    backends.iter().map(pair).collect()
}
