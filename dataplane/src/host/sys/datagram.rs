//! Datagram sockets that receive and send messages in batches: the redirector's UDP socket, raw IP sockets
//! that take the IP header from the caller (raw(7), `IP_HDRINCL`), and netlink.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;
use std::{iter, ptr};

use super::address::SocketAddress;
use super::sendmmsg::send_all;
use super::{Zeroable, check, option, set_option, socklen};

/// Largest number of messages of one call.
pub const BATCH: usize = 64;

/// Length of the longest socket address in use, `sockaddr_in6`, in octets.
const NAME: usize = 28;
/// Room for the control messages of a datagram, in octets: a traffic class (24, with its header and padding),
/// and the interface and destination address (32 or 40).
const CONTROL: usize = 64;
/// The index of `lo`, in every network namespace (linux/net/loopback.c).
const LOOPBACK: i32 = 1;

fn open(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes and returns integers only.
    let fd = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the kernel has just opened `fd` for this call, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bind(fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let (name, len) = encode(address);
    // SAFETY: `name` outlives the call and has at least `len` octets.
    check(unsafe { libc::bind(fd.as_raw_fd(), name.as_ptr().cast(), len) }).map(drop)
}

/// Opens a UDP socket for GUE on `address`, which no other socket may have. Bound to `[::]`, it receives IPv4
/// too.
pub fn udp_server(address: SocketAddr, timeout: Duration) -> io::Result<OwnedFd> {
    let socket = unbound_server(address, timeout)?;
    bind(socket.as_fd(), address)?;
    Ok(socket)
}

/// Opens `count` sockets that share `address` and its packets. The first binds the address without sharing:
/// another program that shares it in the same way would not be noticed, and would receive a part of the
/// packets.
pub fn udp_servers(address: SocketAddr, timeout: Duration, count: usize) -> io::Result<Vec<OwnedFd>> {
    let share = |socket: &OwnedFd| set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, &1_i32);
    let first = udp_server(address, timeout)?;
    share(&first)?;
    let others = (1..count).map(|_| {
        let socket = unbound_server(address, timeout)?;
        share(&socket)?;
        bind(socket.as_fd(), address)?;
        Ok(socket)
    });
    iter::once(Ok(first)).chain(others).collect()
}

fn unbound_server(address: SocketAddr, timeout: Duration) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = open(family, libc::SOCK_DGRAM, 0)?;
    let fd = socket.as_fd();
    // For congestion marks of the outer header. A socket for both families needs both options.
    set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, &1_i32)?;
    // To recognise packets that arrive on the loopback interface. The option of IPv6 covers both families.
    if address.is_ipv4() {
        set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, &1_i32)?;
    } else {
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &1_i32)?;
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, &1_i32)?;
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &i32::from(!address.ip().is_unspecified()))?;
        // The outer UDP checksum is 0, which IPv6 accepts for tunnels only, and only on request (RFC 6935).
        set_option(fd, libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, &1_i32)?;
    }
    // For a burst of a few thousand packets. The kernel silently sets less where `net.core.rmem_max` is
    // lower.
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &(8_i32 << 20))?;
    let seconds = libc::time_t::try_from(timeout.as_secs()).map_err(io::Error::other)?;
    let microseconds = libc::suseconds_t::from(timeout.subsec_micros());
    let timeout = libc::timeval { tv_sec: seconds, tv_usec: microseconds };
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)?;
    Ok(socket)
}

/// Number of datagrams that the kernel dropped since the socket was opened, because its buffer was full or
/// their checksum was wrong. The counter wraps.
pub fn drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let counters: [u32; MEMINFO] = option(socket, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(counters[MEMINFO_DROPS])
}

/// `SK_MEMINFO_VARS` and `SK_MEMINFO_DROPS` (linux/sock_diag.h).
pub(super) const MEMINFO: usize = 9;
const MEMINFO_DROPS: usize = 8;

/// From `linux/udp.h`; libc has no name for it on every target.
const UDP_NO_CHECK6_RX: libc::c_int = 102;

