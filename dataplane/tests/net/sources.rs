//! Packets that no client can have sent, at the redirector's socket: each is rejected, and the baseline shows
//! what the kernel would do with it.

use std::io::BufRead as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use dataplane::host::sys::datagram::{bind_to_loopback, raw_ip, send};
use dataplane::host::sys::packet::PacketSocket;
use dataplane::testkit::lab::netns::Namespace;
use dataplane::testkit::lab::topology::{VIP, VIP6, backend, director};
use etherparse::{IpFragOffset, Ipv4Header, PacketBuilder, PacketBuilderStep};

use crate::redirect::{Bench, bench, gue};
use crate::second_host::{soon, too_big};

const GUE: u16 = 19_523;
const CLIENT: &str = "198.51.100.2";
const CLIENT6: &str = "2001:db8:c::2";
/// Index of `lo`, in every network namespace.
const LOOPBACK: u32 = 1;

fn from(source: IpAddr) -> PacketBuilderStep<etherparse::IpHeaders> {
    match source {
        IpAddr::V4(source) => PacketBuilder::ipv4(source.octets(), VIP.octets(), 64),
        IpAddr::V6(source) => PacketBuilder::ipv6(source.octets(), VIP6.octets(), 64),
    }
}

fn udp(source: IpAddr, ports: (u16, u16), data: &[u8]) -> Vec<u8> {
    let mut octets = Vec::new();
    from(source).udp(ports.0, ports.1).write(&mut octets, data).unwrap();
    octets
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn vip_of(family: IpAddr) -> IpAddr {
    if family.is_ipv4() { VIP.into() } else { VIP6.into() }
}

impl Bench {
    fn deliver(&self, inner: &[u8]) {
        self.send(&self.network.directors[0], &gue(inner, 0, &[backend(1).into()]), backend(0).into());
    }

    /// Binds a socket on the redirector's host.
    fn service(&self, to: SocketAddr, patience: Duration) -> UdpSocket {
        let socket = self.network.backends[0].run(move || UdpSocket::bind(to).unwrap());
        socket.set_read_timeout(Some(patience)).unwrap();
        socket
    }
}

/// Delivers packets to the kernel as the redirector does, without its rules.
fn hand_to_kernel(host: &Namespace, packets: &[Vec<u8>], to: IpAddr) {
    let packets = packets.to_vec();
    host.run(move || {
        let socket = raw_ip(to.is_ipv4()).unwrap();
        bind_to_loopback(socket.as_fd()).unwrap();
        let all = packets.iter().map(|packet| (packet.as_slice(), SocketAddr::new(to, 0)));
        send(socket.as_fd(), all, |error| panic!("{error}"));
    });
}

/// Answers every datagram to its sender, as DNS, NTP and game servers do; gives the number of datagrams
/// within that time.
fn answer(service: &UdpSocket, within: Duration) -> usize {
    let until = Instant::now() + within;
    let mut octets = [0; 2_000];
    let mut datagrams = 0;
    while Instant::now() < until && datagrams < 1_000 {
        if let Ok((len, sender)) = service.recv_from(&mut octets) {
            datagrams += 1;
            service.send_to(&octets[..len], sender).unwrap();
        }
    }
    datagrams
}

#[test]
fn no_datagram_makes_a_service_answer_itself() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    for (at, family) in [address(CLIENT), address(CLIENT6)].into_iter().enumerate() {
        let vip = vip_of(family);
        let service = bench.service((vip, 7_000).into(), Duration::from_millis(50));
        let itself = udp(vip, (7_000, 7_000), b"x");
        bench.deliver(&itself);
        bench.counted("refused", "inner_source", u64::try_from(at).unwrap() + 1);
        assert_eq!(answer(&service, Duration::from_millis(200)), 0, "{vip}");
        // The service works.
        bench.deliver(&udp(family, (7_000, 7_000), b"x"));
        assert_eq!(answer(&service, Duration::from_millis(200)), 1, "{vip}");
        // The baseline: a single datagram makes the service answer itself without end.
        hand_to_kernel(&bench.network.backends[0], &[itself], vip);
        assert_eq!(answer(&service, Duration::from_secs(20)), 1_000, "{vip}");
    }
}

