//! A cable between two namespaces with a director at its end: what the benches that send over it share.

use std::net::Ipv4Addr;
use std::process::Child;
use std::time::Duration;

use anyhow::Context;
use common::backend::Backend;
use common::table::ForwardingTable;
use dataplane::cli::Cli;
use dataplane::host::sys::interface::Interface;
use dataplane::host::sys::thread::{allowed_cpus, pin};

use crate::table::https;

const VIP: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);

/// Killed when dropped.
#[derive(Debug)]
pub struct Worker(pub Child);

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// In a process of its own: `dataplane run`, on the last CPU.
///
/// # Errors
/// What `dataplane run` says.
pub fn run(config: &str) -> anyhow::Result<()> {
    pin_last()?;
    <Cli as clap::Parser>::parse_from(["dataplane", "run", "--config", config]).run()
}

/// Keeps the calling thread, and those that it starts, on the last CPU.
///
/// # Errors
/// If the kernel refuses that.
pub fn pin_last() -> anyhow::Result<()> {
    let cpus = allowed_cpus()?;
    Ok(pin(*cpus.last().context("a CPU")?)?)
}

/// 16 backends on the cable itself, two hops a row. `at` is the cable's number.
///
/// # Errors
/// None for the numbers of cables that fit an octet.
pub fn table(at: usize) -> anyhow::Result<ForwardingTable> {
    let subnet = u8::try_from(at)?;
    let backend = |number: u8| {
        Backend::new(format!("web-{number:02}"), Ipv4Addr::new(10, 9, subnet, 11 + number).into())
    };
    let pair = |row: u32| {
        let primary = u16::try_from(row.wrapping_mul(0x9e37_79b9) >> 28).unwrap_or(0);
        [primary, (primary + 1) % 16]
    };
    let backends = (0..16).map(backend).collect();
    let table = crate::table::table("web", 2, backends, vec![https(VIP.into())], pair);
    Ok(ForwardingTable::new(None, vec![table])?)
}

/// A SYN to the VIP, sent to the host on the cable `at`; with options it has 66 octets, and no padding.
///
/// # Errors
/// If the number is too large for a port.
pub fn syn(number: u32, at: u8, interface: &Interface) -> anyhow::Result<Vec<u8>> {
    let mut frame = Vec::from([2, 0, 0, 0, 1, at]);
    frame.extend(interface.mac);
    frame.extend([8, 0]);
    let source = Ipv4Addr::from(0xc633_6400 + number % 256).octets();
    let header: [u8; 12] = [0x45, 0, 0, 52, 0, 0, 0x40, 0, 64, 6, 0, 0];
    frame.extend(header);
    frame.extend(source);
    frame.extend(VIP.octets());
    let checksum = dataplane::wire::checksum::Sum::ZERO.octets(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(u16::try_from(1024 + number)?.to_be_bytes());
    frame.extend(443_u16.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x80, 2, 0xff, 0xff, 0, 0, 0, 0]);
    // Two NOPs and a time stamp.
    frame.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0]);
    Ok(frame)
}

/// A rate.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts of frames are far below 2^52")]
pub fn per_second(frames: u64, time: Duration) -> f64 {
    frames as f64 / time.as_secs_f64()
}

/// The middle one of some.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
