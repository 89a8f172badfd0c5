//! `redirect.yaml`: its text, and the checked configuration. As strict as a director's configuration, with
//! the same reader.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use common::bind::Prefix;
use serde::Deserialize;

use crate::control::config::raw::{Field, RawList, RawValue};
use crate::control::config::{ConfigError, INTERFACE, choice, folder_of, interface};
use crate::host::files;
use crate::wire::gue;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectConfig {
    /// The UDP address that receives GUE. `[::]` receives IPv4 as well.
    pub listen: SocketAddr,
    /// Senders of packets that no redirector has forwarded yet (`next_hop` 0).
    pub directors: Vec<Prefix>,
    /// Hosts that may forward packets, and that packets may be forwarded to.
    pub backends: Vec<Prefix>,
    /// The only allowed destinations of inner packets.
    pub vips: Vec<Prefix>,
    /// Largest number of hop addresses that a packet may carry.
    pub max_hops: u8,
    /// If false, every valid packet is accepted and none is forwarded.
    pub second_chance: bool,
    /// How UDP datagrams are handled.
    pub udp: Udp,
    /// Receive mode.
    pub mode: Mode,
    /// The interface that the kernel program is attached to; `None` for `mode: socket`.
    pub interface: Option<String>,
    /// Number of worker threads.
    pub workers: u8,
    /// The mark (`SO_MARK`) of packets that the user-space path delivers to this host's kernel, for its
    /// firewall.
    pub mark: Option<NonZeroU32>,
    /// Path of the control socket that `dataplane status` connects to.
    pub control: Option<PathBuf>,
}

/// Receive mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// All packets through the UDP socket.
    Socket,
    /// The kernel program takes what it can, if it can be loaded and attached; the socket takes all other
    /// packets.
    Auto,
    /// As `Auto`, but an error if the kernel program cannot be loaded and attached.
    Xdp,
}

/// How UDP datagrams, and ICMP errors about them, are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Udp {
    /// Accept them all. The default: a UDP service has one unconnected socket that receives every client's
    /// datagrams, on every backend. The kernel cannot distinguish a known client from a new one, so a socket
    /// look-up per datagram would decide nothing.
    Keep,
    /// Accept those that a connected or bound socket would receive, and forward the others. For services that
    /// do not run on every backend, or that close their socket to drain.
    Socket,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    version: RawValue,
    #[serde(default)]
    listen: RawValue,
    #[serde(default)]
    directors: RawList,
    #[serde(default)]
    backends: RawList,
    #[serde(default)]
    vips: RawList,
    #[serde(default)]
    max_hops: RawValue,
    #[serde(default)]
    second_chance: RawValue,
    #[serde(default)]
    udp: RawValue,
    #[serde(default)]
    mode: RawValue,
    #[serde(default)]
    interface: RawValue,
    #[serde(default)]
    workers: RawValue,
    #[serde(default)]
    mark: RawValue,
    #[serde(default)]
    control: RawValue,
}

/// Command-line options that override the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Replaces the file's `mode`.
    pub mode: Option<Mode>,
    /// Replaces the file's `interface`.
    pub interface: Option<String>,
}

impl RedirectConfig {
    /// Whether the socket receives datagrams for this address and port. `[::]` receives both families.
    pub fn listens_at(&self, to: SocketAddr) -> bool {
        let matches = match self.listen.ip() {
            IpAddr::V6(any) if any.is_unspecified() => true,
            IpAddr::V4(any) if any.is_unspecified() => to.is_ipv4(),
            listen => listen == to.ip(),
        };
        matches && to.port() == self.listen.port()
    }

    /// Reads a file. Paths in it are relative to its folder.
    pub fn read(path: &Path, overrides: Overrides) -> Result<Self, ConfigError> {
        let text = files::text(path).map_err(|error| ConfigError::unreadable(path, &error))?;
        Self::new(path, &text, overrides)
    }

