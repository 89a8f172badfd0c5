//! Connections to simulate: read from a CSV file or a capture, or generated from a seed.

use crate::review::explain::{self, CaptureError, Flow};
use common::flow::FlowKey;
use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow;
use std::ops::Range;
use tryst_hrw::hash::mix;

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Connection {
    /// Seconds from the start of the simulation to its first packet.
    pub start: f64,
    /// Seconds from its first packet to its last.
    pub life: f64,
    /// Its addresses and ports.
    pub key: FlowKey,
}

/// Distribution of the lifetimes of generated connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetimes {
    /// Log-normal with the given median; the logarithm has a standard deviation of 1.5.
    LogNormal,
    /// Pareto with exponent 1.2: a heavy tail.
    Heavy,
}

/// Generated connections: Poisson arrivals, source addresses by Zipf's law.
#[derive(Clone, Debug)]
pub struct Synthetic {
    /// Number of connections.
    pub count: u32,
    /// Seed of the generator. Equal seeds give equal connections.
    pub seed: u64,
    /// Range of their start times, in seconds.
    pub starts: Range<f64>,
    /// Distribution of their lifetimes.
    pub lifetimes: Lifetimes,
    /// Median lifetime in seconds.
    pub median: f64,
    /// Destination address and port.
    pub vip: (IpAddr, u16),
}

/// Number of source addresses. The most frequent one occurs 10,000 times as often as the least frequent one.
const SOURCES: u32 = 10_000;
/// First source address: 198.18.0.0, of the range for benchmarks (RFC 2544).
const FIRST_SOURCE: u32 = 0xc612_0000;
/// First client port: those below are well-known ports.
const FIRST_PORT: u16 = 1_024;
/// Number of client ports.
const PORTS: u16 = 64_000;

impl Synthetic {
    /// The connections, in order of start.
    pub fn connections(&self) -> Vec<Connection> {
        let mut random = Random(self.seed);
        let zipf: Vec<f64> = (1..=SOURCES)
            .scan(0.0, |sum, rank| {
                *sum += 1.0 / f64::from(rank);
                Some(*sum)
            })
            .collect();
        let mut connections: Vec<Connection> =
            (0..self.count).map(|_| self.connection(&zipf, &mut random)).collect();
        connections.sort_by(|a, b| a.start.total_cmp(&b.start));
        connections
    }

    /// Given their number, the arrival times of a Poisson process are independent and uniform.
    fn connection(&self, zipf: &[f64], random: &mut Random) -> Connection {
        let drawn = random.unit() * zipf.last().expect("invariant: there is at least one source");
        let source = u32::try_from(zipf.partition_point(|sum| *sum < drawn))
            .expect("invariant: there are at most `SOURCES` sources");
        #[expect(clippy::cast_possible_truncation, reason = "less than `PORTS`")]
        let port = FIRST_PORT + (random.next() % u64::from(PORTS)) as u16;
        Connection {
            start: self.starts.start + random.unit() * (self.starts.end - self.starts.start),
            life: self.life(random),
            key: FlowKey {
                src_addr: Ipv4Addr::from_bits(FIRST_SOURCE + source).into(),
                dst_addr: self.vip.0,
                ports: Some((port, self.vip.1)),
            },
        }
    }

    fn life(&self, random: &mut Random) -> f64 {
        match self.lifetimes {
            Lifetimes::LogNormal => self.median * (1.5 * random.normal()).exp(),
            Lifetimes::Heavy => self.median * (0.5 / random.unit()).powf(1.0 / 1.2),
        }
    }
}

/// The splitmix64 generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A uniform number strictly between 0 and 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / 2f64.powi(52)
    }

    /// A standard normal number, by the method of Box and Muller.
    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// A line of a CSV file that describes no connection.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: found {found:?}, expected start,life,source,source port,destination,destination port")]
pub struct ConnectionError {
    /// Line number, from 1.
    pub line: usize,
    /// Text of the line.
    pub found: String,
}

/// Reads one connection per line: `start,life,source,source port,destination,destination port`, times in seconds.
/// Skips empty lines and lines that start with `#`.
pub fn from_csv(text: &str) -> Result<Vec<Connection>, ConnectionError> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let connection = |(line, text): (usize, &str)| {
        parse(text).ok_or_else(|| ConnectionError { line, found: text.to_owned() })
    };
    lines.map(connection).collect()
}

/// Reads the flows of a capture that `wanted` accepts. Each connection lasts from its first packet to its last; time 0
/// is the time of the first packet in the capture.
pub fn from_capture(
    reader: impl Read,
    wanted: impl Fn(&Flow) -> bool,
) -> Result<Vec<Connection>, CaptureError> {
    let (mut connections, mut known, mut first) = (Vec::<Connection>::new(), HashMap::new(), None);
    explain::packets(reader, |time, flow| {
        // The time of a packet can lie before that of the first packet in the file: it counts as 0.
        let now = time.saturating_sub(*first.get_or_insert(time)).as_secs_f64();
        let Some(flow) = flow else { return ControlFlow::Continue(()) };
        let index = *known.entry(flow).or_insert_with(|| {
            wanted(&flow).then(|| {
                connections.push(Connection { start: now, life: 0.0, key: flow.key });
                connections.len() - 1
            })
        });
        if let Some(connection) = index.and_then(|index| connections.get_mut(index)) {
            connection.life = connection.life.max(now - connection.start);
        }
        ControlFlow::Continue(())
    })?;
    Ok(connections)
}

fn parse(line: &str) -> Option<Connection> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [start, life, source, source_port, destination, port] = fields.as_slice() else { return None };
    let seconds = |text: &str| text.parse().ok().filter(|time: &f64| time.is_finite() && *time >= 0.0);
    Some(Connection {
        start: seconds(start)?,
        life: seconds(life)?,
        key: FlowKey {
            src_addr: source.parse().ok()?,
            dst_addr: destination.parse().ok()?,
            ports: Some((source_port.parse().ok()?, port.parse().ok()?)),
        },
    })
}
