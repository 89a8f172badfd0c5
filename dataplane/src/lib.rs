//! The data plane: the director, which encapsulates packets by a forwarding table, and the redirector on the
//! backend host, which decapsulates them. `main.rs` parses the command line and calls this library.
//!
//! | module | content |
//! |---|---|
//! | [`wire`] | headers: layout, parse, emit; the Internet checksum |
//! | [`pipeline`] | a frame in, a verdict out; pure |
//! | [`drivers`] | receive and send frames: ring, pnet, captures, XDP |
//! | [`host`] | interfaces, routes, files, system calls |
//! | [`control`] | configuration, control socket, instance lock, exit codes |
//! | [`director`], [`redirect`], [`replay`] | the programs |
//! | `testkit` | the lab of network namespaces and the demo, behind the feature `demo` |

pub mod cli;
pub mod control;
pub mod director;
pub mod drivers;
pub mod host;
pub mod pipeline;
pub mod redirect;
pub mod replay;
#[cfg(feature = "demo")]
pub mod testkit;
pub mod wire;
