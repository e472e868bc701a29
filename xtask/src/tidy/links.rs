//! Links of documents: each leads to a file and a heading that exist, and the book's summary lists every page.

use super::Finding;
use std::collections::{BTreeMap, BTreeSet};

/// The pages of the book.
const BOOK: &str = "docs/";
/// The book's table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Checks all Markdown files: their relative links, and whether the summary has each page of the book once.
pub(super) fn check(tracked: &BTreeSet<String>, texts: &BTreeMap<String, String>) -> Vec<Finding> {
    let pages = || texts.iter().filter(|(path, _)| path.ends_with(".md"));
    let mut findings: Vec<Finding> =
        pages().flat_map(|(path, text)| dead_links(tracked, texts, path, text)).collect();
    if let Some(summary) = texts.get(SUMMARY) {
        findings.extend(contents(pages().map(|(path, _)| path), summary));
    }
    findings
}

/// The links of a page that lead nowhere.
fn dead_links(
    tracked: &BTreeSet<String>,
    texts: &BTreeMap<String, String>,
    path: &str,
    text: &str,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, target) in links(text) {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let Some(file) = resolved(path, file).filter(|file| exists(tracked, file)) else {
            let what = format!("the link to `{target}` leads to no file: name one that exists");
            findings.push(Finding::new(path, line, "link", what));
            continue;
        };
        let page = texts.get(&file).filter(|_| file.ends_with(".md") && !heading.is_empty());
        if page.is_some_and(|page| !headings(page).contains(heading)) {
            let what = format!("{file} has no heading `#{heading}`: link to one that it has");
            findings.push(Finding::new(path, line, "link", what));
        }
    }
    findings
}

/// Pages that the summary does not list, and pages that it lists twice.
fn contents<'a>(pages: impl Iterator<Item = &'a String>, summary: &str) -> Vec<Finding> {
    let mut listed = BTreeSet::new();
    let mut findings = Vec::new();
    for (line, target) in links(summary) {
        if resolved(SUMMARY, target).is_some_and(|page| !listed.insert(page)) {
            let what = format!("`{target}` is listed twice: a page has one place in the book");
            findings.push(Finding::new(SUMMARY, line, "summary", what));
        }
    }
    let missing = pages.filter(|page| page.starts_with(BOOK) && *page != SUMMARY && !listed.contains(*page));
    findings.extend(missing.map(|page| {
        let what = format!("{SUMMARY} does not list this page, so the book leaves it out: add a line there");
        Finding::new(page, 1, "summary", what)
    }));
    findings
}

/// The relative links of a page outside of code, each with its line (from 1).
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (line, text) in prose(text) {
        let targets = text.match_indices("](").map(|(at, open)| &text[at + open.len()..]);
        let targets = targets.filter(|target| target.contains(')') && !is_code(text, target));
        let end = |target: &str| target.find([')', ' ']).unwrap_or(target.len());
        found.extend(targets.map(|target| (line, &target[..end(target)])));
        // `[name]: target`, the definition of a reference.
        let definition = text.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        let definition = definition.filter(|(name, _)| !name.starts_with('^'));
        found.extend(definition.map(|(_, target)| (line, target.trim())));
    }
    found.retain(|(_, target)| !target.contains("://") && !target.starts_with("mailto:"));
    found
}

/// Whether a part of a line, which reaches to its end, begins between backticks.
fn is_code(line: &str, part: &str) -> bool {
    line[..line.len() - part.len()].matches('`').count() % 2 == 1
}

/// The lines outside of fenced blocks, each with its number (from 1).
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((index + 1, line))
    })
}

/// A link's file as a path from the root; `None` if it leads out of the repository.
fn resolved(page: &str, file: &str) -> Option<String> {
    if file.is_empty() {
        return Some(page.to_owned());
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Whether a path names a tracked file, or a folder that has one.
fn exists(tracked: &BTreeSet<String>, path: &str) -> bool {
    let folder = format!("{path}/");
    tracked.contains(path)
        || tracked.range(folder.clone()..).next().is_some_and(|next| next.starts_with(&folder))
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn headings(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let anchor = anchor(title.trim());
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(numbered).find(|free| !anchors.contains(free));
        anchors.extend(free);
    }
    anchors
}

/// Lower case, without punctuation, with `-` for blanks; a link in a heading counts by its text.
fn anchor(title: &str) -> String {
    let mut text = title.to_owned();
    while let Some((before, after)) = text.split_once("](") {
        let behind = after.split_once(')').map_or("", |(_, behind)| behind);
        text = format!("{before}{behind}");
    }
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let texts: BTreeMap<String, String> =
            pages.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let tracked =
            texts.keys().cloned().chain(["README.md", "crates/mpi/src/lib.rs"].map(str::to_owned)).collect();
        check(&tracked, &texts).iter().map(ToString::to_string).collect()
    }

    const B: (&str, &str) =
        ("docs/b.md", "# One title\n## `a` and [b](../README.md), c\n## Twice\n## Twice\n");

    #[test]
    fn links_to_files_and_headings_are_accepted() {
        for target in [
            "docs/b.md",
            "docs/b.md#one-title",
            "docs/b.md#a-and-b-c",
            "docs/b.md#twice-1",
            "docs/",
            "crates/mpi/src/lib.rs#L3",
            "#here",
            "https://example.org/a.md",
            "mailto:a@example.org",
            "docs/b.md \"a title\"",
        ] {
            let readme = format!(
                "# Here\nSee [b]({target}), [c]\n\n[c]: {}\n",
                target.split(' ').next().unwrap_or_default()
            );
            assert_eq!(found(&[("README.md", &readme), B]), [""; 0], "{target}");
        }
    }

    #[test]
    fn dead_links_are_flagged() {
        for (target, what) in [
            ("docs/a.md", "leads to no file"),
            ("b.md", "leads to no file"),
            ("../b.md", "leads to no file"),
            ("docs/b.md#three", "no heading `#three`"),
            ("#there", "no heading `#there`"),
        ] {
            let readme = format!("# Here\n\nSee `a` and [b]({target}).\n");
            let found = found(&[("README.md", &readme), B]);
            assert!(found.len() == 1 && found[0].contains(what), "{target}: {found:?}");
            assert!(found[0].starts_with("README.md:3: "), "{found:?}");
        }
        let reference = found(&[("README.md", "See [c]\n\n[c]: docs/c.md\n")]);
        assert!(reference.len() == 1 && reference[0].contains("docs/c.md"), "{reference:?}");
    }

    #[test]
    fn code_has_no_links() {
        let readme = "`[a](b.md)`\n```\n[a](b.md)\n```\n";
        assert_eq!(found(&[("README.md", readme)]), [""; 0]);
    }

    #[test]
    fn the_summary_lists_each_page_once() {
        let page = ("docs/a/c.md", "# C\n");
        let whole = "- [B](b.md)\n- [C](a/c.md)\n";
        assert_eq!(found(&[(SUMMARY, whole), B, page, ("README.md", "")]), [""; 0]);
        let missing = found(&[(SUMMARY, "- [B](b.md)\n"), B, page]);
        assert!(missing.len() == 1 && missing[0].starts_with("docs/a/c.md:1: "), "{missing:?}");
        let twice = found(&[(SUMMARY, &format!("{whole}- [B](b.md)\n")), B, page]);
        assert!(twice.len() == 1 && twice[0].starts_with("docs/SUMMARY.md:3: "), "{twice:?}");
    }
}
