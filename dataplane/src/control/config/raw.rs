//! The text of the file: keys, and values as text with their line.
//!
//! Values are read as text and parsed here, because the YAML library's own messages name no key and do not
//! list the allowed values. The library itself refuses unknown keys, duplicate keys and invalid documents.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use serde_yaml::Spanned;

use super::ConfigError;

/// An optional value.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct RawValue(Option<Spanned<String>>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    #[serde(default)]
    pub(super) version: RawValue,
    #[serde(default)]
    pub(super) table: RawValue,
    #[serde(default)]
    pub(super) interface: RawValue,
    #[serde(default)]
    pub(super) mode: RawValue,
    #[serde(default)]
    pub(super) workers: RawValue,
    #[serde(default)]
    pub(super) offloads: RawValue,
    #[serde(default)]
    pub(super) echo: RawValue,
    #[serde(default)]
    pub(super) mtu: RawValue,
    #[serde(default)]
    pub(super) source_ipv4: RawValue,
    #[serde(default)]
    pub(super) source_ipv6: RawValue,
    #[serde(default)]
    pub(super) gateway_mac: RawValue,
    #[serde(default)]
    pub(super) too_big_per_second: RawValue,
    #[serde(default)]
    pub(super) control: RawValue,
    #[serde(default)]
    pub(super) glb: Option<RawGlb>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGlb {
    #[serde(default)]
    pub(super) hash_fields: RawList,
    #[serde(default)]
    pub(super) alt_hash_fields: RawList,
}

impl Raw {
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        serde_yaml::from_str(text).map_err(|error| ConfigError::document(path, &error))
    }
}

impl RawValue {
    pub(crate) fn field<'a>(&'a self, file: &'a Path, key: &'static str) -> Option<Field<'a>> {
        self.0.as_ref().map(|value| Field::new(file, key, None, value))
    }

    pub(crate) fn required<'a>(
        &'a self,
        file: &'a Path,
        key: &'static str,
        allowed: &str,
    ) -> Result<Field<'a>, ConfigError> {
        self.field(file, key).ok_or_else(|| ConfigError::value(file, None, key, None, allowed))
    }
}

/// An optional list of values.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct RawList(Option<Spanned<Vec<Spanned<String>>>>);

impl RawList {
    pub(crate) fn is_given(&self) -> bool {
        self.0.is_some()
    }

    /// The values, none if the list is missing.
    pub(crate) fn optional<'a>(
        &'a self,
        file: &'a Path,
        key: &'static str,
    ) -> impl Iterator<Item = Field<'a>> {
        let list = self.0.iter().flat_map(|list| &list.value);
        (0..).zip(list).map(move |(index, value)| Field::new(file, key, Some(index), value))
    }

    /// The values; an error if the list is missing or empty.
    pub(crate) fn required<'a>(
        &'a self,
        file: &'a Path,
        key: &'static str,
        allowed: &str,
    ) -> Result<impl Iterator<Item = Field<'a>>, ConfigError> {
        let line = self.0.as_ref().map(|list| list.referenced.line());
        let list = self.0.as_ref().map(|list| &list.value).filter(|list| !list.is_empty());
        let found = line.map(|_| "[]");
        list.ok_or_else(|| ConfigError::value(file, line, key, found, allowed))?;
        Ok(self.optional(file, key))
    }
}

/// A value with its key and line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    file: &'a Path,
    key: &'static str,
    /// Its index, if the key has a list.
    index: Option<usize>,
    line: u64,
    text: &'a str,
}

impl<'a> Field<'a> {
    fn new(file: &'a Path, key: &'static str, index: Option<usize>, value: &'a Spanned<String>) -> Self {
        Field { file, key, index, line: value.referenced.line(), text: &value.value }
    }

    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    pub(crate) fn refuse(&self, allowed: &str) -> ConfigError {
        let key = self.index.map_or_else(|| self.key.to_owned(), |index| format!("{}[{index}]", self.key));
        ConfigError::value(self.file, Some(self.line), key, Some(self.text), allowed)
    }

    pub(crate) fn one_of<T: Copy>(&self, all: &[(&str, T)]) -> Result<T, ConfigError> {
        let names = || all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        all.iter()
            .find_map(|(name, value)| (*name == self.text).then_some(*value))
            .ok_or_else(|| self.refuse(&names()))
    }

    pub(crate) fn number<T: Copy + FromStr + PartialOrd + std::fmt::Display>(
        &self,
        range: RangeInclusive<T>,
    ) -> Result<T, ConfigError> {
        let allowed = || format!("a whole number from {} to {}", range.start(), range.end());
        let digits = self.text.bytes().all(|octet| octet.is_ascii_digit());
        let value = self.text.parse().ok().filter(|value| digits && range.contains(value));
        value.ok_or_else(|| self.refuse(&allowed()))
    }

    pub(crate) fn path(&self, folder: &Path) -> Result<PathBuf, ConfigError> {
        if self.text.is_empty() || self.text.contains('\0') {
            return Err(self.refuse("a path"));
        }
        Ok(folder.join(self.text))
    }
}
