//! A drain under a SYN flood that makes kernels answer with cookies.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::backend::State;
use common::hash::mix;
use dataplane::host::sys::datagram::{raw_ip, send};
use dataplane::testkit::lab::netns::Namespace;
use dataplane::testkit::lab::topology::{PORT, VIP};
use etherparse::PacketBuilder;

use crate::second_chance::{End, prove, setup};

/// Sends SYNs from addresses that no host has, until dropped.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Flood {
    fn start(from: &Namespace) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = from.run(move || thread::spawn(move || pour(&stopped)));
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(thread::JoinHandle::join));
    }
}

/// About 8,000 a second.
fn pour(stop: &AtomicBool) {
    let socket = raw_ip(true).unwrap();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let syns: Vec<Vec<u8>> = (0..32).map(|at| syn(number + at)).collect();
        number += 32;
        let to = SocketAddr::from((VIP, 0));
        send(socket.as_fd(), syns.iter().map(|octets| (octets.as_slice(), to)), |_| {});
        thread::sleep(Duration::from_millis(4));
    }
}

/// From 198.18.0.0/15, which is for tests (RFC 2544).
fn syn(number: u64) -> Vec<u8> {
    let random = mix(number).to_le_bytes();
    let from = Ipv4Addr::new(198, 18 + (random[0] & 1), random[1], random[2]).octets();
    let port = u16::from_le_bytes([random[3], random[4]]) | 1_024;
    let mut octets = Vec::new();
    let tcp = PacketBuilder::ipv4(from, VIP.octets(), 64).tcp(port, PORT, u32::from(random[5]), 1_000);
    tcp.syn().write(&mut octets, &[]).unwrap();
    octets
}

/// Cookies that came back and were good.
fn cookies(host: &Namespace) -> u64 {
    host.run(|| {
        let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:")).map(str::split_whitespace);
        let (mut names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.position(|name| name == "SyncookiesRecv").unwrap();
        values.into_iter().nth(at).unwrap().parse().unwrap()
    })
}

#[test]
fn s11_a_drain_under_a_syn_flood() {
    prove("11. drain one of four under a SYN flood, cookies on", setup(2, 4, 4), |world| {
        for host in &world.network.backends {
            // A queue that a flood fills at once.
            host.sysctl("ipv4/tcp_syncookies", "1")?;
            host.sysctl("ipv4/tcp_max_syn_backlog", "16")?;
        }
        let flood = Flood::start(&world.network.clients[1]);
        world.open(200)?;
        world.service.set(0, State::Draining);
        world.publish()?;
        world.open(100)?;
        world.exchange();
        let counts = world.exchange();
        drop(flood);
        let good: u64 = world.network.backends.iter().map(cookies).sum();
        println!("   {good} connections completed by cookie");
        assert!(good > 0, "the flood made no kernel use cookies");
        Ok(End::from(counts))
    });
}
