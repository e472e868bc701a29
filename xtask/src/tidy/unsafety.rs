//! Unsafe code stays in few files and does not grow unnoticed.
//!
//! `xtask/unsafe-count.toml` lists for each crate the files that may hold unsafe code and how much the crate has. More than
//! that, or another file, is a finding until the number is edited, which a reviewer sees. A crate without any says
//! `#![forbid(unsafe_code)]`.

use super::tokens::{Token, TokenKind};
use super::{Finding, Source};
use anyhow::{Context, Result};
use proc_macro2::Delimiter;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// From the workspace root.
pub(super) const PATH: &str = "xtask/unsafe-count.toml";

const HEADER: &str = "\
# Unsafe blocks, functions, impls, traits and attributes of each crate outside its tests, and the files that may hold them.
# `cargo xtask tidy` refuses more; `cargo xtask tidy --bless` writes what there is. Each new one needs a SAFETY comment and a
# test, model or Miri run that would notice if it were wrong.
";

/// The permitted or the actual amount of unsafe code, by crate.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Counts(BTreeMap<String, Count>);

/// One crate's share.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    count: usize,
    files: BTreeSet<String>,
}

impl Counts {
    /// Reads the permitted amounts; a missing file permits nothing.
    pub(super) fn read(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {PATH}"))?;
        toml::from_str(&text).with_context(|| format!("{PATH} is not what it should be"))
    }

    /// Counts the actual unsafe code.
    pub(super) fn new(sources: &[Source]) -> Self {
        let mut counts = Self::default();
        for source in sources {
            let (lines, Some(package)) = (counted(source), source.package()) else { continue };
            if !lines.is_empty() {
                let count = counts.0.entry(package.to_owned()).or_default();
                count.count += lines.len();
                count.files.insert(source.path.clone());
            }
        }
        counts
    }

    pub(super) fn to_toml(&self) -> Result<String> {
        Ok(format!("{HEADER}\n{}", toml::to_string_pretty(self)?))
    }

    fn count(&self, package: &str) -> usize {
        self.0.get(package).map_or(0, |count| count.count)
    }
}

/// Findings over all crates.
pub(super) fn check(sources: &[Source], granted: &Counts) -> Vec<Finding> {
    let actual = Counts::new(sources);
    let mut findings = Vec::new();
    for (package, count) in &actual.0 {
        let allowed = granted.0.get(package);
        for file in
            count.files.iter().filter(|file| !allowed.is_some_and(|count| count.files.contains(*file)))
        {
            let source = sources.iter().find(|source| source.path == **file);
            let line = source.and_then(|source| counted(source).first().copied()).unwrap_or(1);
            let what =
                format!("unsafe code in a file that {PATH} does not list: do without, or list it there");
            findings.push(Finding::new(file, line, "unsafe", what));
        }
        if count.count > granted.count(package) {
            let what = format!(
                "`{package}` has {} unsafe, {} are granted: do without, or edit the number (cargo xtask tidy --bless)",
                count.count,
                granted.count(package)
            );
            findings.push(Finding::new(PATH, 1, "unsafe", what));
        }
    }
    findings.extend(stale(&actual, granted));
    findings.extend(
        sources.iter().filter(|source| is_root(source)).filter_map(|root| unforbidden(sources, root)),
    );
    findings
}

/// Files that are listed without containing unsafe code.
fn stale(actual: &Counts, granted: &Counts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (package, count) in &granted.0 {
        let holds = |file: &&String| actual.0.get(package).is_some_and(|count| count.files.contains(*file));
        for file in count.files.iter().filter(|file| !holds(file)) {
            let what =
                format!("{file} holds no unsafe code: take it off the list (cargo xtask tidy --bless)");
            findings.push(Finding::new(PATH, 1, "unsafe", what));
        }
    }
    findings
}

/// One line per crate with unsafe code.
pub(super) fn summary(sources: &[Source], granted: &Counts) -> String {
    let actual = Counts::new(sources);
    if actual.0.is_empty() {
        return "unsafe: none".to_owned();
    }
    let line = |(name, count): (&String, &Count)| {
        format!(
            "{name} {} of {} in {}",
            count.count,
            granted.count(name),
            xtask::workspace::counted(count.files.len(), "file")
        )
    };
    format!("unsafe: {}", actual.0.iter().map(line).collect::<Vec<_>>().join(", "))
}

/// Whether the file is the root of a crate.
fn is_root(source: &Source) -> bool {
    let file = source.path.rsplit_once("/src/").map_or("", |(_, file)| file);
    let is_in_package_root = source.package().is_some()
        || source.path.starts_with("xtask/")
        || source.path.starts_with("interop/");
    is_in_package_root && (file == "lib.rs" || file == "main.rs")
}