fn icmp_echo(source: IpAddr) -> Vec<u8> {
    let mut octets = Vec::new();
    match from(source) {
        step if source.is_ipv4() => step.icmpv4_echo_request(1, 1).write(&mut octets, b"ping").unwrap(),
        step => step.icmpv6_echo_request(1, 1).write(&mut octets, b"ping").unwrap(),
    }
    octets
}

fn tcp(source: IpAddr, syn: bool) -> Vec<u8> {
    let mut octets = Vec::new();
    let tcp = from(source).tcp(50_000, 80, 7, 1_000);
    if syn { tcp.syn() } else { tcp.ack(1) }.write(&mut octets, b"").unwrap();
    octets
}

/// What the VIP sent to a client, as an error quotes it.
fn sent_to(client: IpAddr) -> Vec<u8> {
    let mut octets = Vec::new();
    let ip = match client {
        IpAddr::V4(client) => PacketBuilder::ipv4(VIP.octets(), client.octets(), 64),
        IpAddr::V6(client) => PacketBuilder::ipv6(VIP6.octets(), client.octets(), 64),
    };
    ip.tcp(80, 50_000, 1, 1).write(&mut octets, &[0; 60]).unwrap();
    octets
}

/// A packet from the VIP to a client in a protocol without ports: ICMP of the same family.
fn without_ports(client: IpAddr) -> Vec<u8> {
    let mut octets = sent_to(client);
    let (offset, icmp) = if client.is_ipv4() { (9, 1) } else { (6, 58) };
    octets[offset] = icmp;
    octets
}

/// The fragments of an IPv4 packet, split after this number of octets of its payload.
fn fragments(packet: &[u8], identification: u16, cut: usize) -> [Vec<u8>; 2] {
    let (mut header, payload) = Ipv4Header::from_slice(packet).unwrap();
    (header.identification, header.dont_fragment) = (identification, false);
    let mut part = |more, offset: usize, data: &[u8]| {
        header.more_fragments = more;
        header.fragment_offset = IpFragOffset::try_new(u16::try_from(offset / 8).unwrap()).unwrap();
        header.set_payload_len(data.len()).unwrap();
        header.header_checksum = header.calc_header_checksum();
        [header.to_bytes().as_slice(), data].concat()
    };
    [part(true, 0, &payload[..cut]), part(false, cut, &payload[cut..])]
}

#[test]
fn every_kind_of_packet_from_an_address_that_no_client_has_is_refused() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let no_clients = [
        "0.0.0.0",
        "127.0.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "203.0.113.10",
        "10.2.0.2",
        "10.2.0.3",
        "::",
        "::1",
        "ff02::1",
        "::ffff:198.51.100.2",
        "2001:db8::10",
        "2001:db8:b::2",
    ];
    assert_eq!(
        backend(0),
        Ipv4Addr::new(10, 2, 0, 2),
        "this host's address and its broadcast address are in the list"
    );
    let vips = [IpAddr::from(VIP), VIP6.into()];
    assert!(vips.iter().all(|vip| no_clients.map(address).contains(vip)), "{vips:?}");
    let mut refused = 0;
    for source in no_clients.map(address) {
        let mut packets = vec![
            udp(source, (50_000, 5_353), b"x"),
            tcp(source, true),
            tcp(source, false),
            icmp_echo(source),
            too_big(&sent_to(source), 1_300),
            too_big(&without_ports(source), 1_300),
        ];
        if source.is_ipv4() {
            packets.extend(fragments(&udp(source, (50_000, 5_353), &[0; 64]), 7, 16));
        }
        for packet in packets {
            bench.deliver(&packet);
            refused += 1;
            bench.counted("refused", "inner_source", refused);
        }
    }
    let report = serde_json::to_value(bench.redirector.report()).unwrap();
    let kept: u64 = report["kept"].as_object().unwrap().values().filter_map(serde_json::Value::as_u64).sum();
    assert_eq!((kept, bench.redirector.report().forwarded()), (0, 0), "{report}");
}

