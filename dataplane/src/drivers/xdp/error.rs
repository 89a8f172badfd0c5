//! Why the fast path could not be set up.

use std::io;

/// What went wrong; the director then works without the fast path, or refuses, as it was told.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// More rows, hops or port ranges than a map of ours may have.
    #[error("{what}: expected at most {most}, found {found}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        most: u64,
        /// How many there are.
        found: u64,
    },
    /// The address 0.0.0.0, which the program takes for none.
    #[error("backend {0}: expected an address, found 0.0.0.0")]
    Unspecified(String),
    /// No arrangement of the binds was found.
    #[error("binds: no arrangement found")]
    Binds,
    /// The object does not have what it should.
    #[error("BPF object: no {0}")]
    Missing(&'static str),
    /// The kernel refused a map, or the object.
    #[error("BPF object: {0}")]
    Object(#[from] Box<aya::EbpfError>),
    /// The kernel refused the program.
    #[error("BPF program: {0}")]
    Program(#[from] Box<aya::programs::ProgramError>),
    /// A map could not be read or written.
    #[error("BPF map: {0}")]
    Map(#[from] aya::maps::MapError),
    /// The memory of a map could not be written.
    #[error("BPF map {0}: {1}")]
    Fill(&'static str, #[source] io::Error),
    /// Programs still running could not be waited for.
    #[error("membarrier: {0}")]
    Wait(#[source] io::Error),
    /// The program could not be attached in any mode.
    #[error("interface {interface}: {text}")]
    Attach {
        /// Its index.
        interface: u32,
        /// What was tried, and what the kernel said.
        text: String,
    },
}

impl From<aya::EbpfError> for XdpError {
    fn from(error: aya::EbpfError) -> Self {
        Self::Object(Box::new(error))
    }
}

impl From<aya::programs::ProgramError> for XdpError {
    fn from(error: aya::programs::ProgramError) -> Self {
        Self::Program(Box::new(error))
    }
}
