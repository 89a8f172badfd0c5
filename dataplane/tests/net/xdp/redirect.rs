//! The redirector's program by `BPF_PROG_TEST_RUN`, in a namespace with a real service; the program looks up
//! flows in that namespace.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use aya::TestRun;
use aya::programs::TestRunOptions;
use common::bind::Prefix;
use common::hash::SipKey;
use dataplane::host::sys::batch::Batch;
use dataplane::host::sys::packet::PacketSocket;
use dataplane::host::sys::ring::{Ring, Shape};
use dataplane::redirect::clients::HostAddresses;
use dataplane::redirect::config::RedirectConfig;
use dataplane::redirect::{Neighbour, Redirect, RedirectCounts};

use crate::judge::{INGRESS, PASS, REDIRECT, TX, load};
use crate::namespace::{Peer, ip, isolated};
use crate::support::{frames::checksum, vectors::PIPELINE};

const DIRECTOR: [u8; 4] = [10, 0, 0, 1];
const OWN: [u8; 4] = [10, 0, 1, 1];
/// An address of this host too, but not in `backends`.
const OWN_ELSEWHERE: [u8; 4] = [10, 0, 2, 1];
const NEXT: [u8; 4] = [10, 0, 1, 2];
pub(crate) const VIP: [u8; 4] = [203, 0, 113, 10];
pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];
const CONFIG: &str = "{version: 1, max_hops: 3, directors: [10.0.0.0/28], backends: [10.0.1.0/24], vips: [203.0.113.0/24, \"2001:db8::/32\"]}";

/// The service at the VIP, a client connected to it, and the program.
struct Scene {
    program: Redirect,
    client: TcpStream,
    _listener: TcpListener,
    server: TcpStream,
}

fn scene(vip: IpAddr) -> Scene {
    ip("addr add 203.0.113.10/32 dev lo");
    ip("addr add 2001:db8::10/128 dev lo nodad");
    let listener = TcpListener::bind((vip, 443)).unwrap();
    let client = TcpStream::connect((vip, 443)).unwrap();
    let (server, _) = listener.accept().unwrap();
    let config = RedirectConfig::parse("test", CONFIG).unwrap();
    let program = Redirect::load(&config, &own(&[OWN, OWN_ELSEWHERE]), MAC, SipKey::new([7; 16])).unwrap();
    Scene { program, client, _listener: listener, server }
}

/// These addresses of this host.
pub(crate) fn own(all: &[[u8; 4]]) -> HostAddresses {
    all.iter().map(|own| Prefix::host((*own).into())).collect()
}

pub(crate) fn with_bpf(test: impl FnOnce() + Send) {
    if load(&PIPELINE, INGRESS).is_some() {
        isolated(test);
    }
}

/// An IP packet with its header's checksum.
pub(crate) fn v4(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let mut packet = vec![0x45, 2, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
    packet.extend([source, destination].concat());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

fn tcp(from: u16, sequence: u32, acknowledges: u32, flags: u8) -> Vec<u8> {
    let numbers = [sequence.to_be_bytes(), acknowledges.to_be_bytes()].concat();
    [&from.to_be_bytes()[..], &443_u16.to_be_bytes(), &numbers, &[0x50, flags, 0xff, 0, 0, 0, 0, 0]].concat()
}

/// From a socket at the client's end: the packet that goes to the service.
fn inner(from: SocketAddr, to: SocketAddr, flags: u8) -> Vec<u8> {
    let segment = tcp(from.port(), 1, 1, flags);
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => v4(from.octets(), to.octets(), 6, &segment),
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut packet = vec![0x60, 0x20, 0, 0, 0, 20, 6, 64];
            packet.extend([from.octets(), to.octets()].concat());
            packet.extend(segment);
            packet
        }
        _ => unreachable!("one family"),
    }
}

fn gue(source: [u8; 4], next_hop: u8, hops: &[[u8; 4]], inner: &[u8]) -> Vec<u8> {
    gue_to(source, OWN, next_hop, hops, inner)
}

