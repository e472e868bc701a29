//! Finds cycles in a graph of uses.

use std::collections::{BTreeMap, BTreeSet};

/// Which modules each module uses.
pub(super) type Uses = BTreeMap<String, BTreeSet<String>>;

/// Groups of modules that use each other, directly or not, in order; each module is in at most one group.
pub(super) fn cycles(uses: &Uses) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|name| (name.as_str(), reach(uses, name))).collect();
    let mut cycles: Vec<Vec<String>> = Vec::new();
    for (&name, own) in &reached {
        if own.contains(name) && !cycles.iter().flatten().any(|other| other == name) {
            let others = own.iter().filter(|other| reached[*other].contains(name));
            cycles.push(others.map(|&other| other.to_owned()).collect());
        }
    }
    cycles
}

/// Everything that a module uses, directly or not; itself only if it is in a cycle.
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

    fn found(uses: &[(&str, &[&str])]) -> Vec<Vec<String>> {
        let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        cycles(&uses.iter().map(|(name, used)| ((*name).to_owned(), named(used))).collect())
    }

    #[test]
    fn cycle_of_any_length_is_found() {
        assert_eq!(
            found(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &["a", "d"]), ("d", &[])]),
            [["a", "b", "c"]]
        );
    }

    #[test]
    fn uses_in_one_direction_are_no_cycle() {
        assert!(found(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]).is_empty());
    }
}
