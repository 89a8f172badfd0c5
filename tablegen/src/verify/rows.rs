//! Rows of the file against rows that were computed again.

use super::slow::Row;
use super::{Finding, Reason};
use crate::format::number::counted;
use common::backend::Health;
use common::table::Table;
use std::collections::BTreeMap;

/// The outcome.
pub(super) struct Compared {
    pub(super) differing: u32,
    pub(super) findings: Vec<Finding>,
}

/// `wanted` has the backends to which positions of `computed` refer.
pub(super) fn compare(table: &Table, wanted: &Table, computed: &[Row]) -> Compared {
    let mut found = BTreeMap::<Reason, (u32, String)>::new();
    let mut differing = 0;
    for (row, should) in (0u32..).zip(computed) {
        let [is, lineage] = [&table.hops, &table.lineage].map(|lists| ids(table, lists.get(row)));
        let [hops, former] = [&should.hops, &should.lineage].map(|list| ids(wanted, list));
        let mut reasons: Vec<Reason> = hop_reason(table, &is, &hops).into_iter().collect();
        if lineage != former {
            reasons.push(Reason::Lineage);
        }
        differing += u32::from(!reasons.is_empty());
        for reason in reasons {
            let (is, should) = if reason == Reason::Lineage { (&lineage, &former) } else { (&is, &hops) };
            let text = || format!("row {row} has [{}], and should have [{}]", is.join(" "), should.join(" "));
            found.entry(reason).or_insert_with(|| (0, text())).0 += 1;
        }
    }
    let finding = |(reason, (rows, text))| {
        let text = if rows > 1 { format!("{}; {text}", counted(rows, "row")) } else { text };
        Finding { reason, table: table.name.clone(), rows, text }
    };
    Compared { differing, findings: found.into_iter().map(finding).collect() }
}

fn ids<'t>(table: &'t Table, list: &[u16]) -> Vec<&'t str> {
    list.iter().filter_map(|at| table.backend(*at)).map(|one| one.id.as_str()).collect()
}

/// The worst that is wrong with a hop list.
fn hop_reason(table: &Table, is: &[&str], should: &[&str]) -> Option<Reason> {
    if is == should {
        return None;
    }
    if is.first() != should.first() {
        return Some(Reason::Owner);
    }
    if should.iter().any(|id| !is.contains(id)) {
        return Some(Reason::MissingHop);
    }
    if is.len() > should.len() {
        return Some(Reason::ExtraHop);
    }
    let down = |id: &&str| table.backends.iter().any(|one| one.id == *id && one.health == Health::Down);
    let dead_last = is.iter().skip(1).is_sorted_by_key(down);
    Some(if dead_last { Reason::HopOrder } else { Reason::DeadHopFirst })
}
