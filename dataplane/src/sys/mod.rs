//! What the kernel is asked for: packet sockets and their ring, interfaces and their offloads, netlink, folder
//! watches, signals, threads. **All hand-written `unsafe` of the data plane lives in this folder**, one operation
//! a block; everything it exports is safe to call.
//!
//! What the kernel hands back is read as if it came from a liar: every offset and length is checked before use.
//! Nothing here knows what a packet means.
#![allow(unsafe_code, reason = "the folder where system calls are made; each block states its invariant")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

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
pub mod signal;
pub mod thread;

/// A system call's result: `-1` is the thread's `errno`.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// As [`check`], for calls that return a count of octets.
fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Calls again what a signal interrupted. Bounded, so that a storm of signals cannot hold a worker for ever.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..16 {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

/// The size of a C structure as the kernel wants it told.
fn socklen<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(libc::socklen_t::MAX)
}

/// Marker for integers and C structures of integers and pointers alone, of which any octets are a value.
///
/// # Safety
/// Implement it only for types that any octets, all-zero ones too, are a valid value of.
unsafe trait Zeroable: Sized {
    fn zeroed() -> Self {
        // SAFETY: whoever implements the trait promises that zero octets are a valid value.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! zeroable {
    ($($name:ty),* $(,)?) => {
        // SAFETY: integers and plain C structures of integers, arrays of them and raw pointers: any octets are valid.
        $(unsafe impl Zeroable for $name {})*
    };
}
zeroable!(
    i32,
    u32,
    u64,
    [u32; datagram::MEMINFO],
    libc::cpu_set_t,
    libc::ifreq,
    libc::iovec,
    libc::mmsghdr,
    libc::msghdr,
    libc::signalfd_siginfo,
    libc::sigset_t,
    libc::sockaddr_in,
    libc::sockaddr_in6,
    libc::sockaddr_ll,
    libc::sockaddr_nl,
    libc::tpacket_req3,
    libc::tpacket_stats_v3,
);

/// `setsockopt` with a plain value.
fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` lives through the call and its size is told truly; the kernel only reads it.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const *value).cast(), socklen::<T>()) };
    check(result).map(drop)
}

/// `getsockopt` of a plain value; what the kernel tells less than is asked for stays 0.
fn option<T: Zeroable>(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = T::zeroed();
    let mut len = socklen::<T>();
    // SAFETY: the kernel writes at most `len` octets, which `value` has, and any octets are a value of its type.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) };
    check(result).map(|_| value)
}
