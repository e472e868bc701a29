//! Checks that doc comments are complete on their own: rustdoc shows the first sentence of each without its neighbours.

use super::{Finding, Source};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Field, ForeignItem, ImplItem, Item, Lit, Meta, TraitItem, Variant};

/// The minimal number of words in the comment of an item, unless it contains code. A field or a variant may have fewer,
/// as its type gives the context.
const WORDS: usize = 3;

/// Findings of a file, except its test code, which has no published documentation.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut visitor = Summaries { source, findings: Vec::new() };
    if let Some(file) = &source.syntax {
        visitor.visit_file(file);
    }
    visitor.findings
}

struct Summaries<'a> {
    source: &'a Source,
    findings: Vec<Finding>,
}

impl Summaries<'_> {
    fn check_summary(&mut self, attrs: &[Attribute], least: usize) {
        let Some((line, text)) = doc(attrs) else { return };
        let what = match text.chars().next() {
            _ if self.source.is_test(line) => return,
            _ if text.starts_with("The same") => {
                "begins with `The same`, which rustdoc shows alone: say what it is"
            }
            Some(first) if first.is_lowercase() => "begins with a small letter: write a sentence",
            _ if text.split_whitespace().count() < least && !text.contains('`') => {
                "has one or two words: say what it is in a sentence, with shapes, units, errors, limits"
            }
            _ => return,
        };
        let what = format!("the comment `{text}` {what}");
        self.findings.push(Finding::new(&self.source.path, line, "summary", what));
    }
}

/// The first line of a doc comment, with its line number in the file.
fn doc(attrs: &[Attribute]) -> Option<(usize, String)> {
    let attr = attrs.iter().find(|attr| attr.path().is_ident("doc"))?;
    let Meta::NameValue(meta) = &attr.meta else { return None };
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &meta.value else { return None };
    Some((attr.span().start().line, text.value().trim().to_owned()))
}

impl<'ast> Visit<'ast> for Summaries<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attrs = match item {
            Item::Const(item) => &item.attrs,
            Item::Enum(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Static(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Trait(item) => &item.attrs,
            Item::Type(item) => &item.attrs,
            Item::Union(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        self.check_summary(attrs, WORDS);
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        match item {
            ImplItem::Const(item) => self.check_summary(&item.attrs, WORDS),
            ImplItem::Fn(item) => self.check_summary(&item.attrs, WORDS),
            ImplItem::Type(item) => self.check_summary(&item.attrs, WORDS),
            _ => {}
        }
        visit::visit_impl_item(self, item);
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        match item {
            TraitItem::Const(item) => self.check_summary(&item.attrs, WORDS),
            TraitItem::Fn(item) => self.check_summary(&item.attrs, WORDS),
            TraitItem::Type(item) => self.check_summary(&item.attrs, WORDS),
            _ => {}
        }
        visit::visit_trait_item(self, item);
    }

    fn visit_foreign_item(&mut self, item: &'ast ForeignItem) {
        if let ForeignItem::Fn(item) = item {
            self.check_summary(&item.attrs, WORDS);
        }
        visit::visit_foreign_item(self, item);
    }

    fn visit_field(&mut self, field: &'ast Field) {
        self.check_summary(&field.attrs, 1);
        visit::visit_field(self, field);
    }

    fn visit_variant(&mut self, variant: &'ast Variant) {
        self.check_summary(&variant.attrs, 1);
        visit::visit_variant(self, variant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        let findings = check(&Source::parse("crates/a/src/b.rs", text));
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn comment_without_own_meaning_is_found() {
        let text = "/// One side.\nstruct A {\n    /// The same, larger.\n    b: u8,\n    /// bytes\n    c: u8,\n}\n\
                    impl A {\n    /// Its name.\n    fn d() {}\n}\ntrait E {\n    /// The name.\n    fn f();\n}\n";
        assert_eq!(found(text), [1, 3, 5, 9, 13]);
    }

    #[test]
    fn sentences_names_of_code_small_fields_and_tests_are_fine() {
        let text = "/// One side of a connection.\nstruct A {\n    /// Bytes.\n    b: u8,\n}\n\
                    /// See [`A::b`].\nfn c() {}\n#[cfg(test)]\nmod tests {\n    /// The same.\n    fn d() {}\n}\n";
        assert_eq!(found(text), Vec::<usize>::new());
    }
}