/// Opens a raw socket of a family that sends IP packets with the caller's header. Needs CAP_NET_RAW.
pub fn raw_ip(v4: bool) -> io::Result<OwnedFd> {
    let (family, level, option) = if v4 {
        (libc::AF_INET, libc::IPPROTO_IP, libc::IP_HDRINCL)
    } else {
        (libc::AF_INET6, libc::IPPROTO_IPV6, libc::IPV6_HDRINCL)
    };
    let socket = open(family, libc::SOCK_RAW, libc::IPPROTO_RAW)?;
    set_option(socket.as_fd(), level, option, &1_i32)?;
    Ok(socket)
}

/// Sets the mark of packets that this socket sends (`SO_MARK`). Needs CAP_NET_ADMIN, or CAP_NET_RAW from
/// Linux 5.17.
pub fn mark(socket: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_MARK, &mark)
}

/// Restricts this socket to the loopback device.
pub fn bind_to_loopback(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"lo\0")
}

/// Opens a netlink socket to the kernel.
pub fn netlink(protocol: libc::c_int) -> io::Result<OwnedFd> {
    open(libc::AF_NETLINK, libc::SOCK_RAW, protocol)
}

/// Buffers for a batch of received messages, each with free octets in front, in which a header can be
/// written.
#[derive(Debug)]
pub struct Buffers {
    octets: Box<[u8]>,
    headroom: usize,
    stride: usize,
    lens: [usize; BATCH],
    names: [[u8; NAME]; BATCH],
    controls: [[u8; CONTROL]; BATCH],
    control_lens: [usize; BATCH],
}

impl Buffers {
    /// Buffers for messages of at most `size` octets; longer messages are truncated.
    pub fn new(headroom: usize, size: usize) -> Self {
        let stride = headroom + size;
        Self {
            octets: vec![0; stride * BATCH].into_boxed_slice(),
            headroom,
            stride,
            lens: [0; BATCH],
            names: [[0; NAME]; BATCH],
            controls: [[0; CONTROL]; BATCH],
            control_lens: [0; BATCH],
        }
    }

    /// Waits for a message, at most for the socket's timeout, and receives all that are waiting.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.receive_with(socket, libc::MSG_WAITFORONE)
    }

    /// Receives the messages that are waiting.
    pub fn receive_ready(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.receive_with(socket, libc::MSG_DONTWAIT)
    }

    fn receive_with(&mut self, socket: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<usize> {
        let mut vectors = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; BATCH];
        let mut messages = [libc::mmsghdr::zeroed(); BATCH];
        let names = self.names.iter_mut().zip(&mut self.controls);
        let rooms = self.octets.chunks_exact_mut(self.stride).zip(names);
        for ((room, (name, control)), (vector, message)) in rooms.zip(vectors.iter_mut().zip(&mut messages)) {
            let room = &mut room[self.headroom..];
            *vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            message.msg_hdr.msg_iov = &raw mut *vector;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_name = name.as_mut_ptr().cast();
            message.msg_hdr.msg_namelen = socklen::<[u8; NAME]>();
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = control.len();
        }
        // SAFETY: each of the BATCH messages points to a vector, a name and a control buffer of its own,
        // which outlive the call and whose lengths it states. Each vector points to its own part of `octets`
        // and states its length. No timeout is given.
        let received = check(unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                libc::c_uint::try_from(BATCH).expect("invariant: a batch has 64 messages"),
                flags as _,
                ptr::null_mut(),
            )
        })?;
        let received =
            usize::try_from(received).expect("invariant: `check` accepts no negative number").min(BATCH);
        let lens = self.lens.iter_mut().zip(&mut self.control_lens);
        for ((len, control), message) in lens.zip(&messages[..received]) {
            *len = (message.msg_len as usize).min(self.stride - self.headroom);
            *control = message.msg_hdr.msg_controllen.min(CONTROL);
        }
        Ok(received)
    }

    /// The message at `index` of the last batch.
    pub fn message(&self, index: usize) -> &[u8] {
        &self.room(index)[self.headroom..][..self.lens[index]]
    }

    /// The sender of the message at `index`; the unspecified address if it has no IP address.
    pub fn sender(&self, index: usize) -> SocketAddr {
        decode(&self.names[index])
    }

    /// The traffic class of the IP header of the message at `index`; 0 if the socket does not report it.
    pub fn traffic_class(&self, index: usize) -> u8 {
        traffic_class(&self.controls[index][..self.control_lens[index]])
    }

    /// Whether the message at `index` arrived on the loopback interface; false if the socket does not report
    /// it.
    pub fn from_loopback(&self, index: usize) -> bool {
        from_loopback(&self.controls[index][..self.control_lens[index]])
    }

    /// The message at `index` with its headroom.
    pub fn message_with_headroom_mut(&mut self, index: usize) -> &mut [u8] {
        let end = self.headroom + self.lens[index];
        &mut self.octets[index * self.stride..][..end]
    }

    /// The message at `index` with its headroom, shared.
    pub fn message_with_headroom(&self, index: usize) -> &[u8] {
        &self.room(index)[..self.headroom + self.lens[index]]
    }

    fn room(&self, index: usize) -> &[u8] {
        &self.octets[index * self.stride..][..self.stride]
    }
}

