//! `dataplane redirect` alone: its verdict on a packet, seen from the hosts around it.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use dataplane::host::sys::datagram::{Buffers, raw_ip, send, udp_server, udp_servers};
use dataplane::host::sys::interface::Interface;
use dataplane::redirect::config::RedirectConfig;
use dataplane::redirect::run::Redirector;
use dataplane::testkit::lab::folder::Folder;
use dataplane::testkit::lab::netns::Namespace;
use dataplane::testkit::lab::program::Program;
use dataplane::testkit::lab::topology::{
    Network, Size, VIP, VIP6, backend, backend_v6, director, director_v6,
};
use etherparse::{Ipv4Header, PacketBuilder, PacketBuilderStep};

use crate::second_host::{soon, too_big};

const CLIENT: [u8; 4] = [198, 51, 100, 2];
const GUE: u16 = 19_523;

pub(crate) struct Bench {
    pub(crate) network: Network,
    pub(crate) redirector: Redirector,
}

/// A director that sends the test's packets, a redirector on backend 0, and hosts that only listen.
pub(crate) fn bench(extra: &str) -> Bench {
    let network =
        Network::new(Size { clients: 1, directors: 1, backends: 3, shared: false, underlay_mtu: 1_600 })
            .unwrap();
    let config = config(extra);
    let redirector = network.backends[0].run(move || Redirector::start(config)).unwrap();
    Bench { network, redirector }
}

pub(crate) fn config(extra: &str) -> RedirectConfig {
    let text = format!(
        "version: 1\ndirectors: [10.1.0.0/16, \"2001:db8:d::/48\"]\nbackends: [10.2.0.0/16, \"2001:db8:b::/48\"]\n\
         vips: [{VIP}, \"{VIP6}\"]\nmax_hops: 4\n{extra}"
    );
    RedirectConfig::parse("test", &text).unwrap()
}

pub(crate) fn gue(inner: &[u8], next_hop: u8, hops: &[IpAddr]) -> Vec<u8> {
    let protocol = if inner[0] >> 4 == 4 { 4 } else { 41 };
    let v6 = hops.iter().any(IpAddr::is_ipv6);
    let count = u8::try_from(hops.len()).unwrap();
    let words = if v6 { 4 * count } else { count };
    let mut octets = vec![1 + words, protocol, 0, 0, 0, u8::from(v6), next_hop, count];
    for hop in hops {
        match hop {
            IpAddr::V4(v4) => octets.extend(v4.octets()),
            IpAddr::V6(v6) => octets.extend(v6.octets()),
        }
    }
    octets.extend(inner);
    octets
}

/// From the client to the VIP.
fn to_vip(v4: bool) -> PacketBuilderStep<etherparse::IpHeaders> {
    let client6 = "2001:db8:c::2".parse::<std::net::Ipv6Addr>().unwrap().octets();
    if v4 {
        PacketBuilder::ipv4(CLIENT, VIP.octets(), 64)
    } else {
        PacketBuilder::ipv6(client6, VIP6.octets(), 64)
    }
}

fn tcp(v4: bool, syn: bool) -> Vec<u8> {
    let mut octets = Vec::new();
    let tcp = to_vip(v4).tcp(50_000, 80, 7, 1_000);
    if syn { tcp.syn() } else { tcp.ack(1) }.write(&mut octets, b"").unwrap();
    octets
}

fn udp(v4: bool) -> Vec<u8> {
    let mut octets = Vec::new();
    to_vip(v4).udp(50_000, 5_353).write(&mut octets, b"hello").unwrap();
    octets
}

impl Bench {
    pub(crate) fn send(&self, from: &Namespace, datagram: &[u8], to: IpAddr) {
        let (datagram, any) = (datagram.to_vec(), if to.is_ipv4() { "0.0.0.0:40000" } else { "[::]:40000" });
        from.run(move || {
            // A program that another test has just started may hold the previous sender's socket until it
            // runs.
            let socket = soon(|| UdpSocket::bind(any).ok());
            socket.send_to(&datagram, (to, GUE)).unwrap();
        });
    }

