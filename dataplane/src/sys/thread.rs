//! CPUs and namespaces of the calling thread.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Zeroable, check};

/// The CPUs that the calling thread may run on, ascending.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let mut set = libc::cpu_set_t::zeroed();
    // SAFETY: the kernel writes at most the size told, which is that of `set`. 0 is the calling thread.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) })?;
    Ok((0..CPU_LIMIT).filter(|&cpu| holds(&set, cpu)).collect())
}

/// Binds the calling thread to one CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CPU_LIMIT {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = libc::cpu_set_t::zeroed();
    // SAFETY: `cpu` was checked to lie inside the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the kernel reads `set`, whose size is told truly. 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) }).map(drop)
}

/// Moves the calling thread into a network namespace of its own, empty but for `lo`. Needs CAP_SYS_ADMIN.
pub fn unshare_network() -> io::Result<()> {
    // SAFETY: takes and gives integers alone, and changes the calling thread only.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}

/// Moves the calling thread into the network namespace that `namespace` (an open `/proc/…/ns/net`) names.
pub fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes and gives integers alone, and changes the calling thread only.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Bits in a `cpu_set_t`.
const CPU_LIMIT: usize = libc::CPU_SETSIZE as usize;

fn holds(set: &libc::cpu_set_t, cpu: usize) -> bool {
    // SAFETY: callers pass `cpu < CPU_LIMIT`, which lies inside the set.
    unsafe { libc::CPU_ISSET(cpu, set) }
}

/// The monotonic clock, by which the kernel's programs date what they count.
pub fn monotonic() -> io::Result<std::time::Duration> {
    clock(libc::CLOCK_MONOTONIC)
}

/// Time for which the calling thread has had a CPU: what a measurement on a busy machine should count.
pub fn cpu_time() -> io::Result<std::time::Duration> {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(which: libc::clockid_t) -> io::Result<std::time::Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills one `timespec`, which lives through the call.
    check(unsafe { libc::clock_gettime(which, &raw mut time) })?;
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Ok(std::time::Duration::new(seconds, nanos))
}
