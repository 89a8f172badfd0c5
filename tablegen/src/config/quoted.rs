//! Quoting of text for YAML.

use std::fmt::{self, Write as _};

/// Text that YAML reads back unchanged: plain where that is safe, otherwise in double quotes with the escapes of JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
        let starts_plain = self.0.starts_with(|c: char| c.is_ascii_alphanumeric());
        if starts_plain && self.0.chars().all(plain) && !self.0.eq_ignore_ascii_case("null") {
            return f.write_str(self.0);
        }
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}
