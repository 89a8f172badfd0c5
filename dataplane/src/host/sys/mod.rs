//! System calls: packet sockets and their ring, interfaces and their offloads, netlink, folder watches,
//! signals, threads. They go through rustix where it has a safe function. **All hand-written `unsafe` of the
//! data plane is in this folder**, one operation per block; every exported function is safe to call.
//!
//! The code does not trust the numbers that the kernel returns: it checks every offset and length before use.
//! Nothing in this folder knows the meaning of a packet.
//!
//! What remains by hand, because rustix has no safe function for it: the memory of the packet ring and of BPF
//! arrays, recvmmsg(2) and sendmmsg(2), options of packet sockets, ioctl(2) on interfaces, signalfd(2), and
//! SO_PEERCRED of processes in other PID namespaces.
#![allow(unsafe_code, reason = "the folder with the system calls; each block states its invariant")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

mod address;
pub mod batch;
pub mod bpf;
pub mod capability;
pub mod datagram;
pub mod inotify;
pub mod interface;
pub mod netlink;
pub mod packet;
pub mod poll;
pub mod process;
pub mod ring;
mod sendmmsg;
pub mod signal;
pub mod thread;

/// Converts the result of a system call. A negative result means that the error is in the thread's `errno`.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Does the same as [`check`] for calls that return a number of octets.
fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Repeats a call that a signal interrupted, at most 16 times, so that a burst of signals cannot block a
/// worker.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..16 {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

/// The size of a C structure, in the type that socket calls take.
fn socklen<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(libc::socklen_t::MAX)
}

/// Marker for integers and C structures of integers and raw pointers. Every bit pattern is a valid value of
/// them.
///
/// # Safety
/// Implement it only for types of which every bit pattern, including all zeros, is a valid value.
unsafe trait Zeroable: Sized {
    fn zeroed() -> Self {
        // SAFETY: the implementation of the trait promises that all zeros are a valid value of the type.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! zeroable {
    ($($name:ty),* $(,)?) => {
        // SAFETY: the listed types are integers, arrays of integers, and C structures of these and of raw
        // pointers, so every bit pattern is a valid value.
        $(unsafe impl Zeroable for $name {})*
    };
}
zeroable!(
    i32,
    u32,
    u64,
    [u32; datagram::MEMINFO],
    libc::ifreq,
    libc::iovec,
    libc::mmsghdr,
    libc::msghdr,
    libc::sigset_t,
    libc::sockaddr_nl,
    libc::tpacket_req3,
    libc::tpacket_stats_v3,
);

/// Sets a socket option (setsockopt(2)).
fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` outlives the call and the length is its size. The kernel only reads it.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const *value).cast(), socklen::<T>()) };
    check(result).map(drop)
}

/// Reads a socket option (getsockopt(2)). If the kernel writes fewer octets than the type has, the others
/// stay 0.
fn option<T: Zeroable>(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = T::zeroed();
    let mut len = socklen::<T>();
    // SAFETY: the kernel writes at most `len` octets, the size of `value`, and every bit pattern is a valid
    // `T`.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) };
    check(result).map(|_| value)
}
