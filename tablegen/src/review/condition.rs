//! Conditions: what must be true outside the two tables for a change to be safe.
//!
//! A review names each condition with a number and with who can confirm it. `--accept 'idle(web-2)'` confirms one, and
//! the record of the review keeps it.

use std::fmt;
use std::str::FromStr;

/// A condition of a change, as it is spelt on the command line and in reports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// No connection is open at this backend.
    Idle(String),
    /// The host of this backend is dead.
    Gone(String),
    /// The host of this backend has a new address and kept its connections.
    SameHost(String),
    /// No client uses this bind any more.
    Retired(String),
    /// Connections that are older than the table in service have ended.
    Settled,
    /// The directors list this backend already where it is about to own rows.
    Announced(String),
    /// This share of connections, in percent, may depend on the second hop.
    Hop2(u32),
    /// One more failure may exceed a stated capacity.
    OneFailure,
}

impl Condition {
    /// Does the acceptance of this condition confirm `asked`? A host that is idle and a host that is dead hold equally
    /// few connections, and a larger share covers a smaller one.
    pub fn confirms(&self, asked: &Self) -> bool {
        match (self, asked) {
            (Self::Idle(id) | Self::Gone(id), Self::Idle(other) | Self::Gone(other)) => id == other,
            (Self::Hop2(most), Self::Hop2(share)) => most >= share,
            _ => self == asked,
        }
    }

    /// The backend that holds no connections if this condition is true.
    pub fn without_connections(&self) -> Option<&str> {
        match self {
            Self::Idle(id) | Self::Gone(id) => Some(id),
            _ => None,
        }
    }

    /// Who can confirm it, and by what.
    pub const fn confirmed_by(&self) -> &'static str {
        match self {
            Self::Idle(_) => {
                "`dataplane status --json` of the backend's redirector (--status), or the server's administrator"
            }
            Self::Gone(_) => "whoever operates the host: it is off or was replaced",
            Self::SameHost(_) => "whoever renumbered the host: open connections continue on the new address",
            Self::Retired(_) => "whoever owns the service address: clients no longer use it",
            Self::Settled => {
                "time: the longest connection is shorter than the table in service is old; or `dataplane status` of \
                 the backends' redirectors"
            }
            Self::Announced(_) => {
                "`dataplane status` of every director: it has the table that lists the backend"
            }
            Self::Hop2(_) => "whoever operates the backends: every redirector is running and reachable",
            Self::OneFailure => "whoever plans the capacity of the backends",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle(id) => write!(f, "idle({id})"),
            Self::Gone(id) => write!(f, "gone({id})"),
            Self::SameHost(id) => write!(f, "same_host({id})"),
            Self::Retired(bind) => write!(f, "retired({bind})"),
            Self::Settled => f.write_str("settled"),
            Self::Announced(id) => write!(f, "announced({id})"),
            Self::Hop2(share) => write!(f, "hop2({share} %)"),
            Self::OneFailure => f.write_str("one_failure"),
        }
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "expected idle(ID), gone(ID), same_host(ID), retired(BIND), settled, announced(ID), hop2(SHARE) or \
                 one_failure, found {text:?}"
            )
        };
        match text {
            "settled" => return Ok(Self::Settled),
            "one_failure" => return Ok(Self::OneFailure),
            _ => {}
        }
        let (name, value) =
            text.strip_suffix(')').and_then(|text| text.split_once('(')).ok_or_else(unknown)?;
        if value.is_empty() {
            return Err(unknown());
        }
        let value = value.to_owned();
        match name {
            "idle" => Ok(Self::Idle(value)),
            "gone" => Ok(Self::Gone(value)),
            "same_host" => Ok(Self::SameHost(value)),
            "retired" => Ok(Self::Retired(value)),
            "announced" => Ok(Self::Announced(value)),
            "hop2" => share(&value).map(Self::Hop2).ok_or_else(unknown),
            _ => Err(unknown()),
        }
    }
}

/// `83 %` or `83%`.
fn share(text: &str) -> Option<u32> {
    text.strip_suffix('%')?.trim_end().parse().ok().filter(|share| *share <= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_read_back() {
        let all = [
            "idle(web-2)",
            "gone(web-2)",
            "same_host(web-2)",
            "retired(tcp 203.0.113.10:443)",
            "settled",
            "announced(a(b))",
            "hop2(83 %)",
            "one_failure",
        ];
        for text in all {
            assert_eq!(text.parse::<Condition>().unwrap().to_string(), text);
        }
        assert_eq!("hop2(83%)".parse(), Ok(Condition::Hop2(83)));
        for wrong in ["", "idle", "idle()", "idle(web-2", "hop2(83)", "hop2(101 %)", "safe(web-2)", "Settled"]
        {
            assert!(wrong.parse::<Condition>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_larger_share_and_either_kind_of_absence_confirm() {
        let condition = |text: &str| text.parse::<Condition>().unwrap();
        let confirms = |accepted, asked| condition(accepted).confirms(&condition(asked));
        assert!(confirms("hop2(84 %)", "hop2(83 %)") && !confirms("hop2(82 %)", "hop2(83 %)"));
        assert!(
            confirms("gone(a)", "idle(a)")
                && confirms("idle(a)", "gone(a)")
                && !confirms("idle(a)", "idle(b)")
        );
        assert!(confirms("settled", "settled") && !confirms("settled", "one_failure"));
    }
}
