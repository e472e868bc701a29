//! One Rust file as the rules see it: its crate, its tokens, its syntax, and which of its lines are test code.

use super::Finding;
use super::tokens::{Token, flatten};
use crate::rows;
use std::path::Path;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, ImplItem, Item, Lit, Meta};

/// A Rust file.
pub(crate) struct Source {
    /// From the workspace root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(super) tokens: Vec<Token>,
    /// Absent when the file does not parse.
    pub(super) syntax: Option<syn::File>,
    /// Why the file does not parse, and on which line.
    error: Option<(usize, String)>,
    /// Test code, as first and last line.
    test_ranges: Vec<(usize, usize)>,
    /// The whole file is test code.
    test_file: bool,
}

impl Source {
    /// Reads a file. If it does not parse, the syntax is missing and `error` is set.
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let tokens = text.parse().map(flatten).unwrap_or_default();
        let (syntax, error) = match syn::parse_file(text) {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some((error.span().start().line.max(1), error.to_string()))),
        };
        let mut tests = TestRanges(Vec::new());
        let mut test_file = is_test_path(path);
        if let Some(file) = &syntax {
            tests.visit_file(file);
            test_file |= has_test_attribute(&file.attrs);
        }
        let test_ranges = tests.0;
        Self { path: path.to_owned(), text: text.to_owned(), tokens, syntax, error, test_ranges, test_file }
    }

    /// The finding for a file that does not parse.
    pub(super) fn unparsable(&self) -> Option<Finding> {
        let (line, error) = self.error.as_ref()?;
        Some(Finding::new(&self.path, *line, "parse", format!("does not parse ({error}); mend the syntax")))
    }

    /// Whether a line (from 1) is test code.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.test_file || self.test_ranges.iter().any(|&(first, last)| (first..=last).contains(&line))
    }

    /// The crate of `crates/NAME/src/…`; `None` for other files, build scripts and integration tests included.
    pub(super) fn package(&self) -> Option<&str> {
        let (name, rest) = self.path.strip_prefix("crates/")?.split_once('/')?;
        rest.starts_with("src/").then_some(name)
    }

    /// The row of the crate that this file belongs to.
    pub(super) fn row(&self) -> Option<usize> {
        rows::row(self.package()?)
    }

    /// Whether the file is part of a library rather than of a program.
    pub(super) fn is_library(&self) -> bool {
        self.package().is_some_and(|name| {
            let file = &self.path["crates/".len() + name.len() + "/src/".len()..];
            name != "nicety" && file != "main.rs" && !file.starts_with("bin/")
        })
    }

    /// The files of `mod name;` items under a test attribute, without extensions.
    fn test_modules(&self) -> Vec<String> {
        let path = Path::new(&self.path);
        let parent = path.parent().unwrap_or(Path::new(""));
        let stem = path.file_stem().unwrap_or_default();
        let folder = if stem == "lib" || stem == "main" || stem == "mod" {
            parent.to_owned()
        } else {
            parent.join(stem)
        };
        let items = self.syntax.iter().flat_map(|file| &file.items);
        items
            .filter_map(|item| match item {
                Item::Mod(module) if module.content.is_none() && has_test_attribute(&module.attrs) => {
                    let file = match named_file(&module.attrs) {
                        Some(name) => parent.join(name.trim_end_matches(".rs")),
                        None => folder.join(module.ident.to_string()),
                    };
                    Some(file.to_string_lossy().into_owned())
                }
                _ => None,
            })
            .collect()
    }
}

/// The file that a `#[path = "…"]` names.
fn named_file(attributes: &[Attribute]) -> Option<String> {
    let value = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) => Some(name.value()),
            _ => None,
        },
        _ => None,
    };
    attributes.iter().find_map(value)
}

