//! What a configuration can be refused for, and where it says so.

use std::fmt;
use std::path::{Path, PathBuf};

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read at all.
    #[error("{}: {cause}", file.display())]
    Read {
        /// The configuration.
        file: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{}:{refusal}", file.display())]
    Refused {
        /// The configuration.
        file: PathBuf,
        /// What is wrong, and where.
        refusal: Box<Refusal>,
    },
}

impl ConfigError {
    pub(super) fn refused(file: &Path, refusal: Refusal) -> Self {
        Self::Refused { file: file.to_owned(), refusal: refusal.into() }
    }
}

/// `line:column: key path: found …, allowed …`. Never holds the text of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
    /// For example `tables[0].backends[2].weight`; empty for the file as a whole.
    pub path: String,
    /// What stands there.
    pub found: String,
    /// What may stand there.
    pub allowed: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, path, found, allowed } = self;
        write!(f, "{line}:{column}: ")?;
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        write!(f, "found {found}, allowed {allowed}")
    }
}

/// Something that may be meant, but surprises: `file:line:column: key path: text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The configuration.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
    /// As in [`Refusal::path`].
    pub path: String,
    /// What surprises.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, path, text } = self;
        write!(f, "{}:{line}:{column}: {path}: {text}", file.display())
    }
}

/// A place in the tree of keys. Chained, so that it costs nothing until something is wrong.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyPath<'a> {
    Root,
    Key(&'a KeyPath<'a>, &'static str),
    Item(&'a KeyPath<'a>, usize),
}

impl KeyPath<'_> {
    pub(super) fn key<'a>(&'a self, name: &'static str) -> KeyPath<'a> {
        KeyPath::Key(self, name)
    }

    pub(super) fn item(&self, at: usize) -> KeyPath<'_> {
        KeyPath::Item(self, at)
    }
}

impl fmt::Display for KeyPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, name) => f.write_str(name),
            Self::Key(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, at) => write!(f, "{parent}[{at}]"),
        }
    }
}
