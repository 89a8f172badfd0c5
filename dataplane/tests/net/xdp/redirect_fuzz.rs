//! Random packets in GUE through the redirector's program, in a namespace with real sockets, compared with
//! the decision in Rust (`redirect::decide`) and the test's list of those sockets. Every packet that the
//! program does not punt must be accepted or forwarded as decided, octet for octet, and counted accordingly.
//! `XDP_FUZZ_SECONDS` and `XDP_FUZZ_SEED` are as for the director's program.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use common::bind::Prefix;
use common::hash::SipKey;
use dataplane::redirect::config::{RedirectConfig, Udp};
use dataplane::redirect::decide::{Accept, Decision, Facts, SocketLookup, decide, flow_to_look_up};
use dataplane::redirect::inner::{Flow, Inner, Kind};
use dataplane::redirect::{Neighbour, Redirect, RedirectCounts};
use dataplane::wire::gue::{Gue, Hops};

use crate::fuzz::{Random, number};
use crate::judge::{INGRESS, PASS, REDIRECT, SHORTEST, TX, load};
use crate::namespace::{ip, isolated};
use crate::redirect::{MAC, VIP, gue_to, own, test_run, v4};
use crate::support::frames::checksum;
use crate::support::vectors::PIPELINE;

const FRAMES_A_SCENE: u32 = 4_000;
const OWN: [[u8; 4]; 2] = [[10, 0, 1, 1], [10, 0, 1, 9]];
const HOPS: [[u8; 4]; 5] = [[10, 0, 1, 1], [10, 0, 1, 2], [10, 0, 1, 3], [10, 0, 1, 9], [10, 0, 7, 7]];
const SENDERS: [[u8; 4]; 5] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 1, 2], [10, 0, 1, 3], [192, 0, 2, 1]];
/// Clients, and addresses that no client has.
const SOURCES: [[u8; 4]; 10] = [
    [198, 51, 100, 8],
    [198, 51, 100, 9],
    [10, 0, 7, 7],
    [10, 0, 1, 1],
    [10, 0, 1, 9],
    VIP,
    [0, 0, 0, 0],
    [127, 0, 0, 1],
    [224, 0, 0, 1],
    [255, 255, 255, 255],
];
const SOURCES6: [Ipv6Addr; 6] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 0, 8),
    VIP6,
    Ipv6Addr::UNSPECIFIED,
    Ipv6Addr::LOCALHOST,
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 1, 1),
];
const VIP6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10);

/// Sockets, the program, and the expected state of both.
struct Scene {
    program: Redirect,
    config: RedirectConfig,
    ways: Vec<([u8; 4], Neighbour)>,
    /// Source and destination of packets whose receiver has a socket that does not listen.
    known: HashSet<(SocketAddr, SocketAddr)>,
    flows: Vec<(SocketAddr, SocketAddr)>,
    open: Vec<TcpStream>,
    listeners: Vec<TcpListener>,
    /// The sequence number of the last SYN of a flow that the program kept.
    syns: HashMap<(SocketAddr, SocketAddr), u32>,
}

impl Scene {
    fn new(random: &mut Random) -> Self {
        for (family, vip, client) in
            [("", "203.0.113.10/32", "198.51.100.7/32"), ("-6 ", "2001:db8::10/128", "2001:db8:c::7/128")]
        {
            ip(&format!("{family}addr add {vip} dev lo"));
            ip(&format!("{family}addr add {client} dev lo"));
            // So that clients, which are on this host, do not connect from the VIP.
            let source = client.split('/').next().unwrap();
            soon(|| ip_route(&format!("{family}route del local {vip} dev lo table local")));
            ip(&format!("{family}route add local {vip} dev lo table local src {source}"));
        }
        let config = RedirectConfig::parse("fuzz", &config(random)).unwrap();
        let key = SipKey::new(random.octets(16).try_into().unwrap());
        let mut program = Redirect::load(&config, &own(&OWN), MAC, key).unwrap();
        let mut ways = Vec::new();
        for hop in HOPS {
            let way = Neighbour {
                destination: random.octets(6).try_into().unwrap(),
                source: random.octets(6).try_into().unwrap(),
                source_address: OWN[0].into(),
                ifindex: random.of(&[INGRESS, INGRESS, INGRESS + 1]),
            };
            if !random.one_in(4) {
                program.set_neighbour(hop.into(), Some(&way)).unwrap();
                ways.push((hop, way));
            }
        }
        let mut scene = Self {
            program,
            config,
            ways,
            known: HashSet::new(),
            flows: Vec::new(),
            open: Vec::new(),
            listeners: Vec::new(),
            syns: HashMap::new(),
        };
        scene.connect(IpAddr::from(VIP));
        scene.connect(IpAddr::from(VIP6));
        scene
    }

