//! The cases of GLB's own redirect test, and their effects in the kernels: a hand-written client, PROXY that
//! gets its packets first, ALT that is the next hop and serves, and SELF that receives the last hop's
//! packets.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use dataplane::host::sys::interface::Interface;
use dataplane::host::sys::packet::PacketSocket;
use dataplane::redirect::run::Redirector;
use dataplane::testkit::lab::topology::{VIP, VIP6, backend, backend_v6};
use etherparse::{
    Icmpv4Type, Icmpv6Type, NetHeaders, PacketBuilder, PacketHeaders, TcpHeader, TcpOptionElement,
    TransportHeader, icmpv4,
};

use crate::redirect::{Bench, bench, config, gue, received};

const PROXY: u8 = 0;
const ALT: u8 = 1;
const SELF: u8 = 2;
/// Routed to the client's host but not its addresses: its kernel does not answer packets to them.
const CLIENT: &str = "198.51.100.66";
const CLIENT6: &str = "2001:db8:c:ff::66";
const ROUTER: &str = "192.0.2.1";
const ROUTER6: &str = "2001:db8:c::1";
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// The two redirectors with a listener each, and what the client's host receives.
struct Stage {
    bench: Bench,
    alt: Redirector,
    listeners: [TcpListener; 2],
    capture: PacketSocket,
}

impl Stage {
    fn set() -> Self {
        let bench = bench("");
        let backends = &bench.network.backends;
        let alt = backends[usize::from(ALT)].run(|| Redirector::start(config(""))).unwrap();
        let listeners = [PROXY, ALT].map(|host| {
            let listener = backends[usize::from(host)].run(|| TcpListener::bind("[::]:80").unwrap());
            listener.set_nonblocking(true).unwrap();
            listener
        });
        let routes =
            "route add 198.51.100.64/28 via 198.51.100.2\nroute add 2001:db8:c:ff::/64 via 2001:db8:c::2";
        bench.network.router.ip(routes).unwrap();
        let capture = bench.network.clients[0].run(|| {
            let socket = PacketSocket::open().unwrap();
            socket.bind(Interface::named("eth0").unwrap().index).unwrap();
            socket
        });
        Self { bench, alt, listeners, capture }
    }

    fn accepted(&self, host: u8, client: &Client) -> TcpStream {
        let (stream, peer) = soon(|| self.listeners[usize::from(host)].accept().ok());
        assert_eq!((peer.ip().to_canonical(), peer.port()), (client.address, client.port));
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream
    }

    /// In GUE, from the director to a backend.
    fn send(&self, packet: &[u8], to: u8, hops: &[u8]) {
        let hops: Vec<IpAddr> = hops.iter().map(|&hop| backend(hop).into()).collect();
        self.bench.send(&self.bench.network.directors[0], &gue(packet, 0, &hops), backend(to).into());
    }

    /// The next segment to this client that is as wanted, and the packet that it came in.
    fn answer(&self, client: &Client, wanted: impl Fn(&TcpHeader, usize) -> bool) -> Segment {
        let mut frame = [0; 2_000];
        soon(|| {
            let len = self.capture.receive(&mut frame).ok()?;
            let segment = Segment::read(&frame[14..len])?;
            let mine = segment.to == SocketAddr::new(client.address, client.port);
            (mine && wanted(&segment.tcp, segment.payload.len())).then_some(segment)
        })
    }

    /// Opens a connection by a SYN to one host and the completing segment, which may take another path.
    fn connect(&self, v4: bool, syn_to: u8, then: (u8, &[u8])) -> (Client, TcpStream) {
        let mut client = Client::new(v4);
        self.send(&client.segment(SYN, b""), syn_to, &[ALT]);
        let answer = self.answer(&client, |tcp, _| tcp.syn && tcp.ack);
        assert_eq!(answer.tcp.acknowledgment_number, client.sequence.wrapping_add(1));
        (client.sequence, client.expected) =
            (client.sequence.wrapping_add(1), answer.tcp.sequence_number.wrapping_add(1));
        self.send(&client.segment(ACK, b""), then.0, then.1);
        let stream = self.accepted(syn_to, &client);
        (client, stream)
    }

    fn passed_on(&self) -> u64 {
        self.bench.redirector.report().forwarded()
    }

