//! Finds maps with random iteration order below the faces: virtual time must be repeatable.

use super::tokens::starts_with_path;
use super::{Finding, Source};
use crate::rows;
use std::collections::BTreeSet;
use syn::visit::{self, Visit};
use syn::{GenericArgument, PathArguments, PathSegment};

/// The types with a random default hasher, and how many type parameters they have without one.
const MAPS: [(&str, usize); 2] = [("HashMap", 2), ("HashSet", 1)];

/// Their constructors that choose the random hasher.
const CONSTRUCTORS: [&str; 3] = ["new", "with_capacity", "from"];

/// Finds maps and sets with the default hasher in crates up to the row of `mpi`.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    if source.row().is_none_or(|row| Some(row) > rows::row("mpi")) {
        return Vec::new();
    }
    let mut lines = Lines::default();
    if let Some(file) = &source.syntax {
        lines.visit_file(file);
    }
    for (at, token) in source.tokens.iter().enumerate() {
        let constructed = |(name, _): &(&str, usize)| {
            CONSTRUCTORS.iter().any(|call| starts_with_path(&source.tokens[at..], &[name, call]))
        };
        if token.is("RandomState") || MAPS.iter().any(constructed) {
            lines.0.insert(token.line);
        }
    }
    let what = "a map with a random hasher: use BTreeMap or BTreeSet, or IndexMap with a fixed hasher";
    let found = lines.0.into_iter().filter(|&line| !source.is_test(line));
    found.map(|line| Finding::new(&source.path, line, "hash", what)).collect()
}

/// Lines with a type that leaves the hasher to its default.
#[derive(Default)]
struct Lines(BTreeSet<usize>);

impl<'ast> Visit<'ast> for Lines {
    fn visit_path_segment(&mut self, segment: &'ast PathSegment) {
        if let PathArguments::AngleBracketed(arguments) = &segment.arguments {
            let types =
                arguments.args.iter().filter(|argument| matches!(argument, GenericArgument::Type(_))).count();
            if MAPS.iter().any(|(name, count)| segment.ident == name && types == *count) {
                self.0.insert(segment.ident.span().start().line);
            }
        }
        visit::visit_path_segment(self, segment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flagged(path: &str, text: &str) -> bool {
        !check(&Source::parse(path, text)).is_empty()
    }

    #[test]
    fn the_default_hasher_is_flagged_below_the_faces() {
        for text in [
            "struct A { map: std::collections::HashMap<u32, u32> }",
            "fn f() { let a = HashSet::new(); }",
            "fn f() { let a = i.collect::<HashSet<u8>>(); }",
        ] {
            assert!(flagged("crates/verbs/src/cq.rs", text), "{text}");
            assert!(!flagged("crates/bench/src/plan.rs", text), "{text}");
        }
    }

    #[test]
    fn ordered_maps_and_chosen_hashers_are_not() {
        for text in [
            "struct A { map: BTreeMap<u32, u32> }",
            "struct A { map: HashMap<u32, u32, Fixed> }",
            "#[cfg(test)] fn f() { let a = HashSet::new(); }",
        ] {
            assert!(!flagged("crates/verbs/src/cq.rs", text), "{text}");
        }
    }
}
