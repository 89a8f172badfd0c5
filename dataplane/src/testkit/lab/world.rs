//! A complete running service: the network with its programs, servers and tables, and the events that tests
//! cause.
//!
//! The same scenarios run in every mode. `LAB_DIRECTOR_MODE` (auto, xdp, af-packet, pnet) and
//! `LAB_REDIRECT_MODE` (socket, auto, xdp; but socket beside a director on one host) in the environment
//! override the configurations. A requested mode must be reached: `xdp` natively, `auto` generically as on
//! any veth.
//!
//! Clients leave transport checksums unfinished, as kernels do by default on a veth. A director's kernel
//! program punts such packets to its worker. With `LAB_CHECKSUMS=finished` the program gets packets as from a
//! wire.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use common::table::ForwardingTable;

use super::client::{Crowd, CrowdCounts};
use super::folder::Folder;
use super::modes::{self, Modes};
use super::peer::Passing;
use super::program::Program;
use super::server::Server;
use super::service::{Service, name};
use super::topology::{Network, PORT, Size, VIP, VIP6, service};

/// Settings of a world.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The numbers of hosts.
    pub size: Size,
    /// The `dataplane` binary.
    pub binary: PathBuf,
    /// False in the baseline of an experiment.
    pub second_chance: bool,
    /// Whether programs use the kernel path where they may, unless the environment says otherwise.
    pub fast_path: bool,
    /// Additional lines for every director's configuration.
    pub director_lines: String,
    /// The first table.
    pub service: Service,
    /// Seed of all data that clients send.
    pub seed: u64,
    /// Override the configurations' modes.
    pub modes: Modes,
}

/// A running service.
#[derive(Debug)]
pub struct World {
    /// The hosts.
    pub network: Network,
    /// The wanted state of the service; [`World::publish`] applies it.
    pub service: Service,
    setup: Setup,
    wanted: Modes,
    /// Present only if programs run in drivers.
    _passing: Vec<Passing>,
    folder: Folder,
    table: ForwardingTable,
    directors: Vec<Option<Program>>,
    redirectors: Vec<Option<Program>>,
    servers: Vec<Server>,
    crowds: Vec<Crowd>,
}

/// The hosts as lists in a redirector's configuration.
const DIRECTORS: &str = "10.1.0.0/16, \"2001:db8:d::/48\"";
const BACKENDS: &str = "10.2.0.0/16, \"2001:db8:b::/48\"";

