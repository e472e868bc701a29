//! Checks for circular uses: no module of a crate may use a module that, directly or not, uses it.
//!
//! Every crate is checked, with every file at every depth; only test code is exempt. A file that uses a re-export uses
//! the module to which the re-export leads. Paths in arguments of macros count, too.

use super::cycles::{Uses, cycles};
use super::tokens::{Token, TokenKind, flatten};
use super::{Finding, Source};
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, UseTree, Visibility};

/// The folder of a crate's sources, as part of a path.
const SRC: &str = "/src/";

/// A finding for each cycle of each crate.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let roots: BTreeSet<&str> = sources.iter().filter_map(|source| root(&source.path)).collect();
    roots.into_iter().flat_map(|tree| in_tree(tree, sources)).collect()
}

/// The root of a crate's modules, such as `crates/verbs/src/`, for a file below it; `None` for tests and benches.
fn root(path: &str) -> Option<&str> {
    path.find(SRC).map(|at| &path[..at + SRC.len()])
}

/// The path of a module or an item from the root of its crate.
type Path = Vec<String>;

/// A file as a module, with its uses of others.
#[derive(Default)]
struct Module {
    path: Path,
    file: String,
    /// The modules below it.
    children: BTreeSet<String>,
    /// Re-exported names, and the paths to which they lead.
    exports: BTreeMap<String, Path>,
    /// Paths outside of its test code, as written.
    names: Vec<Path>,
}

fn in_tree(tree: &str, sources: &[Source]) -> Vec<Finding> {
    let modules: Vec<Module> = sources.iter().filter_map(|source| read(tree, source)).collect();
    let by_path: BTreeMap<&Path, &Module> = modules.iter().map(|module| (&module.path, module)).collect();
    let mut uses = Uses::new();
    for module in &modules {
        let found = module.names.iter().filter_map(|name| resolve(&by_path, absolute(module, name)?, 0));
        let others = found.filter(|path| *path != module.path).map(|path| shown(&path));
        uses.insert(shown(&module.path), others.collect());
    }
    let finding = |cycle: &Vec<String>| {
        let first = modules.iter().find(|module| shown(&module.path) == cycle[0]);
        let what = format!(
            "{} use each other in a cycle: put what they share into a module below them, or let the lower ones return \
             what the upper ones need",
            cycle.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        );
        Finding::new(first.map_or(tree, |module| &module.file), 1, "cycle", what)
    };
    cycles(&uses).iter().map(finding).collect()
}

fn shown(path: &Path) -> String {
    if path.is_empty() { "crate".to_owned() } else { path.join("::") }
}

/// A file of the tree; `None` for files of other trees, and for test files.
fn read(tree: &str, source: &Source) -> Option<Module> {
    let name = source.path.strip_prefix(tree)?.strip_suffix(".rs")?;
    let syntax = source.syntax.as_ref().filter(|_| !source.is_test(1))?;
    let mut path: Path = name.split('/').map(str::to_owned).collect();
    if matches!(path.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        path.pop();
    }
    let declared = syntax.items.iter().filter_map(|item| match item {
        Item::Mod(module) if module.content.is_none() => Some(module.ident.to_string()),
        _ => None,
    });
    let module =
        Module { path, file: source.path.clone(), children: declared.collect(), ..Module::default() };
    let mut names = Names { source, module, depth: 0 };
    names.visit_file(syntax);
    Some(names.module)
}

/// Converts a path to one from the root of the crate; `None` for paths of other crates.
fn absolute(module: &Module, name: &Path) -> Option<Path> {
    let mut base = module.path.clone();
    let mut rest = name.as_slice();
    match name.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop()?;
                rest = &rest[1..];
            }
        }
        first if module.children.contains(first) => {}
        _ => return None,
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// The module that contains the item of a path.
fn resolve(modules: &BTreeMap<&Path, &Module>, path: Path, turns: usize) -> Option<Path> {
    let depth = (0..=path.len()).rev().find(|&depth| modules.contains_key(&path[..depth].to_vec()))?;
    let module = modules[&path[..depth].to_vec()];
    let export = path.get(depth).and_then(|name| module.exports.get(name));
    match export.and_then(|export| absolute(module, export)) {
        // A chain of more re-exports than modules is circular.
        Some(further) if turns < modules.len() => resolve(modules, further, turns + 1),
        _ => Some(module.path.clone()),
    }
}

struct Names<'a> {
    source: &'a Source,
    module: Module,
    /// The nesting depth of inline modules at the current item.
    depth: usize,
}

