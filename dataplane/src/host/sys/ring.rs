//! A TPACKET_V3 receive ring: memory that the kernel fills with frames, block by block, without a system call
//! per frame.
//!
//! ```text
//! map    │ block 0 │ block 1 │ … │ block n-1 │                            n × block_len octets, page aligned
//! block  │ u32 version · u32 offset_to_priv ┊ u32 status · u32 frames · u32 first · u32 len · … │ entries
//! entry  │ tpacket3_hdr 48 │ sockaddr_ll 20 │ … virtio_net_hdr 10 │ frame        next entry at +next_offset
//! ```
//!
//! The status word of a block shows its owner: 0 is the kernel, bit 0 is this program. It is read with
//! Acquire and released with Release. While this program owns a block the kernel does not write to it, so it
//! can be a `&mut [u8]`. That is the only assumption about the kernel. Every number in a block (count,
//! offsets, lengths) is checked against the block's length: invalid entries are counted and lost, nothing
//! else.
//! The code restores what the kernel removed from a frame, so that readers see it as it was on the wire: the
//! VLAN tag that receive offload stripped, and a TCP or UDP checksum that a local sender left to hardware
//! that does not exist.
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

/// The size of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Length of a block in octets; a multiple of the page size. Longer frames are truncated.
    pub block_len: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// Milliseconds after which the kernel releases a block that is not full: the longest time that a frame
    /// waits.
    pub retire_millis: u32,
}

impl Default for Shape {
    /// 8 MiB, in many small blocks: with little traffic each millisecond uses a block, so 128 of them cover
    /// 128 ms in which the worker gets no CPU. With much traffic they hold about 40,000 small frames.
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
    /// Opens a ring on an interface, in a fanout group if given. Excludes frames that this host sends.
    pub fn open(ifindex: u32, shape: Shape, group: Option<&mut Fanout>) -> io::Result<Self> {
        let socket = PacketSocket::open()?;
        socket.ignore_outgoing()?;
        socket.report_offloads()?;
        let fd = socket.as_fd();
        set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V3)?;
        // Room in front of each frame for a stripped VLAN tag.
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RESERVE, &RESERVE)?;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request(shape)?)?;
        let block_len = usize::try_from(shape.block_len).map_err(io::Error::other)?;
        let blocks = usize::try_from(shape.blocks).map_err(io::Error::other)?;
        let map = Map::of(fd, block_len * blocks)?;
        // Last, so that no frame arrives before the ring and the group are set up.
        socket.mute()?;
        socket.bind(ifindex)?;
        group.map_or(Ok(()), |group| group.join(socket.as_fd()))?;
        socket.unmute()?;
        Ok(Self { map, socket, block_len, blocks, next: 0 })
    }

    /// Waits until a block is filled, for at most `timeout`. Returns ENETDOWN once when the interface goes
    /// down or is removed.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        if self.is_ours(self.next) {
            return Ok(());
        }
        let [ready] = readable([self.socket.as_fd()], timeout)?;
        // Ready without a block means an error. It would keep the socket ready until it is cleared.
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

    /// The kernel's counters since the last query.
    pub fn arrivals(&self) -> io::Result<Arrivals> {
        self.socket.arrivals()
    }

    fn is_ours(&self, index: usize) -> bool {
        self.status(index).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The status word of a block, the only part of the map that both sides access concurrently.
    fn status(&self, index: usize) -> &AtomicU32 {
        let offset = index * self.block_len + STATUS_OFFSET;
        debug_assert!(offset + 4 <= self.map.len);
        // SAFETY: callers pass `index < blocks`, so the offset lies inside the map, which `self` keeps alive.
        let word = unsafe { self.map.start.add(offset) };
        // SAFETY: the map is page aligned and `offset` is a multiple of 4; no `&mut` covers this word (a
        // block's slice begins after it), and the kernel accesses it as one aligned word.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    /// A block that this program owns.
    fn take(&mut self, index: usize) -> Block<'_> {
        let offset = index * self.block_len + BODY_OFFSET;
        debug_assert!(offset - BODY_OFFSET + self.block_len <= self.map.len);
        // SAFETY: callers pass `index < blocks`, so the offset lies inside the map.
        let body = unsafe { self.map.start.add(offset) };
        // SAFETY: the octets up to the block's end are inside the map, which outlives the borrow of `self`.
        // The kernel does not access the block until its status word is released, which `Block::drop` does
        // last. `&mut self` means that no other block of this ring is borrowed.
        let body = unsafe { std::slice::from_raw_parts_mut(body.as_ptr(), self.block_len - BODY_OFFSET) };
        Block { status: self.status(index), entries: Entries::of(body) }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A filled block. Dropping it returns it to the kernel.
#[derive(Debug)]
pub struct Block<'ring> {
    status: &'ring AtomicU32,
    entries: Entries<'ring>,
}

impl Block<'_> {
    /// The next frame of the block.
    pub fn frame(&mut self) -> Option<Frame<'_>> {
        self.entries.frame()
    }

    /// Number of invalid entries so far. Zero, unless the kernel has a bug.
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
    /// Whether it was merged from several frames of a flow.
    pub merged: Merged,
    /// Whether the frame was truncated because the block had no room for it.
    pub cut: bool,
    /// Whether its destination is another host's address: a switch flooded it, or the interface is in
    /// promiscuous mode.
    pub foreign: bool,
}

/// Parses the entries of a block, without `unsafe`. Offsets count from the start of `body`.
#[derive(Debug)]
struct Entries<'ring> {
    body: &'ring mut [u8],
    left: u32,
    offset: usize,
    malformed: u32,
}

