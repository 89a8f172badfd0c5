//! `dataplane replay`: sends a capture through the packet path, without any privilege. Writes the frames that
//! would be sent to another capture, and counts the verdicts.
//!
//! Without a configuration the underlay has default values: sources [`DEFAULT_SOURCE_V4`] and
//! [`DEFAULT_SOURCE_V6`], MTU 1,500, and [`DEFAULT_GATEWAY`] as the next hop of all backends. An output frame
//! has the link address that the client's frame was sent to as its source, and the time stamp of that frame.

use std::{
    fs::{File, Metadata},
    io::{BufWriter, Write},
    net::{Ipv4Addr, Ipv6Addr},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use common::text::Printable;

use crate::{
    control::{
        config::{ASSUMED, DEFAULT_MTU, ReplayConfig, UnderlayConfig},
        table,
    },
    drivers::pcap::{Captured, Reader, Writer},
    host::files,
    pipeline::{Answer, Counters, DropReason, NextHop, PassReason, Pipeline, Underlay, Verdict},
    wire::ethernet::Mac,
};

/// Outer source address towards IPv4 backends without a configuration (RFC 5737).
pub const DEFAULT_SOURCE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Outer source address towards IPv6 backends without a configuration (RFC 3849).
pub const DEFAULT_SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// Link address of the next hop without a configuration.
pub const DEFAULT_GATEWAY: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// Send a capture through the packet path and write the frames that would be sent
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Forwarding table: of tablegen, or GLB Director's version 2
    #[arg(long, value_name = "TABLE")]
    table: PathBuf,
    /// Data plane configuration, for source addresses, gateway_mac, mtu, echo and glb [default: built-in
    /// values]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the counters as JSON [default: text]
    #[arg(long)]
    json: bool,
    /// Capture to read: pcap or pcapng, Ethernet
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Capture to write: pcap
    #[arg(value_name = "OUT")]
    output: PathBuf,
}

impl Args {
    /// Replays the capture and prints the counters.
    ///
    /// # Errors
    /// If a file cannot be read or written, or is refused.
    pub fn run(&self) -> anyhow::Result<()> {
        let pipeline = self.pipeline()?;
        let input = File::open(&self.input).with_context(|| self.input.display().to_string())?;
        self.output_is_no_input()?;
        let reader = Reader::new(input).with_context(|| self.input.display().to_string())?;
        let counters = self.replay(&pipeline, reader)?;
        match self.report(&pipeline, &counters) {
            // The reader of the output has closed it, as `head` does.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }

    fn report(&self, pipeline: &Pipeline, counters: &Counters) -> std::io::Result<()> {
        let mut stdout = BufWriter::new(std::io::stdout().lock());
        if self.json {
            serde_json::to_writer_pretty(&mut stdout, &to_json(pipeline, counters))?;
            writeln!(stdout)?;
        } else {
            let mut text = Vec::new();
            print(&mut text, pipeline, counters)?;
            write!(stdout, "{}", Printable(String::from_utf8_lossy(&text)))?;
        }
        stdout.flush()
    }

    /// Refuses an output that is also an input: creating it would truncate the input.
    fn output_is_no_input(&self) -> anyhow::Result<()> {
        let Ok(output) = std::fs::metadata(&self.output) else { return Ok(()) };
        let is_output = |file: &&PathBuf| {
            let same = |input: Metadata| (input.dev(), input.ino()) == (output.dev(), output.ino());
            output.is_file() && std::fs::metadata(file).is_ok_and(same)
        };
        let inputs = [Some(&self.input), Some(&self.table), self.config.as_ref()];
        match inputs.into_iter().flatten().find(is_output) {
            Some(input) => anyhow::bail!("{} would overwrite {}", self.output.display(), input.display()),
            None => Ok(()),
        }
    }

    fn pipeline(&self) -> anyhow::Result<Pipeline> {
        let ReplayConfig { underlay: config, glb } =
            self.config.as_deref().map_or_else(|| Ok(ReplayConfig::default()), read_config)?;
        let (forwarding, assumes_fields) = table::load(&self.table)?.with_fields(&self.table, glb)?;
        if assumes_fields {
            eprintln!("{}: {ASSUMED}", Printable(&self.table.display().to_string()));
        }
        let destination = config.gateway_mac.unwrap_or(DEFAULT_GATEWAY);
        let next_hop = |_, _| Some(NextHop::Link { ifindex: 0, source: Mac::default(), destination });
        let pipeline = Pipeline::new(forwarding, underlay(config), next_hop);
        pipeline.map_err(|tie| anyhow::anyhow!("binds {} and {} tie", tie.earlier, tie.later))
    }

    fn replay(&self, pipeline: &Pipeline, mut reader: Reader<File>) -> anyhow::Result<Counters> {
        let output = File::create(&self.output).with_context(|| self.output.display().to_string())?;
        let mut writer = Writer::new(BufWriter::new(output))?;
        let mut counters = Counters::new(pipeline);
        let mut out = Vec::new();
        while let Some(captured) = reader.next_frame().with_context(|| self.input.display().to_string())? {
            out.resize(pipeline.room(captured.frame.len()).max(out.len()), 0);
            let verdict = pipeline.process(&captured.frame, &mut out);
            counters.count(&verdict);
            if let Some(frame) = sent(&verdict, &captured, &mut out) {
                writer.write(captured.time, frame).with_context(|| self.output.display().to_string())?;
            }
        }
        writer.into_inner().flush().with_context(|| self.output.display().to_string())?;
        Ok(counters)
    }
}

fn read_config(path: &Path) -> anyhow::Result<ReplayConfig> {
    let text = files::text(path).with_context(|| path.display().to_string())?;
    Ok(ReplayConfig::parse(path, &text)?)
}

fn underlay(config: UnderlayConfig) -> Underlay {
    Underlay {
        source_ipv4: config.source_ipv4.or(Some(DEFAULT_SOURCE_V4)),
        source_ipv6: config.source_ipv6.or(Some(DEFAULT_SOURCE_V6)),
        mtu: config.mtu.unwrap_or(DEFAULT_MTU),
        echo: config.echo,
    }
}

/// The frame that a verdict sends. The source address of an encapsulated frame is the destination of the
/// captured one.
fn sent<'a>(verdict: &Verdict, captured: &Captured, out: &'a mut [u8]) -> Option<&'a [u8]> {
    match verdict {
        Verdict::Encapsulate(done) | Verdict::Local(done) => {
            let frame = out.get_mut(..done.len as usize)?;
            frame.get_mut(6..12)?.copy_from_slice(captured.frame.get(..6)?);
            Some(frame)
        }
        Verdict::Answer { len, .. } => out.get(..*len as usize),
        Verdict::Pass(_) | Verdict::Drop(_) => None,
    }
}

