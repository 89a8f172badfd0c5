//! The syntax of a configuration: its keys, and which of them hold lists.
//!
//! Every scalar stays text with its source span, so that [`super::spec`] reports all errors in one form. The types of
//! YAML therefore have no effect: `010` is not eight, `no` is not false, and a seed of 32 decimal digits is not a number.

use super::error::Refusal;
use super::value::without_secrets;
use serde::de::{self, Deserializer};
use serde::{Deserialize, de::VariantAccess};
use serde_yaml::{Location, Spanned};
use std::fmt;

pub(super) type Text = Spanned<String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    pub(super) version: Text,
    pub(super) tables: Spanned<Vec<Spanned<RawTable>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTable {
    pub(super) name: Text,
    #[serde(default, deserialize_with = "present")]
    pub(super) rows: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(super) max_hops: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(super) ranking: Option<Text>,
    pub(super) seed: Spanned<RawSecret>,
    pub(super) hash_key: Spanned<RawSecret>,
    #[serde(default, deserialize_with = "present")]
    pub(super) hash_fields: Option<Spanned<Vec<Text>>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) alt_hash_fields: Option<Spanned<Vec<Text>>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) spread_zones: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(super) max_share: Option<Text>,
    pub(super) binds: Spanned<Vec<Spanned<RawBind>>>,
    pub(super) backends: Spanned<Vec<Spanned<RawBackend>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBind {
    pub(super) address: Text,
    pub(super) protocol: Text,
    #[serde(default, deserialize_with = "present")]
    pub(super) port: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(super) ports: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBackend {
    pub(super) id: Text,
    pub(super) address: Text,
    #[serde(default, deserialize_with = "present")]
    pub(super) weight: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(super) zone: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(super) state: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(super) health: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(super) fill: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(super) capacity: Option<Text>,
}

/// A key that is present must have a value. (`Option` alone would treat `key:` as an absent key.)
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Sixteen octets, inline or in a file.
pub(super) enum RawSecret {
    Inline(String),
    File(String),
}

impl fmt::Debug for RawSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("Inline(secret)"),
            Self::File(path) => write!(f, "File({path:?})"),
        }
    }
}

impl<'de> Deserialize<'de> for RawSecret {
    /// Deserialized as an enumeration, because that returns the text unchanged. As "any value", 32 decimal digits would
    /// become a rounded number.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = RawSecret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("32 hex digits or { file: PATH }")
            }

            fn visit_enum<A: de::EnumAccess<'de>>(self, data: A) -> Result<RawSecret, A::Error> {
                let (text, variant) = data.variant::<String>()?;
                if text == "file" {
                    return variant.newtype_variant().map(RawSecret::File);
                }
                variant.unit_variant()?;
                Ok(RawSecret::Inline(text))
            }
        }
        deserializer.deserialize_enum("secret", &["file"], Visitor)
    }
}

/// Limits of the reader: enough for 65,534 backends in many tables, too little for input that expands without bound.
pub(crate) fn budget() -> Option<serde_yaml::Budget> {
    serde_yaml::budget! {
        max_nodes: 16_000_000,
        max_events: 32_000_000,
        max_aliases: 100,
        max_anchors: 100,
        max_total_scalar_bytes: 256 << 20,
    }
}

/// Reads YAML: one document, each key once, no merge keys, within [`budget`].
pub(super) fn parse(text: &str) -> Result<RawConfig, Refusal> {
    let options = serde_yaml::options! {
        strict_booleans: true,
        emit_comments: false,
        with_snippet: false,
        merge_keys: serde_yaml::options::MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        budget: budget(),
    };
    let mut path = String::new();
    let result = serde_yaml::with_deserializer_from_str_with_options(text, options, |deserializer| {
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
        RawConfig::deserialize(tracked).inspect_err(|_| path = key_path(&track.path()))
    });
    result.map_err(|error| refusal(&error, path))
}

/// The key path as in the file: without the levels that `Spanned` adds, and without unknown levels.
fn key_path(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => text += &format!("[{index}]"),
            Segment::Map { key } if key != "value" => {
                let dot = if text.is_empty() { "" } else { "." };
                text += &format!("{dot}{}", without_secrets(&key.escape_debug().to_string()));
            }
            Segment::Map { .. } | Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    text
}

fn refusal(error: &serde_yaml::Error, path: String) -> Refusal {
    use serde_yaml::Error;
    let location = error.location().unwrap_or(Location::UNKNOWN);
    let (found, allowed) = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            let field = without_secrets(&field.escape_debug().to_string());
            (format!("unknown key `{field}`"), expected.join(", "))
        }
        Error::SerdeMissingField { field, .. } => {
            (format!("no key `{field}`"), "one, as it has no default".to_owned())
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = without_secrets(&key.as_deref().unwrap_or("a key").escape_debug().to_string());
            (format!("`{key}` a second time"), "each key once".to_owned())
        }
        Error::NullIntoString { .. } => ("nothing".to_owned(), "a value, or the key left out".to_owned()),
        Error::Unexpected { expected, .. } => ("something else".to_owned(), kind(expected).to_owned()),
        Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. }
        | Error::UnexpectedValueForUnit { .. }
        | Error::UnexpectedValueForUnitEnumVariant { .. }
        | Error::ExpectedMappingEndAfterEnumVariantValue { .. } => {
            ("something else".to_owned(), "32 hex digits or { file: PATH }".to_owned())
        }
        Error::MultipleDocuments { .. } => ("a second document".to_owned(), "one".to_owned()),
        Error::Eof { .. } => ("no configuration".to_owned(), "a mapping with version and tables".to_owned()),
        Error::MergeKeyNotAllowed { .. } => {
            ("a merge key (`<<`)".to_owned(), "every key in its place".to_owned())
        }
        other => {
            let message = without_secrets(&without_place(&other.to_string()));
            (format!("what cannot be read ({message})"), "one document of YAML 1.2".to_owned())
        }
    };
    Refusal { line: location.line(), column: location.column(), path, found, allowed }
}

/// The usual name of the parser's kinds of nodes.
fn kind(expected: &'static str) -> &'static str {
    match expected {
        "sequence start" => "a list",
        "mapping start" => "a mapping",
        "string scalar" => "a single value",
        other => other,
    }
}

/// The message without the place, which the refusal has already.
fn without_place(message: &str) -> String {
    message.split(" at line ").next().unwrap_or(message).to_owned()
}
