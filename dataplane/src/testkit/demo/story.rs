//! The acts of the demo.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::ensure;
use common::backend::State;
use common::table::Table;
use serde::Serialize;
use tablegen::format::number::grouped;

use crate::testkit::lab::client::CrowdCounts;
use crate::testkit::lab::modes::Modes;
use crate::testkit::lab::service::{DEMO, Service, name};
use crate::testkit::lab::topology::{Size, VIP, VIP6};
use crate::testkit::lab::world::{Setup, World};

const SHORT: usize = 300;
const LONG: usize = 50;
const NEW: usize = 100;

/// The counters of the demo.
#[derive(Debug, Default, Serialize)]
struct Counted {
    table: String,
    rows: u32,
    director_mode: String,
    redirect_mode: String,
    served: BTreeMap<String, usize>,
    expected: BTreeMap<String, usize>,
    answered: usize,
    drain: Drain,
    director_killed: Survival,
    without_second_chance: Control,
    seconds: f64,
}

#[derive(Debug, Default, Serialize)]
struct Drain {
    table: String,
    rows_changed: usize,
    /// Long connections of the drained backend.
    on_drained: usize,
    connections: Survival,
    packets_by_second_hop: u64,
    new_connections: BTreeMap<String, usize>,
}

#[derive(Debug, Default, Serialize)]
struct Control {
    on_drained: usize,
    connections: Survival,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Survival {
    open: usize,
    alive: usize,
    broken: usize,
}

impl From<&CrowdCounts> for Survival {
    fn from(counts: &CrowdCounts) -> Self {
        Self { open: counts.opened, alive: counts.alive, broken: counts.broken() }
    }
}

/// Runs all acts and prints them as they happen; with `json` prints the counters only.
pub(super) fn play(binary: PathBuf, json: bool) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut out: Box<dyn Write> = if json { Box::new(io::sink()) } else { Box::new(io::stdout()) };
    let mut counted = Counted::default();
    with_second_chance(&binary, &mut counted, &mut out)?;
    counted.without_second_chance = without_second_chance(&binary, &mut out)?;
    counted.seconds = start.elapsed().as_secs_f64();
    writeln!(out, "\nAll namespaces, programs and files are removed. {:.1} s.", counted.seconds)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&counted)?);
    }
    ensure!(
        counted.drain.connections.broken + counted.director_killed.broken == 0,
        "connections broke that should not have"
    );
    Ok(())
}

fn world(binary: &Path, second_chance: bool) -> anyhow::Result<World> {
    let service = Service::parse(DEMO)?;
    let backends = service.check_hosts()?;
    World::new(Setup {
        size: Size { clients: 1, directors: 2, backends, shared: false, underlay_mtu: 1_600 },
        binary: binary.to_owned(),
        second_chance,
        fast_path: true,
        director_lines: String::new(),
        service,
        seed: 1,
        modes: Modes::from_environment(),
    })
}

fn with_second_chance(binary: &Path, counted: &mut Counted, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut world = world(binary, true)?;
    let digest = world.table().digest().short();
    let owners = owners(&world);
    counted.table.clone_from(&digest);
    counted.rows = table(&world).map_or(0, Table::rows);
    writeln!(
        out,
        "A client, a router that spreads flows (ECMP), two directors and {} backends,\n\
         each in a network namespace of its own. Table {digest} of configs/demo.yaml, {} rows.\n",
        owners.len(),
        grouped(counted.rows)
    )?;
    modes(&mut world, counted, out)?;
    spread(&mut world, counted, &owners, out)?;
    drain(&mut world, counted, out)?;
    lose_director(&mut world, counted, out)
}

/// Prints how programs receive frames: in the kernel if this user may load programs into it.
fn modes(world: &mut World, counted: &mut Counted, out: &mut dyn Write) -> anyhow::Result<()> {
    let [director, redirect] = world.modes()?;
    let in_kernel = director.starts_with("xdp") || redirect.starts_with("xdp");
    let why = if in_kernel { "" } else { ": the kernel path (XDP) needs root" };
    writeln!(out, "Directors receive frames by {director}, redirectors by {redirect}{why}.\n")?;
    (counted.director_mode, counted.redirect_mode) = (director, redirect);
    Ok(())
}

