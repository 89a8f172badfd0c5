//! Sends a batch of messages with one system call (sendmmsg(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::SocketAddress;
use super::{Zeroable, check};

/// Largest number of messages in one call. A larger batch adds latency and no speed.
pub const BATCH: usize = 64;

/// Sends the messages in order, at most [`BATCH`] of them. `failed` is called once for each message that the
/// kernel refuses; the messages after it are still sent. `flags` are those of send(2). Allocates nothing.
pub(super) fn send_all<'octets>(
    socket: BorrowedFd<'_>,
    outgoing: impl Iterator<Item = (&'octets [u8], SocketAddress)>,
    flags: libc::c_int,
    mut failed: impl FnMut(io::Error),
) {
    let mut addresses = [SocketAddress::EMPTY; BATCH];
    let mut vectors = [libc::iovec::zeroed(); BATCH];
    let mut messages = [libc::mmsghdr::zeroed(); BATCH];
    let mut count = 0;
    let entries = messages.iter_mut().zip(&mut vectors).zip(&mut addresses);
    for (((message, vector), address), (octets, to)) in entries.zip(outgoing) {
        *address = to;
        *vector = libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
        message.msg_hdr.msg_name = address.as_ptr().cast_mut().cast();
        message.msg_hdr.msg_namelen = address.len();
        message.msg_hdr.msg_iov = &raw mut *vector;
        message.msg_hdr.msg_iovlen = 1;
        count += 1;
    }
    let mut waiting = &mut messages[..count];
    // Each attempt sends a message, gives one up, or is interrupted by a signal. The limit bounds the
    // interruptions.
    for _ in 0..2 * BATCH {
        let Ok(len) = libc::c_uint::try_from(waiting.len()) else { break };
        if len == 0 {
            return;
        }
        // SAFETY: each of the `len` messages points to one address and one vector, which live in this stack
        // frame, and the vector to octets that `outgoing` borrows for longer than this call. The kernel reads
        // them and writes only `msg_len` of each message.
        let sent = check(unsafe { libc::sendmmsg(socket.as_raw_fd(), waiting.as_mut_ptr(), len, flags) });
        let done = match sent {
            Ok(sent) => {
                let sent = usize::try_from(sent).expect("invariant: `check` accepts no negative number");
                sent.clamp(1, waiting.len())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => {
                // The kernel returns an error only if it refuses the first of the waiting messages.
                failed(error);
                1
            }
        };
        waiting = &mut waiting[done..];
    }
    waiting.iter().for_each(|_| failed(io::ErrorKind::Interrupted.into()));
}
