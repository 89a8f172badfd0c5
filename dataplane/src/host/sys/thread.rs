//! CPU affinity, network namespace and clocks of the calling thread.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::thread::{CpuSet, LinkNameSpaceType, UnshareFlags};
use rustix::time::ClockId;

/// The CPUs on which the calling thread may run, in ascending order.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Binds the calling thread to one CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Moves the calling thread into a new network namespace, which contains only `lo`. Needs CAP_SYS_ADMIN.
pub fn unshare_network() -> io::Result<()> {
    unshare(Unshared::Network)
}

/// Moves the calling thread into an existing network namespace. `namespace` is an open `/proc/…/ns/net`.
pub fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
}

/// The kind of namespace that [`unshare`] creates.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unshared {
    /// CLONE_NEWNET
    Network,
    /// CLONE_NEWUSER
    User,
}

/// Moves the calling thread into a new namespace.
pub(super) fn unshare(kind: Unshared) -> io::Result<()> {
    let flags = match kind {
        Unshared::Network => UnshareFlags::NEWNET,
        Unshared::User => UnshareFlags::NEWUSER,
    };
    // SAFETY: only CLONE_FILES can invalidate descriptors of other threads, and no `Unshared` maps to it.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Time of the monotonic clock. The BPF programs use the same clock for their timestamps.
pub fn monotonic() -> io::Result<Duration> {
    clock(ClockId::Monotonic)
}

/// CPU time that the calling thread has used. Unlike wall time, it does not depend on the load of the
/// machine.
pub fn cpu_time() -> io::Result<Duration> {
    clock(ClockId::ThreadCPUTime)
}

fn clock(id: ClockId) -> io::Result<Duration> {
    Duration::try_from(rustix::time::clock_gettime(id)).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_pinned_thread_is_allowed_on_that_cpu_only() {
        let cpu = *allowed_cpus().unwrap().last().unwrap();
        let pinned = thread::spawn(move || pin(cpu).and_then(|()| allowed_cpus())).join().unwrap();
        assert_eq!(pinned.unwrap(), [cpu]);
    }

    #[test]
    fn a_cpu_number_outside_of_the_set_is_an_error() {
        for cpu in [CpuSet::MAX_CPU, usize::MAX] {
            assert_eq!(pin(cpu).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn the_monotonic_clock_counts_sleep_and_the_cpu_clock_does_not() {
        let (wall, cpu) = (monotonic().unwrap(), cpu_time().unwrap());
        thread::sleep(Duration::from_millis(50));
        assert!(monotonic().unwrap() - wall >= Duration::from_millis(50));
        assert!(cpu_time().unwrap() - cpu < Duration::from_millis(50));
    }
}
