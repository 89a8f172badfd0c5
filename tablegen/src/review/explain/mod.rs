//! Explanation of a flow: its bind, its hash, its row, and the role of every backend in that row. This module
//! decides nothing: it describes what the table holds. The key of the flow hash and the seed of the ranking
//! never appear, because whoever has the key can send flows to a backend of choice.

mod capture;
mod flow;

pub use capture::{Capture, CaptureError, flows, is_capture, packets};
pub use flow::{Flow, FlowError, Transport};

use crate::generate::ranking::Ranking;
use common::backend::{Backend, Health, State};
use common::bind::{Bind, BindIndex};
use common::flow::HashFields;
use common::table::{self, ForwardingTable, Table};
use serde::Serialize;
use std::cmp::Reverse;
use tryst_hrw::hash::hash_bytes;
use tryst_hrw::{DigestSet, Node, score, weighted_score};

/// The way of one flow through a table file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The flow in text form.
    pub flow: String,
    /// The table and the rows of the flow. None if no bind matches: the packet passes to the host.
    pub matched: Option<Match>,
}

/// The table of a flow, and its rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Match {
    /// Name of the table.
    pub table: String,
    /// The bind that matches best.
    pub bind: String,
    /// The look-up by `hash_fields`.
    pub lookup: Lookup,
    /// The look-up by `alt_hash_fields`, whose hops are appended.
    pub alternate: Option<Lookup>,
}

/// One row of one table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lookup {
    /// Packet fields that were hashed.
    pub fields: Vec<&'static str>,
    /// Octets of these fields, in hex.
    pub hash_input: String,
    /// SipHash-2-4 of these octets, in hex.
    pub hash: String,
    /// The row: the low bits of the hash.
    pub row: u32,
    /// Ids of the hops, the primary first.
    pub hops: Vec<String>,
    /// Ids of the hops that packets do not carry, because their address family is not the primary's.
    pub not_sent: Vec<String>,
    /// Ids of the former owners in the lineage, newest first.
    pub lineage: Vec<String>,
    /// Every backend in rank order for this row; backends that are no candidates come last.
    pub candidates: Vec<Candidate>,
}

/// A backend and its role in one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// Id of the backend.
    pub id: String,
    /// Address of the backend.
    pub address: String,
    /// The score that the ranking compares, in hex: highest first, with ranking `glb` lowest first. None if
    /// the seed is unknown.
    pub score: Option<String>,
    /// Effective weight.
    pub weight: f64,
    /// `−weight / ln u` of the score, which the ranking compares between different weights.
    pub weighted_score: Option<f64>,
    /// State that the operator set.
    pub state: &'static str,
    /// Health.
    pub health: &'static str,
    /// Zone.
    pub zone: Option<String>,
    /// Index in the hop list; 0 is the primary.
    pub hop: Option<usize>,
    /// The reason for its place in the hop list, or for its absence.
    pub why: String,
}

/// Explains one flow.
pub fn explain(file: &ForwardingTable, flow: &Flow) -> Explanation {
    Explanation {
        flow: flow.to_string(),
        matched: find(file, flow).map(|(table, bind)| matched(table, bind, flow)),
    }
}