/// Sends messages in order, at most [`BATCH`]. `failed` is called once for each message that the kernel
/// refuses.
pub fn send<'a>(
    socket: BorrowedFd<'_>,
    outgoing: impl Iterator<Item = (&'a [u8], SocketAddr)>,
    failed: impl FnMut(io::Error),
) {
    let encoded = outgoing.map(|(octets, to)| {
        let (name, len) = encode(to);
        (octets, SocketAddress::new(name, len))
    });
    send_all(socket, encoded, 0, failed);
}

/// The octets of `sockaddr_in` or `sockaddr_in6`.
fn encode(address: SocketAddr) -> ([u8; NAME], libc::socklen_t) {
    let mut name = [0; NAME];
    name[2..4].copy_from_slice(&address.port().to_be_bytes());
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 10;
    let (family, len) = match address.ip() {
        IpAddr::V4(v4) => {
            name[4..8].copy_from_slice(&v4.octets());
            (AF_INET, 16)
        }
        IpAddr::V6(v6) => {
            name[8..24].copy_from_slice(&v6.octets());
            (AF_INET6, 28)
        }
    };
    name[..2].copy_from_slice(&libc::sa_family_t::to_ne_bytes(family));
    (name, len)
}

/// Level, type and value of each control message (cmsg(3)). Each has a `cmsghdr`, which states the length of
/// both, and a value. Ends at the first truncated one.
fn controls(mut control: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    const WORD: usize = size_of::<libc::size_t>();
    std::iter::from_fn(move || {
        let number = |offset: usize| Some(i32::from_ne_bytes(*control.get(offset..)?.first_chunk()?));
        let len = usize::from_ne_bytes(*control.first_chunk()?);
        let (level, kind) = (number(WORD)?, number(WORD + 4)?);
        let value = control.get(size_of::<libc::cmsghdr>()..len)?;
        control = control.get(len.next_multiple_of(WORD)..).unwrap_or_default();
        Some((level, kind, value))
    })
}

fn traffic_class(control: &[u8]) -> u8 {
    let class = |(level, kind, value): (i32, i32, &[u8])| match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_TOS) => value.first().copied(),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            value.first_chunk().map(|class| i32::from_ne_bytes(*class).to_le_bytes()[0])
        }
        _ => None,
    };
    controls(control).find_map(class).unwrap_or(0)
}

/// `in_pktinfo` starts with the index of the interface; `in6_pktinfo` has it after an address.
fn from_loopback(control: &[u8]) -> bool {
    let interface = |(level, kind, value): (i32, i32, &[u8])| {
        let offset = match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => 0,
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => 16,
            _ => return None,
        };
        value.get(offset..)?.first_chunk().map(|index| i32::from_ne_bytes(*index))
    };
    controls(control).find_map(interface) == Some(LOOPBACK)
}

