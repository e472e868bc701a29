//! Quotes words for a shell.

use std::ffi::{OsStr, OsString};

/// The words separated by spaces, quoted where a shell would otherwise interpret them.
pub fn shell_words<'a>(words: impl IntoIterator<Item = &'a OsString>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| shell_word(word)).collect();
    words.join(" ")
}

/// A word as a shell reads it, in quotes if it needs any.
fn shell_word(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        let words = ["a b", "it's", "", "$HOME", "-x=1"].map(OsString::from);
        assert_eq!(shell_words(&words), r"'a b' 'it'\''s' '' '$HOME' -x=1");
    }
}
