//! Frames to send, gathered and handed to the kernel in one call (sendmmsg(2)).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::packet::{PacketSocket, link_address};
use super::{Zeroable, check, socklen};

/// How many frames go in one call; more gains nothing and costs latency.
pub const BATCH: usize = 64;

/// Equal slots for frames, and where each one goes. Allocates when it is made and never after.
#[derive(Debug)]
pub struct Batch {
    slots: Box<[u8]>,
    slot_len: usize,
    filled: usize,
    lengths: [usize; BATCH],
    interfaces: [u32; BATCH],
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that the kernel took.
    pub frames: u64,
    /// Frames for which the device had no room.
    pub congested: u64,
    /// Frames that the kernel refused: too long for the device, or the device is down or gone.
    pub refused: u64,
}

impl Batch {
    /// `slot_len` is the longest frame, in octets.
    pub fn new(slot_len: usize) -> Self {
        let slot_len = slot_len.max(1);
        let slots = vec![0; slot_len * BATCH].into_boxed_slice();
        Self { slots, slot_len, filled: 0, lengths: [0; BATCH], interfaces: [0; BATCH] }
    }

    /// No frame waits.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// There is no slot left: send first.
    pub fn is_full(&self) -> bool {
        self.filled == BATCH
    }

    /// The slot that the next frame is written into; empty when the batch is full.
    pub fn slot(&mut self) -> &mut [u8] {
        let at = self.filled * self.slot_len;
        self.slots.get_mut(at..at + self.slot_len).unwrap_or_default()
    }

    /// Keeps the first `len` octets of the slot as a frame for an interface. What does not fit is not kept.
    pub fn push(&mut self, len: usize, ifindex: u32) {
        if self.is_full() || len > self.slot_len {
            return;
        }
        self.lengths[self.filled] = len;
        self.interfaces[self.filled] = ifindex;
        self.filled += 1;
    }

    /// Hands all frames to the kernel and is empty afterwards. A frame that is refused does not hold up the others.
    pub fn send(&mut self, socket: &PacketSocket) -> Sent {
        let mut sent = Sent::default();
        let mut from = 0;
        let mut attempts = 0;
        // Each turn sends or gives up at least one frame, but for interruptions, which `attempts` bounds.
        while from < self.filled && attempts < 2 * BATCH {
            attempts += 1;
            match self.send_from(from, socket) {
                Ok(count) => {
                    from += count;
                    sent.frames += u64::try_from(count).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    from += 1;
                    *(if is_congestion(&error) { &mut sent.congested } else { &mut sent.refused }) += 1;
                }
            }
        }
        self.filled = 0;
        sent
    }

    /// Sends frames in order until one fails. An error is about the first of them; the kernel reports none if it
    /// has sent at least one.
    fn send_from(&mut self, from: usize, socket: &PacketSocket) -> io::Result<usize> {
        let mut addresses = [libc::sockaddr_ll::zeroed(); BATCH];
        let mut pieces = [libc::iovec::zeroed(); BATCH];
        let mut messages = [libc::mmsghdr::zeroed(); BATCH];
        let frames = self.slots.chunks_exact_mut(self.slot_len).zip(self.lengths).zip(self.interfaces);
        let places = messages.iter_mut().zip(&mut pieces).zip(&mut addresses);
        let waiting = frames.take(self.filled).skip(from);
        let mut count = 0;
        for (((slot, len), ifindex), ((message, piece), address)) in waiting.zip(places) {
            *address = link_address(ifindex, [0; 6], 0);
            piece.iov_base = slot.as_mut_ptr().cast();
            piece.iov_len = len;
            message.msg_hdr.msg_name = (&raw mut *address).cast();
            message.msg_hdr.msg_namelen = socklen::<libc::sockaddr_ll>();
            message.msg_hdr.msg_iov = &raw mut *piece;
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the first `count` messages point to one address and one piece each, which live on this stack
        // frame, and these to slots of `self` with at least `iov_len` octets (`push` checked). The kernel reads
        // them and writes `msg_len` alone.
        let sent = check(unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count, libc::MSG_DONTWAIT) })?;
        Ok(usize::try_from(sent).unwrap_or_default().max(1))
    }
}

fn is_congestion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM))
}
