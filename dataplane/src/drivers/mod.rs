//! How frames come in and go out. Drivers move octets and hand each frame to whoever decides; they decide nothing.
//!
//! | driver | in | out | for |
//! |---|---|---|---|
//! | [`af_packet`] | a shared ring, a block of frames at a time | one call for up to 64 frames | the default |
//! | [`pnet`] | a call a frame | a call a frame | comparison; systems where the ring does not work |
//!
//! Both see frames as they were on the wire (the ring with VLAN tags, `pnet` without: the kernel takes the tag off
//! before), with checksums finished; and never what this host itself sends, nor what is addressed to another host: a
//! switch that does not know an address sends the frame to all, and two directors would forward it twice.

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
    /// From the destination MAC address on.
    pub frame: &'a [u8],
    /// Whether it was several frames on the wire.
    pub merged: Merged,
}

/// What to send: this many octets of the room that was given, out of that interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Octets, link header included.
    pub len: usize,
    /// Out of which interface.
    pub ifindex: u32,
}

/// What a driver saw and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Frames handed over.
    pub received: u64,
    /// Frames that the kernel took.
    pub sent: u64,
    /// Frames for which the device had no room.
    pub congested: u64,
    /// Frames that the kernel or the driver refused: too long, or the interface is down, gone or not the driver's.
    pub refused: u64,
    /// Frames with another host's link address, which were left alone.
    pub foreign: u64,
    /// Frames that were too long to be received whole, and entries of the ring that made no sense.
    pub damaged: u64,
}

impl FrameCounts {
    /// Adds up.
    pub fn add(&mut self, other: Self) {
        self.received += other.received;
        self.sent += other.sent;
        self.congested += other.congested;
        self.refused += other.refused;
        self.foreign += other.foreign;
        self.damaged += other.damaged;
    }
}

/// A driver.
pub trait Link {
    /// Waits until frames are there, at most `timeout`. No frame is taken.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// Takes what is there, up to a batch; hands each frame to `decide` with room to write into; sends what it says.
    fn process_batch(
        &mut self,
        decide: impl FnMut(&Received<'_>, &mut [u8]) -> Option<Outgoing>,
    ) -> io::Result<FrameCounts>;

    /// Gives `decide` at least so many octets of room.
    fn set_room(&mut self, octets: usize);

    /// Frames that the kernel had to drop since it was last asked, for want of room.
    fn lost(&self) -> io::Result<u64>;
}

/// What to do about an error of a receiving socket. An interface that went down may come up again, and the kernel
/// then resumes; one that is gone will not.
fn survive_down(error: io::Error, ifindex: u32) -> io::Result<()> {
    if error.raw_os_error() != Some(libc::ENETDOWN) {
        return Err(error);
    }
    Interface::indexed(ifindex).map(drop)
}
