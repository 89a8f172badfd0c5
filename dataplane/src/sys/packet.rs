//! Packet sockets (packet(7)): raw Ethernet frames in and out. And raw IP sockets, for what stays on this host.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{Zeroable, check, check_len, option, retry, set_option, socklen};

/// Octets of the `virtio_net_hdr` that precedes each frame once [`PacketSocket::report_offloads`] was called.
pub const OFFLOAD_HEADER: usize = 10;

/// An `AF_PACKET` socket. Until it is bound it receives nothing.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

/// Datagrams that the kernel accounts for on a socket, since the last time it was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// All that reached the socket, lost ones included.
    pub packets: u32,
    /// Those for which the ring or the buffer had no room.
    pub lost: u32,
}

impl PacketSocket {
    /// Needs CAP_NET_RAW in the user namespace that owns the network namespace.
    pub fn open() -> io::Result<Self> {
        // Protocol 0: a socket opened with ETH_P_ALL would at once receive from every interface.
        // SAFETY: takes and gives integers alone.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the kernel has just opened `fd` for us and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Starts to receive the frames of one interface, of every ethertype.
    pub fn bind(&self, ifindex: u32) -> io::Result<()> {
        let address = link_address(ifindex, [0; 6], libc::ETH_P_ALL);
        // SAFETY: the address lives through the call and its size is told truly.
        let result = unsafe {
            libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), socklen::<libc::sockaddr_ll>())
        };
        check(result).map(drop)
    }

    /// Frames that this host sends are not handed back to it: a balancer would forward its own output.
    pub fn ignore_outgoing(&self) -> io::Result<()> {
        self.set(libc::PACKET_IGNORE_OUTGOING, 1)
    }

    /// Frames sent skip the queueing discipline: faster, and lost instead of queued when the device is full.
    pub fn bypass_qdisc(&self) -> io::Result<()> {
        self.set(libc::PACKET_QDISC_BYPASS, 1)
    }

    /// Each frame, in and out, is preceded by a `virtio_net_hdr` that says what the kernel left unfinished.
    pub fn report_offloads(&self) -> io::Result<()> {
        self.set(libc::PACKET_VNET_HDR, 1)
    }

    /// Lets no frame in until [`PacketSocket::unmute`]. A socket that is bound and not yet in its group would get
    /// every frame, and each would be forwarded twice.
    pub fn mute(&self) -> io::Result<()> {
        mute(self.as_fd())
    }

    /// Lets frames in.
    pub fn unmute(&self) -> io::Result<()> {
        unmute(self.as_fd())
    }

    /// How much the kernel buffers for a socket without a ring, in octets. Without CAP_NET_ADMIN it is capped.
    pub fn set_receive_buffer(&self, octets: i32) -> io::Result<()> {
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &octets)
            .or_else(|_| set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &octets))
    }

    /// What the kernel counted since it was last asked.
    pub fn arrivals(&self) -> io::Result<Arrivals> {
        arrivals(self.as_fd())
    }

    /// Sends one frame out of an interface.
    pub fn send(&self, ifindex: u32, frame: &[u8]) -> io::Result<usize> {
        let address = link_address(ifindex, [0; 6], 0);
        retry(|| {
            // SAFETY: frame and address live through the call, their sizes are told truly, the kernel only reads.
            let sent = unsafe {
                libc::sendto(
                    self.0.as_raw_fd(),
                    frame.as_ptr().cast(),
                    frame.len(),
                    libc::MSG_DONTWAIT,
                    (&raw const address).cast(),
                    socklen::<libc::sockaddr_ll>(),
                )
            };
            check_len(sent)
        })
    }

    /// One received frame, cut to the buffer; `WouldBlock` when there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        retry(|| {
            // SAFETY: the kernel writes at most `buffer.len()` octets into `buffer`.
            let len = unsafe {
                libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
            };
            check_len(len)
        })
    }

    /// Gives the socket away, for a library that wants a descriptor of its own.
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

/// A group of sockets among which the kernel spreads frames by flow. Its number is the kernel's choice, so that two
/// directors on one host never share a group.
#[derive(Debug, Default)]
pub struct Fanout(Option<u16>);

