//! `redirect.yaml`: what was written, and what it means.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use common::bind::Prefix;
use serde::Deserialize;

use crate::wire::gue;

/// A configuration that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectConfig {
    /// Where GUE arrives. `[::]` hears IPv4 as well.
    pub listen: SocketAddr,
    /// Who may send packets that took no hop yet.
    pub directors: Vec<Prefix>,
    /// Who may pass packets on, and whom they may be passed on to.
    pub backends: Vec<Prefix>,
    /// The only destinations of packets inside.
    pub vips: Vec<Prefix>,
    /// Most addresses that a packet may carry.
    pub max_hops: u8,
    /// Off: everything that arrives is kept.
    pub second_chance: bool,
    /// What is done with datagrams.
    pub udp: Udp,
    /// How packets come in.
    pub mode: Mode,
    /// Where the kernel program is attached; none for `mode: socket`.
    pub interface: Option<String>,
    /// Threads.
    pub workers: u8,
    /// Where `dataplane status` finds this process.
    pub control: Option<PathBuf>,
}

/// How packets come in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By the UDP socket.
    #[default]
    Socket,
    /// The plain case by the kernel program, where it may be had; the rest by the socket.
    Auto,
    /// The same; refused where the program cannot be had.
    Xdp,
}

/// What is done with UDP datagrams (and ICMP errors about them).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Udp {
    /// Keep them all. The default: a UDP service has one unconnected socket that takes every client's datagrams, on
    /// every backend, so the kernel cannot tell a known client from a new one and would have to be asked each time.
    #[default]
    Keep,
    /// Keep those that a connected or bound socket would take, and pass on the others. For services that are not
    /// there on every backend, or close their socket to drain.
    Socket,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    version: u8,
    listen: Option<SocketAddr>,
    directors: Vec<Text>,
    backends: Vec<Text>,
    vips: Vec<Text>,
    max_hops: Option<u8>,
    #[serde(default)]
    second_chance: Switch,
    #[serde(default)]
    udp: Udp,
    #[serde(default)]
    mode: Mode,
    interface: Option<String>,
    workers: Option<u8>,
    control: Option<PathBuf>,
}

/// A prefix as people write it; serde reports the line of one that is none.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Text(Prefix);

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Switch {
    #[default]
    On,
    Off,
}

impl TryFrom<String> for Text {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (address, bits) = text.split_once('/').map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
        let address: IpAddr =
            address.parse().map_err(|_| format!("`{text}`: expected an address or a prefix"))?;
        let Some(bits) = bits else { return Ok(Self(Prefix::host(address))) };
        let prefix = bits.parse().ok().and_then(|bits| Prefix::new(address, bits));
        prefix.map(Self).ok_or(format!("`{text}`: expected a prefix without host bits"))
    }
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// It is not what `redirect.yaml` may be.
    #[error("{name}: {problem}")]
    Refused {
        /// The file.
        name: String,
        /// What, where, and what is allowed.
        problem: String,
    },
}

impl RedirectConfig {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|cause| ConfigError::Read { path: path.to_owned(), cause })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Reads `text`; `name` is for the error.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let refused = |problem| ConfigError::Refused { name: name.to_owned(), problem };
        let raw: Raw = serde_yaml::from_str(text).map_err(|error| refused(error.to_string()))?;
        check(&raw).map_err(refused)?;
        Ok(Self {
            listen: raw.listen.unwrap_or((Ipv6Addr::UNSPECIFIED, gue::PORT).into()),
            directors: prefixes(raw.directors),
            backends: prefixes(raw.backends),
            vips: prefixes(raw.vips),
            max_hops: raw.max_hops.unwrap_or(DEFAULT_MAX_HOPS),
            second_chance: raw.second_chance == Switch::On,
            udp: raw.udp,
            mode: raw.mode,
            interface: raw.interface,
            workers: raw.workers.unwrap_or(1),
            control: raw.control,
        })
    }
}

/// What GUE has room for: 30 IPv4 addresses.
const HOP_LIMIT: u8 = 30;
/// What two look-ups of four hops each can carry beside the owner, while a change of hash fields is rolled out.
const DEFAULT_MAX_HOPS: u8 = 7;

