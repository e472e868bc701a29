//! `xtask/exceptions.toml`: files and functions for which a rule does not hold, to what extent, and why.
//!
//! An exception that is no longer needed is itself a finding, so the list shrinks over time.

use super::Finding;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::Path;

/// From the workspace root.
pub(super) const PATH: &str = "xtask/exceptions.toml";

/// The whole list.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exceptions {
    #[serde(default)]
    allow: Vec<Allow>,
}

/// One exception to a rule, with its reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allow {
    /// The rule's name, as findings show it in brackets.
    rule: String,
    /// A file, or a folder when it ends in `/`.
    path: String,
    /// The function, for `long-function`.
    function: Option<String>,
    /// The most lines it may have, for `long-function`: it may shrink, not grow.
    lines: Option<usize>,
    why: String,
}

impl Exceptions {
    /// Reads the list; a missing file is an empty list.
    pub(super) fn read(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {PATH}"))?;
        toml::from_str(&text).with_context(|| format!("{PATH} is not what it should be"))
    }

    /// Removes the excepted findings, and adds a finding for each useless exception.
    pub(super) fn apply(self, mut findings: Vec<Finding>) -> Vec<Finding> {
        let mut idle = Vec::new();
        for allow in &self.allow {
            let before = findings.len();
            if allow.why.trim().is_empty() {
                idle.push(allow.objection("has no reason: say in `why` what makes it right"));
            }
            let ceiling = allow.rule.starts_with("long-");
            if ceiling && allow.lines.is_none() {
                idle.push(allow.objection("has no `lines`: say how long it may be, so that it cannot grow"));
            }
            findings.retain(|finding| !allow.covers(finding));
            let grown = findings.iter().any(|finding| allow.concerns(finding));
            if findings.len() == before && !grown {
                idle.push(allow.objection("excepts nothing any more: take it out"));
            }
        }
        findings.extend(idle);
        findings
    }
}

impl Allow {
    /// Whether the finding has this rule and this place.
    fn concerns(&self, finding: &Finding) -> bool {
        let here =
            finding.path == self.path || (self.path.ends_with('/') && finding.path.starts_with(&self.path));
        let named = |name: &String| finding.length.as_ref().is_some_and(|(function, _)| function == name);
        finding.rule == self.rule && here && self.function.as_ref().is_none_or(named)
    }

    /// Whether the finding is excepted: it has this rule and place, and its length is within the limit.
    fn covers(&self, finding: &Finding) -> bool {
        let granted = |most: usize| finding.length.as_ref().is_none_or(|(_, lines)| *lines <= most);
        self.concerns(finding) && self.lines.is_none_or(granted)
    }

    fn objection(&self, what: &str) -> Finding {
        let function = self.function.as_ref().map_or(String::new(), |name| format!(" `{name}`"));
        Finding::new(PATH, 1, "exception", format!("`{}` for {}{function} {what}", self.rule, self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{Source, length};

    fn applied(toml: &str, findings: Vec<Finding>) -> Vec<String> {
        let exceptions: Exceptions = toml::from_str(toml).expect("the snippet is a list of exceptions");
        exceptions.apply(findings).iter().map(Finding::to_string).collect()
    }

    fn long_function(lines: usize) -> Vec<Finding> {
        let text = format!("fn long() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
        length::check(&Source::parse("crates/mpi/src/a.rs", &text))
    }

    const LONG: &str = "[[allow]]\nrule = \"long-function\"\npath = \"crates/mpi/src/a.rs\"\nfunction = \"long\"\n\
                        lines = 90\nwhy = \"one table\"\n";

    #[test]
    fn a_granted_length_is_a_ceiling() {
        assert_eq!(applied(LONG, long_function(90)), [""; 0]);
        let grown = applied(LONG, long_function(91));
        assert!(grown.len() == 1 && grown[0].contains("`long` has 91 lines"), "{grown:?}");
    }

    #[test]
    fn a_dead_exception_is_a_finding() {
        let dead = applied(LONG, long_function(70));
        assert!(dead.len() == 1 && dead[0].contains("excepts nothing any more"), "{dead:?}");
    }

    #[test]
    fn a_folder_covers_its_files_and_needs_a_reason() {
        let toml = "[[allow]]\nrule = \"wait\"\npath = \"crates/verbs/\"\nwhy = \" \"\n";
        let left = applied(toml, vec![Finding::new("crates/verbs/src/a.rs", 1, "wait", "x")]);
        assert!(left.len() == 1 && left[0].contains("has no reason"), "{left:?}");
        let other = applied(toml, vec![Finding::new("crates/verbs/src/a.rs", 1, "clock", "x")]);
        assert_eq!(other.len(), 3, "{other:?}");
    }
}