    /// Data both ways over a connection on ALT, the client's by PROXY.
    fn exchange(&self, client: &mut Client, stream: &mut TcpStream) {
        let before = self.passed_on();
        self.send(&client.segment(ACK, b"question"), PROXY, &[ALT]);
        let mut octets = [0; 8];
        stream.read_exact(&mut octets).unwrap();
        assert_eq!(&octets, b"question");
        client.sequence = client.sequence.wrapping_add(8);
        stream.write_all(b"answer").unwrap();
        let answer = self.answer(client, |_, len| len > 0);
        assert_eq!(
            (answer.payload.as_slice(), answer.tcp.acknowledgment_number),
            (&b"answer"[..], client.sequence)
        );
        assert_eq!(self.passed_on(), before + 1);
    }
}

/// The client of one connection.
struct Client {
    address: IpAddr,
    port: u16,
    sequence: u32,
    /// What it has received so far.
    expected: u32,
}

impl Client {
    fn new(v4: bool) -> Self {
        let address = if v4 { CLIENT } else { CLIENT6 };
        Self { address: address.parse().unwrap(), port: 50_000, sequence: 0xffff_fffc, expected: 0 }
    }

    fn segment(&self, flags: u8, payload: &[u8]) -> Vec<u8> {
        let ip = match self.address {
            IpAddr::V4(client) => PacketBuilder::ipv4(client.octets(), VIP.octets(), 64),
            IpAddr::V6(client) => PacketBuilder::ipv6(client.octets(), VIP6.octets(), 64),
        };
        let mut tcp = ip.tcp(self.port, 80, self.sequence, 0xffff);
        if flags & SYN != 0 {
            let full = if self.address.is_ipv4() { 1_460 } else { 1_440 };
            tcp = tcp.syn().options(&[TcpOptionElement::MaximumSegmentSize(full)]).unwrap();
        }
        if flags & ACK != 0 {
            tcp = tcp.ack(self.expected);
        }
        let mut octets = Vec::new();
        tcp.write(&mut octets, payload).unwrap();
        octets
    }
}

/// A segment of the service.
struct Segment {
    to: SocketAddr,
    tcp: TcpHeader,
    payload: Vec<u8>,
    packet: Vec<u8>,
}

impl Segment {
    fn read(packet: &[u8]) -> Option<Self> {
        let headers = PacketHeaders::from_ip_slice(packet).ok()?;
        let Some(TransportHeader::Tcp(tcp)) = headers.transport else { return None };
        let (source, to): (IpAddr, IpAddr) = match headers.net? {
            NetHeaders::Ipv4(ip, _) => (ip.source.into(), ip.destination.into()),
            NetHeaders::Ipv6(ip, _) => (ip.source.into(), ip.destination.into()),
            NetHeaders::Arp(_) => return None,
        };
        let vip: [IpAddr; 2] = [VIP.into(), VIP6.into()];
        let payload = headers.payload.slice().to_vec();
        let to = SocketAddr::new(to, tcp.destination_port);
        vip.contains(&source).then(|| Self { to, tcp, payload, packet: packet.to_vec() })
    }
}