/// A mapped IPv4 address, as a dual-stack socket reports it, counts as IPv4.
fn decode(name: &[u8; NAME]) -> SocketAddr {
    let port = u16::from_be_bytes([name[2], name[3]]);
    let ip = match i32::from(u16::from_ne_bytes([name[0], name[1]])) {
        libc::AF_INET => Ipv4Addr::new(name[4], name[5], name[6], name[7]).into(),
        libc::AF_INET6 => {
            let mut octets = [0; 16];
            octets.copy_from_slice(&name[8..24]);
            Ipv6Addr::from(octets).to_canonical()
        }
        _ => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(ip, port)
}

#[cfg(test)]
mod tests {
    use super::super::option;
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn addresses_survive_the_kernels_form() {
        for text in ["192.0.2.1:7", "[2001:db8::1]:65535", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(decode(&encode(address).0), address);
        }
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:7".parse().unwrap();
        assert_eq!(decode(&encode(mapped).0).to_string(), "192.0.2.1:7");
    }

    #[test]
    fn a_batch_keeps_order_lengths_and_senders() {
        let server = udp_server("127.0.0.1:0".parse().unwrap(), Duration::from_secs(5)).unwrap();
        let server = UdpSocket::from(server);
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sent: Vec<Vec<u8>> = (0..100_u8).map(|n| vec![n; usize::from(n)]).collect();
        let to = server.local_addr().unwrap();
        for part in sent.chunks(BATCH) {
            send(client.as_fd(), part.iter().map(|octets| (octets.as_slice(), to)), |error| {
                panic!("{error}")
            });
        }
        let mut buffers = Buffers::new(10, 64);
        let mut got = Vec::new();
        while got.len() < sent.len() {
            let count = buffers.receive(server.as_fd()).unwrap();
            for index in 0..count {
                assert_eq!(buffers.sender(index), client.local_addr().unwrap());
                assert_eq!(&buffers.message_with_headroom(index)[10..], buffers.message(index));
                got.push(buffers.message(index).to_vec());
            }
        }
        // A message that is too long is truncated and does not overwrite the next buffer.
        let expected: Vec<&[u8]> = sent.iter().map(|octets| &octets[..octets.len().min(64)]).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn the_traffic_class_is_reported_for_both_families() {
        for (bound, to) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::]:0", "::1"), ("[::1]:0", "::1")]
        {
            let server = udp_server(bound.parse().unwrap(), Duration::from_secs(5)).unwrap();
            let port = UdpSocket::from(server.try_clone().unwrap()).local_addr().unwrap().port();
            let to = SocketAddr::new(to.parse().unwrap(), port);
            let client = UdpSocket::bind((to.ip(), 0)).unwrap();
            let (level, name) = if to.is_ipv4() {
                (libc::IPPROTO_IP, libc::IP_TOS)
            } else {
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
            };
            let mut buffers = Buffers::new(0, 16);
            for class in [0x00_u8, 0x01, 0x02, 0xb8, 0xff] {
                set_option(client.as_fd(), level, name, &i32::from(class)).unwrap();
                client.send_to(b"x", to).unwrap();
                assert_eq!(buffers.receive(server.as_fd()).unwrap(), 1);
                assert_eq!(buffers.traffic_class(0), class, "{bound} {to}");
                assert!(buffers.from_loopback(0), "{bound} {to}");
            }
        }
    }

    /// What `fq` looks at: a time to leave at (SO_TXTIME), a rate, a priority. The first is read as clock and
    /// flags.
    fn delays(socket: BorrowedFd<'_>) -> io::Result<[u64; 3]> {
        let get = |name| option::<u64>(socket, libc::SOL_SOCKET, name);
        let priority = option::<u32>(socket, libc::SOL_SOCKET, libc::SO_PRIORITY)?;
        Ok([get(libc::SO_TXTIME)?, get(libc::SO_MAX_PACING_RATE)?, priority.into()])
    }

    /// GLB's redirector had its packets delayed by an `fq`, because they carried a transmit time. Not every
    /// kernel has `fq`, so this test checks every socket option that could set one; [`send`] sets no transmit
    /// time on messages.
    #[test]
    fn no_socket_option_can_delay_forwarded_packets() {
        let sockets = match [raw_ip(true), raw_ip(false)] {
            [Ok(v4), Ok(v6)] => [v4, v6],
            refused => {
                assert!(
                    std::env::var_os("CI").is_none_or(|ci| ci != "true"),
                    "CI must run this: {refused:?}"
                );
                return println!("SKIPPED: {refused:?}");
            }
        };
        for socket in &sockets {
            assert_eq!(delays(socket.as_fd()).unwrap(), [0, u64::MAX, 0]);
        }
        // Each of these options shows its value if it is set.
        let held = sockets[0].as_fd();
        // Any other clock needs CAP_NET_ADMIN.
        let clock_monotonic = [1_u32, 0];
        set_option(held, libc::SOL_SOCKET, libc::SO_TXTIME, &clock_monotonic).unwrap();
        set_option(held, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &1_000_u64).unwrap();
        set_option(held, libc::SOL_SOCKET, libc::SO_PRIORITY, &1_i32).unwrap();
        let [time, rate, priority] = delays(held).unwrap();
        assert!(time != 0 && rate == 1_000 && priority == 1, "{time} {rate} {priority}");
    }

    #[test]
    fn a_marked_socket_has_its_mark() {
        let socket = match raw_ip(true) {
            Ok(socket) => socket,
            Err(refused) => {
                assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "CI must run this: {refused}");
                return println!("SKIPPED: {refused}");
            }
        };
        assert_eq!(option::<u32>(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MARK).unwrap(), 0);
        mark(socket.as_fd(), 0xffff_0054).unwrap();
        assert_eq!(option::<u32>(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MARK).unwrap(), 0xffff_0054);
    }

    #[test]
    fn other_control_messages_are_no_traffic_class() {
        for len in 0..CONTROL {
            for octets in [[0; CONTROL], [0xff; CONTROL], [1; CONTROL], [16; CONTROL]] {
                assert_eq!((traffic_class(&octets[..len]), from_loopback(&octets[..len])), (0, false));
            }
        }
    }

    #[test]
    fn control_messages_are_found_behind_each_other() {
        let one = |level: i32, kind: i32, value: &[u8]| {
            let len = size_of::<libc::cmsghdr>() + value.len();
            let mut octets =
                [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), value].concat();
            octets.resize(octets.len().next_multiple_of(size_of::<usize>()), 0xa5);
            octets
        };
        let class = one(libc::IPPROTO_IP, libc::IP_TOS, &[0xb8]);
        for (index, expected) in [(1_i32, true), (2, false), (257, false)] {
            let address = [[0; 16].as_slice(), &index.to_ne_bytes()].concat();
            let place = one(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &address);
            for control in [[&class[..], &place].concat(), [&place[..], &class].concat()] {
                assert_eq!((traffic_class(&control), from_loopback(&control)), (0xb8, expected), "{index}");
                for len in 0..control.len() {
                    let _ = (traffic_class(&control[..len]), from_loopback(&control[..len]));
                }
            }
            let place =
                one(libc::IPPROTO_IP, libc::IP_PKTINFO, &[&index.to_ne_bytes()[..], &[9; 8]].concat());
            assert_eq!(from_loopback(&place), expected, "{index}");
        }
    }

    #[test]
    fn one_refused_message_does_not_stop_the_others() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let too_long = vec![0; 70_000];
        let messages: [&[u8]; 3] = [b"a", &too_long, b"b"];
        let mut failures = 0;
        send(client.as_fd(), messages.iter().map(|octets| (*octets, to)), |_| failures += 1);
        let mut octet = [0; 8];
        assert_eq!((server.recv(&mut octet).unwrap(), octet[0]), (1, b'a'));
        assert_eq!((server.recv(&mut octet).unwrap(), octet[0], failures), (1, b'b', 1));
    }
}
