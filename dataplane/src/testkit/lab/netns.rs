//! A network namespace and the thread that runs in it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::process::{self, Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::host::sys::interface::{Interface, Offload};
use crate::host::sys::process::die_with_parent;
use crate::host::sys::thread::unshare_network;

/// A network namespace without a name. Its thread runs closures; threads and programs that these start are in
/// the namespace, too.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: OwnedFd,
    jobs: Sender<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

/// Time limit for a new cable on a machine that creates many.
const PATIENCE: Duration = Duration::from_secs(30);

impl Namespace {
    /// Needs CAP_SYS_ADMIN in the process's user namespace. `name` is for messages.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let (jobs, todo) = channel::<Job>();
        let (ready, result) = channel();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || live(&todo, &ready))
            .context("a thread")?;
        let file = result.recv().context("the namespace's thread")?.context("a network namespace")?;
        let namespace = Self { name: name.to_owned(), file, jobs };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// The name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` in the namespace and waits for it. A panic there is propagated.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let job = move || drop(done.send(panic::catch_unwind(AssertUnwindSafe(work))));
        let sent = self.jobs.send(Box::new(job));
        match (sent, result.recv()) {
            (Ok(()), Ok(Ok(value))) => value,
            (_, Ok(Err(payload))) => panic::resume_unwind(payload),
            // The thread ends only when the sender in `self` is dropped.
            _ => unreachable!("the thread of {} lives as long as its namespace", self.name),
        }
    }

    /// Waits until an interface here and its peer are up.
    pub fn wait_for(&self, interface: &str) -> anyhow::Result<()> {
        let name = interface.to_owned();
        self.run(move || Interface::wait_until_running(&name, PATIENCE))
            .with_context(|| format!("in {}: {interface}", self.name))
    }

    /// Runs `ip -batch` with these lines.
    pub fn ip(&self, lines: &str) -> anyhow::Result<()> {
        let batch = lines.to_owned();
        self.run(move || ip_batch(&batch)).with_context(|| format!("in {}: ip {lines}", self.name))
    }

    /// Runs a command as an operator types it.
    pub fn shell(&self, command: &str) -> anyhow::Result<()> {
        let line = command.to_owned();
        self.run(move || {
            let mut command = Command::new("sh");
            command.args(["-ec", &line]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            succeed(die_with_parent(&mut command).spawn()?)
        })
        .with_context(|| format!("in {}: {command}", self.name))
    }

    /// Writes `value` to `/proc/sys/net/KEY` of the namespace.
    pub fn sysctl(&self, key: &str, value: &str) -> anyhow::Result<()> {
        let (path, text) = (format!("/proc/sys/net/{key}"), value.to_owned());
        self.run({
            let path = path.clone();
            move || fs::write(path, text)
        })
        .with_context(|| format!("in {}: {path} = {value}", self.name))
    }

    /// Connects this namespace (`here`) and `other` (`there`) with a pair of Ethernet interfaces, still down.
    /// Their frames have the size that they would have on a wire: none is merged. As on any veth, the kernel
    /// does not finish their transport checksums.
    pub fn connect(&self, here: &str, other: &Self, there: &str, mtu: u32) -> anyhow::Result<()> {
        let (pid, fd) = (process::id(), other.file.as_raw_fd());
        self.ip(&format!(
            "link add {here} mtu {mtu} type veth peer name {there} mtu {mtu} netns /proc/{pid}/fd/{fd}"
        ))?;
        for (namespace, interface) in [(self, here), (other, there)] {
            let name = interface.to_owned();
            namespace
                .run(move || {
                    [Offload::Tso, Offload::Gso, Offload::Gro]
                        .iter()
                        .try_for_each(|offload| offload.switch(&name, false))
                })
                .with_context(|| format!("in {}: offloads of {interface}", namespace.name))?;
        }
        Ok(())
    }

    /// Makes the kernel here finish the transport checksums of frames that it sends on this interface, as on
    /// a wire.
    pub fn finish_checksums(&self, interface: &str) -> anyhow::Result<()> {
        let name = interface.to_owned();
        self.run(move || Offload::TxChecksum.switch(&name, false))
            .with_context(|| format!("in {}: offloads of {interface}", self.name))
    }
}

fn live(todo: &Receiver<Job>, ready: &Sender<io::Result<OwnedFd>>) {
    let namespace =
        unshare_network().and_then(|()| File::open("/proc/thread-self/ns/net")).map(OwnedFd::from);
    let failed = namespace.is_err();
    if ready.send(namespace).is_err() || failed {
        return;
    }
    while let Ok(job) = todo.recv() {
        job();
    }
}

fn ip_batch(lines: &str) -> anyhow::Result<()> {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = die_with_parent(&mut command).spawn().context("iproute2 is needed")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.as_bytes())?;
    }
    succeed(child)
}

fn succeed(child: Child) -> anyhow::Result<()> {
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
