//! Frames to send, collected and passed to the kernel in one system call.

use std::io;
use std::os::fd::AsFd;

use super::address::SocketAddress;
use super::packet::PacketSocket;
use super::sendmmsg::send_all;

pub use super::sendmmsg::BATCH;

/// [`BATCH`] slots of equal length for frames, and the interface of each frame. Allocates only in
/// [`Batch::new`].
#[derive(Debug)]
pub struct Batch {
    slots: Box<[u8]>,
    slot_len: usize,
    filled: usize,
    lengths: [usize; BATCH],
    interfaces: [u32; BATCH],
}

/// The result of sending a batch, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that the kernel accepted.
    pub frames: u64,
    /// Frames that did not fit in the device's queue.
    pub congested: u64,
    /// Frames that the kernel refused: longer than the device allows, or the device is down or removed.
    pub refused: u64,
}

impl Batch {
    /// `slot_len` is the length of the longest frame, in octets.
    pub fn new(slot_len: usize) -> Self {
        let slot_len = slot_len.max(1);
        let slots = vec![0; slot_len * BATCH].into_boxed_slice();
        Self { slots, slot_len, filled: 0, lengths: [0; BATCH], interfaces: [0; BATCH] }
    }

    /// True if the batch holds no frame.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// True if no slot is free. Send the batch before the next frame.
    pub fn is_full(&self) -> bool {
        self.filled == BATCH
    }

    /// The slot for the next frame; empty if the batch is full.
    pub fn slot(&mut self) -> &mut [u8] {
        let start = self.filled * self.slot_len;
        self.slots.get_mut(start..start + self.slot_len).unwrap_or_default()
    }

    /// Adds the first `len` octets of the slot as a frame for an interface. Does nothing if the batch is full
    /// or `len` is longer than a slot.
    pub fn push(&mut self, len: usize, ifindex: u32) {
        if self.is_full() || len > self.slot_len {
            return;
        }
        self.lengths[self.filled] = len;
        self.interfaces[self.filled] = ifindex;
        self.filled += 1;
    }

    /// Sends all frames and empties the batch. If the kernel refuses a frame, the frames after it are still
    /// sent.
    pub fn send(&mut self, socket: &PacketSocket) -> Sent {
        let mut sent = Sent::default();
        let slots = self.slots.chunks_exact(self.slot_len).zip(self.lengths).zip(self.interfaces);
        // `push` accepts no frame that is longer than its slot.
        let frames = slots
            .take(self.filled)
            .map(|((slot, len), ifindex)| (&slot[..len], SocketAddress::link(ifindex, 0)));
        send_all(socket.as_fd(), frames, libc::MSG_DONTWAIT, |error| {
            *(if is_congestion(&error) { &mut sent.congested } else { &mut sent.refused }) += 1;
        });
        let filled = u64::try_from(self.filled).expect("invariant: a batch holds at most 64 frames");
        sent.frames = filled - sent.congested - sent.refused;
        self.filled = 0;
        sent
    }
}

fn is_congestion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM))
}
