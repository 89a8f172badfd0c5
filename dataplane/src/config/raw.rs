//! The configuration as it is typed.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, de::Error};

use super::{Config, DEFAULT_MTU, LEAST_MTU};
use crate::{pipeline::Echo, wire::ethernet::Mac};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    source_ipv4: Option<Ipv4Addr>,
    source_ipv6: Option<Ipv6Addr>,
    #[serde(deserialize_with = "mac")]
    gateway_mac: Option<Mac>,
    #[serde(deserialize_with = "mtu")]
    mtu: Option<u16>,
    echo: RawEcho,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawEcho {
    #[default]
    Forward,
    Pass,
    Answer,
}

fn mac<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Mac>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let mac = Mac::from_str(&text);
    mac.map(Some).map_err(|allowed| D::Error::custom(format!("gateway_mac: found {text:?}; {allowed}")))
}

fn mtu<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    let mtu = u16::deserialize(deserializer)?;
    if mtu < LEAST_MTU {
        return Err(D::Error::custom(format!("mtu: found {mtu}; allowed are {LEAST_MTU} to 65535")));
    }
    Ok(Some(mtu))
}

pub(super) fn parse(text: &str) -> Result<Config, String> {
    let raw: Raw = serde_yaml::from_str(text).map_err(|e| e.to_string())?;
    Ok(Config {
        source_ipv4: raw.source_ipv4,
        source_ipv6: raw.source_ipv6,
        gateway_mac: raw.gateway_mac,
        mtu: raw.mtu.unwrap_or(DEFAULT_MTU),
        echo: match raw.echo {
            RawEcho::Forward => Echo::Forward,
            RawEcho::Pass => Echo::Pass,
            RawEcho::Answer => Echo::Answer,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_key() {
        let text = "source_ipv4: 192.0.2.1\nsource_ipv6: 2001:db8::1\ngateway_mac: 02:00:00:00:00:01\nmtu: 9000\necho: answer\n";
        let config = parse(text).unwrap();
        assert_eq!(config.source_ipv4, Some(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(config.gateway_mac, Some(Mac([2, 0, 0, 0, 0, 1])));
        assert_eq!((config.mtu, config.echo), (9_000, Echo::Answer));
    }

    #[test]
    fn refuses_what_it_does_not_know_with_the_line() {
        for (text, expected) in [
            ("mtu: 1500\nmtuu: 1\n", "mtuu"),
            ("mtu: 575\n", "576 to 65535"),
            ("mtu: 65536\n", "u16"),
            ("mtu: 1500\nmtu: 1500\n", "duplicate"),
            ("\n\ngateway_mac: 02-00\n", "line 3"),
            ("source_ipv4: ::1\n", "IPv4"),
            ("echo: reply\n", "forward"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
            assert!(error.contains("line"), "{text:?}: {error}");
        }
    }
}
