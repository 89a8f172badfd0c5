//! Packets by verdict and reason. Every worker has its own counters; a report adds them up.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::decide::{Accept, Reject};
pub use super::kernel_path::KernelPathReport;

/// Number of addresses that are counted separately; packets of further addresses are counted under the
/// unspecified address.
const ADDRESSES: usize = 4_096;

/// Written by one worker, read by reports.
#[derive(Debug, Default)]
pub struct Counters {
    accepted: [AtomicU64; Accept::ALL.len()],
    /// The accepted packets that another redirector had forwarded.
    accepted_later_hop: [AtomicU64; Accept::ALL.len()],
    rejected: [AtomicU64; Reject::ALL.len()],
    /// Packets, accepted or forwarded, that the kernel refused to send.
    send_failed: AtomicU64,
    /// Flows without a reply from the kernel; they count as unknown.
    lookup_failed: AtomicU64,
    lookups: AtomicU64,
    /// Packets whose transport checksum was unfinished.
    checksums_finished: AtomicU64,
    /// When the last packet was accepted that another redirector had forwarded, in milliseconds of
    /// [`super::run`]'s clock.
    last_second_hop_ms: AtomicU64,
    /// Locked once per batch, after its verdicts, if one of its packets took a second hop; and by reports.
    second_hop: Mutex<SecondHop>,
}

#[derive(Debug, Default)]
struct SecondHop {
    to: BTreeMap<IpAddr, u64>,
    from: BTreeMap<IpAddr, u64>,
}

impl Counters {
    pub(super) fn accept(&self, reason: Accept, later_hop: bool) {
        bump(&self.accepted[reason as usize], 1);
        if later_hop {
            bump(&self.accepted_later_hop[reason as usize], 1);
        }
    }

    /// Counts a batch. `senders` are the hosts that forwarded packets whose connections are here although
    /// those hosts own their rows now; `forwarded_to` are the next hops of forwarded packets.
    pub(super) fn second_hops(&self, senders: &[IpAddr], forwarded_to: &[IpAddr], now_ms: u64) {
        if senders.is_empty() && forwarded_to.is_empty() {
            return;
        }
        if !senders.is_empty() {
            self.last_second_hop_ms.store(now_ms.max(1), Ordering::Relaxed);
        }
        if let Ok(mut second_hop) = self.second_hop.lock() {
            senders.iter().for_each(|from| count(&mut second_hop.from, *from));
            forwarded_to.iter().for_each(|to| count(&mut second_hop.to, *to));
        }
    }

    pub(super) fn reject(&self, reason: Reject) {
        bump(&self.rejected[reason as usize], 1);
    }

    pub(super) fn send_failed(&self, packets: usize) {
        bump(&self.send_failed, packets);
    }

    pub(super) fn finish_checksum(&self, finished: bool) {
        if finished {
            bump(&self.checksums_finished, 1);
        }
    }

    pub(super) fn lookups(&self, flows: usize, unanswered: usize) {
        bump(&self.lookups, flows);
        bump(&self.lookup_failed, unanswered);
    }
}

fn bump(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

fn count(map: &mut BTreeMap<IpAddr, u64>, address: IpAddr) {
    let known = map.len() < ADDRESSES || map.contains_key(&address);
    let key = if known { address } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    *map.entry(key).or_default() += 1;
}

/// The sum of all workers' counters. The field names are keys of the JSON report.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Accepted packets, delivered to this host's kernel, by reason.
    pub kept: BTreeMap<&'static str, u64>,
    /// Accepted packets that another redirector had forwarded, by reason.
    pub kept_on_later_hop: BTreeMap<&'static str, u64>,
    /// Packets whose connection is here although another host owns its row, by the host that forwarded them.
    /// When these counters stop growing, this host's drain is done.
    pub kept_on_second_hop_from: BTreeMap<IpAddr, u64>,
    /// Milliseconds since the last of these packets; `None` if there was none since the start.
    pub since_second_hop_ms: Option<u64>,
    /// Milliseconds since the start. Earlier packets are not counted.
    pub running_ms: u64,
    /// Forwarded packets, by next hop.
    pub forwarded_to: BTreeMap<IpAddr, u64>,
    /// Rejected packets, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Packets that the kernel refused to send.
    pub send_failed: u64,
    /// Socket look-ups: flows that the kernel was queried about.
    pub lookups: u64,
    /// Look-ups without a reply.
    pub lookup_failed: u64,
    /// Packets that had an unfinished transport checksum, and were accepted or forwarded with it finished.
    /// About one in 65,536 of these had a finished checksum that looked unfinished by chance.
    pub checksums_finished: u64,
    /// Datagrams that the kernel dropped because the socket's buffer was full, or their own checksum was
    /// wrong.
    pub lost: u64,
    /// The kernel program's counters; absent without one.
    #[serde(rename = "fast_path", skip_serializing_if = "Option::is_none")]
    pub kernel_path: Option<KernelPathReport>,
}

