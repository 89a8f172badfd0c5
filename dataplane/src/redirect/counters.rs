//! What was done with packets, by reason. Every worker has its own; a report adds them up.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::decide::{Keep, Refuse};
pub use super::fast::FastReport;

/// Different addresses that are counted one by one; more are counted together under the unspecified address.
const ADDRESSES: usize = 4_096;

/// Written by one worker, read by reports.
#[derive(Debug, Default)]
pub struct Counters {
    kept: [AtomicU64; Keep::ALL.len()],
    /// The same, of packets that another redirector had passed on.
    kept_later: [AtomicU64; Keep::ALL.len()],
    refused: [AtomicU64; Refuse::ALL.len()],
    /// Packets that the kernel would not take, kept or passed on.
    send_failed: AtomicU64,
    /// Flows that the kernel gave no answer about; they count as unknown.
    lookup_failed: AtomicU64,
    lookups: AtomicU64,
    /// Packets whose transport checksum was unfinished.
    checksums_finished: AtomicU64,
    /// When the last packet was kept that another redirector had passed on, in milliseconds of [`super::run`]'s clock.
    last_second_hop_ms: AtomicU64,
    /// Locked once a batch, after its verdicts, if one of its packets took a second hop; and by reports.
    second_hop: Mutex<SecondHop>,
}

#[derive(Debug, Default)]
struct SecondHop {
    to: BTreeMap<IpAddr, u64>,
    from: BTreeMap<IpAddr, u64>,
}

impl Counters {
    pub(super) fn keep(&self, reason: Keep, later_hop: bool) {
        bump(&self.kept[reason as usize], 1);
        if later_hop {
            bump(&self.kept_later[reason as usize], 1);
        }
    }

    /// Of one batch: `arrived` are the hosts that passed on packets whose connections live here, though those hosts
    /// own their rows now; `passed_on` are the hosts that packets were passed on to.
    pub(super) fn second_hops(&self, arrived: &[IpAddr], passed_on: &[IpAddr], now_ms: u64) {
        if arrived.is_empty() && passed_on.is_empty() {
            return;
        }
        if !arrived.is_empty() {
            self.last_second_hop_ms.store(now_ms.max(1), Ordering::Relaxed);
        }
        if let Ok(mut second_hop) = self.second_hop.lock() {
            arrived.iter().for_each(|from| count(&mut second_hop.from, *from));
            passed_on.iter().for_each(|to| count(&mut second_hop.to, *to));
        }
    }

    pub(super) fn refuse(&self, reason: Refuse) {
        bump(&self.refused[reason as usize], 1);
    }

    pub(super) fn send_failed(&self, packets: usize) {
        bump(&self.send_failed, packets);
    }

    pub(super) fn finish_checksum(&self, finished: bool) {
        if finished {
            bump(&self.checksums_finished, 1);
        }
    }

    pub(super) fn lookups(&self, asked: usize, unanswered: usize) {
        bump(&self.lookups, asked);
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

/// The counters of all workers, added up.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Packets given to this host's kernel, by reason.
    pub kept: BTreeMap<&'static str, u64>,
    /// Those of them that another redirector had passed on, by reason.
    pub kept_on_later_hop: BTreeMap<&'static str, u64>,
    /// Packets whose connection lives here although another host owns its row, by the host that passed them on.
    /// When these stand still, this host's drain is done.
    pub kept_on_second_hop_from: BTreeMap<IpAddr, u64>,
    /// Milliseconds since the last of them; none if there was none since the start.
    pub since_second_hop_ms: Option<u64>,
    /// Milliseconds since the start. What happened before is not counted.
    pub running_ms: u64,
    /// Packets passed on, by next hop.
    pub forwarded_to: BTreeMap<IpAddr, u64>,
    /// Packets refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Packets that the kernel would not take.
    pub send_failed: u64,
    /// Questions to the kernel about flows.
    pub lookups: u64,
    /// Those that it did not answer.
    pub lookup_failed: u64,
    /// Packets whose transport checksum was unfinished, and that were kept or passed on with it finished. About one
    /// in 65,536 of these was finished before and looked unfinished by chance.
    pub checksums_finished: u64,
    /// Datagrams that the kernel dropped because the socket's buffer was full, or their own checksum was wrong.
    pub lost: u64,
    /// The kernel program's share; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_path: Option<FastReport>,
}

impl Report {
    /// Adds one worker's counters.
    pub fn add(&mut self, counters: &Counters, now_ms: u64) {
        for &reason in Keep::ALL {
            add(&mut self.kept, reason.name(), &counters.kept[reason as usize]);
            add(&mut self.kept_on_later_hop, reason.name(), &counters.kept_later[reason as usize]);
        }
        for &reason in Refuse::ALL {
            add(&mut self.refused, reason.name(), &counters.refused[reason as usize]);
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

    /// Packets passed on.
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
        if let Some(fast_path) = &self.fast_path {
            writeln!(f, "{fast_path}")?;
        }
        writeln!(f, "asked the kernel: {}, without answer: {}", self.lookups, self.lookup_failed)
    }
}

/// A sum, and what it is made of.
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
    fn never_is_told_with_how_long_that_is() {
        let last = |since_second_hop_ms| {
            let text = Report { running_ms: 61_005, since_second_hop_ms, ..Report::default() }.to_string();
            text.lines()
                .find_map(|line| line.strip_prefix("last kept on the second hop: ").map(str::to_owned))
        };
        assert_eq!(last(None).unwrap(), "never since the start 61.005 s ago");
        assert_eq!(last(Some(17)).unwrap(), "0.017 s ago");
    }
}
