//! `xdp-cost`: nanoseconds that the kernel programs spend on a frame, by kind of frame.
//!
//! The kernel repeats a test run without restoring the frame, so an encapsulating program would see its own output
//! from the second round on. `dataplane/bpf/measure.bpf.c` puts the frame back and calls the program under test. What
//! is printed is that less the same with a program that only grows the frame by as much (or, for frames that are
//! left to user space, does nothing): the program's own cost. Least of several runs, taken in turns.
//!
//! Needs bpf(2): run as root.

use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use aya::maps::ProgramArray;
use aya::programs::{ProgramFd, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader, TestRun};
use benches::table::https;
use benches::usage::no_arguments;
use common::backend::Backend;
use common::bind::{Bind, Prefix};
use common::hash::SipKey;
use common::table::{ForwardingTable, Table};
use dataplane::drivers::xdp::Director;
use dataplane::host::sys::thread::{cpu_time, unshare_network};
use dataplane::pipeline::{Echo, NextHop, Pipeline, Underlay};
use dataplane::redirect::clients::HostAddresses;
use dataplane::redirect::config::RedirectConfig;
use dataplane::redirect::{Neighbour, Redirect};
use dataplane::wire::checksum::Sum;
use dataplane::wire::ethernet::Mac;
use tryst_hrw::hash::mix;

static MEASURE: &[u8] = aya::include_bytes_aligned!("../../../dataplane/bpf/measure.bpf.o");

const ROUNDS: u32 = 100_000;
const RUNS: usize = 40;
/// The interface that the kernel says a test run's frame came in by.
const LOOPBACK: u32 = 1;

/// A frame to measure with.
struct Kind {
    name: &'static str,
    frame: Vec<u8>,
    /// Octets in front of the packet that the program adds; none if it leaves the frame.
    growth: Option<i32>,
    change_source: bool,
}

fn main() -> Result<()> {
    no_arguments(
        "xdp-cost",
        "Measure the nanoseconds that the kernel programs spend on a frame, by kind (root)",
    );
    println!("{ROUNDS} rounds, least of {RUNS} runs; ns a frame, net of the wrapper");
    for (tables, binds) in [(1, 1), (64, 10_000)] {
        let started = Instant::now();
        let forwarding = ForwardingTable::new(None, (0..tables).map(|n| table(n, tables, binds)).collect())?;
        let pipeline = Pipeline::new(forwarding, underlay(), |_, _| Some(next_hop()))
            .map_err(|tie| anyhow::anyhow!("{tie:?}"))?;
        let made = started.elapsed();
        let director = Director::load(&pipeline, |_| true)?;
        println!("{tables} tables, {binds} binds (made in {made:.0?}):");
        let information = director.program().context("a program")?.info()?;
        let verified = information.verified_instruction_count().unwrap_or(0);
        println!("  {verified} instructions verified, {} octets of machine code", information.size_jitted());
        for kind in kinds() {
            measure(&director, &kind)?;
        }
    }
    redirect()?;
    load_time()
}

/// Sixteen tables of 65,536 rows, from the pipeline to a program that could be attached.
fn load_time() -> Result<()> {
    let forwarding = ForwardingTable::new(None, (0..16).map(|n| table(n, 16, 16)).collect())?;
    let pipeline = Pipeline::new(forwarding, underlay(), |_, _| Some(next_hop()))
        .map_err(|tie| anyhow::anyhow!("{tie:?}"))?;
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let started = Instant::now();
        let director = Director::load(&pipeline, |_| true)?;
        times.push(started.elapsed());
        drop(director);
    }
    times.sort_unstable();
    println!("16 tables of 65,536 rows loaded in {:.1?} (least {:.1?})", times[RUNS / 2], times[0]);
    Ok(())
}

fn measure(director: &Director, kind: &Kind) -> Result<()> {
    let mut harness = harness(&original(kind, false, &[]))?;
    let tested = director.program().context("a program")?.fd()?.try_clone()?;
    let other = descriptor(&harness, if kind.growth.is_some() { "grown" } else { "left" })?;
    let before = director.counts()?;
    let (net, without) = turns(&mut harness, &tested, &other, kind)?;
    let counts = director.counts()?;
    let sent = counts.encapsulated() - before.encapsulated();
    let expected = if kind.growth.is_some() { u64::from(ROUNDS) * RUNS as u64 } else { 0 };
    if sent != expected {
        bail!("{}: {sent} frames sent, not {expected}: {counts:?}", kind.name);
    }
    println!("  {:<28} {net:6.1}   wrapper {without:5.1}", kind.name);
    Ok(())
}

