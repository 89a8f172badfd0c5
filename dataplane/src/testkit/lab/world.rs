//! A whole service at work: the network with its programs, servers and tables, and what can happen to them.
//!
//! The same scenarios are played in every mode: `LAB_DIRECTOR_MODE` (auto, xdp, af-packet, pnet) and
//! `LAB_REDIRECT_MODE` (socket, auto, xdp; but socket beside a director) in the environment say which, in
//! place of the configurations. What they ask for they must get: `xdp` natively, `auto` generically as on any
//! veth.
//!
//! Clients leave transport checksums unfinished, as kernels do by default on a veth. A director's kernel
//! program leaves such packets to its worker. `LAB_CHECKSUMS=finished` gives the program packets as from a
//! wire.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use common::table::ForwardingTable;

use super::client::{Crowd, Tally};
use super::folder::Folder;
use super::modes::{self, Modes};
use super::peer::Passing;
use super::program::Program;
use super::server::Server;
use super::service::{Service, name};
use super::topology::{Network, PORT, Size, VIP, VIP6, service};

/// How a world is made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Hosts.
    pub size: Size,
    /// The `dataplane` binary.
    pub binary: PathBuf,
    /// Off in the control of an experiment.
    pub second_chance: bool,
    /// Whether programs take the kernel's fast path where they may, if the environment does not say
    /// otherwise.
    pub fast_path: bool,
    /// More lines for every director's configuration.
    pub director_lines: String,
    /// The first table.
    pub service: Service,
    /// What all that is sent follows from.
    pub seed: u64,
    /// In place of the configurations' modes.
    pub modes: Modes,
}

/// Everything at work.
#[derive(Debug)]
pub struct World {
    /// The hosts.
    pub network: Network,
    /// The service as it is wanted now; [`World::publish`] makes it so.
    pub service: Service,
    setup: Setup,
    wanted: Modes,
    /// Only in the world of programs in drivers.
    _passing: Vec<Passing>,
    folder: Folder,
    table: ForwardingTable,
    directors: Vec<Option<Program>>,
    redirectors: Vec<Option<Program>>,
    servers: Vec<Server>,
    crowds: Vec<Crowd>,
}

/// As a redirector's configuration names the hosts.
const DIRECTORS: &str = "10.1.0.0/16, \"2001:db8:d::/48\"";
const BACKENDS: &str = "10.2.0.0/16, \"2001:db8:b::/48\"";

/// How long an answer may take. Longer than TCP needs to repair a few lost packets.
pub const PATIENCE: Duration = Duration::from_secs(8);

impl World {
    /// Builds the network and starts all programs.
    pub fn new(setup: Setup) -> anyhow::Result<Self> {
        let network = Network::new(setup.size)?;
        let wanted = setup.modes.clone();
        if wanted.finished_checksums {
            network.clients.iter().try_for_each(|client| client.finish_checksums("eth0"))?;
        }
        let passing = if wanted.native() { network.take_native()? } else { Vec::new() };
        let table = setup.service.build(None)?;
        let crowds = (0..setup.size.clients).map(|n| Crowd::new(setup.seed.wrapping_add(n.into()))).collect();
        let mut world = Self {
            network,
            service: setup.service.clone(),
            folder: Folder::new()?,
            table,
            directors: (0..setup.size.directors).map(|_| None).collect(),
            redirectors: (0..setup.size.backends).map(|_| None).collect(),
            servers: Vec::new(),
            crowds,
            wanted,
            _passing: passing,
            setup,
        };
        world.start()?;
        Ok(world)
    }

