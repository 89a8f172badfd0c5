//! The portable driver: `pnet_datalink`, with one call per received frame and one per sent frame.
//!
//! This module opens the socket and passes it to `pnet`, for two reasons. A socket that `pnet` opens also
//! receives the frames that it sends, so a balancer would forward its own output in a loop. And only with
//! `virtio_net_hdr` the kernel reports unfinished checksums; that header precedes each frame, in both
//! directions.
//!
//! `pnet` sends only through the interface that it receives on: frames for another interface are refused and
//! counted.

use std::io;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use pnet::{Channel, Config, DataLinkReceiver, DataLinkSender, NetworkInterface};

use super::{FrameCounts, FrameDriver, Outgoing, Received, survive_down};
use crate::host::sys::packet::{Fanout, OFFLOAD_HEADER, PacketSocket, take_error, unmute};
use crate::host::sys::poll::readable;
use crate::host::sys::ring::Offloads;
use crate::wire::unfinished;

/// The channel of a worker.
pub struct Pnet {
    ifindex: u32,
    mac: [u8; 6],
    sender: Box<dyn DataLinkSender>,
    receiver: Box<dyn DataLinkReceiver>,
    /// The channel's socket, to wait on.
    socket: OwnedFd,
    /// Buffer for a frame whose checksum is finished.
    scratch: Vec<u8>,
    /// The `virtio_net_hdr`, all zero (no offload needed), and then the buffer for a frame.
    out: Vec<u8>,
}

impl Pnet {
    /// Opens a channel on an interface, in a fanout group if there are several workers.
    pub fn open(name: &str, group: Option<&mut Fanout>) -> io::Result<Self> {
        let interface = find(name)?;
        let socket = PacketSocket::open()?;
        socket.ignore_outgoing()?;
        socket.report_offloads()?;
        socket.set_receive_buffer(RECEIVE_BUFFER)?;
        socket.mute()?;
        let waiting = socket.as_fd().try_clone_to_owned()?;
        let config = Config {
            read_buffer_size: LARGEST_FRAME,
            // `wait` waits; reading must not.
            read_timeout: Some(Duration::ZERO),
            promiscuous: false,
            socket_fd: Some(socket.into_fd().into_raw_fd()),
            ..Config::default()
        };
        let Channel::Ethernet(sender, receiver) = pnet::channel(&interface, config)? else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        group.map_or(Ok(()), |group| group.join(waiting.as_fd()))?;
        unmute(waiting.as_fd())?;
        let out = vec![0; OFFLOAD_HEADER + ROOM];
        Ok(Self {
            ifindex: interface.index,
            mac: interface.mac.map_or([0; 6], |mac| mac.octets()),
            sender,
            receiver,
            socket: waiting,
            scratch: vec![0; LARGEST_FRAME],
            out,
        })
    }

    fn send(&mut self, outgoing: Outgoing, moved: &mut FrameCounts) {
        let frame = self.out.get(..OFFLOAD_HEADER + outgoing.len);
        let Some(frame) = frame.filter(|_| outgoing.ifindex == self.ifindex) else {
            moved.refused += 1;
            return;
        };
        match self.sender.send_to(frame, None) {
            Some(Ok(())) => moved.sent += 1,
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => moved.congested += 1,
            Some(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => moved.congested += 1,
            _ => moved.refused += 1,
        }
    }
}

impl std::fmt::Debug for Pnet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pnet").field("ifindex", &self.ifindex).finish_non_exhaustive()
    }
}

impl FrameDriver for Pnet {
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let [ready] = readable([self.socket.as_fd()], timeout)?;
        // `pnet` neither clears nor reports a pending error of the socket.
        let outcome = if ready { take_error(self.socket.as_fd()) } else { Ok(()) };
        outcome.or_else(|error| survive_down(error, self.ifindex))
    }

    fn process_batch(
        &mut self,
        mut decide: impl FnMut(&Received<'_>, &mut [u8]) -> Option<Outgoing>,
    ) -> io::Result<FrameCounts> {
        let mut moved = FrameCounts::default();
        for _ in 0..BATCH {
            let outgoing = match self.receiver.next() {
                Ok(octets) => {
                    let Some((header, frame)) = octets.split_at_checked(OFFLOAD_HEADER) else { continue };
                    if is_foreign(frame, self.mac) {
                        moved.foreign += 1;
                        continue;
                    }
                    let offloads = Offloads::read(header);
                    let frame = finished(frame, offloads, &mut self.scratch);
                    moved.received += 1;
                    let room = &mut self.out[OFFLOAD_HEADER..];
                    decide(&Received { frame, merged: offloads.merged }, room)
                }
                Err(error) if is_empty(&error) => break,
                Err(error) => {
                    survive_down(error, self.ifindex)?;
                    break;
                }
            };
            if let Some(outgoing) = outgoing {
                self.send(outgoing, &mut moved);
            }
        }
        Ok(moved)
    }

    fn set_room(&mut self, octets: usize) {
        let len = OFFLOAD_HEADER + octets;
        self.out.resize(len.max(self.out.len()), 0);
    }

    /// `pnet` has no such query; the kernel counts by socket, and the socket is known here.
    fn lost(&self) -> io::Result<u64> {
        crate::host::sys::packet::arrivals(self.socket.as_fd()).map(|arrivals| arrivals.lost.into())
    }
}

/// Largest number of frames received before the counters are updated and a new table is used.
const BATCH: usize = 64;
/// Length of the largest merged frame with its headers, in octets.
const LARGEST_FRAME: usize = 65_536 + 256;
const ROOM: usize = 2048;
/// Size of the kernel's buffer for the socket, in octets.
const RECEIVE_BUFFER: i32 = 4 << 20;

/// The frame with its checksum finished, in `scratch` if it had to be changed.
fn finished<'a>(frame: &'a [u8], offloads: Offloads, scratch: &'a mut [u8]) -> &'a [u8] {
    let Some(partial) = offloads.partial else { return frame };
    let Some(copy) = scratch.get_mut(..frame.len()) else { return frame };
    copy.copy_from_slice(frame);
    unfinished::finish(copy, partial);
    copy
}

/// Whether a frame is for a single host other than this one.
fn is_foreign(frame: &[u8], own: [u8; 6]) -> bool {
    frame.first_chunk::<6>().is_some_and(|to| to[0] & 1 == 0 && *to != own)
}

fn find(name: &str) -> io::Result<NetworkInterface> {
    pnet::interfaces()
        .into_iter()
        .find(|interface| interface.name == name)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
}

/// Whether nothing can be read: `pnet` reports that by its own time-out or by the kernel's error. `Other`
/// means a pending error of the socket, which the next `wait` handles.
fn is_empty(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, Other, TimedOut, WouldBlock};
    matches!(error.kind(), TimedOut | WouldBlock | Interrupted | Other)
}
