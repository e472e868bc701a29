//! Environment variables of the project: the page about them names each that the code names, and no other.

use super::Finding;
use std::collections::{BTreeMap, BTreeSet};

/// The page that describes the variables.
const PAGE: &str = "docs/reference/environment.md";
const PREFIX: &str = "NICETY_";
/// Variables that tests pass to their child processes. The page has one line for all of them.
const OF_TESTS: &str = "NICETY_TEST_";

/// Compares the page with the code. `texts` has files by path; without the page nothing is compared.
pub(super) fn check(texts: &BTreeMap<String, String>) -> Vec<Finding> {
    let Some(page) = texts.get(PAGE) else { return Vec::new() };
    let described = names(page);
    let code =
        |path: &str| path.starts_with("crates/") && [".rs", ".h"].iter().any(|end| path.ends_with(end));
    let sources = texts.iter().filter(|(path, _)| code(path));
    let used: BTreeSet<&str> = sources.flat_map(|(_, text)| names(text)).collect();
    let missing =
        used.difference(&described).map(|name| format!("`{name}` is missing: describe the variable"));
    let gone =
        described.difference(&used).map(|name| format!("no code in crates/ names `{name}`: remove it"));
    missing.chain(gone).map(|what| Finding::new(PAGE, 1, "variable", what)).collect()
}

/// The variables that a text names.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.len() > PREFIX.len() && word.starts_with(PREFIX) && !word.starts_with(OF_TESTS))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(page: &str, code: &str) -> Vec<String> {
        let files = [(PAGE, page), ("crates/a/src/lib.rs", code), ("xtask/src/lib.rs", "NICETY_OTHER")];
        let texts = files.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
        check(&texts).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_variable_is_in_the_page_and_in_the_code() {
        assert_eq!(findings("| `NICETY_A=1` |", "var(\"NICETY_A\") // NICETY_TEST_B NICETY_"), [""; 0]);
        let found = findings("| `NICETY_A` |", "var(\"NICETY_B\")");
        assert!(
            found.len() == 2 && found[0].contains("`NICETY_B`") && found[1].contains("`NICETY_A`"),
            "{found:?}"
        );
    }
}