impl Names<'_> {
    /// Adds every path of a `use` tree.
    fn add(&mut self, prefix: &Path, tree: &UseTree, exported: bool) {
        let with = |name: String| prefix.iter().cloned().chain([name]).collect::<Path>();
        match tree {
            UseTree::Path(path) => self.add(&with(path.ident.to_string()), &path.tree, exported),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.add(prefix, item, exported)),
            UseTree::Glob(_) => self.name(prefix.clone()),
            UseTree::Name(name) if name.ident == "self" => self.end(prefix.clone(), None, exported),
            UseTree::Name(name) => self.end(with(name.ident.to_string()), None, exported),
            UseTree::Rename(to) => {
                self.end(with(to.ident.to_string()), Some(to.rename.to_string()), exported);
            }
        }
    }

    /// A name that is only re-exported is used by the importing modules.
    fn end(&mut self, path: Path, rename: Option<String>, exported: bool) {
        if let (true, Some(last)) = (exported, path.last()) {
            self.module.exports.insert(rename.unwrap_or_else(|| last.clone()), path.clone());
        }
        self.name(path);
    }

    /// A path as written; if it is in an inline module, as the file itself would write it.
    fn name(&mut self, mut path: Path) {
        let up = path.iter().take(self.depth).take_while(|part| *part == "super").count();
        if up > 0 {
            path.splice(..up, ["self".to_owned()]);
        }
        self.module.names.push(path);
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !self.source.is_test(item.span().start().line) {
            let exported = !matches!(item.vis, Visibility::Inherited);
            self.add(&Path::new(), &item.tree, exported);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && !self.source.is_test(path.span().start().line) {
            self.name(path.segments.iter().map(|part| part.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        for (line, path) in paths(&flatten(call.tokens.clone())) {
            if !self.source.is_test(line) {
                self.name(path);
            }
        }
        visit::visit_macro(self, call);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.depth += 1;
        visit::visit_item_mod(self, item);
        self.depth -= 1;
    }
}

/// Paths of two or more segments among tokens, each with its line.
fn paths(tokens: &[Token]) -> Vec<(usize, Path)> {
    let ident = |at: usize| match tokens.get(at).map(|token| &token.kind) {
        Some(TokenKind::Ident(ident)) => Some(ident.clone()),
        _ => None,
    };
    let is_punct = |at: usize, char| tokens.get(at).is_some_and(|token| token.kind == TokenKind::Punct(char));
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let Some(first) = ident(at) else {
            at += 1;
            continue;
        };
        let line = tokens[at].line;
        let mut path = vec![first];
        at += 1;
        while let (true, true, Some(next)) = (is_punct(at, ':'), is_punct(at + 1, ':'), ident(at + 2)) {
            path.push(next);
            at += 3;
        }
        if path.len() > 1 {
            found.push((line, path));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let path = |name: &str| format!("crates/any/src/{name}.rs");
        let sources: Vec<Source> =
            files.iter().map(|(name, text)| Source::parse(&path(name), text)).collect();
        check(&sources).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn module_and_parent_that_use_each_other_are_a_cycle() {
        let files = [
            ("main", "mod parts; fn main() { parts::all() }"),
            ("parts/mod", "mod one; pub struct Shared; pub fn all() { one::run() }"),
            ("parts/one", "use super::Shared;\npub fn run() {}"),
        ];
        let findings = found(&files);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains("`parts`, `parts::one` use each other"), "{findings:?}");
    }

    #[test]
    fn reexported_name_counts_as_use_of_its_origin() {
        let files = [
            ("main", "mod parts; fn main() { parts::all() }"),
            ("parts", "mod one; mod two; pub use two::Shared; pub fn all() { one::run() }"),
            (
                "parts/one",
                "use super::Shared;\nuse crate::parts::two;\n#[cfg(test)]\nmod tests { use crate::main; }",
            ),
            ("parts/two", "pub struct Shared;"),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
        let inner = ("parts/two", "pub struct Shared; mod names { use super::Shared; }");
        assert_eq!(found(&[files[0], files[1], files[2], inner]), Vec::<String>::new());
        let mut back = files;
        back[3] = ("parts/two", "use super::one; pub struct Shared;");
        assert_eq!(found(&back).len(), 1);
    }

    #[test]
    fn crates_are_checked_separately() {
        let cycle = ["mod a; mod b;", "use crate::b::B;", "pub struct B; fn f() { crate::a::f() }"];
        for tree in ["crates/one/src/", "siege/src/", "interop/src/"] {
            let sources: Vec<Source> = ["lib", "a", "b"]
                .iter()
                .zip(cycle)
                .map(|(name, text)| Source::parse(&format!("{tree}{name}.rs"), text))
                .chain([Source::parse("crates/two/src/lib.rs", "mod a;")])
                .collect();
            let found: Vec<_> = check(&sources).into_iter().map(|finding| finding.path).collect();
            assert_eq!(found, [format!("{tree}a.rs")]);
        }
    }

    #[test]
    fn a_use_in_a_macro_counts_as_any_other() {
        let files = [
            ("lib", "mod a; mod b;"),
            ("a", "pub struct A; fn f() { println!(\"{}\", crate::b::name()); }"),
            ("b", "const _: () = assert!(size_of::<crate::a::A>() == 0); pub fn name() {}"),
        ];
        assert_eq!(found(&files).len(), 1);
    }
}