    /// Reads a configuration from text; `name` appears in errors.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::new(Path::new(name), text, Overrides::default())
    }

    fn new(path: &Path, text: &str, overrides: Overrides) -> Result<Self, ConfigError> {
        let raw: Raw = serde_yaml::from_str(text).map_err(|error| ConfigError::document(path, &error))?;
        raw.version.required(path, "version", "1")?.one_of(&[("1", ())])?;
        let hops = raw.max_hops.field(path, "max_hops");
        let workers = raw.workers.field(path, "workers");
        let mode = choice(raw.mode.field(path, "mode"), &MODES, Mode::Socket)?;
        let mode = overrides.mode.unwrap_or(mode);
        Ok(Self {
            listen: raw.listen.field(path, "listen").map_or(Ok(LISTEN), listen)?,
            directors: prefixes(&raw.directors, path, "directors")?,
            backends: prefixes(&raw.backends, path, "backends")?,
            vips: prefixes(&raw.vips, path, "vips")?,
            max_hops: hops.map_or(Ok(DEFAULT_MAX_HOPS), |field| field.number(1..=HOP_LIMIT))?,
            second_chance: choice(raw.second_chance.field(path, "second_chance"), &SWITCH, true)?,
            udp: choice(raw.udp.field(path, "udp"), &UDP, Udp::Keep)?,
            mode,
            interface: interface_for(
                mode,
                raw.interface.field(path, "interface"),
                overrides.interface,
                path,
            )?,
            workers: workers.map_or(Ok(1), |field| field.number(1..=64))?,
            mark: raw.mark.field(path, "mark").map(mark).transpose()?,
            control: raw.control.field(path, "control").map(|it| it.path(folder_of(path))).transpose()?,
        })
    }
}

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), gue::PORT);
/// Largest number of IPv4 addresses that a GUE header has room for.
const HOP_LIMIT: u8 = 30;
/// Two look-ups of four hops each, without the owner; two look-ups happen while a change of hash fields is
/// rolled out.
const DEFAULT_MAX_HOPS: u8 = 7;
const MODES: [(&str, Mode); 3] = [("socket", Mode::Socket), ("auto", Mode::Auto), ("xdp", Mode::Xdp)];
const UDP: [(&str, Udp); 2] = [("keep", Udp::Keep), ("socket", Udp::Socket)];
const SWITCH: [(&str, bool); 2] = [("on", true), ("off", false)];
const PREFIX: &str = "an address, or a prefix without host bits such as 10.0.1.0/24";

const MARK: &str = "a number from 1 to 4294967295, or from 0x1 to 0xffffffff";

/// Parses a mark as `nft` and `ip rule` write it: decimal, or hexadecimal with `0x`.
fn mark(field: Field<'_>) -> Result<NonZeroU32, ConfigError> {
    let (digits, radix) = field.text().strip_prefix("0x").map_or((field.text(), 10), |digits| (digits, 16));
    let hex_only = digits.bytes().all(|octet| octet.is_ascii_hexdigit());
    let value = u32::from_str_radix(digits, radix).ok().filter(|_| hex_only);
    value.and_then(NonZeroU32::new).ok_or_else(|| field.refuse(MARK))
}

fn listen(field: Field<'_>) -> Result<SocketAddr, ConfigError> {
    let address = field.text().parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
    address.ok_or_else(|| field.refuse("an address and a port, such as \"[::]:19523\""))
}

fn prefixes(list: &RawList, path: &Path, key: &'static str) -> Result<Vec<Prefix>, ConfigError> {
    let wanted = |field: Field<'_>| prefix(field.text()).ok_or_else(|| field.refuse(PREFIX));
    list.required(path, key, "a list of addresses and prefixes, one at least")?.map(wanted).collect()
}

fn prefix(text: &str) -> Option<Prefix> {
    let Some((address, bits)) = text.split_once('/') else { return text.parse().ok().map(Prefix::host) };
    Prefix::new(address.parse().ok()?, bits.parse().ok()?)
}

