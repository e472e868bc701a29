//! `xtask/limits.toml`: limits for what is still too large, which may only fall.
//!
//! A limit that is higher than the actual value, or no longer needed, is a finding: so the table follows every
//! improvement, and is empty in the end.

use super::idioms::{self, Rates};
use super::{Finding, Source};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// From the workspace root.
pub(super) const PATH: &str = "xtask/limits.toml";

/// The most Rust files that a folder may have directly in it.
const FOLDER_FILES_MAX: usize = 25;

const HEADER: &str = "\
# What is larger than the rules allow, and how large it may be. Numbers only fall: `cargo xtask tidy` refuses more, and asks for lower
# numbers when there is less, which `cargo xtask tidy --bless` writes.
# folder-files: Rust files in one folder, where there are more than 25.
# idioms: phrases in 10,000 words that hide the subject or the noun of a sentence; `xtask/src/tidy/idioms.rs` has them.
";

/// The table of limits, or of actual values.
#[derive(Default, Serialize, Deserialize, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Limits {
    folder_files: BTreeMap<String, usize>,
    idioms: Rates,
}

impl Limits {
    /// Reads the table; a missing file permits nothing.
    pub(super) fn read(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {PATH}"))?;
        toml::from_str(&text).with_context(|| format!("{PATH} is not what it should be"))
    }

    /// This table, lowered to the actual values. Nothing is added or raised.
    pub(super) fn lowered(&self, sources: &[Source], texts: &BTreeMap<String, String>) -> Self {
        let rates = idioms::rates(texts);
        let idioms = Rates {
            comments: rates.comments.min(self.idioms.comments),
            documents: rates.documents.min(self.idioms.documents),
        };
        Self { folder_files: self.lowered_folders(sources), idioms }
    }

    fn lowered_folders(&self, sources: &[Source]) -> BTreeMap<String, usize> {
        let mut there = folders(sources);
        there.retain(|_, files| *files > FOLDER_FILES_MAX);
        let both = self
            .folder_files
            .iter()
            .filter_map(|(name, most)| there.get(name).map(|files| (name.clone(), *files.min(most))));
        both.collect()
    }

    pub(super) fn to_toml(&self) -> Result<String> {
        Ok(format!("{HEADER}\n{}", toml::to_string_pretty(self)?))
    }

    /// Findings: folders with too many files, too many odd phrases, and limits that can fall.
    pub(super) fn check(&self, sources: &[Source], texts: &BTreeMap<String, String>) -> Vec<Finding> {
        let mut findings = idioms::check(texts, self.idioms, PATH);
        for (folder, files) in folders(sources) {
            let most = self.folder_files.get(&folder).copied().unwrap_or(FOLDER_FILES_MAX);
            if files > most {
                let what = format!(
                    "{files} Rust files in one folder, at most {most} are allowed: make folders by purpose"
                );
                findings.push(Finding::new(&folder, 1, "folder", what));
            }
        }
        let lowered = self.lowered_folders(sources);
        for (name, most) in self.folder_files.iter().filter(|(name, most)| lowered.get(*name) != Some(*most))
        {
            let now = lowered.get(name).map_or("none is needed".to_owned(), ToString::to_string);
            let what =
                format!("{name} may have {most}, now {now}: lower the number (cargo xtask tidy --bless)");
            findings.push(Finding::new(PATH, 1, "limit", what));
        }
        findings
    }
}

/// Rust files directly in each folder.
fn folders(sources: &[Source]) -> BTreeMap<String, usize> {
    let mut folders = BTreeMap::new();
    for (folder, _) in sources.iter().filter_map(|source| source.path.rsplit_once('/')) {
        *folders.entry(folder.to_owned()).or_default() += 1;
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: usize) -> Vec<Source> {
        (0..files).map(|at| Source::parse(&format!("crates/a/src/b/f{at}.rs"), "")).collect()
    }

    fn limits(most: usize) -> Limits {
        Limits { folder_files: [("crates/a/src/b".to_owned(), most)].into(), idioms: Rates::default() }
    }

    fn rules(limits: &Limits, files: usize) -> Vec<&'static str> {
        limits.check(&sources(files), &BTreeMap::new()).iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn folder_with_more_files_than_the_limit_is_found() {
        assert_eq!(rules(&Limits::default(), FOLDER_FILES_MAX), [""; 0]);
        assert_eq!(rules(&Limits::default(), FOLDER_FILES_MAX + 1), ["folder"]);
        assert_eq!(rules(&limits(40), 40), [""; 0]);
        assert_eq!(rules(&limits(40), 41), ["folder"]);
    }

    #[test]
    fn limit_that_can_fall_is_found() {
        assert_eq!(rules(&limits(40), 39), ["limit"]);
        assert_eq!(rules(&limits(40), FOLDER_FILES_MAX), ["limit"]);
        assert_eq!(rules(&limits(40), 0), ["limit"]);
    }

    #[test]
    fn lowered_limits_fall_and_never_rise() {
        assert_eq!(limits(40).lowered(&sources(39), &BTreeMap::new()), limits(39));
        assert_eq!(limits(40).lowered(&sources(41), &BTreeMap::new()), limits(40));
        assert_eq!(limits(40).lowered(&sources(25), &BTreeMap::new()), Limits::default());
        assert_eq!(Limits::default().lowered(&sources(30), &BTreeMap::new()), Limits::default());
        let text = limits(39).to_toml().expect("a table");
        assert_eq!(toml::from_str::<Limits>(&text).expect("it is read again"), limits(39));
    }
}