fn to_json(pipeline: &Pipeline, counters: &Counters) -> serde_json::Value {
    let forwarding = pipeline.forwarding();
    let tables = forwarding.tables().iter().enumerate().map(|(index, table)| {
        let counts = counters.backends(index);
        let backends = table.backends.iter().zip(counts);
        let backends = backends.map(|(b, frames)| serde_json::json!({ "id": b.id, "frames": frames }));
        serde_json::json!({
            "name": table.name,
            "frames": counts.iter().sum::<u64>(),
            "backends": backends.collect::<Vec<_>>(),
        })
    });
    serde_json::json!({
        "table": forwarding.digest().to_string(),
        "frames": counters.frames,
        "encapsulated": counters.encapsulated,
        "passed": reasons(PassReason::ALL, PassReason::name, |r| counters.passed(r)),
        "dropped": reasons(DropReason::ALL, DropReason::name, |r| counters.dropped(r)),
        "answered": reasons(Answer::ALL, Answer::name, |r| counters.answered(r)),
        "tables": tables.collect::<Vec<_>>(),
    })
}

fn reasons<R: Copy>(
    all: &[R],
    name: impl Fn(R) -> &'static str,
    count: impl Fn(R) -> u64,
) -> serde_json::Value {
    all.iter().map(|reason| (name(*reason).to_owned(), serde_json::Value::from(count(*reason)))).collect()
}

fn print(to: &mut impl Write, pipeline: &Pipeline, counters: &Counters) -> std::io::Result<()> {
    let forwarding = pipeline.forwarding();
    writeln!(to, "table {}, {} frames", forwarding.digest().short(), counters.frames)?;
    writeln!(to, "  {:<24} {:>12}", "encapsulated", counters.encapsulated)?;
    let passed = PassReason::ALL.iter().map(|r| ("passed", r.name(), counters.passed(*r)));
    let dropped = DropReason::ALL.iter().map(|r| ("dropped", r.name(), counters.dropped(*r)));
    let answered = Answer::ALL.iter().map(|r| ("answered", r.name(), counters.answered(*r)));
    for (what, name, count) in passed.chain(dropped).chain(answered).filter(|(.., count)| *count > 0) {
        writeln!(to, "  {:<24} {count:>12}", format!("{what} {name}"))?;
    }
    for (index, table) in forwarding.tables().iter().enumerate() {
        writeln!(to, "{}", table.name)?;
        for (backend, frames) in table.backends.iter().zip(counters.backends(index)) {
            writeln!(to, "  {:<24} {frames:>12}", backend.id)?;
        }
    }
    Ok(())
}
