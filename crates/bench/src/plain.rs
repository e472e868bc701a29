//! Text from outside, made fit for a terminal and a log: nothing in it moves a cursor, and it has an end.

use serde::de::{Deserialize, Deserializer};

/// Characters of a line from outside at most.
const LINE_MAX: usize = 600;

/// The text as one line: control characters and those that turn the direction of writing are written out, and what is
/// beyond 600 characters is left out.
#[must_use]
pub fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(LINE_MAX));
    for (count, letter) in text.chars().enumerate() {
        if count == LINE_MAX {
            out.push_str("...");
            break;
        }
        if acts(letter) { out.extend(letter.escape_default()) } else { out.push(letter) }
    }
    out
}

/// Whether a terminal does something at this character rather than show it.
fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Reads text of the other side as such a line.
///
/// # Errors
/// What is no text.
pub(crate) fn read<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    String::deserialize(input).map(|text| line(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_written_out() {
        assert_eq!(line("10.0.0.2: a µs; é"), "10.0.0.2: a µs; é");
        assert_eq!(line("\x1b[2J\x07a\r\nb\u{9b}1m"), "\\u{1b}[2J\\u{7}a\\r\\nb\\u{9b}1m");
        assert_eq!(line("a\u{202e}b\u{2066}c"), "a\\u{202e}b\\u{2066}c");
    }

    #[test]
    fn a_line_has_an_end() {
        let long = line(&"\x1b".repeat(1 << 20));
        assert!(long.ends_with("...") && long.len() < 8 * LINE_MAX);
        assert_eq!(line(&"x".repeat(LINE_MAX)).len(), LINE_MAX);
    }
}
