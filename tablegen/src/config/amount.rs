//! A number of rows, or a share of them.

use crate::format::number::counted;
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
    /// Is this number of rows of `total` within it?
    pub fn allows(self, rows: u32, total: u32) -> bool {
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