/// The rule follows this host's addresses: single ones and whole prefixes, of both families.
#[test]
fn an_address_is_refused_while_it_is_this_hosts() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let host = &bench.network.backends[0];
    let (mut kept, mut refused) = (0, 0);
    let mut expect = |source: &str, is_refused: bool| {
        bench.redirector.follow_network();
        bench.deliver(&udp(address(source), (50_000, 5_353), b"x"));
        *(if is_refused { &mut refused } else { &mut kept }) += 1;
        bench.counted("kept", "udp", kept);
        bench.counted("refused", "inner_source", refused);
    };
    for (source, set, unset) in [
        ("198.51.100.77", "addr add 198.51.100.77/32 dev lo", "addr del 198.51.100.77/32 dev lo"),
        ("198.18.5.5", "route add local 198.18.0.0/16 dev lo", "route del local 198.18.0.0/16 dev lo"),
        ("2001:db8:c::77", "addr add 2001:db8:c::77/128 dev lo nodad", "addr del 2001:db8:c::77/128 dev lo"),
        ("2001:db8:f::5", "route add local 2001:db8:f::/48 dev lo", "route del local 2001:db8:f::/48 dev lo"),
    ] {
        expect(source, false);
        host.ip(set).unwrap();
        expect(source, true);
        host.ip(unset).unwrap();
        expect(source, false);
    }
}

/// A datagram inside that is for the redirector's own socket would come back as a director's, whose address
/// it claims.
#[test]
fn gue_in_gue_is_no_directors() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    for (at, family) in [IpAddr::from(director(0)), address("2001:db8:d::2")].into_iter().enumerate() {
        let at = u64::try_from(at).unwrap();
        let nested = gue(&udp(address(CLIENT), (50_000, 5_353), b"smuggled"), 0, &[]);
        let again = udp(family, (40_000, GUE), &nested);
        bench.deliver(&again);
        bench.counted("refused", "tunnel", at + 1);
        // The baseline: a packet that arrives on `lo` has a director's source address, and only the interface
        // distinguishes it from a director's packet.
        hand_to_kernel(&bench.network.backends[0], &[again], vip_of(family));
        bench.counted("refused", "loopback", at + 1);
    }
    // In fragments the port is not visible until the kernel has reassembled them.
    let nested = gue(&udp(address(CLIENT), (50_000, 5_353), &[b'x'; 100]), 0, &[]);
    for part in fragments(&udp(director(0).into(), (40_000, GUE), &nested), 7, 48) {
        bench.deliver(&part);
    }
    bench.counted("kept", "fragment", 2);
    bench.counted("refused", "loopback", 3);
    let report = serde_json::to_value(bench.redirector.report()).unwrap();
    assert_eq!(report["kept"]["udp"], 0, "{report}");
}

/// The raw socket computes the checksum again, so a wrong one would be right when the service gets the
/// packet.
#[test]
fn a_broken_header_is_refused_and_not_repaired() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let service = bench.service((VIP, 5_353).into(), Duration::from_millis(300));
    let good = udp(address(CLIENT), (50_000, 5_353), b"x");
    let mut wrong = good.clone();
    wrong[10] ^= 0x55;
    let with_options = |options: [u8; 4]| {
        let (mut header, payload) = Ipv4Header::from_slice(&good).unwrap();
        header.options = options.into();
        header.set_payload_len(payload.len()).unwrap();
        header.header_checksum = header.calc_header_checksum();
        [header.to_bytes().as_slice(), payload].concat()
    };
    let mut octets = [0; 16];
    bench.deliver(&wrong);
    bench.counted("refused", "header_checksum", 1);
    bench.deliver(&with_options([7, 1, 0, 0]));
    bench.counted("refused", "options", 1);
    assert!(service.recv_from(&mut octets).is_err(), "neither was delivered");
    bench.deliver(&with_options([1, 1, 1, 0]));
    bench.deliver(&good);
    assert!(service.recv_from(&mut octets).is_ok() && service.recv_from(&mut octets).is_ok());
    // The baseline: the kernel repairs it.
    hand_to_kernel(&bench.network.backends[0], &[wrong], VIP.into());
    assert!(service.recv_from(&mut octets).is_ok());
}

