//! Opens the sockets, starts the workers, and waits for signals.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use arc_swap::ArcSwap;

use super::clients::HostAddresses;
use super::config::RedirectConfig;
use super::counters::{Counters, Report};
use super::drops::SocketDrops;
use super::kernel_path::KernelPath;
use super::recent::RecentSyns;
use super::worker::Worker;
use crate::control::console::{self, show};
use crate::control::socket::{Control, Format};
use crate::host::route::LocalTable;
use crate::host::sys::signal::{Signal, Signals};
use crate::host::sys::thread::monotonic;
use crate::host::sys::{datagram, poll};

/// How long a worker waits for packets before it checks whether it should stop.
const PATIENCE: Duration = Duration::from_millis(100);

/// Runs until SIGTERM or SIGINT; prints the counters then, and on SIGUSR1.
pub fn run(config: RedirectConfig, json: bool) -> anyhow::Result<()> {
    let signals = Signals::block().context("signals")?;
    for vip in missing_vips(&config) {
        log(format_args!(
            "VIP {vip} is not an address of this host, its accepted packets are lost: ip address add {vip} dev lo"
        ));
    }
    let listen = config.listen;
    let control = config.control.as_deref().map(bind_control).transpose()?;
    let redirector = Redirector::start(config)?;
    log(format_args!("listening on UDP {listen}"));
    console::ready();
    let stop = AtomicBool::new(false);
    let waited = thread::scope(|scope| {
        if let Some(control) = &control {
            let (redirector, stop) = (&redirector, &stop);
            let answer = move |format| written(&redirector.report(), format);
            scope.spawn(move || {
                if let Err(error) = control.serve(stop, answer) {
                    log(format_args!("control socket: {error}"));
                }
            });
        }
        let waited = wait(&redirector, &signals, json);
        stop.store(true, Ordering::Relaxed);
        waited
    });
    let (report, result) = redirector.stop();
    print(&report, json);
    waited.and(result)
}

/// Waits until a signal or a failed worker ends the program.
fn wait(redirector: &Redirector, signals: &Signals, json: bool) -> anyhow::Result<()> {
    while !redirector.stopped() {
        redirector.follow_network();
        poll::readable([signals.as_fd()], PATIENCE)?;
        match signals.next()? {
            Some(Signal::Stop) => break,
            Some(Signal::Report) => print(&redirector.report(), json),
            Some(Signal::Reload) | None => {}
        }
    }
    Ok(())
}

fn bind_control(path: &Path) -> anyhow::Result<Control> {
    Control::bind(path).with_context(|| format!("control: {}", path.display()))
}

/// The workers and their shared state.
#[derive(Debug)]
pub struct Redirector {
    shared: Arc<Shared>,
    local: Mutex<LocalTable>,
    kernel_path: Mutex<Option<KernelPath>>,
    drops: SocketDrops,
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: RedirectConfig,
    pub(super) own: ArcSwap<HostAddresses>,
    pub(super) syns: RecentSyns,
    counters: Vec<Arc<Counters>>,
    stop: AtomicBool,
    start: Instant,
}

impl Shared {
    /// Milliseconds since the start.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis())
            .expect("invariant: no process runs for 584 million years")
    }
}

impl Redirector {
    /// Opens all sockets in the caller's network namespace, then starts the threads.
    pub fn start(config: RedirectConfig) -> anyhow::Result<Self> {
        let workers = usize::from(config.workers);
        let mut local = LocalTable::open().context("this host's addresses")?;
        let own = read_own(&mut local).context("this host's addresses")?;
        let shared = Arc::new(Shared {
            config,
            own: ArcSwap::from_pointee(own),
            syns: RecentSyns::new(monotonic()?),
            counters: (0..workers).map(|_| Arc::default()).collect(),
            stop: AtomicBool::new(false),
            start: Instant::now(),
        });
        let ready = shared.counters.iter().map(|own| Worker::new(Arc::clone(&shared), Arc::clone(own)));
        let ready: Vec<_> =
            ready.collect::<Result<_, _>>().context("raw sockets (this needs CAP_NET_RAW)")?;
        let servers = open(shared.config.listen, workers)?;
        let drops = SocketDrops::of(&servers).context("UDP sockets")?;
        let kernel_path = Mutex::new(KernelPath::start(&shared)?);
        let threads = ready.into_iter().zip(servers).enumerate().map(|(index, (worker, server))| {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name(format!("redirect-{index}"))
                .spawn(move || work(&shared, worker, &server))
        });
        let threads = threads.collect::<Result<_, _>>().context("threads")?;
        Ok(Self { shared, local: Mutex::new(local), kernel_path, drops, threads })
    }

