//! The programs' interface to the host: regular files with a length limit, the runtime folder, routes and
//! next hops, and all other system calls.

pub(crate) mod files;
pub mod route;
pub(crate) mod runtime;
pub mod sys;
