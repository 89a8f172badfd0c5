//! Errors of a configuration.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// An error with file, line, key, the value found and the values allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    line: Option<u64>,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    /// A value is not allowed, or missing.
    Value {
        key: String,
        found: Option<String>,
        allowed: String,
    },
    /// Not YAML, or not the expected document.
    Document(String),
    Unreadable(String),
    /// The file is longer than the limit for configurations.
    TooLarge(String),
}

impl ConfigError {
    pub(crate) fn value(
        file: &Path,
        line: Option<u64>,
        key: impl Into<String>,
        found: Option<&str>,
        allowed: &str,
    ) -> Self {
        let key = key.into();
        let problem = Problem::Value { key, found: found.map(excerpt), allowed: allowed.to_owned() };
        Self { file: file.to_owned(), line, problem }
    }

    pub(crate) fn document(file: &Path, error: &serde_yaml::Error) -> Self {
        // The line is printed once, by `Display`.
        let text = error.without_snippet().to_string();
        let message = excerpt(text.split(" at line ").next().unwrap_or(&text));
        let line = error.location().map(|location| location.line()).filter(|&line| line > 0);
        Self { file: file.to_owned(), line, problem: Problem::Document(message) }
    }

    pub(crate) fn unreadable(file: &Path, error: &io::Error) -> Self {
        let problem = match error.kind() {
            io::ErrorKind::FileTooLarge => Problem::TooLarge(error.to_string()),
            _ => Problem::Unreadable(error.to_string()),
        };
        Self { file: file.to_owned(), line: None, problem }
    }

    /// Whether the file could not be read at all.
    pub fn is_unreadable(&self) -> bool {
        matches!(self.problem, Problem::Unreadable(_))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        match &self.problem {
            Problem::Value { key, found: Some(found), allowed } => {
                write!(f, ": {key}: found `{found}`, allowed: {allowed}")
            }
            Problem::Value { key, found: None, allowed } => {
                write!(f, ": {key}: found nothing, allowed: {allowed}")
            }
            Problem::Document(message) | Problem::Unreadable(message) | Problem::TooLarge(message) => {
                write!(f, ": {message}")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

/// The longest text of a file that an error shows, in characters. A file of 64 MiB may be one value.
const EXCERPT: usize = 1_000;

/// The text, or its start if it is longer than [`EXCERPT`].
fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}… ({} octets)", text.get(..end).unwrap_or_default(), text.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_the_start_of_a_long_value() {
        let error = |found: &str| {
            ConfigError::value(Path::new("a"), None, "mode", Some(found), "auto").to_string().chars().count()
        };
        assert_eq!(error(&"é".repeat(1_000)), error("") + 1_000);
        assert_eq!(error(&"é".repeat(1_001)), error("") + 1_000 + "… (2002 octets)".chars().count());
    }
}
