//! The operator's interface: the configuration, the table file that it names, the control socket, the
//! instance lock, and exit codes.

pub mod config;
pub mod console;
pub mod exit;
pub(crate) mod instance;
pub mod socket;
pub(crate) mod table;
