//! Signals as a readable descriptor (signalfd(2)). The control loop polls it together with its other
//! descriptors.
//!
//! rustix has no signalfd. A crate that installs signal handlers (signal-hook) would need less `unsafe` here,
//! but the kernel may run a handler in any thread, and it would interrupt the system calls of the packet
//! workers. A blocked signal interrupts no thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;

use super::{Zeroable, check};

/// The requests that the control loop accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: stop gracefully.
    Stop,
    /// SIGHUP: read configuration and table again.
    Reload,
    /// SIGUSR1: print the counters.
    Report,
}

/// A descriptor from which the signals of [`Signal`] are read. They are blocked, so the kernel runs neither
/// their handlers nor their default actions.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks the signals for the calling thread and for the threads that it starts later. Call it before the
    /// process starts a second thread: the kernel delivers a signal to any thread that does not block it.
    pub fn block() -> io::Result<Self> {
        // `sigset_t` is a bit mask in glibc and in musl, so all zeros are the empty set.
        let mut set = libc::sigset_t::zeroed();
        for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1] {
            // SAFETY: `set` is initialised and outlives the call, which writes only to it.
            check(unsafe { libc::sigaddset(&raw mut set, number) })?;
        }
        // SAFETY: the call reads `set`, which outlives it, and accepts a null pointer for the old set.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) } {
            0 => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        // SAFETY: the call reads `set`, which outlives it. Descriptor -1 requests a new descriptor.
        let fd =
            check(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
        // SAFETY: the kernel opened `fd` in the call above, and no other code owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next pending signal, or `None` if no signal is pending.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut info) {
            Ok(len) if len == info.len() => Ok(request(&info)),
            Ok(_) | Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reads `ssi_signo`, the first field of a `signalfd_siginfo`: u32 in the byte order of the host.
fn request(info: &[u8]) -> Option<Signal> {
    let number = i32::from_ne_bytes(*info.first_chunk()?);
    match number {
        libc::SIGTERM | libc::SIGINT => Some(Signal::Stop),
        libc::SIGHUP => Some(Signal::Reload),
        libc::SIGUSR1 => Some(Signal::Report),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_blocked_signal_is_read_as_its_request() {
        let cases = [
            (libc::SIGTERM, Signal::Stop),
            (libc::SIGINT, Signal::Stop),
            (libc::SIGHUP, Signal::Reload),
            (libc::SIGUSR1, Signal::Report),
        ];
        for (number, expected) in cases {
            let mut info = [0xa5; size_of::<libc::signalfd_siginfo>()];
            info[..4].copy_from_slice(&number.to_ne_bytes());
            assert_eq!(request(&info), Some(expected));
        }
        assert_eq!(request(&libc::SIGCHLD.to_ne_bytes()), None);
        assert_eq!(request(&[0; 3]), None);
    }
}
