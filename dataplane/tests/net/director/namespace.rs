//! Network namespaces that live as long as a thread.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use dataplane::host::sys::interface::Interface;
use dataplane::host::sys::thread::{enter_network, unshare_network};

/// Runs `test` in a thread with an empty network namespace of its own. Prints SKIPPED where that is
/// forbidden, but fails there where `CI=true`.
pub(crate) fn isolated(test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let outcome = scope.spawn(|| {
            if let Err(error) = unshare_network() {
                assert!(
                    std::env::var_os("CI").is_none_or(|ci| ci != "true"),
                    "no network namespace: {error}"
                );
                eprintln!("SKIPPED: no network namespace ({error}); run as root or under `unshare -Urn`");
                return;
            }
            ip("link set lo up");
            test();
        });
        if let Err(panic) = outcome.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// A second namespace, that the calling thread can visit.
#[derive(Debug)]
pub(crate) struct Peer {
    inside: File,
    home: File,
}

impl Peer {
    pub(crate) fn new() -> Self {
        let home = own_namespace();
        unshare_network().expect("a second namespace, as the first one worked");
        ip("link set lo up");
        let inside = own_namespace();
        enter_network(home.as_fd()).expect("the way back home");
        Self { inside, home }
    }

    /// Runs `visit` inside. Sockets that it opens stay there.
    pub(crate) fn visit<T>(&self, visit: impl FnOnce() -> T) -> T {
        enter_network(self.inside.as_fd()).expect("the peer's namespace");
        let result = visit();
        enter_network(self.home.as_fd()).expect("the way back home");
        result
    }

    /// A path by which `ip link set … netns` finds it.
    pub(crate) fn path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        format!("/proc/{}/fd/{}", std::process::id(), self.inside.as_raw_fd()).into()
    }
}

fn own_namespace() -> File {
    File::open("/proc/thread-self/ns/net").expect("a thread may open its own namespace")
}

/// Runs `ip` in the calling thread's namespace.
pub(crate) fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip (iproute2) runs");
    assert!(status.success(), "ip {arguments}: {status}");
}

/// Two ends of a cable in this namespace, up, quiet (no IPv6 of their own).
pub(crate) fn cable(a: &str, b: &str) {
    ip(&format!("link add {a} type veth peer name {b}"));
    for end in [a, b] {
        ip(&format!("link set {end} addrgenmode none up"));
    }
    [a, b].into_iter().for_each(wait_for);
}

/// A cable whose far end lies in the peer's namespace.
pub(crate) fn cable_to(peer: &Peer, near: &str, far: &str) {
    ip(&format!("link add {near} type veth peer name {far}"));
    ip(&format!("link set {near} addrgenmode none up"));
    ip(&format!("link set {far} netns {}", peer.path().display()));
    peer.visit(|| {
        ip(&format!("link set {far} addrgenmode none up"));
        wait_for(far);
    });
    wait_for(near);
}

/// Frames that are sent before an interface runs are lost.
fn wait_for(interface: &str) {
    Interface::wait_until_running(interface, Duration::from_secs(30)).expect("both ends are up");
}
