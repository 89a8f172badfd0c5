//! Why a flow goes where it goes: bind, hash, row, and what every backend has to do with that row.
//!
//! Nothing here decides; it repeats with words what the table already says. The key of the flow hash and the seed of
//! the ranking never appear: whoever knows the key can aim at one backend.

mod capture;
mod flow;
mod text;

pub use capture::{Capture, CaptureError, flows, is_capture, packets};
pub use flow::{Flow, FlowError, Transport};

use crate::generate::ranking::Ranking;
use common::backend::{Backend, Health, State};
use common::bind::{Bind, BindIndex};
use common::flow::HashFields;
use common::hash::{SipKey, hash_bytes};
use common::hrw::{DigestSet, Node, score, weighted_score};
use common::table::{self, ForwardingTable, Table};
use serde::Serialize;
use std::cmp::Reverse;

/// What a table file does with one flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The flow, as it can be typed.
    pub flow: String,
    /// What became of it; none if no bind matches, and the packet passes to the host.
    pub matched: Option<Match>,
}

/// The table of a flow, and its rows there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Match {
    /// Name of the table.
    pub table: String,
    /// The best matching bind.
    pub bind: String,
    /// By `hash_fields`.
    pub lookup: Lookup,
    /// By `alt_hash_fields`, whose hops are appended.
    pub alternate: Option<Lookup>,
}

/// One row of one table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lookup {
    /// Fields of the packet that were hashed.
    pub fields: Vec<&'static str>,
    /// Their octets in hex.
    pub hash_input: String,
    /// SipHash-2-4 of them, in hex.
    pub hash: String,
    /// Its low bits.
    pub row: u32,
    /// Ids, the primary first.
    pub hops: Vec<String>,
    /// Those of them that packets do not carry: their addresses are of another family than the primary's.
    pub not_sent: Vec<String>,
    /// Former owners that the table remembers, newest first.
    pub lineage: Vec<String>,
    /// Every backend, in the row's order of preference; those that are no candidates last.
    pub candidates: Vec<Candidate>,
}

/// A backend, from one row's point of view.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// Its id.
    pub id: String,
    /// Where its packets go.
    pub address: String,
    /// What is compared, in hex: highest first, but with ranking glb lowest first. None where it is unknown.
    pub score: Option<String>,
    /// The weight that counts.
    pub weight: f64,
    /// `−weight / ln u` of the score: what is compared between different weights.
    pub weighted_score: Option<f64>,
    /// What the operator wants.
    pub state: &'static str,
    /// What probes say.
    pub health: &'static str,
    /// Failure domain.
    pub zone: Option<String>,
    /// Place in the hop list, 0 the primary.
    pub hop: Option<usize>,
    /// Why it stands there, or nowhere.
    pub why: String,
}

/// Explains one flow.
pub fn explain(file: &ForwardingTable, flow: &Flow) -> Explanation {
    Explanation {
        flow: flow.to_string(),
        matched: find(file, flow).map(|(table, bind)| matched(table, bind, flow)),
    }
}

/// The table of a flow by the same search as the data plane's, and the bind that won.
fn find<'a>(file: &'a ForwardingTable, flow: &Flow) -> Option<(&'a Table, &'a Bind)> {
    // A table file's binds never tie.
    let index = BindIndex::new(&file.binds()).ok()?;
    let vip = flow.key.dst_addr;
    let at = match flow.transport {
        Transport::Ports(protocol, _, port) => index.lookup(vip, protocol, port)?,
        Transport::Echo => index.vip(vip)?,
    };
    let table = file.tables().get(usize::try_from(at).ok()?)?;
    let matches = |bind: &&Bind| match flow.transport {
        Transport::Ports(protocol, _, port) => bind.matches(vip, protocol, port),
        Transport::Echo => bind.prefix.contains(vip),
    };
    let best = |bind: &&Bind| (bind.prefix.bits(), Reverse(bind.ports.width()));
    Some((table, table.binds.iter().filter(matches).max_by_key(best)?))
}

