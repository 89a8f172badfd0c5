//! `xdp-veth`: frames a second that a director in `mode: xdp` sends back over a veth pair, against a bare program that
//! swaps the addresses and returns `XDP_TX`, and against the same director in `mode: af-packet`.
//!
//! Each has a cable of its own with the same ends, and gets the same frames: SYNs of 4,096 flows, 66 octets. Two ways to
//! offer them, taken in turns over all cables:
//!
//! - **kernel**: a program makes them inside the kernel (`BPF_F_TEST_XDP_LIVE_FRAMES`), which costs less than anything
//!   that is measured. Sender, program and receiver share one CPU, as the kernel runs a veth's receiving half where it
//!   is sent from; an `af-packet` worker has the other CPU to itself.
//! - **socket**: by `sendmmsg` on a packet socket, as user space would.
//!
//! The receiver is a native program that counts and drops. All counters are per CPU, at the programs: what was sent,
//! what the bare program saw, what came back. Both drivers are `dataplane run`, in processes of their own.
//!
//! Needs bpf(2): run as root.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use aya::maps::PerCpuArray;
use aya::programs::xdp::XdpMode;
use aya::programs::{TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader, TestRun};
use benches::cable::{Worker, median, per_second, run, syn, table};
use benches::usage::hidden_arguments;
use dataplane::host::sys::batch::Batch;
use dataplane::host::sys::interface::{Interface, Offload};
use dataplane::host::sys::packet::PacketSocket;
use dataplane::host::sys::thread::{allowed_cpus, cpu_time, pin};
use dataplane::testkit::lab::{folder::Folder, netns::Namespace};

static CABLE: &[u8] = aya::include_bytes_aligned!("../../../dataplane/bpf/cable.bpf.o");

const FLOWS: u32 = 4_096;
const ROUNDS: usize = 41;
/// Frames of a turn.
const FRAMES: u32 = 1 << 18;
/// Octets that hold a frame.
const ROOM: usize = 128;
/// `enum place` of the object.
const SWAPPED: u32 = 0;
const TAKEN: u32 = 1;

/// What lies between; none: the bare program.
const CASES: [(&str, Option<&str>); 3] =
    [("bare XDP_TX", None), ("mode: xdp", Some("xdp")), ("mode: af-packet", Some("af-packet"))];