pub(crate) fn gue_to(
    source: [u8; 4],
    destination: [u8; 4],
    next_hop: u8,
    hops: &[[u8; 4]],
    inner: &[u8],
) -> Vec<u8> {
    let count = u8::try_from(hops.len()).unwrap();
    let protocol = if inner[0] >> 4 == 4 { 4 } else { 41 };
    let mut datagram = vec![0x80, 1, 0x4c, 0x43, 0, 0, 0, 0];
    datagram.extend([1 + count, protocol, 0, 0, 0, 0, next_hop, count]);
    datagram.extend(hops.iter().flatten());
    datagram.extend(inner);
    let len = u16::try_from(datagram.len()).unwrap();
    datagram[4..6].copy_from_slice(&len.to_be_bytes());
    [MAC.to_vec(), PEER.to_vec(), vec![8, 0], v4(source, destination, 17, &datagram)].concat()
}

/// What a kept packet looks like.
fn unwrapped(inner: &[u8]) -> Vec<u8> {
    let ether_type = if inner[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [MAC.to_vec(), PEER.to_vec(), ether_type.to_vec(), inner.to_vec()].concat()
}

fn run(scene: &Scene, frame: &[u8]) -> (u32, Vec<u8>) {
    test_run(&scene.program, frame)
}

pub(crate) fn test_run(program: &Redirect, frame: &[u8]) -> (u32, Vec<u8>) {
    let mut out = vec![0xa5; 4_096];
    let options =
        TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), repeat: 1, ..Default::default() };
    let result = program.program().unwrap().test_run(options).unwrap();
    out.truncate(usize::try_from(result.data_size_out).unwrap());
    (result.return_value, out)
}

fn counts(scene: &Scene) -> RedirectCounts {
    scene.program.counts().unwrap()
}

const SYN: u8 = 2;
const ACK: u8 = 16;

fn accepts_punts_and_forwards(vip: IpAddr) {
    let mut scene = scene(vip);
    let (here, there) = (scene.client.local_addr().unwrap(), scene.client.peer_addr().unwrap());
    let stranger = SocketAddr::new(here.ip(), here.port() ^ 1);
    let known = inner(here, there, ACK);
    let unknown = inner(stranger, there, ACK);
    let opens = inner(stranger, there, SYN);
    let kept = |scene: &Scene, frame: &[u8], packet: &[u8]| {
        assert_eq!(run(scene, frame), (PASS, unwrapped(packet)));
    };
    kept(&scene, &gue(DIRECTOR, 0, &[NEXT], &opens), &opens);
    kept(&scene, &gue(DIRECTOR, 0, &[NEXT], &known), &known);
    kept(&scene, &gue(DIRECTOR, 0, &[], &unknown), &unknown);
    kept(&scene, &gue(DIRECTOR, 0, &[OWN], &unknown), &unknown);
    kept(&scene, &gue(NEXT, 1, &[NEXT], &known), &known);
    let after = counts(&scene);
    assert_eq!((after.accepted, after.accepted_later_hop), ([1, 1, 0, 1, 1, 0], [0, 1, 0, 0, 0, 0]));
    assert_eq!(after.second_hop_from.into_iter().collect::<Vec<_>>(), [(NEXT.into(), 1)]);
    assert!(after.last_second_hop_ns > 0);
    leaves(&scene, &unknown);
    passes_on(&mut scene, &unknown);
    scene.server.flush().unwrap();
}

/// User space decides a packet whose connection is not here.
fn leaves(scene: &Scene, unknown: &[u8]) {
    let left = |frame: Vec<u8>| assert_eq!(run(scene, &frame), (PASS, frame));
    // After a repetition of this host another host may know the connection: user space tries that one.
    left(gue(DIRECTOR, 0, &[OWN, NEXT], unknown));
    // The link of the next hop is not set yet.
    left(gue(DIRECTOR, 0, &[NEXT, DIRECTOR], unknown));
    // A hop outside of `backends` is rejected by user space, even if it is this host.
    left(gue(DIRECTOR, 0, &[OWN_ELSEWHERE], unknown));
    assert_eq!(counts(scene).punted["unresolved"], 3);
}

/// To the next hop.
fn link_over(ifindex: u32) -> Neighbour {
    Neighbour { destination: [6; 6], source: [7; 6], source_address: [10, 0, 1, 77].into(), ifindex }
}

