//! Changes of one backend in a configuration file: only the scalars concerned are touched, so comments and layout stay.
//!
//! The YAML reader says where each value stands; the text is then changed there, read again, and refused if it does
//! not mean exactly what was wanted. A layout that is too unusual is therefore never damaged: it is left to a person.

pub mod lines;
mod places;
pub mod step;

use crate::config::{Config, ConfigError};
use common::backend::State;
use places::{Place, Places};
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
    let (table, place) = places.find(table, backend)?;
    let wanted = wanted(before, table, backend, action);
    let edited = match action {
        Action::Drain => set(text, &place, "state", State::Draining.name()),
        Action::Activate => set(text, &place, "state", State::Active.name()),
        Action::Fill(percent) => fill(text, table, backend, percent),
        Action::Remove => places::remove(text, &place),
    };
    let edited = edited.ok_or_else(|| EditError::Layout(backend.to_owned()))?;
    match Config::parse(&edited, file) {
        Ok(after) if after.tables == wanted.tables => Ok(edited),
        // A configuration that is wrong in itself, such as one without backends, says so best.
        Err(error) if action == Action::Remove => Err(error.into()),
        _ => Err(EditError::Layout(backend.to_owned())),
    }
}

fn fill(text: &str, table: &str, backend: &str, percent: u8) -> Option<String> {
    let again = |text: &str| {
        let places = Places::read(text)?;
        places.find(Some(table), backend).ok().map(|(_, place)| place)
    };
    let filled = set(text, &again(text)?, "fill", &percent.to_string())?;
    let place = again(&filled)?;
    set(&filled, &place, "state", State::Filling.name())
}

fn set(text: &str, place: &Place, key: &'static str, value: &str) -> Option<String> {
    match place.scalar(key) {
        Some(scalar) => places::replace(text, scalar, value),
        None => places::insert(text, place, key, value),
    }
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