/// The interface that the kernel program is attached to; required for every mode but `socket`.
fn interface_for(
    mode: Mode,
    from_file: Option<Field<'_>>,
    from_command_line: Option<String>,
    path: &Path,
) -> Result<Option<String>, ConfigError> {
    let from_file = from_file.map(interface).transpose()?;
    let name = from_command_line.or(from_file);
    if name.is_none() && mode != Mode::Socket {
        let allowed = format!("{INTERFACE}, here or as --interface: mode auto and xdp need it");
        return Err(ConfigError::value(path, None, "interface", None, &allowed));
    }
    Ok(name)
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
    fn the_second_chance_can_be_switched_off() {
        let config =
            RedirectConfig::parse("x", &format!("{MINIMAL}second_chance: off\nudp: socket\n")).unwrap();
        assert_eq!((config.second_chance, config.udp), (false, Udp::Socket));
    }

    #[test]
    fn a_mark_is_decimal_or_hexadecimal() {
        let mark = |text: &str| RedirectConfig::parse("x", &format!("{MINIMAL}{text}\n")).unwrap().mark;
        assert_eq!(mark(""), None);
        for (text, value) in [("7", 7), ("0x54525953", 0x5452_5953), ("0xffffffff", u32::MAX), ("10", 10)] {
            assert_eq!(mark(&format!("mark: {text}")).map(NonZeroU32::get), Some(value));
        }
    }

    #[test]
    fn the_socket_receives_what_its_address_covers() {
        for (listen, takes) in [
            ("[::]:19523", [true, true, false]),
            ("0.0.0.0:19523", [true, false, false]),
            ("203.0.113.10:19523", [true, false, false]),
            ("10.0.1.1:19523", [false, false, false]),
            ("[::]:19524", [false, false, false]),
            ("[2001:db8::10]:19523", [false, true, false]),
        ] {
            let config = RedirectConfig::parse("x", &format!("{MINIMAL}listen: \"{listen}\"\n")).unwrap();
            let to = ["203.0.113.10:19523", "[2001:db8::10]:19523", "203.0.113.10:53"];
            assert_eq!(to.map(|to| config.listens_at(to.parse().unwrap())), takes, "{listen}");
        }
    }

    fn refused(text: &str) -> String {
        RedirectConfig::parse("r.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn each_invalid_value_is_refused_with_its_message() {
        for (line, expected) in [
            ("max_hops: 31", "max_hops: found `31`, allowed: a whole number from 1 to 30"),
            ("max_hops: 0", "max_hops: found `0`, allowed: a whole number from 1 to 30"),
            ("workers: 65", "workers: found `65`, allowed: a whole number from 1 to 64"),
            ("udp: maybe", "udp: found `maybe`, allowed: keep, socket"),
            ("second_chance: no", "second_chance: found `no`, allowed: on, off"),
            ("mode: fast", "mode: found `fast`, allowed: socket, auto, xdp"),
            ("listen: \"::\"", "listen: found `::`, allowed: an address and a port, such as \"[::]:19523\""),
            ("control: \"\"", "control: found ``, allowed: a path"),
            ("mark: 0", &format!("mark: found `0`, allowed: {MARK}")),
            ("mark: 0x0", &format!("mark: found `0x0`, allowed: {MARK}")),
            ("mark: 0x", &format!("mark: found `0x`, allowed: {MARK}")),
            ("mark: +1", &format!("mark: found `+1`, allowed: {MARK}")),
            ("mark: 4294967296", &format!("mark: found `4294967296`, allowed: {MARK}")),
            ("mark: red", &format!("mark: found `red`, allowed: {MARK}")),
            (
                "interface: a/b",
                "interface: found `a/b`, allowed: the name of an Ethernet interface, 1 to 15 octets without '/' and \
                 blanks",
            ),
        ] {
            assert_eq!(refused(&format!("{MINIMAL}{line}\n")), format!("r.yaml:5: {expected}"));
        }
        for (from, to, expected) in [
            ("10.0.0.1", "10.0.0.1/8", format!(":2: directors[0]: found `10.0.0.1/8`, allowed: {PREFIX}")),
            ("10.0.0.1", "ten", format!(":2: directors[0]: found `ten`, allowed: {PREFIX}")),
            ("::/64", "::/129", format!(":3: backends[1]: found `2001:db8::/129`, allowed: {PREFIX}")),
            (
                "[203.0.113.10]",
                "[]",
                ":4: vips: found `[]`, allowed: a list of addresses and prefixes, one at least".to_owned(),
            ),
            (
                "vips: [203.0.113.10]",
                "",
                ": vips: found nothing, allowed: a list of addresses and prefixes, one at least".to_owned(),
            ),
            ("version: 1", "version: 2", ":1: version: found `2`, allowed: 1".to_owned()),
            ("version: 1", "", ": version: found nothing, allowed: 1".to_owned()),
        ] {
            assert_eq!(refused(&MINIMAL.replacen(from, to, 1)), format!("r.yaml{expected}"));
        }
        for (line, part) in [("color: red", "color"), ("max_hops: 4\nmax_hops: 4", "max_hops")] {
            let refused = refused(&format!("{MINIMAL}{line}\n"));
            assert!(refused.starts_with("r.yaml:") && refused.contains(part), "{refused}");
        }
    }

    /// Mode and interface may come from the file or the command line; both must be known before anything is
    /// opened.
    #[test]
    fn a_mode_that_needs_an_interface_names_the_missing_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.yaml");
        let read = |line: &str, mode, interface: Option<&str>| {
            std::fs::write(&path, format!("{MINIMAL}{line}\n")).unwrap();
            RedirectConfig::read(&path, Overrides { mode, interface: interface.map(str::to_owned) })
        };
        for (line, mode) in [("mode: auto", None), ("mode: xdp", None), ("", Some(Mode::Xdp))] {
            let refused = read(line, mode, None).unwrap_err().to_string();
            let expected = ": interface: found nothing, allowed: the name of an Ethernet interface, ";
            assert!(refused.contains(expected) && refused.contains("--interface"), "{refused}");
            let typed = read(line, mode, Some("eth1")).unwrap();
            assert_eq!(typed.interface.as_deref(), Some("eth1"), "{line}");
        }
        let config = read("mode: xdp\ninterface: eth0\ncontrol: r.sock", Some(Mode::Socket), None).unwrap();
        assert_eq!((config.mode, config.interface.as_deref()), (Mode::Socket, Some("eth0")));
        assert_eq!(config.control, Some(folder.path().join("r.sock")), "beside its configuration");
    }
}
