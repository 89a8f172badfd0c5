//! A TPACKET_V3 receive ring: memory that the kernel fills with frames, a block at a time, without a call a frame.
//!
//! ```text
//! map    │ block 0 │ block 1 │ … │ block n-1 │                            n × block_len octets, page aligned
//! block  │ u32 version · u32 offset_to_priv ┊ u32 status · u32 frames · u32 first · u32 len · … │ entries
//! entry  │ tpacket3_hdr 48 │ sockaddr_ll 20 │ … virtio_net_hdr 10 │ frame        next entry at +next_offset
//! ```
//!
//! Ownership of a block lies in its status word: 0 the kernel's, bit 0 set ours. It is read with Acquire and given
//! back with Release. While a block is ours the kernel does not touch it, so it can be a `&mut [u8]`; that is the
//! one thing that is taken on trust. Every number in it (count, offsets, lengths) is checked against the block: a
//! ring that lies loses its frames and is counted, nothing else.
//!
//! What the kernel took from the frame is put back, so that readers see it as it was on the wire: the VLAN tag that
//! receive offload stripped, and a TCP or UDP checksum that a local sender left to hardware that is not there.
//! Sources: packet(7), Documentation/networking/packet_mmap.rst, linux/if_packet.h, linux/virtio_net.h.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::packet::{Arrivals, Fanout, OFFLOAD_HEADER, PacketSocket, take_error};
use super::poll::readable;
use super::{Zeroable, set_option};
use crate::wire::unfinished;

/// How much memory a ring has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Octets; a multiple of the page size. Frames that are longer come cut.
    pub block_len: u32,
    /// How many of them.
    pub blocks: u32,
    /// Milliseconds after which the kernel hands over a block that is not full: the most that a frame waits.
    pub retire_millis: u32,
}

impl Default for Shape {
    /// 8 MiB. Many blocks rather than large ones: with little traffic each millisecond uses one up, so 128 of them
    /// bridge 128 ms in which the worker gets no CPU. With much traffic they hold about 40,000 small frames.
    fn default() -> Self {
        Self { block_len: 64 << 10, blocks: 128, retire_millis: 1 }
    }
}

/// A bound packet socket with its ring.
#[derive(Debug)]
pub struct Ring {
    map: Map,
    socket: PacketSocket,
    block_len: usize,
    blocks: usize,
    /// The block that the kernel fills next.
    next: usize,
}

impl Ring {
    /// Opens a ring on an interface, in a group if one is given. Frames that this host sends are not in it.
    pub fn open(ifindex: u32, shape: Shape, group: Option<&mut Fanout>) -> io::Result<Self> {
        let socket = PacketSocket::open()?;
        socket.ignore_outgoing()?;
        socket.report_offloads()?;
        let fd = socket.as_fd();
        set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V3)?;
        // Room before each frame in which a stripped VLAN tag fits.
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RESERVE, &RESERVE)?;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request(shape)?)?;
        let block_len = usize::try_from(shape.block_len).map_err(io::Error::other)?;
        let blocks = usize::try_from(shape.blocks).map_err(io::Error::other)?;
        let map = Map::of(fd, block_len * blocks)?;
        // Last, so that no frame comes before the ring is there, nor before the group is.
        socket.mute()?;
        socket.bind(ifindex)?;
        group.map_or(Ok(()), |group| group.join(socket.as_fd()))?;
        socket.unmute()?;
        Ok(Self { map, socket, block_len, blocks, next: 0 })
    }

    /// Waits until a block is filled, at most `timeout`. ENETDOWN once when the interface goes down or away.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        if self.is_ours(self.next) {
            return Ok(());
        }
        let [ready] = readable([self.socket.as_fd()], timeout)?;
        // Ready without a block: an error, which would keep the socket ready until it is taken.
        if ready && !self.is_ours(self.next) { take_error(self.socket.as_fd()) } else { Ok(()) }
    }

    /// The next block, if it is filled.
    pub fn block(&mut self) -> Option<Block<'_>> {
        if !self.is_ours(self.next) {
            return None;
        }
        let index = self.next;
        self.next = (index + 1) % self.blocks;
        Some(self.take(index))
    }

    /// What the kernel counted since it was last asked.
    pub fn arrivals(&self) -> io::Result<Arrivals> {
        self.socket.arrivals()
    }

    fn is_ours(&self, index: usize) -> bool {
        self.status(index).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The status word of a block, the one part of the map that both sides touch at once.
    fn status(&self, index: usize) -> &AtomicU32 {
        let at = index * self.block_len + STATUS_OFFSET;
        debug_assert!(at + 4 <= self.map.len);
        // SAFETY: callers pass `index < blocks`, so the offset lies inside the map, which `self` keeps alive.
        let word = unsafe { self.map.start.add(at) };
        // SAFETY: the map is page aligned and `at` a multiple of 4; no `&mut` covers this word (a block's slice
        // begins behind it), and the kernel accesses it as one aligned word.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    /// A block that is ours.
    fn take(&mut self, index: usize) -> Block<'_> {
        let at = index * self.block_len + BODY_OFFSET;
        debug_assert!(at - BODY_OFFSET + self.block_len <= self.map.len);
        // SAFETY: callers pass `index < blocks`, so the offset lies inside the map.
        let body = unsafe { self.map.start.add(at) };
        // SAFETY: the octets up to the block's end lie inside the map, which outlives the borrow of `self`; the
        // kernel leaves the block alone until its status word is given back, which `Block::drop` does last; and
        // `&mut self` means that no other block of this ring is held.
        let body = unsafe { std::slice::from_raw_parts_mut(body.as_ptr(), self.block_len - BODY_OFFSET) };
        Block { status: self.status(index), entries: Entries::of(body) }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A filled block. Dropping it gives it back to the kernel.
#[derive(Debug)]
pub struct Block<'ring> {
    status: &'ring AtomicU32,
    entries: Entries<'ring>,
}

impl Block<'_> {
    /// The next frame in it.
    pub fn frame(&mut self) -> Option<Frame<'_>> {
        self.entries.frame()
    }

    /// How many entries did not make sense so far. Zero, unless the kernel is broken.
    pub fn malformed(&self) -> u32 {
        self.entries.malformed
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        self.status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// A received frame, in the ring's own memory.
#[derive(Debug)]
pub struct Frame<'block> {
    /// From the destination MAC address on, VLAN tag included, checksums finished.
    pub bytes: &'block mut [u8],
    /// Several frames of one flow that some stage merged into one.
    pub merged: Merged,
    /// The frame was longer than the block could hold.
    pub cut: bool,
    /// Its destination is another host's address: a switch flooded it, or something listens to everything.
    pub foreign: bool,
}

