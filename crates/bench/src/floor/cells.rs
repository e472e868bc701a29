//! Which floors a device needs, and at which sizes they are measured.

use results::variant::{factor, variant};
use std::collections::BTreeSet;

use fabric::Baseline;

use super::assign::{has_floor, is_sends};
use crate::experiment::Cell;
use crate::experiment::floor::{FLOOR, SMALL, WHATS, only_size};

/// The cells that measure the floors of these cells (`beside`) on a device with this baseline.
pub(crate) fn cells(baseline: Baseline, beside: &[Cell]) -> Vec<Cell> {
    let sizes = |of: &dyn Fn(&str) -> bool| -> BTreeSet<u64> {
        beside.iter().filter(|c| c.size > 0 && of(&c.experiment)).map(|c| c.size).collect()
    };
    let mut all = Vec::new();
    for (what, _) in WHATS.iter().filter(|(_, whose)| *whose == baseline) {
        let sizes = match (only_size(what), *what) {
            (Some(size), _) => BTreeSet::from([size]),
            (None, "tcp") => &sizes(&|e| ["latency", "bilat"].contains(&e) || is_sends(e)) | &[SMALL].into(),
            (None, "tcp-stream") => sizes(&|e| ["bandwidth", "rate"].contains(&e) || is_sends(e)),
            (None, "tcp-both") => sizes(&|e| ["bibw", "mpi-bibw"].contains(&e)),
            (None, _) => sizes(&has_floor),
        };
        add(&mut all, what, sizes);
    }
    all
}

/// The cells that measure every floor there is, at all these sizes.
pub(crate) fn every_cell(sizes: &[u64]) -> Vec<Cell> {
    let mut all = Vec::new();
    for (what, _) in WHATS {
        add(
            &mut all,
            what,
            only_size(what).map_or_else(|| sizes.iter().copied().collect(), |one| [one].into()),
        );
    }
    all
}

/// Adds the cells that measure one floor at these sizes.
fn add(all: &mut Vec<Cell>, what: &str, sizes: BTreeSet<u64>) {
    let cell = |size| Cell {
        experiment: FLOOR.to_owned(),
        variant: variant(&[(factor::WHAT, what)]),
        size,
        twin: false,
    };
    all.extend(sizes.into_iter().map(cell));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside() -> Vec<Cell> {
        let cell =
            |experiment: &str, size| Cell { experiment: experiment.to_owned(), size, ..Cell::default() };
        vec![cell("latency", 64), cell("bandwidth", 4096), cell("bibw", 100), cell("memory", 0)]
    }

    /// The floors of cells, in words.
    fn floor_names(cells: &[Cell]) -> Vec<String> {
        cells.iter().map(|c| format!("{} {}", c.variant.get(factor::WHAT).expect("what"), c.size)).collect()
    }

    #[test]
    fn a_device_has_the_floors_that_its_cells_need() {
        let sockets = ["tcp 8", "tcp 64", "tcp-sleep 8", "tcp-stream 4096", "tcp-both 100"];
        assert_eq!(floor_names(&cells(Baseline::Sockets, &beside())), sockets);
        let memory = floor_names(&cells(Baseline::Memory, &beside()));
        assert!(
            memory.contains(&"line 64".to_owned()) && memory.contains(&"memcpy 100".to_owned()),
            "{memory:?}"
        );
        assert!(!memory.iter().any(|what| what.contains("tcp") || what.ends_with("memcpy 0")), "{memory:?}");
        assert!(cells(Baseline::None, &beside()).is_empty());
    }

    #[test]
    fn asked_for_by_name_all_are_measured() {
        let all = floor_names(&every_cell(&[8, 512]));
        for what in ["line 64", "memcpy 512", "futex 0", "tcp 512", "tcp-both 8", "tcp-sleep 8"] {
            assert!(all.contains(&what.to_owned()), "{what}: {all:?}");
        }
    }
}
