//! Style that can be checked: each rule is a function from sources to findings.
//!
//! A finding reads `path:line: what is wrong, and what to do instead [rule]`. Exceptions and their reasons are in
//! `xtask/exceptions.toml`, the amount of unsafe code in `xtask/unsafe-count.toml`, what is still too large in `xtask/limits.toml`.
//! All are committed, so that a change to them is reviewed like code.

mod calls;
mod citations;
mod cycles;
mod docs;
mod exceptions;
mod finding;
mod hashes;
mod idioms;
mod length;
mod limits;
mod links;
mod marks;
mod modules;
mod source;
mod summaries;
mod text;
mod tokens;
mod trees;
mod unsafety;
mod variables;

pub(crate) use finding::Finding;
pub(crate) use source::Source;

use crate::support;
use anyhow::{Context, Result, bail};
use exceptions::Exceptions;
use limits::Limits;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use xtask::workspace::{Workspace, counted};

/// Everything that the rules look at.
struct Tree {
    /// Every tracked file.
    paths: BTreeSet<String>,
    /// The text files among them.
    texts: BTreeMap<String, String>,
    /// The Rust files among those, read.
    sources: Vec<Source>,
    /// Tracked files and their sizes in bytes.
    sizes: BTreeMap<String, u64>,
}

impl Tree {
    fn read(workspace: &Workspace) -> Result<Self> {
        let (mut texts, mut sizes) = (BTreeMap::new(), BTreeMap::new());
        let paths: BTreeSet<String> = workspace.files()?.into_iter().collect();
        for path in &paths {
            let bytes =
                std::fs::read(workspace.root.join(path)).with_context(|| format!("reading {path}"))?;
            sizes.insert(path.clone(), bytes.len() as u64);
            if let Ok(text) = String::from_utf8(bytes).map_err(drop).and_then(no_nul) {
                texts.insert(path.clone(), text);
            }
        }
        let rust = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
        let mut sources: Vec<Source> = rust.map(|(path, text)| Source::parse(path, text)).collect();
        source::mark_test_files(&mut sources);
        Ok(Self { paths, texts, sources, sizes })
    }
}

/// Text has no NUL bytes.
fn no_nul(text: String) -> Result<String, ()> {
    if text.contains('\0') { Err(()) } else { Ok(text) }
}

/// Holds all rules; says what was looked at, with the unsafe code of each crate.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    let tree = Tree::read(workspace)?;
    let exceptions = Exceptions::read(&workspace.root.join(exceptions::PATH))?;
    let counts = unsafety::Counts::read(&workspace.root.join(unsafety::PATH))?;
    let limits = Limits::read(&workspace.root.join(limits::PATH))?;
    let findings = findings(&workspace.root, &tree, exceptions, &counts, &limits);
    if !findings.is_empty() {
        let lines: Vec<String> = findings.iter().map(|finding| format!("\n{finding}")).collect();
        let files: BTreeSet<&String> = findings.iter().map(|finding| &finding.path).collect();
        bail!(
            "tidy: {} in {}:{}",
            counted(findings.len(), "finding"),
            counted(files.len(), "file"),
            lines.concat()
        );
    }
    Ok(format!(
        "tidy: {} files, {} of them Rust, nothing to object to\n{}",
        tree.paths.len(),
        tree.sources.len(),
        unsafety::summary(&tree.sources, &counts)
    ))
}

/// Rewrites the count of unsafe code to what there is, and lowers limits to it.
pub(crate) fn bless(workspace: &Workspace) -> Result<String> {
    let tree = Tree::read(workspace)?;
    let counts = unsafety::Counts::new(&tree.sources);
    std::fs::write(workspace.root.join(unsafety::PATH), counts.to_toml()?)
        .with_context(|| format!("writing {}", unsafety::PATH))?;
    let limits = Limits::read(&workspace.root.join(limits::PATH))?.lowered(&tree.sources, &tree.texts);
    std::fs::write(workspace.root.join(limits::PATH), limits.to_toml()?)
        .with_context(|| format!("writing {}", limits::PATH))?;
    Ok(format!(
        "wrote {} and {}\n{}",
        unsafety::PATH,
        limits::PATH,
        unsafety::summary(&tree.sources, &counts)
    ))
}

/// All findings of all rules, without those that are excepted, in order of path and line.
fn findings(
    root: &Path,
    tree: &Tree,
    exceptions: Exceptions,
    counts: &unsafety::Counts,
    limits: &Limits,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in &tree.sources {
        found.extend(source.unparsable());
        found.extend(text::header(source));
        found.extend(calls::check(source));
        found.extend(citations::check(source));
        found.extend(hashes::check(source));
        found.extend(marks::ignored_tests(source));
        found.extend(length::check(source));
        found.extend(summaries::check(source));
    }
    let identifiers = docs::identifiers(&tree.sources);
    for (path, text) in &tree.texts {
        found.extend(text::lines(path, text));
        found.extend(marks::unfinished(path, text));
        found.extend(docs::descriptions(path, text));
        found.extend(docs::paths(root, &tree.paths, path, text));
        found.extend(docs::symbols(&identifiers, path, text));
        found.extend(modules::check(&tree.paths, path, text));
    }
    let stale = support::stale(&tree.texts);
    found.extend(stale.map(|(line, what)| Finding::new(support::PAGE, line, "support", what)));
    found.extend(variables::check(&tree.texts));
    found.extend(links::check(&tree.paths, &tree.texts));
    found.extend(trees::check(&tree.sources));
    found.extend(limits.check(&tree.sources, &tree.texts));
    found.extend(text::sizes(&tree.sizes));
    found.extend(unsafety::check(&tree.sources, counts));
    let mut found = exceptions.apply(found);
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_clickable_line() {
        let finding = Finding::new("crates/host/src/lib.rs", 7, "wait", "`a`, use `b`");
        assert_eq!(finding.to_string(), "crates/host/src/lib.rs:7: `a`, use `b` [wait]");
    }

    #[test]
    fn the_real_workspace_can_be_read() {
        let workspace = Workspace::find().expect("cargo metadata of this workspace");
        let tree = Tree::read(&workspace).expect("all files are readable");
        let own = tree.sources.iter().find(|source| source.path == "xtask/src/tidy/mod.rs");
        assert!(own.is_some_and(|source| source.unparsable().is_none()));
    }
}
