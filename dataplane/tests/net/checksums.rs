//! Transport checksums that clients' kernels leave to the interface, as they do on every veth, bridge and
//! virtual machine: all modes of both programs serve such clients. Where a program did not finish the
//! checksum, the server's kernel would drop the packet and count it.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::bind::{Bind, PortRange, Prefix, Protocol};
use dataplane::host::sys::datagram::{bind_to_loopback, raw_ip, send};
use dataplane::host::sys::interface::Interface;
use dataplane::host::sys::packet::PacketSocket;
use dataplane::testkit::lab::modes::Modes;
use dataplane::testkit::lab::netns::Namespace;
use dataplane::testkit::lab::topology::{Network, VIP, VIP6, backend, backend_v6, director};
use dataplane::testkit::lab::world::World;
use etherparse::PacketBuilder;

use crate::redirect::{Bench, bench, gue};
use crate::second_chance::setup;

const ECHO: u16 = 5_353;
const CONNECTIONS: usize = 24;
const DATAGRAMS: u8 = 20;

/// UDP echo on a port of a host, until dropped.
struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Echo {
    /// At both VIPs: a reply has the address of the request as its source.
    fn start(host: &Namespace) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = host.run(move || {
            let sockets = [IpAddr::from(VIP), VIP6.into()].map(|vip| UdpSocket::bind((vip, ECHO)).unwrap());
            sockets
                .iter()
                .for_each(|socket| socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap());
            thread::spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    for socket in &sockets {
                        let mut octets = [0; 2_000];
                        let Ok((len, client)) = socket.recv_from(&mut octets) else { continue };
                        socket.send_to(&octets[..len], client).unwrap();
                    }
                }
            })
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(thread::JoinHandle::join));
    }
}

/// Sends datagrams, each from a port of its own, and returns what did not come back with its octets: number
/// and error. The sockets are connected, so that a late answer to another socket that had the same port is
/// not taken for one of theirs.
fn not_echoed(client: &Namespace, vip: IpAddr) -> Vec<(u8, String)> {
    client.run(move || {
        let any = if vip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let connected = || {
            let socket = UdpSocket::bind(any).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            socket.connect((vip, ECHO)).unwrap();
            socket
        };
        let sockets: Vec<_> = (0..DATAGRAMS).map(|_| connected()).collect();
        let request = |number: u8| vec![number; usize::from(number) * 20 + 1];
        for (number, socket) in (0..).zip(&sockets) {
            socket.send(&request(number)).unwrap();
        }
        let mut octets = [0; 2_000];
        let fault = |(number, socket): (u8, &UdpSocket)| match socket.recv(&mut octets) {
            Ok(len) if octets[..len] == request(number) => None,
            Ok(len) => Some((number, format!("{len} octets: {:?}", &octets[..len]))),
            Err(error) => Some((number, error.to_string())),
        };
        (0..).zip(&sockets).filter_map(fault).collect()
    })
}

/// Echo requests that the client's kernel makes, each answered with its octets.
fn echo_requests(client: &Namespace, vip: IpAddr) -> anyhow::Result<()> {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        println!("SKIPPED: echo requests need python3");
        return Ok(());
    }
    client.sysctl("ipv4/ping_group_range", "0 0")?;
    let script = r#"
import socket, sys
six = ":" in sys.argv[1]
family, protocol = (socket.AF_INET6, socket.IPPROTO_ICMPV6) if six else (socket.AF_INET, socket.IPPROTO_ICMP)
s = socket.socket(family, socket.SOCK_DGRAM, protocol)
s.settimeout(3)
for number in range(3):
    s.sendto(bytes([128 if six else 8, 0, 0, 0, 0, 0, 0, number]) + b"odd", (sys.argv[1], 0))
    reply = s.recv(200)
    assert reply[0] == (129 if six else 0) and reply[7:] == bytes([number]) + b"odd", reply
"#;
    client.shell(&format!("python3 -c '{script}' {vip}"))
}

/// The answers find no socket any more, so that the client's kernel makes ICMP errors for the VIP.
fn refuse_answers(client: &Namespace, vip: IpAddr) {
    client.run(move || {
        let any = if vip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        for _ in 0..10 {
            assert_eq!(UdpSocket::bind(any).unwrap().send_to(b"gone", (vip, ECHO)).unwrap(), 4);
        }
    });
}

