//! Where in the text the values of each backend stand, and how to change the text there.

use super::EditError;
use crate::config::budget;
use serde::Deserialize;
use serde::de::{self, Deserializer, VariantAccess};
use serde_yaml::{Location, Spanned};
use std::fmt;
use std::ops::Range;

type Text = Spanned<String>;

/// The parts of a configuration that can be edited, with their places. All else is skipped.
#[derive(Debug, Deserialize)]
pub(super) struct Places {
    pub(super) tables: Vec<TablePlaces>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TablePlaces {
    pub(super) name: String,
    seed: Secret,
    hash_key: Secret,
    pub(super) backends: Spanned<Vec<Place>>,
}

/// One backend in the text.
pub(super) type Place = Spanned<Scalars>;

#[derive(Debug, Deserialize)]
pub(super) struct Scalars {
    pub(super) id: Text,
    address: Text,
    #[serde(default)]
    weight: Option<Text>,
    #[serde(default)]
    zone: Option<Text>,
    #[serde(default)]
    state: Option<Text>,
    #[serde(default)]
    health: Option<Text>,
    #[serde(default)]
    fill: Option<Text>,
}

impl Scalars {
    fn get(&self, key: &str) -> Option<&Text> {
        match key {
            "id" => Some(&self.id),
            "address" => Some(&self.address),
            "weight" => self.weight.as_ref(),
            "zone" => self.zone.as_ref(),
            "state" => self.state.as_ref(),
            "health" => self.health.as_ref(),
            _ => self.fill.as_ref(),
        }
    }
}

/// Where the path of a secret in a file of its own stands; nowhere for one that is written here, whose text is not kept.
#[derive(Debug)]
struct Secret(Option<Text>);

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a secret")
            }

            fn visit_enum<A: de::EnumAccess<'de>>(self, data: A) -> Result<Secret, A::Error> {
                let (text, variant) = data.variant::<String>()?;
                if text == "file" {
                    return variant.newtype_variant().map(|path| Secret(Some(path)));
                }
                variant.unit_variant().map(|()| Secret(None))
            }
        }
        deserializer.deserialize_enum("secret", &["file"], Visitor)
    }
}

impl Places {
    /// Reads text that is a configuration already.
    pub(super) fn read(text: &str) -> Option<Self> {
        let options = serde_yaml::options! { budget: budget() };
        serde_yaml::from_str_with_options(text, options).ok()
    }

    /// The table of the one backend of that id.
    pub(super) fn table_of(&self, table: Option<&str>, backend: &str) -> Result<&str, EditError> {
        let tables = self.tables.iter().filter(|one| table.is_none_or(|table| one.name == table));
        let mut found = tables.filter(|table| table.backend(backend).is_some());
        match (found.next(), found.next()) {
            (None, _) => Err(EditError::Unknown(backend.to_owned())),
            (Some(only), None) => Ok(&only.name),
            _ => Err(EditError::Ambiguous(backend.to_owned())),
        }
    }

    /// Paths of secrets that are in files of their own.
    pub(super) fn secret_files(&self) -> impl Iterator<Item = &Text> {
        self.tables.iter().flat_map(|table| [&table.seed, &table.hash_key]).filter_map(|one| one.0.as_ref())
    }
}

impl TablePlaces {
    pub(super) fn backend(&self, id: &str) -> Option<&Place> {
        self.backends.value.iter().find(|one| one.value.id.value == id)
    }
}

/// A change of the text: what stands in `at` gives way to `text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    at: Range<usize>,
    text: String,
}

/// A text whose places can be found.
#[derive(Debug)]
pub(super) struct Source<'t> {
    text: &'t str,
    /// Where each line starts.
    lines: Vec<usize>,
}

