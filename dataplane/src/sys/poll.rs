//! poll(2) over borrowed descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use super::check;

/// Waits until one of `fds` can be read, at most `timeout`. `ready[i]` tells of `fds[i]`; an error on a descriptor
/// counts as ready, so that the read that follows reports it. An interruption counts as "nothing yet".
pub fn readable<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Duration) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let count = libc::nfds_t::try_from(N).unwrap_or(0);
    let millis = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: `polled` has `count` entries, and the kernel writes only their `revents`.
    match check(unsafe { libc::poll(polled.as_mut_ptr(), count, millis) }) {
        Ok(_) => Ok(polled.map(|entry| entry.revents != 0)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([false; N]),
        Err(error) => Err(error),
    }
}
