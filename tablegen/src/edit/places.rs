//! Where in the text the values of each backend stand, and how to change the text there.

use super::EditError;
use crate::config::budget;
use serde::Deserialize;
use serde_yaml::{Location, Spanned};

type Text = Spanned<String>;

/// The parts of a configuration that can be edited, with their places. All else is skipped.
#[derive(Debug, Deserialize)]
pub(super) struct Places {
    tables: Vec<TablePlaces>,
}

#[derive(Debug, Deserialize)]
struct TablePlaces {
    name: String,
    backends: Vec<Spanned<Scalars>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Scalars {
    id: Text,
    #[serde(default)]
    state: Option<Text>,
    #[serde(default)]
    fill: Option<Text>,
}

/// One backend in the text.
#[derive(Clone, Debug)]
pub(super) struct Place {
    start: Location,
    scalars: Scalars,
}

impl Place {
    /// The value of a key, if it is there.
    pub(super) fn scalar(&self, key: &str) -> Option<&Text> {
        if key == "state" { self.scalars.state.as_ref() } else { self.scalars.fill.as_ref() }
    }
}

impl Places {
    /// Reads text that is a configuration already.
    pub(super) fn read(text: &str) -> Option<Self> {
        let options = serde_yaml::options! { budget: budget() };
        serde_yaml::from_str_with_options(text, options).ok()
    }

    /// The one backend of that id, and its table.
    pub(super) fn find(&self, table: Option<&str>, backend: &str) -> Result<(&str, Place), EditError> {
        let tables = self.tables.iter().filter(|one| table.is_none_or(|table| one.name == table));
        let mut found = tables.flat_map(|table| {
            let of_id = table.backends.iter().filter(|one| one.value.id.value == backend);
            of_id
                .map(|one| (table.name.as_str(), Place { start: one.referenced, scalars: one.value.clone() }))
        });
        match (found.next(), found.next()) {
            (None, _) => Err(EditError::Unknown(backend.to_owned())),
            (Some(only), None) => Ok(only),
            _ => Err(EditError::Ambiguous(backend.to_owned())),
        }
    }
}

/// The text from a place on, split there.
fn split(text: &str, place: Location) -> Option<(&str, &str)> {
    let line = usize::try_from(place.line()).ok()?.checked_sub(1)?;
    let column = usize::try_from(place.column()).ok()?.checked_sub(1)?;
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let within = text.get(start..)?.char_indices().nth(column)?.0;
    text.split_at_checked(start + within)
}

/// The scalar at the start of `rest`, as it is written.
fn written<'t>(rest: &'t str, value: &str) -> Option<&'t str> {
    let quoted = ["", "\"", "'"].into_iter().map(|quote| format!("{quote}{value}{quote}"));
    let found = quoted.into_iter().find(|written| rest.starts_with(written.as_str()))?;
    rest.get(..found.len())
}

/// Puts another value in the place of a scalar.
pub(super) fn replace(text: &str, scalar: &Text, value: &str) -> Option<String> {
    let (before, rest) = split(text, scalar.referenced)?;
    let old = written(rest, &scalar.value)?;
    Some(format!("{before}{value}{}", rest.get(old.len()..)?))
}

/// Adds a key after the id: on the same line in `{ … }`, else on a line of its own.
pub(super) fn insert(text: &str, place: &Place, key: &str, value: &str) -> Option<String> {
    let id = &place.scalars.id;
    let (_, item) = split(text, place.start)?;
    let (before, rest) = split(text, id.referenced)?;
    let end = before.len() + written(rest, &id.value)?.len();
    if item.starts_with('{') {
        let (head, tail) = text.split_at_checked(end)?;
        return Some(format!("{head}, {key}: {value}{tail}"));
    }
    let line_end = end + text.get(end..)?.find('\n').unwrap_or(text.len() - end);
    let indent = " ".repeat(usize::try_from(place.start.column()).ok()?.checked_sub(1)?);
    let (head, tail) = text.split_at_checked(line_end)?;
    Some(format!("{head}\n{indent}{key}: {value}{tail}"))
}

/// Takes the lines of a backend out: from its dash to the last line that is indented deeper than the dash.
pub(super) fn remove(text: &str, place: &Place) -> Option<String> {
    let (before, _) = split(text, place.start)?;
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let dash = before.get(line_start..)?.trim_end();
    if dash.trim_start() != "-" {
        return None;
    }
    let indent = dash.len();
    let deeper = |line: &str| line.len() - line.trim_start().len() >= indent && !line.trim().is_empty();
    let mut lines = text.get(line_start..)?.split_inclusive('\n');
    let first = lines.next()?.len();
    let others: usize = lines.take_while(|line| deeper(line)).map(str::len).sum();
    Some(format!("{}{}", text.get(..line_start)?, text.get(line_start + first + others..)?))
}
