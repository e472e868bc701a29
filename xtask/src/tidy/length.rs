//! Limits the length of functions, with a list of justified exceptions. Files have no limit: one is as long as its one
//! purpose requires.

use super::{Finding, Source};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The most lines that a function may have, signature and closing brace included.
pub(super) const FUNCTION_LINES_MAX: usize = 70;

/// The rule's name for functions.
pub(super) const FUNCTION_RULE: &str = "long-function";

/// Findings for one file. Test code has no limit.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for function in functions(source).into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX) {
        let Function { name, line, lines } = function;
        let what =
            format!("`{name}` has {lines} lines, {FUNCTION_LINES_MAX} is the limit: give its parts names");
        let length = Some((name, lines));
        findings.push(Finding { length, ..Finding::new(&source.path, line, FUNCTION_RULE, what) });
    }
    findings
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// The functions with a body that are not test code.
fn functions(source: &Source) -> Vec<Function> {
    let mut functions = Functions(Vec::new());
    if let Some(file) = &source.syntax {
        functions.visit_file(file);
    }
    functions.0.retain(|function| !source.is_test(function.line));
    functions.0
}

struct Functions(Vec<Function>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, body: Span) {
        let line = signature.span().start().line;
        let lines = body.end().line + 1 - line;
        self.0.push(Function { name: signature.ident.to_string(), line, lines });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig, function.block.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig, function.block.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.add(&function.sig, body.span());
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<&'static str> {
        check(&Source::parse("crates/verbs/src/cq.rs", text)).iter().map(|finding| finding.rule).collect()
    }

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_may_have_seventy_lines() {
        assert_eq!(rules(&function(70)), [""; 0]);
        assert_eq!(rules(&function(71)), [FUNCTION_RULE]);
        let method = format!("impl A {{\n{}}}\n", function(71));
        assert_eq!(rules(&method), [FUNCTION_RULE]);
        assert_eq!(rules(&format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(200))), [""; 0]);
    }
}
