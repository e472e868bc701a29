//! Levels of factors that `--set FACTOR=LIST` changes: numbers such as `1,8` or `1..64`, which doubles.

use std::collections::{BTreeMap, BTreeSet};

use super::error::PlanError;
use super::keys;
use super::words::{did_you_mean, join};
use crate::experiment::{Axis, Experiment, all_axes};
use results::variant::{Factor, Variant};

/// Levels of one factor at most.
const MOST: usize = 256;

/// The levels that were given, by factor.
pub(super) type Levels = BTreeMap<Factor, Vec<u64>>;

/// Every factor of some experiments with numbers as levels.
fn axes(of: &[&'static dyn Experiment]) -> Vec<&'static Axis> {
    of.iter().flat_map(|e| all_axes(*e)).collect()
}

/// Removes the factors of these experiments from the settings, and reports values that are no list of their levels.
pub(super) fn take(
    set: &mut BTreeMap<String, String>,
    of: &[&'static dyn Experiment],
    wrong: &mut Vec<PlanError>,
) -> Levels {
    let axes = axes(of);
    let mut levels = Levels::new();
    set.retain(|name, value| {
        let Some(axis) = axes.iter().find(|a| a.factor.name() == name).filter(|_| keys::find(name).is_none())
        else {
            return true;
        };
        match list(value, axis) {
            Some(list) => drop(levels.insert(axis.factor, list)),
            None => wrong.push(PlanError::Value {
                key: name.clone(),
                value: value.clone(),
                range: format!("numbers from {} to {}, such as 1,8 or 1..64", axis.low, axis.high),
            }),
        }
        false
    });
    levels
}

/// Numbers in their order, each once.
fn list(text: &str, axis: &Axis) -> Option<Vec<u64>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => all.push(part.trim().parse().ok()?),
            Some((first, last)) => {
                let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
                if first == 0 || first > last {
                    return None;
                }
                let doubled = std::iter::successors(Some(first), |n| n.checked_mul(2));
                all.extend(doubled.take_while(|n| *n < last).chain([last]));
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    let inside = all.iter().all(|n| (axis.low..=axis.high).contains(n));
    (inside && all.len() <= MOST).then_some(all)
}

/// The variants of an experiment with the levels that were given instead of their own, or in addition.
pub(super) fn replaced(of: &dyn Experiment, variants: Vec<Variant>, levels: &Levels) -> Vec<Variant> {
    replaced_or_added(of.added_axes(), variants, levels)
}

fn replaced_or_added(added: &[Axis], variants: Vec<Variant>, levels: &Levels) -> Vec<Variant> {
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    for variant in variants {
        let mut some = vec![variant];
        for (factor, list) in levels {
            if some[0].has(*factor) || added.iter().any(|axis| axis.factor == *factor) {
                some = some
                    .iter()
                    .flat_map(|one| list.iter().map(|level| one.with(*factor, level.to_string())))
                    .collect();
            }
        }
        all.extend(some.into_iter().filter(|one| seen.insert(one.clone())));
    }
    all
}

/// Whether a variant has a level that was given.
pub(super) fn is_given(variant: &Variant, levels: &Levels) -> bool {
    levels.keys().any(|factor| variant.has(*factor))
}

/// The error for a name that is neither a parameter nor a factor of these experiments.
pub(super) fn unknown(name: &str, of: &[&'static dyn Experiment]) -> PlanError {
    let names = || keys::KEYS.iter().map(|k| k.name).chain(axes(of).into_iter().map(|a| a.factor.name()));
    PlanError::Key { name: name.to_owned(), hint: did_you_mean(name, names()), known: join(names()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::variant::{factor, variant};

    const AXIS: Axis = Axis { factor: factor::QPS, low: 1, high: 100, about: "" };

    #[test]
    fn lists_are_numbers_and_doubling_ranges() {
        assert_eq!(list("8,1", &AXIS), Some(vec![1, 8]));
        assert_eq!(list("1..8", &AXIS), Some(vec![1, 2, 4, 8]));
        assert_eq!(list("3..10, 100", &AXIS), Some(vec![3, 6, 10, 100]));
        for wrong in ["", "x", "0", "101", "1..200", "8..1", "0..8", "1,", "-1", "1..18446744073709551615"] {
            assert_eq!(list(wrong, &AXIS), None, "{wrong}");
        }
    }

    #[test]
    fn given_levels_take_the_place_of_all_others() {
        let own = ["1", "2", "4"].map(|n| variant(&[("op", "send"), ("qps", n)]));
        let other = variant(&[("op", "write")]);
        let levels = Levels::from([(factor::QPS, vec![7, 9])]);
        let all = replaced_or_added(&[], own.into_iter().chain([other.clone()]).collect(), &levels);
        assert_eq!(
            all,
            [
                variant(&[("op", "send"), ("qps", "7")]),
                variant(&[("op", "send"), ("qps", "9")]),
                other.clone()
            ]
        );
        assert!(is_given(&all[0], &levels) && !is_given(&other, &levels));
        let all = replaced_or_added(&[AXIS], vec![other.clone()], &levels);
        assert_eq!(all, ["7", "9"].map(|n| other.with(factor::QPS, n)));
        assert_eq!(replaced_or_added(&[AXIS], vec![other.clone()], &Levels::new()), [other]);
    }
}