/// The table of a flow, found like in the data plane, and the bind that matches best.
fn find<'a>(file: &'a ForwardingTable, flow: &Flow) -> Option<(&'a Table, &'a Bind)> {
    // The binds of a table file never tie.
    let index = BindIndex::new(&file.binds()).ok()?;
    let vip = flow.key.dst_addr;
    let index = match flow.transport {
        Transport::Ports(protocol, _, port) => index.lookup(vip, protocol, port)?,
        Transport::Echo => index.vip(vip)?,
    };
    let table = file.tables().get(usize::try_from(index).ok()?)?;
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
    let ids = |list: &[u16]| {
        list.iter().filter_map(|index| table.backend(*index)).map(|backend| backend.id.clone()).collect()
    };
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

/// One row with its ranking.
struct RowView<'a> {
    table: &'a Table,
    row: u32,
    hops: &'a [u16],
    /// All candidates in rank order.
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
        let rest = all.filter(|index| !self.ranked.contains(index));
        let ordered = self.ranked.iter().copied().chain(rest);
        ordered.filter_map(|index| Some(self.candidate(index, self.table.backend(index)?))).collect()
    }

    fn candidate(&self, index: u16, backend: &Backend) -> Candidate {
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
            hop: self.hops.iter().position(|hop| *hop == index),
            why: self.why(index, backend),
        }
    }

    fn score(&self, backend: &Backend) -> Option<u64> {
        let Table { ranking, seed, .. } = self.table;
        self.table.seed.is_known().then(|| match ranking {
            table::Ranking::Hrw => {
                score(hash_bytes(&seed.row_key(self.row)), Node::new(backend.id.as_str()).seed())
            }
            table::Ranking::Glb => {
                DigestSet::new(seed.0, &[backend.address]).digest(self.row, backend.address)
            }
        })
    }

    fn why(&self, index: u16, backend: &Backend) -> String {
        if !backend.is_candidate() {
            return "inactive: in no hop list".to_owned();
        }
        let Some((&primary, _)) = self.hops.split_first() else { return "the row is empty".to_owned() };
        if !self.table.seed.is_known() {
            return self.why_unknown(index);
        }
        if index == primary {
            return self.why_primary(backend);
        }
        let rank = |index: u16| self.ranked.iter().position(|ranked| *ranked == index);
        let (above, hop) = (rank(index) < rank(primary), self.hops.contains(&index));
        match self.reason(index, backend, primary, above) {
            Some(reason) if hop && !self.carries(primary, index) => {
                format!("{reason}; not sent: its address is of another family than the primary's")
            }
            Some(reason) if hop => reason,
            Some(reason) => format!("{reason}; cut, the list is full"),
            None if hop => "owned this row in the past".to_owned(),
            None if above => "preferred, but full (max_share)".to_owned(),
            None => "not needed".to_owned(),
        }
    }

    fn why_unknown(&self, index: u16) -> String {
        let place = self.hops.iter().position(|hop| *hop == index);
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
            "primary: no backend accepts and none is in service, so draining backends accept".to_owned()
        } else {
            "primary: no backend of the table accepts, so health is ignored".to_owned()
        }
    }

    /// The reason for which it may hold connections of the row, or replaces the primary if that fails.
    fn reason(&self, index: u16, backend: &Backend, primary: u16, above: bool) -> Option<String> {
        let down = if backend.health == Health::Down { ", and down, so after the live ones" } else { "" };
        if let Some(age) = self.table.lineage.get(self.row).iter().position(|former| *former == index) {
            let age = if age == 0 { "newest" } else { "older" };
            return Some(format!("owned this row before ({age}){down}"));
        }
        if above && backend.state == State::Draining {
            return Some(format!("preferred, but draining: keeps its connections{down}"));
        }
        if above && backend.accepts() && self.table.max_share.is_some() {
            return self.alone(index).then(|| "heir: preferred, but full (max_share)".to_owned());
        }
        if above {
            return Some("preferred, but down: last, in case the probes are wrong".to_owned());
        }
        let owner = self.table.backend(primary)?;
        let active =
            |index: &u16| self.table.backend(*index).is_some_and(|b| b.state == State::Active && b.accepts());
        let below = self.ranked.iter().skip_while(|index| **index != primary).skip(1);
        let first_active = below.clone().find(|index| active(index)).copied();
        let before_it =
            || below.clone().take_while(|index| Some(**index) != first_active).any(|below| *below == index);
        if owner.state == State::Filling && first_active.is_some() {
            if first_active == Some(index) {
                return Some("the owner without the filling primary".to_owned());
            }
            if backend.accepts() && before_it() {
                return Some("filling, between the primary and the next active backend".to_owned());
            }
        }
        self.alone(index).then(|| self.heir(backend, owner))
    }

    /// Whether it is the only hop besides the primary, without those that packets do not carry.
    fn alone(&self, index: u16) -> bool {
        let Some((first, rest)) = self.hops.split_first() else { return false };
        let sent = rest.iter().filter(|hop| self.carries(*first, **hop)).count();
        rest.contains(&index) && if self.carries(*first, index) { sent == 1 } else { rest.len() == 1 }
    }

    fn carries(&self, primary: u16, hop: u16) -> bool {
        let [primary, hop] = [primary, hop].map(|index| self.table.backend(index));
        primary.zip(hop).is_some_and(|(primary, hop)| primary.carries(hop))
    }

    fn heir(&self, backend: &Backend, owner: &Backend) -> String {
        let elsewhere = self.table.spread_zones && backend.zone != owner.zone;
        let zone = if elsewhere { ", in another zone" } else { "" };
        format!("heir: the next that accepts{zone}, if the primary fails")
    }
}
