//! Frames a second of a running director over a veth pair, against the same driver that echoes and decides nothing,
//! and both drivers against each other. All in one run, turn by turn, so that a noisy machine is noisy for all.
//!
//! `cargo run --release -p benches --bin veth` (root, or `unshare -Urn`). Two measurements:
//!
//! - **drain**: the worker is stopped, its ring filled, the worker continued, and the time taken in which the frames
//!   come out again. Nothing is received meanwhile, so the worker alone is the limit. Rings only.
//! - **offered**: frames are sent as fast as one CPU can for a second; how many came back. Here the sender and the
//!   receiving half of the kernel's veth driver, which runs on the sender's CPU, may be the limit.
//!
//! Frames are SYNs of 4,096 flows, 66 octets; what comes back is addressed to no one and dropped early by the stack.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use benches::cable::{Worker, median, per_second, pin_last, run, syn, table};
use benches::usage::hidden_arguments;
use dataplane::drivers::af_packet::AfPacket;
use dataplane::drivers::pnet::Pnet;
use dataplane::drivers::{FrameDriver, Outgoing};
use dataplane::host::sys::batch::{BATCH, Batch};
use dataplane::host::sys::interface::Interface;
use dataplane::host::sys::packet::PacketSocket;
use dataplane::host::sys::thread::{allowed_cpus, pin};
use dataplane::testkit::lab::{folder::Folder, netns::Namespace};

/// Nobody's address: what goes there is dropped early.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
const FLOWS: u32 = 4096;
/// Frames that fit the ring with room to spare.
const DRAINED: u64 = 20_000;
const ROUNDS: usize = 15;

/// What is measured, each over a cable of its own.
const CASES: [Case; 4] = [
    Case { name: "af-packet echo", driver: "af-packet", echo: true },
    Case { name: "af-packet run", driver: "af-packet", echo: false },
    Case { name: "pnet echo", driver: "pnet", echo: true },
    Case { name: "pnet run", driver: "pnet", echo: false },
];

struct Case {
    name: &'static str,
    driver: &'static str,
    echo: bool,
}

