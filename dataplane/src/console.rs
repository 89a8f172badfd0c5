//! What a running program tells its operator. Nobody listening is no reason to stop forwarding, so nothing here panics
//! as `eprintln!` and `print!` do.

use std::fmt;
use std::io::{self, Write};

/// Tells what happened, on standard error.
pub(crate) fn say(program: &str, what: fmt::Arguments<'_>) {
    drop(writeln!(io::stderr(), "{program}: {what}"));
}

/// Prints counters.
pub(crate) fn show(report: &str) {
    drop(io::stdout().write_all(report.as_bytes()));
}
