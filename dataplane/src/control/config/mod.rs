//! `dataplane.yaml`: the configuration of a director. A [`Config`] is checked; `raw` has its text.
//!
//! Unknown keys and invalid values are refused, with file, line, key, the value found and the values allowed.
//! Then nothing starts, and a running director keeps its configuration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use self::error::ConfigError;
pub use self::glb::{ASSUMED, GlbFields, NotGlb};
use self::raw::{Field, Raw, RawValue};
use crate::host::files;
use crate::host::route::Pinned;
use crate::pipeline::Echo;
use crate::wire::ethernet::Mac;

mod error;
mod glb;
pub(crate) mod raw;

/// The checked configuration of `run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Path of the forwarding table.
    pub table: PathBuf,
    /// Name of the interface that receives frames.
    pub interface: String,
    /// How frames are received and sent.
    pub mode: Mode,
    /// Number of worker threads; `None` for one per CPU that the process may use.
    pub workers: Option<u16>,
    /// How offloads that change frames are handled.
    pub offloads: Offloads,
    /// Addresses and limits of encapsulated packets.
    pub underlay: UnderlayConfig,
    /// Largest number of "too big" answers per worker and second.
    pub too_big_per_second: u32,
    /// Path of the control socket.
    pub control: Option<PathBuf>,
    /// Hash fields of the table, if it is a GLB Director file.
    pub glb: Option<GlbFields>,
}

/// The part of the configuration that `replay` uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayConfig {
    /// Addresses and limits of encapsulated packets.
    pub underlay: UnderlayConfig,
    /// Hash fields of the table, if it is a GLB Director file.
    pub glb: Option<GlbFields>,
}

/// Addresses and limits of encapsulated packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnderlayConfig {
    /// Outer source address towards IPv4 backends; `None` for the source address of the routes.
    pub source_ipv4: Option<Ipv4Addr>,
    /// Outer source address towards IPv6 backends; `None` for the source address of the routes.
    pub source_ipv6: Option<Ipv6Addr>,
    /// Send all frames to this link address and ignore the neighbour table.
    pub gateway_mac: Option<Mac>,
    /// Length of the largest IP packet that the path to every backend carries, in octets; `None` for the MTU
    /// of the routes.
    pub mtu: Option<u16>,
    /// How echo requests to a VIP are handled.
    pub echo: Echo,
}

/// How frames are received and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The kernel program if it can be loaded and attached; the ring takes all other frames.
    Auto,
    /// As `Auto`, but an error if the kernel program cannot be loaded and attached.
    Xdp,
    /// A receive ring, and batches of frames sent by a single call.
    AfPacket,
    /// The driver of `pnet`: a call per frame.
    Pnet,
}

impl Mode {
    const ALL: [(&str, Self); 4] =
        [("auto", Self::Auto), ("xdp", Self::Xdp), ("af-packet", Self::AfPacket), ("pnet", Self::Pnet)];

    /// The mode with this name.
    ///
    /// # Errors
    /// A message with the valid names.
    pub fn from_name(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, mode)| *mode);
        found.ok_or_else(|| format!("expected one of {}", Self::ALL.map(|(known, _)| known).join(", ")))
    }

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xdp => "xdp",
            Self::AfPacket => "af-packet",
            Self::Pnet => "pnet",
        }
    }
}

/// The control socket in a configuration file of either program. The rest of the file is ignored: it may have
/// changed since the program started, and be invalid now.
pub fn control_of(path: &Path) -> Result<PathBuf, ConfigError> {
    let text = files::text(path).map_err(|error| ConfigError::unreadable(path, &error))?;
    let raw: ControlOnly =
        serde_yaml::from_str(&text).map_err(|error| ConfigError::document(path, &error))?;
    raw.control.required(path, "control", "the path of a socket")?.path(folder_of(path))
}

#[derive(Deserialize)]
struct ControlOnly {
    #[serde(default)]
    control: RawValue,
}

/// The folder of a file; paths in the file are relative to it.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// How offloads that change frames before the director receives them are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloads {
    /// Switch GRO and LRO off, and restore them at exit.
    Off,
    /// Leave them as they are, and warn.
    Keep,
}

