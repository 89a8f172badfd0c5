//! The command line of the bench programs: `--help` describes the bench, and unknown words are refused.

use clap::{Arg, Command};

/// Ends the process on `--help` and on any argument.
pub fn no_arguments(name: &'static str, about: &'static str) {
    Command::new(name).about(about).get_matches();
}

/// Ends the process on `--help`; returns the other words. A bench starts itself again with words of its own in order
/// to measure in a fresh process, so help does not list them.
pub fn hidden_arguments(name: &'static str, about: &'static str) -> Vec<String> {
    let words = Arg::new("words").num_args(0..).hide(true);
    let mut matches = Command::new(name).about(about).arg(words).get_matches();
    matches.remove_many("words").map_or_else(Vec::new, Iterator::collect)
}
