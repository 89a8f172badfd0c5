//! Limits on a change, as options of `tablegen diff`.

use crate::review::verdict::{Amount, Limits};

/// Each limit holds for every table. A limit that is not given does not apply.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct LimitArgs {
    /// Most rows that may change owner: a number, or a percentage such as 2% [default: no limit]
    #[arg(long, value_name = "AMOUNT")]
    max_moved: Option<Amount>,
    /// Most rows in which a backend that may hold connections may be lost [default: no limit]
    #[arg(long, value_name = "AMOUNT")]
    max_at_risk: Option<Amount>,
    /// Most rows that may change owner unnecessarily [default: no limit]
    #[arg(long, value_name = "AMOUNT")]
    max_unnecessary: Option<Amount>,
    /// Greatest ratio of a backend's rows to its fair share, such as 1.10 [default: no limit]
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    max_load: Option<f64>,
}

impl From<LimitArgs> for Limits {
    fn from(args: LimitArgs) -> Self {
        let LimitArgs { max_moved, max_at_risk, max_unnecessary, max_load } = args;
        Self { max_moved, max_at_risk, max_unnecessary, max_load }
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio: &f64| ratio.is_finite() && *ratio > 0.0);
    ratio.ok_or_else(|| format!("expected a number greater than 0 such as 1.10, found {text:?}"))
}