/// Marks the files of modules that other files declare under `#[cfg(test)]`.
pub(super) fn mark_test_files(sources: &mut [Source]) {
    let modules: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in sources {
        let within = |module: &String| {
            source
                .path
                .strip_prefix(module.as_str())
                .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        source.test_file |= modules.iter().any(within);
    }
}

/// Whether everything under this path is test code because of the path alone.
fn is_test_path(path: &str) -> bool {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
    folders.split('/').any(|folder| matches!(folder, "tests" | "benches" | "examples" | "fuzz"))
}

/// Collects the lines of items that exist for tests only.
struct TestRanges(Vec<(usize, usize)>);

impl TestRanges {
    /// Records the item if it is a test; returns whether it is.
    fn note(&mut self, attributes: &[Attribute], item: &impl Spanned) -> bool {
        let test = has_test_attribute(attributes);
        if test {
            let span = item.span();
            let first = attributes.iter().map(|attribute| attribute.span().start().line).min();
            self.0.push((first.unwrap_or(span.start().line), span.end().line));
        }
        test
    }
}

impl<'ast> Visit<'ast> for TestRanges {
    fn visit_item(&mut self, item: &'ast Item) {
        if !self.note(attributes(item), item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Fn(function) => &function.attrs,
            ImplItem::Const(constant) => &constant.attrs,
            _ => &[],
        };
        if !self.note(attributes, item) {
            visit::visit_impl_item(self, item);
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[test]`, or a `#[cfg(…)]` that no ordinary build satisfies.
fn has_test_attribute(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<Meta>().is_ok_and(|condition| implies_test(&condition)))
    })
}

/// Whether a `cfg` condition holds only under `test`, `loom` or `fuzzing`.
fn implies_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => ["test", "loom", "fuzzing"].iter().any(|name| path.is_ident(name)),
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, syn::Token![,]>::parse_terminated);
            let parts = parts.unwrap_or_default();
            if list.path.is_ident("all") {
                parts.iter().any(implies_test)
            } else {
                list.path.is_ident("any") && !parts.is_empty() && parts.iter().all(implies_test)
            }
        }
        Meta::NameValue(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "crates/verbs/src/lib.rs";

    #[test]
    fn test_code_is_known_by_its_attributes() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n#[cfg(not(test))]\nfn c() {}\n";
        let source = Source::parse(LIB, text);
        let lines: Vec<bool> = (1..=7).map(|line| source.is_test(line)).collect();
        assert_eq!(lines, [false, true, true, true, true, false, false]);
    }

    #[test]
    fn conditions_are_understood() {
        for (condition, expected) in [
            ("all(test, loom)", true),
            ("all(unix, test)", true),
            ("any(test, fuzzing)", true),
            ("any(test, unix)", false),
            ("not(test)", false),
            ("feature = \"test\"", false),
        ] {
            let text = format!("#[cfg({condition})]\nfn a() {{}}\n");
            assert_eq!(Source::parse(LIB, &text).is_test(2), expected, "{condition}");
        }
    }

    #[test]
    fn a_test_module_in_its_own_file_is_test_code() {
        let mut sources = [
            Source::parse(LIB, "#[cfg(test)]\nmod tests;\nmod cq;\n"),
            Source::parse("crates/verbs/src/cq.rs", "#[cfg(test)]\nmod deep;\n"),
            Source::parse("crates/verbs/src/qp/a.rs", "#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;\n"),
            Source::parse("crates/verbs/src/qp/b_tests.rs", "fn a() {}\n"),
            Source::parse("crates/verbs/src/cq/deep.rs", "fn a() {}\n"),
            Source::parse("crates/verbs/src/tests.rs", "fn a() {}\n"),
            Source::parse("crates/verbs/src/tests_not.rs", "fn a() {}\n"),
        ];
        mark_test_files(&mut sources);
        assert_eq!(sources.map(|source| source.is_test(1)), [true, true, true, true, true, true, false]);
    }

    #[test]
    fn crates_and_libraries_are_recognised_by_path() {
        let place = |path| Source::parse(path, "");
        assert_eq!(place(LIB).package(), Some("verbs"));
        assert_eq!(place(LIB).row(), Some(1));
        assert!(place(LIB).is_library());
        assert!(!place("crates/nicety/src/main.rs").is_library());
        assert!(!place("crates/bench/src/main.rs").is_library());
        assert_eq!(place("crates/verbs/tests/a.rs").package(), None);
        assert!(place("crates/verbs/tests/a.rs").is_test(1));
        assert_eq!(place("xtask/src/main.rs").package(), None);
    }

    #[test]
    fn unparsable_source_is_a_finding() {
        for text in ["fn a( {", "fn a() { ] }", "\"open", "let x"] {
            assert!(Source::parse(LIB, text).unparsable().is_some(), "{text}");
        }
        assert!(Source::parse(LIB, "fn a() {}").unparsable().is_none());
    }
}
