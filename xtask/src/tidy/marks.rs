//! Forbids unfinished marks in code: open work is an issue, omitted features are listed in docs/limits.md.

use super::tokens::TokenKind;
use super::{Finding, Source};
use proc_macro2::Delimiter;

/// The marks, in pieces so that this file does not contain them.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Endings of the files that are code.
const CODE: [&str; 6] = [".rs", ".c", ".h", ".py", ".sh", ".toml"];

/// Finds marks as whole words.
pub(super) fn unfinished(path: &str, text: &str) -> Vec<Finding> {
    if !CODE.iter().any(|ending| path.ends_with(ending)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(mark) = words(line).find(|word| MARKS.contains(word)) {
            let what =
                format!("`{mark}`: finish it, or open an issue and say in docs/limits.md what is missing");
            findings.push(Finding::new(path, index + 1, "mark", what));
        }
    }
    findings
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Finds ignored tests.
pub(super) fn ignored_tests(source: &Source) -> Vec<Finding> {
    let ignored = source.tokens.windows(3).filter(|window| {
        window[0].kind == TokenKind::Punct('#')
            && window[1].kind == TokenKind::Open(Delimiter::Bracket)
            && window[2].is("ignore")
    });
    let what = "an ignored test: make it run, split off the slow part, or delete it";
    ignored.map(|window| Finding::new(&source.path, window[0].line, "mark", what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_whole_words_in_code() {
        for mark in MARKS {
            let text = format!("let a = 1; // {mark}: later\n");
            assert_eq!(unfinished("crates/host/src/lib.rs", &text).len(), 1, "{mark}");
            assert_eq!(unfinished("CHANGELOG.md", &text).len(), 0, "{mark}");
            let longer = format!("let template = \"{mark}{mark}\";\n");
            assert_eq!(unfinished("crates/host/src/lib.rs", &longer).len(), 0, "{mark}");
        }
    }

    #[test]
    fn ignored_tests_are_flagged() {
        let ignored = format!("#[test]\n#[{}]\nfn a() {{}}\n", "ignore = \"slow\"");
        assert_eq!(ignored_tests(&Source::parse("crates/host/tests/a.rs", &ignored))[0].line, 2);
        let text = "#[test]\nfn ignore() { ignore(); }\n";
        assert_eq!(ignored_tests(&Source::parse("crates/host/tests/a.rs", text)), []);
    }
}
