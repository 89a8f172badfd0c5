//! The default driver: receives from a TPACKET_V3 ring, sends with sendmmsg(2).
//!
//! A frame waits in the ring until its block is full or a millisecond has passed: the latency of block-wise
//! reception.

use std::io;
use std::time::Duration;

use super::{FrameCounts, FrameDriver, Outgoing, Received, survive_down};
use crate::host::sys::batch::{Batch, Sent};
use crate::host::sys::packet::{Fanout, PacketSocket};
use crate::host::sys::ring::{Ring, Shape};

/// The ring and the send batch of a worker.
#[derive(Debug)]
pub struct AfPacket {
    ifindex: u32,
    ring: Ring,
    batch: Batch,
    room: usize,
    /// For sending only: unbound, so that it can send through any interface and receives nothing.
    sender: PacketSocket,
}

impl AfPacket {
    /// Opens a ring on an interface, in a fanout group if there are several workers.
    pub fn open(ifindex: u32, group: Option<&mut Fanout>) -> io::Result<Self> {
        let ring = Ring::open(ifindex, Shape::default(), group)?;
        let sender = PacketSocket::open()?;
        sender.bypass_qdisc()?;
        Ok(Self { ifindex, ring, batch: Batch::new(ROOM), room: ROOM, sender })
    }
}

impl FrameDriver for AfPacket {
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.ring.wait(timeout).or_else(|error| survive_down(error, self.ifindex))
    }

    #[inline]
    fn process_batch(
        &mut self,
        mut decide: impl FnMut(&Received<'_>, &mut [u8]) -> Option<Outgoing>,
    ) -> io::Result<FrameCounts> {
        let Self { ring, batch, sender, .. } = self;
        let mut moved = FrameCounts::default();
        let Some(mut block) = ring.block() else { return Ok(moved) };
        while let Some(frame) = block.frame() {
            if frame.foreign || frame.cut {
                *(if frame.foreign { &mut moved.foreign } else { &mut moved.damaged }) += 1;
                continue;
            }
            moved.received += 1;
            let received = Received { frame: frame.bytes, merged: frame.merged };
            if let Some(Outgoing { len, ifindex }) = decide(&received, batch.slot()) {
                batch.push(len, ifindex);
                if batch.is_full() {
                    note(&mut moved, batch.send(sender));
                }
            }
        }
        moved.damaged += u64::from(block.malformed());
        // The kernel may fill the block again while the last frames are being sent.
        drop(block);
        note(&mut moved, batch.send(sender));
        Ok(moved)
    }

    fn set_room(&mut self, octets: usize) {
        if octets > self.room {
            self.room = octets;
            self.batch = Batch::new(octets);
        }
    }

    fn lost(&self) -> io::Result<u64> {
        self.ring.arrivals().map(|arrivals| arrivals.lost.into())
    }
}

/// Initial length of the buffer for a frame, in octets: an Ethernet frame with two tags, rounded up.
const ROOM: usize = 2048;

fn note(moved: &mut FrameCounts, sent: Sent) {
    moved.sent += sent.frames;
    moved.congested += sent.congested;
    moved.refused += sent.refused;
}