/// The raw socket replaces identification 0 with a different number for each packet, so fragments would not
/// be reassembled. With DF it stays 0.
#[test]
fn fragments_whose_identification_is_0_are_put_together() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let service = bench.service((VIP, 5_353).into(), Duration::from_millis(500));
    let data: Vec<u8> = (0..=u8::MAX).cycle().take(1_000).collect();
    let parts = fragments(&udp(address(CLIENT), (50_000, 5_353), &data), 0, 512);
    let mut octets = [0; 2_000];
    parts.iter().for_each(|part| bench.deliver(part));
    assert_eq!(service.recv_from(&mut octets).unwrap(), (1_000, (address(CLIENT), 50_000).into()));
    assert_eq!(octets[..1_000], data);
    // The baseline: the result without the redirector's replacement.
    hand_to_kernel(&bench.network.backends[0], &parts, VIP.into());
    assert!(service.recv_from(&mut octets).is_err(), "the kernel leaves 0: the replacement is not needed");
    let capture = bench.network.backends[0].run(|| {
        let socket = PacketSocket::open().unwrap();
        socket.bind(LOOPBACK).unwrap();
        socket
    });
    let whole = udp(address(CLIENT), (50_001, 5_353), b"df");
    assert_eq!(whole[4..8], [0, 0, 0x40, 0], "DF and 0");
    bench.deliver(&whole);
    let came = soon(|| {
        let len = capture.receive(&mut octets).ok()?;
        let packet = octets.get(14..len)?;
        (packet.get(20..22)? == 50_001_u16.to_be_bytes()).then(|| packet[..whole.len()].to_vec())
    });
    assert_eq!(came, whole);
}

/// A firewall distinguishes packets that the tunnel delivers on `lo` from the host's own traffic by their
/// mark. `SO_RCVMARK` (75) gives a socket the mark with each datagram.
#[test]
fn what_the_tunnel_delivers_carries_the_mark() {
    if !crate::privileged() {
        return;
    }
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        println!("SKIPPED: reading a datagram's mark needs python3");
        return;
    }
    for (extra, mark) in [("mark: 0x54", "84"), ("", "0")] {
        let bench = bench(extra);
        for client in [address(CLIENT), address(CLIENT6)] {
            let script = format!(
                r#"
import socket, struct
vip = "{vip}"
s = socket.socket(socket.AF_INET6 if ":" in vip else socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 75, 1)
s.bind((vip, 7000))
s.settimeout(20)
print("bound", flush=True)
data, ancillary, flags, client = s.recvmsg(10, 100)
marks = [struct.unpack("I", value)[0] for level, kind, value in ancillary if (level, kind) == (socket.SOL_SOCKET, 36)]
print(data, *marks)
"#,
                vip = vip_of(client)
            );
            let mut receiver = bench.network.backends[0].run(move || {
                let mut python = std::process::Command::new("python3");
                python.args(["-c", &script]).stdout(std::process::Stdio::piped()).spawn().unwrap()
            });
            let mut lines = std::io::BufReader::new(receiver.stdout.take().unwrap()).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "bound");
            bench.deliver(&udp(client, (50_000, 7_000), b"x"));
            assert_eq!(lines.next().unwrap().unwrap(), format!("b'x' {mark}"), "{extra}, {client}");
            assert!(receiver.wait().unwrap().success());
        }
    }
}
