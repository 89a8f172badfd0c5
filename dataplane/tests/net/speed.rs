//! The speed of `redirect`, compared with a minimal program on the same socket. Not a gate: run it alone, in
//! release, with `cargo test --release -p dataplane --test net speed -- --ignored --nocapture`.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::backend::State;
use dataplane::host::sys::datagram::{BATCH, Buffers, send, udp_server};
use dataplane::redirect::run::Redirector;
use dataplane::testkit::lab::netns::Namespace;
use dataplane::testkit::lab::service::name;
use dataplane::testkit::lab::topology::{VIP, backend};
use dataplane::testkit::lab::world::World;
use etherparse::PacketBuilder;

use crate::redirect::{Bench, bench, config, gue};
use crate::second_chance::setup;

const ROUND: Duration = Duration::from_millis(1_500);
/// 64 octets of payload, a few flows.
const FLOWS: u16 = 16;

/// Sends the same datagrams until stopped, each flow from a port of its own as a director does.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Flood {
    fn start(from: &Namespace, datagrams: Vec<Vec<u8>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let to = SocketAddr::from((backend(0), 19_523));
        let thread = from.run(move || {
            thread::spawn(move || {
                let socket = udp_server("0.0.0.0:40000".parse().unwrap(), Duration::from_secs(1)).unwrap();
                while !stopped.load(Ordering::Relaxed) {
                    let batch = datagrams.iter().cycle().take(BATCH);
                    send(socket.as_fd(), batch.map(|octets| (octets.as_slice(), to)), |_| {});
                }
            })
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(thread::JoinHandle::join));
    }
}

/// Packets per second by `count`, which grows.
fn rate(count: impl Fn() -> u64) -> f64 {
    thread::sleep(Duration::from_millis(200));
    let (before, start) = (count(), Instant::now());
    thread::sleep(ROUND);
    #[expect(clippy::cast_precision_loss, reason = "counts of a second or two")]
    let packets = (count() - before) as f64;
    packets / start.elapsed().as_secs_f64()
}

/// Receives batches and sends them back: the minimal work of a redirector.
fn echo(namespace: &Namespace) -> (Arc<AtomicU64>, Arc<AtomicBool>, thread::JoinHandle<()>) {
    let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, stopped) = (Arc::clone(&count), Arc::clone(&stop));
    let thread = namespace.run(move || {
        thread::spawn(move || {
            let socket = udp_server("0.0.0.0:19523".parse().unwrap(), Duration::from_millis(50)).unwrap();
            let mut buffers = Buffers::new(48, 65_535);
            while !stopped.load(Ordering::Relaxed) {
                let Ok(received) = buffers.receive(socket.as_fd()) else { continue };
                let back = (0..received).map(|at| (buffers.message(at), buffers.sender(at)));
                send(socket.as_fd(), back, |_| {});
                counted.fetch_add(received as u64, Ordering::Relaxed);
            }
        })
    });
    (count, stop, thread)
}

fn segments(ports: impl Iterator<Item = (u16, u16)>) -> Vec<Vec<u8>> {
    let segment = |(from, to)| {
        let mut inner = Vec::new();
        PacketBuilder::ipv4(backend(0).octets(), VIP.octets(), 64)
            .tcp(from, to, 1, 1_000)
            .ack(1)
            .write(&mut inner, &[0; 64])
            .unwrap();
        gue(&inner, 0, &[backend(1).into()])
    };
    ports.map(segment).collect()
}

/// Datagrams a second that a host's bare echo sends back.
fn bare_echo(host: &Namespace, from: &Namespace, datagrams: &[Vec<u8>]) -> f64 {
    let (count, stop, thread) = echo(host);
    let flood = Flood::start(from, datagrams.to_vec());
    let rate = rate(|| count.load(Ordering::Relaxed));
    drop(flood);
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    rate
}

/// Datagrams per second that a host's redirector accepts or forwards.
fn redirected(host: &Namespace, from: &Namespace, datagrams: &[Vec<u8>]) -> f64 {
    let redirector = host.run(|| Redirector::start(config(""))).unwrap();
    let flood = Flood::start(from, datagrams.to_vec());
    let rate = rate(|| {
        let report = redirector.report();
        report.kept.values().sum::<u64>() + report.forwarded()
    });
    drop(flood);
    let (report, result) = redirector.stop();
    result.unwrap();
    assert_eq!(report.refused.values().sum::<u64>(), 0, "{report}");
    rate
}

#[test]
#[ignore = "a measurement"]
fn speed_against_a_bare_echo() {
    if !crate::privileged() {
        return;
    }
    let Bench { network, redirector } = bench("");
    drop(redirector.stop());
    let from = &network.directors[0];
    // Connections of the host to its own VIP: established sockets whose names the test knows.
    let (pairs, listener) = network.backends[0].run(|| {
        let listener = TcpListener::bind((VIP, 80)).unwrap();
        let connect = |_| {
            let client = TcpStream::connect((VIP, 80)).unwrap();
            (client, listener.accept().unwrap().0)
        };
        ((0..FLOWS).map(connect).collect::<Vec<_>>(), listener)
    });
    let known = segments(pairs.iter().map(|(client, _)| (client.local_addr().unwrap().port(), 80)));
    let unknown = segments((0..FLOWS).map(|flow| (50_000 + flow, 80)));
    println!("packets/s, 64 octets of payload in TCP in GUE, {FLOWS} flows, one thread each side");
    for round in 1..=3 {
        let bare = bare_echo(&network.backends[0], from, &known);
        let rates = [&known, &unknown].map(|datagrams| redirected(&network.backends[0], from, datagrams));
        println!(
            "round {round}: bare echo {bare:.0}; kept {:.0} ({:.2}); passed on {:.0} ({:.2})",
            rates[0],
            rates[0] / bare,
            rates[1],
            rates[1] / bare
        );
    }
    drop((pairs, listener));
}

/// What the second hop adds to a request and its answer, on the connections of a drained backend.
#[test]
#[ignore = "a measurement"]
fn speed_of_the_second_hop() {
    if !crate::privileged() {
        return;
    }
    let mut world = World::new(setup(1, 4, 4)).unwrap();
    world.open(200).unwrap();
    let drained = name(0);
    let measure = |title: &str, world: &mut World| {
        let times: Vec<_> =
            (0..20).flat_map(|_| world.time()).filter(|(backend, _)| *backend == drained).collect();
        let mut times: Vec<Duration> = times.into_iter().map(|(_, time)| time).collect();
        times.sort_unstable();
        let at = |percent: usize| times[times.len() * percent / 100];
        println!("{title}: {} requests on {drained}, p50 {:?}, p99 {:?}", times.len(), at(50), at(99));
    };
    measure("owner", &mut world);
    world.service.set(0, State::Draining);
    world.publish().unwrap();
    measure("second hop", &mut world);
    assert_eq!(world.exchange().broken(), 0);
}