    fn start(&mut self) -> anyhow::Result<()> {
        for number in 0..self.setup.size.backends {
            let any = std::net::SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, PORT));
            let host = &self.network.backends[usize::from(number)];
            self.servers.push(Server::start(host, &name(number), any)?);
            self.start_redirector(number)?;
        }
        for number in 0..self.setup.size.directors {
            if self.setup.size.shared {
                self.network.leave_to_director(number)?;
            }
            self.write_table(number)?;
            self.start_director(number)?;
        }
        for number in 0..self.setup.size.backends {
            self.redirector(number)?.wait_for("listening")?;
        }
        (0..self.setup.size.directors).try_for_each(|number| self.await_table(number))?;
        self.check_modes()
    }

    /// Starts `dataplane redirect` on a backend's host.
    pub fn start_redirector(&mut self, number: u8) -> anyhow::Result<()> {
        let second_chance = if self.setup.second_chance { "on" } else { "off" };
        let directors = if self.setup.size.shared { BACKENDS } else { DIRECTORS };
        let text = format!(
            "version: 1\ndirectors: [{directors}]\nbackends: [{BACKENDS}]\n\
             vips: [{VIP}, \"{VIP6}\"]\nsecond_chance: {second_chance}\n\
             control: {}\n",
            self.redirect_socket(number).display()
        );
        let log = self.folder.file(&format!("redirect-{number}"));
        let config = self.folder.write(&format!("redirect-{number}.yaml"), text)?;
        let config = config.display().to_string();
        let default = if self.setup.fast_path { "auto" } else { "socket" };
        let mode = match self.beside_a_director(number) {
            true => "socket",
            false => self.wanted.redirect.as_deref().unwrap_or(default),
        };
        let arguments = ["redirect", "--json", "--mode", mode, "--interface", "eth0", "--config", &config];
        let host = &self.network.backends[usize::from(number)];
        let program = Program::start(host, self.setup.binary.clone(), &arguments, log)?;
        self.redirectors[usize::from(number)] = Some(program);
        Ok(())
    }

    fn beside_a_director(&self, number: u8) -> bool {
        self.setup.size.shared && number < self.setup.size.directors
    }

    /// Where `dataplane status` asks that redirector.
    pub fn redirect_socket(&self, number: u8) -> PathBuf {
        self.folder.file(&format!("redirect-{number}.sock"))
    }

    /// Starts `dataplane run` on a director's host.
    pub fn start_director(&mut self, number: u8) -> anyhow::Result<()> {
        let table = table_file(number);
        let text =
            format!("version: 1\ntable: {table}\ninterface: eth0\nworkers: 1\n{}", self.setup.director_lines);
        let log = self.folder.file(&format!("director-{number}"));
        let config = self.folder.write(&format!("director-{number}.yaml"), text)?;
        let config = config.display().to_string();
        let default = self.setup.fast_path.then_some("auto");
        let mode = self.wanted.director.as_deref().or(default);
        let mut arguments = vec!["run", "--json", "--config", &config];
        arguments.extend(mode.into_iter().flat_map(|mode| ["--mode", mode]));
        let host = self.network.director(number);
        let program = Program::start(host, self.setup.binary.clone(), &arguments, log)?;
        self.directors[usize::from(number)] = Some(program);
        Ok(())
    }

    /// The directors that run.
    pub fn directors(&self) -> Vec<u8> {
        let running = |number: &u8| self.directors[usize::from(*number)].is_some();
        (0..self.setup.size.directors).filter(running).collect()
    }

    /// Builds the service's table and hands it to all directors that run.
    pub fn publish(&mut self) -> anyhow::Result<()> {
        self.publish_to(&self.directors())
    }

    /// As [`World::publish`], but only these get it; the others keep what they have.
    pub fn publish_to(&mut self, directors: &[u8]) -> anyhow::Result<()> {
        self.table = self.service.build(Some(&self.table))?;
        directors.iter().try_for_each(|&number| self.write_table(number))?;
        directors.iter().try_for_each(|&number| self.await_table(number))
    }

    /// As [`World::publish`], unless the new table would cut a connection; then the service stays as
    /// `before`. What an operator does who reads `tablegen diff` first. Says whether it was published.
    pub fn publish_if_safe(&mut self, before: Service) -> anyhow::Result<bool> {
        let table = self.service.build(Some(&self.table))?;
        let tables = table.tables().first();
        if tables.is_some_and(|table| self.crowds.iter().any(|crowd| crowd.at_risk(table) > 0)) {
            self.service = before;
            return Ok(false);
        }
        self.publish().map(|()| true)
    }

    /// Forgets all connections, closing them.
    pub fn close_all(&mut self) {
        self.close_some(100);
    }

    /// The newest table.
    pub fn table(&self) -> &ForwardingTable {
        &self.table
    }

    fn write_table(&self, director: u8) -> anyhow::Result<()> {
        self.folder.write(&table_file(director), self.table.encode()).context("a table")?;
        Ok(())
    }

    fn await_table(&mut self, director: u8) -> anyhow::Result<()> {
        let words = format!("table {}", self.table.digest().short());
        match &mut self.directors[usize::from(director)] {
            Some(program) => program.wait_for(&words),
            None => bail!("director {director} does not run"),
        }
    }

    fn redirector(&mut self, number: u8) -> anyhow::Result<&mut Program> {
        self.redirectors[usize::from(number)]
            .as_mut()
            .with_context(|| format!("redirect {number} does not run"))
    }

    /// Kills a director's program; the router learns of it a moment later, as by BGP.
    pub fn kill_director(&mut self, number: u8) -> anyhow::Result<()> {
        if let Some(program) = self.directors[usize::from(number)].take() {
            program.kill()?;
        }
        thread::sleep(Duration::from_millis(50));
        self.network.spread_over(&self.directors())
    }

    /// Starts a director's program again and gives it its share of the flows.
    pub fn revive_director(&mut self, number: u8) -> anyhow::Result<()> {
        self.write_table(number)?;
        self.start_director(number)?;
        self.await_table(number)?;
        self.network.spread_over(&self.directors())
    }

    /// Kills a redirector's program; its host lives, with all that it knows.
    pub fn kill_redirector(&mut self, number: u8) -> anyhow::Result<()> {
        let program = self.redirectors[usize::from(number)].take();
        Ok(program.map_or(Ok(()), Program::kill)?)
    }

    /// A backend's host is gone, with all that it knew.
    pub fn kill_backend(&mut self, number: u8) -> anyhow::Result<()> {
        self.kill_redirector(number)?;
        self.network.backends[usize::from(number)].ip("link set eth0 down")
    }

    /// The router spreads flows in another way over the same directors.
    pub fn rehash(&self, seed: u32) -> anyhow::Result<()> {
        self.network.router.sysctl("ipv4/fib_multipath_hash_seed", &seed.to_string())
    }

    /// Opens `count` connections, by turns from each client and by IPv4 and IPv6.
    pub fn open(&mut self, count: usize) -> anyhow::Result<()> {
        let clients = self.crowds.len();
        for (number, host) in self.network.clients.iter().enumerate() {
            let share = count / clients + usize::from(number < count % clients);
            let mut crowd = std::mem::replace(&mut self.crowds[number], Crowd::new(0));
            let (crowd, result) = host.run(move || {
                let v4 = crowd.open(share - share / 2, service(true), PATIENCE);
                let result = v4.and_then(|()| crowd.open(share / 2, service(false), PATIENCE));
                (crowd, result)
            });
            self.crowds[number] = crowd;
            result.with_context(|| format!("{} opens connections", host.name()))?;
        }
        Ok(())
    }

    /// A request on every connection; every octet of every answer is checked.
    pub fn exchange(&mut self) -> Tally {
        self.exchange_within(PATIENCE)
    }

    /// As [`World::exchange`], for those who have no time.
    pub fn exchange_within(&mut self, patience: Duration) -> Tally {
        thread::scope(|scope| {
            for crowd in &mut self.crowds {
                scope.spawn(move || crowd.exchange(patience));
            }
        });
        self.tally()
    }

    /// One request after the other on all connections, and how long each took, by backend.
    pub fn time(&mut self) -> Vec<(String, Duration)> {
        self.crowds.iter_mut().flat_map(|crowd| crowd.time(PATIENCE)).collect()
    }

    /// As the last requests left the connections.
    pub fn tally(&self) -> Tally {
        self.crowds.iter().fold(Tally::default(), |mut sum, crowd| {
            sum.add(&crowd.tally());
            sum
        })
    }

    /// Closes the connections of a backend, as its clients do in time.
    pub fn close_on(&mut self, backend: &str) {
        self.crowds.iter_mut().for_each(|crowd| crowd.close_on(backend));
    }

    /// Closes about `share` percent of all connections.
    pub fn close_some(&mut self, share: usize) {
        for crowd in &mut self.crowds {
            crowd.close(crowd.len() * share / 100);
        }
    }

    /// Connections of each backend, the broken ones included.
    pub fn by_backend(&self) -> BTreeMap<String, usize> {
        let mut sum = BTreeMap::new();
        for (backend, count) in self.crowds.iter().flat_map(Crowd::by_backend) {
            *sum.entry(backend).or_default() += count;
        }
        sum
    }

    /// Connections of each backend by the newest table, had all been opened under it.
    pub fn expected(&self) -> BTreeMap<String, usize> {
        let mut sum = BTreeMap::new();
        let tables = self.table.tables().first();
        let crowds =
            tables.into_iter().flat_map(|table| self.crowds.iter().map(|crowd| crowd.expected(table)));
        for (backend, count) in crowds.flatten() {
            *sum.entry(backend).or_default() += count;
        }
        sum
    }

    /// Broken connections of each backend.
    pub fn broken_by_backend(&self) -> BTreeMap<String, usize> {
        let mut sum = BTreeMap::new();
        for (backend, count) in self.crowds.iter().flat_map(Crowd::broken_by_backend) {
            *sum.entry(backend).or_default() += count;
        }
        sum
    }

    /// What a director counted.
    pub fn director_counters(&mut self, number: u8) -> anyhow::Result<serde_json::Value> {
        match &mut self.directors[usize::from(number)] {
            Some(program) => program.counters(),
            None => bail!("director {number} does not run"),
        }
    }

    /// How the first director and the first redirector take frames: `xdp native`, `xdp generic` or by a
    /// socket.
    pub fn modes(&mut self) -> anyhow::Result<[String; 2]> {
        let mode = |program: Option<&mut Option<Program>>, without: &str| -> anyhow::Result<String> {
            let program = program.and_then(Option::as_mut).context("it does not run")?;
            Ok(modes::attached(program)?.map_or(without.to_owned(), |attached| format!("xdp {attached}")))
        };
        Ok([mode(self.directors.first_mut(), "af-packet")?, mode(self.redirectors.first_mut(), "socket")?])
    }

    /// Refuses programs that do not run, or do not run any more, in the mode that the environment asks for.
    pub fn check_modes(&mut self) -> anyhow::Result<()> {
        if let Some(mode) = &self.wanted.director {
            self.directors.iter_mut().flatten().try_for_each(|program| modes::check(program, mode))?;
        }
        let Some(mode) = self.wanted.redirect.clone() else { return Ok(()) };
        for number in 0..self.setup.size.backends {
            // The switch of the control experiment leaves the kernel nothing to do.
            let by_socket = self.beside_a_director(number) || !self.setup.second_chance;
            let mode = if by_socket { "socket" } else { &mode };
            let program = self.redirectors[usize::from(number)].as_mut();
            program.map_or(Ok(()), |program| modes::check(program, mode))?;
        }
        Ok(())
    }

    /// Packets that redirectors kept as owner, kept as second chance, and passed on.
    pub fn hops(&mut self) -> anyhow::Result<Hops> {
        let mut hops = Hops::default();
        for number in 0..self.setup.size.backends {
            let Some(program) = &mut self.redirectors[usize::from(number)] else { continue };
            let counters = program.counters()?;
            let sum = |section: &str| {
                let parts = counters[section].as_object().into_iter().flatten();
                parts.filter_map(|(_, packets)| packets.as_u64()).sum::<u64>()
            };
            hops.later += sum("kept_on_later_hop");
            hops.first += sum("kept") - sum("kept_on_later_hop");
            hops.passed_on += sum("forwarded_to");
        }
        Ok(hops)
    }
}

/// Packets by the hop that kept them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hops {
    /// By the row's owner.
    pub first: u64,
    /// By a second chance.
    pub later: u64,
    /// Sent to the next hop.
    pub passed_on: u64,
}

fn table_file(director: u8) -> String {
    format!("director-{director}.table")
}
