//! What an operator controls: the configuration, the table file that it names, the control socket, the lock of an
//! instance, and exit codes.

pub mod config;
pub mod console;
pub mod exit;
pub(crate) mod instance;
pub mod socket;
pub(crate) mod table;