impl Config {
    /// Reads a file. Paths in it are relative to its folder.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = files::text(path).map_err(|error| ConfigError::unreadable(path, &error))?;
        Self::parse(path, &text)
    }

    /// Reads the text of a file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let raw = Raw::parse(path, text)?;
        let folder = folder_of(path);
        raw.version.required(path, "version", "1")?.one_of(&[("1", ())])?;
        Ok(Self {
            table: raw.table.required(path, "table", "the path of a forwarding table")?.path(folder)?,
            interface: interface(raw.interface.required(path, "interface", INTERFACE)?)?,
            ..Self::optional(path, &raw)?
        })
    }

    /// All keys except the required ones.
    fn optional(path: &Path, raw: &Raw) -> Result<Self, ConfigError> {
        let folder = folder_of(path);
        let rate = raw.too_big_per_second.field(path, "too_big_per_second");
        Ok(Self {
            table: PathBuf::new(),
            interface: String::new(),
            mode: choice(raw.mode.field(path, "mode"), &Mode::ALL, Mode::AfPacket)?,
            workers: raw.workers.field(path, "workers").map(|field| field.number(1..=1024)).transpose()?,
            offloads: choice(raw.offloads.field(path, "offloads"), &OFFLOADS, Offloads::Off)?,
            underlay: UnderlayConfig::read(path, raw)?,
            too_big_per_second: rate.map_or(Ok(TOO_BIG_PER_SECOND), |field| field.number(0..=1_000_000))?,
            control: raw.control.field(path, "control").map(|field| field.path(folder)).transpose()?,
            glb: raw.glb.as_ref().map(|glb| GlbFields::read(path, glb)).transpose()?,
        })
    }

    /// The first key that differs from `running` and needs a restart to change.
    pub fn needs_restart(&self, running: &Self) -> Option<&'static str> {
        let differs = [
            ("table", self.table != running.table),
            ("interface", self.interface != running.interface),
            ("mode", self.mode != running.mode),
            ("workers", self.workers != running.workers),
            ("offloads", self.offloads != running.offloads),
            ("control", self.control != running.control),
        ];
        differs.into_iter().find_map(|(key, differs)| differs.then_some(key))
    }
}

impl ReplayConfig {
    /// Reads the text of a file. All keys of a director's configuration are checked, but none is required.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let raw = Raw::parse(path, text)?;
        if let Some(version) = raw.version.field(path, "version") {
            version.one_of(&[("1", ())])?;
        }
        Config::optional(path, &raw).map(|Config { underlay, glb, .. }| Self { underlay, glb })
    }
}

impl UnderlayConfig {
    /// The values that override the kernel's routes and neighbours.
    pub(crate) fn pinned(&self) -> Pinned {
        let Self { gateway_mac, source_ipv4, source_ipv6, .. } = *self;
        Pinned { mac: gateway_mac.map(|mac| mac.0), source_ipv4, source_ipv6 }
    }

    fn read(path: &Path, raw: &Raw) -> Result<Self, ConfigError> {
        let mtu = raw.mtu.field(path, "mtu");
        Ok(Self {
            source_ipv4: raw.source_ipv4.field(path, "source_ipv4").map(source_ipv4).transpose()?,
            source_ipv6: raw.source_ipv6.field(path, "source_ipv6").map(source_ipv6).transpose()?,
            gateway_mac: raw.gateway_mac.field(path, "gateway_mac").map(mac).transpose()?,
            mtu: mtu.map(|field| field.number(LEAST_MTU..=u16::MAX)).transpose()?,
            echo: choice(raw.echo.field(path, "echo"), &ECHO, Echo::Forward)?,
        })
    }
}

/// MTU of the underlay if neither configuration nor routes have one.
pub const DEFAULT_MTU: u16 = 1_500;
/// The smallest MTU in octets: every IPv4 link carries it (RFC 791), and a tunnel over less would leave no
/// room for a client.
pub const LEAST_MTU: u16 = 576;

const OFFLOADS: [(&str, Offloads); 2] = [("off", Offloads::Off), ("keep", Offloads::Keep)];
const ECHO: [(&str, Echo); 3] = [("forward", Echo::Forward), ("pass", Echo::Pass), ("answer", Echo::Answer)];
pub(crate) const INTERFACE: &str = "the name of an Ethernet interface, 1 to 15 octets without '/' and blanks";
/// Default limit: a tenth of the ICMP messages per second that Linux sends by default in all
/// (net.ipv4.icmp_msgs_per_sec).
const TOO_BIG_PER_SECOND: u32 = 100;

pub(crate) fn choice<T: Copy>(
    field: Option<Field<'_>>,
    all: &[(&str, T)],
    default: T,
) -> Result<T, ConfigError> {
    field.map_or(Ok(default), |field| field.one_of(all))
}

/// Checks a name as the kernel's `dev_valid_name` does.
pub(crate) fn interface(field: Field<'_>) -> Result<String, ConfigError> {
    let name = field.text();
    let fits = (1..=15).contains(&name.len()) && name != "." && name != "..";
    let plain = !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c == '\0');
    if fits && plain { Ok(name.to_owned()) } else { Err(field.refuse(INTERFACE)) }
}