/// `struct original` of the wrapper.
fn original(kind: &Kind, restore_all: bool, tuple: &[u8]) -> Vec<u8> {
    let mut original = Vec::new();
    original.extend(u32::try_from(kind.frame.len()).unwrap_or(0).to_ne_bytes());
    original.extend(u32::from(kind.change_source).to_ne_bytes());
    original.extend(kind.growth.unwrap_or(0).to_ne_bytes());
    original.extend(u32::from(restore_all).to_ne_bytes());
    original.extend(kind.frame.iter().copied().chain(std::iter::repeat(0)).take(64));
    original.extend(tuple);
    original.resize(96, 0);
    original
}

fn harness(original: &[u8]) -> Result<Ebpf> {
    let mut ebpf = EbpfLoader::new().btf(None).override_global("original", original, true).load(MEASURE)?;
    for name in ["measure", "grown", "left", "looked_up"] {
        let program: &mut Xdp = ebpf.program_mut(name).context("a program")?.try_into()?;
        program.load()?;
    }
    Ok(ebpf)
}

fn descriptor(ebpf: &Ebpf, name: &str) -> Result<ProgramFd> {
    let program: &Xdp = ebpf.program(name).context("a program")?.try_into()?;
    Ok(program.fd()?.try_clone()?)
}

/// The redirector's program, for a connection of this host and for one of another, beside the bare question to the
/// kernel that it cannot do without.
fn redirect() -> Result<()> {
    // In a network of its own, since the program refuses clients of the loopback network.
    unshare_network().context("a network namespace")?;
    for arguments in [
        "link set lo up",
        "addr add 203.0.113.10/32 dev lo",
        "addr add 198.51.100.7/32 dev lo",
        "route replace local 203.0.113.10 dev lo src 198.51.100.7 table local",
    ] {
        let done = Command::new("ip").args(arguments.split(' ')).status().context("ip (iproute2)")?;
        anyhow::ensure!(done.success(), "ip {arguments}: {done}");
    }
    let listener = TcpListener::bind("203.0.113.10:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (client, service) = (client.local_addr()?.port(), listener.local_addr()?.port());
    let text = "{version: 1, directors: [10.0.0.1], backends: [10.0.1.0/24], vips: [203.0.113.10]}";
    let config = RedirectConfig::parse("bench", text)?;
    let own: HostAddresses = [Prefix::host([10, 0, 1, 1].into())].into_iter().collect();
    let mut program = Redirect::load(&config, &own, [2, 0, 0, 0, 0, 1], SipKey::new([7; 16]))?;
    let way = Neighbour {
        destination: [2, 0, 0, 0, 0, 2],
        source: [2, 0, 0, 0, 0, 1],
        source_address: [10, 0, 1, 1].into(),
        ifindex: LOOPBACK,
    };
    program.set_neighbour([10, 0, 1, 2].into(), Some(&way))?;
    let tested = program.program().context("a program")?.fd()?.try_clone()?;
    let information = program.program().context("a program")?.info()?;
    println!("redirect: {} instructions verified", information.verified_instruction_count().unwrap_or(0));
    let ends = [[198, 51, 100, 7], [203, 0, 113, 10]].concat();
    let tuple = [&ends[..], &client.to_be_bytes(), &service.to_be_bytes()].concat();
    for (name, port, growth, bare) in [
        ("  kept: established", client, Some(-40), false),
        ("  passed on", client ^ 1, None, false),
        ("  bare look-up", client, None, true),
    ] {
        let kind = Kind { name, frame: wrapped(port, service), growth, change_source: false };
        let mut harness = harness(&original(&kind, true, &tuple))?;
        let other = descriptor(&harness, if growth.is_some() { "grown" } else { "left" })?;
        let tested = if bare { descriptor(&harness, "looked_up")? } else { tested.try_clone()? };
        let net = turns(&mut harness, &tested, &other, &kind)?.0;
        println!("{name:<30} {net:6.1}");
    }
    let counts = program.counts()?;
    let rounds = u64::from(ROUNDS) * RUNS as u64;
    if (counts.accepted[1], counts.forwarded) != (rounds, rounds) {
        bail!("not what was meant: {counts:?}");
    }
    Ok(())
}

/// An ACK to the service in GUE, with one hop left.
fn wrapped(from: u16, to: u16) -> Vec<u8> {
    let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
    let segment = [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 16, 0xff, 0xff, 0, 0, 0, 0]].concat();
    let inner = ipv4([198, 51, 100, 7], [203, 0, 113, 10], 6, &segment);
    let gue = [&[2, 4, 0, 0, 0, 0, 0, 1, 10, 0, 1, 2][..], &inner].concat();
    let len = u16::try_from(8 + gue.len()).unwrap_or(0).to_be_bytes();
    let datagram = [&[0x80, 1, 0x4c, 0x43, len[0], len[1], 0, 0][..], &gue].concat();
    [link([8, 0]), ipv4([10, 0, 0, 1], [10, 0, 1, 1], 17, &datagram)].concat()
}