    /// A service with connections that are open, half closed, and closed (TIME_WAIT lasts longer than a
    /// scene).
    fn connect(&mut self, vip: IpAddr) {
        // The kernel takes an IPv6 address into use a moment after it was set.
        let listener = soon(|| TcpListener::bind((vip, 443)));
        let service = listener.local_addr().unwrap();
        for number in 0..6 {
            let client = soon(|| TcpStream::connect(service));
            let (server, from) = listener.accept().unwrap();
            self.flows.push((from, service));
            self.known.insert((from, service));
            match number {
                0 | 1 => {}
                2 => server.shutdown(Shutdown::Write).unwrap(),
                3 => client.shutdown(Shutdown::Write).unwrap(),
                _ => {
                    // The end that closes first waits; the other's socket is gone.
                    drop(server);
                    drop(client);
                    continue;
                }
            }
            // The client's end is in this namespace, too.
            self.known.insert((service, from));
            self.open.extend([client, server]);
        }
        self.listeners.push(listener);
    }
}

fn ip_route(arguments: &str) -> io::Result<()> {
    let status = std::process::Command::new("ip").args(arguments.split_whitespace()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(arguments.to_owned())) }
}

fn config(random: &mut Random) -> String {
    let directors = random.of(&["10.0.0.1", "10.0.0.0/28", "10.0.0.0/28, 10.0.1.3", "0.0.0.0/0"]);
    let backends = random.of(&["10.0.1.0/24", "10.0.1.2, 10.0.1.3", "10.0.0.0/16"]);
    let vips =
        random.of(&["203.0.113.10, \"2001:db8::10\"", "203.0.113.0/24, \"2001:db8::/32\"", "203.0.113.10"]);
    let (hops, udp) = (random.of(&[1, 3, 7, 30]), random.of(&["keep", "socket"]));
    format!(
        "{{version: 1, max_hops: {hops}, udp: {udp}, directors: [{directors}], backends: [{backends}], vips: [{vips}]}}"
    )
}

fn segment(random: &mut Random, from: u16, to: u16) -> Vec<u8> {
    let flags = random.of(&[0x02, 0x02, 0x10, 0x10, 0x10, 0x12, 0x11, 0x04, 0x14, 0xc2, 0x06, 0]);
    let flags = if random.one_in(8) { random.octet() } else { flags };
    let mut segment = [from.to_be_bytes(), to.to_be_bytes()].concat();
    // Few, so that one follows another.
    let sequence: u32 = random.of(&[7, 7, 8, 8, 8, 65_543, 65_544, u32::MAX]);
    segment.extend(sequence.to_be_bytes());
    segment.extend(random.octets(4));
    segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    let payload = random.of(&[0, 0, 4, 100]);
    segment.extend(random.octets(payload));
    segment
}

/// A packet of a flow that has a socket, or nearly one.
fn inner(random: &mut Random, scene: &Scene) -> Vec<u8> {
    let (mut from, mut to) = random.of(&scene.flows);
    match random.below(8) {
        0 | 1 => from.set_port(from.port() ^ 1),
        2 => from.set_port(random.word()),
        3 => to.set_port(random.of(&[80, 444, 19_523])),
        4 => (from, to) = (to, from),
        5 if from.is_ipv4() => from.set_ip(random.of(&SOURCES).into()),
        5 if random.one_in(2) => from.set_ip(random.of(&SOURCES6).into()),
        _ => {}
    }
    if random.one_in(20) && to.is_ipv4() {
        to.set_ip([203, 0, random.of(&[113, 114]), random.octet()].into());
    }
    let protocol = random.of(&[6, 6, 6, 6, 6, 6, 17, 17, 1, 58, 47, 0]);
    let segment = segment(random, from.port(), to.port());
    let mut packet = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => v4(from.octets(), to.octets(), protocol, &segment),
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let len = u16::try_from(segment.len()).unwrap().to_be_bytes();
            let mut packet = vec![0x60, 0, 0, 0, len[0], len[1], protocol, 64];
            packet.extend([from.octets(), to.octets()].concat());
            packet.extend(&segment);
            packet
        }
        _ => unreachable!("one family"),
    };
    let ecn = random.of(&[0, 1, 2, 3]);
    match packet[0] >> 4 {
        4 => packet[1] = ecn,
        _ => packet[1] = ecn << 4,
    }
    repair(&mut packet);
    packet
}