/// ICMP errors that the kernels of all hosts accepted: over IPv4, over IPv6.
fn unreachables(hosts: &[Namespace]) -> [u64; 2] {
    let of = |host: &Namespace| {
        host.run(|| {
            let read = |file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
            let (snmp, snmp6) = (read("snmp"), read("snmp6"));
            let v6 = snmp6.lines().find_map(|line| line.strip_prefix("Icmp6InDestUnreachs")).unwrap();
            [column(&snmp, "Icmp:", "InDestUnreachs"), v6.trim().parse().unwrap()]
        })
    };
    hosts.iter().map(of).fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
}

/// A counter of /proc/net/snmp.
fn column(snmp: &str, family: &str, name: &str) -> u64 {
    let mut lines = snmp.lines().filter(|line| line.starts_with(family)).map(str::split_whitespace);
    let (mut names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.position(|other| other == name).unwrap();
    values.into_iter().nth(at).unwrap().parse().unwrap()
}

/// Segments and datagrams that the kernel of a host dropped because their checksum was wrong, both families.
fn checksum_errors(host: &Namespace) -> u64 {
    host.run(|| {
        let read = |file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
        let (snmp, snmp6) = (read("snmp"), read("snmp6"));
        let v6 = snmp6.lines().filter(|line| line.starts_with("Udp6InCsumErrors"));
        let v6: u64 = v6.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum();
        let columns = |family: &str| column(&snmp, family, "InCsumErrors");
        v6 + columns("Tcp:") + columns("Udp:") + columns("Icmp:")
    })
}

/// One cell of the matrix.
fn serves(director: &str, redirect: &str, finished_checksums: bool) {
    let cell =
        format!("director {director}, redirector {redirect}, finished by the client: {finished_checksums}");
    let mut setup = setup(1, 2, 2);
    setup.size.clients = 1;
    setup.modes = Modes {
        director: Some(director.to_owned()),
        redirect: Some(redirect.to_owned()),
        finished_checksums,
    };
    let ports = PortRange::single(ECHO);
    let udp = |vip| Bind { prefix: Prefix::host(vip), protocol: Protocol::Udp, ports };
    setup.service.spec.binds.extend([VIP.into(), VIP6.into()].map(udp));
    let mut world = World::new(setup).unwrap_or_else(|error| panic!("{cell}: {error:#}"));
    let echoes: Vec<_> = world.network.backends.iter().map(Echo::start).collect();
    world.open(CONNECTIONS).unwrap_or_else(|error| panic!("{cell}: {error:#}"));
    let counts = world.exchange();
    assert_eq!((counts.alive, counts.broken()), (CONNECTIONS, 0), "{cell}: {counts}");
    let client = &world.network.clients[0];
    for vip in [IpAddr::from(VIP), VIP6.into()] {
        assert_eq!(not_echoed(client, vip), [], "{cell}: UDP to {vip}");
        echo_requests(client, vip).unwrap_or_else(|error| panic!("{cell}: {error:#}"));
        refuse_answers(client, vip);
    }
    until(
        || unreachables(&world.network.backends).iter().all(|errors| *errors > 0),
        &format!("{cell}: the kernel accepts ICMP errors of both families"),
    );
    let errors: u64 = world.network.backends.iter().map(checksum_errors).sum();
    assert_eq!(errors, 0, "{cell}: packets dropped for their checksum");
    drop(echoes);
    let report = world.director_counters(0).unwrap();
    in_kernel(&cell, &report, director, finished_checksums);
}

/// Checks that the cell tests its case: the program punted unfinished checksums, or it forwarded.
fn in_kernel(cell: &str, report: &serde_json::Value, mode: &str, finished: bool) {
    let fast = &report["fast_path"];
    if mode == "af-packet" || mode == "pnet" {
        assert!(fast.is_null(), "{cell}: {fast}");
        return;
    }
    let (sent, left) = (fast["encapsulated"].as_u64().unwrap(), fast["left"]["unfinished"].as_u64().unwrap());
    // Without a wire all TCP and UDP packets of the client are unfinished.
    let expected = if finished { sent > 0 && left == 0 } else { sent == 0 && left > 0 };
    assert!(expected, "{cell}: {sent} encapsulated, {left} unfinished");
}

/// A row of the matrix: all modes of the redirector, and both kinds of client.
fn serves_all(director: &str) {
    if !crate::privileged() {
        return;
    }
    for redirect in ["socket", "auto", "xdp"] {
        [false, true].into_iter().for_each(|finished| serves(director, redirect, finished));
    }
}

#[test]
fn af_packet_serves_clients_that_leave_checksums_to_the_interface() {
    serves_all("af-packet");
}

#[test]
fn pnet_serves_clients_that_leave_checksums_to_the_interface() {
    serves_all("pnet");
}

#[test]
fn auto_serves_clients_that_leave_checksums_to_the_interface() {
    serves_all("auto");
}

#[test]
fn xdp_serves_clients_that_leave_checksums_to_the_interface() {
    serves_all("xdp");
}

/// From the lab's client to the VIP, with the sum of the pseudo header in the checksum field.
fn unfinished(v4: bool, tcp: bool) -> Vec<u8> {
    let client6 = "2001:db8:c::2".parse::<std::net::Ipv6Addr>().unwrap().octets();
    let ip = || match v4 {
        true => PacketBuilder::ipv4([198, 51, 100, 2], VIP.octets(), 64),
        false => PacketBuilder::ipv6(client6, VIP6.octets(), 64),
    };
    let mut octets = Vec::new();
    match tcp {
        true => ip().tcp(50_000, 80, 7, 1_000).ack(1).write(&mut octets, b"odd").unwrap(),
        false => ip().udp(50_000, ECHO).write(&mut octets, b"hello").unwrap(),
    }
    let (addresses, start) = if v4 { (12..20, 20) } else { (8..40, 40) };
    let (number, field) = if tcp { (6, start + 16) } else { (17, start + 6) };
    let len = u16::try_from(octets.len() - start).unwrap();
    let mut sum = u32::from(len) + number;
    for pair in octets[addresses].chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    octets[field..field + 2].copy_from_slice(&u16::try_from(sum).unwrap().to_be_bytes());
    octets
}

/// A TCP packet with the checksum that etherparse computes.
fn with_right_checksum(packet: &[u8]) -> Vec<u8> {
    let header = etherparse::PacketHeaders::from_ip_slice(packet).unwrap();
    let Some(etherparse::TransportHeader::Tcp(tcp)) = header.transport else { panic!("TCP was sent") };
    let payload = header.payload.slice();
    let (right, at) = match header.net.unwrap() {
        etherparse::NetHeaders::Ipv4(ip, _) => (tcp.calc_checksum_ipv4(&ip, payload).unwrap(), 36),
        etherparse::NetHeaders::Ipv6(ip, _) => (tcp.calc_checksum_ipv6(&ip, payload).unwrap(), 56),
        etherparse::NetHeaders::Arp(_) => panic!("IP was sent"),
    };
    let mut octets = packet.to_vec();
    octets[at..at + 2].copy_from_slice(&right.to_be_bytes());
    assert_ne!(octets, packet, "it was unfinished");
    octets
}

/// A foreign director on the same host may send packets with unfinished checksums. The baseline is the packet
/// that a redirector would deliver without finishing it: the kernel drops it.
#[test]
fn the_redirector_finishes_checksums_of_accepted_packets() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let host = &bench.network.backends[0];
    let vip = |v4: bool| if v4 { IpAddr::from(VIP) } else { VIP6.into() };
    let service =
        host.run(|| [IpAddr::from(VIP), VIP6.into()].map(|vip| UdpSocket::bind((vip, ECHO)).unwrap()));
    for (number, v4) in (1..).zip([true, false]) {
        let socket = &service[usize::from(!v4)];
        socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        let packet = unfinished(v4, false);
        let as_it_is = packet.clone();
        host.run(move || {
            let raw = raw_ip(v4).unwrap();
            bind_to_loopback(raw.as_fd()).unwrap();
            let one = std::iter::once((as_it_is.as_slice(), SocketAddr::new(vip(v4), 0)));
            send(raw.as_fd(), one, |error| panic!("{error}"));
        });
        until(|| checksum_errors(host) == number, "the control is dropped for its checksum");
        bench.send(&bench.network.directors[0], &gue(&packet, 0, &[]), backend(0).into());
        let mut octets = [0; 100];
        let len = socket.recv(&mut octets).expect("the datagram is kept with a right checksum");
        assert_eq!(&octets[..len], b"hello");
        assert_eq!(checksum_errors(host), number, "the control alone");
        until(|| finished(&bench) == number, "it is counted");
    }
}

