//! Checks that every dependency's licence is acceptable to users without legal advice, by the list in `deny.toml`. cargo-deny also does,
//! and more; this needs no installed tool (decision 0021).

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use std::fs;
use std::process::Command;
use xtask::workspace::{Workspace, capture};

/// The settings of cargo-deny.
const SETTINGS: &str = "deny.toml";

/// Accepted licences, by their SPDX names.
struct Accepted(Vec<String>);

/// Checks all packages that a build for this machine uses; returns their number in a sentence.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    let (platform, accepted) = (host_platform()?, Accepted::read(workspace)?);
    let metadata = MetadataCommand::new()
        .manifest_path(workspace.root.join("Cargo.toml"))
        .other_options(["--filter-platform".to_owned(), platform])
        .exec()
        .context("cargo metadata failed")?;
    let mut refused = Vec::new();
    for package in &metadata.packages {
        let licence = package.license.as_deref().unwrap_or("");
        if !accepted.satisfy(licence) {
            refused.push(format!(
                "{} {}: licence \"{licence}\" is not accepted; use another crate, or add it to {SETTINGS}",
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

impl Accepted {
    fn read(workspace: &Workspace) -> Result<Self> {
        let text = fs::read_to_string(workspace.root.join(SETTINGS))
            .with_context(|| format!("reading {SETTINGS}"))?;
        Self::parse(&text).with_context(|| format!("{SETTINGS} has no list licenses.allow"))
    }

    fn parse(settings: &str) -> Option<Self> {
        let settings: toml::Table = toml::from_str(settings).ok()?;
        let allowed = settings.get("licenses")?.get("allow")?.as_array()?.iter();
        allowed.map(|licence| licence.as_str().map(str::to_owned)).collect::<Option<_>>().map(Self)
    }

    /// Whether an SPDX expression can be satisfied by these licences alone.
    fn satisfy(&self, expression: &str) -> bool {
        // Old manifests write `MIT/Apache-2.0` for a choice.
        let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut rest = words.as_slice();
        self.either(&mut rest).unwrap_or(false) && rest.is_empty()
    }

    /// `a OR b`; `None` when the expression is malformed.
    fn either(&self, words: &mut &[&str]) -> Option<bool> {
        let mut value = self.both(words)?;
        while let Some((&"OR", rest)) = words.split_first() {
            *words = rest;
            value |= self.both(words)?;
        }
        Some(value)
    }

    /// `a AND b`, which binds more tightly than `OR`.
    fn both(&self, words: &mut &[&str]) -> Option<bool> {
        let mut value = self.one(words)?;
        while let Some((&"AND", rest)) = words.split_first() {
            *words = rest;
            value &= self.one(words)?;
        }
        Some(value)
    }

    /// A licence, possibly with an exception, or an expression in parentheses.
    fn one(&self, words: &mut &[&str]) -> Option<bool> {
        let (&first, rest) = words.split_first()?;
        *words = rest;
        if first == "(" {
            let value = self.either(words)?;
            let (&close, rest) = words.split_first()?;
            *words = rest;
            return (close == ")").then_some(value);
        }
        let has = |licence: &str| self.0.iter().any(|accepted| accepted == licence);
        if let [with @ "WITH", exception, rest @ ..] = *words {
            *words = rest;
            return Some(has(&format!("{first} {with} {exception}")));
        }
        (!matches!(first, "AND" | "OR" | ")" | "WITH")).then(|| has(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(expression: &str) -> bool {
        let accepted = Accepted::parse(include_str!("../../deny.toml")).expect("a list");
        accepted.satisfy(expression)
    }

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
