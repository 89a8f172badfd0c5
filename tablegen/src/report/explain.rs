//! An explanation as text.

use crate::review::explain::{Candidate, Explanation, Lookup};
use std::fmt;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.flow)?;
        let Some(matched) = &self.matched else {
            return writeln!(f, "  no bind matches: the packet passes to the host unchanged");
        };
        writeln!(f, "  bind        {}, of table {}", matched.bind, matched.table)?;
        matched.lookup.fmt(f)?;
        match &matched.alternate {
            None => Ok(()),
            Some(alternate) => {
                write!(f, "  look-up by alt_hash_fields, whose hops are appended:\n{alternate}")
            }
        }
    }
}

impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: &[String]| if ids.is_empty() { "none".to_owned() } else { ids.join(", then ") };
        writeln!(f, "  hash input  {} ({})", self.hash_input, self.fields.join(" ‖ "))?;
        writeln!(f, "  hash        {}, row {}", self.hash, self.row)?;
        writeln!(f, "  hops        {}", list(&self.hops))?;
        if !self.not_sent.is_empty() {
            writeln!(
                f,
                "  not sent    {}, of another address family than the primary",
                self.not_sent.join(", ")
            )?;
        }
        writeln!(f, "  before      {}", list(&self.lineage))?;
        let width = |text: fn(&Candidate) -> usize| self.candidates.iter().map(text).max().unwrap_or(0);
        let ids = width(|candidate| candidate.id.chars().count());
        let addresses = width(|candidate| candidate.address.len());
        self.candidates.iter().try_for_each(|candidate| candidate.line(f, ids, addresses))
    }
}

impl Candidate {
    fn line(&self, f: &mut fmt::Formatter<'_>, ids: usize, addresses: usize) -> fmt::Result {
        let Self { id, address, weight, state, health, why, .. } = self;
        let hop = self.hop.map_or_else(|| "-".to_owned(), |hop| hop.to_string());
        let score = self.score.as_deref().unwrap_or("unknown");
        write!(f, "    {hop}  {id:ids$}  {address:addresses$}  {score:<16}  ")?;
        match self.weighted_score {
            Some(weighted) => write!(f, "{weighted:>10.4}  weight {weight:<6} ")?,
            None => write!(f, "weight {weight:<6} ")?,
        }
        writeln!(f, "{state:<8} {health:<4} {why}")
    }
}
