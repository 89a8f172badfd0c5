//! Text that people read: which characters hide or mislead, and how they are shown on a terminal.
//!
//! A file name, an old table or an excerpt of a configuration may hold any character. Written to a terminal, ESC starts
//! a command to it, and bidirectional controls make a line read otherwise than it is. Both programs therefore write
//! everything for people through [`Printable`] or [`PrintableLine`].

use std::fmt::{self, Write as _};

/// Characters that cannot be seen, and that make two names look alike or a line read otherwise than it is: controls,
/// line and paragraph separators, marks and overrides of direction (Unicode TR 36), and the rest of what Unicode calls
/// `Default_Ignorable_Code_Point`, with the annotation characters U+FFF9 to U+FFFB.
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Text of several lines as a terminal may have it: line ends and tabs pass, every other hidden character is shown by
/// its number, as `\u{1b}`. Does nothing to text that it has been through already.
#[derive(Clone, Copy, Debug)]
pub struct Printable<T>(pub T);

/// The same for text that is one line: line ends and tabs are shown by their numbers too, so that no name can begin a
/// line of its own.
#[derive(Clone, Copy, Debug)]
pub struct PrintableLine<T>(pub T);

impl<T: fmt::Display> fmt::Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper { to: f, passes: &['\n', '\t'] }, "{}", self.0)
    }
}

impl<T: fmt::Display> fmt::Display for PrintableLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper { to: f, passes: &[] }, "{}", self.0)
    }
}

struct Escaper<'f, 'a> {
    to: &'f mut fmt::Formatter<'a>,
    passes: &'static [char],
}

impl fmt::Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let escapes = |c: char| is_hidden(c) && !self.passes.contains(&c);
        for piece in text.split_inclusive(escapes) {
            match piece.char_indices().next_back().filter(|(_, last)| escapes(*last)) {
                Some((at, last)) => {
                    self.to.write_str(piece.get(..at).unwrap_or_default())?;
                    write!(self.to, "{}", last.escape_unicode())?;
                }
                None => self.to.write_str(piece)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_shown_by_their_numbers() {
        for (text, lines, line) in [
            (
                "web-1: 3,000 rows (4.58 %) · ░█ é",
                "web-1: 3,000 rows (4.58 %) · ░█ é",
                "web-1: 3,000 rows (4.58 %) · ░█ é",
            ),
            ("a\n\tb", "a\n\tb", "a\\u{a}\\u{9}b"),
            ("\x1b[2Jx\r", "\\u{1b}[2Jx\\u{d}", "\\u{1b}[2Jx\\u{d}"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("a\u{202e}b\u{2029}c", "a\\u{202e}b\\u{2029}c", "a\\u{202e}b\\u{2029}c"),
            ("", "", ""),
        ] {
            assert_eq!(Printable(text).to_string(), lines);
            assert_eq!(PrintableLine(text).to_string(), line);
            assert_eq!(Printable(Printable(text)).to_string(), lines, "a second time nothing changes");
        }
        assert_eq!(PrintableLine(format_args!("{}\x1b{}", 'é', 7)).to_string(), "é\\u{1b}7");
    }

    #[test]
    fn what_can_be_seen_is_not_hidden() {
        for shown in [' ', 'a', 'é', '…', '×', '░', '文', '\u{a0}'] {
            assert!(!is_hidden(shown), "{shown:?}");
        }
        for hidden in
            ['\0', '\x1b', '\u{85}', '\u{ad}', '\u{200d}', '\u{202a}', '\u{2069}', '\u{e0041}', '\u{fff9}']
        {
            assert!(is_hidden(hidden), "{hidden:?}");
        }
    }
}
