//! Datagrams that the kernel dropped before a worker read them, because the socket's buffer was full or the
//! outer UDP checksum was wrong.
//!
//! The kernel counts them per socket, in 32 bits (`SK_MEMINFO_DROPS`). A caller that reads often enough sees
//! every increment, so the 64-bit sum does not wrap. The packet path is not involved.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use crate::host::sys::datagram;

/// The drops of all sockets since they were opened.
#[derive(Debug)]
pub(super) struct SocketDrops(Mutex<Vec<Counted>>);

#[derive(Debug)]
struct Counted {
    socket: OwnedFd,
    drops: WideCounter,
}

/// A 32-bit counter of the kernel, extended to 64 bits.
#[derive(Debug, Default)]
struct WideCounter {
    last: u32,
    total: u64,
}

impl SocketDrops {
    pub(super) fn of(servers: &[OwnedFd]) -> io::Result<Self> {
        let counted =
            |server: &OwnedFd| Ok(Counted { socket: server.try_clone()?, drops: WideCounter::default() });
        Ok(Self(Mutex::new(servers.iter().map(counted).collect::<io::Result<_>>()?)))
    }

    /// All drops until now. Fewer than 2^32 may happen between two calls: at a million per second, that is an
    /// hour.
    pub(super) fn total(&self) -> u64 {
        let mut sockets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for Counted { socket, drops } in sockets.iter_mut() {
            // If the kernel does not reply, the sum stays as it is.
            if let Ok(now) = datagram::drops(socket.as_fd()) {
                drops.advance(now);
            }
        }
        sockets.iter().map(|counted| counted.drops.total).sum()
    }
}

impl WideCounter {
    fn advance(&mut self, now: u32) {
        self.total += u64::from(now.wrapping_sub(self.last));
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_continues_when_the_kernels_counter_wraps() {
        let mut counter = WideCounter::default();
        for (now, total) in [(0, 0), (7, 7), (7, 7), (u32::MAX, 0xffff_ffff), (4, 0x1_0000_0004)] {
            counter.advance(now);
            assert_eq!(counter.total, total, "{now}");
        }
    }
}
