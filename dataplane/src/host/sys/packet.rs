//! Packet sockets (packet(7)), which send and receive raw Ethernet frames; and raw IP sockets, which send
//! packets to this host itself.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use super::address::SocketAddress;
use super::{option, retry, set_option};

/// Length of the `virtio_net_hdr` in front of each frame after [`PacketSocket::report_offloads`], in octets.
pub const OFFLOAD_HEADER: usize = 10;

/// An `AF_PACKET` socket. It receives frames only after [`PacketSocket::bind`].
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

/// Frames that the kernel counted for a socket since the last query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// All frames that reached the socket, including lost ones.
    pub packets: u32,
    /// Frames that did not fit in the ring or the buffer.
    pub lost: u32,
}

impl PacketSocket {
    /// Needs CAP_NET_RAW in the user namespace that owns the network namespace.
    pub fn open() -> io::Result<Self> {
        // No protocol yet: with ETH_P_ALL the socket would receive from every interface before it is bound.
        let socket =
            rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Self(socket))
    }

    /// Starts to receive the frames of one interface, of every ethertype.
    pub fn bind(&self, ifindex: u32) -> io::Result<()> {
        Ok(rustix::net::bind(&self.0, &SocketAddress::link(ifindex, ETH_P_ALL))?)
    }

    /// Excludes the frames that this host sends. Otherwise the director would forward its own output.
    pub fn ignore_outgoing(&self) -> io::Result<()> {
        self.set(libc::PACKET_IGNORE_OUTGOING, 1)
    }

    /// Sends without the queueing discipline: faster, but a frame is lost instead of queued if the device is
    /// full.
    pub fn bypass_qdisc(&self) -> io::Result<()> {
        self.set(libc::PACKET_QDISC_BYPASS, 1)
    }

    /// Puts a `virtio_net_hdr` in front of each frame, in both directions. It describes the offloads that the
    /// frame still needs.
    pub fn report_offloads(&self) -> io::Result<()> {
        self.set(libc::PACKET_VNET_HDR, 1)
    }

    /// Discards every frame until [`PacketSocket::unmute`]. A socket that is bound but not yet in its fanout
    /// group would receive every frame, and each frame would be forwarded twice.
    pub fn mute(&self) -> io::Result<()> {
        // A classic BPF program of one instruction: accept 0 octets of the frame.
        let mut reject = libc::sock_filter { code: BPF_RET, jt: 0, jf: 0, k: 0 };
        let program = libc::sock_fprog { len: 1, filter: &raw mut reject };
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Accepts frames again.
    pub fn unmute(&self) -> io::Result<()> {
        unmute(self.as_fd())
    }

    /// Sets the size of the kernel's buffer for a socket without a ring, in octets. Without CAP_NET_ADMIN the
    /// limit is `net.core.rmem_max`.
    pub fn set_receive_buffer(&self, octets: i32) -> io::Result<()> {
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &octets)
            .or_else(|_| set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &octets))
    }

    /// The kernel's counters since the last query.
    pub fn arrivals(&self) -> io::Result<Arrivals> {
        arrivals(self.as_fd())
    }

    /// Sends one frame through an interface. Returns the number of octets sent.
    pub fn send(&self, ifindex: u32, frame: &[u8]) -> io::Result<usize> {
        let address = SocketAddress::link(ifindex, 0);
        retry(|| Ok(rustix::net::sendto(&self.0, frame, SendFlags::DONTWAIT, &address)?))
    }

    /// Receives one frame and returns its length in octets. A frame that is longer than the buffer is cut.
    /// `WouldBlock` if no frame is waiting.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        retry(|| {
            let (len, _) = rustix::net::recv(&self.0, &mut *buffer, RecvFlags::DONTWAIT)?;
            Ok(len)
        })
    }

    /// Returns the descriptor, for a library that takes ownership of one.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    fn set(&self, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        set_option(self.as_fd(), libc::SOL_PACKET, name, &value)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// ETH_P_ALL (linux/if_ether.h).
const ETH_P_ALL: u16 = 3;

/// BPF_RET | BPF_K (linux/bpf_common.h).
const BPF_RET: u16 = 0x06;

/// A group of sockets. The kernel distributes frames over its members by flow. The kernel chooses the number
/// of the group, so that two directors on one host never share a group.
#[derive(Debug, Default)]
pub struct Fanout(Option<u16>);

impl Fanout {
    /// Adds a bound socket. PACKET_FANOUT_FLAG_DEFRAG is not set: fragments must arrive as they were sent.
    pub fn join(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let group = self.0.map_or(libc::PACKET_FANOUT_FLAG_UNIQUEID << 16, u32::from);
        let value = group | libc::PACKET_FANOUT_HASH << 16;
        set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &value)?;
        if self.0.is_none() {
            self.0 = Some(fanout_group(socket)?);
        }
        Ok(())
    }
}

/// The number of the group that a socket is a member of.
fn fanout_group(socket: BorrowedFd<'_>) -> io::Result<u16> {
    let value: u32 = option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
    u16::try_from(value & 0xffff).map_err(io::Error::other)
}

/// Returns the pending error of a socket, if there is one, and clears it. Until then poll(2) reports the
/// socket as ready.
pub fn take_error(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::sockopt::socket_error(socket)??)
}

/// Accepts frames again after [`PacketSocket::mute`].
pub fn unmute(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32)
}

/// The kernel's counters of a packet socket since the last query.
pub fn arrivals(socket: BorrowedFd<'_>) -> io::Result<Arrivals> {
    // Without a TPACKET_V3 ring the kernel leaves out the last field.
    let stats: libc::tpacket_stats_v3 = option(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
    Ok(Arrivals { packets: stats.tp_packets, lost: stats.tp_drops })
}

/// Sends whole IP packets, including the IP header, to this host itself. The kernel routes them over `lo`.
///
/// A packet socket on `lo` cannot do this: the packet's source is an address of this host, and the kernel
/// drops a received packet with such a source as "martian" if the packet carries no route.
#[derive(Debug)]
pub struct SelfSender {
    v4: OwnedFd,
    v6: OwnedFd,
}

impl SelfSender {
    /// Needs CAP_NET_RAW.
    pub fn open() -> io::Result<Self> {
        let v6 = raw_ip(AddressFamily::INET6)?;
        set_option(v6.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_HDRINCL, &1_i32)?;
        Ok(Self { v4: raw_ip(AddressFamily::INET)?, v6 })
    }

    /// `packet` starts with its IP header. `to` is an address of this host. Returns the number of octets
    /// sent.
    pub fn send(&self, packet: &[u8], to: IpAddr) -> io::Result<usize> {
        let socket = if to.is_ipv4() { &self.v4 } else { &self.v6 };
        Ok(rustix::net::sendto(socket, packet, SendFlags::DONTWAIT, &SocketAddr::new(to, 0))?)
    }
}

fn raw_ip(family: AddressFamily) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::RAW))?;
    Ok(socket)
}
