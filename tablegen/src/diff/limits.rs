//! Limits that a change must keep, and the verdict on it.

use super::{Diff, TableDiff};
use crate::report::number::{counted, either};
use std::fmt;
use std::str::FromStr;

/// A number of rows, or a percentage of a table's rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// That many.
    Rows(u32),
    /// So many of a hundred.
    Percent(f64),
}

impl Amount {
    fn allows(self, rows: u32, total: u32) -> bool {
        match self {
            Self::Rows(most) => rows <= most,
            Self::Percent(most) => f64::from(rows) * 100.0 <= most * f64::from(total),
        }
    }
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected a number of rows or a percentage such as 2%, found {text:?}");
        match text.strip_suffix('%') {
            Some(percent) => match percent.trim().parse::<f64>() {
                Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Self::Percent(percent)),
                _ => Err(expected()),
            },
            None => text.parse().map(Self::Rows).map_err(|_| expected()),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(rows) => f.write_str(&counted(*rows, "row")),
            Self::Percent(percent) => write!(f, "{percent} %"),
        }
    }
}

/// What a change may cost at most, in each table. What is not set is not limited.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Limits {
    /// Most rows that may change owner: a number, or a percentage such as 2%
    #[arg(long, value_name = "AMOUNT")]
    pub max_moved: Option<Amount>,
    /// Most rows in which a backend with connections may be lost
    #[arg(long, value_name = "AMOUNT")]
    pub max_at_risk: Option<Amount>,
    /// Most rows that may change owner for no reason
    #[arg(long, value_name = "AMOUNT")]
    pub max_unnecessary: Option<Amount>,
    /// Most rows of any backend over its fair share, such as 1.10
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    pub max_load: Option<f64>,
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio: &f64| ratio.is_finite() && *ratio > 0.0);
    ratio.ok_or_else(|| format!("expected a number greater than 0 such as 1.10, found {text:?}"))
}

/// A limit that a table breaks.
#[derive(Clone, Debug, PartialEq)]
pub struct Excess {
    /// The table.
    pub table: String,
    /// The limit, as it is spelled on the command line.
    pub limit: &'static str,
    /// What was allowed and what was found, in words.
    pub text: String,
}

impl Limits {
    /// All limits that a change breaks.
    pub fn excesses(&self, diff: &Diff) -> Vec<Excess> {
        diff.tables.iter().flat_map(|table| self.of_table(table)).collect()
    }

    fn of_table(&self, table: &TableDiff) -> Vec<Excess> {
        let rows = &table.rows;
        let amounts = [
            ("--max-moved", self.max_moved, rows.moved, ["changes owner", "change owner"]),
            ("--max-at-risk", self.max_at_risk, rows.at_risk, ["is at risk", "are at risk"]),
            (
                "--max-unnecessary",
                self.max_unnecessary,
                rows.unnecessary,
                ["changes owner for no reason", "change owner for no reason"],
            ),
        ];
        let excess = |limit, text| Excess { table: table.name.clone(), limit, text };
        let mut all: Vec<Excess> = amounts
            .into_iter()
            .filter_map(|(limit, most, found, [one, many])| {
                let most = most.filter(|most| !most.allows(found, rows.total))?;
                let what = either(found, one, many);
                let share = f64::from(found) * 100.0 / f64::from(rows.total.max(1));
                Some(excess(limit, format!("{} ({share:.2} %) {what}, {most} may", counted(found, "row"))))
            })
            .collect();
        let fullest = table.shape[1].fullest;
        if let Some(((load, backend), most)) =
            fullest.zip(self.max_load).filter(|((load, _), most)| load > most)
        {
            let id = table.id(backend);
            all.push(excess("--max-load", format!("{id} owns {load:.3} × its fair share, {most} × may be")));
        }
        all
    }
}

/// The answer in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No connection can break by it, and no limit is broken.
    Safe,
    /// That many rows have a backend whose connections may break.
    AtRisk(u64),
    /// A limit that was set is broken.
    OverLimit,
}

impl Verdict {
    /// The verdict on a change that breaks these limits.
    pub fn new(diff: &Diff, excesses: &[Excess]) -> Self {
        match diff.at_risk() {
            _ if !excesses.is_empty() => Self::OverLimit,
            0 => Self::Safe,
            rows => Self::AtRisk(rows),
        }
    }

    /// The word in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::AtRisk(_) => "at_risk",
            Self::OverLimit => "over_limit",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Safe => f.write_str("safe"),
            Self::AtRisk(rows) => write!(f, "{} at risk", counted(*rows, "row")),
            Self::OverLimit => f.write_str("over limit"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rows_or_percentages() {
        assert_eq!("0".parse(), Ok(Amount::Rows(0)));
        assert_eq!("2%".parse(), Ok(Amount::Percent(2.0)));
        assert_eq!("0.5 %".parse(), Ok(Amount::Percent(0.5)));
        for wrong in ["", "%", "-1", "2.5", "101%", "NaN%", "-1%", "2 rows"] {
            assert!(wrong.parse::<Amount>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_may_be_reached_but_not_passed() {
        assert!(Amount::Rows(3).allows(3, 65_536) && !Amount::Rows(3).allows(4, 65_536));
        assert!(
            Amount::Percent(25.0).allows(16_384, 65_536) && !Amount::Percent(25.0).allows(16_385, 65_536)
        );
        assert!(Amount::Percent(0.0).allows(0, 65_536) && !Amount::Percent(0.0).allows(1, 65_536));
    }
}
