//! Connections: read from a file or a capture, or made up from a seed.

use crate::explain::{self, CaptureError};
use common::flow::FlowKey;
use common::hash::mix;
use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow;
use std::ops::Range;

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Seconds from the start of the simulation.
    pub start: f64,
    /// Seconds that it is open.
    pub life: f64,
    /// Its addresses and ports.
    pub key: FlowKey,
}

/// How long made-up connections live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Lives {
    /// Log-normal: a median, and σ = 1.5 of the logarithm.
    LogNormal,
    /// Pareto with exponent 1.2: a heavy tail.
    Heavy,
}

/// Made-up connections: Poisson arrivals, sources by Zipf's law.
#[derive(Clone, Debug)]
pub struct Synthetic {
    /// How many.
    pub count: u32,
    /// Everything follows from it.
    pub seed: u64,
    /// When they start.
    pub starts: Range<f64>,
    /// How long they live.
    pub lives: Lives,
    /// Half of them live longer than so many seconds.
    pub median: f64,
    /// Where they go.
    pub vip: (IpAddr, u16),
}

/// Sources of made-up connections; the most frequent is met 10,000 times as often as the least.
const SOURCES: u32 = 10_000;

impl Synthetic {
    /// The connections in order of their start.
    pub fn flows(&self) -> Vec<Flow> {
        let mut random = Random(self.seed);
        let zipf: Vec<f64> = (1..=SOURCES)
            .scan(0.0, |sum, rank| {
                *sum += 1.0 / f64::from(rank);
                Some(*sum)
            })
            .collect();
        let whole = zipf.last().copied().unwrap_or(1.0);
        // Given their number, Poisson arrivals are independent and uniform.
        let span = self.starts.end - self.starts.start;
        let mut flows: Vec<Flow> = (0..self.count)
            .map(|_| {
                let drawn = random.unit() * whole;
                let source = u32::try_from(zipf.partition_point(|sum| *sum < drawn)).unwrap_or(0);
                let port = 1_024 + u16::try_from(random.next() % 64_000).unwrap_or(0);
                Flow {
                    start: self.starts.start + random.unit() * span,
                    life: self.life(&mut random),
                    key: FlowKey {
                        src_addr: Ipv4Addr::from_bits(0xc612_0000 + source).into(),
                        dst_addr: self.vip.0,
                        ports: Some((port, self.vip.1)),
                    },
                }
            })
            .collect();
        flows.sort_by(|a, b| a.start.total_cmp(&b.start));
        flows
    }

    fn life(&self, random: &mut Random) -> f64 {
        match self.lives {
            Lives::LogNormal => self.median * (1.5 * random.normal()).exp(),
            Lives::Heavy => self.median * (0.5 / random.unit()).powf(1.0 / 1.2),
        }
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Strictly between 0 and 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / 2f64.powi(52)
    }

    /// Box and Muller.
    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// A line that is no connection.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: found {found:?}, expected start,life,source,source port,destination,destination port")]
pub struct FlowError {
    /// From 1.
    pub line: usize,
    /// The line.
    pub found: String,
}

/// Reads `start,life,source,source port,destination,destination port`, a connection a line, times in seconds. Empty
/// lines and those that start with `#` are skipped.
pub fn from_csv(text: &str) -> Result<Vec<Flow>, FlowError> {
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let flow = |(at, line): (usize, &str)| {
        parse(line).ok_or_else(|| FlowError { line: at + 1, found: line.to_owned() })
    };
    lines.map(flow).collect()
}

/// Connections of a capture that `wanted` takes, each from its first packet to its last; the capture starts at 0.
pub fn from_capture(
    reader: impl Read,
    wanted: impl Fn(&explain::Flow) -> bool,
) -> Result<Vec<Flow>, CaptureError> {
    let (mut flows, mut known, mut first) = (Vec::<Flow>::new(), HashMap::new(), None);
    explain::packets(reader, |time, flow| {
        // A packet that was captured late lies before the first.
        let now = time.saturating_sub(*first.get_or_insert(time)).as_secs_f64();
        let Some(flow) = flow else { return ControlFlow::Continue(()) };
        let at = *known.entry(flow).or_insert_with(|| {
            wanted(&flow).then(|| {
                flows.push(Flow { start: now, life: 0.0, key: flow.key });
                flows.len() - 1
            })
        });
        if let Some(flow) = at.and_then(|at| flows.get_mut(at)) {
            flow.life = flow.life.max(now - flow.start);
        }
        ControlFlow::Continue(())
    })?;
    Ok(flows)
}

fn parse(line: &str) -> Option<Flow> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [start, life, source, source_port, destination, port] = fields.as_slice() else { return None };
    let seconds = |text: &str| text.parse().ok().filter(|time: &f64| time.is_finite() && *time >= 0.0);
    Some(Flow {
        start: seconds(start)?,
        life: seconds(life)?,
        key: FlowKey {
            src_addr: source.parse().ok()?,
            dst_addr: destination.parse().ok()?,
            ports: Some((source_port.parse().ok()?, port.parse().ok()?)),
        },
    })
}