/// Forwarded packets too: the next hop gets the checksum that an independent builder computes.
#[test]
fn the_redirector_finishes_what_it_passes_on() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let next = bench.listen(1);
    for (number, v4) in (1..).zip([true, false]) {
        let mut expected = unfinished(v4, true);
        let hop: IpAddr = if v4 { backend(1).into() } else { backend_v6(1).into() };
        let to: IpAddr = if v4 { backend(0).into() } else { backend_v6(0).into() };
        bench.send(&bench.network.directors[0], &gue(&expected, 0, &[hop]), to);
        expected = with_right_checksum(&expected);
        let mut octets = [0; 200];
        let len = next.recv(&mut octets).unwrap();
        assert_eq!(octets[..len], gue(&expected, 1, &[hop]), "{v4}");
        until(|| finished(&bench) == number, "it is counted");
    }
}

/// GUE from the director's host as its kernel would send it for a tunnel of its own: the kernel marks the
/// checksum inside as unfinished and carries the mark along, up to the redirector's interface and into its
/// socket.
fn send_marked(network: &Network, to: std::net::Ipv4Addr, inner: &[u8], tcp: bool, hops: &[IpAddr]) {
    let gateway = network.router.run(|| Interface::named("director0").unwrap().mac);
    let datagram = gue(inner, 0, hops);
    let before_inner = 14 + 20 + 8 + datagram.len() - inner.len();
    let transport = if inner[0] >> 4 == 4 { 20 } else { 40 };
    let start = u16::try_from(before_inner + transport).unwrap();
    let field: u16 = if tcp { 16 } else { 6 };
    network.directors[0].run(move || {
        let own = Interface::named("eth0").unwrap();
        let mut frame = Vec::new();
        let ip = PacketBuilder::ethernet2(own.mac, gateway).ipv4(director(0).octets(), to.octets(), 64);
        ip.udp(40_000, 19_523).write(&mut frame, &datagram).unwrap();
        frame[40..42].fill(0);
        // `virtio_net_hdr`: VIRTIO_NET_HDR_F_NEEDS_CSUM, and where the checksum starts and lies.
        let mut octets = vec![1, 0, 0, 0, 0, 0];
        octets.extend([start.to_ne_bytes(), field.to_ne_bytes()].concat());
        octets.extend(frame);
        let socket = PacketSocket::open().unwrap();
        socket.report_offloads().unwrap();
        assert_eq!(socket.send(own.index, &octets).unwrap(), octets.len());
    });
}

