//! poll(2) over borrowed descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use super::check;

/// Waits until one of `fds` can be read, at most `timeout`. `ready[i]` tells of `fds[i]`; an error on a descriptor
/// counts as ready, so that the read that follows reports it. An interruption counts as "nothing yet".
pub fn readable<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Duration) -> io::Result<[bool; N]> {
    let mut polled = fds.map(entry);
    poll(&mut polled, timeout)?;
    Ok(polled.map(|entry| entry.revents != 0))
}

/// Waits until one of `fds` can be read, as [`readable`], however many there are.
pub fn any_readable<'fd>(fds: impl Iterator<Item = BorrowedFd<'fd>>, timeout: Duration) -> io::Result<()> {
    poll(&mut fds.map(entry).collect::<Vec<_>>(), timeout)
}

fn entry(fd: BorrowedFd<'_>) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

fn poll(polled: &mut [libc::pollfd], timeout: Duration) -> io::Result<()> {
    let count = libc::nfds_t::try_from(polled.len()).unwrap_or(0);
    let millis = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: `polled` has `count` entries, and the kernel writes only their `revents`.
    match check(unsafe { libc::poll(polled.as_mut_ptr(), count, millis) }) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        Err(error) => Err(error),
    }
}
