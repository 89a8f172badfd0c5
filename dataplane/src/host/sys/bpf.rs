//! Memory of BPF arrays, written without a system call per entry; and a function that waits until no running
//! program can still read replaced data.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::check;

/// Copies `bytes` into the memory of an array that was created with `BPF_F_MMAPABLE`, at `offset`.
///
/// A program that reads the same entries meanwhile may see a mixture: write only entries that no program
/// reads.
pub fn fill(map: BorrowedFd<'_>, offset: usize, bytes: &[u8]) -> io::Result<()> {
    let end = offset.checked_add(bytes.len()).ok_or(io::ErrorKind::InvalidInput)?;
    if bytes.is_empty() {
        return Ok(());
    }
    let start = map_shared(map, end)?;
    // SAFETY: `offset` lies within the mapping, whose length is `end`.
    let to = unsafe { start.cast::<u8>().add(offset) };
    // SAFETY: `to` has `bytes.len()` octets up to the mapping's end; no Rust reference to them exists.
    // `bytes` is memory of this process outside the mapping, so they do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    // SAFETY: the mapping made above, with its length; no pointer into it is used after this.
    check(unsafe { libc::munmap(start, end) }).map(drop)
}

/// The memory of an array of 64-bit words that was created with `BPF_F_MMAPABLE`; programs read and write it
/// concurrently. It stays valid after the array's last program and descriptor are gone.
#[derive(Debug)]
pub struct Words {
    start: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: the memory is not tied to a thread, and all accesses are atomic operations.
unsafe impl Send for Words {}
// SAFETY: as above; a shared reference exposes only shared references to atomics.
unsafe impl Sync for Words {}

impl Words {
    /// The first `len` words of an array.
    pub fn map(map: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let octets = len.checked_mul(size_of::<u64>()).filter(|octets| *octets > 0);
        let start = map_shared(map, octets.ok_or(io::ErrorKind::InvalidInput)?)?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, len })
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `start` is the start of a page, and `len` words of the mapping follow it until it is
        // dropped. Any octets are a valid value, and all users of the memory access it by single instructions
        // of that width.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` created, with its length; no reference into it outlives this value.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.len * size_of::<u64>()) };
    }
}

/// Maps the first `len` octets of an array.
fn map_shared(map: BorrowedFd<'_>, len: usize) -> io::Result<*mut libc::c_void> {
    // SAFETY: a new shared mapping, at an address that the kernel chooses, of an open file; no existing
    // memory is changed. The kernel refuses a length that the array does not have.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            map.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start) }
}

/// Returns after every BPF program that was running at the time of the call has ended. Programs run between
/// two quiescent states of a CPU, and this call waits for a quiescent state of each (membarrier(2), which is
/// `synchronize_rcu` in the kernel).
pub fn wait_for_programs() -> io::Result<()> {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: the call takes and returns integers only.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