/// Through the arrival interface and through another one, as long as the next hop's link is known.
fn passes_on(scene: &mut Scene, unknown: &[u8]) {
    let frame = gue(DIRECTOR, 0, &[NEXT, DIRECTOR], unknown);
    for (ifindex, action) in [(INGRESS, TX), (INGRESS + 1, REDIRECT)] {
        let way = link_over(ifindex);
        scene.program.set_neighbour(NEXT.into(), Some(&way)).unwrap();
        let mut expected = gue([10, 0, 1, 77], 1, &[NEXT, DIRECTOR], unknown);
        expected[..6].fill(6);
        expected[6..12].fill(7);
        expected[15] = 2;
        expected[30..34].copy_from_slice(&NEXT);
        expected[24..26].fill(0);
        let sum = checksum(&expected[14..34]);
        expected[24..26].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(run(scene, &frame), (action, expected));
    }
    let after = counts(scene);
    assert_eq!((after.forwarded, after.forwarded_to[&Ipv4Addr::from(NEXT)]), (2, 2));
    scene.program.set_neighbour(NEXT.into(), None).unwrap();
    assert_eq!(run(scene, &frame).0, PASS);
}

#[test]
fn what_the_kernel_knows_is_unwrapped_and_the_rest_passed_on() {
    with_bpf(|| accepts_punts_and_forwards(VIP.into()));
}

#[test]
fn ipv6_inside_too() {
    with_bpf(|| accepts_punts_and_forwards("2001:db8::10".parse().unwrap()));
}

/// A congestion mark on the outer header must be copied to the inner packet (RFC 6040); the program leaves
/// that to user space.
#[test]
fn a_congestion_mark_that_the_inner_packet_lacks_is_punted() {
    with_bpf(|| {
        let mut scene = scene(VIP.into());
        let (here, there) = (scene.client.local_addr().unwrap(), scene.client.peer_addr().unwrap());
        let way = link_over(INGRESS);
        scene.program.set_neighbour(NEXT.into(), Some(&way)).unwrap();
        let stranger = SocketAddr::new(here.ip(), here.port() ^ 1);
        let (not_ect, ect_1, ect_0, ce) = (0, 1, 2, 3);
        for outside in [not_ect, ect_1, ect_0, ce] {
            for inside in [not_ect, ect_1, ect_0, ce] {
                let same = [not_ect, ect_0].contains(&outside) || outside == inside;
                for (from, action) in [(here, PASS), (stranger, TX)] {
                    let mut packet = inner(from, there, ACK);
                    mark(&mut packet, inside);
                    let mut frame = gue(DIRECTOR, 0, &[NEXT], &packet);
                    mark(&mut frame[14..], outside);
                    let done = run(&scene, &frame);
                    let name = format!("{outside:02b} around {inside:02b}");
                    match (same, action) {
                        (false, _) => assert_eq!(done, (PASS, frame), "{name}"),
                        (true, PASS) => assert_eq!(done, (PASS, unwrapped(&packet)), "{name}"),
                        (true, _) => assert_eq!((done.0, done.1[15]), (TX, inside), "{name}"),
                    }
                }
            }
        }
        assert_eq!(counts(&scene).punted["outer"], 2 * 6, "both marks, three packets without each");
    });
}

/// A director on the same host sends packets with unfinished checksums. User space accepts or forwards them,
/// because it can finish the checksum. Packets with any other checksum are handled by the program.
fn leaves_what_is_unfinished(vip: IpAddr) {
    let mut scene = scene(vip);
    let (here, there) = (scene.client.local_addr().unwrap(), scene.client.peer_addr().unwrap());
    let stranger = SocketAddr::new(here.ip(), here.port() ^ 1);
    let way = link_over(INGRESS);
    scene.program.set_neighbour(NEXT.into(), Some(&way)).unwrap();
    let at = if vip.is_ipv4() { 36 } else { 56 };
    for (number, (from, flags, action)) in
        (1..).zip([(stranger, SYN, PASS), (here, ACK, PASS), (stranger, ACK, TX)])
    {
        let mut packet = inner(from, there, flags);
        let (addresses, segment) = if vip.is_ipv4() { (12..20, 20) } else { (8..40, 40) };
        let len = u16::try_from(packet.len() - segment).unwrap().to_be_bytes();
        let sum = !checksum(&[&packet[addresses], &[0, 6], &len].concat());
        packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let frame = gue(DIRECTOR, 0, &[NEXT], &packet);
        assert_eq!(run(&scene, &frame), (PASS, frame), "{flags:02x}: left as it came");
        assert_eq!(counts(&scene).punted["inner_unfinished"], number);
        packet[at + 1] ^= 1;
        let (done, out) = run(&scene, &gue(DIRECTOR, 0, &[NEXT], &packet));
        assert_eq!(done, action, "{flags:02x}");
        assert!(action == TX || out == unwrapped(&packet), "{flags:02x}");
    }
    scene.server.flush().unwrap();
}

