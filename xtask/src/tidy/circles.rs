//! Modules that use each other only one way: in some folders no module may use one that, directly or not, uses it.
//!
//! A module is a file of the folder; what lies deeper belongs to the file that it is named after. Test code may use what it
//! likes, and so may `mod.rs`, which puts the parts together.

use super::{Finding, Source};
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{ItemUse, UseTree};

/// Where the rule holds.
const FOLDERS: &[&str] = &["crates/nic-soft/src/iwarp/"];

/// Findings for all files: one for each circle.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    FOLDERS.iter().flat_map(|folder| in_folder(folder, sources)).collect()
}

/// Which modules each module uses.
pub(super) type Uses = BTreeMap<String, BTreeSet<String>>;

fn in_folder(folder: &str, sources: &[Source]) -> Vec<Finding> {
    let modules = sources.iter().filter_map(|source| Some((module(folder, &source.path)?, source)));
    let mut uses: Uses = modules.map(|(name, source)| (name.to_owned(), used(source))).collect();
    let names: BTreeSet<String> = uses.keys().cloned().collect();
    for (name, used) in &mut uses {
        used.retain(|other| other != name && names.contains(other));
    }
    let circles = circles(&uses);
    let finding = |circle: &Vec<String>| {
        let what = format!(
            "{} use each other in a circle: let the lower ones return what the upper ones need, or lend it to them",
            circle.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        );
        Finding::new(&format!("{folder}{}.rs", circle[0]), 1, "circle", what)
    };
    circles.iter().map(finding).collect()
}

/// The module that a file of the folder is; `None` for others.
fn module<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let name = path.strip_prefix(folder)?.strip_suffix(".rs")?;
    (!name.contains('/') && name != "mod").then_some(name)
}

/// What a file names behind `super`.
fn used(source: &Source) -> BTreeSet<String> {
    let mut visitor = Supers { source, names: BTreeSet::new() };
    if let Some(file) = &source.syntax {
        visitor.visit_file(file);
    }
    visitor.names
}

struct Supers<'a> {
    source: &'a Source,
    names: BTreeSet<String>,
}

impl Supers<'_> {
    /// The first names of a tree.
    fn add(&mut self, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => drop(self.names.insert(path.ident.to_string())),
            UseTree::Name(name) => drop(self.names.insert(name.ident.to_string())),
            UseTree::Rename(rename) => drop(self.names.insert(rename.ident.to_string())),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.add(item)),
            UseTree::Glob(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for Supers<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if let UseTree::Path(path) = &item.tree
            && path.ident == "super"
            && !self.source.is_test(item.span().start().line)
        {
            self.add(&path.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if segments.next().is_some_and(|first| first.ident == "super")
            && let Some(second) = segments.next()
            && !self.source.is_test(path.span().start().line)
        {
            self.names.insert(second.ident.to_string());
        }
        visit::visit_path(self, path);
    }
}

/// Modules that reach each other, in order; each in at most one circle.
pub(super) fn circles(uses: &Uses) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|name| (name.as_str(), reach(uses, name))).collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    for (&name, own) in &reached {
        if own.contains(name) && !circles.iter().flatten().any(|other| other == name) {
            let others = own.iter().filter(|other| reached[*other].contains(name));
            circles.push(others.map(|&other| other.to_owned()).collect());
        }
    }
    circles
}

/// Everything that a module uses, directly or not; itself only if it is in a circle.
fn reach<'a>(uses: &'a Uses, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut left: Vec<&str> = uses[from].iter().map(String::as_str).collect();
    while let Some(name) = left.pop() {
        if found.insert(name) {
            left.extend(uses[name].iter().map(String::as_str));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let path = |name: &str| format!("{}{name}.rs", FOLDERS[0]);
        let sources: Vec<Source> =
            files.iter().map(|(name, text)| Source::parse(&path(name), text)).collect();
        check(&sources).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_circle_is_found_however_long() {
        let files = [
            ("a", "use super::{b::B, c};"),
            ("b", "fn f() -> super::c::C { todo() }"),
            ("c", "use super::a;\nuse super::d::D;"),
            ("d", "use super::D;"),
        ];
        let findings = found(&files);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains("a.rs:1: `a`, `b`, `c` use each other"), "{findings:?}");
    }

    #[test]
    fn one_way_is_fine_and_tests_may_do_what_they_like() {
        let files = [
            ("a", "use super::b::B;"),
            ("b", "#[cfg(test)]\nmod tests {\n    use super::a::A;\n}"),
            ("mod", "use super::a; mod a; mod b;"),
            ("a/deeper", "use super::super::a;"),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
    }
}