    /// Whether a worker has failed.
    pub fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// A report of all counters until now.
    pub fn report(&self) -> Report {
        let now_ms = self.shared.now_ms();
        let mut report = Report { running_ms: now_ms, lost: self.drops.total(), ..Report::default() };
        self.shared.counters.iter().for_each(|counters| report.add(counters, now_ms));
        if let Some(kernel_path) = self.kernel_path().as_ref() {
            kernel_path.report(&mut report);
        }
        report
    }

    /// Reads the sockets' drop counters and, if they may have changed, this host's addresses, and updates the
    /// kernel path with the addresses and next hops. The caller calls it periodically. If the kernel path
    /// cannot be updated, it ends and the socket takes all packets.
    pub fn follow_network(&self) {
        self.drops.total();
        if let Err(error) = self.follow_addresses() {
            log(format_args!("cannot read this host's addresses, the previous ones stay in use: {error}"));
        }
        if self.kernel_path().is_none() {
            return;
        }
        let report = self.report();
        let mut slot = self.kernel_path();
        if let Some(Err(error)) = slot.as_mut().map(|kernel_path| kernel_path.refresh(&report, &self.shared))
        {
            log(format_args!("XDP is detached, the socket takes all packets: {error:#}"));
            *slot = None;
        }
    }

    fn follow_addresses(&self) -> io::Result<()> {
        let mut local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        if local.changed()? {
            self.shared.own.store(Arc::new(read_own(&mut local)?));
        }
        Ok(())
    }

    fn kernel_path(&self) -> MutexGuard<'_, Option<KernelPath>> {
        self.kernel_path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the workers; returns the final report and the first error.
    pub fn stop(mut self) -> (Report, anyhow::Result<()>) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let results = self.threads.drain(..).map(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!("a worker panicked")),
        });
        let result = results.collect();
        (self.report(), result)
    }
}

impl Drop for Redirector {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

fn read_own(local: &mut LocalTable) -> io::Result<HostAddresses> {
    Ok(local.read()?.into())
}

/// Opens the UDP sockets. A host without IPv6 cannot bind `[::]`; then all IPv4 addresses are bound.
fn open(listen: SocketAddr, workers: usize) -> anyhow::Result<Vec<OwnedFd>> {
    let servers = datagram::udp_servers(listen, PATIENCE, workers).or_else(|error| match listen.ip() {
        IpAddr::V6(v6) if v6.is_unspecified() && error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            datagram::udp_servers((Ipv4Addr::UNSPECIFIED, listen.port()).into(), PATIENCE, workers)
        }
        _ => Err(error),
    });
    servers.with_context(|| format!("UDP {listen}, which no other program may use"))
}

fn work(shared: &Shared, mut worker: Worker, server: &OwnedFd) -> anyhow::Result<()> {
    // If a worker ends, also by a panic, the program must end too, so that the host does not look alive.
    let _end = StopAtEnd(&shared.stop);
    while !shared.stop.load(Ordering::Relaxed) {
        worker.round(server).context("receiving")?;
    }
    Ok(())
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// VIPs that are single addresses and that no local socket can bind.
fn missing_vips(config: &RedirectConfig) -> impl Iterator<Item = IpAddr> + '_ {
    let addresses = config.vips.iter().filter(|vip| vip.is_host());
    addresses.map(|vip| vip.address()).filter(|vip| UdpSocket::bind((*vip, 0)).is_err())
}

/// Logs a line for the operator.
pub(super) fn log(what: fmt::Arguments<'_>) {
    console::log("redirect", what);
}

fn print(report: &Report, json: bool) {
    let format = if json { Format::Json } else { Format::Text };
    show(&written(report, format), format);
}

fn written(report: &Report, format: Format) -> String {
    match format {
        Format::Text => report.to_string(),
        Format::Json => match serde_json::to_string(report) {
            Ok(text) => text + "\n",
            Err(error) => format!("{error}\n"),
        },
    }
}