fn matched(table: &Table, bind: &Bind, flow: &Flow) -> Match {
    let alternate = (!table.alt_hash_fields.is_empty()).then(|| lookup(table, flow, table.alt_hash_fields));
    Match {
        table: table.name.clone(),
        bind: bind.to_string(),
        lookup: lookup(table, flow, table.hash_fields),
        alternate,
    }
}

fn lookup(table: &Table, flow: &Flow, fields: HashFields) -> Lookup {
    let input = flow.key.input(fields);
    let hash = flow.key.hash(table.hash_key, fields);
    let row = hash.row(table.rows());
    let used = if flow.key.ports.is_some() { fields } else { fields.without_ports() };
    let ids =
        |list: &[u16]| list.iter().filter_map(|at| table.backend(*at)).map(|one| one.id.clone()).collect();
    Lookup {
        fields: used.names().collect(),
        hash_input: input.as_slice().iter().map(|octet| format!("{octet:02x}")).collect(),
        hash: format!("{:016x}", hash.0),
        row,
        hops: ids(table.hops.get(row)),
        not_sent: ids(&table.not_sent(row).collect::<Vec<_>>()),
        lineage: ids(table.lineage.get(row)),
        candidates: RowView::new(table, row).candidates(),
    }
}

/// One row, with its ranking.
struct RowView<'a> {
    table: &'a Table,
    row: u32,
    hops: &'a [u16],
    /// All candidates, most preferred first.
    ranked: Vec<u16>,
}

impl<'a> RowView<'a> {
    fn new(table: &'a Table, row: u32) -> Self {
        let hops = table.hops.get(row);
        let ranked = if table.seed.is_known() {
            let ranking = Ranking::new(table.ranking, table.seed, &table.backends);
            ranking.ranker().rank(row).collect()
        } else {
            hops.to_vec()
        };
        Self { table, row, hops, ranked }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let all = 0..u16::try_from(self.table.backends.len()).unwrap_or(u16::MAX);
        let rest = all.filter(|at| !self.ranked.contains(at));
        let ordered = self.ranked.iter().copied().chain(rest);
        ordered.filter_map(|at| Some(self.candidate(at, self.table.backend(at)?))).collect()
    }

    fn candidate(&self, at: u16, backend: &Backend) -> Candidate {
        let score = self.score(backend);
        let hrw = self.table.ranking == table::Ranking::Hrw;
        let share = backend.effective_weight();
        Candidate {
            id: backend.id.clone(),
            address: backend.address.to_string(),
            score: score.map(|score| format!("{score:016x}")),
            weight: share,
            weighted_score: score.filter(|_| hrw).map(|score| weighted_score(score, share)),
            state: backend.state.name(),
            health: backend.health.name(),
            zone: backend.zone.clone(),
            hop: self.hops.iter().position(|hop| *hop == at),
            why: self.why(at, backend),
        }
    }

    fn score(&self, backend: &Backend) -> Option<u64> {
        let Table { ranking, seed, .. } = self.table;
        self.table.seed.is_known().then(|| match ranking {
            table::Ranking::Hrw => {
                score(hash_bytes(&seed.row_key(self.row)), Node::new(backend.id.as_str()).seed())
            }
            table::Ranking::Glb => {
                DigestSet::new(SipKey::new(seed.0), &[backend.address]).digest(self.row, backend.address)
            }
        })
    }

