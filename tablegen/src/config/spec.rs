//! Checks of each key: from [`super::raw`] to [`Config`].

use super::error::{KeyPath, Refusal, Warning};
use super::raw::{RawBackend, RawBind, RawConfig, RawSecret, RawTable, Text};
use super::{Amount, Config, TableSpec, value};
use crate::files;
use common::backend::{Backend, Health, State};
use common::bind::{Bind, BindIndex, Protocol};
use common::flow::HashFields;
use common::hash::SipKey;
use common::table::{self, Ranking, Seed};
use serde_yaml::{Location, Spanned};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::path::Path;

pub(super) fn check(raw: &RawConfig, file: &Path) -> Result<Config, Refusal> {
    let root = KeyPath::Root;
    if raw.version.value != "1" {
        return Err(value::refuse(&raw.version, &root.key("version"), "1"));
    }
    let at = root.key("tables");
    count(raw.tables.value.len(), "tables", table::MAX_TABLES, raw.tables.referenced, &at)?;
    let mut checker = Checker { file, warnings: Vec::new(), names: Seen::default(), binds: Vec::new() };
    let tables = each(&raw.tables, &at, |raw, at| checker.table(raw, at))?;
    checker.binds_do_not_tie()?;
    let is_auto = |raw: &&Spanned<RawTable>| raw.value.rows.as_ref().is_some_and(|rows| rows.value == "auto");
    let auto_rows = raw.tables.value.iter().filter(is_auto).map(|raw| raw.value.name.value.clone()).collect();
    Ok(Config { tables, capacities: capacities(raw)?, auto_rows, warnings: checker.warnings })
}

fn capacities(raw: &RawConfig) -> Result<BTreeMap<(String, String), Amount>, Refusal> {
    let mut all = BTreeMap::new();
    let at = KeyPath::Root.key("tables");
    for (number, table) in raw.tables.value.iter().enumerate() {
        let at = at.item(number);
        let at = at.key("backends");
        for (number, backend) in table.value.backends.value.iter().enumerate() {
            let at = at.item(number);
            if let Some(capacity) =
                optional(backend.value.capacity.as_ref(), &at.key("capacity"), value::capacity)?
            {
                all.insert((table.value.name.value.clone(), backend.value.id.value.clone()), capacity);
            }
        }
    }
    Ok(all)
}

/// Values that must be unique in the whole file, and warnings.
struct Checker<'a> {
    file: &'a Path,
    warnings: Vec<Warning>,
    names: Seen<String>,
    binds: Vec<(Bind, Location, String)>,
}

