//! SourceText spans of the values of each backend in a configuration text, and edits at these spans.

use super::EditError;
use crate::config::budget;
use serde::Deserialize;
use serde::de::{self, Deserializer, VariantAccess};
use serde_yaml::{Location, Spanned};
use std::fmt;
use std::ops::Range;

/// The parts of a configuration that can be edited, with their source spans. Other keys are skipped.
#[derive(Debug, Deserialize)]
pub(super) struct ConfigSpans {
    pub(super) tables: Vec<TableSpans>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TableSpans {
    pub(super) name: String,
    seed: Secret,
    hash_key: Secret,
    pub(super) backends: Spanned<Vec<Spanned<BackendScalars>>>,
}

/// One backend in the text.
#[derive(Debug, Deserialize)]
pub(super) struct BackendScalars {
    pub(super) id: Spanned<String>,
    address: Spanned<String>,
    #[serde(default)]
    weight: Option<Spanned<String>>,
    #[serde(default)]
    zone: Option<Spanned<String>>,
    #[serde(default)]
    state: Option<Spanned<String>>,
    #[serde(default)]
    health: Option<Spanned<String>>,
    #[serde(default)]
    fill: Option<Spanned<String>>,
}

impl BackendScalars {
    fn get(&self, key: &str) -> Option<&Spanned<String>> {
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

/// The path of a secret's file with its source span. None for an inline secret, whose text is not kept.
#[derive(Debug)]
struct Secret(Option<Spanned<String>>);

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

impl ConfigSpans {
    /// Reads a text that is known to be a valid configuration.
    pub(super) fn read(text: &str) -> Option<Self> {
        let options = serde_yaml::options! { budget: budget() };
        serde_yaml::from_str_with_options(text, options).ok()
    }

    /// The name of the only table that has a backend with this id.
    pub(super) fn table_of(&self, table: Option<&str>, backend: &str) -> Result<&str, EditError> {
        let tables = self.tables.iter().filter(|one| table.is_none_or(|table| one.name == table));
        let mut found = tables.filter(|table| table.backend(backend).is_some());
        match (found.next(), found.next()) {
            (None, _) => Err(EditError::Unknown(backend.to_owned())),
            (Some(only), None) => Ok(&only.name),
            _ => Err(EditError::Ambiguous(backend.to_owned())),
        }
    }

    /// Paths of the files of secrets.
    pub(super) fn secret_files(&self) -> impl Iterator<Item = &Spanned<String>> {
        self.tables.iter().flat_map(|table| [&table.seed, &table.hash_key]).filter_map(|one| one.0.as_ref())
    }
}

impl TableSpans {
    pub(super) fn backend(&self, id: &str) -> Option<&Spanned<BackendScalars>> {
        self.backends.value.iter().find(|one| one.value.id.value == id)
    }
}

/// Replaces the octets of a range of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    at: Range<usize>,
    text: String,
}

/// A text with an index of its lines.
#[derive(Debug)]
pub(super) struct SourceText<'t> {
    text: &'t str,
    /// Offset of each line.
    lines: Vec<usize>,
}

impl<'t> SourceText<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, lines: std::iter::once(0).chain(ends).collect() }
    }

    /// The text with all edits made. Edits at the same offset are made in order. None if two edits overlap.
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

    /// Offset of a location.
    fn offset(&self, backend: Location) -> Option<usize> {
        let line = usize::try_from(backend.line()).ok()?.checked_sub(1)?;
        let column = usize::try_from(backend.column()).ok()?.checked_sub(1)?;
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

    /// The range of a scalar, with its quotes.
    fn scalar(&self, scalar: &Spanned<String>) -> Option<Range<usize>> {
        let start = self.offset(scalar.referenced)?;
        let value = &scalar.value;
        let quoted = ["", "\"", "'"].into_iter().map(|quote| format!("{quote}{value}{quote}"));
        let found = quoted.into_iter().find(|written| self.from(start).starts_with(written.as_str()))?;
        Some(start..start + found.len())
    }

    /// Replaces the value of a scalar.
    pub(super) fn replace(&self, scalar: &Spanned<String>, value: &str) -> Option<Edit> {
        Some(Edit { at: self.scalar(scalar)?, text: value.to_owned() })
    }

    /// Sets a key of a backend. Replaces the value if the key exists; otherwise adds the key after the id, in
    /// `{ … }` on the same line, else on a new line.
    pub(super) fn set(&self, backend: &Spanned<BackendScalars>, key: &str, value: &str) -> Option<Edit> {
        if let Some(scalar) = backend.value.get(key) {
            return self.replace(scalar, value);
        }
        let end = self.scalar(&backend.value.id)?.end;
        if self.from(self.offset(backend.referenced)?).starts_with('{') {
            return Some(Edit { at: end..end, text: format!(", {key}: {value}") });
        }
        let end = end + self.from(end).find('\n').unwrap_or(self.text.len() - end);
        let indent = " ".repeat(usize::try_from(backend.referenced.column()).ok()?.checked_sub(1)?);
        Some(Edit { at: end..end, text: format!("\n{indent}{key}: {value}") })
    }

    /// The lines of a backend, from its dash to the last line that is indented more than the dash, and the
    /// column of the dash.
    fn item(&self, backend: &Spanned<BackendScalars>) -> Option<(Range<usize>, usize)> {
        let start = self.offset(backend.referenced)?;
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

    /// Removes the lines of a backend.
    pub(super) fn remove(&self, backend: &Spanned<BackendScalars>) -> Option<Edit> {
        Some(Edit { at: self.item(backend)?.0, text: String::new() })
    }

    /// Adds backends, each written as `{ … }`, after another backend.
    pub(super) fn insert_after(&self, backend: &Spanned<BackendScalars>, items: &[String]) -> Option<Edit> {
        let (lines, indent) = self.item(backend)?;
        let missing = if self.text.get(lines.clone())?.ends_with('\n') { "" } else { "\n" };
        let new: String = items.iter().map(|item| format!("{}- {item}\n", " ".repeat(indent))).collect();
        Some(Edit { at: lines.end..lines.end, text: format!("{missing}{new}") })
    }

    /// Replaces a list of backends that is an alias or stands in brackets. Each new backend is written as `{
    /// … }`.
    pub(super) fn replace_list(&self, table: &TableSpans, items: &[String]) -> Option<Edit> {
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

/// Length of the brackets at the start of `text`. Brackets in quotes and comments do not count.
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