/// Act 1: connections are distributed by the table.
fn spread(
    world: &mut World,
    counted: &mut Counted,
    owners: &BTreeMap<String, usize>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    writeln!(out, "1  {SHORT} connections to {VIP} and {VIP6}, one HTTP request each\n")?;
    world.open(SHORT)?;
    counted.served = world.by_backend();
    counted.expected = world.expected();
    counted.answered = world.counts().alive;
    writeln!(out, "     backend   rows owned   by the table   served")?;
    for (backend, rows) in owners {
        let of = |counts: &BTreeMap<String, usize>| counts.get(backend).copied().unwrap_or(0);
        let percent = percent(*rows, counted.rows);
        writeln!(
            out,
            "     {backend:<8} {percent:>9.1} % {:>14} {:>8}",
            of(&counted.expected),
            of(&counted.served)
        )?;
    }
    writeln!(out, "\n     {} of {SHORT} answered, every octet checked.\n", counted.answered)?;
    ensure!(counted.served == counted.expected, "backends served other connections than the table says");
    world.close_all();
    Ok(())
}

/// Act 2: a backend is drained under open connections.
fn drain(world: &mut World, counted: &mut Counted, out: &mut dyn Write) -> anyhow::Result<()> {
    let drained = name(0);
    world.open(LONG)?;
    let on_drained = world.by_backend().get(&drained).copied().unwrap_or(0);
    writeln!(
        out,
        "2  {drained} is drained while {LONG} connections are open, {on_drained} of them on {drained}\n"
    )?;
    let before = primaries(world);
    world.service.set(0, State::Draining);
    world.publish()?;
    let rows_changed = before.iter().zip(&primaries(world)).filter(|(old, new)| old != new).count();
    let counts = (0..3).map(|_| world.exchange()).last().unwrap_or_default();
    let long = world.by_backend();
    world.open(NEW)?;
    let new_connections: BTreeMap<_, _> = world
        .by_backend()
        .into_iter()
        .map(|(backend, all)| (backend.clone(), all - long.get(&backend).copied().unwrap_or(0)))
        .collect();
    let drain = Drain {
        table: world.table().digest().short(),
        rows_changed,
        on_drained,
        connections: Survival::from(&counts),
        packets_by_second_hop: world.hops()?.later,
        new_connections,
    };
    print_drain(&drain, counted.rows, &drained, out)?;
    counted.drain = drain;
    Ok(())
}

fn print_drain(drain: &Drain, rows: u32, drained: &str, out: &mut dyn Write) -> io::Result<()> {
    let Survival { open, alive, broken } = drain.connections;
    let percent = percent(drain.rows_changed, rows);
    let shares: Vec<_> =
        drain.new_connections.iter().map(|(backend, count)| format!("{backend} {count}")).collect();
    writeln!(
        out,
        "     Table {}: {percent:.1} % of rows have a new owner, and {drained} as second chance.\n     \
         {alive} of {open} connections alive, {broken} broken; {} packets reached {drained} by the second hop.\n     \
         {NEW} new connections: {}.\n",
        drain.table,
        drain.packets_by_second_hop,
        shares.join(", "),
    )
}

/// Act 3: a director dies.
fn lose_director(world: &mut World, counted: &mut Counted, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "3  one of the two directors is killed; the router gives its flows to the other\n")?;
    world.kill_director(1)?;
    let counts = (0..3).map(|_| world.exchange()).last().unwrap_or_default();
    counted.director_killed = Survival::from(&counts);
    writeln!(
        out,
        "     {} of {} connections alive, {} broken.\n",
        counts.alive,
        counts.opened,
        counts.broken()
    )?;
    Ok(())
}

/// The baseline: the same drain without the second chance.
fn without_second_chance(binary: &Path, out: &mut dyn Write) -> anyhow::Result<Control> {
    writeln!(out, "4  the same drain with the second chance switched off\n")?;
    let mut world = world(binary, false)?;
    world.open(LONG)?;
    let on_drained = world.by_backend().get(&name(0)).copied().unwrap_or(0);
    world.service.set(0, State::Draining);
    world.publish()?;
    let counts = world.exchange();
    writeln!(
        out,
        "     {} of {} connections alive, {} broken: the {on_drained} that were on {}.",
        counts.alive,
        counts.opened,
        counts.broken(),
        name(0)
    )?;
    Ok(Control { on_drained, connections: Survival::from(&counts) })
}

fn table(world: &World) -> Option<&Table> {
    world.table().tables().first()
}

/// Number of rows that each backend owns.
fn owners(world: &World) -> BTreeMap<String, usize> {
    let mut owners = BTreeMap::new();
    for owner in primaries(world).into_iter().flatten() {
        *owners.entry(owner).or_default() += 1;
    }
    owners
}

fn primaries(world: &World) -> Vec<Option<String>> {
    let Some(table) = table(world) else { return Vec::new() };
    let owner =
        |row| table.primary(row).and_then(|index| table.backend(index)).map(|backend| backend.id.clone());
    (0..table.rows()).map(owner).collect()
}

fn percent(rows: usize, of: u32) -> f64 {
    let rows = u32::try_from(rows).expect("invariant: a table has at most 2^22 rows");
    100.0 * f64::from(rows) / f64::from(of.max(1))
}