impl Checker<'_> {
    fn table(&mut self, raw: &Spanned<RawTable>, at: &KeyPath<'_>) -> Result<TableSpec, Refusal> {
        let RawTable { name, rows, max_hops, ranking, .. } = &raw.value;
        let (seed, hash_key) = self.secrets(&raw.value, at)?;
        let listed = raw.value.backends.value.len();
        let spec = TableSpec {
            name: self.names.insert(value::text(name, &at.key("name"))?, name, &at.key("name"), "a name")?,
            rows: optional(rows.as_ref(), &at.key("rows"), |rows, at| value::rows(rows, at, listed))?
                .unwrap_or(1 << 16),
            max_hops: optional(max_hops.as_ref(), &at.key("max_hops"), value::max_hops)?
                .unwrap_or(*table::HOPS.end()),
            ranking: optional(ranking.as_ref(), &at.key("ranking"), ranking_of)?.unwrap_or(Ranking::Hrw),
            seed,
            hash_key,
            hash_fields: hash_fields(&raw.value, at)?,
            alt_hash_fields: alt_hash_fields(&raw.value, at)?,
            spread_zones: optional(raw.value.spread_zones.as_ref(), &at.key("spread_zones"), value::boolean)?
                .unwrap_or(false),
            max_share: optional(raw.value.max_share.as_ref(), &at.key("max_share"), value::max_share)?,
            binds: self.binds(&raw.value.binds, &at.key("binds"))?,
            backends: backends(&raw.value.backends, &at.key("backends"))?,
        };
        if spec.ranking == Ranking::Glb {
            is_unweighted(&raw.value, &spec, at)?;
        }
        self.look_twice(&spec, raw, at);
        Ok(spec)
    }

    fn secrets(&self, raw: &RawTable, at: &KeyPath<'_>) -> Result<(Seed, SipKey), Refusal> {
        let seed = self.secret(&raw.seed, &at.key("seed"))?;
        let hash_key = self.secret(&raw.hash_key, &at.key("hash_key"))?;
        Ok((Seed(seed), SipKey::new(hash_key)))
    }

    fn secret(&self, raw: &Spanned<RawSecret>, at: &KeyPath<'_>) -> Result<[u8; 16], Refusal> {
        let refuse = |found: String, allowed: &str| refusal(raw.referenced, at, found, allowed.to_owned());
        let from_file;
        let digits = match &raw.value {
            RawSecret::Inline(digits) => digits,
            RawSecret::File(path) => {
                let path = self.file.parent().unwrap_or(Path::new("")).join(path);
                from_file = files::secret(&path).map_err(|error| {
                    let path = value::without_secrets(&path.display().to_string());
                    refuse(format!("{path}: {error}"), "a file with 32 hex digits")
                })?;
                from_file.trim()
            }
        };
        let octets = value::octets(digits).map_err(|found| refuse(found, "32 hex digits (16 octets)"))?;
        if octets == [0; 16] {
            return Err(refuse("all zeros".to_owned(), "16 octets that cannot be guessed"));
        }
        Ok(octets)
    }

    fn binds(
        &mut self,
        raw: &Spanned<Vec<Spanned<RawBind>>>,
        at: &KeyPath<'_>,
    ) -> Result<Vec<Bind>, Refusal> {
        count(raw.value.len(), "binds", table::MAX_BINDS, raw.referenced, at)?;
        let total = self.binds.len() + raw.value.len();
        count(total, "binds in all tables", table::MAX_BINDS, raw.referenced, at)?;
        each(raw, at, |raw, at| {
            let bind = bind(raw, at)?;
            self.binds.push((bind, raw.referenced, at.to_string()));
            Ok(bind)
        })
    }

    /// Binds of different tables must not tie either, because a packet belongs to one table.
    fn binds_do_not_tie(&self) -> Result<(), Refusal> {
        let binds: Vec<(Bind, u32)> = self.binds.iter().map(|(bind, ..)| (*bind, 0)).collect();
        let Err(tie) = BindIndex::new(&binds) else { return Ok(()) };
        let (Some((earlier, before, _)), Some((later, place, path))) =
            (self.binds.get(tie.earlier), self.binds.get(tie.later))
        else {
            return Ok(());
        };
        Err(Refusal {
            line: place.line(),
            column: place.column(),
            path: path.clone(),
            found: later.to_string(),
            allowed: format!("a bind that does not tie with {earlier} of line {}", before.line()),
        })
    }

    /// Warns about values that are allowed and often a mistake.
    fn look_twice(&mut self, spec: &TableSpec, raw: &Spanned<RawTable>, at: &KeyPath<'_>) {
        let mut warn = |place: Location, key: &'static str, text: &str| {
            self.warnings.push(Warning {
                file: self.file.to_owned(),
                line: place.line(),
                column: place.column(),
                path: at.key(key).to_string(),
                text: text.to_owned(),
            });
        };
        if spec.seed.0 == spec.hash_key.octets() {
            warn(raw.value.seed.referenced, "seed", "the same as hash_key, which must stay secret");
        }
        if let Some(alt) = raw.value.alt_hash_fields.as_ref()
            && spec.alt_hash_fields == spec.hash_fields
        {
            warn(alt.referenced, "alt_hash_fields", "the same as hash_fields: adds no hop");
        }
        if let Some(rows) = raw.value.rows.as_ref().filter(|rows| rows.value == "auto")
            && let Some(text) = value::uneven(spec.backends.len())
        {
            warn(rows.referenced, "rows", &text);
        }
        let place = raw.value.backends.referenced;
        if !spec.backends.iter().any(Backend::accepts) {
            warn(
                place,
                "backends",
                "no backend accepts new connections (active or filling, and up): fail-open is in force, and new connections go \
                 to servers that are draining or down",
            );
        }
        // Inactive backends are in no hop list.
        let candidates = || spec.backends.iter().filter(|backend| backend.is_candidate());
        let is_v4 = |backend: &Backend| backend.address.is_ipv4();
        if candidates().any(is_v4) && !candidates().all(is_v4) {
            warn(
                place,
                "backends",
                "IPv4 and IPv6 are mixed: a packet carries hops of its primary's family only",
            );
        }
    }
}

/// Texts or addresses that must be unique, with their lines.
#[derive(Debug)]
struct Seen<K>(HashMap<K, u64>);

impl<K> Default for Seen<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq + Clone> Seen<K> {
    /// Returns `key`, or refuses it if it occurred before.
    fn insert(&mut self, key: K, raw: &Text, at: &KeyPath<'_>, what: &str) -> Result<K, Refusal> {
        match self.0.insert(key.clone(), raw.referenced.line()) {
            None => Ok(key),
            Some(line) => Err(value::refuse(raw, at, &format!("{what} other than that of line {line}"))),
        }
    }
}

fn hash_fields(raw: &RawTable, at: &KeyPath<'_>) -> Result<HashFields, Refusal> {
    let Some(list) = &raw.hash_fields else { return Ok(HashFields::DEFAULT) };
    let at = at.key("hash_fields");
    if list.value.is_empty() {
        return Err(refusal(list.referenced, &at, "none".to_owned(), value::FIELDS.to_owned()));
    }
    value::fields(&list.value, &at)
}

fn alt_hash_fields(raw: &RawTable, at: &KeyPath<'_>) -> Result<HashFields, Refusal> {
    let list = raw.alt_hash_fields.as_ref().map_or(&[][..], |list| &list.value);
    value::fields(list, &at.key("alt_hash_fields"))
}