/// Gives an IPv4 header without options the checksum that it should have.
fn repair(packet: &mut [u8]) {
    if packet.len() >= 20 && packet[0] == 0x45 {
        packet[10..12].fill(0);
        let sum = checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

fn frame(random: &mut Random, scene: &Scene) -> Vec<u8> {
    let inner = inner(random, scene);
    let count = random.of(&[0, 1, 1, 1, 2, 2, 3, 4, 7]);
    let hops: Vec<_> = (0..count).map(|_| random.of(&HOPS)).collect();
    let next_hop = if random.one_in(3) { u8::try_from(random.below(count + 2)).unwrap() } else { 0 };
    let sender = if random.one_in(6) {
        random.of(&SENDERS)
    } else {
        random.of(&[[10, 0, if next_hop > 0 { 1 } else { 0 }, 2], SENDERS[0]])
    };
    let own = if random.one_in(30) { HOPS[1] } else { random.of(&OWN) };
    let mut frame = gue_to(sender, own, next_hop, &hops, &inner);
    frame[15] = random.of(&[0, 0, 0, 1, 2, 3, 0xfc]);
    repair(&mut frame[14..]);
    if random.one_in(6) {
        mutate(random, &mut frame);
    }
    frame
}

/// Flips bits of the headers, cuts or lengthens the frame; what depends on that is right again now and then.
fn mutate(random: &mut Random, frame: &mut Vec<u8>) {
    for _ in 0..random.below(3) {
        let at = random.of(&[0, 12, 14, 34, 42, 42, 54]) + random.below(20);
        if let Some(octet) = frame.get_mut(at) {
            *octet ^= 1 << random.below(8);
        }
    }
    match random.below(5) {
        0 => frame.truncate(random.below(frame.len())),
        1 => frame.extend(random.octets(4)),
        _ => {}
    }
    frame.resize(frame.len().max(SHORTEST), 0);
    if frame.len() >= 42 && random.one_in(2) {
        let total = u16::try_from(frame.len() - 14).unwrap();
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        frame[38..40].copy_from_slice(&total.wrapping_sub(20).to_be_bytes());
    }
    if random.one_in(2) {
        repair(&mut frame[14..]);
        let inner = 50 + 4 * usize::from(frame.get(49).copied().unwrap_or(0));
        if let Some(inner) = frame.get_mut(inner..) {
            repair(inner);
        }
    }
}

/// The whole redirector's verdict on a frame, if that is to accept or forward it: the counted reason, and the
/// resulting octets.
///
/// `remembers` is whether accepted SYNs count: the memory is small, and may have lost one.
fn decided(scene: &Scene, frame: &[u8], remembers: bool) -> Option<(Decision, bool, Vec<u8>)> {
    let gue = Gue::parse(delivered(frame)?).ok()?;
    let inner = Inner::parse(gue.inner_protocol, gue.inner).ok()?;
    let Hops::V4(hops) = gue.hops else { return None };
    let left = hops.get(usize::from(gue.next_hop)..)?;
    let packet = gue.inner.get(..inner.len)?;
    let stays = ecn_stays(frame[15] & 3, inner.traffic_class & 3);
    if !stays || hops.len() > usize::from(scene.config.max_hops) || !allowed(scene, frame, &gue, &inner) {
        return None;
    }
    // An own address outside of `backends` does not count as a repetition of this host: it is rejected as any
    // other.
    let repeats = |hop: [u8; 4]| OWN.contains(&hop) && holds(&scene.config.backends, hop.into());
    let elsewhere = left.iter().position(|hop| !repeats(*hop));
    let asked = flow_to_look_up(&inner.kind, scene.config.udp == Udp::Socket);
    let known = asked.as_ref().map_or(SocketLookup::NotFound, |flow| known(scene, flow));
    let follows_syn = remembers && known == SocketLookup::NotFound && follows_syn(scene, &inner.kind);
    let facts = Facts { follows_syn, ..facts(known, left, elsewhere) };
    let decision = decide(&inner.kind, asked.is_some(), &facts);
    let octets = match decision {
        Decision::Accept(_) => {
            let ether_type = if gue.inner_protocol == 4 { [8, 0] } else { [0x86, 0xdd] };
            [&frame[..12], &ether_type, packet].concat()
        }
        Decision::Forward(IpAddr::V4(to)) if holds(&scene.config.backends, to.into()) => {
            let (_, way) = scene.ways.iter().find(|(hop, _)| *hop == to.octets())?;
            let next = gue.next_hop + u8::try_from(elsewhere? + 1).ok()?;
            let new = gue_to(way.source_address.octets(), to.octets(), next, hops, packet);
            passed_on(new, way, inner.traffic_class, &frame[34..36])
        }
        _ => return None,
    };
    Some((decision, gue.next_hop > 0, octets))
}

/// The datagram that the kernel would deliver to the socket.
fn delivered(frame: &[u8]) -> Option<&[u8]> {
    let (ip, udp) = (frame.get(14..34)?, frame.get(34..42)?);
    let word = |octets: &[u8], at: usize| usize::from(u16::from_be_bytes([octets[at], octets[at + 1]]));
    let is_ours = frame[..6] == MAC
        && frame[12..14] == [8, 0]
        && ip[0] == 0x45
        && checksum(ip) == 0
        && word(ip, 6) & 0x3fff == 0
        && ip[9] == 17
        && OWN.iter().any(|own| ip[16..] == *own)
        && word(udp, 2) == 19_523
        && word(udp, 6) == 0;
    let end = 34 + word(udp, 4);
    frame.get(42..end).filter(|_| is_ours && end <= 14 + word(ip, 2))
}

/// Whether it has an allowed sender, and is for a VIP.
fn allowed(scene: &Scene, frame: &[u8], gue: &Gue<'_>, inner: &Inner) -> bool {
    let senders = if gue.next_hop > 0 { &scene.config.backends } else { &scene.config.directors };
    let sender = <[u8; 4]>::try_from(&frame[26..30]).unwrap();
    let again = matches!(inner.kind, Kind::Udp(flow) if flow.local.port() == 19_523);
    holds(senders, sender.into())
        && holds(&scene.config.vips, inner.destination)
        && !again
        && !is_no_client(scene, inner.source)
}

/// By the library's names, and one by one.
fn is_no_client(scene: &Scene, source: IpAddr) -> bool {
    let is_vip = |vip: &&Prefix| vip.to_string() == source.to_string();
    let forged = source.is_unspecified() || source.is_loopback() || source.is_multicast();
    let special = match source {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.to_ipv4_mapped().is_some(),
    };
    forged
        || special
        || OWN.iter().any(|own| source == IpAddr::from(*own))
        || scene.config.vips.iter().any(|vip| is_vip(&vip))
}

/// Client and service of a flow.
fn ends(flow: &Flow) -> (SocketAddr, SocketAddr) {
    (flow.remote, flow.local)
}

fn follows_syn(scene: &Scene, kind: &Kind) -> bool {
    let Kind::Tcp(flow, segment) = kind else { return false };
    let initial = scene.syns.get(&ends(flow));
    let window =
        initial.map(|initial| (1..=65_536).any(|next| initial.wrapping_add(next) == segment.sequence));
    segment.flags.acknowledges() && window == Some(true)
}

fn facts(known: SocketLookup, left: &[[u8; 4]], elsewhere: Option<usize>) -> Facts {
    Facts {
        socket: known,
        follows_syn: false,
        next: elsewhere.or((!left.is_empty()).then_some(0)).map(|at| IpAddr::from(left[at])),
        next_is_own: !left.is_empty() && elsewhere.is_none(),
    }
}

fn holds(list: &[Prefix], address: IpAddr) -> bool {
    list.iter().any(|prefix| prefix.contains(address))
}

/// The frame of a packet with a new outer header.
fn passed_on(mut new: Vec<u8>, way: &Neighbour, traffic_class: u8, source_port: &[u8]) -> Vec<u8> {
    new[..6].copy_from_slice(&way.destination);
    new[6..12].copy_from_slice(&way.source);
    new[15] = traffic_class & 3;
    new[34..36].copy_from_slice(source_port);
    repair(&mut new[14..]);
    new
}

fn known(scene: &Scene, flow: &Flow) -> SocketLookup {
    if scene.known.contains(&(flow.remote, flow.local)) {
        SocketLookup::Found
    } else {
        SocketLookup::NotFound
    }
}

/// RFC 6040, figure 4: whether decapsulation leaves the inner mark unchanged.
fn ecn_stays(outside: u8, inside: u8) -> bool {
    match outside {
        0b11 => inside == 0b11,
        0b01 => inside != 0b10,
        _ => true,
    }
}

/// Number of packets accepted, forwarded and punted.
#[derive(Debug, Default)]
struct Seen {
    kept: [u64; 6],
    forwarded: u64,
    left: u64,
    left_though_decided: u64,
    /// Forwarded because another flow's SYN has replaced this flow's entry.
    forgotten: u64,
}

/// `before` are the program's previous counters, and afterwards its current ones.
fn compare(name: &str, scene: &mut Scene, frame: &[u8], seen: &mut Seen, before: &mut RedirectCounts) {
    let (action, out) = test_run(&scene.program, frame);
    let after = scene.program.counts().unwrap();
    let was_left = action == PASS && out == frame;
    let cookies = |counts: &RedirectCounts| counts.accepted[2] + counts.accepted_later_hop[2];
    let mut decided = self::decided(scene, frame, true);
    let is_cookie = matches!(decided, Some((Decision::Accept(Accept::Cookie), ..)));
    if is_cookie && !was_left && cookies(&after) == cookies(before) {
        decided = self::decided(scene, frame, false);
        seen.forgotten += 1;
    }
    if let (Some((Decision::Accept(Accept::Syn), ..)), false) = (&decided, was_left)
        && let Some((flow, sequence)) = syn(frame)
    {
        scene.syns.insert(flow, sequence);
    }
    let context =
        || format!("{name}: action {action}, {decided:?}\n{frame:02x?}\n{out:02x?}\n{:?}", scene.config);
    let mut expected = before.clone();
    if was_left {
        seen.left += 1;
        seen.left_though_decided += u64::from(decided.is_some());
        expected.punted.clone_from(&after.punted);
        let sum = |counts: &RedirectCounts| counts.punted.values().sum::<u64>();
        assert_eq!(sum(&after), sum(before) + 1, "{}", context());
    } else {
        let Some((decision, later, octets)) = &decided else { panic!("nothing to do: {}", context()) };
        assert_eq!(&out, octets, "other octets: {}", context());
        match decision {
            Decision::Accept(reason) => {
                assert_eq!(action, PASS, "{}", context());
                let at = Accept::ALL.iter().position(|other| other == reason).unwrap();
                let kept = if *later { &mut expected.accepted_later_hop } else { &mut expected.accepted };
                kept[at] += 1;
                seen.kept[at] += 1;
                if *later && matches!(reason, Accept::Socket | Accept::Cookie) {
                    let sender = Ipv4Addr::new(frame[26], frame[27], frame[28], frame[29]);
                    *expected.second_hop_from.entry(sender).or_default() += 1;
                    expected.last_second_hop_ns = after.last_second_hop_ns;
                }
            }
            Decision::Forward(IpAddr::V4(to)) => {
                assert!([TX, REDIRECT].contains(&action), "{}", context());
                expected.forwarded += 1;
                seen.forwarded += 1;
                *expected.forwarded_to.entry(*to).or_default() += 1;
            }
            _ => panic!("{}", context()),
        }
    }
    assert_eq!(after, expected, "counters: {}", context());
    *before = after;
}

/// Flow and sequence number of the SYN in a frame.
fn syn(frame: &[u8]) -> Option<((SocketAddr, SocketAddr), u32)> {
    let gue = Gue::parse(delivered(frame)?).ok()?;
    match Inner::parse(gue.inner_protocol, gue.inner).ok()?.kind {
        Kind::Tcp(flow, segment) => Some((ends(&flow), segment.sequence)),
        _ => None,
    }
}

/// Tries again for a while.
fn soon<T>(attempt: impl Fn() -> io::Result<T>) -> T {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn random_packets_show_no_difference_to_the_decision() {
    let until = Instant::now() + Duration::from_secs(number("XDP_FUZZ_SECONDS", 2));
    let (first, mut frames, mut seen) = (number("XDP_FUZZ_SEED", 1), 0, Seen::default());
    if load(&PIPELINE, INGRESS).is_none() {
        return;
    }
    for seed in first.. {
        let ended = std::sync::Mutex::new((&mut seen, &mut frames));
        isolated(|| {
            let (seen, frames) = &mut *ended.lock().unwrap();
            let mut random = Random::new(seed);
            let mut scene = Scene::new(&mut random);
            let mut counts = scene.program.counts().unwrap();
            for at in 0..FRAMES_A_SCENE {
                if at % 256 == 0 && Instant::now() >= until {
                    break;
                }
                let frame = frame(&mut random, &scene);
                compare(&format!("seed {seed}, frame {at}"), &mut scene, &frame, seen, &mut counts);
                **frames += 1;
            }
        });
        if frames == 0 {
            // The namespace was refused, and it was said.
            return;
        }
        if Instant::now() >= until {
            break;
        }
    }
    eprintln!("{frames} packets: {seen:?}");
    assert!(seen.forwarded > 0 && seen.kept.iter().all(|kept| *kept > 0), "{seen:?}");
    assert!(seen.forgotten * 50 <= seen.kept[2], "{seen:?}");
}
