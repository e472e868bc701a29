//! Rules for files as text: a header that gives the file's purpose, no machine's paths, no trailing blanks, no blobs.

use super::{Finding, Source};
use std::collections::BTreeMap;

/// The largest file that may be tracked.
const BYTES_MAX: u64 = 200 * 1000;

/// Words that belong to one machine or one mirror, in pieces so that this file does not contain them.
const FOREIGN: [&str; 10] = [
    concat!("/wo", "rk/"),
    concat!("/fa", "rm/"),
    concat!("/ro", "ot/"),
    concat!(".lib", "rary"),
    concat!("suba", "gent"),
    concat!("static.", "crates.io"),
    concat!("index.", "crates.io"),
    concat!("deb.", "debian.org"),
    concat!("pypi", ".org"),
    concat!("registry.", "npmjs"),
];

/// Recorded data, which is exempt.
fn is_recorded(path: &str) -> bool {
    path.starts_with("fuzz/corpus/") || path.ends_with(".snap") || path.ends_with(".lock")
}

/// A Rust file begins with a line that gives its purpose.
pub(super) fn header(source: &Source) -> Option<Finding> {
    let first = source.text.lines().next().unwrap_or("");
    let said = first.strip_prefix("//!").is_some_and(|rest| !rest.trim().is_empty());
    let what = "the first line is no `//!` doc: begin with one that says what the file is for";
    (!said).then(|| Finding::new(&source.path, 1, "header", what))
}

/// Rules about single lines.
pub(super) fn lines(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if is_recorded(path) {
        return findings;
    }
    for (index, line) in text.lines().enumerate() {
        if let Some(foreign) = FOREIGN.iter().find(|foreign| line.contains(**foreign)) {
            let what =
                format!("`{foreign}` belongs to one machine: use a path from the root, or a public address");
            findings.push(Finding::new(path, index + 1, "machine", what));
        }
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::new(path, index + 1, "blank", "trailing whitespace: take it out"));
        }
    }
    findings
}

/// Nothing large is tracked.
pub(super) fn sizes(sizes: &BTreeMap<String, u64>) -> Vec<Finding> {
    let large = sizes.iter().filter(|(path, bytes)| **bytes > BYTES_MAX && !path.ends_with(".lock"));
    large
        .map(|(path, bytes)| {
            let what =
                format!("{} KB, {} is the limit: make it when it is needed", bytes / 1000, BYTES_MAX / 1000);
            Finding::new(path, 1, "size", what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_header_is_found() {
        let source = |text| Source::parse("crates/host/src/lib.rs", text);
        assert!(header(&source("//! Time.\n")).is_none());
        for text in ["", "\n//! Time.\n", "//!\n", "// Time.\n", "fn f() {}\n"] {
            assert!(header(&source(text)).is_some(), "{text:?}");
        }
    }

    #[test]
    fn machine_paths_are_flagged_wherever_they_are() {
        for foreign in FOREIGN {
            let text = format!("fine\nsee {foreign}x\n");
            assert_eq!(
                lines("README.md", &text).iter().map(|f| f.line).collect::<Vec<_>>(),
                [2],
                "{foreign}"
            );
            assert_eq!(lines("Cargo.lock", &text), []);
        }
        assert_eq!(lines("README.md", "docs/internals/adding-a-nic.md, https://docs.rs/loom\n"), []);
    }

    #[test]
    fn trailing_blanks_are_flagged() {
        let text = ["a", "b ", "c\t", "d", ""].join("\n");
        assert_eq!(lines("a.toml", &text).iter().map(|f| f.line).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(lines("fuzz/corpus/mpa/1", &text), []);
    }

    #[test]
    fn large_files_are_flagged() {
        let tracked = BTreeMap::from([("a.bin".to_owned(), 200_001), ("Cargo.lock".to_owned(), 300_000)]);
        assert_eq!(sizes(&tracked).len(), 1);
        assert_eq!(sizes(&BTreeMap::from([("a.bin".to_owned(), 200_000)])), []);
    }
}
