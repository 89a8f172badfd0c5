//! The verdict on a change, and the limits that it must keep.

use super::diff::{Diff, TableDiff};
use crate::format::number::{counted, either, percent};
use std::fmt;
use std::str::FromStr;

/// A number of rows, or a percentage of a table's rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A number of rows.
    Rows(u32),
    /// A percentage, 0 to 100.
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

/// The most that a change may do to each table. A limit that is not set does not apply.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Rows that change owner.
    pub max_moved: Option<Amount>,
    /// Rows at risk.
    pub max_at_risk: Option<Amount>,
    /// Rows that change owner unnecessarily.
    pub max_unnecessary: Option<Amount>,
    /// Rows of any backend divided by its fair share.
    pub max_load: Option<f64>,
}

/// A limit that a table exceeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Excess {
    /// Name of the table.
    pub table: String,
    /// The limit, as the option of the command line.
    pub limit: &'static str,
    /// What was found and what is allowed, as a sentence.
    pub text: String,
}

impl Limits {
    /// All limits that a change exceeds.
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
                ["changes owner unnecessarily", "change owner unnecessarily"],
            ),
        ];
        let excess = |limit, text| Excess { table: table.name.clone(), limit, text };
        let rows_over = amounts.into_iter().filter_map(|(limit, most, found, [one, many])| {
            let most = most.filter(|most| !most.allows(found, rows.total))?;
            let share = percent(found.into(), rows.total.into());
            let verb = either(found, one, many);
            Some(excess(limit, format!("{} ({share}) {verb}; the limit is {most}", counted(found, "row"))))
        });
        let load_over = table.shape[1].most_loaded.zip(self.max_load);
        let load_over = load_over.filter(|((load, _), most)| load > most).map(|((load, backend), most)| {
            let id = table.id(backend);
            excess("--max-load", format!("{id} owns {load:.3} × its fair share; the limit is {most} ×"))
        });
        rows_over.chain(load_over).collect()
    }
}

/// The verdict of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVerdict {
    /// No connection can break, and no limit is exceeded.
    Safe,
    /// Connections may break in this number of rows.
    AtRisk(u64),
    /// A limit is exceeded.
    OverLimit,
}

impl ReviewVerdict {
    /// The verdict on a change that exceeds these limits.
    pub fn new(diff: &Diff, excesses: &[Excess]) -> Self {
        match diff.at_risk() {
            _ if !excesses.is_empty() => Self::OverLimit,
            0 => Self::Safe,
            rows => Self::AtRisk(rows),
        }
    }

    /// The verdict in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::AtRisk(_) => "at_risk",
            Self::OverLimit => "over_limit",
        }
    }
}

impl fmt::Display for ReviewVerdict {
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
    fn a_limit_may_be_reached_but_not_exceeded() {
        assert!(Amount::Rows(3).allows(3, 65_536) && !Amount::Rows(3).allows(4, 65_536));
        assert!(
            Amount::Percent(25.0).allows(16_384, 65_536) && !Amount::Percent(25.0).allows(16_385, 65_536)
        );
        assert!(Amount::Percent(0.0).allows(0, 65_536) && !Amount::Percent(0.0).allows(1, 65_536));
    }
}
