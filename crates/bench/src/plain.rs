//! Text from outside (files, peers, other programs, the environment), made fit for a terminal and a log: nothing in it moves a
//! cursor, sets a colour or turns the direction of writing, and it has an end.
//!
//! Text becomes plain where it comes in: [`from_file`] and [`from_peer`] read JSON, [`line`] takes one text. What is written to
//! a terminal passes through [`screen`] besides, so that nothing that came in by another way can act.

mod json;

use std::borrow::Cow;

use json::{Budget, Plain};
use serde::de::DeserializeOwned;

/// Characters of a line from outside at most.
const LINE_MAX: usize = 600;
/// Characters of a field of a file or message at most.
const FIELD_MAX: usize = 4096;
/// Memory that the values of a file may take, by estimate: five times a file of 200 MiB in which most is samples.
const FILE_MEMORY_MAX: usize = 1 << 30;
/// Memory that the values of a message may take.
const MESSAGE_MEMORY_MAX: usize = 4 << 20;

/// The text as one line: characters that a terminal acts on are written out, and what is beyond 600 characters is left out.
#[must_use]
pub fn line(text: &str) -> String {
    written_out(text, LINE_MAX, |_| false)
}

/// The text of a field: as [`line`], with 4096 characters at most.
fn field(text: &str) -> Cow<'_, str> {
    // Most fields are short and plain. Bytes are at least as many as characters.
    match text.len() <= FIELD_MAX && !text.contains(acts) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(written_out(text, FIELD_MAX, |_| false)),
    }
}

/// Lines for a terminal. Characters that it would act on are written out, but for line feeds and, if `styled`, sequences that
/// only set a colour or weight, as `ESC [ 1 ; 31 m`.
#[must_use]
pub fn screen(text: &str, styled: bool) -> Cow<'_, str> {
    if !text.contains(|letter| acts(letter) && letter != '\n') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for (i, part) in text.split('\x1b').enumerate() {
        let style = part.find('m').filter(|_| styled && i > 0).map_or(0, |end| style(&part[..=end]));
        if i > 0 {
            out.push_str(if style > 0 { "\x1b" } else { "\\u{1b}" });
        }
        out.push_str(&part[..style]);
        out.push_str(&written_out(&part[style..], usize::MAX, |letter| letter == '\n'));
    }
    Cow::Owned(out)
}

/// The length of what sets a style behind ESC, if it is that: styles are 0 (off), 1 to 4 (bold, faint, italic, underlined), 30 to 37 (colours).
fn style(sequence: &str) -> usize {
    let codes = sequence.strip_prefix('[').and_then(|rest| rest.strip_suffix('m'));
    let is_ours = |code: &str| matches!(code.as_bytes(), [b'0'..=b'4'] | [b'3', b'0'..=b'7']);
    match codes.is_some_and(|codes| codes.split(';').all(is_ours)) {
        true => sequence.len(),
        false => 0,
    }
}

fn written_out(text: &str, most: usize, keeps: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len().min(most));
    for (count, letter) in text.chars().enumerate() {
        if count == most {
            out.push_str("...");
            break;
        }
        if acts(letter) && !keeps(letter) { out.extend(letter.escape_default()) } else { out.push(letter) }
    }
    out
}

/// Whether a terminal does something at this character rather than show it: controls of C0 and C1, marks of direction, and
/// characters without a width, by which texts that look alike could differ.
#[must_use]
pub fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// What the numbers of a text are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Measurements and counts: reals are at most 1e18, integers below 2^48, so that sums and products remain numbers.
    Measured,
    /// Anything else among them, such as seeds and addresses.
    Any,
}

/// Reads the JSON of a file: texts are plain and have 4096 characters at most.
///
/// # Errors
/// What is no JSON, does not fit `T` or exceeds a limit, with its line and column.
pub fn from_file<T: DeserializeOwned>(text: &[u8], numbers: Numbers) -> serde_json::Result<T> {
    read(text, &Budget::new(FILE_MEMORY_MAX, numbers))
}

/// Reads the JSON of a message of a peer: texts are plain and have 4096 characters at most.
///
/// # Errors
/// As [`from_file`].
pub fn from_peer<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    read(text, &Budget::new(MESSAGE_MEMORY_MAX, Numbers::Any))
}

