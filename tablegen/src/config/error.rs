//! Refusals and warnings, with their place in the file.

use std::fmt;
use std::path::{Path, PathBuf};

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{}: {cause}", file.display())]
    Read {
        /// The configuration.
        file: PathBuf,
        /// The error of the system.
        cause: std::io::Error,
    },
    /// A value or a key is not allowed.
    #[error("{}:{refusal}", file.display())]
    Refused {
        /// The configuration.
        file: PathBuf,
        /// The value, its place, and what is allowed.
        refusal: Box<Refusal>,
    },
}

impl ConfigError {
    pub(super) fn refused(file: &Path, refusal: Refusal) -> Self {
        Self::Refused { file: file.to_owned(), refusal: refusal.into() }
    }
}

/// `line:column: key path: found …, allowed …`. Never contains the text of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
    /// For example `tables[0].backends[2].weight`; empty for the file as a whole.
    pub path: String,
    /// What was found.
    pub found: String,
    /// What is allowed.
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

/// A value that is allowed and often a mistake: `file:line:column: key path: text`.
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
    /// The warning, as a sentence.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, path, text } = self;
        write!(f, "{}:{line}:{column}: {path}: {text}", file.display())
    }
}

/// A path in the tree of keys. It is a chain of references, so that valid configurations allocate nothing for it.
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

    pub(super) fn item(&self, index: usize) -> KeyPath<'_> {
        KeyPath::Item(self, index)
    }
}

impl fmt::Display for KeyPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, name) => f.write_str(name),
            Self::Key(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
