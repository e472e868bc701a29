//! Documents that stay true: paths and symbols they name exist, and every crate says what it is.

use super::tokens::TokenKind;
use super::{Finding, Source};
use std::collections::BTreeSet;
use std::path::Path;

/// The documents at the root whose paths are checked. Those of all pages below `docs/` are checked as well.
const DOCUMENTS: [&str; 4] = ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md", "SECURITY.md"];

/// Where the documents for maintainers are, whose symbols are checked.
const OF_SYMBOLS: [&str; 3] = ["ARCHITECTURE.md", "docs/internals/", "docs/decisions/"];

/// Files at the root that a path without a folder may mean.
const ROOT_ENDINGS: [&str; 2] = [".md", ".toml"];

/// Every path in backticks exists.
pub(super) fn paths(root: &Path, tracked: &BTreeSet<String>, path: &str, text: &str) -> Vec<Finding> {
    let is_page = path.starts_with("docs/") && path.ends_with(".md");
    if !is_page && !DOCUMENTS.contains(&path) {
        return Vec::new();
    }
    let missing = named(text).filter(|(_, name)| is_missing(root, tracked, name));
    let finding = |(line, name)| {
        Finding::new(path, line, "path", format!("`{name}` does not exist: name the file that does"))
    };
    missing.map(finding).collect()
}

/// Every identifier that the sources have.
pub(super) fn identifiers(sources: &[Source]) -> BTreeSet<&str> {
    let tokens = sources.iter().flat_map(|source| &source.tokens);
    tokens
        .filter_map(
            |token| if let TokenKind::Ident(ident) = &token.kind { Some(ident.as_str()) } else { None },
        )
        .collect()
}

/// Every symbol in backticks is one that the sources have.
pub(super) fn symbols(identifiers: &BTreeSet<&str>, path: &str, text: &str) -> Vec<Finding> {
    if !OF_SYMBOLS.iter().any(|place| path.starts_with(place)) {
        return Vec::new();
    }
    let missing = named(text).filter_map(|(line, name)| {
        let gone = symbol(name)?.into_iter().find(|part| !identifiers.contains(part))?;
        let what = format!("`{name}`: no source has an identifier `{gone}`: name what there is");
        Some(Finding::new(path, line, "symbol", what))
    });
    missing.collect()
}

/// How names of C interfaces and of environment variables begin, which are no identifiers of Rust.
const FOREIGN: [&str; 3] = ["MPI_", "PMPI_", "NICETY_"];

/// The parts of a name that only a symbol can have: a path with `::`, a call, CamelCase or snake_case.
fn symbol(name: &str) -> Option<Vec<&str>> {
    if FOREIGN.iter().any(|prefix| name.starts_with(prefix)) {
        return None;
    }
    let bare = name.strip_suffix("()").unwrap_or(name);
    let parts: Vec<&str> = bare.split("::").collect();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_ident = |part: &&str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && part.chars().all(plain)
    };
    let is_camel =
        bare.starts_with(|c: char| c.is_ascii_uppercase()) && bare.contains(|c: char| c.is_ascii_lowercase());
    let can_only_be = parts.len() > 1 || bare != name || is_camel || bare.contains('_');
    (can_only_be && parts.iter().all(is_ident)).then_some(parts)
}

/// What stands between backticks outside of fences, each with its line (from 1).
fn named(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    let open = text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    });
    open.flat_map(|(index, line)| quoted(line).map(move |name| (index + 1, name)))
}

/// What stands between backticks in a line.
pub(super) fn quoted(line: &str) -> impl Iterator<Item = &str> {
    let closed = line.matches('`').count() / 2;
    line.split('`').skip(1).step_by(2).take(closed)
}

/// Whether the name looks like a path of this repository, and there is no such file or folder.
fn is_missing(root: &Path, tracked: &BTreeSet<String>, name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let end = name.find(|c: char| !plain(c)).unwrap_or(name.len());
    // `file.rs:12` names a file; of `machines/*.toml` only the folder can be checked.
    let path = match name[end..].chars().next() {
        None | Some(':') => &name[..end],
        Some('*' | '<' | '{') => name[..end].rsplit_once('/').map_or("", |(folder, _)| folder),
        Some(_) => return false,
    };
    let path = path.trim_end_matches('/');
    if name.contains("::") || !looks_like_ours(tracked, path) {
        return false;
    }
    !root.join(path).exists() && !root.join("crates").join(path).exists()
}