fn main() -> ExitCode {
    let about = "Measure frames per second of the director over a veth pair, against a bare echo (root, or unshare -Urn)";
    let arguments = hidden_arguments("veth", about);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [] => measure(),
        ["echo", driver, interface] => echo(driver, interface),
        ["run", config] => run(config),
        _ => Err(anyhow::anyhow!("unknown arguments: {}", arguments.join(" "))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("veth: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// In a process of its own: sends each frame back.
fn echo(driver: &str, interface: &str) -> anyhow::Result<()> {
    pin_last()?;
    let index = Interface::named(interface)?.index;
    match driver {
        "pnet" => echo_over(Pnet::open(interface, None)?, index),
        _ => echo_over(AfPacket::open(index, None)?, index),
    }
}

fn echo_over(mut driver: impl FrameDriver, ifindex: u32) -> anyhow::Result<()> {
    loop {
        driver.wait(Duration::from_millis(100))?;
        driver.process_batch(|received, out| {
            let len = received.frame.len();
            out.get_mut(..len)?.copy_from_slice(received.frame);
            out.get_mut(..6)?.copy_from_slice(&NOBODY);
            Some(Outgoing { len, ifindex })
        })?;
    }
}

fn measure() -> anyhow::Result<()> {
    let folder = Folder::new()?;
    let (clients, host) = (Namespace::new("clients")?, Namespace::new("host")?);
    let mut workers = Vec::new();
    for (at, case) in CASES.iter().enumerate() {
        clients.connect(&format!("gen{at}"), &host, &format!("front{at}"), 1500)?;
        clients.ip(&format!("link set gen{at} up"))?;
        host.ip(&format!("link set front{at} address 02:00:00:00:01:0{at} up"))?;
        host.ip(&format!("addr add 10.9.{at}.1/24 dev front{at}"))?;
        host.wait_for(&format!("front{at}"))?;
        folder.write(&format!("{at}.table"), table(at)?.encode())?;
        let config = folder.write(&format!("{at}.yaml"), config(at, case))?;
        workers.push(Worker(start(&host, case, at, &config)?));
    }
    sleep(Duration::from_millis(500));
    for (Worker(child), case) in workers.iter_mut().zip(&CASES) {
        ensure!(child.try_wait()?.is_none(), "{} did not start", case.name);
    }
    let pids: Vec<u32> = workers.iter().map(|worker| worker.0.id()).collect();
    let results = clients.run(move || rounds(&pids))?;
    drop(workers);
    print(&results);
    Ok(())
}

fn start(host: &Namespace, case: &Case, at: usize, config: &Path) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    match case.echo {
        true => command.args(["echo", case.driver, &format!("front{at}")]),
        false => command.arg("run").arg(config),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(host.run(move || command.spawn())?)
}

fn config(at: usize, case: &Case) -> String {
    format!(
        "version: 1\ntable: {at}.table\ninterface: front{at}\nmode: {}\nworkers: 1\ngateway_mac: 02:00:00:00:00:99\n",
        case.driver
    )
}

/// Frames a second of each case: drained, a second of CPU while they were, offered, and sent while they were offered.
#[derive(Default)]
struct Results {
    drain: [Vec<f64>; CASES.len()],
    cpu: [Vec<f64>; CASES.len()],
    offered: [Vec<f64>; CASES.len()],
    sent: [Vec<f64>; CASES.len()],
}

fn rounds(pids: &[u32]) -> anyhow::Result<Results> {
    let first = *allowed_cpus()?.first().context("a CPU")?;
    pin(first)?;
    let mut results = Results::default();
    let mut generators = (0..CASES.len()).map(Generator::new).collect::<anyhow::Result<Vec<_>>>()?;
    for round in 0..ROUNDS {
        for (at, case) in CASES.iter().enumerate() {
            let generator = &mut generators[at];
            if case.driver == "af-packet" {
                let (drained, cpu) = generator.drain(pids[at])?;
                results.drain[at].push(drained);
                results.cpu[at].push(cpu);
            }
            // A second each is long: a third of the rounds is enough.
            if round % 3 == 0 {
                let (sent, returned) = generator.offer(Duration::from_secs(1))?;
                results.sent[at].push(sent);
                results.offered[at].push(returned);
            }
        }
    }
    Ok(results)
}

struct Generator {
    socket: PacketSocket,
    interface: Interface,
    batch: Batch,
    frames: Vec<Vec<u8>>,
    next: usize,
}

impl Generator {
    fn new(at: usize) -> anyhow::Result<Self> {
        let interface = Interface::named(&format!("gen{at}"))?;
        let socket = PacketSocket::open()?;
        socket.bypass_qdisc()?;
        let frames = (0..FLOWS)
            .map(|number| syn(number, u8::try_from(at)?, &interface))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { socket, interface, batch: Batch::new(128), frames, next: 0 })
    }

    fn send_batch(&mut self) -> anyhow::Result<u64> {
        for _ in 0..BATCH {
            let frame = &self.frames[self.next];
            self.next = (self.next + 1) % self.frames.len();
            self.batch.slot().get_mut(..frame.len()).context("a slot")?.copy_from_slice(frame);
            self.batch.push(frame.len(), self.interface.index);
        }
        let sent = self.batch.send(&self.socket).frames;
        ensure!(sent > 0, "{} takes no frames", self.interface.name);
        Ok(sent)
    }

    /// Frames a second that a worker takes out of its full ring; and a second of its CPU's time, which others that
    /// want the CPU do not change.
    fn drain(&mut self, pid: u32) -> anyhow::Result<(f64, f64)> {
        signal(pid, "STOP")?;
        sleep(Duration::from_millis(5));
        let base = received(&self.interface.name)?;
        let mut sent = 0;
        while sent < DRAINED {
            sent += self.send_batch()?;
        }
        // The last block is handed over.
        sleep(Duration::from_millis(5));
        let before = cpu_time(pid)?;
        signal(pid, "CONT")?;
        let (mut first, mut last) = (None, (base, Instant::now()));
        let give_up = Instant::now() + Duration::from_secs(5);
        while last.0 < base + sent {
            let now = (received(&self.interface.name)?, Instant::now());
            if now.0 > last.0 {
                last = now;
                first.get_or_insert(now);
            }
            ensure!(now.1 < give_up, "{} of {sent} frames came back", now.0 - base);
        }
        let first = first.context("a frame")?;
        let cpu = cpu_time(pid)?.saturating_sub(before);
        Ok((per_second(last.0 - first.0, last.1 - first.1), per_second(sent, cpu)))
    }

    /// Frames a second sent, and returned.
    fn offer(&mut self, time: Duration) -> anyhow::Result<(f64, f64)> {
        let (start, base) = (Instant::now(), received(&self.interface.name)?);
        let mut sent = 0;
        while start.elapsed() < time {
            sent += self.send_batch()?;
        }
        let elapsed = start.elapsed();
        // What is still in a buffer was offered in time.
        sleep(Duration::from_millis(200));
        let returned = received(&self.interface.name)? - base;
        Ok((per_second(sent, elapsed), per_second(returned, elapsed)))
    }
}

/// What an interface of the calling thread's namespace has received.
fn received(interface: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/dev")?;
    for line in text.lines() {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        if name.trim() == interface {
            let packets = numbers.split_whitespace().nth(1).context("a column")?;
            return Ok(packets.parse()?);
        }
    }
    bail!("{interface} is not in /proc/net/dev")
}

/// What all threads of a process have run (schedstat: nanoseconds on a CPU come first).
fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        nanos += text.split_whitespace().next().context("a number")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

fn signal(pid: u32, name: &str) -> anyhow::Result<()> {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status()?;
    ensure!(status.success(), "kill -{name} {pid}: {status}");
    Ok(())
}

fn print(results: &Results) {
    println!(
        "thousand frames a second, medians of {ROUNDS} turns (drain) and {} (offered)",
        ROUNDS.div_ceil(3)
    );
    println!("{:<16} {:>8} {:>14} {:>22}", "", "drain", "a CPU second", "offered: back of sent");
    for (at, case) in CASES.iter().enumerate() {
        let kilo = |values: &[f64]| median(values) / 1e3;
        let ring = |values: &[f64]| match values {
            [] => "-".to_owned(),
            values => format!("{:.0}", kilo(values)),
        };
        println!(
            "{:<16} {:>8} {:>14} {:>12.0} of {:>6.0}",
            case.name,
            ring(&results.drain[at]),
            ring(&results.cpu[at]),
            kilo(&results.offered[at]),
            kilo(&results.sent[at]),
        );
    }
    let ratio = |of: &[Vec<f64>; 4], a: usize, b: usize| median(&of[a]) / median(&of[b]);
    let (drain, cpu) = (ratio(&results.drain, 1, 0), ratio(&results.cpu, 1, 0));
    let offered = ratio(&results.offered, 1, 0);
    println!("af-packet run / echo: drain {drain:.2}, a CPU second {cpu:.2}, offered {offered:.2}");
    println!("af-packet / pnet, both run: offered {:.2}", ratio(&results.offered, 1, 3));
}
