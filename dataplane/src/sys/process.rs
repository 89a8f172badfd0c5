//! Child processes that cannot outlive us, and user namespaces.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use super::check;

/// The child is killed when the *thread* that starts it ends, however that comes about.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let hook = || {
        let signal = libc::c_ulong::try_from(libc::SIGKILL).unwrap_or(9);
        // SAFETY: takes integers alone.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) }).map(drop)
    };
    // SAFETY: the hook runs between fork and exec, where only async-signal-safe calls are allowed; prctl is one, and
    // nothing else happens there but reading `errno`.
    unsafe { command.pre_exec(hook) }
}

/// SIGTERM: the request to stop gracefully.
pub fn terminate(child: &Child) -> io::Result<()> {
    signal(child, libc::SIGTERM)
}

/// SIGHUP: the request to read the configuration again.
pub fn reload(child: &Child) -> io::Result<()> {
    signal(child, libc::SIGHUP)
}

/// SIGUSR1: the request to print the counters.
pub fn report(child: &Child) -> io::Result<()> {
    signal(child, libc::SIGUSR1)
}

fn signal(child: &Child, number: libc::c_int) -> io::Result<()> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    // SAFETY: takes integers alone. The child has not been waited for, so its number is still its own.
    check(unsafe { libc::kill(pid, number) }).map(drop)
}

/// The user that the process acts as.
pub fn user() -> u32 {
    // SAFETY: takes nothing and gives an integer; cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes the calling process root in a user namespace of its own, where it may make network namespaces. Call it
/// before there is a second thread.
pub fn become_root_of_own_namespace() -> io::Result<()> {
    // SAFETY: takes nothing and gives an integer; cannot fail.
    let (uid, gid) = (user(), unsafe { libc::getegid() });
    // SAFETY: takes and gives integers alone, and changes the calling process only.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER) })?;
    // A group map is accepted only once the process cannot drop groups any more (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}