fn ranking_of(raw: &Text, at: &KeyPath<'_>) -> Result<Ranking, Refusal> {
    match raw.value.as_str() {
        "hrw" => Ok(Ranking::Hrw),
        "glb" => Ok(Ranking::Glb),
        _ => Err(value::refuse(raw, at, "hrw or glb")),
    }
}

/// Refuses weights and bounds, which GLB's ranking does not have.
fn is_unweighted(raw: &RawTable, spec: &TableSpec, at: &KeyPath<'_>) -> Result<(), Refusal> {
    if let Some(share) = &raw.max_share {
        return Err(value::refuse(share, &at.key("max_share"), "no such key with ranking glb"));
    }
    let at = at.key("backends");
    for (i, (raw, backend)) in raw.backends.value.iter().zip(&spec.backends).enumerate() {
        let at = at.item(i);
        if let Some(weight) = raw.value.weight.as_ref().filter(|_| backend.weight != 1.0) {
            return Err(value::refuse(weight, &at.key("weight"), "1 with ranking glb, which is unweighted"));
        }
        if let Some(fill) = raw.value.fill.as_ref().filter(|_| backend.fill != 100) {
            return Err(value::refuse(fill, &at.key("fill"), "100 with ranking glb, which is unweighted"));
        }
    }
    Ok(())
}

fn bind(raw: &Spanned<RawBind>, at: &KeyPath<'_>) -> Result<Bind, Refusal> {
    let RawBind { address, protocol, port, ports } = &raw.value;
    let prefix = value::prefix(address, &at.key("address"))?;
    let protocol = match protocol.value.as_str() {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        _ => return Err(value::refuse(protocol, &at.key("protocol"), "tcp or udp")),
    };
    let ports = match (port, ports) {
        (Some(port), None) => value::port(port, &at.key("port"))?,
        (None, Some(ports)) => value::ports(ports, &at.key("ports"))?,
        (both, _) => {
            let found = if both.is_some() { "both port and ports" } else { "neither port nor ports" };
            return Err(refusal(raw.referenced, at, found.to_owned(), "one of the two".to_owned()));
        }
    };
    Ok(Bind { prefix, protocol, ports })
}

fn backends(raw: &Spanned<Vec<Spanned<RawBackend>>>, at: &KeyPath<'_>) -> Result<Vec<Backend>, Refusal> {
    count(raw.value.len(), "backends", table::MAX_BACKENDS, raw.referenced, at)?;
    let (mut ids, mut addresses) = (Seen::default(), Seen::default());
    each(raw, at, |raw, at| {
        let backend = backend(&raw.value, at)?;
        ids.insert(backend.id.clone(), &raw.value.id, &at.key("id"), "an id")?;
        addresses.insert(backend.address, &raw.value.address, &at.key("address"), "an address")?;
        Ok(backend)
    })
}

fn backend(raw: &RawBackend, at: &KeyPath<'_>) -> Result<Backend, Refusal> {
    let state = |raw: &Text, at: &KeyPath<'_>| {
        let known = raw.value.parse::<State>();
        known.map_err(|()| value::refuse(raw, at, "active, filling, draining or inactive"))
    };
    let health = |raw: &Text, at: &KeyPath<'_>| {
        raw.value.parse::<Health>().map_err(|()| value::refuse(raw, at, "up or down"))
    };
    Ok(Backend {
        id: value::label(&raw.id, &at.key("id"))?,
        address: value::backend_address(&raw.address, &at.key("address"))?,
        weight: optional(raw.weight.as_ref(), &at.key("weight"), value::weight)?.unwrap_or(1.0),
        fill: optional(raw.fill.as_ref(), &at.key("fill"), value::fill)?.unwrap_or(100),
        zone: optional(raw.zone.as_ref(), &at.key("zone"), value::label)?,
        state: optional(raw.state.as_ref(), &at.key("state"), state)?.unwrap_or(State::Active),
        health: optional(raw.health.as_ref(), &at.key("health"), health)?.unwrap_or(Health::Up),
    })
}

fn optional<T>(
    raw: Option<&Text>,
    at: &KeyPath<'_>,
    read: impl Fn(&Text, &KeyPath<'_>) -> Result<T, Refusal>,
) -> Result<Option<T>, Refusal> {
    raw.map(|raw| read(raw, at)).transpose()
}

fn each<R, T>(
    list: &Spanned<Vec<R>>,
    at: &KeyPath<'_>,
    mut read: impl FnMut(&R, &KeyPath<'_>) -> Result<T, Refusal>,
) -> Result<Vec<T>, Refusal> {
    list.value.iter().enumerate().map(|(i, raw)| read(raw, &at.item(i))).collect()
}

fn count(len: usize, what: &str, most: usize, place: Location, at: &KeyPath<'_>) -> Result<(), Refusal> {
    if (1..=most).contains(&len) {
        return Ok(());
    }
    Err(refusal(place, at, format!("{len} {what}"), format!("1 to {most}")))
}

fn refusal(place: Location, at: &KeyPath<'_>, found: String, allowed: String) -> Refusal {
    Refusal { line: place.line(), column: place.column(), path: at.to_string(), found, allowed }
}
