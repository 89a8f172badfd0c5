//! Memory of BPF arrays, written without a system call per entry; and the wait until no program runs any more that
//! could have read what was replaced.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// Copies `bytes` into the memory of an array that was made with `BPF_F_MMAPABLE`, at `offset`.
///
/// A program that reads the same entries meanwhile may see a mixture: write only what no program reads yet.
pub fn fill(map: BorrowedFd<'_>, offset: usize, bytes: &[u8]) -> io::Result<()> {
    let end = offset.checked_add(bytes.len()).ok_or(io::ErrorKind::InvalidInput)?;
    if bytes.is_empty() {
        return Ok(());
    }
    // SAFETY: a fresh shared mapping at a place of the kernel's choice, of a file that is open; nothing else is
    // touched. The kernel refuses a length that the array does not have.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            end,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            map.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `offset` lies within the mapping, whose length is `end`.
    let to = unsafe { start.cast::<u8>().add(offset) };
    // SAFETY: `bytes.len()` octets lie behind `to`, up to the mapping's end; no Rust reference to them exists, and
    // `bytes` is ours, so they do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    // SAFETY: the mapping made above, with its length; no pointer into it is used after this.
    check(unsafe { libc::munmap(start, end) }).map(drop)
}

/// Returns after every BPF program that ran when it was called has ended: programs run between two quiescent states
/// of a CPU, and this waits for one of each (membarrier(2), which is `synchronize_rcu` in the kernel).
pub fn wait_for_programs() -> io::Result<()> {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: takes and gives integers alone.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
