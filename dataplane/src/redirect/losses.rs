//! Datagrams that the kernel dropped before a worker read them: the socket's buffer was full, or the outer UDP checksum
//! was wrong.
//!
//! The kernel counts them per socket, in 32 bits (`SK_MEMINFO_DROPS`). Whoever asks often enough sees each step, so
//! that a sum of the steps does not wrap. The packet path does nothing for it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use crate::host::sys::datagram;

/// The losses of all sockets since they were opened.
#[derive(Debug)]
pub(super) struct Losses(Mutex<Vec<Lossy>>);

#[derive(Debug)]
struct Lossy {
    socket: OwnedFd,
    count: Count,
}

/// A counter of the kernel, and the sum of its steps.
#[derive(Debug, Default)]
struct Count {
    last: u32,
    total: u64,
}

impl Losses {
    pub(super) fn of(servers: &[OwnedFd]) -> io::Result<Self> {
        let lossy = |server: &OwnedFd| Ok(Lossy { socket: server.try_clone()?, count: Count::default() });
        Ok(Self(Mutex::new(servers.iter().map(lossy).collect::<io::Result<_>>()?)))
    }

    /// All until now. Between two calls less than 2^32 may be lost: at a million a second, that is an hour.
    pub(super) fn total(&self) -> u64 {
        let mut sockets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for Lossy { socket, count } in sockets.iter_mut() {
            // A kernel that does not answer leaves the sum as it is.
            if let Ok(now) = datagram::drops(socket.as_fd()) {
                count.follow(now);
            }
        }
        sockets.iter().map(|lossy| lossy.count.total).sum()
    }
}

impl Count {
    fn follow(&mut self, now: u32) {
        self.total += u64::from(now.wrapping_sub(self.last));
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_goes_on_where_the_kernels_counter_wraps() {
        let mut count = Count::default();
        for (now, total) in [(0, 0), (7, 7), (7, 7), (u32::MAX, 0xffff_ffff), (4, 0x1_0000_0004)] {
            count.follow(now);
            assert_eq!(count.total, total, "{now}");
        }
    }
}