/// The finding for a crate root without `forbid` although the crate has no unsafe code, not even in tests.
fn unforbidden(sources: &[Source], root: &Source) -> Option<Finding> {
    let folder = root.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut own = sources.iter().filter(|source| source.path.starts_with(&format!("{folder}/")));
    if own.any(|source| !unsafe_lines(source).is_empty()) || root.syntax.is_none() {
        return None;
    }
    let forbids = root.tokens.windows(7).any(|window| {
        let [hash, bang, _, forbid, _, code, _] = window else { return false };
        hash.kind == TokenKind::Punct('#')
            && bang.kind == TokenKind::Punct('!')
            && forbid.is("forbid")
            && code.is("unsafe_code")
    });
    let what = "a crate without unsafe code must say so: add `#![forbid(unsafe_code)]`";
    (!forbids).then(|| Finding::new(&root.path, 1, "unsafe", what))
}

/// The lines with unsafe code that count: those outside tests.
fn counted(source: &Source) -> Vec<usize> {
    unsafe_lines(source).into_iter().filter(|&line| !source.is_test(line)).collect()
}

/// One line number per `unsafe`, inside macros too; function pointer types do not count.
fn unsafe_lines(source: &Source) -> Vec<usize> {
    let tokens = &source.tokens;
    let found =
        (0..tokens.len()).filter(|&at| tokens[at].is("unsafe") && !is_pointer_type(&tokens[at + 1..]));
    found.map(|at| tokens[at].line).collect()
}

/// Whether the tokens after `unsafe` make it a type: `[extern ["C"]] fn (`.
fn is_pointer_type(mut rest: &[Token]) -> bool {
    if let [first, tail @ ..] = rest
        && first.is("extern")
    {
        rest = tail;
        if let [Token { kind: TokenKind::Literal, .. }, tail @ ..] = rest {
            rest = tail;
        }
    }
    matches!(rest, [function, open, ..] if function.is("fn") && open.kind == TokenKind::Open(Delimiter::Parenthesis))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "crates/host/src/lib.rs";

    fn count(text: &str) -> usize {
        counted(&Source::parse(LIB, text)).len()
    }

    fn objections(text: &str, granted: &str) -> Vec<String> {
        let granted: Counts = toml::from_str(granted).expect("the snippet is a count");
        check(&[Source::parse(LIB, text)], &granted).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn code_counts_and_words_do_not() {
        assert_eq!(count("fn f() { unsafe { g() } assert!(unsafe { h() }); }"), 2);
        assert_eq!(count("unsafe impl Send for A {}\nunsafe fn f() {}\nunsafe extern \"C\" { fn g(); }"), 3);
        assert_eq!(count("#[unsafe(no_mangle)]\nextern \"C\" fn f() {}"), 1);
        assert_eq!(count("// unsafe\nconst A: &str = \"unsafe\"; type F = unsafe extern \"C\" fn(u8);"), 0);
        assert_eq!(count("#[cfg(test)]\nmod tests { fn f() { unsafe { g() } } }"), 0);
    }

    #[test]
    fn growth_is_refused_and_shrinking_is_not() {
        let two = "fn f() { unsafe { g() } unsafe { h() } }";
        let granted = |count| format!("[host]\ncount = {count}\nfiles = [\"{LIB}\"]\n");
        assert_eq!(objections(two, &granted(2)), [""; 0]);
        assert_eq!(objections(two, &granted(3)), [""; 0]);
        let grown = objections(two, &granted(1));
        assert!(grown.len() == 1 && grown[0].contains("has 2 unsafe, 1 are granted"), "{grown:?}");
    }

    #[test]
    fn an_unlisted_file_is_refused() {
        let found = objections("//! D.\nfn f() { unsafe { g() } }", "[host]\ncount = 9\nfiles = []\n");
        assert!(found.len() == 1 && found[0].starts_with("crates/host/src/lib.rs:2: unsafe code in a file"));
    }

    #[test]
    fn a_listed_file_without_unsafe_is_stale() {
        let text = "#![forbid(unsafe_code)]";
        let found = objections(text, "[host]\ncount = 1\nfiles = [\"crates/host/src/old.rs\"]\n");
        assert!(found.len() == 1 && found[0].contains("old.rs holds no unsafe code"), "{found:?}");
    }

    #[test]
    fn safe_crates_say_so() {
        assert!(objections("fn f() {}", "")[0].contains("add `#![forbid(unsafe_code)]`"));
        assert_eq!(objections("//! D.\n#![forbid(unsafe_code)]\nfn f() {}", ""), [""; 0]);
    }

    #[test]
    fn written_counts_are_accepted_by_check() {
        let sources = [Source::parse(LIB, "fn f() { unsafe { g() } }")];
        let text = Counts::new(&sources).to_toml().expect("counts are TOML");
        let granted: Counts = toml::from_str(&text).expect("TOML read back");
        assert_eq!(check(&sources, &granted), []);
        assert_eq!(summary(&sources, &granted), "unsafe: host 1 of 1 in 1 file");
    }
}