    /// From the director: an outer header with its address, with these two bits in its traffic class.
    fn send_marked(&self, datagram: &[u8], from: IpAddr, to: IpAddr, ecn: u8) {
        let ip = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => PacketBuilder::ipv4(from.octets(), to.octets(), 64),
            (IpAddr::V6(from), IpAddr::V6(to)) => PacketBuilder::ipv6(from.octets(), to.octets(), 64),
            _ => unreachable!("one family"),
        };
        let mut packet = Vec::new();
        ip.udp(40_000, GUE).write(&mut packet, datagram).unwrap();
        let packet = with_ecn(&packet, ecn);
        self.network.directors[0].run(move || {
            let socket = raw_ip(to.is_ipv4()).unwrap();
            let one = std::iter::once((packet.as_slice(), SocketAddr::new(to, 0)));
            send(socket.as_fd(), one, |error| panic!("{error}"));
        });
    }

    /// A plain socket would not take UDP checksum 0 over IPv6.
    pub(crate) fn listen(&self, backend: usize) -> UdpSocket {
        let any = SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), GUE);
        let open = move || udp_server(any, Duration::from_secs(5)).unwrap();
        self.network.backends[backend].run(open).into()
    }

    /// Waits until the redirector has counted `packets` packets under `path` of its report.
    pub(crate) fn counted(&self, section: &str, reason: &str, packets: u64) {
        for _ in 0..1_000 {
            let report = serde_json::to_value(self.redirector.report()).unwrap();
            if report[section][reason].as_u64() == Some(packets) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("{section} {reason} is not {packets}:\n{}", self.redirector.report());
    }

    /// The TCP sockets of backend 0 to port 80, by the kernel's number for their state (3: SYN_RECV).
    fn states(&self) -> Vec<String> {
        self.network.backends[0].run(|| {
            let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
            let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            fields.filter(|row| row[1].ends_with(":0050")).map(|row| row[3].to_owned()).collect()
        })
    }
}

pub(crate) fn received(socket: &UdpSocket) -> (SocketAddr, Vec<u8>) {
    let mut octets = vec![0; 2_000];
    let (len, from) = socket.recv_from(&mut octets).unwrap();
    octets.truncate(len);
    (SocketAddr::new(from.ip().to_canonical(), from.port()), octets)
}

#[test]
fn a_syn_stays_and_reaches_the_listener() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let listener = bench.network.backends[0].run(|| std::net::TcpListener::bind("0.0.0.0:80").unwrap());
    let hops = [backend(1).into()];
    bench.send(&bench.network.directors[0], &gue(&tcp(true, true), 0, &hops), backend(0).into());
    bench.counted("kept", "syn", 1);
    // The answer went to a client that knows nothing of it; only that it was given counts here.
    assert!(bench.states().contains(&"03".to_owned()), "{:?}", bench.states());
    drop(listener);
}

/// Two redirectors would each get a part of the packets, and neither would know when the last packet took a
/// second hop.
#[test]
fn its_workers_share_the_port_and_no_other_program_does() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("workers: 2\n");
    let host = &bench.network.backends[0];
    for listen in ["[::]:19523", "0.0.0.0:19523", "10.2.0.2:19523"] {
        let second = config(&format!("workers: 2\nlisten: \"{listen}\"\n"));
        let refused = host.run(move || Redirector::start(second)).map(drop).unwrap_err();
        assert_eq!(refused.to_string(), format!("UDP {listen}, which no other program may use"));
    }
    let other = SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), 19_524);
    let servers = host.run(move || udp_servers(other, Duration::from_secs(5), 2)).unwrap();
    let client = || UdpSocket::bind("0.0.0.0:0").unwrap();
    bench.network.directors[0].run(move || {
        (0..64).for_each(|_| assert_eq!(client().send_to(b"x", (backend(0), 19_524)).unwrap(), 1));
    });
    let shares = servers.iter().map(|server| Buffers::new(0, 16).receive(server.as_fd()).unwrap());
    assert!(shares.into_iter().all(|share| share > 0));
}