fn source_ipv4(field: Field<'_>) -> Result<Ipv4Addr, ConfigError> {
    match field.text().parse::<Ipv4Addr>() {
        Ok(address) if is_host(address.into()) && !address.is_broadcast() => Ok(address),
        _ => Err(field.refuse("the IPv4 address of this host that backends see")),
    }
}

fn source_ipv6(field: Field<'_>) -> Result<Ipv6Addr, ConfigError> {
    match field.text().parse::<Ipv6Addr>() {
        Ok(address) if is_host(address.into()) => Ok(address),
        _ => Err(field.refuse("the IPv6 address of this host that backends see")),
    }
}

fn is_host(address: IpAddr) -> bool {
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback())
}

/// Refuses a group address, which no single host has.
fn mac(field: Field<'_>) -> Result<Mac, ConfigError> {
    let found = field.text().parse::<Mac>().ok();
    let mac = found.filter(|Mac(octets)| octets[0] & 1 == 0 && *octets != [0; 6]);
    mac.ok_or_else(|| field.refuse("the address of one network card, such as 02:00:5e:10:00:01"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::flow::HashFields;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("/etc/tryst/dataplane.yaml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_shortest_file_has_all_defaults() {
        let config = parse("version: 1\ntable: web.table\ninterface: eth0\n").unwrap();
        let expected = Config {
            table: "/etc/tryst/web.table".into(),
            interface: "eth0".into(),
            mode: Mode::AfPacket,
            workers: None,
            offloads: Offloads::Off,
            underlay: UnderlayConfig::default(),
            too_big_per_second: 100,
            control: None,
            glb: None,
        };
        assert_eq!(config, expected);
    }

    /// The comments of the example configuration state the defaults.
    #[test]
    fn the_example_in_the_repository_is_read() {
        let text = include_str!("../../../../configs/dataplane.yaml");
        let config = parse(text).unwrap();
        assert_eq!(
            (config.mode, config.offloads, config.underlay.echo),
            (Mode::AfPacket, Offloads::Off, Echo::Forward)
        );
    }

    #[test]
    fn each_key_is_read() {
        let config = parse(
            "version: 1\ntable: /srv/t\ninterface: eth0\nmode: pnet\nworkers: 3\noffloads: keep\necho: answer\n\
             mtu: 9000\nsource_ipv4: 10.0.0.1\nsource_ipv6: \"2001:db8::1\"\ngateway_mac: 02:00:5e:10:00:0A\n\
             too_big_per_second: 0\ncontrol: run/socket\n\
             glb:\n  hash_fields: [src_addr, dst_port]\n  alt_hash_fields: [src_addr]\n",
        )
        .unwrap();
        assert_eq!(config.table, Path::new("/srv/t"));
        assert_eq!((config.mode, config.workers, config.offloads), (Mode::Pnet, Some(3), Offloads::Keep));
        let underlay = UnderlayConfig {
            source_ipv4: Some(Ipv4Addr::new(10, 0, 0, 1)),
            source_ipv6: Some("2001:db8::1".parse().unwrap()),
            gateway_mac: Some(Mac([2, 0, 0x5e, 0x10, 0, 0x0a])),
            mtu: Some(9000),
            echo: Echo::Answer,
        };
        assert_eq!((config.underlay, config.too_big_per_second), (underlay, 0));
        assert_eq!(config.control.as_deref(), Some(Path::new("/etc/tryst/run/socket")));
        let hash_fields = HashFields::SRC_ADDR.with(HashFields::DST_PORT);
        assert_eq!(config.glb, Some(GlbFields { hash_fields, alt_hash_fields: HashFields::SRC_ADDR }));
    }

    #[test]
    fn each_invalid_value_is_refused_with_its_line() {
        let at = "/etc/tryst/dataplane.yaml";
        for (line, expected) in [
            ("mode: xpd", "mode: found `xpd`, allowed: auto, xdp, af-packet, pnet"),
            ("workers: 0", "workers: found `0`, allowed: a whole number from 1 to 1024"),
            ("workers: many", "workers: found `many`, allowed: a whole number from 1 to 1024"),
            ("workers: +4", "workers: found `+4`, allowed: a whole number from 1 to 1024"),
            ("mtu: 575", "mtu: found `575`, allowed: a whole number from 576 to 65535"),
            (
                "mtu: 99999999999999999999",
                "mtu: found `99999999999999999999`, allowed: a whole number from 576 to 65535",
            ),
            ("offloads: no", "offloads: found `no`, allowed: off, keep"),
            ("echo: drop", "echo: found `drop`, allowed: forward, pass, answer"),
            (
                "source_ipv4: 0.0.0.0",
                "source_ipv4: found `0.0.0.0`, allowed: the IPv4 address of this host that backends see",
            ),
            (
                "gateway_mac: 01:00:5e:00:00:01",
                "gateway_mac: found `01:00:5e:00:00:01`, allowed: the address of one network card, such as \
                 02:00:5e:10:00:01",
            ),
            ("control: \"\"", "control: found ``, allowed: a path"),
        ] {
            let refused = parse(&format!("version: 1\ntable: t\ninterface: eth0\n{line}\n")).unwrap_err();
            assert_eq!(refused, format!("{at}:4: {expected}"));
        }
        let refused = parse("version: 2\ntable: t\ninterface: eth0\n").unwrap_err();
        assert_eq!(refused, format!("{at}:1: version: found `2`, allowed: 1"));
        let refused = parse("version: 1\ninterface: eth0\n").unwrap_err();
        assert_eq!(refused, format!("{at}: table: found nothing, allowed: the path of a forwarding table"));
        for name in ["a/b", "sixteen-octets-x", "\"\"", ".."] {
            let refused = parse(&format!("version: 1\ntable: t\ninterface: {name}\n")).unwrap_err();
            assert!(refused.starts_with(&format!("{at}:3: interface: found")), "{refused}");
        }
    }

    #[test]
    fn an_invalid_document_is_refused_with_its_line() {
        for (text, line, part) in [
            ("version: 1\ntable: t\ninterface: e\nmod: pnet\n", 4, "mod"),
            ("version: 1\ntable: t\ntable: u\ninterface: e\n", 3, "table"),
            ("version: 1\ntable: [t]\ninterface: e\n", 2, ""),
            ("version: 1\ntable: {t: 1\n", 2, ""),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(
                refused.contains(&format!("dataplane.yaml:{line}:")) && refused.contains(part),
                "{refused}"
            );
        }
        assert!(parse("").is_err());
    }

    #[test]
    fn a_replay_uses_the_given_keys_and_checks_all_of_them() {
        let path = Path::new("replay.yaml");
        let config = ReplayConfig::parse(path, "mtu: 9000\nglb: {}\n").unwrap();
        assert_eq!(config.underlay, UnderlayConfig { mtu: Some(9000), ..UnderlayConfig::default() });
        assert_eq!(config.glb, Some(GlbFields::default()));
        for text in ["mtu: 1\n", "mode: none\n", "version: 3\n", "unknown: 1\n"] {
            assert!(ReplayConfig::parse(path, text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_control_socket_is_read_from_either_configuration_also_from_an_invalid_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.yaml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            control_of(&path).map_err(|error| error.to_string())
        };
        for text in [
            "version: 1\ntable: t\ninterface: e\ncontrol: s\n",
            "version: 1\ndirectors: [10.0.0.1]\nbackends: [10.0.0.2]\nvips: [203.0.113.10]\ncontrol: s\n",
            "version: 9\nworkers: none\nnew: {key: [1]}\ncontrol: s\n",
        ] {
            assert_eq!(read(text).unwrap(), folder.path().join("s"), "{text}");
        }
        for text in ["version: 1\n", "{}\n", "control: \"\"\n"] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains("control: found ") && refused.contains("allowed: "), "{refused}");
        }
        assert!(read("control: [s]\n").unwrap_err().contains("x.yaml:1:"));
    }

    #[test]
    fn the_line_of_an_unknown_key_is_reported_once() {
        let refused = parse("version: 1\ntables: t\n").unwrap_err();
        let message = refused
            .strip_prefix("/etc/tryst/dataplane.yaml:2: unknown field `tables`, expected one of version, ");
        assert!(message.is_some_and(|rest| !rest.contains("line")), "{refused}");
    }

    #[test]
    fn an_unreadable_file_is_named() {
        let refused = Config::load(Path::new("/no/such/file")).unwrap_err().to_string();
        assert!(refused.starts_with("/no/such/file: "), "{refused}");
    }

    #[test]
    fn what_needs_a_restart_is_named() {
        let base = parse("version: 1\ntable: t\ninterface: eth0\n").unwrap();
        assert_eq!(base.needs_restart(&base), None);
        assert_eq!(Config { too_big_per_second: 5, ..base.clone() }.needs_restart(&base), None);
        assert_eq!(Config { mode: Mode::Pnet, ..base.clone() }.needs_restart(&base), Some("mode"));
        assert_eq!(Config { interface: "x".into(), ..base.clone() }.needs_restart(&base), Some("interface"));
    }
}