impl Report {
    /// Adds one worker's counters.
    pub fn add(&mut self, counters: &Counters, now_ms: u64) {
        for &reason in Accept::ALL {
            add(&mut self.kept, reason.name(), &counters.accepted[reason as usize]);
            add(&mut self.kept_on_later_hop, reason.name(), &counters.accepted_later_hop[reason as usize]);
        }
        for &reason in Reject::ALL {
            add(&mut self.refused, reason.name(), &counters.rejected[reason as usize]);
        }
        self.send_failed += counters.send_failed.load(Ordering::Relaxed);
        self.lookups += counters.lookups.load(Ordering::Relaxed);
        self.lookup_failed += counters.lookup_failed.load(Ordering::Relaxed);
        self.checksums_finished += counters.checksums_finished.load(Ordering::Relaxed);
        let last = counters.last_second_hop_ms.load(Ordering::Relaxed);
        let since = (last > 0).then(|| now_ms.saturating_sub(last));
        self.since_second_hop_ms = [self.since_second_hop_ms, since].into_iter().flatten().min();
        if let Ok(second_hop) = counters.second_hop.lock() {
            merge(&mut self.kept_on_second_hop_from, &second_hop.from);
            merge(&mut self.forwarded_to, &second_hop.to);
        }
    }

    /// Number of forwarded packets.
    pub fn forwarded(&self) -> u64 {
        self.forwarded_to.values().sum()
    }
}

fn add(map: &mut BTreeMap<&'static str, u64>, name: &'static str, counter: &AtomicU64) {
    *map.entry(name).or_default() += counter.load(Ordering::Relaxed);
}

fn merge(into: &mut BTreeMap<IpAddr, u64>, from: &BTreeMap<IpAddr, u64>) {
    for (&address, &packets) in from {
        *into.entry(address).or_default() += packets;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        section(f, "kept", &self.kept)?;
        section(f, "kept on a later hop", &self.kept_on_later_hop)?;
        section(f, "kept on the second hop, from", &self.kept_on_second_hop_from)?;
        let (since_start, ms) = match self.since_second_hop_ms {
            Some(ms) => ("", ms),
            None => ("never since the start ", self.running_ms),
        };
        writeln!(f, "last kept on the second hop: {since_start}{}.{:03} s ago", ms / 1_000, ms % 1_000)?;
        section(f, "passed on to", &self.forwarded_to)?;
        section(f, "refused", &self.refused)?;
        writeln!(f, "send failed: {}", self.send_failed)?;
        writeln!(f, "lost before they were read: {}", self.lost)?;
        writeln!(f, "checksums finished: {}", self.checksums_finished)?;
        if let Some(kernel_path) = &self.kernel_path {
            writeln!(f, "{kernel_path}")?;
        }
        writeln!(f, "socket look-ups: {}, without reply: {}", self.lookups, self.lookup_failed)
    }
}

/// Writes a sum and its parts that are not zero.
fn section<K: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    parts: &BTreeMap<K, u64>,
) -> fmt::Result {
    writeln!(f, "{title}: {}", parts.values().sum::<u64>())?;
    for (name, packets) in parts.iter().filter(|(_, packets)| **packets > 0) {
        writeln!(f, "  {name}: {packets}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_hop_that_never_happened_is_reported_with_the_running_time() {
        let last = |since_second_hop_ms| {
            let text = Report { running_ms: 61_005, since_second_hop_ms, ..Report::default() }.to_string();
            text.lines()
                .find_map(|line| line.strip_prefix("last kept on the second hop: ").map(str::to_owned))
        };
        assert_eq!(last(None).unwrap(), "never since the start 61.005 s ago");
        assert_eq!(last(Some(17)).unwrap(), "0.017 s ago");
    }
}