fn read<T: DeserializeOwned>(text: &[u8], budget: &Budget) -> serde_json::Result<T> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let value = T::deserialize(Plain::new(&mut json, budget))?;
    json.end()?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[test]
    fn what_a_terminal_would_act_on_is_written_out() {
        assert_eq!(line("10.0.0.2: a µs; é"), "10.0.0.2: a µs; é");
        assert_eq!(line("\x1b[2J\x07a\r\nb\u{9b}1m"), "\\u{1b}[2J\\u{7}a\\r\\nb\\u{9b}1m");
        assert_eq!(line("a\u{202e}b\u{2066}c\u{61c}\u{e0041}"), "a\\u{202e}b\\u{2066}c\\u{61c}\\u{e0041}");
    }

    #[test]
    fn a_line_has_an_end() {
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
            assert!(!shown.contains(acts), "{shown:?}");
        }
        assert_eq!(screen("\x1b\x1b[1mx\u{85}m", true), "\\u{1b}\x1b[1mx\\u{85}m");
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Sample {
        #[serde(default)]
        text: Option<String>,
        #[serde(default)]
        names: std::collections::BTreeMap<String, Vec<Kind>>,
        #[serde(default)]
        number: f64,
        #[serde(default)]
        whole: i64,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Bare,
        Of(String),
        With { text: String },
    }

    /// Goal: no text comes through as it was, wherever it stands. Method: the same one as value, key, and in enumerations.
    #[test]
    fn texts_of_json_are_plain_wherever_they_stand() {
        let json =
            r#"{"text": "E", "names": {"E": ["bare", {"of": "E"}, {"with": {"text": "E"}}]}, "number": 1}"#;
        let read: Sample =
            from_file(json.replace('E', r"\u001b[2J\u202e").as_bytes(), Numbers::Measured).expect("a sample");
        let plain = || "\\u{1b}[2J\\u{202e}".to_owned();
        let kinds = vec![Kind::Bare, Kind::Of(plain()), Kind::With { text: plain() }];
        let expected =
            Sample { text: Some(plain()), names: [(plain(), kinds)].into(), number: 1.0, whole: 0 };
        assert_eq!(read, expected);
        assert_eq!(
            from_file::<Sample>(br#"{"text": null}"#, Numbers::Measured).expect("a sample").text,
            None
        );
    }

    #[test]
    fn long_texts_are_cut_at_their_limit() {
        let read = |len: usize| {
            let json = format!("{{\"text\": \"{}\"}}", "x".repeat(len));
            from_peer::<Sample>(json.as_bytes()).expect("a sample").text.expect("a text")
        };
        assert_eq!(read(FIELD_MAX).len(), FIELD_MAX);
        assert_eq!(read(FIELD_MAX + 1), "x".repeat(FIELD_MAX) + "...");
    }

    #[test]
    fn measured_numbers_are_limited() {
        for (json, fits) in [
            (r#"{"number": 1e18}"#, true),
            (r#"{"number": -1.1e18}"#, false),
            (r#"{"whole": 281474976710655}"#, true),
            (r#"{"whole": 281474976710656}"#, false),
            (r#"{"whole": -281474976710656}"#, false),
        ] {
            let read = from_file::<Sample>(json.as_bytes(), Numbers::Measured);
            assert_eq!(read.is_ok(), fits, "{json}: {read:?}");
            assert!(from_file::<Sample>(json.as_bytes(), Numbers::Any).is_ok(), "{json}");
        }
        let error = from_file::<Sample>(b"{\n \"whole\": 281474976710656}", Numbers::Measured)
            .expect_err("too large");
        assert!(error.to_string().contains("beyond 281474976710655 at line 2"), "{error}");
    }

    /// Whatever a list may hold as `{}` is counted with the memory it takes.
    #[test]
    fn objects_of_lists_take_at_most_what_is_counted() {
        use crate::schema::{DeviceInfo, Launch, PeerInfo};
        let sizes = [size_of::<Launch>(), size_of::<DeviceInfo>(), size_of::<PeerInfo>()];
        assert!(sizes.into_iter().all(|size| size <= json::OBJECT_SIZE), "{sizes:?}");
    }

    /// Goal: a short text cannot become values that take much memory. Method: lists of what is shortest of each kind, up to the limit.
    #[test]
    fn memory_of_values_is_limited() {
        let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
        let objects = |count| from_peer::<Vec<Sample>>(list("{}", count).as_bytes()).map(|all| all.len());
        let texts = |count| from_peer::<Vec<String>>(list("\"\"", count).as_bytes()).map(|all| all.len());
        let numbers = |count| from_peer::<Vec<f64>>(list("0", count).as_bytes()).map(|all| all.len());
        let cases: [(&dyn Fn(usize) -> serde_json::Result<usize>, usize); 3] =
            [(&objects, json::OBJECT_SIZE), (&texts, json::TEXT_SIZE), (&numbers, 8)];
        for (read, size) in cases {
            let most = MESSAGE_MEMORY_MAX / size;
            assert_eq!(read(most).expect("within the limit"), most);
            assert!(read(most + 1).expect_err("beyond").to_string().contains("too many values"));
        }
    }
}