/// Whether the program punts the packet or the socket takes all packets: no mode of the redirector relies on
/// the kernel's mark, which a packet loses when it is sent again.
fn takes_marked(mode: &str) {
    if !crate::privileged() {
        return;
    }
    let bench = bench(&format!("mode: {mode}\ninterface: eth0\n"));
    let _passing = bench.network.take_native().unwrap();
    let host = &bench.network.backends[0];
    let service = host.run(|| UdpSocket::bind((VIP, ECHO)).unwrap());
    let next = bench.listen(1);
    service.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let (datagram, segment) = (unfinished(true, false), unfinished(true, true));
    // The baseline: nothing on the path finishes the checksum.
    let mut octets = [0; 200];
    send_marked(&bench.network, backend(1), &segment, true, &[]);
    let len = next.recv(&mut octets).expect("the control");
    assert_eq!(octets[..len], gue(&segment, 0, &[]), "{mode}");
    send_marked(&bench.network, backend(0), &datagram, false, &[]);
    let len =
        service.recv(&mut octets).unwrap_or_else(|error| panic!("{mode}: the datagram is kept: {error}"));
    assert_eq!(&octets[..len], b"hello", "{mode}");
    let hop: IpAddr = backend(1).into();
    send_marked(&bench.network, backend(0), &segment, true, &[hop]);
    let len =
        next.recv(&mut octets).unwrap_or_else(|error| panic!("{mode}: the segment is passed on: {error}"));
    assert_eq!(octets[..len], gue(&with_right_checksum(&segment), 1, &[hop]), "{mode}");
    assert_eq!((checksum_errors(host), finished(&bench)), (0, 2), "{mode}");
    let report = serde_json::to_value(bench.redirector.report()).unwrap();
    let left = report["fast_path"]["left"]["inner_unfinished"].as_u64();
    assert_eq!(left, (mode != "socket").then_some(2), "{mode}");
}

#[test]
fn the_redirector_accepts_marked_packets_by_its_socket() {
    takes_marked("socket");
}

#[test]
fn the_redirector_accepts_marked_packets_in_the_stack() {
    takes_marked("auto");
}

#[test]
fn the_redirector_accepts_marked_packets_in_the_driver() {
    takes_marked("xdp");
}

fn finished(bench: &Bench) -> u64 {
    bench.redirector.report().checksums_finished
}

fn until(holds: impl Fn() -> bool, what: &str) {
    let soon = (0..1_000).any(|_| {
        thread::sleep(Duration::from_millis(2));
        holds()
    });
    assert!(soon, "{what}");
}