/// Time limit for a response. Longer than TCP needs to repair a few lost packets.
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

    /// The control socket of a redirector.
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

    /// The running directors.
    pub fn directors(&self) -> Vec<u8> {
        let running = |number: &u8| self.directors[usize::from(*number)].is_some();
        (0..self.setup.size.directors).filter(running).collect()
    }

    /// Builds the service's table and publishes it to all running directors.
    pub fn publish(&mut self) -> anyhow::Result<()> {
        self.publish_to(&self.directors())
    }

    /// As [`World::publish`], but only to these directors; the others keep their table.
    pub fn publish_to(&mut self, directors: &[u8]) -> anyhow::Result<()> {
        self.table = self.service.build(Some(&self.table))?;
        directors.iter().try_for_each(|&number| self.write_table(number))?;
        directors.iter().try_for_each(|&number| self.await_table(number))
    }

    /// As [`World::publish`], unless the new table would cut a connection; then the service stays as
    /// `before`. An operator who reads `tablegen diff` first does the same. Returns whether the table was
    /// published.
    pub fn publish_if_safe(&mut self, before: Service) -> anyhow::Result<bool> {
        let table = self.service.build(Some(&self.table))?;
        let tables = table.tables().first();
        if tables.is_some_and(|table| self.crowds.iter().any(|crowd| crowd.at_risk(table) > 0)) {
            self.service = before;
            return Ok(false);
        }
        self.publish().map(|()| true)
    }

    /// Closes all connections.
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

    /// Kills a director's program; the router withdraws its route a moment later, as with BGP.
    pub fn kill_director(&mut self, number: u8) -> anyhow::Result<()> {
        if let Some(program) = self.directors[usize::from(number)].take() {
            program.kill()?;
        }
        thread::sleep(Duration::from_millis(50));
        self.network.spread_over(&self.directors())
    }

    /// Starts a director's program again and routes its share of the flows to it.
    pub fn revive_director(&mut self, number: u8) -> anyhow::Result<()> {
        self.write_table(number)?;
        self.start_director(number)?;
        self.await_table(number)?;
        self.network.spread_over(&self.directors())
    }

    /// Kills a redirector's program; its host keeps running, with all its connections.
    pub fn kill_redirector(&mut self, number: u8) -> anyhow::Result<()> {
        let program = self.redirectors[usize::from(number)].take();
        Ok(program.map_or(Ok(()), Program::kill)?)
    }

    /// Removes a backend's host with all its connections.
    pub fn kill_backend(&mut self, number: u8) -> anyhow::Result<()> {
        self.kill_redirector(number)?;
        self.network.backends[usize::from(number)].ip("link set eth0 down")
    }

    /// Makes the router distribute flows differently over the same directors.
    pub fn rehash(&self, seed: u32) -> anyhow::Result<()> {
        self.network.router.sysctl("ipv4/fib_multipath_hash_seed", &seed.to_string())
    }

    /// Opens `count` connections, alternating between clients and between IPv4 and IPv6.
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

    /// Sends a request on every connection and checks every octet of every response.
    pub fn exchange(&mut self) -> CrowdCounts {
        self.exchange_within(PATIENCE)
    }

    /// As [`World::exchange`], with a shorter time limit.
    pub fn exchange_within(&mut self, patience: Duration) -> CrowdCounts {
        thread::scope(|scope| {
            for crowd in &mut self.crowds {
                scope.spawn(move || crowd.exchange(patience));
            }
        });
        self.counts()
    }

    /// Sends a request on each connection in turn. Returns the response times by backend.
    pub fn time(&mut self) -> Vec<(String, Duration)> {
        self.crowds.iter_mut().flat_map(|crowd| crowd.time(PATIENCE)).collect()
    }

    /// The state of the connections after the last requests.
    pub fn counts(&self) -> CrowdCounts {
        self.crowds.iter().fold(CrowdCounts::default(), |mut sum, crowd| {
            sum.add(&crowd.counts());
            sum
        })
    }

    /// Closes the connections of a backend, as its clients do over time.
    pub fn close_on(&mut self, backend: &str) {
        self.crowds.iter_mut().for_each(|crowd| crowd.close_on(backend));
    }

    /// Closes about `share` percent of all connections.
    pub fn close_some(&mut self, share: usize) {
        for crowd in &mut self.crowds {
            crowd.close(crowd.len() * share / 100);
        }
    }

    /// Number of connections of each backend, including broken ones.
    pub fn by_backend(&self) -> BTreeMap<String, usize> {
        let mut sum = BTreeMap::new();
        for (backend, count) in self.crowds.iter().flat_map(Crowd::by_backend) {
            *sum.entry(backend).or_default() += count;
        }
        sum
    }

    /// Number of connections that each backend would have if all had been opened with the newest table.
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

    /// Number of broken connections of each backend.
    pub fn broken_by_backend(&self) -> BTreeMap<String, usize> {
        let mut sum = BTreeMap::new();
        for (backend, count) in self.crowds.iter().flat_map(Crowd::broken_by_backend) {
            *sum.entry(backend).or_default() += count;
        }
        sum
    }

    /// The counters of a director.
    pub fn director_counters(&mut self, number: u8) -> anyhow::Result<serde_json::Value> {
        match &mut self.directors[usize::from(number)] {
            Some(program) => program.counters(),
            None => bail!("director {number} does not run"),
        }
    }

    /// How the first director and the first redirector receive frames: `xdp native`, `xdp generic` or through
    /// a socket.
    pub fn modes(&mut self) -> anyhow::Result<[String; 2]> {
        let mode = |program: Option<&mut Option<Program>>, without: &str| -> anyhow::Result<String> {
            let program = program.and_then(Option::as_mut).context("it does not run")?;
            Ok(modes::attached(program)?.map_or(without.to_owned(), |attached| format!("xdp {attached}")))
        };
        Ok([mode(self.directors.first_mut(), "af-packet")?, mode(self.redirectors.first_mut(), "socket")?])
    }

    /// Fails if a program does not run in the mode that the environment requests.
    pub fn check_modes(&mut self) -> anyhow::Result<()> {
        if let Some(mode) = &self.wanted.director {
            self.directors.iter_mut().flatten().try_for_each(|program| modes::check(program, mode))?;
        }
        let Some(mode) = self.wanted.redirect.clone() else { return Ok(()) };
        for number in 0..self.setup.size.backends {
            // In the baseline experiment the kernel program has nothing to do.
            let by_socket = self.beside_a_director(number) || !self.setup.second_chance;
            let mode = if by_socket { "socket" } else { &mode };
            let program = self.redirectors[usize::from(number)].as_mut();
            program.map_or(Ok(()), |program| modes::check(program, mode))?;
        }
        Ok(())
    }

    /// Packets that redirectors accepted as owner, accepted as second chance, and forwarded.
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
            hops.forwarded += sum("forwarded_to");
        }
        Ok(hops)
    }
}

/// Packets by the hop that accepted them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hops {
    /// Accepted by the row's owner.
    pub first: u64,
    /// Accepted by a second chance.
    pub later: u64,
    /// Sent to the next hop.
    pub forwarded: u64,
}

fn table_file(director: u8) -> String {
    format!("director-{director}.table")
}
