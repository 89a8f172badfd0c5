//! Receives and sends frames. A driver passes each frame to a function that decides it; the driver itself
//! decides nothing.
//!
//! | driver | receive | send | use |
//! |---|---|---|---|
//! | [`af_packet`] | a shared ring, a block of frames at a time | one call for up to 64 frames | the default |
//! | [`pnet`] | one call per frame | one call per frame | comparison; systems where the ring does not work |
//!
//! Both deliver frames as they were on the wire, with checksums finished. (The ring restores VLAN tags;
//! `pnet` cannot, because the kernel removes the tag before.) They skip frames that this host itself sends,
//! and frames that are addressed to another host: a switch that does not know an address sends the frame to
//! all ports, and two directors would forward it twice.
use std::io;
use std::time::Duration;

use crate::host::sys::interface::Interface;
pub use crate::host::sys::ring::Merged;

pub mod af_packet;
pub mod pcap;
pub mod pnet;
pub mod xdp;

/// A received frame.
#[derive(Debug)]
pub struct Received<'a> {
    /// The octets of the frame, from the destination MAC address on.
    pub frame: &'a [u8],
    /// Whether it was merged from several frames on the wire.
    pub merged: Merged,
}

/// A frame to send: its length in the buffer that was passed to `decide`, and its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Length in octets, link header included.
    pub len: usize,
    /// Index of the outgoing interface.
    pub ifindex: u32,
}

/// Counters of a driver, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Frames passed to `decide`.
    pub received: u64,
    /// Frames that the kernel accepted for sending.
    pub sent: u64,
    /// Frames that did not fit in the device's queue.
    pub congested: u64,
    /// Frames that the kernel or the driver refused to send: too long, or the interface is down, removed or
    /// not the driver's.
    pub refused: u64,
    /// Frames with another host's link address, which were skipped.
    pub foreign: u64,
    /// Frames that were too long for the buffer, and invalid entries of the ring.
    pub damaged: u64,
}

impl FrameCounts {
    /// Adds the counters of another batch.
    pub fn add(&mut self, other: Self) {
        self.received += other.received;
        self.sent += other.sent;
        self.congested += other.congested;
        self.refused += other.refused;
        self.foreign += other.foreign;
        self.damaged += other.damaged;
    }
}

/// Receives and sends frames on an interface.
pub trait FrameDriver {
    /// Waits until frames can be received, for at most `timeout`. Receives none.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// Receives up to a batch of frames without waiting. Passes each frame to `decide` with a buffer for the
    /// result, and sends the result.
    fn process_batch(
        &mut self,
        decide: impl FnMut(&Received<'_>, &mut [u8]) -> Option<Outgoing>,
    ) -> io::Result<FrameCounts>;

    /// Sets the least length of the buffer that `decide` gets, in octets.
    fn set_room(&mut self, octets: usize);

    /// Number of frames that the kernel dropped since the last call, because its buffer was full.
    fn lost(&self) -> io::Result<u64>;
}

/// Ignores the error of a receiving socket whose interface is down: it may come up again, and the kernel then
/// resumes. Returns all other errors, also if the interface no longer exists.
fn survive_down(error: io::Error, ifindex: u32) -> io::Result<()> {
    if error.raw_os_error() != Some(libc::ENETDOWN) {
        return Err(error);
    }
    match Interface::indexed(ifindex) {
        Err(error) if Interface::is_missing(&error) => Err(error),
        _ => Ok(()),
    }
}