/// A path of this repository begins with a folder of it (or with a crate's name), or is a document at its root.
fn looks_like_ours(tracked: &BTreeSet<String>, path: &str) -> bool {
    match path.split_once('/') {
        Some((first, _)) => ["", "crates/"].iter().any(|prefix| {
            let folder = format!("{prefix}{first}/");
            !first.is_empty()
                && tracked.range(folder.clone()..).next().is_some_and(|next| next.starts_with(&folder))
        }),
        None => {
            let shouted = path.starts_with(|c: char| c.is_ascii_uppercase());
            shouted && ROOT_ENDINGS.iter().any(|ending| path.ends_with(ending))
        }
    }
}

/// Every crate's manifest has a description.
pub(super) fn descriptions(path: &str, text: &str) -> Option<Finding> {
    if !path.ends_with("Cargo.toml") {
        return None;
    }
    let manifest: toml::Table = text.parse().ok()?;
    let package = manifest.get("package")?.as_table()?;
    let described =
        package.get("description").and_then(toml::Value::as_str).is_some_and(|d| !d.trim().is_empty());
    let line = text.lines().position(|line| line.starts_with("description")).map_or(1, |index| index + 1);
    let what = "no description: say in one line what the crate is for";
    (!described).then(|| Finding::new(path, line, "description", what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str) -> Vec<String> {
        let root = tempfile::tempdir().expect("a temporary folder");
        let files = ["crates/host/src/lib.rs", "docs/a.md", "Cargo.toml"];
        for file in files {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().expect("it has a folder")).expect("created");
            std::fs::write(file, "").expect("written");
        }
        let tracked = files.map(str::to_owned).into();
        paths(root.path(), &tracked, "README.md", text).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn named_paths_must_exist() {
        for name in
            ["crates/host/src/gone.rs", "host/src/gone.rs", "docs/b.md", "GONE.md", "crates/gone/*.toml"]
        {
            let found = missing(&format!("See `{name}`.\n"));
            assert!(found.len() == 1 && found[0].contains(name), "{name}: {found:?}");
        }
    }

    #[test]
    fn pages_of_the_book_are_checked_and_other_files_are_not() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let tracked = ["docs/a.md".to_owned()].into();
        let found = |path| paths(root.path(), &tracked, path, "See `docs/b.md`.\n").len();
        assert_eq!(
            ["docs/a.md", "docs/internals/shm.md", "docs/book.toml", "crates/a.md"].map(found),
            [1, 1, 0, 0]
        );
        let gone = |path| symbols(&BTreeSet::new(), path, "See `gone_for`.\n").len();
        assert_eq!(["docs/internals/shm.md", "docs/decisions/0001.md", "docs/a.md"].map(gone), [1, 1, 0]);
    }

    #[test]
    fn existing_paths_and_foreign_paths_are_accepted() {
        for name in [
            "crates/host/src/lib.rs",
            "crates/host/src/lib.rs:12",
            "host/src/lib.rs",
            "host/",
            "crates/*/src",
            "docs/",
            "Cargo.toml",
            "/dev/shm",
            "target/release/nicety",
            "send/receive",
            "host::real",
            "cargo xtask ci",
            "--html out/report.html",
            "report.html",
        ] {
            assert_eq!(missing(&format!("See `{name}`.\n")), [""; 0], "{name}");
        }
        assert_eq!(missing("```\n`docs/gone.md`\n```\n"), [""; 0]);
    }

    #[test]
    fn named_symbols_must_exist() {
        let identifiers = ["host", "Bell", "ring", "wait_for"].into();
        let gone = |text: &str| {
            symbols(&identifiers, "ARCHITECTURE.md", text)
                .into_iter()
                .map(|finding| finding.what)
                .collect::<Vec<_>>()
        };
        for (name, part) in
            [("Gong", "Gong"), ("Bell::gong", "gong"), ("gong()", "gong"), ("gong_for", "gong_for")]
        {
            let found = gone(&format!("See `{name}`.\n"));
            assert!(
                found.len() == 1 && found[0].contains(&format!("identifier `{part}`")),
                "{name}: {found:?}"
            );
        }
        for name in ["Bell", "host::Bell::ring()", "wait_for", "gong", "Gong and more", "GONG", "a-b"] {
            assert_eq!(gone(&format!("See `{name}`.\n```\n`Gong`\n```\n")), [""; 0], "{name}");
        }
    }

    #[test]
    fn crates_are_described() {
        let manifest = |line: &str| format!("[package]\nname = \"a\"\n{line}\n");
        let path = "crates/a/Cargo.toml";
        assert_eq!(descriptions(path, &manifest("description = \"\"")).map(|finding| finding.line), Some(3));
        assert!(descriptions(path, &manifest("")).is_some());
        assert!(descriptions(path, &manifest("description = \"An a\"")).is_none());
        assert!(descriptions("Cargo.toml", "[workspace]\n").is_none());
    }
}
