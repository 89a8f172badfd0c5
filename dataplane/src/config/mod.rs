//! The data plane's configuration: what was typed ([`raw`]) and what it means ([`Config`]). Unknown keys are refused.

mod raw;

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

use crate::{
    pipeline::{Echo, Underlay},
    wire::ethernet::Mac,
};

/// MTU of the underlay unless the configuration says otherwise.
pub const DEFAULT_MTU: u16 = 1_500;
/// Every IPv4 link carries this much (RFC 791), and a tunnel over less would leave no room for a client.
pub const LEAST_MTU: u16 = 576;

/// A configuration that makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Outer source towards IPv4 backends.
    pub source_ipv4: Option<Ipv4Addr>,
    /// Outer source towards IPv6 backends.
    pub source_ipv6: Option<Ipv6Addr>,
    /// Where all encapsulated packets go, instead of where the kernel's routes say.
    pub gateway_mac: Option<Mac>,
    /// Largest IP packet of the underlay.
    pub mtu: u16,
    /// What to do with echo requests to a VIP.
    pub echo: Echo,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
#[error("{}: {message}", path.display())]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// Line, key, what was found and what is allowed.
    pub message: String,
}

impl Config {
    /// Checks the text of a configuration; `path` is for errors only.
    ///
    /// # Errors
    /// At the first thing that is wrong.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        raw::parse(text).map_err(|message| ConfigError { path: path.into(), message })
    }

    /// What a pipeline needs of it.
    #[must_use]
    pub fn underlay(&self) -> Underlay {
        let Self { source_ipv4, source_ipv6, mtu, echo, .. } = *self;
        Underlay { source_ipv4, source_ipv6, mtu, echo }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            source_ipv4: None,
            source_ipv6: None,
            gateway_mac: None,
            mtu: DEFAULT_MTU,
            echo: Echo::Forward,
        }
    }
}