/// The entries of a block: all parsing, no `unsafe`. Offsets count from the block's start.
#[derive(Debug)]
struct Entries<'ring> {
    body: &'ring mut [u8],
    left: u32,
    at: usize,
    malformed: u32,
}

impl<'ring> Entries<'ring> {
    fn of(body: &'ring mut [u8]) -> Self {
        let left = word(body, 0).unwrap_or(0);
        let at = offset(word(body, 4).unwrap_or(0));
        Self { body, left, at, malformed: 0 }
    }

    fn frame(&mut self) -> Option<Frame<'_>> {
        while self.left > 0 {
            self.left -= 1;
            let Some(entry) = Entry::read(self.body, self.at) else {
                // Without a header there is no next one either.
                self.malformed += 1 + self.left;
                self.left = 0;
                return None;
            };
            // An entry that points back would be read for ever, were `left` not counted down.
            self.at = self.at.saturating_add(entry.next);
            let range = entry.range(self.body);
            if range.is_none() {
                self.malformed += 1;
                continue;
            }
            return entry.frame(self.body);
        }
        None
    }
}

/// The parts of a `tpacket3_hdr` that are used.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where the entry begins in the body.
    at: usize,
    next: usize,
    captured: usize,
    on_wire: usize,
    status: u32,
    mac: usize,
    tci: u16,
    tpid: u16,
    kind: u8,
}

impl Entry {
    fn read(body: &[u8], at: usize) -> Option<Self> {
        let (header, address) = body.get(at..)?.split_first_chunk::<ENTRY_HEADER>()?;
        Some(Self {
            // `sll_pkttype`.
            kind: *address.get(10)?,
            at,
            next: offset_of(word(header, 0)?),
            captured: offset_of(word(header, 12)?),
            on_wire: offset_of(word(header, 16)?),
            status: word(header, 20)?,
            mac: usize::from(half(header, 24)?),
            // The kernel keeps the tag in 32 bits, of which 16 are used.
            tci: half_of(word(header, 32)?),
            tpid: half(header, 36)?,
        })
    }

    /// Where the frame lies in the body, if it lies there with its `virtio_net_hdr`, behind this entry's header.
    fn range(&self, body: &[u8]) -> Option<std::ops::Range<usize>> {
        if self.mac < ENTRY_HEADER + OFFLOAD_HEADER + VLAN_TAG || self.captured < ETHERNET {
            return None;
        }
        let start = self.at.checked_add(self.mac)?;
        let end = start.checked_add(self.captured)?;
        (end <= body.len()).then_some(start..end)
    }

