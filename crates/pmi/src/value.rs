//! Keys and values that every server can carry, and the encoding of bytes as such a value.
//!
//! Servers disagree on escapes: Hydra 5 treats a backslash as one, gforker and Slurm as itself. Therefore nothing is escaped, and
//! texts that would need it are refused before they are sent: blanks and newlines end a value in PMI-1, a semicolon does in PMI-2,
//! and Hydra's proxies turn keys into names of their own messages. Bytes, such as an address, are sent as `x` and two hexadecimal
//! digits each. This always doubles the length, so that the limit is known in advance, and the value is never empty, which some
//! servers refuse.

use crate::wire::Framing;
use thiserror::Error;

/// The longest key that all servers accept, in bytes.
pub const KEY_LEN_MAX: usize = 63;
/// The longest value that all servers accept, in bytes, if the command around it leaves enough space.
pub const VALUE_LEN_MAX: usize = 1023;
/// Prefix of the process manager's own keys.
const RESERVED: &str = "PMI_";
/// Prefix of encoded bytes, so that their text is never empty.
const MARK: char = 'x';

/// Why some server would not carry a text.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TextError {
    /// It is empty.
    #[error("the {0} is empty, which servers refuse: give it a character")]
    Empty(&'static str),
    /// It has an unsupported character.
    #[error("the {what} has the character {character:?}, which not every server carries: {instead}")]
    Character {
        /// Key or value, and possibly its owner.
        what: &'static str,
        /// The first unsupported character.
        character: char,
        /// Advice.
        instead: &'static str,
    },
    /// A key of the process manager.
    #[error("the key '{0}' begins with PMI_, which is the process manager's: choose another")]
    Reserved(String),
    /// It exceeds the server's limit.
    #[error("the {what} has {len} bytes, {max} is the most that fits here: share it out over several keys")]
    TooLong {
        /// Key or value.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
}

/// The value was not made by [`encode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the value is not bytes as they are written here (x and two hexadecimal digits each): who put it?")]
pub struct NotEncoded;

/// Checks a key: letters, digits, `_`, `-` and `/`, at most `max` bytes.
///
/// # Errors
/// Why it is invalid.
pub fn check_key(key: &str, max: usize) -> Result<(), TextError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/');
    check("key", key, max, allowed, "keep to letters, digits, `_`, `-` and `/`")?;
    if key.starts_with(RESERVED) { Err(TextError::Reserved(key.to_owned())) } else { Ok(()) }
}

/// Checks a value: visible ASCII without backslash and semicolon, at most `max` bytes.
///
/// # Errors
/// Why it is invalid.
pub fn check_value(value: &str, max: usize) -> Result<(), TextError> {
    let allowed = |c: char| c.is_ascii_graphic() && !matches!(c, '\\' | ';');
    check("value", value, max, allowed, "encode it by value::encode")
}

/// Checks a text that may have blanks, such as a program's argument: no control character, no backslash, and in packets no
/// semicolon.
pub(crate) fn check_line(
    what: &'static str,
    text: &str,
    max: usize,
    framing: Framing,
) -> Result<(), TextError> {
    let allowed = |c: char| !c.is_control() && c != '\\' && (c != ';' || framing == Framing::Lines);
    check(what, text, max, allowed, "pass it in a file or in a value")
}

fn check(
    what: &'static str,
    text: &str,
    max: usize,
    allowed: impl Fn(char) -> bool,
    instead: &'static str,
) -> Result<(), TextError> {
    if text.is_empty() {
        return Err(TextError::Empty(what));
    }
    if text.len() > max {
        return Err(TextError::TooLong { what, len: text.len(), max });
    }
    match text.chars().find(|&c| !allowed(c)) {
        Some(character) => Err(TextError::Character { what, character, instead }),
        None => Ok(()),
    }
}

/// Encodes bytes as a value: a mark and two digits each.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let digits =
        |byte: u8| [byte >> 4, byte & 0xf].map(|half| char::from(b"0123456789abcdef"[usize::from(half)]));
    std::iter::once(MARK).chain(bytes.iter().flat_map(|&byte| digits(byte))).collect()
}

/// Decodes a value of [`encode`].
///
/// # Errors
/// If [`encode`] did not make this value.
pub fn decode(value: &str) -> Result<Vec<u8>, NotEncoded> {
    let digits = value.strip_prefix(MARK).ok_or(NotEncoded)?.as_bytes();
    let half = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(NotEncoded),
    };
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Ok(half(high)? << 4 | half(low)?),
        _ => Err(NotEncoded),
    };
    digits.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_bytes_are_decoded() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&[][..], &[0], &[0xff, 0x0a, 0x20], &all] {
            let text = encode(bytes);
            assert_eq!((text.len(), check_value(&text, 1024)), (1 + 2 * bytes.len(), Ok(())));
            assert_eq!(decode(&text).as_deref(), Ok(bytes));
        }
        assert_eq!(encode(&[0x00, 0x9f, 0xa0]), "x009fa0");
        for text in ["", "00", "x0", "xAA", "x0g", "x 0", "x0\u{e9}"] {
            assert_eq!(decode(text), Err(NotEncoded), "{text}");
        }
    }

    #[test]
    fn invalid_keys_and_values_are_refused() {
        for key in ["a", "card/0-1_B", &"k".repeat(63)] {
            assert_eq!(check_key(key, 63), Ok(()));
        }
        for value in ["10.0.0.1:5000", "a=b", "(x,y)", &"v".repeat(1023)] {
            assert_eq!(check_value(value, 1023), Ok(()));
        }
        let character = |found: Result<(), TextError>| match found {
            Err(TextError::Character { character, .. }) => Some(character),
            _ => None,
        };
        for c in [' ', '\n', '=', ';', '\\', '.', '\u{e9}'] {
            assert_eq!(character(check_key(&format!("a{c}b"), 63)), Some(c));
        }
        for c in [' ', '\n', ';', '\\', '\u{7f}', '\u{e9}'] {
            assert_eq!(character(check_value(&format!("a{c}b"), 63)), Some(c));
        }
        for c in ['\n', '\\', '\t', ';'] {
            assert_eq!(character(check_line("argument", &format!("a{c}b"), 63, Framing::Packets)), Some(c));
        }
        assert_eq!(check_line("argument", "a b; \u{e9}", 63, Framing::Lines), Ok(()));
        assert_eq!(check_key("", 63), Err(TextError::Empty("key")));
        assert_eq!(check_key("PMI_x", 63), Err(TextError::Reserved("PMI_x".into())));
        assert_eq!(check_value("abc", 2), Err(TextError::TooLong { what: "value", len: 3, max: 2 }));
    }
}