pub(crate) fn soon<T>(mut there: impl FnMut() -> Option<T>) -> T {
    for _ in 0..5_000 {
        if let Some(value) = there() {
            return value;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it does not come");
}

#[test]
fn a_syn_is_accepted_where_it_arrives() {
    if !crate::privileged() {
        return;
    }
    let stage = Stage::set();
    for v4 in [true, false] {
        let (_, stream) = stage.connect(v4, PROXY, (PROXY, &[ALT]));
        drop(stream);
    }
    assert_eq!(stage.passed_on(), 0);
}

/// PROXY forwards it to ALT and ALT to SELF, for every combination of inner and outer family.
#[test]
fn an_unknown_ack_is_forwarded_along_the_list_with_each_hosts_address() {
    if !crate::privileged() {
        return;
    }
    let stage = Stage::set();
    let last = stage.bench.listen(usize::from(SELF));
    let underlays: [[IpAddr; 3]; 2] = [
        [PROXY, ALT, SELF].map(|host| backend(host).into()),
        [PROXY, ALT, SELF].map(|host| backend_v6(host).into()),
    ];
    for ([proxy, alt, own], v4) in underlays.into_iter().flat_map(|hosts| [(hosts, true), (hosts, false)]) {
        let packet = Client::new(v4).segment(ACK, b"");
        stage.bench.send(&stage.bench.network.directors[0], &gue(&packet, 0, &[alt, own]), proxy);
        let (from, octets) = received(&last);
        assert_eq!(from, SocketAddr::new(alt, 40_000), "from ALT, by the director's port");
        assert_eq!(octets, gue(&packet, 2, &[alt, own]), "next_hop is 2");
    }
}

#[test]
fn data_of_a_connection_on_alt_is_answered_by_alts_kernel() {
    if !crate::privileged() {
        return;
    }
    let stage = Stage::set();
    for v4 in [true, false] {
        let (mut client, mut stream) = stage.connect(v4, ALT, (ALT, &[]));
        stage.exchange(&mut client, &mut stream);
    }
    let later = stage.alt.report().kept_on_later_hop["socket"];
    assert!(later >= 2, "{}", stage.alt.report());
}

/// ALT forgets a SYN that it answers with a cookie. The segment that completes the handshake arrives through
/// PROXY, as if the row had changed its owner meanwhile: ALT accepts it although there is one more hop, and
/// the connection works.
#[test]
fn a_cookie_that_comes_by_proxy_is_accepted_on_alt() {
    if !crate::privileged() {
        return;
    }
    let stage = Stage::set();
    stage.bench.network.backends[usize::from(ALT)].sysctl("ipv4/tcp_syncookies", "2").unwrap();
    for v4 in [true, false] {
        let (mut client, mut stream) = stage.connect(v4, ALT, (PROXY, &[ALT, SELF]));
        stage.exchange(&mut client, &mut stream);
    }
    assert_eq!(stage.alt.report().kept_on_later_hop["cookie"], 2, "{}", stage.alt.report());
}

/// A router's ICMP error about a connection on ALT arrives through PROXY. ALT's socket accepts it: the lost
/// data is sent again in smaller segments, and all later segments are as small.
#[test]
fn too_big_that_comes_by_proxy_makes_alts_segments_smaller() {
    if !crate::privileged() {
        return;
    }
    let stage = Stage::set();
    for v4 in [true, false] {
        let (mut client, mut stream) = stage.connect(v4, ALT, (ALT, &[]));
        let body: Vec<u8> = (0..40_000_u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        stream.write_all(&body).unwrap();
        let full = stage.answer(&client, |_, len| len > 0);
        assert_eq!(full.packet.len(), 1_500);
        stage.send(&too_big(&full.packet, 1_300), PROXY, &[ALT]);
        let mut got = Vec::new();
        while got.len() < body.len() {
            let expected = client.expected;
            let next = stage
                .answer(&client, |tcp, len| len > 0 && tcp.sequence_number == expected && len <= 1_300 - 40);
            assert!(next.packet.len() <= 1_300);
            client.expected = expected.wrapping_add(u32::try_from(next.payload.len()).unwrap());
            got.extend(next.payload);
            stage.send(&client.segment(ACK, b""), PROXY, &[ALT]);
        }
        assert!(got == body, "other octets");
        assert_eq!(path_mtu(&stage, &client), ["pmtu:1300"]);
    }
}

/// The path MTU in ALT's kernel for the client's socket.
fn path_mtu(stage: &Stage, client: &Client) -> Vec<String> {
    let of = format!("dport = :{}", client.port);
    let shown = stage.bench.network.backends[usize::from(ALT)].run(move || {
        let mut command = std::process::Command::new("ss");
        command.args(["-Htin", "state", "established", &of]).output().unwrap().stdout
    });
    let (shown, wanted) = (String::from_utf8(shown).unwrap(), client.address.to_string());
    let lines: Vec<&str> = shown.lines().collect();
    let details = lines.chunks(2).filter(|pair| pair[0].contains(&wanted)).filter_map(|pair| pair.get(1));
    let words = details.flat_map(|line| line.split_whitespace()).filter(|word| word.starts_with("pmtu:"));
    words.map(str::to_owned).collect()
}

/// ICMP "fragmentation needed", or ICMPv6 "packet too big", about a packet of the service; it quotes what it
/// must.
pub(crate) fn too_big(packet: &[u8], mtu: u16) -> Vec<u8> {
    let mut octets = Vec::new();
    if packet[0] >> 4 == 4 {
        let kind = Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::FragmentationNeeded {
            next_hop_mtu: mtu,
        });
        let ip =
            PacketBuilder::ipv4(ROUTER.parse::<std::net::Ipv4Addr>().unwrap().octets(), VIP.octets(), 64);
        ip.icmpv4(kind).write(&mut octets, &packet[..28]).unwrap();
    } else {
        let kind = Icmpv6Type::PacketTooBig { mtu: mtu.into() };
        let ip =
            PacketBuilder::ipv6(ROUTER6.parse::<std::net::Ipv6Addr>().unwrap().octets(), VIP6.octets(), 64);
        ip.icmpv6(kind).write(&mut octets, &packet[..48]).unwrap();
    }
    octets
}
