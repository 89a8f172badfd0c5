//! The data plane: the director, which encapsulates packets by a forwarding table, and the redirector on the backend
//! host, which unwraps them. `main.rs` is a shell around it.

mod claim;
pub mod cli;
pub mod config;
mod console;
pub mod control;
#[cfg(feature = "demo")]
pub mod demo;
pub mod director;
pub mod io;
#[cfg(feature = "demo")]
pub mod lab;
pub mod pipeline;
pub mod redirect;
pub mod replay;
pub mod route;
pub mod sys;
pub mod wire;
pub mod xdp;
