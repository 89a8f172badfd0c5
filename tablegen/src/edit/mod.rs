//! Changes of one backend in a configuration file: only the scalars concerned are touched, so comments and layout stay.
//!
//! The YAML reader says where each value stands; the text is then changed there, read again, and refused if it does
//! not mean exactly what was wanted. A layout that is too unusual is therefore never damaged: it is left to a person.

pub mod lines;
mod places;
mod rewrite;
pub mod step;

pub use rewrite::{Layout, relocate, rewrite};

use crate::config::{Config, ConfigError};
use common::backend::State;
use places::Places;
use std::path::Path;

/// What is done to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// No new connections.
    Drain,
    /// New connections, for so many percent of its weight.
    Fill(u8),
    /// New connections, in full.
    Activate,
    /// Out of the configuration.
    Remove,
}

impl Action {
    /// The sub-command.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Fill(_) => "fill",
            Self::Activate => "activate",
            Self::Remove => "remove",
        }
    }
}

/// Why a file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// No backend of that id.
    #[error("no backend {0:?} in the configuration")]
    Unknown(String),
    /// Several tables have one.
    #[error("backend {0:?} is in several tables; name one with --table")]
    Ambiguous(String),
    /// The change was made, and reads back as something else.
    #[error("the layout around backend {0:?} is not one that can be changed safely; change the file by hand")]
    Layout(String),
    /// The file, or what would become of it, is no configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// The text with `action` done to one backend.
pub fn apply(
    text: &str,
    file: &Path,
    table: Option<&str>,
    backend: &str,
    action: Action,
) -> Result<String, EditError> {
    let before = Config::parse(text, file)?;
    let places = Places::read(text).ok_or_else(|| EditError::Layout(backend.to_owned()))?;
    let table = places.table_of(table, backend)?;
    rewrite(text, file, &wanted(before, table, backend, action).tables, Layout::Kept)
}

/// What the changed file must mean.
fn wanted(mut config: Config, table: &str, backend: &str, action: Action) -> Config {
    for spec in config.tables.iter_mut().filter(|spec| spec.name == table) {
        if action == Action::Remove {
            spec.backends.retain(|one| one.id != backend);
        }
        for one in spec.backends.iter_mut().filter(|one| one.id == backend) {
            match action {
                Action::Drain => one.state = State::Draining,
                Action::Activate => one.state = State::Active,
                Action::Fill(percent) => (one.state, one.fill) = (State::Filling, percent),
                Action::Remove => {}
            }
        }
    }
    config
}
