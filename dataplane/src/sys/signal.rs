//! Signals as a descriptor (signalfd(2)): read in the control loop like any other event, so nothing runs in a
//! signal handler and no crate is needed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::{Zeroable, check, check_len};

/// What the control loop acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: stop gracefully.
    Stop,
    /// SIGHUP: read configuration and table again.
    Reload,
    /// SIGUSR1: print the counters.
    Report,
}

/// The signals above, no longer delivered to handlers but readable from a descriptor.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks them for the calling thread and for those it will spawn: call it before the first other thread.
    pub fn block() -> io::Result<Self> {
        let mut set = libc::sigset_t::zeroed();
        // SAFETY: writes only `set`.
        check(unsafe { libc::sigemptyset(&raw mut set) })?;
        for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1] {
            // SAFETY: writes only `set`, which was initialised above.
            check(unsafe { libc::sigaddset(&raw mut set, number) })?;
        }
        // SAFETY: reads `set`; a null old set is allowed. Changes the mask of the calling thread only.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) } {
            0 => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        // SAFETY: reads `set`; -1 asks for a new descriptor.
        let fd =
            check(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
        // SAFETY: the kernel has just opened `fd` for us and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next pending signal, if any.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        let mut info = libc::signalfd_siginfo::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the kernel writes at most `size` octets, and `info` has that many.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size) };
        match check_len(read) {
            Ok(len) if len == size => Ok(meaning(info.ssi_signo)),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn meaning(number: u32) -> Option<Signal> {
    match i32::try_from(number).ok()? {
        libc::SIGTERM | libc::SIGINT => Some(Signal::Stop),
        libc::SIGHUP => Some(Signal::Reload),
        libc::SIGUSR1 => Some(Signal::Report),
        _ => None,
    }
}
