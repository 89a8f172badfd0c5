//! Text formatting that every module shares: numbers, plurals, natural order of names, columns.

pub(crate) mod columns;
mod natural;
pub mod number;

pub(crate) use natural::natural;

use common::text::{Printable, is_hidden};

/// The first `most` items and the number of the others: `web-1, web-2 and 7 more`.
pub(crate) fn listed(items: &[String], most: usize) -> String {
    match items.get(..most) {
        Some(shown) if shown.len() < items.len() => {
            format!("{} and {} more", shown.join(", "), items.len() - most)
        }
        _ => items.join(", "),
    }
}

/// JSON for a `<script>` element: `<` is escaped, so that no text ends the element, and so are hidden characters.
pub(crate) fn script_json(value: &serde_json::Value) -> String {
    let mut text = String::new();
    for character in value.to_string().chars() {
        if character == '<' || is_hidden(character) {
            let mut units = [0; 2];
            character.encode_utf16(&mut units).iter().for_each(|unit| text += &format!("\\u{unit:04x}"));
        } else {
            text.push(character);
        }
    }
    text
}

/// A page from a template. Hidden characters, which a browser does not show or which change the direction of a line, are
/// displayed as their numbers.
pub(crate) fn rendered(page: &impl askama::Template) -> String {
    Printable(page.render().expect("invariant: the templates format text and numbers only")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_for_a_script_has_no_markup_and_no_hidden_character() {
        let value = serde_json::json!(["</script>", "a\u{202e}b", "\u{e0001}"]);
        let text = script_json(&value);
        assert_eq!(text, "[\"\\u003c/script>\",\"a\\u202eb\",\"\\udb40\\udc01\"]");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
