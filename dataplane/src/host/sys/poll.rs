//! Waits for descriptors to become readable (poll(2)).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// Waits until at least one of `fds` is readable, for at most `timeout`. Element `i` of the result belongs to
/// `fds[i]`. A descriptor with a pending error counts as readable, because the next read reports that error.
/// If a signal interrupts the wait, no descriptor counts as readable.
pub fn readable<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Duration) -> io::Result<[bool; N]> {
    let mut polled = fds.map(entry);
    poll(&mut polled, timeout)?;
    Ok(polled.map(|entry| !entry.revents().is_empty()))
}

/// Waits until at least one of `fds` is readable, for at most `timeout`. Accepts any number of descriptors.
pub fn any_readable<'fd>(fds: impl Iterator<Item = BorrowedFd<'fd>>, timeout: Duration) -> io::Result<()> {
    poll(&mut fds.map(entry).collect::<Vec<_>>(), timeout)
}

fn entry(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

fn poll(polled: &mut [PollFd<'_>], timeout: Duration) -> io::Result<()> {
    // A timeout that does not fit in a `timespec` is longer than 290 billion years: wait without a limit.
    let timeout = Timespec::try_from(timeout).ok();
    match rustix::event::poll(polled, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    #[test]
    fn only_the_descriptor_with_data_is_readable() {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let (_idle_writer, idle) = UnixStream::pair().unwrap();
        let fds = [idle.as_fd(), reader.as_fd()];
        assert_eq!(readable(fds, Duration::ZERO).unwrap(), [false, false]);
        writer.write_all(b"x").unwrap();
        assert_eq!(readable(fds, Duration::MAX).unwrap(), [false, true]);
    }

    #[test]
    fn the_wait_lasts_as_long_as_the_timeout() {
        let (_writer, reader) = UnixStream::pair().unwrap();
        let start = Instant::now();
        any_readable([reader.as_fd()].into_iter(), Duration::from_millis(20)).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}