    fn why(&self, at: u16, backend: &Backend) -> String {
        if !backend.is_candidate() {
            return "inactive: in no hop list".to_owned();
        }
        let Some((&primary, _)) = self.hops.split_first() else { return "the row is empty".to_owned() };
        if !self.table.seed.is_known() {
            return self.why_unknown(at);
        }
        if at == primary {
            return self.why_primary(backend);
        }
        let place = |one: u16| self.ranked.iter().position(|ranked| *ranked == one);
        let (above, hop) = (place(at) < place(primary), self.hops.contains(&at));
        match self.reason(at, backend, primary, above) {
            Some(reason) if hop && !self.carries(primary, at) => {
                format!("{reason}; not sent: its address is of another family than the primary's")
            }
            Some(reason) if hop => reason,
            Some(reason) => format!("{reason}; cut, the list is full"),
            None if hop => "owned this row once".to_owned(),
            None if above => "preferred, but full (max_share)".to_owned(),
            None => "not needed".to_owned(),
        }
    }

    fn why_unknown(&self, at: u16) -> String {
        let place = self.hops.iter().position(|hop| *hop == at);
        match place {
            Some(0) => "primary, as the file says; it does not hold the seed of the ranking".to_owned(),
            Some(_) => "second hop, as the file says".to_owned(),
            None => "not in this row".to_owned(),
        }
    }

    fn why_primary(&self, backend: &Backend) -> String {
        if backend.accepts() && self.table.max_share.is_some() {
            "primary: the first that accepts and has room (max_share)".to_owned()
        } else if backend.accepts() {
            "primary: the first that accepts".to_owned()
        } else if backend.state == State::Draining {
            "primary: none accepts and none is in service, so draining ones do".to_owned()
        } else {
            "primary: none of the table accepts, so health is ignored".to_owned()
        }
    }

    /// Why it may hold connections of the row, or stands in for the primary.
    fn reason(&self, at: u16, backend: &Backend, primary: u16, above: bool) -> Option<String> {
        let down = if backend.health == Health::Down { ", and down, so after the live ones" } else { "" };
        if let Some(age) = self.table.lineage.get(self.row).iter().position(|one| *one == at) {
            let age = if age == 0 { "newest" } else { "older" };
            return Some(format!("owned this row before ({age}){down}"));
        }
        if above && backend.state == State::Draining {
            return Some(format!("preferred, but draining: keeps its connections{down}"));
        }
        if above && backend.accepts() && self.table.max_share.is_some() {
            return self.alone(at).then(|| "heir: preferred, but full (max_share)".to_owned());
        }
        if above {
            return Some("preferred, but down: last, should the probes be wrong".to_owned());
        }
        let owner = self.table.backend(primary)?;
        let active =
            |one: &u16| self.table.backend(*one).is_some_and(|b| b.state == State::Active && b.accepts());
        let below = self.ranked.iter().skip_while(|one| **one != primary).skip(1);
        let first_active = below.clone().find(|one| active(one)).copied();
        let before_it = || below.clone().take_while(|one| Some(**one) != first_active).any(|one| *one == at);
        if owner.state == State::Filling && first_active.is_some() {
            if first_active == Some(at) {
                return Some("the owner but for the filling primary".to_owned());
            }
            if backend.accepts() && before_it() {
                return Some("filling too, between the primary and the owner without it".to_owned());
            }
        }
        self.alone(at).then(|| self.heir(backend, owner))
    }

    /// Is it the only hop besides the primary, not counting those that are not sent?
    fn alone(&self, at: u16) -> bool {
        let (first, rest) = self.hops.split_first().map_or((at, &[][..]), |(first, rest)| (*first, rest));
        let sent = rest.iter().filter(|hop| self.carries(first, **hop)).count();
        rest.contains(&at) && if self.carries(first, at) { sent == 1 } else { rest.len() == 1 }
    }

    fn carries(&self, primary: u16, hop: u16) -> bool {
        let [primary, hop] = [primary, hop].map(|at| self.table.backend(at));
        primary.zip(hop).is_some_and(|(primary, hop)| primary.carries(hop))
    }

    fn heir(&self, backend: &Backend, owner: &Backend) -> String {
        let elsewhere = self.table.spread_zones && backend.zone != owner.zone;
        let zone = if elsewhere { ", in another zone" } else { "" };
        format!("heir: the next that accepts{zone}, should the primary fail")
    }
}