fn main() -> ExitCode {
    let about =
        "Measure frames per second of mode: xdp over a veth pair, against a bare XDP_TX program (root)";
    let arguments = hidden_arguments("xdp-veth", about);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [] => measure(),
        ["run", config] => run(config),
        _ => Err(anyhow::anyhow!("unknown arguments: {}", arguments.join(" "))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xdp-veth: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<()> {
    let folder = Folder::new()?;
    let (clients, host) = (Namespace::new("clients")?, Namespace::new("host")?);
    let mut workers = Vec::new();
    for (at, (_, mode)) in CASES.iter().enumerate() {
        clients.connect(&format!("gen{at}"), &host, &format!("front{at}"), 1500)?;
        clients.ip(&format!("link set gen{at} addrgenmode none up"))?;
        host.ip(&format!("link set front{at} address 02:00:00:00:01:0{at} addrgenmode none up"))?;
        host.ip(&format!("addr add 10.9.{at}.1/24 dev front{at}"))?;
        host.wait_for(&format!("front{at}"))?;
        if let Some(mode) = mode {
            folder.write(&format!("{at}.table"), table(at)?.encode())?;
            let config = folder.write(&format!("{at}.yaml"), config(at, mode))?;
            workers.push(start(&host, at, &config)?);
        }
    }
    let bare = host.run(|| attached("swapped", "front0", &[0; 72]))?;
    sleep(Duration::from_millis(500));
    for Worker(child) in &mut workers {
        ensure!(child.try_wait()?.is_none(), "a director did not start");
    }
    let (results, bare) = clients.run(move || rounds(&bare).map(|results| (results, bare)))?;
    drop((workers, bare));
    print(&results);
    Ok(())
}

fn config(at: usize, mode: &str) -> String {
    format!(
        "version: 1\ntable: {at}.table\ninterface: front{at}\nmode: {mode}\noffloads: keep\nworkers: 1\n\
         gateway_mac: 02:00:00:00:00:99\n"
    )
}

fn start(host: &Namespace, at: usize, config: &Path) -> Result<Worker> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("run").arg(config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    host.run(move || {
        // A veth takes frames from programs only while it polls. A program makes it do so, and so does this.
        Offload::Gro.switch(&format!("front{at}"), true)?;
        Ok(Worker(command.spawn()?))
    })
}

/// The object with that program on an interface, natively.
fn attached(name: &str, interface: &str, flood: &[u8]) -> Result<Ebpf> {
    let mut ebpf = EbpfLoader::new().btf(None).override_global("flood", flood, true).load(CABLE)?;
    let program: &mut Xdp = ebpf.program_mut(name).context("a program")?.try_into()?;
    program.load()?;
    program.attach_to_if_index(Interface::named(interface)?.index, XdpMode::Driver)?;
    Ok(ebpf)
}

fn counted(ebpf: &Ebpf, place: u32) -> Result<u64> {
    let cells: PerCpuArray<_, u64> = ebpf.map("counted").context("a map")?.try_into()?;
    Ok(cells.get(&place, 0)?.iter().sum())
}

/// Frames a second that came back, of each case, by both ways to offer them; and what was offered.
#[derive(Default)]
struct Results {
    kernel: [Vec<f64>; CASES.len()],
    /// The first by kernel, for a second of its CPU's time, which others that want the CPU do not change.
    cpu: [Vec<f64>; CASES.len()],
    socket: [Vec<f64>; CASES.len()],
    offered: [[Vec<f64>; 2]; CASES.len()],
}

fn rounds(bare: &Ebpf) -> Result<Results> {
    pin(*allowed_cpus()?.first().context("a CPU")?)?;
    let mut results = Results::default();
    let mut ends = (0..CASES.len()).map(End::new).collect::<Result<Vec<_>>>()?;
    for _ in 0..ROUNDS {
        for (at, end) in ends.iter_mut().enumerate() {
            for (way, into) in [&mut results.kernel[at], &mut results.socket[at]].into_iter().enumerate() {
                let turn = end.turn(way == 0)?;
                if way == 0 {
                    results.cpu[at].push(per_second(turn.returned, turn.cpu));
                }
                into.push(per_second(turn.returned, turn.time));
                results.offered[at][way].push(per_second(turn.sent, turn.time));
            }
        }
    }
    ensure!(counted(bare, SWAPPED)? == counted(&ends[0].ebpf, TAKEN)?, "not all that was swapped came back");
    Ok(results)
}

struct Turn {
    sent: u64,
    returned: u64,
    time: Duration,
    cpu: Duration,
}

/// Where frames are sent and taken.
struct End {
    ebpf: Ebpf,
    frame: Vec<u8>,
    interface: Interface,
    socket: PacketSocket,
    batch: Batch,
}

impl End {
    fn new(at: usize) -> Result<Self> {
        let interface = Interface::named(&format!("gen{at}"))?;
        let frame = syn(0, u8::try_from(at)?, &interface)?;
        let head = frame.get(..64).context("a head")?;
        let flood = [head, &interface.index.to_ne_bytes(), &FLOWS.to_ne_bytes()].concat();
        let mut ebpf = attached("taken", &interface.name, &flood)?;
        let sent: &mut Xdp = ebpf.program_mut("sent").context("a program")?.try_into()?;
        sent.load()?;
        let socket = PacketSocket::open()?;
        socket.bypass_qdisc()?;
        Ok(Self { ebpf, frame, interface, socket, batch: Batch::new(ROOM) })
    }

    fn turn(&mut self, by_kernel: bool) -> Result<Turn> {
        let (before, started, cpu) = (counted(&self.ebpf, TAKEN)?, Instant::now(), cpu_time()?);
        let sent = if by_kernel { self.send_by_kernel()? } else { self.send_by_socket()? };
        let (returned, time) = (counted(&self.ebpf, TAKEN)? - before, started.elapsed());
        let cpu = cpu_time()?.saturating_sub(cpu);
        self.settle()?;
        Ok(Turn { sent, returned, time, cpu })
    }

    /// What is still in a buffer comes back, and is of no turn.
    fn settle(&self) -> Result<()> {
        let mut last = None;
        while last != Some(counted(&self.ebpf, TAKEN)?) {
            last = Some(counted(&self.ebpf, TAKEN)?);
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn send_by_kernel(&self) -> Result<u64> {
        let program: &Xdp = self.ebpf.program("sent").context("a program")?.try_into()?;
        let mut options = TestRunOptions { data_in: Some(&self.frame), repeat: FRAMES, ..Default::default() };
        options.attrs = options.attrs.xdp_live_frames(64);
        program.test_run(options)?;
        Ok(FRAMES.into())
    }

    fn send_by_socket(&mut self) -> Result<u64> {
        let mut sent = 0;
        for number in 0..FRAMES / 8 {
            let port = u16::try_from(1_024 + number % FLOWS)?;
            self.frame[34..36].copy_from_slice(&port.to_be_bytes());
            let len = self.frame.len();
            self.batch.slot().get_mut(..len).context("a slot")?.copy_from_slice(&self.frame);
            self.batch.push(len, self.interface.index);
            if self.batch.is_full() {
                sent += self.batch.send(&self.socket).frames;
            }
        }
        Ok(sent)
    }
}

fn print(results: &Results) {
    println!("thousand frames a second that came back, of those offered; medians of {ROUNDS} turns");
    println!("{:<16} {:>20} {:>14} {:>20}", "", "kernel", "a CPU second", "socket");
    for (at, (name, mode)) in CASES.iter().enumerate() {
        let kilo = |values: &[f64]| median(values) / 1e3;
        let [of_kernel, of_socket] = results.offered[at].each_ref().map(|values| kilo(values));
        // The worker of the other mode has a CPU of its own.
        let cpu = if *mode == Some("af-packet") {
            "-".to_owned()
        } else {
            format!("{:.0}", kilo(&results.cpu[at]))
        };
        println!(
            "{name:<16} {:>8.0} of {of_kernel:>8.0} {cpu:>14} {:>8.0} of {of_socket:>8.0}",
            kilo(&results.kernel[at]),
            kilo(&results.socket[at])
        );
    }
    // Turn by turn, so that what disturbs the machine for a while disturbs both sides of a ratio.
    let ratio = |of: &[Vec<f64>; 3], other: usize| {
        let ratios: Vec<f64> = of[1].iter().zip(&of[other]).map(|(a, b)| a / b).collect();
        median(&ratios)
    };
    let (kernel, cpu, socket) =
        (ratio(&results.kernel, 0), ratio(&results.cpu, 0), ratio(&results.socket, 0));
    println!("mode: xdp / bare XDP_TX: by kernel {kernel:.2}, a CPU second {cpu:.2}, by socket {socket:.2}");
    let (kernel, socket) = (ratio(&results.kernel, 2), ratio(&results.socket, 2));
    println!("mode: xdp / mode: af-packet: by kernel {kernel:.1}, by socket {socket:.1}");
}
