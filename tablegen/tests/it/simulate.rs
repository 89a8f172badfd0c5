//! Connections across changes whose losses are known.

use crate::support::{self, build, spec};
use common::backend::{Backend, State};
use common::table::{ForwardingTable, Table};
use tablegen::generate::History;
use tablegen::progress::Progress;
use tablegen::report::load::picture;
use tablegen::review::simulate::{
    Connection, Fleet, Lifetimes, Rule, SimulationOutcome, Synthetic, from_capture, from_csv, play,
};

fn named(count: usize) -> Vec<Backend> {
    let ids: Vec<String> = (1..=count).map(|at| format!("web-{at}")).collect();
    support::backends(&ids.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Connections that all start under the first table and outlive the last.
fn long_lived() -> Vec<Connection> {
    let vip = ("203.0.113.10".parse().unwrap(), 443);
    let synthetic = Synthetic {
        count: 60_000,
        seed: 7,
        starts: 0.0..1.0,
        lifetimes: Lifetimes::LogNormal,
        median: 30.0,
        vip,
    };
    synthetic.connections().into_iter().map(|flow| Connection { life: 1e6, ..flow }).collect()
}

fn both(tables: &[&ForwardingTable]) -> [SimulationOutcome; 2] {
    let tables: Vec<&Table> = tables.iter().map(|table| &table.tables()[0]).collect();
    [Rule::Tables, Rule::Glb]
        .map(|rule| play(&tables, &long_lived(), 10.0, rule, Fleet::default(), &Progress::default()))
}

fn share(outcome: &SimulationOutcome, change: usize) -> f64 {
    f64::from(outcome.changes[change].broken) / f64::from(outcome.changes[change].open)
}

/// 2 / ((N + 1)(N + 2)): 6.7 % at N = 4.
#[test]
fn adding_two_at_once_loses_one_in_fifteen_by_glbs_rule_and_none_by_ours() {
    let old = build(&spec(named(4)), History::None);
    let new = build(&spec(named(6)), History::Parent(&old));
    let [ours, glb] = both(&[&old, &new]);
    assert_eq!((ours.opened, ours.refused, ours.changes[0].open), (60_000, 0, 60_000));
    assert_eq!(ours.changes[0].broken, 0);
    assert!((share(&glb, 0) - 1.0 / 15.0).abs() < 0.006, "{}", share(&glb, 0));
}

#[test]
fn a_drain_loses_nothing_by_either_and_needs_the_second_hop_for_its_share() {
    let old = build(&spec(named(5)), History::None);
    let mut all = named(5);
    all[2].state = State::Draining;
    let new = build(&spec(all.clone()), History::Parent(&old));
    all.remove(2);
    let removed = build(&spec(all), History::Parent(&new));
    let [ours, glb] = both(&[&old, &new, &removed]);
    assert_eq!((ours.changes[0].broken, glb.changes[0].broken), (0, 0));
    let second = f64::from(ours.changes[0].later_hop) / f64::from(ours.changes[0].open);
    assert!((second - 0.2).abs() < 0.02, "{second}");
    assert_eq!(
        ours.changes[1].broken, ours.changes[0].later_hop,
        "connections without end are cut by the removal"
    );
}

#[test]
fn made_up_connections_follow_from_their_seed() {
    let vip = ("203.0.113.10".parse().unwrap(), 443);
    let of = |seed, lifetimes| {
        Synthetic { count: 20_000, seed, starts: 0.0..60.0, lifetimes, median: 30.0, vip }.connections()
    };
    assert_eq!(of(1, Lifetimes::Heavy), of(1, Lifetimes::Heavy));
    assert_ne!(of(1, Lifetimes::Heavy), of(2, Lifetimes::Heavy));
    for lifetimes in [Lifetimes::LogNormal, Lifetimes::Heavy] {
        let longer = of(3, lifetimes).iter().filter(|flow| flow.life > 30.0).count();
        assert!((9_500..10_500).contains(&longer), "{lifetimes:?} {longer}");
    }
}

#[test]
fn connections_are_read_from_lines() {
    let flows = from_csv("# start,life,…\n0.5, 10, 198.51.100.7, 51234, 203.0.113.10, 443\n\n").unwrap();
    assert_eq!((flows.len(), flows[0].start, flows[0].key.ports), (1, 0.5, Some((51_234, 443))));
    assert_eq!(from_csv("1,2,3\n").unwrap_err().line, 1);
    assert!(from_csv("-1,2,198.51.100.7,1,203.0.113.10,443").is_err());
}

#[test]
fn the_picture_has_a_line_for_each_backend() {
    let table = build(&spec(named(3)), History::None);
    let [ours, _] = both(&[&table, &table]);
    assert_eq!(picture(&ours).matches("<polyline").count(), 3);
    assert_eq!(ours.load.values().map(|load| load[60]).sum::<u32>(), 60_000);
}

/// Connections that start and end all the time, most of them shorter than a table serves.
fn coming_and_going() -> Vec<Connection> {
    let vip = ("203.0.113.10".parse().unwrap(), 443);
    let lifetimes = Lifetimes::LogNormal;
    Synthetic { count: 60_000, seed: 11, starts: 0.0..120.0, lifetimes, median: 10.0, vip }.connections()
}

/// Eight directors, of which the last takes a table 20 s after the first, and a router that moves all connections
/// every second.
const SKEWED: Fleet = Fleet { directors: 8, skew: 20.0, reroute: Some(1.0) };

fn skewed(tables: &[&ForwardingTable]) -> [SimulationOutcome; 2] {
    let tables: Vec<&Table> = tables.iter().map(|table| &table.tables()[0]).collect();
    [Rule::Tables, Rule::Glb]
        .map(|rule| play(&tables, &coming_and_going(), 60.0, rule, SKEWED, &Progress::default()))
}

#[test]
fn directors_with_one_table_are_one_however_connections_move() {
    let old = build(&spec(named(4)), History::None);
    let new = build(&spec(named(6)), History::Parent(&old));
    let tables = [&old.tables()[0], &new.tables()[0]];
    for rule in [Rule::Tables, Rule::Glb] {
        let of = |fleet| play(&tables, &coming_and_going(), 60.0, rule, fleet, &Progress::default());
        assert_eq!(of(Fleet { skew: 0.0, ..SKEWED }), of(Fleet::default()));
    }
}

#[test]
fn a_drain_breaks_nothing_while_directors_differ() {
    let old = build(&spec(named(5)), History::None);
    let mut all = named(5);
    all[2].state = State::Draining;
    let new = build(&spec(all), History::Parent(&old));
    let [ours, _] = skewed(&[&old, &new]);
    let change = ours.changes[0];
    assert_eq!((change.broken, change.ahead), (0, 0));
    assert!(change.went_back > 10_000 && change.later_hop > 0, "{change:?}");
}

/// What was open before survives. What a director ahead of the others opens on a newcomer, they cannot know, unless
/// the table before has it as a hop already.
#[test]
fn newcomers_lose_nothing_if_they_were_announced() {
    let old = build(&spec(named(4)), History::None);
    let new = build(&spec(named(6)), History::Parent(&old));
    let [ours, glb] = skewed(&[&old, &new]);
    assert_eq!(ours.changes[0].broken, 0);
    assert!(ours.changes[0].ahead > 500, "{:?}", ours.changes[0]);
    assert!(glb.changes[0].broken > 500, "{:?}", glb.changes[0]);

    let mut announced = named(6);
    announced[4..].iter_mut().for_each(|one| one.state = State::Draining);
    let between = build(&spec(announced), History::Parent(&old));
    let after = build(&spec(named(6)), History::Parent(&between));
    let [ours, _] = skewed(&[&old, &between]);
    assert_eq!((ours.changes[0].broken, ours.changes[0].ahead), (0, 0));
    let [ours, _] = skewed(&[&between, &after]);
    assert_eq!((ours.changes[0].broken, ours.changes[0].ahead), (0, 0));
    assert!(ours.changes[0].went_back > 10_000);
}

fn packet(port: u16, to: u16) -> Vec<u8> {
    let ip = etherparse::PacketBuilder::ipv4([198, 51, 100, 7], [203, 0, 113, 10], 64);
    let mut frame = Vec::new();
    ip.tcp(port, to, 1, 1000).write(&mut frame, &[]).unwrap();
    frame
}

/// Milliseconds, client's port, service.
const PACKETS: [(u64, u16, u16); 6] =
    [(1_000, 1, 443), (1_250, 2, 443), (1_500, 1, 443), (2_000, 3, 80), (4_000, 2, 443), (900, 1, 443)];

fn pcap() -> Vec<u8> {
    use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
    let header = PcapHeader { datalink: pcap_file::DataLink::RAW, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (ms, port, to) in PACKETS {
        let frame = packet(port, to);
        let time = std::time::Duration::from_millis(ms);
        let packet = PcapPacket::new(time, u32::try_from(frame.len()).unwrap(), &frame);
        writer.write_packet(&packet).unwrap();
    }
    writer.into_writer()
}

/// The same by hand, with ticks of 10⁻³ s: section, interface, packets; all in little-endian words.
fn pcapng() -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let mut file = block(0x0a0d_0d0a, &[&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat());
    file.extend(block(1, &[101, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0]));
    for (ms, port, to) in PACKETS {
        let frame = packet(port, to);
        let length = u32::try_from(frame.len()).unwrap();
        let words = [0, 0, u32::try_from(ms).unwrap(), length, length];
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend(&frame);
        body.resize(body.len().next_multiple_of(4), 0);
        file.extend(block(6, &body));
    }
    file
}

#[test]
fn a_captures_connections_last_from_their_first_packet_to_their_last() {
    for (name, file) in [("pcap", pcap()), ("pcapng", pcapng())] {
        assert!(tablegen::review::explain::is_capture(&file), "{name}");
        let to = |port| {
            move |flow: &tablegen::review::explain::Flow| flow.key.ports.is_some_and(|ports| ports.1 == port)
        };
        let flows = from_capture(file.as_slice(), to(443)).unwrap();
        let times: Vec<_> =
            flows.iter().map(|flow| (flow.key.ports.unwrap().0, flow.start, flow.life)).collect();
        // The capture starts with its first packet; one that was written late lies not before it.
        assert_eq!(times, [(1, 0.0, 0.5), (2, 0.25, 2.75)], "{name}");
        assert_eq!(from_capture(file.as_slice(), to(80)).unwrap()[0].start, 1.0);
        assert!(from_capture(&file[..file.len() - 3], to(443)).is_err(), "{name}");
    }
}

#[test]
fn a_capture_is_played_by_the_command_line() {
    use crate::commands::{Folder, json, run};
    let folder = Folder::new();
    let (table, capture, text) = (folder.table("minimal"), folder.path("capture"), folder.path("text"));
    std::fs::write(&capture, pcap()).unwrap();
    std::fs::write(&text, "0,1,198.51.100.7,1,203.0.113.10,443\n").unwrap();
    let played = json(&["simulate", &table, &table, "--flows", &capture, "--json"]);
    assert_eq!((&played[0]["opened"], &played[0]["changes"][0]["open"]), (&2.into(), &1.into()));
    let played = json(&["simulate", &table, &table, "--flows", &text, "--every", "0.5", "--json"]);
    assert_eq!((&played[0]["opened"], &played[0]["changes"][0]["open"]), (&1.into(), &1.into()));
    let refused = |more: &[&str]| {
        let arguments = ["simulate", table.as_str(), &table, "--synthetic", "10"];
        run(&[&arguments, more].concat()).status.code() == Some(2)
    };
    assert!(refused(&["--skew", "1"]), "one director is never behind");
    assert!(refused(&["--skew", "60", "--directors", "2"]), "as long as a table serves");
    assert!(refused(&["--reroute", "0"]));
    assert!(!refused(&["--skew", "59", "--directors", "2", "--reroute", "1"]));
}
