//! Why a kernel path could not be set up.

use std::io;

/// An error of a kernel path. Depending on the mode, the director then works without it or refuses to start.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// More rows, hops or port ranges than a map may have.
    #[error("{what}: expected at most {most}, found {found}")]
    TooMany {
        /// The kind of entries.
        what: &'static str,
        /// The limit.
        most: u64,
        /// The number found.
        found: u64,
    },
    /// A backend has address 0.0.0.0, which means "no address" in the program.
    #[error("backend {0}: expected an address, found 0.0.0.0")]
    Unspecified(String),
    /// No hash seed was found that places all binds.
    #[error("binds: no arrangement found")]
    Binds,
    /// The object lacks a map or program.
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
    /// Waiting for running programs failed.
    #[error("membarrier: {0}")]
    Wait(#[source] io::Error),
    /// The program could not be attached in any mode.
    #[error("interface {interface}: {text}")]
    Attach {
        /// Its index.
        interface: u32,
        /// The attempts and the kernel's errors.
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