fn ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).unwrap_or(0).to_be_bytes();
    let mut header = vec![0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, protocol, 0, 0];
    header.extend([source, destination].concat());
    let sum = Sum::ZERO.octets(&header).checksum();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [header, payload.to_vec()].concat()
}

/// Cost of the tested program net of the other, and of the other with the wrapper.
fn turns(harness: &mut Ebpf, tested: &ProgramFd, other: &ProgramFd, kind: &Kind) -> Result<(f64, f64)> {
    let (mut with, mut without) = (f64::MAX, f64::MAX);
    for _ in 0..RUNS {
        with = with.min(run(harness, tested, kind)?);
        without = without.min(run(harness, other, kind)?);
    }
    Ok((with - without, without))
}

/// Nanoseconds a round.
fn run(harness: &mut Ebpf, tested: &ProgramFd, kind: &Kind) -> Result<f64> {
    let mut programs: ProgramArray<_> = harness.map_mut("programs").context("a map")?.try_into()?;
    programs.set(0, tested, 0)?;
    let wrapper: &Xdp = harness.program("measure").context("a program")?.try_into()?;
    let options = TestRunOptions { data_in: Some(&kind.frame), repeat: ROUNDS, ..TestRunOptions::default() };
    // The kernel's own figure is rounded to whole nanoseconds a round, and counts what others had of the CPU.
    let started = cpu_time()?;
    wrapper.test_run(options)?;
    Ok((cpu_time()? - started).as_secs_f64() * 1e9 / f64::from(ROUNDS))
}

fn underlay() -> Underlay {
    Underlay { source_ipv4: Some([10, 0, 0, 1].into()), source_ipv6: None, mtu: 1_500, echo: Echo::Forward }
}

fn next_hop() -> NextHop {
    let (source, destination) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    NextHop::Link { ifindex: LOOPBACK, source, destination }
}

/// Two hops a row among a hundred backends; of all binds those whose turn it is.
fn table(number: usize, tables: usize, binds: usize) -> Table {
    let octet = |value: usize| u8::try_from(value & 255).unwrap_or(0);
    let backends = (0..100)
        .map(|b| Backend::new(format!("backend-{b:03}"), IpAddr::from([10, 1, octet(number), octet(b + 1)])));
    let binds = (0..binds).filter(|n| n % tables == number).flat_map(binds_of).collect();
    benches::table::table(&format!("table-{number:03}"), 2, backends.collect(), binds, |row| {
        let word = mix(u64::from(row));
        let first = u16::try_from(word % 100).unwrap_or(0);
        let second = u16::try_from((word >> 32) % 99).unwrap_or(0);
        [first, if second >= first { second + 1 } else { second }]
    })
}

/// The VIP of that number, over both families.
fn binds_of(number: usize) -> [Bind; 2] {
    let number = u32::try_from(number).unwrap_or(0);
    let v4 = u32::from_be_bytes([203, 0, 0, 1]) + number;
    let v6 = 0x2001_0db8_0000_0000_0000_0000_0000_0001 + u128::from(number);
    [IpAddr::from(v4.to_be_bytes()), IpAddr::from(v6.to_be_bytes())].map(https)
}

fn kinds() -> Vec<Kind> {
    let (syn4, syn6) = (frame_v4(443, 20), frame_v6(443));
    let kind =
        |name, frame: &Vec<u8>, growth| Kind { name, frame: frame.clone(), growth, change_source: false };
    let mut arp = syn4.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    vec![
        kind("IPv4 TCP SYN", &syn4, Some(40)),
        Kind { change_source: true, ..kind("IPv4, another source each", &syn4, Some(40)) },
        kind("IPv4, 1,400 octets", &frame_v4(443, 1_380), Some(40)),
        kind("IPv6 TCP SYN", &syn6, Some(40)),
        Kind { change_source: true, ..kind("IPv6, another source each", &syn6, Some(40)) },
        kind("IPv4, no bind", &frame_v4(444, 20), None),
        kind("IPv6, no bind", &frame_v6(444), None),
        kind("not IP", &arp, None),
    ]
}

fn link(ether_type: [u8; 2]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9][..], &ether_type].concat()
}

fn tcp(port: u16) -> Vec<u8> {
    [&[0xc8, 0x22][..], &port.to_be_bytes(), &[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]]
        .concat()
}

fn frame_v4(port: u16, payload: usize) -> Vec<u8> {
    let mut segment = tcp(port);
    segment.resize(payload, 0);
    [link([8, 0]), ipv4([198, 51, 100, 7], [203, 0, 0, 1], 6, &segment)].concat()
}

fn frame_v6(port: u16) -> Vec<u8> {
    let source: IpAddr = IpAddr::from([0x2001, 0xdb8, 0xc, 0, 0, 0, 0, 7]);
    let destination = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
    let octets = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    [link([0x86, 0xdd]), vec![0x60, 0, 0, 0, 0, 20, 6, 64], octets(source), octets(destination), tcp(port)]
        .concat()
}
