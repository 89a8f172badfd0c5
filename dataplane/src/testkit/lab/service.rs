//! The service as its operator configures it: backends and their states. Builds tables as `tablegen build`
//! does, with the current table as the parent.

use std::path::Path;

use anyhow::{Context, ensure};
use common::backend::{Backend, Health, State};
use common::table::ForwardingTable;
use tablegen::config::{Config, TableSpec};
use tablegen::generate::{History, generate};

use super::topology::{backend, backend_v6};

/// A configuration of one table whose backends are hosts of the network.
#[derive(Clone, Debug)]
pub struct Service {
    /// The configuration that `tablegen` builds the table from.
    pub spec: TableSpec,
}

/// The service of `demo` and of the tests: binds of [`VIP`](super::topology::VIP) and
/// [`VIP6`](super::topology::VIP6), three backends.
pub const DEMO: &str = include_str!("../../../../configs/demo.yaml");

impl Service {
    /// Reads a configuration.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let config = Config::parse(text, Path::new("demo.yaml"))?;
        let [spec] = <[TableSpec; 1]>::try_from(config.tables).ok().context("expected exactly one table")?;
        Ok(Self { spec })
    }

    /// The demo's service with `count` active backends instead of those of the file.
    pub fn with_backends(count: u8) -> anyhow::Result<Self> {
        let mut service = Self::parse(DEMO)?;
        service.spec.backends = (0..count).map(|n| Backend::new(name(n), backend(n).into())).collect();
        Ok(service)
    }

    /// Gives the backends their IPv6 addresses.
    pub fn over_ipv6(mut self) -> Self {
        for (number, backend) in (0..).zip(&mut self.spec.backends) {
            backend.address = backend_v6(number).into();
        }
        self
    }

    /// Changes a backend's state; adds the backend if it is new.
    pub fn set(&mut self, number: u8, state: State) {
        self.backend(number).state = state;
    }

    /// Limits a backend to this percentage of its share of new connections.
    pub fn fill(&mut self, number: u8, percent: u8) {
        let backend = self.backend(number);
        (backend.state, backend.fill) = (State::Filling, percent);
    }

    /// Changes the health of a backend.
    pub fn set_health(&mut self, number: u8, health: Health) {
        self.backend(number).health = health;
    }

    fn backend(&mut self, number: u8) -> &mut Backend {
        let (backends, id) = (&mut self.spec.backends, name(number));
        let position = backends.iter().position(|backend| backend.id == id).unwrap_or(backends.len());
        if position == backends.len() {
            backends.push(Backend::new(id, backend(number).into()));
        }
        &mut backends[position]
    }

    /// Builds the table, with the lineage of `parent`.
    pub fn build(&self, parent: Option<&ForwardingTable>) -> anyhow::Result<ForwardingTable> {
        let history = parent.map_or(History::None, History::Parent);
        Ok(generate(std::slice::from_ref(&self.spec), history)?.table)
    }

    /// The number of backends; an error if one is not a host of the network.
    pub fn check_hosts(&self) -> anyhow::Result<u8> {
        for (number, backend) in (0..).zip(&self.spec.backends) {
            let address = super::topology::backend(number);
            let right = backend.id == name(number) && backend.address == address;
            ensure!(right, "backend {}: {} at {address} was expected", backend.id, name(number));
        }
        Ok(u8::try_from(self.spec.backends.len())?)
    }
}

/// A backend's id.
pub fn name(number: u8) -> String {
    format!("web-{}", u16::from(number) + 1)
}