fn prefixes(texts: Vec<Text>) -> Vec<Prefix> {
    texts.into_iter().map(|Text(prefix)| prefix).collect()
}

fn check(raw: &Raw) -> Result<(), String> {
    if raw.version != 1 {
        return Err(format!("version: {} found, allowed is 1", raw.version));
    }
    for (key, list) in [("directors", &raw.directors), ("backends", &raw.backends), ("vips", &raw.vips)] {
        if list.is_empty() {
            return Err(format!("{key}: empty list found, at least one prefix is needed"));
        }
    }
    if raw.mode != Mode::Socket && raw.interface.is_none() {
        return Err("interface: nothing found, this mode needs the name of one".to_owned());
    }
    if let Some(hops) = raw.max_hops.filter(|hops| !(1..=HOP_LIMIT).contains(hops)) {
        return Err(format!("max_hops: {hops} found, allowed is 1 to {HOP_LIMIT}"));
    }
    if let Some(workers) = raw.workers.filter(|workers| !(1..=64).contains(workers)) {
        return Err(format!("workers: {workers} found, allowed is 1 to 64"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "version: 1\ndirectors: [10.0.0.1]\nbackends: [10.0.1.0/24, \"2001:db8::/64\"]\nvips: [203.0.113.10]\n";

    #[test]
    fn defaults() {
        let config = RedirectConfig::parse("redirect.yaml", MINIMAL).unwrap();
        assert_eq!(config.listen.to_string(), "[::]:19523");
        assert_eq!(
            (config.max_hops, config.second_chance, config.udp, config.workers),
            (7, true, Udp::Keep, 1)
        );
        assert_eq!(config.backends[1].to_string(), "2001:db8::/64");
    }

    #[test]
    fn the_example_is_sound_and_its_comments_are_the_defaults() {
        let text = include_str!("../../../configs/redirect.yaml");
        let example = RedirectConfig::parse("redirect.yaml", text).unwrap();
        let spelt_out = text.replace("\n# listen", "\nlisten").replace("\n# max_hops", "\nmax_hops");
        let spelt_out = spelt_out.replace("\n# second_chance", "\nsecond_chance");
        let spelt_out = spelt_out.replace("\n# udp", "\nudp").replace("\n# workers", "\nworkers");
        assert_eq!(RedirectConfig::parse("redirect.yaml", &spelt_out).unwrap(), example);
    }

    #[test]
    fn the_second_chance_can_be_switched_off_in_plain_words() {
        let config =
            RedirectConfig::parse("x", &format!("{MINIMAL}second_chance: off\nudp: socket\n")).unwrap();
        assert_eq!((config.second_chance, config.udp), (false, Udp::Socket));
    }

    #[test]
    fn what_is_refused_and_the_words_that_say_so() {
        let cases = [
            ("max_hops: 31\n", "max_hops: 31 found, allowed is 1 to 30"),
            ("max_hops: 0\n", "max_hops: 0 found"),
            ("workers: 0\n", "workers: 0 found"),
            ("udp: maybe\n", "maybe"),
            ("mode: auto\n", "interface: nothing found"),
            ("mode: fast\n", "fast"),
            ("color: red\n", "color"),
            ("max_hops: 4\nmax_hops: 4\n", "max_hops"),
        ];
        for (line, expected) in cases {
            let error = RedirectConfig::parse("r.yaml", &format!("{MINIMAL}{line}")).unwrap_err().to_string();
            assert!(error.starts_with("r.yaml: ") && error.contains(expected), "{line}: {error}");
        }
        for (from, to, expected) in [
            ("10.0.0.1", "10.0.0.1/8", "`10.0.0.1/8`: expected a prefix without host bits"),
            ("10.0.0.1", "ten", "`ten`: expected an address or a prefix"),
            ("[10.0.0.1]", "[]", "directors: empty list"),
            ("version: 1", "version: 2", "version: 2 found, allowed is 1"),
        ] {
            let text = MINIMAL.replacen(from, to, 1);
            let error = RedirectConfig::parse("r.yaml", &text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
