//! Every fuzz corpus is replayed by `cargo test`: each folder `fuzz/corpus/NAME` has a test that names it.

use crate::tidy::Source;
use anyhow::{Context, Result, bail};
use xtask::workspace::Workspace;

/// Checks all corpora; returns their number in a sentence.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    let corpora = folders(workspace)?;
    let files = workspace.files()?;
    let tests: Vec<String> = files
        .iter()
        .filter(|path| {
            path.ends_with(".rs") && !["fuzz/", "xtask/"].iter().any(|folder| path.starts_with(folder))
        })
        .map(|path| Ok(test_lines(path, &std::fs::read_to_string(workspace.root.join(path))?)))
        .collect::<Result<_>>()?;
    let silent: Vec<&String> =
        corpora.iter().filter(|name| !tests.iter().any(|text| names(text, name))).collect();
    if !silent.is_empty() {
        bail!(
            "no test replays {}: add a `#[test]` that reads the folder and names it as \"fuzz/corpus/NAME\"",
            silent.iter().map(|name| format!("fuzz/corpus/{name}")).collect::<Vec<_>>().join(", ")
        );
    }
    Ok(format!("corpora: {} replayed by ordinary tests", corpora.len()))
}

/// The names of the folders in `fuzz/corpus`; none when there is no such folder.
fn folders(workspace: &Workspace) -> Result<Vec<String>> {
    let parent = workspace.root.join("fuzz/corpus");
    if !parent.is_dir() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&parent).context("fuzz/corpus cannot be read")? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The lines of a file that are test code.
fn test_lines(path: &str, text: &str) -> String {
    let source = Source::parse(path, text);
    let lines = text.lines().enumerate().filter(|(index, _)| source.is_test(index + 1));
    lines.map(|(_, line)| format!("{line}\n")).collect()
}

/// Whether `text` names the corpus, and not merely another one whose name begins with it.
fn names(text: &str, corpus: &str) -> bool {
    let wanted = format!("fuzz/corpus/{corpus}");
    text.match_indices(&wanted).any(|(at, _)| {
        let next = text[at + wanted.len()..].chars().next();
        !next.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corpus_is_named_whole() {
        assert!(names("read(\"../../fuzz/corpus/mpa\")", "mpa"));
        assert!(!names("read(\"../../fuzz/corpus/mpa_v2\")", "mpa"));
    }

    #[test]
    fn only_test_code_counts() {
        let text = "//! Doc.\nconst A: &str = \"fuzz/corpus/a\";\n#[test]\nfn b() {\n    read(\"fuzz/corpus/b\");\n}\n";
        let lines = test_lines("crates/iwarp/src/lib.rs", text);
        assert!(names(&lines, "b") && !names(&lines, "a"));
    }
}