/// The kernel answers with a cookie and forgets: no socket, but the ACK belongs to no other host. On the
/// owner, and on the second host after the row's owner has changed.
#[test]
fn an_ack_that_completes_a_cookie_stays_with_who_gave_it() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    bench.network.backends[0].sysctl("ipv4/tcp_syncookies", "2").unwrap();
    let listener = bench.network.backends[0].run(|| std::net::TcpListener::bind("0.0.0.0:80").unwrap());
    let hops: [IpAddr; 2] = [backend(0).into(), backend(1).into()];
    bench.send(&bench.network.directors[0], &gue(&tcp(true, true), 0, &hops[1..]), backend(0).into());
    bench.counted("kept", "syn", 1);
    assert_eq!(bench.states(), ["0A"], "only the listener");
    let mut ack = tcp(true, false);
    ack[24..28].copy_from_slice(&8_u32.to_be_bytes());
    bench.send(&bench.network.directors[0], &gue(&ack, 0, &hops[1..]), backend(0).into());
    bench.counted("kept", "cookie", 1);
    bench.send(&bench.network.backends[2], &gue(&ack, 1, &hops), backend(0).into());
    bench.counted("kept_on_later_hop", "cookie", 1);
    ack[24..28].copy_from_slice(&7_u32.to_be_bytes());
    bench.send(&bench.network.directors[0], &gue(&ack, 0, &hops[1..]), backend(0).into());
    for _ in 0..1_000 {
        if bench.redirector.report().forwarded() == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(bench.redirector.report().forwarded(), 1, "no number of that SYN");
    drop(listener);
}

#[test]
fn an_unknown_packet_is_forwarded_with_every_field_right() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let hops: [IpAddr; 2] = [backend(1).into(), backend(2).into()];
    let (alt, other) = (bench.listen(1), bench.listen(2));
    let mut sent = Vec::new();
    PacketBuilder::ipv4(VIP.octets(), CLIENT, 64).tcp(80, 50_000, 1, 1).write(&mut sent, &[0; 60]).unwrap();
    for inner in [tcp(true, false), tcp(false, false), too_big(&sent, 1_300)] {
        let sent = gue(&inner, 0, &hops);
        bench.send(&bench.network.directors[0], &sent, backend(0).into());
        let (from, got) = received(&alt);
        assert_eq!(from, SocketAddr::from((backend(0), 40_000)), "our address, the director's port");
        assert_eq!(got, gue(&inner, 1, &hops));
        // As if ALT had passed it on to us: to the second address of the list.
        bench.send(&bench.network.backends[1], &got, backend(0).into());
        assert_eq!(received(&other).1, gue(&inner, 2, &hops));
    }
    let report = bench.redirector.report();
    assert_eq!((report.forwarded(), report.forwarded_to[&backend(1).into()], report.send_failed), (6, 3, 0));
}

#[test]
fn an_ipv6_underlay_works_alike() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let hops: [IpAddr; 1] = [backend_v6(1).into()];
    let alt = bench.listen(1);
    for inner in [tcp(true, false), tcp(false, false)] {
        let sent = gue(&inner, 0, &hops);
        bench.send(&bench.network.directors[0], &sent, backend_v6(0).into());
        let (from, got) = received(&alt);
        assert_eq!((from.ip(), from.port()), (backend_v6(0).into(), 40_000));
        assert_eq!(got, gue(&inner, 1, &hops));
    }
}

#[test]
fn packets_are_accepted_at_the_end_of_the_list_and_at_an_own_address() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let from = &bench.network.directors[0];
    bench.send(from, &gue(&tcp(true, false), 0, &[]), backend(0).into());
    bench.counted("kept", "last_hop", 1);
    bench.send(from, &gue(&tcp(true, false), 0, &[backend(0).into()]), backend(0).into());
    bench.counted("kept", "own_hop", 1);
    assert_eq!(bench.redirector.report().forwarded(), 0);
}

/// A director that looks up twice may list a host twice in a row; the one behind may know the connection.
#[test]
fn ones_own_address_hides_no_hop_behind_it() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let hops: [IpAddr; 3] = [backend(0).into(), backend(0).into(), backend(1).into()];
    let alt = bench.listen(1);
    let inner = tcp(true, false);
    bench.send(&bench.network.directors[0], &gue(&inner, 0, &hops), backend(0).into());
    assert_eq!(received(&alt).1, gue(&inner, 3, &hops));
}

