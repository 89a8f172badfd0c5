//! Opens the sockets, starts the workers, and waits for signals.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::config::RedirectConfig;
use super::counters::{Counters, Report};
use super::recent::RecentSyns;
use super::worker::Worker;
use crate::sys::signal::{Signal, Signals};
use crate::sys::{datagram, poll};

/// How soon a worker without packets notices that it should stop.
const PATIENCE: Duration = Duration::from_millis(100);

/// Runs until SIGTERM or SIGINT; prints the counters then, and on SIGUSR1.
pub fn run(config: &RedirectConfig, json: bool) -> anyhow::Result<()> {
    let signals = Signals::block().context("signals")?;
    for vip in missing_vips(config) {
        eprintln!(
            "warning: VIP {vip} is no address of this host, what is kept for it is lost: \
             ip address add {vip} dev lo"
        );
    }
    let counters: Vec<Counters> = (0..config.workers).map(|_| Counters::default()).collect();
    let shared = Shared { syns: RecentSyns::default(), stop: AtomicBool::new(false), start: Instant::now() };
    let workers =
        counters.iter().map(|own| start(config, own, &shared)).collect::<anyhow::Result<Vec<_>>>()?;
    let report = || {
        let mut report = Report::default();
        counters.iter().for_each(|own| report.add(own, shared.now_ms()));
        report
    };
    eprintln!("redirect: listening on UDP {}", config.listen);
    let result = thread::scope(|scope| {
        let handles: Vec<_> = workers
            .into_iter()
            .map(|(server, worker)| scope.spawn(|| work(server, worker, &shared)))
            .collect();
        while !shared.stop.load(Ordering::Relaxed) {
            poll::readable([signals.as_fd()], PATIENCE)?;
            match signals.next()? {
                Some(Signal::Stop) => shared.stop.store(true, Ordering::Relaxed),
                Some(Signal::Report) => print(&report(), json),
                Some(Signal::Reload) | None => {}
            }
        }
        for handle in handles {
            handle.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
        }
        anyhow::Ok(())
    });
    print(&report(), json);
    result
}

struct Shared {
    syns: RecentSyns,
    stop: AtomicBool,
    start: Instant,
}

impl Shared {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn start<'a>(
    config: &'a RedirectConfig,
    counters: &'a Counters,
    shared: &'a Shared,
) -> anyhow::Result<(OwnedFd, Worker<'a>)> {
    let worker =
        Worker::new(config, counters, &shared.syns).context("raw sockets (this needs CAP_NET_RAW)")?;
    let server = open(config.listen).with_context(|| format!("UDP {}", config.listen))?;
    Ok((server, worker))
}

/// A host without IPv6 has no `[::]`; all of IPv4 is what is left of it.
fn open(listen: SocketAddr) -> std::io::Result<OwnedFd> {
    datagram::udp_server(listen, PATIENCE).or_else(|error| match listen.ip() {
        IpAddr::V6(v6) if v6.is_unspecified() && error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            datagram::udp_server((Ipv4Addr::UNSPECIFIED, listen.port()).into(), PATIENCE)
        }
        _ => Err(error),
    })
}

fn work(server: OwnedFd, mut worker: Worker<'_>, shared: &Shared) -> anyhow::Result<()> {
    while !shared.stop.load(Ordering::Relaxed) {
        if let Err(error) = worker.round(&server, || shared.now_ms()) {
            shared.stop.store(true, Ordering::Relaxed);
            return Err(error).context("receiving");
        }
    }
    Ok(())
}

/// VIPs that are single addresses and that no socket here could be bound to.
fn missing_vips(config: &RedirectConfig) -> impl Iterator<Item = IpAddr> + '_ {
    let single = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
    let addresses = config.vips.iter().filter(move |vip| vip.bits() == single(vip.address()));
    addresses.map(|vip| vip.address()).filter(|vip| UdpSocket::bind((*vip, 0)).is_err())
}

fn print(report: &Report, json: bool) {
    if json {
        match serde_json::to_string(report) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("counters: {error}"),
        }
    } else {
        print!("{report}");
    }
}
