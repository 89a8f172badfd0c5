//! The service as its operator writes it down: which backends, in which state. Tables are made of it as
//! `tablegen build` makes them, the one in service being the parent.

use std::fmt::{self, Write as _};
use std::path::Path;

use anyhow::Context;
use common::table::ForwardingTable;
use tablegen::config::Config;
use tablegen::generate::{History, generate};

use super::topology::{PORT, VIP, VIP6, backend, backend_v6};

/// What `tablegen build` is given.
#[derive(Clone, Debug)]
pub struct Service {
    /// The backends, by number.
    pub backends: Vec<Backend>,
    /// Flow hash, as in the configuration.
    pub hash_fields: &'static str,
    /// The second look-up's.
    pub alt_hash_fields: &'static str,
    /// Backends by their IPv6 addresses.
    pub underlay_v6: bool,
}

/// One backend's line.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    /// Host of the network.
    pub number: u8,
    /// What the operator wants.
    pub state: State,
    /// What probes say.
    pub up: bool,
}

/// States of design and documentation, by their words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Takes new connections.
    Active,
    /// Takes this percentage of its share of new connections.
    Filling(u8),
    /// Keeps its connections, takes no new ones.
    Draining,
    /// Gone.
    Inactive,
}

impl Service {
    /// `count` active backends.
    pub fn new(count: u8) -> Self {
        let backends = (0..count).map(|number| Backend { number, state: State::Active, up: true });
        Self {
            backends: backends.collect(),
            hash_fields: "[src_addr, src_port]",
            alt_hash_fields: "[]",
            underlay_v6: false,
        }
    }

    /// The operator changes one backend's state; a new backend appears.
    pub fn set(&mut self, number: u8, state: State) {
        match self.backends.iter_mut().find(|backend| backend.number == number) {
            Some(backend) => backend.state = state,
            None => self.backends.push(Backend { number, state, up: true }),
        }
    }

    /// Probes change their mind about one backend.
    pub fn set_up(&mut self, number: u8, up: bool) {
        for backend in self.backends.iter_mut().filter(|backend| backend.number == number) {
            backend.up = up;
        }
    }

    /// The table, and what its operator was warned of.
    pub fn build(&self, parent: Option<&ForwardingTable>) -> anyhow::Result<ForwardingTable> {
        let text = self.to_string();
        let config = Config::parse(&text, Path::new("lab.yaml")).context("the lab's configuration")?;
        let history = parent.map_or(History::None, History::Parent);
        Ok(generate(&config.tables, history).context("the lab's table")?.table)
    }
}

/// The configuration's text.
impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fields, alt) = (self.hash_fields, self.alt_hash_fields);
        write!(
            f,
            "version: 1\ntables:\n  - name: lab\n    seed: 000102030405060708090a0b0c0d0e0f\n    \
             hash_key: f0e0d0c0b0a090807060504030201000\n    hash_fields: {fields}\n    alt_hash_fields: {alt}\n    \
             binds:\n      - {{ address: {VIP}, protocol: tcp, port: {PORT} }}\n      \
             - {{ address: \"{VIP6}\", protocol: tcp, port: {PORT} }}\n    backends:\n"
        )?;
        let mut lines = String::new();
        for Backend { number, state, up } in &self.backends {
            let address =
                if self.underlay_v6 { backend_v6(*number).to_string() } else { backend(*number).to_string() };
            let health = if *up { "up" } else { "down" };
            let id = name(*number);
            writeln!(lines, "      - {{ id: {id}, address: \"{address}\", health: {health}, {state} }}")?;
        }
        f.write_str(&lines)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active => f.write_str("state: active"),
            Self::Filling(percent) => write!(f, "state: filling, fill: {percent}"),
            Self::Draining => f.write_str("state: draining"),
            Self::Inactive => f.write_str("state: inactive"),
        }
    }
}

/// A backend's id.
pub fn name(number: u8) -> String {
    format!("web-{}", number + 1)
}