#[test]
fn unknown_senders_and_invalid_lists_are_rejected() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let hops: [IpAddr; 1] = [backend(1).into()];
    let (client, director_ns) = (&bench.network.clients[0], &bench.network.directors[0]);
    bench.send(client, &gue(&tcp(true, false), 0, &hops), backend(0).into());
    bench.counted("refused", "source", 1);
    let long: Vec<IpAddr> = (0..30).map(|n| backend(1 + n % 2).into()).collect();
    bench.send(director_ns, &gue(&tcp(true, false), 0, &long), backend(0).into());
    bench.counted("refused", "hop_count", 1);
    bench.send(director_ns, &gue(&tcp(true, false), 1, &[hops[0], hops[0]]), backend(0).into());
    bench.counted("refused", "source", 2);
    bench.send(director_ns, &gue(&tcp(true, false), 0, &[director(0).into()]), backend(0).into());
    bench.counted("refused", "next_hop", 1);
    // An address of this host. The redirector would notice that if it looked up every hop.
    bench.send(director_ns, &gue(&tcp(true, false), 0, &[VIP.into()]), backend(0).into());
    bench.counted("refused", "next_hop", 2);
    assert_eq!(bench.redirector.report().forwarded(), 0);
}

#[test]
fn with_the_second_chance_off_everything_stays() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("second_chance: off\n");
    let hops: [IpAddr; 1] = [backend(1).into()];
    bench.send(&bench.network.directors[0], &gue(&tcp(true, false), 0, &hops), backend(0).into());
    bench.counted("kept", "off", 1);
}

#[test]
fn datagrams_follow_their_sockets_where_asked_to() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("udp: socket\n");
    let hops: [IpAddr; 1] = [backend(1).into()];
    let alt = bench.listen(1);
    let sent = gue(&udp(true), 0, &hops);
    bench.send(&bench.network.directors[0], &sent, backend(0).into());
    assert_eq!(received(&alt).1, gue(&udp(true), 1, &hops));
    let service = bench.network.backends[0].run(|| UdpSocket::bind("0.0.0.0:5353").unwrap());
    service.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    bench.send(&bench.network.directors[0], &sent, backend(0).into());
    let (from, octets) = received(&service);
    assert_eq!((from, octets.as_slice()), (SocketAddr::from((CLIENT, 50_000)), b"hello".as_slice()));
    bench.counted("kept", "socket", 1);
}

/// The packet with these two bits and a new checksum.
fn with_ecn(packet: &[u8], ecn: u8) -> Vec<u8> {
    let mut octets = packet.to_vec();
    if octets[0] >> 4 == 6 {
        octets[1] = octets[1] & 0xcf | ecn << 4;
        return octets;
    }
    let (mut header, payload) = Ipv4Header::from_slice(packet).unwrap();
    header.ecn = ecn.try_into().unwrap();
    header.header_checksum = header.calc_header_checksum();
    [header.to_bytes().as_slice(), payload].concat()
}

/// A congestion mark of a router on the outer header reaches the receiver, which reports it to the sender: on
/// an accepted packet, on a forwarded one, and on its new outer header. A packet that cannot carry the mark
/// is dropped.
#[test]
fn congestion_on_the_envelope_is_told_to_the_packet_inside() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let server = |backend: usize, port: u16| {
        let any = SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), port);
        bench.network.backends[backend].run(move || udp_server(any, Duration::from_secs(5))).unwrap()
    };
    let (service, alt) = (server(0, 5_353), server(1, GUE));
    let mut buffers = Buffers::new(0, 2_000);
    let mut next = |socket: &OwnedFd| {
        assert_eq!(buffers.receive(socket.as_fd()).unwrap(), 1);
        (buffers.traffic_class(0) & 3, buffers.message(0).to_vec())
    };
    let underlays: [[IpAddr; 3]; 2] = [
        [director(0).into(), backend(0).into(), backend(1).into()],
        [director_v6(0).into(), backend_v6(0).into(), backend_v6(1).into()],
    ];
    let mut dropped = 0;
    for ([from, to, hop], v4) in underlays.into_iter().flat_map(|under| [(under, true), (under, false)]) {
        let send = |inner: &[u8], ecn| bench.send_marked(&gue(inner, 0, &[hop]), from, to, ecn);
        let (datagram, segment) = (udp(v4), tcp(v4, false));
        for (outside, inside, expected) in [(3, 2, 3), (3, 1, 3), (1, 2, 1), (2, 1, 1), (2, 0, 0), (0, 3, 3)]
        {
            send(&with_ecn(&datagram, inside), outside);
            assert_eq!(next(&service), (expected, b"hello".to_vec()), "kept, {outside} over {inside}");
            send(&with_ecn(&segment, inside), outside);
            let passed_on = gue(&with_ecn(&segment, expected), 1, &[hop]);
            assert_eq!(next(&alt), (expected, passed_on), "passed on, {outside} over {inside}");
        }
        for inner in [datagram, segment] {
            send(&inner, 3);
            dropped += 1;
            bench.counted("refused", "congestion", dropped);
        }
    }
}

