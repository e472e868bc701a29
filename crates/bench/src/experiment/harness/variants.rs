//! The usual lists of variants.

use results::variant::{Factor, Variant, factor, variant};

/// Variants of one operation over placements of source and sink.
pub(crate) fn placements(op: &str, pairs: &[(&str, &str)]) -> Vec<Variant> {
    pairs
        .iter()
        .map(|(source, sink)| variant(&[(factor::OP, op), (factor::SOURCE, source), (factor::SINK, sink)]))
        .collect()
}

/// A variant with a factor changed or added.
pub(crate) fn with(one: &Variant, factor: Factor, level: &str) -> Variant {
    one.with(factor, level)
}

/// Each variant with each level of a factor.
pub(crate) fn over(variants: &[Variant], factor: Factor, levels: &[&str]) -> Vec<Variant> {
    variants.iter().flat_map(|one| levels.iter().map(|level| with(one, factor, level))).collect()
}

/// Writes; half of each goes over one port of the device, half over another.
pub(crate) fn over_two_ports() -> Vec<Variant> {
    placements("write", &FOUR).iter().map(|one| with(one, factor::PORTS, "2")).collect()
}

/// All four placements, and the two that a short overview shows.
pub(crate) const FOUR: [(&str, &str); 4] =
    [("host", "host"), ("nic", "nic"), ("host", "nic"), ("nic", "host")];

pub(crate) const TWO: [(&str, &str); 2] = [("host", "host"), ("nic", "nic")];

/// The placements of an operation: all four, or two in a short overview.
pub(crate) fn usual(op: &str, quick: bool) -> Vec<Variant> {
    placements(op, if quick { &TWO } else { &FOUR })
}
