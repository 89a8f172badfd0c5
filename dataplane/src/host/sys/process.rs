//! Child processes that end with their parent, signals to them, and user namespaces.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal};

use super::thread::{Unshared, unshare};

/// Makes the kernel kill the child when the *thread* that starts it ends, for any reason.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let hook = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: the hook runs between fork and exec, where only async-signal-safe calls are allowed. It makes
    // one prctl(2) call without allocation and converts its error number.
    unsafe { command.pre_exec(hook) }
}

/// Sends SIGTERM: the request to stop gracefully.
pub fn terminate(child: &Child) -> io::Result<()> {
    signal(child, Signal::TERM)
}

/// Sends SIGHUP: the request to read the configuration again.
pub fn reload(child: &Child) -> io::Result<()> {
    signal(child, Signal::HUP)
}

/// Sends SIGUSR1: the request to print the counters.
pub fn report(child: &Child) -> io::Result<()> {
    signal(child, Signal::USR1)
}

/// The kernel keeps the child's process id until the parent has waited for it, so the id belongs to `child`
/// unless the caller has already waited.
fn signal(child: &Child, signal: Signal) -> io::Result<()> {
    Ok(rustix::process::kill_process(Pid::from_child(child), signal)?)
}

/// The effective user id of the process.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Makes the calling process root in a new user namespace, where it may create network namespaces. Call it
/// before the process starts a second thread: the kernel refuses it afterwards.
pub fn become_root_of_own_namespace() -> io::Result<()> {
    let (uid, gid) = (user(), rustix::process::getegid().as_raw());
    unshare(Unshared::User)?;
    // The kernel accepts a group map only after the process has given up setgroups(2) (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::thread;

    use super::*;

    fn sleeper() -> Command {
        let mut command = Command::new("sleep");
        command.arg("60");
        command
    }

    #[test]
    fn each_request_is_its_signal() {
        let requests = [terminate, reload, report];
        for (send, number) in requests.iter().zip([libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1]) {
            let mut child = sleeper().spawn().unwrap();
            send(&child).unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(number));
        }
    }

    #[test]
    fn the_child_is_killed_when_the_thread_that_started_it_ends() {
        let mut child = thread::spawn(|| die_with_parent(&mut sleeper()).spawn().unwrap()).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
