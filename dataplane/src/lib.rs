//! The data plane: the director, which encapsulates packets by a forwarding table, and the redirector on the backend
//! host, which unwraps them. `main.rs` is a shell around it.

pub mod cli;
pub mod config;
pub mod console;
pub mod control;
#[cfg(feature = "demo")]
pub mod demo;
pub mod director;
mod files;
mod instance;
pub mod io;
#[cfg(feature = "demo")]
pub mod lab;
pub mod pipeline;
pub mod redirect;
pub mod replay;
pub mod route;
mod runtime;
pub mod sys;
pub mod wire;
pub mod xdp;