#[test]
fn an_unfinished_inner_checksum_is_punted() {
    with_bpf(|| leaves_what_is_unfinished(VIP.into()));
    with_bpf(|| leaves_what_is_unfinished("2001:db8::10".parse().unwrap()));
}

/// Writes the ECN field of an IPv4 packet.
fn mark(packet: &mut [u8], ecn: u8) {
    packet[1] = ecn;
    packet[10..12].fill(0);
    let sum = checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Octets of a good frame, what makes it a bad one, and the reason that is counted.
const CHANGES: [(usize, u8, &str); 18] = [
    (0, 3, "outer"),        // another host's link address
    (12, 0x81, "not_ours"), // a tag
    (14, 0x46, "not_ours"), // options
    (17, 9, "outer"),       // length
    (20, 0x20, "outer"),    // a fragment
    (23, 6, "not_ours"),    // TCP
    (25, 0, "outer"),       // checksum
    (29, 9, "outer"),       // a stranger, whose checksum is wrong too
    (33, 9, "not_ours"),    // another destination
    (37, 1, "not_ours"),    // another port
    (39, 1, "outer"),       // UDP length
    (41, 1, "outer"),       // UDP checksum
    (42, 0x42, "gue"),      // version
    (43, 17, "gue"),        // protocol
    (44, 0x80, "gue"),      // flags
    (47, 2, "gue"),         // private data
    (48, 1, "sender"),      // a director that passes on
    (49, 4, "gue"),         // hops
];

/// A packet with any error or special property is punted unchanged: each change alone, then every truncation.
#[test]
fn all_other_packets_are_punted_unchanged() {
    with_bpf(|| {
        let scene = scene(VIP.into());
        let (here, there) = (scene.client.local_addr().unwrap(), scene.client.peer_addr().unwrap());
        let good = gue(DIRECTOR, 0, &[NEXT], &inner(here, there, SYN));
        assert_eq!(run(&scene, &good).1.len(), good.len() - 40);
        for (at, octet, reason) in CHANGES {
            let mut bad = good.clone();
            bad[at] = octet;
            let before = counts(&scene).punted[reason];
            assert_eq!(run(&scene, &bad), (PASS, bad.clone()), "octet {at}");
            assert_eq!(counts(&scene).punted[reason], before + 1, "octet {at}: {:?}", counts(&scene).punted);
        }
        for at in 54..74 {
            // Of the inner header all octets count, by its checksum.
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(run(&scene, &bad), (PASS, bad.clone()), "octet {at}");
        }
        for len in 14..good.len() {
            assert_eq!(run(&scene, &good[..len]), (PASS, good[..len].to_vec()), "cut at {len}");
        }
    });
}

const CLIENT: [u8; 4] = [198, 51, 100, 9];

/// Sends the client's segment to the VIP into the calling thread's namespace, past every program.
fn hand_to_kernel(segment: &[u8]) {
    let mut packet = v4(CLIENT, VIP, 6, segment);
    let pseudo = [&CLIENT[..], &VIP, &[0, 6, 0, 20], segment].concat();
    let sum = checksum(&pseudo);
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    let frame = [vec![0; 12], vec![8, 0], packet].concat();
    let mut batch = Batch::new(2_048);
    batch.slot()[..frame.len()].copy_from_slice(&frame);
    batch.push(frame.len(), INGRESS);
    assert_eq!(batch.send(&PacketSocket::open().unwrap()).frames, 1);
}

/// The calling thread's namespace answers the client's SYN with a cookie: the sequence number of the SYN-ACK.
fn cookie(port: u16) -> u32 {
    std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").unwrap();
    ip("route replace 198.51.100.0/24 dev lo");
    let mut ring = Ring::open(INGRESS, Shape::default(), None).unwrap();
    hand_to_kernel(&tcp(port, 7, 0, SYN));
    syn_ack(&mut ring).expect("the service answers")
}

fn next_is_known(scene: &mut Scene) {
    let source_address = [10, 0, 1, 77].into();
    let way = Neighbour { destination: [6; 6], source: [7; 6], source_address, ifindex: INGRESS };
    scene.program.set_neighbour(NEXT.into(), Some(&way)).unwrap();
}

/// With SYN cookies the kernel has no socket for a flow until its ACK brings the cookie back. The SYN came by
/// here.
#[test]
fn segments_after_an_accepted_syn_are_accepted() {
    with_bpf(|| follows_a_syn(VIP.into()));
    with_bpf(|| follows_a_syn("2001:db8::10".parse().unwrap()));
}

fn follows_a_syn(vip: IpAddr) {
    let mut scene = scene(vip);
    next_is_known(&mut scene);
    let (here, there) = (scene.client.local_addr().unwrap(), scene.client.peer_addr().unwrap());
    let client = SocketAddr::new(here.ip(), here.port() ^ 1);
    let segment = |sequence: u32, flags| {
        let mut packet = inner(client, there, flags);
        let at = packet.len() - 16;
        packet[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
        packet
    };
    let action = |sequence, flags| run(&scene, &gue(DIRECTOR, 0, &[NEXT], &segment(sequence, flags))).0;
    assert_eq!(action(8, ACK), TX, "no SYN of this flow yet");
    // Marked outside, not ECN-capable inside: punted to the socket, which rejects it.
    let mut marked = gue(DIRECTOR, 0, &[NEXT], &segment(7, SYN));
    mark(&mut marked[14..], 3);
    assert_eq!(run(&scene, &marked), (PASS, marked));
    assert_eq!(action(8, ACK), TX, "its SYN was not kept");
    assert_eq!(action(7, SYN), PASS);
    let kept = [(8, ACK), (7 + 65_536, ACK), (8, ACK | 0x08), (8, ACK | 0x01)];
    let passed_on = [(7, ACK), (7 + 65_537, ACK), (6, ACK), (8, ACK | SYN), (8, ACK | 0x04), (8, 0x04)];
    for (sequence, flags) in kept {
        assert_eq!(action(sequence, flags), PASS, "{sequence} {flags:02x}");
    }
    for (sequence, flags) in passed_on {
        assert_eq!(action(sequence, flags), TX, "{sequence} {flags:02x}");
    }
    assert_eq!((counts(&scene).accepted[2], counts(&scene).forwarded), (4, 8), "{:?}", counts(&scene));
}

/// Containers of one kernel share the secret of its SYN cookies. This container's kernel accepts a cookie of
/// the other container, and the connection would be here, without the client's state. The program forwards
/// the packet to the other container.
#[test]
fn a_cookie_of_another_container_is_passed_on() {
    with_bpf(|| {
        let mut scene = scene(VIP.into());
        next_is_known(&mut scene);
        let other = Peer::new();
        let given = other.visit(|| {
            ip("addr add 203.0.113.10/32 dev lo");
            let _listener = TcpListener::bind((Ipv4Addr::from(VIP), 443)).unwrap();
            cookie(50_000)
        });
        // This listener has sent cookies a moment ago, too; otherwise its kernel does not check cookies.
        let own = cookie(50_001);
        let ack = |port, cookie: u32| tcp(port, 8, cookie.wrapping_add(1), ACK);
        let packet = |port, cookie| gue(DIRECTOR, 0, &[NEXT], &v4(CLIENT, VIP, 6, &ack(port, cookie)));
        assert_eq!(run(&scene, &packet(50_000, given)).0, TX);
        // The SYN of its own cookie did not come by the program.
        assert_eq!(run(&scene, &packet(50_001, own)).0, TX);
        let syn = gue(DIRECTOR, 0, &[NEXT], &v4(CLIENT, VIP, 6, &tcp(50_001, 7, 0, SYN)));
        assert_eq!(run(&scene, &syn).0, PASS);
        assert_eq!(run(&scene, &packet(50_001, own)).0, PASS);
        assert_eq!((counts(&scene).accepted[2], counts(&scene).forwarded), (1, 2), "{:?}", counts(&scene));
        // The baseline: the kernel itself accepts both cookies as its own.
        for (port, cookie) in [(50_000, given), (50_001, own)] {
            hand_to_kernel(&ack(port, cookie));
            let (_, client) = scene._listener.accept().unwrap();
            assert_eq!(client, SocketAddr::from((CLIENT, port)));
        }
    });
}

/// Packets from addresses that no client of this host can have, and GUE in GUE, are rejected and counted by
/// the socket.
#[test]
fn packets_that_no_client_can_have_sent_are_punted() {
    with_bpf(|| {
        ip("addr add 203.0.113.10/32 dev lo");
        let text = "{version: 1, directors: [10.0.0.0/28], backends: [10.0.1.0/24], vips: [203.0.113.10, \"2001:db8::10\", 203.0.114.0/24]}";
        let config = RedirectConfig::parse("test", text).unwrap();
        let key = SipKey::new([7; 16]);
        let mut program = Redirect::load(&config, &own(&[OWN, OWN_ELSEWHERE]), MAC, key).unwrap();
        let vip6: [u8; 16] = "2001:db8::10".parse::<std::net::Ipv6Addr>().unwrap().octets();
        let from = |source: IpAddr, port: u16| match source {
            IpAddr::V4(source) => v4(source.octets(), VIP, 17, &udp(port)),
            IpAddr::V6(source) => {
                let datagram = udp(port);
                let mut packet = vec![0x60, 0, 0, 0, 0, u8::try_from(datagram.len()).unwrap(), 17, 64];
                packet.extend([source.octets(), vip6].concat());
                packet.extend(datagram);
                packet
            }
        };
        let kept = |program: &Redirect, source: &str, port| {
            let packet = from(source.parse().unwrap(), port);
            let frame = gue(DIRECTOR, 0, &[NEXT], &packet);
            let (action, out) = test_run(program, &frame);
            assert_eq!(action, PASS, "{source}");
            assert!(out == frame || out == unwrapped(&packet), "{source}");
            out != frame
        };
        let no_clients = [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "203.0.113.10",
            "10.0.1.1",
            "10.0.2.1",
            "::",
            "::1",
            "ff02::1",
            "::ffff:198.51.100.7",
            "2001:db8::10",
        ];
        let clients = [
            "1.0.0.0",
            "126.0.0.1",
            "128.0.0.1",
            "223.255.255.255",
            "10.0.1.3",
            "203.0.113.11",
            "203.0.114.1",
            "198.18.7.7",
            "::2",
            "fe80::7",
            "feff::1",
            "2001:db8::11",
            "fd00:7::1",
        ];
        for source in no_clients {
            assert!(!kept(&program, source, 443), "{source}");
        }
        for source in clients {
            assert!(kept(&program, source, 443), "{source}");
            assert!(!kept(&program, source, 19_523), "{source}: GUE in GUE");
        }
        // As this host's addresses change, whole prefixes among them.
        let prefix = |text: &str, bits| Prefix::new(text.parse().unwrap(), bits).unwrap();
        let changed = [
            prefix("10.0.1.3", 32),
            prefix("198.18.0.0", 16),
            prefix("fd00:7::", 32),
            prefix("fe80::7", 128),
        ];
        program.set_own(&changed.into_iter().collect()).unwrap();
        for (source, expected) in [
            ("10.0.1.1", true),
            ("10.0.1.3", false),
            ("198.18.7.7", false),
            ("198.19.0.0", true),
            ("fd00:7::1", false),
            ("fd00:8::1", true),
            ("fe80::7", false),
            ("203.0.113.10", false),
            ("2001:db8::10", false),
        ] {
            assert_eq!(kept(&program, source, 443), expected, "{source}");
        }
        let left = program.counts().unwrap().punted["inner"];
        assert_eq!(left, 14 + 13 + 6);
    });
}

fn udp(port: u16) -> Vec<u8> {
    [&50_000_u16.to_be_bytes()[..], &port.to_be_bytes(), &[0, 12, 0, 0], b"ping"].concat()
}

/// The sequence number of the next SYN-ACK from the VIP.
fn syn_ack(ring: &mut Ring) -> Option<u32> {
    for _ in 0..100 {
        ring.wait(Duration::from_millis(10)).unwrap();
        while let Some(mut block) = ring.block() {
            while let Some(frame) = block.frame() {
                let packet = frame.bytes.get(14..).unwrap_or_default();
                if packet.len() >= 40 && packet[9] == 6 && packet[12..16] == VIP && packet[33] & 0x12 == 0x12
                {
                    return Some(u32::from_be_bytes(packet[24..28].try_into().unwrap()));
                }
            }
        }
    }
    None
}
