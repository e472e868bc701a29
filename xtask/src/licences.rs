//! Checks that every dependency's licence is acceptable to users without legal advice.

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use std::process::Command;
use xtask::workspace::{Workspace, capture};

/// Permissive licences, by their SPDX names. Adding one is a decision: say why in the commit.
const ACCEPTED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Checks all packages that a build for this machine uses; returns their number in a sentence.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    let platform = host_platform()?;
    let metadata = MetadataCommand::new()
        .manifest_path(workspace.root.join("Cargo.toml"))
        .other_options(["--filter-platform".to_owned(), platform])
        .exec()
        .context("cargo metadata failed")?;
    let mut refused = Vec::new();
    for package in &metadata.packages {
        let licence = package.license.as_deref().unwrap_or("");
        if !accepted(licence) {
            refused.push(format!(
                "{} {}: licence \"{licence}\" is not accepted; use another crate, or add it to ACCEPTED in xtask/src/licences.rs",
                package.name, package.version
            ));
        }
    }
    if !refused.is_empty() {
        bail!("licences:\n  {}", refused.join("\n  "));
    }
    Ok(format!("licences: {} packages, all accepted", metadata.packages.len()))
}

/// The target triple that rustc builds for by default.
fn host_platform() -> Result<String> {
    let version = capture(Command::new("rustc").arg("-vV"))?;
    let line = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("`rustc -vV` names no host")?.to_owned())
}

/// Whether an SPDX expression can be satisfied by accepted licences alone.
fn accepted(expression: &str) -> bool {
    // Old manifests write `MIT/Apache-2.0` for a choice.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest).unwrap_or(false) && rest.is_empty()
}

/// `a OR b`; `None` when the expression is malformed.
fn either(words: &mut &[&str]) -> Option<bool> {
    let mut value = both(words)?;
    while let Some((&"OR", rest)) = words.split_first() {
        *words = rest;
        value |= both(words)?;
    }
    Some(value)
}

/// `a AND b`, which binds more tightly than `OR`.
fn both(words: &mut &[&str]) -> Option<bool> {
    let mut value = one(words)?;
    while let Some((&"AND", rest)) = words.split_first() {
        *words = rest;
        value &= one(words)?;
    }
    Some(value)
}

/// A licence, possibly with an exception, or an expression in parentheses.
fn one(words: &mut &[&str]) -> Option<bool> {
    let (&first, rest) = words.split_first()?;
    *words = rest;
    if first == "(" {
        let value = either(words)?;
        let (&close, rest) = words.split_first()?;
        *words = rest;
        return (close == ")").then_some(value);
    }
    if let [with @ "WITH", exception, rest @ ..] = *words {
        *words = rest;
        return Some(ACCEPTED.contains(&format!("{first} {with} {exception}").as_str()));
    }
    (!matches!(first, "AND" | "OR" | ")" | "WITH")).then(|| ACCEPTED.contains(&first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_needs_one_accepted_licence() {
        for expression in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-2.0-only OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        ] {
            assert!(accepted(expression), "{expression}");
        }
    }

    #[test]
    fn copyleft_missing_and_malformed_are_refused() {
        for expression in [
            "",
            "GPL-3.0-only",
            "MIT AND GPL-2.0-only",
            "(MIT",
            "MIT OR",
            "OR MIT",
            "MIT MIT",
            "GPL-2.0 WITH x",
        ] {
            assert!(!accepted(expression), "{expression}");
        }
    }
}