    fn frame<'block>(&self, body: &'block mut [u8]) -> Option<Frame<'block>> {
        let range = self.range(body)?;
        let offloads = Offloads::read(body.get(range.start - OFFLOAD_HEADER..range.start)?);
        if let Some(partial) = offloads.partial {
            unfinished::finish(body.get_mut(range.clone())?, partial);
        }
        let start = self.restore_tag(body, range.start)?;
        let bytes = body.get_mut(start..range.end)?;
        let foreign = self.kind == libc::PACKET_OTHERHOST;
        Some(Frame { bytes, merged: offloads.merged, cut: self.captured < self.on_wire, foreign })
    }

    /// Puts a stripped VLAN tag back behind the MAC addresses, which move 4 octets to the front, over the
    /// `virtio_net_hdr`. Gives where the frame starts then.
    fn restore_tag(&self, body: &mut [u8], start: usize) -> Option<usize> {
        if self.status & libc::TP_STATUS_VLAN_VALID == 0 {
            return Some(start);
        }
        let tpid = if self.status & libc::TP_STATUS_VLAN_TPID_VALID == 0 { VLAN_TPID } else { self.tpid };
        let front = start - VLAN_TAG;
        body.copy_within(start..start + MAC_ADDRESSES, front);
        let tag = body.get_mut(front + MAC_ADDRESSES..front + MAC_ADDRESSES + VLAN_TAG)?;
        tag[..2].copy_from_slice(&tpid.to_be_bytes());
        tag[2..].copy_from_slice(&self.tci.to_be_bytes());
        Some(front)
    }
}

/// What a `virtio_net_hdr` says: u8 flags · u8 gso_type · u16 hdr_len · u16 gso_size · u16 csum_start ·
/// u16 csum_offset, in the byte order of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// A checksum is to be finished.
    pub partial: Option<unfinished::Partial>,
    /// Several frames in one.
    pub merged: Merged,
}

/// Whether a frame was several on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merged {
    /// It is as it was sent.
    #[default]
    No,
    /// Segments of a TCP stream. As one segment they mean the same.
    Segments,
    /// Datagrams. As one they mean something else.
    Datagrams,
}

impl Offloads {
    /// Reads the header; one that is too short says nothing.
    pub fn read(header: &[u8]) -> Self {
        let start = half(header, 6).map(usize::from);
        let field = half(header, 8).map(usize::from);
        let flagged = header.first().is_some_and(|flags| flags & VIRTIO_NEEDS_CSUM != 0);
        let partial = match (start, field) {
            (Some(start), Some(field)) if flagged => Some(unfinished::Partial { start, field }),
            _ => None,
        };
        // A bit for ECN may be set beside the kind.
        let merged = match header.get(1).map_or(0, |kind| kind & !VIRTIO_GSO_ECN) {
            0 => Merged::No,
            VIRTIO_GSO_TCPV4 | VIRTIO_GSO_TCPV6 => Merged::Segments,
            _ => Merged::Datagrams,
        };
        Self { partial, merged }
    }
}

/// The mapping, unmapped when dropped.
#[derive(Debug)]
struct Map {
    start: NonNull<u8>,
    len: usize,
}

impl Map {
    fn of(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: asks for new address space of the kernel's choice, so nothing that exists is replaced.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly what `of` mapped, once; every borrow of it ended with the ring that owns it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the map is owned by one ring, not tied to the thread that made it, and accessed through `&mut Ring` or
// through atomics alone.
unsafe impl Send for Map {}

fn request(shape: Shape) -> io::Result<libc::tpacket_req3> {
    let mut request = libc::tpacket_req3::zeroed();
    request.tp_block_size = shape.block_len;
    request.tp_block_nr = shape.blocks;
    // Version 3 packs frames of any size; the two frame numbers only have to agree with the blocks.
    request.tp_frame_size = FRAME_SIZE;
    let total = shape.block_len.checked_mul(shape.blocks).ok_or(io::ErrorKind::InvalidInput)?;
    request.tp_frame_nr = total / FRAME_SIZE;
    request.tp_retire_blk_tov = shape.retire_millis;
    Ok(request)
}

const FRAME_SIZE: u32 = 2048;
/// `block_status` in a `tpacket_block_desc`.
const STATUS_OFFSET: usize = 8;
/// What of a block is read as a slice begins behind the status word.
const BODY_OFFSET: usize = 12;
const ENTRY_HEADER: usize = 48;
const ETHERNET: usize = 14;
const MAC_ADDRESSES: usize = 12;
const VLAN_TAG: usize = 4;
const VLAN_TPID: u16 = 0x8100;
/// Octets asked for in front of each frame, on top of what the kernel needs: a multiple of 16 keeps its alignment.
const RESERVE: u32 = 16;
const VIRTIO_NEEDS_CSUM: u8 = 1;
const VIRTIO_GSO_TCPV4: u8 = 1;
const VIRTIO_GSO_TCPV6: u8 = 4;
const VIRTIO_GSO_ECN: u8 = 0x80;

/// An offset that the kernel counts from the start of the block, as one into the body. What lies before the body
/// becomes one that no check lets pass.
fn offset(from_block: u32) -> usize {
    offset_of(from_block).checked_sub(BODY_OFFSET).unwrap_or(usize::MAX)
}

fn offset_of(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn half_of(value: u32) -> u16 {
    let [a, b, c, d] = value.to_be_bytes();
    let _unused = (a, b);
    u16::from_be_bytes([c, d])
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