impl<'t> Source<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, lines: std::iter::once(0).chain(ends).collect() }
    }

    /// The text with all edits made; of those at one place, the first comes first. None if two overlap.
    pub(super) fn edited(&self, mut edits: Vec<Edit>) -> Option<String> {
        edits.sort_by_key(|edit| (edit.at.start, edit.at.end));
        let (mut text, mut done) = (String::with_capacity(self.text.len()), 0);
        for Edit { at, text: new } in edits {
            text += self.text.get(done..at.start)?;
            text += &new;
            done = at.end;
        }
        Some(text + self.text.get(done..)?)
    }

    /// Offset of a place.
    fn offset(&self, place: Location) -> Option<usize> {
        let line = usize::try_from(place.line()).ok()?.checked_sub(1)?;
        let column = usize::try_from(place.column()).ok()?.checked_sub(1)?;
        let start = *self.lines.get(line)?;
        let within = self.text.get(start..)?.char_indices().nth(column)?.0;
        Some(start + within)
    }

    fn line_start(&self, offset: usize) -> usize {
        self.lines.get(self.lines.partition_point(|start| *start <= offset) - 1).copied().unwrap_or(0)
    }

    fn from(&self, offset: usize) -> &'t str {
        self.text.get(offset..).unwrap_or_default()
    }

    /// Where a scalar stands, with its quotes.
    fn scalar(&self, scalar: &Text) -> Option<Range<usize>> {
        let start = self.offset(scalar.referenced)?;
        let value = &scalar.value;
        let quoted = ["", "\"", "'"].into_iter().map(|quote| format!("{quote}{value}{quote}"));
        let found = quoted.into_iter().find(|written| self.from(start).starts_with(written.as_str()))?;
        Some(start..start + found.len())
    }

    /// Puts another value in the place of a scalar.
    pub(super) fn replace(&self, scalar: &Text, value: &str) -> Option<Edit> {
        Some(Edit { at: self.scalar(scalar)?, text: value.to_owned() })
    }

    /// Gives a key of a backend a value: in place, or after the id, on the same line in `{ … }`, else on a line of its
    /// own.
    pub(super) fn set(&self, place: &Place, key: &str, value: &str) -> Option<Edit> {
        if let Some(scalar) = place.value.get(key) {
            return self.replace(scalar, value);
        }
        let end = self.scalar(&place.value.id)?.end;
        if self.from(self.offset(place.referenced)?).starts_with('{') {
            return Some(Edit { at: end..end, text: format!(", {key}: {value}") });
        }
        let end = end + self.from(end).find('\n').unwrap_or(self.text.len() - end);
        let indent = " ".repeat(usize::try_from(place.referenced.column()).ok()?.checked_sub(1)?);
        Some(Edit { at: end..end, text: format!("\n{indent}{key}: {value}") })
    }

    /// The lines of a backend, from its dash to the last line that is indented deeper than the dash; and where the dash
    /// stands in its line.
    fn item(&self, place: &Place) -> Option<(Range<usize>, usize)> {
        let start = self.offset(place.referenced)?;
        let line_start = self.line_start(start);
        let dash = self.text.get(line_start..start)?.trim_end();
        if dash.trim_start() != "-" {
            return None;
        }
        let deeper =
            |line: &str| line.len() - line.trim_start().len() >= dash.len() && !line.trim().is_empty();
        let mut lines = self.from(line_start).split_inclusive('\n');
        let first = lines.next()?.len();
        let others: usize = lines.take_while(|line| deeper(line)).map(str::len).sum();
        Some((line_start..line_start + first + others, dash.len() - 1))
    }

    /// Takes the lines of a backend out.
    pub(super) fn remove(&self, place: &Place) -> Option<Edit> {
        Some(Edit { at: self.item(place)?.0, text: String::new() })
    }

    /// Adds backends, each written as `{ … }`, after another.
    pub(super) fn insert_after(&self, place: &Place, items: &[String]) -> Option<Edit> {
        let (lines, indent) = self.item(place)?;
        let missing = if self.text.get(lines.clone())?.ends_with('\n') { "" } else { "\n" };
        let new: String = items.iter().map(|item| format!("{}- {item}\n", " ".repeat(indent))).collect();
        Some(Edit { at: lines.end..lines.end, text: format!("{missing}{new}") })
    }

    /// Puts another list of backends, each written as `{ … }`, in the place of one that is an alias or in brackets.
    pub(super) fn replace_list(&self, table: &TablePlaces, items: &[String]) -> Option<Edit> {
        let start = self.offset(table.backends.referenced)?;
        let rest = self.from(start);
        let length = match rest.chars().next()? {
            '[' => bracketed(rest)?,
            '*' => rest.find(|letter: char| letter.is_whitespace() || "[]{},".contains(letter))?,
            _ => return None,
        };
        let indent = self.from(self.line_start(start));
        let indent = " ".repeat(indent.len() - indent.trim_start().len() + 2);
        let text = format!("[\n{indent}{}]", items.join(&format!(",\n{indent}")));
        Some(Edit { at: start..start + length, text })
    }
}

/// Length of the brackets that `text` starts with: not counting those in quotes and comments.
fn bracketed(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut comment, mut before) = (0usize, None, false, '[');
    for (at, letter) in text.char_indices() {
        match (letter, quote) {
            ('\n', _) => comment = false,
            _ if comment => {}
            (_, Some(open)) => {
                let escaped = open == '"' && before == '\\';
                quote = quote.filter(|_| letter != open || escaped);
            }
            ('"' | '\'', None) => quote = Some(letter),
            ('#', None) if before.is_whitespace() => comment = true,
            ('[' | '{', None) => depth += 1,
            (']' | '}', None) => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
        before = letter;
    }
    None
}