/// A packet that a redirector's kernel program decapsulates looks to a director like a client's packet.
#[test]
fn on_a_directors_host_the_socket_takes_all_packets() {
    if !crate::privileged() {
        return;
    }
    let bench = bench("");
    let folder = Folder::new().unwrap();
    let config =
        "version: 1\ndirectors: [10.1.0.2]\nbackends: [10.2.0.0/16]\nvips: [203.0.113.10]\ncontrol: r.sock\n";
    let path = folder.write("r.yaml", config).unwrap().display().to_string();
    let host = &bench.network.backends[2];
    // The lock that a director holds while it runs.
    let name = host.run(|| {
        let index = Interface::named("eth0").unwrap().index;
        let namespace = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        format!("frames-{namespace}-{index}.lock")
    });
    let director = fs::File::create(folder.file(&name)).unwrap();
    director.try_lock().unwrap();
    let start = |mode: &str, log: &str| {
        let arguments = ["redirect", "--mode", mode, "--interface", "eth0", "--config", &path];
        Program::start(host, env!("CARGO_BIN_EXE_dataplane").into(), &arguments, folder.file(log)).unwrap()
    };
    let refused = start("xdp", "xdp").wait_for("listening").unwrap_err().to_string();
    assert!(refused.contains("eth0: another director"), "{refused}");
    let mut redirector = start("auto", "auto");
    redirector.wait_for("the socket takes all packets: eth0: another director").unwrap();
    redirector.wait_for("listening").unwrap();
    let mut status = std::process::Command::new(env!("CARGO_BIN_EXE_dataplane"));
    let status = status.args(["status", "--json", "--config", &path]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert!(report["kept"]["syn"] == 0 && report["fast_path"].is_null(), "{report}");
    drop(director);
}

/// Its buffer is full and it does not run: `status` reports what the kernel counts (UdpRcvbufErrors).
#[test]
fn datagrams_that_the_socket_lost_are_counted() {
    if !crate::privileged() {
        return;
    }
    let network =
        Network::new(Size { clients: 1, directors: 1, backends: 1, shared: false, underlay_mtu: 1_600 })
            .unwrap();
    let folder = Folder::new().unwrap();
    let config =
        "version: 1\ndirectors: [10.1.0.2]\nbackends: [10.2.0.0/16]\nvips: [203.0.113.10]\ncontrol: r.sock\n";
    let path = folder.write("r.yaml", config).unwrap().display().to_string();
    let host = &network.backends[0];
    let binary = env!("CARGO_BIN_EXE_dataplane");
    let arguments = ["redirect", "--config", &path];
    let mut redirector = Program::start(host, binary.into(), &arguments, folder.file("log")).unwrap();
    redirector.wait_for("listening").unwrap();
    let errors = || {
        host.run(|| {
            let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
            let mut lines = text.lines().filter(|line| line.starts_with("Udp:")).map(str::split_whitespace);
            let (mut names, values) = (lines.next().unwrap(), lines.next().unwrap());
            let at = names.position(|name| name == "RcvbufErrors").unwrap();
            values.into_iter().nth(at).unwrap().parse::<u64>().unwrap()
        })
    };
    let pid = redirector.pid();
    let signal = |name: &str| host.shell(&format!("kill -{name} {pid}")).unwrap();
    let datagram = gue(&udp(true), 0, &[]);
    signal("STOP");
    network.directors[0].run(move || {
        let socket = UdpSocket::bind("10.1.0.2:40000").unwrap();
        // Bounded; the buffer is at most 16 MiB, and each datagram takes 768 octets or more of it.
        for _ in 0..30_000 {
            socket.send_to(&datagram, (backend(0), GUE)).unwrap();
        }
    });
    let lost = errors();
    signal("CONT");
    assert!(lost > 0, "30,000 datagrams are more than the buffer holds");
    let status = |json: &[&str]| {
        let mut status = std::process::Command::new(binary);
        let output = status.args(["status", "--config", &path]).args(json).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let report: serde_json::Value = serde_json::from_str(&status(&["--json"])).unwrap();
    assert_eq!((report["lost"].as_u64(), errors()), (Some(lost), lost), "{report}");
    let text = status(&[]);
    assert!(text.contains(&format!("lost before they were read: {lost}\n")), "{text}");
}