impl Fanout {
    /// Adds a bound socket. Without PACKET_FANOUT_FLAG_DEFRAG: fragments must arrive as they were sent.
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

/// The error that waits on a socket, if any, which asking clears. Until then poll(2) calls the socket ready.
pub fn take_error(socket: BorrowedFd<'_>) -> io::Result<()> {
    let errno: i32 = option(socket, libc::SOL_SOCKET, libc::SO_ERROR)?;
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// The number of the group that a socket is in.
fn fanout_group(socket: BorrowedFd<'_>) -> io::Result<u16> {
    let value: u32 = option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
    u16::try_from(value & 0xffff).map_err(io::Error::other)
}

/// See [`PacketSocket::mute`].
fn mute(socket: BorrowedFd<'_>) -> io::Result<()> {
    // One instruction: accept 0 octets.
    let mut nothing = libc::sock_filter { code: BPF_RET, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut nothing };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// See [`PacketSocket::unmute`].
pub fn unmute(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32)
}

/// BPF_RET | BPF_K (linux/bpf_common.h).
const BPF_RET: u16 = 0x06;

/// The kernel's count for a packet socket, which asking clears.
pub fn arrivals(socket: BorrowedFd<'_>) -> io::Result<Arrivals> {
    // Without a TPACKET_V3 ring the answer is shorter by a field.
    let stats: libc::tpacket_stats_v3 = option(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
    Ok(Arrivals { packets: stats.tp_packets, lost: stats.tp_drops })
}

/// Where a frame goes: out of this interface. With SOCK_RAW the frame carries its own addresses.
pub(super) fn link_address(ifindex: u32, mac: [u8; 6], protocol: libc::c_int) -> libc::sockaddr_ll {
    let mut address = libc::sockaddr_ll::zeroed();
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or_default();
    address.sll_protocol = u16::try_from(protocol).unwrap_or_default().to_be();
    // An index above i32::MAX does not exist; -1 makes the kernel refuse it.
    address.sll_ifindex = i32::try_from(ifindex).unwrap_or(-1);
    address.sll_halen = 6;
    address.sll_addr[..6].copy_from_slice(&mac);
    address
}

/// Sends whole IP packets, header included, to this host itself: the kernel routes them over `lo`.
///
/// A frame written to `lo` by a packet socket would not do: its source is an address of this host, and the kernel
/// drops such a packet as "martian" when it comes in without a route of its own.
#[derive(Debug)]
pub struct SelfSender {
    v4: OwnedFd,
    v6: OwnedFd,
}

impl SelfSender {
    /// Needs CAP_NET_RAW.
    pub fn open() -> io::Result<Self> {
        let v6 = raw_ip(libc::AF_INET6)?;
        set_option(v6.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_HDRINCL, &1_i32)?;
        Ok(Self { v4: raw_ip(libc::AF_INET)?, v6 })
    }

    /// `packet` starts with its IP header; `to` is an address of this host.
    pub fn send(&self, packet: &[u8], to: IpAddr) -> io::Result<usize> {
        match to {
            IpAddr::V4(to) => {
                let mut address = libc::sockaddr_in::zeroed();
                address.sin_family = u16::try_from(libc::AF_INET).unwrap_or_default();
                address.sin_addr.s_addr = u32::from_ne_bytes(to.octets());
                send_raw(self.v4.as_fd(), packet, &address)
            }
            IpAddr::V6(to) => {
                let mut address = libc::sockaddr_in6::zeroed();
                address.sin6_family = u16::try_from(libc::AF_INET6).unwrap_or_default();
                address.sin6_addr.s6_addr = to.octets();
                send_raw(self.v6.as_fd(), packet, &address)
            }
        }
    }
}

fn raw_ip(family: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes and gives integers alone.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_RAW) })?;
    // SAFETY: the kernel has just opened `fd` for us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn send_raw<A>(fd: BorrowedFd<'_>, packet: &[u8], address: &A) -> io::Result<usize> {
    // SAFETY: packet and address live through the call, their sizes are told truly, and the kernel only reads.
    let sent = unsafe {
        libc::sendto(
            fd.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            libc::MSG_DONTWAIT,
            (&raw const *address).cast(),
            socklen::<A>(),
        )
    };
    check_len(sent)
}
