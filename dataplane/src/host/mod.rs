//! What the programs ask of the host: regular files with a bound, the runtime folder, routes and next hops, and all other
//! system calls.

pub(crate) mod files;
pub mod route;
pub(crate) mod runtime;
pub mod sys;
