//! Hop lists of a table: its own, or the ones that GLB Director's rule gives for the same backends.

use super::Rule;
use crate::generate::ranking::Ranking;
use common::backend::{Backend, State};
use common::flow::FlowKey;
use common::table::{Lists, Table};

/// A table with the hop lists of one rule.
pub(super) struct HopLists<'a> {
    table: &'a Table,
    /// None: those of the table.
    glb: Option<Lists>,
}

impl<'a> HopLists<'a> {
    pub(super) fn new(table: &'a Table, rule: Rule) -> Self {
        Self { table, glb: (rule == Rule::Glb).then(|| glb(table)) }
    }

    /// Ids of the hops that a packet of a flow carries, the primary first.
    pub(super) fn hops(&self, flow: &FlowKey) -> impl Iterator<Item = &'a str> {
        let row = self.table.row(flow, self.table.hash_fields);
        let table = self.table;
        let list: Vec<u16> = match &self.glb {
            Some(glb) => glb.get(row).to_vec(),
            None => table.sent(row).collect(),
        };
        list.into_iter().map(|hop| table.backends[usize::from(hop)].id.as_str())
    }
}

/// GLB's hop rule: the first two candidates of the ranking, in the other order if the first is draining or down and
/// the state of the second is `active`.
fn glb(table: &Table) -> Lists {
    let ranking = Ranking::new(table.ranking, table.seed, &table.backends);
    let mut ranker = ranking.ranker();
    let mut lists = Lists::empty(table.rows(), 2);
    for row in 0..table.rows() {
        let mut pair: Vec<u16> = ranker.rank(row).take(2).collect();
        let backend = |hop: usize| pair.get(hop).and_then(|index| table.backend(*index));
        let swap = backend(0).is_some_and(Backend::is_passed_over)
            && backend(1).is_some_and(|second| second.state == State::Active);
        if swap {
            pair.reverse();
        }
        lists.set(row, pair);
    }
    lists
}
