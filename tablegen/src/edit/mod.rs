//! Changes of one backend in a configuration file. Only the values concerned change, so comments and layout
//! stay.
//!
//! The YAML reader reports the source span of each value. The text is changed there and read again. If the
//! result is not exactly the requested configuration, the change is refused: a person must change an unusual
//! layout by hand.

mod rewrite;
mod spans;
pub mod step;

pub use rewrite::{Layout, relocate, rewrite};

use crate::config::{Config, ConfigError};
use common::backend::State;
use spans::ConfigSpans;
use std::path::Path;

/// A change of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The backend gets no new connections.
    Drain,
    /// The backend gets new connections for this percentage of its weight.
    Fill(u8),
    /// The backend gets its full share of new connections.
    Activate,
    /// The backend leaves the configuration.
    Remove,
}

impl Action {
    /// Name of the sub-command.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Fill(_) => "fill",
            Self::Activate => "activate",
            Self::Remove => "remove",
        }
    }
}

/// Reason for which a file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// No backend has this id.
    #[error("no backend {0:?} in the configuration")]
    Unknown(String),
    /// Several tables have a backend with this id.
    #[error("backend {0:?} is in several tables; name one with --table")]
    Ambiguous(String),
    /// The changed text would not mean what was requested.
    #[error("the layout around backend {0:?} is not one that can be changed safely; change the file by hand")]
    Layout(String),
    /// The file, or the changed text, is not a valid configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// The text with `action` applied to one backend.
pub fn apply(
    text: &str,
    file: &Path,
    table: Option<&str>,
    backend: &str,
    action: Action,
) -> Result<String, EditError> {
    let before = Config::parse(text, file)?;
    let spans = ConfigSpans::read(text).ok_or_else(|| EditError::Layout(backend.to_owned()))?;
    let table = spans.table_of(table, backend)?;
    rewrite(text, file, &wanted(before, table, backend, action).tables, Layout::Kept)
}

/// The configuration that the changed text must mean.
fn wanted(mut config: Config, table: &str, backend: &str, action: Action) -> Config {
    for spec in config.tables.iter_mut().filter(|spec| spec.name == table) {
        if action == Action::Remove {
            spec.backends.retain(|candidate| candidate.id != backend);
        }
        for target in spec.backends.iter_mut().filter(|candidate| candidate.id == backend) {
            match action {
                Action::Drain => target.state = State::Draining,
                Action::Activate => target.state = State::Active,
                Action::Fill(percent) => (target.state, target.fill) = (State::Filling, percent),
                Action::Remove => {}
            }
        }
    }
    config
}