impl<'ring> Entries<'ring> {
    fn of(body: &'ring mut [u8]) -> Self {
        let left = word(body, 0).unwrap_or(0);
        let offset = offset(word(body, 4).unwrap_or(0));
        Self { body, left, offset, malformed: 0 }
    }

    fn frame(&mut self) -> Option<Frame<'_>> {
        while self.left > 0 {
            self.left -= 1;
            let Some(entry) = Entry::read(self.body, self.offset) else {
                // Without a valid header the next entry cannot be found.
                self.malformed += 1 + self.left;
                self.left = 0;
                return None;
            };
            // `left` bounds the loop, also for an entry that points to an earlier one.
            self.offset = self.offset.saturating_add(entry.next);
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

/// The fields of a `tpacket3_hdr` in use.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Offset of the entry in the body.
    offset: usize,
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
    fn read(body: &[u8], offset: usize) -> Option<Self> {
        let (header, address) = body.get(offset..)?.split_first_chunk::<ENTRY_HEADER>()?;
        Some(Self {
            // `sll_pkttype`.
            kind: *address.get(10)?,
            offset,
            next: offset_of(word(header, 0)?),
            captured: offset_of(word(header, 12)?),
            on_wire: offset_of(word(header, 16)?),
            status: word(header, 20)?,
            mac: usize::from(half(header, 24)?),
            // The kernel stores the tag in 32 bits and uses 16 of them.
            tci: half_of(word(header, 32)?),
            tpid: half(header, 36)?,
        })
    }

    /// The frame's range in the body, if it is inside the body, with its `virtio_net_hdr`, after this entry's
    /// header.
    fn range(&self, body: &[u8]) -> Option<std::ops::Range<usize>> {
        if self.mac < ENTRY_HEADER + OFFLOAD_HEADER + VLAN_TAG || self.captured < ETHERNET {
            return None;
        }
        let start = self.offset.checked_add(self.mac)?;
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

    /// Restores a stripped VLAN tag after the MAC addresses, which move 4 octets to the front, over the
    /// `virtio_net_hdr`. Returns the new start of the frame.
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

/// The content of a `virtio_net_hdr`: u8 flags · u8 gso_type · u16 hdr_len · u16 gso_size · u16 csum_start ·
/// u16 csum_offset, in the byte order of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// The checksum that must be finished, if any.
    pub partial: Option<unfinished::Partial>,
    /// Whether the frame was merged from several.
    pub merged: Merged,
}

/// Whether a frame was merged from several frames on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merged {
    /// Not merged.
    #[default]
    No,
    /// Merged from segments of a TCP stream: the meaning is the same.
    Segments,
    /// Merged from datagrams: the meaning differs.
    Datagrams,
}

impl Offloads {
    /// Reads the header; a header that is too short counts as empty.
    pub fn read(header: &[u8]) -> Self {
        let start = half(header, 6).map(usize::from);
        let field = half(header, 8).map(usize::from);
        let flagged = header.first().is_some_and(|flags| flags & VIRTIO_NEEDS_CSUM != 0);
        let partial = match (start, field) {
            (Some(start), Some(field)) if flagged => Some(unfinished::Partial { start, field }),
            _ => None,
        };
        // The kind may have an additional bit for ECN.
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
        // SAFETY: a new mapping at an address that the kernel chooses; no existing memory is replaced.
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
        // SAFETY: exactly the mapping that `of` created, unmapped once; every borrow of it ended with the
        // ring that owns it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: a single ring owns the map, it is not tied to the thread that created it, and accesses go through
// `&mut Ring` or atomics.
unsafe impl Send for Map {}

fn request(shape: Shape) -> io::Result<libc::tpacket_req3> {
    let mut request = libc::tpacket_req3::zeroed();
    request.tp_block_size = shape.block_len;
    request.tp_block_nr = shape.blocks;
    // Version 3 packs frames of any size; the two frame fields only have to match the blocks.
    request.tp_frame_size = FRAME_SIZE;
    let total = shape.block_len.checked_mul(shape.blocks).ok_or(io::ErrorKind::InvalidInput)?;
    request.tp_frame_nr = total / FRAME_SIZE;
    request.tp_retire_blk_tov = shape.retire_millis;
    Ok(request)
}

const FRAME_SIZE: u32 = 2048;
/// `block_status` in a `tpacket_block_desc`.
const STATUS_OFFSET: usize = 8;
/// Start of the part of a block that is read as a slice: after the status word.
const BODY_OFFSET: usize = 12;
const ENTRY_HEADER: usize = 48;
const ETHERNET: usize = 14;
const MAC_ADDRESSES: usize = 12;
const VLAN_TAG: usize = 4;
const VLAN_TPID: u16 = 0x8100;
/// Octets requested in front of each frame in addition to the kernel's own; a multiple of 16 keeps its
/// alignment.
const RESERVE: u32 = 16;
const VIRTIO_NEEDS_CSUM: u8 = 1;
const VIRTIO_GSO_TCPV4: u8 = 1;
const VIRTIO_GSO_TCPV6: u8 = 4;
const VIRTIO_GSO_ECN: u8 = 0x80;

/// Converts an offset from the start of the block to one in the body. An offset before the body becomes
/// `usize::MAX`, which fails every check.
fn offset(from_block: u32) -> usize {
    offset_of(from_block).checked_sub(BODY_OFFSET).unwrap_or(usize::MAX)
}

fn offset_of(value: u32) -> usize {
    value as usize
}

fn half_of(value: u32) -> u16 {
    let [a, b, c, d] = value.to_be_bytes();
    let _unused = (a, b);
    u16::from_be_bytes([c, d])
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn half(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
