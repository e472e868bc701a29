//! Escapes external text (from files, peers, other programs, the environment) for a terminal or a log: nothing in it
//! moves the cursor, sets a colour or changes the writing direction, and its length is limited.

use std::borrow::Cow;

/// Maximum number of characters in a line of external text.
const LINE_MAX: usize = 600;

/// The text as one line: characters that a terminal acts on are escaped, and what follows after 600 characters is
/// dropped.
#[must_use]
pub fn line(text: &str) -> String {
    escaped(text, LINE_MAX, |_| false)
}

/// The text as one line of at most `most` characters, with characters that a terminal acts on escaped. Borrowed if
/// nothing had to be changed.
#[must_use]
pub fn limited(text: &str, most: usize) -> Cow<'_, str> {
    // Most texts are short and plain. The number of bytes is at least that of characters.
    match text.len() <= most && !text.contains(is_terminal_control) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(escaped(text, most, |_| false)),
    }
}

/// Lines for a terminal. Characters that it would act on are escaped, except line feeds and, if `styled`, sequences
/// that only set a colour or weight, such as `ESC [ 1 ; 31 m`.
#[must_use]
pub fn screen(text: &str, styled: bool) -> Cow<'_, str> {
    if !text.contains(|letter| is_terminal_control(letter) && letter != '\n') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for (i, part) in text.split('\x1b').enumerate() {
        let style = part.find('m').filter(|_| styled && i > 0).map_or(0, |end| style(&part[..=end]));
        if i > 0 {
            out.push_str(if style > 0 { "\x1b" } else { "\\u{1b}" });
        }
        out.push_str(&part[..style]);
        out.push_str(&escaped(&part[style..], usize::MAX, |letter| letter == '\n'));
    }
    Cow::Owned(out)
}

/// The length of a style sequence after ESC, 0 for anything else. Styles are 0 (off), 1 to 4 (bold, faint, italic,
/// underlined) and 30 to 37 (colours).
fn style(sequence: &str) -> usize {
    let codes = sequence.strip_prefix('[').and_then(|rest| rest.strip_suffix('m'));
    let is_ours = |code: &str| matches!(code.as_bytes(), [b'0'..=b'4'] | [b'3', b'0'..=b'7']);
    match codes.is_some_and(|codes| codes.split(';').all(is_ours)) {
        true => sequence.len(),
        false => 0,
    }
}

fn escaped(text: &str, most: usize, keeps: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len().min(most));
    for (count, letter) in text.chars().enumerate() {
        if count == most {
            out.push_str("...");
            break;
        }
        if is_terminal_control(letter) && !keeps(letter) {
            out.extend(letter.escape_default())
        } else {
            out.push(letter)
        }
    }
    out
}

/// Whether a terminal acts on this character instead of showing it: C0 and C1 controls, direction marks, and characters
/// without a width, which could make different texts appear the same.
#[must_use]
pub fn is_terminal_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_controls_are_escaped() {
        assert_eq!(line("10.0.0.2: a µs; é"), "10.0.0.2: a µs; é");
        assert_eq!(line("\x1b[2J\x07a\r\nb\u{9b}1m"), "\\u{1b}[2J\\u{7}a\\r\\nb\\u{9b}1m");
        assert_eq!(line("a\u{202e}b\u{2066}c\u{61c}\u{e0041}"), "a\\u{202e}b\\u{2066}c\\u{61c}\\u{e0041}");
    }

    #[test]
    fn line_is_cut_at_its_limit() {
        let long = line(&"\x1b".repeat(1 << 20));
        assert!(long.ends_with("...") && long.len() < 8 * LINE_MAX);
        assert_eq!(line(&"x".repeat(LINE_MAX)).len(), LINE_MAX);
    }

    #[test]
    fn screen_keeps_lines_and_own_styles_only() {
        assert_eq!(screen("a\nµ", false), "a\nµ");
        let own = "\x1b[1;31mworse\x1b[0m\n\x1b[36m.\x1b[0m";
        assert_eq!(screen(own, true), own);
        assert_eq!(screen("\x1b[1mx", false), "\\u{1b}[1mx");
        for evil in
            ["\x1b[8m", "\x1b[2J", "\x1b]0;x\x07", "\x1b", "\x1b[m", "\x1b[1;8m", "\x1bm", "\u{9b}2J", "\r"]
        {
            let shown = screen(evil, true);
            assert!(!shown.contains(is_terminal_control), "{shown:?}");
        }
        assert_eq!(screen("\x1b\x1b[1mx\u{85}m", true), "\\u{1b}\x1b[1mx\\u{85}m");
    }
}
