//! Hop lists of a table: its own, or those that GLB Director's rule makes of the same backends.

use super::Rule;
use crate::generate::ranking::Ranking;
use common::backend::{Backend, State};
use common::flow::FlowKey;
use common::table::{Lists, Table};

pub(super) struct Rows<'a> {
    table: &'a Table,
    other: Option<Lists>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(table: &'a Table, rule: Rule) -> Self {
        Self { table, other: (rule == Rule::Glb).then(|| glb(table)) }
    }

    /// Ids of the hops of a flow.
    pub(super) fn hops(&self, flow: &FlowKey) -> impl Iterator<Item = &'a str> {
        let row = self.table.row(flow, self.table.hash_fields);
        let table = self.table;
        let list: Vec<u16> = match &self.other {
            Some(other) => other.get(row).to_vec(),
            None => table.sent(row).collect(),
        };
        let ids = list.into_iter().filter_map(|at| table.backend(at)).map(|one| one.id.as_str());
        ids.collect::<Vec<_>>().into_iter()
    }
}

/// The first two that are not inactive; if the first drains or is down, and the second is active, they change places.
fn glb(table: &Table) -> Lists {
    let ranking = Ranking::new(table.ranking, table.seed, &table.backends);
    let mut ranker = ranking.ranker();
    let mut lists = Lists::empty(table.rows(), 2);
    for row in 0..table.rows() {
        let mut pair: Vec<u16> = ranker.rank(row).take(2).collect();
        let unfit = pair.first().and_then(|at| table.backend(*at)).is_some_and(Backend::is_passed_over);
        let active =
            pair.get(1).and_then(|at| table.backend(*at)).is_some_and(|one| one.state == State::Active);
        if unfit && active {
            pair.reverse();
        }
        lists.set(row, pair);
    }
    lists
}
