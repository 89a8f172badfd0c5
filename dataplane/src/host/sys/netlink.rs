//! A routing netlink socket (netlink(7), rtnetlink(7)): sends and receives octets. The module `route`
//! interprets them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::{Zeroable, check, check_len, retry, set_option, socklen};

/// Changes that a socket can listen to (RTMGRP_…).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups(u32);

impl Groups {
    /// No notifications: a socket for requests.
    pub const NONE: Self = Self(0);
    /// Links, neighbours, and the addresses and routes of both families.
    pub const ROUTING: Self = Self(0x1 | 0x4 | 0x10 | 0x40 | 0x100 | 0x400);
    /// The addresses and routes of both families.
    pub const ADDRESSES: Self = Self(0x10 | 0x40 | 0x100 | 0x400);
}

/// A socket to the kernel's routing tables.
#[derive(Debug)]
pub struct NetlinkSocket(OwnedFd);

impl NetlinkSocket {
    /// Needs no privilege. Receiving fails after `timeout`.
    pub fn open(groups: Groups, timeout: Duration) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: the call takes and returns integers only.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
        // SAFETY: the kernel has just opened `fd` for this call, and nothing else owns it.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        let timeout = libc::timeval {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_usec: i64::from(timeout.subsec_micros()),
        };
        set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)?;
        socket.bind(groups)?;
        Ok(socket)
    }

    fn bind(&self, groups: Groups) -> io::Result<()> {
        let mut address = libc::sockaddr_nl::zeroed();
        address.nl_family = u16::try_from(libc::AF_NETLINK).expect("invariant: 16");
        address.nl_groups = groups.0;
        // SAFETY: the address outlives the call and the length is its size.
        let result = unsafe {
            libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), socklen::<libc::sockaddr_nl>())
        };
        check(result).map(drop)
    }

    /// Makes the kernel apply the filters of a request for all routes (Linux 4.20). Older kernels answer with
    /// all routes.
    pub fn filter_dumps(&self) -> io::Result<()> {
        const NETLINK_GET_STRICT_CHK: libc::c_int = 12;
        match set_option(self.0.as_fd(), libc::SOL_NETLINK, NETLINK_GET_STRICT_CHK, &1_i32) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
            done => done,
        }
    }

    /// Sends a request to the kernel.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        retry(|| {
            // SAFETY: the kernel reads `message.len()` octets of `message`.
            let sent = unsafe { libc::send(self.0.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
            check_len(sent).map(drop)
        })
    }

    /// Receives a datagram from the kernel. `WouldBlock` after the timeout; ENOBUFS when notifications were
    /// lost, after which everything must be queried again.
    pub fn receive<'buffer>(&self, buffer: &'buffer mut [u8]) -> io::Result<&'buffer [u8]> {
        self.receive_with(buffer, 0)
    }

    /// As `receive`, without waiting.
    pub fn receive_now<'buffer>(&self, buffer: &'buffer mut [u8]) -> io::Result<&'buffer [u8]> {
        self.receive_with(buffer, libc::MSG_DONTWAIT)
    }

    fn receive_with<'buffer>(
        &self,
        buffer: &'buffer mut [u8],
        flags: libc::c_int,
    ) -> io::Result<&'buffer [u8]> {
        // Other processes may write to the socket too: drops a limited number of such datagrams.
        for _ in 0..64 {
            let (len, from_kernel) = retry(|| self.receive_one(buffer, flags))?;
            if from_kernel {
                return Ok(&buffer[..len.min(buffer.len())]);
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn receive_one(&self, buffer: &mut [u8], flags: libc::c_int) -> io::Result<(usize, bool)> {
        let mut sender = libc::sockaddr_nl::zeroed();
        let mut sender_len = socklen::<libc::sockaddr_nl>();
        // SAFETY: the kernel writes at most `buffer.len()` octets into `buffer` and `sender_len` into
        // `sender`.
        let len = unsafe {
            libc::recvfrom(
                self.0.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                flags,
                (&raw mut sender).cast(),
                &raw mut sender_len,
            )
        };
        Ok((check_len(len)?, sender.nl_pid == 0))
    }
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
