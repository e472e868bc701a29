//! Compares what a plan needs with what this machine has, before anything is measured.

use super::error::PlanError;
use crate::experiment::{Cell, Needs};
use crate::machine::Limits;

/// Memory of a process of a run without the experiment's own, in bytes.
const PROCESS: u64 = 12 << 20;
/// Descriptors of a connection in one process, and of a process without any.
const PER_CONNECTION: u64 = 2;
const SPARE: u64 = 64;

/// Why a cell cannot be measured here, with the bound and how to raise it.
fn refusal(limits: &Limits, cell: &Cell, needs: &Needs) -> Option<String> {
    let beyond = |need: u64, have: Option<u64>| have.filter(|have| need > *have);
    let processes = if limits.is_virtual { 0 } else { needs.processes };
    let memory = needs.bytes.saturating_add(processes * PROCESS);
    if let Some(have) = beyond(processes, limits.processes) {
        return Some(format!(
            "{cell} needs {processes} processes; this user may have {have} (ulimit -u, or pids.max of the control \
             group, raises it); a modelled card needs none"
        ));
    }
    if let Some(have) = beyond(memory, limits.memory) {
        return Some(format!(
            "{cell} needs {} MiB of memory in {processes} processes, and {} MiB are available; take smaller sizes or \
             numbers, free memory, or raise memory.max of the control group",
            memory >> 20,
            have >> 20
        ));
    }
    if let Some(have) = beyond(needs.connections, limits.queue_pairs) {
        return Some(format!(
            "{cell} needs {} queue pairs at a side, and the device has {have}, which nothing raises; take fewer",
            needs.connections
        ));
    }
    let descriptors = needs.connections.saturating_mul(PER_CONNECTION) + SPARE;
    let have = beyond(descriptors, limits.descriptors).filter(|_| !limits.is_virtual)?;
    Some(format!(
        "{cell} needs up to {descriptors} descriptors in a process for {} connections; {have} are allowed, enough for \
         {}; `ulimit -Hn {descriptors}` as root raises it",
        needs.connections,
        have.saturating_sub(SPARE) / PER_CONNECTION
    ))
}

/// The cells that this machine cannot measure, by number, with the reason.
pub(super) fn unfit(
    cells: &[Cell],
    limits: &Limits,
    needs: impl Fn(&Cell) -> Option<Needs>,
) -> Vec<(usize, String)> {
    let refused = |(index, cell): (usize, &Cell)| Some((index, refusal(limits, cell, &needs(cell)?)?));
    cells.iter().enumerate().filter_map(refused).collect()
}

/// Errors for cells of experiments that the command line names: one for each experiment, about its first cell here.
pub(super) fn errors<'a>(refused: impl Iterator<Item = (&'a Cell, &'a String)>) -> Vec<PlanError> {
    let mut seen: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    for (cell, why) in refused {
        if !seen.contains(&cell.experiment.as_str()) {
            seen.push(&cell.experiment);
            all.push(PlanError::Machine { cell: Box::new(cell.clone()), why: why.clone() });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Limits = Limits {
        memory: Some(1 << 30),
        descriptors: Some(1024),
        processes: Some(100),
        queue_pairs: None,
        is_virtual: false,
    };

    fn refusal(limits: &Limits, needs: Needs) -> Option<String> {
        super::refusal(limits, &Cell { experiment: "some".into(), size: 8, ..Cell::default() }, &needs)
    }

    #[test]
    fn what_is_refused_says_the_bound_and_how_to_raise_it() {
        let modest = Needs { bytes: 1 << 20, processes: 2, connections: 480 };
        assert_eq!(refusal(&HERE, modest), None);
        let many = refusal(&HERE, Needs { connections: 481, ..modest }).expect("refused");
        assert!(many.contains("1026 descriptors") && many.contains("enough for 480"), "{many}");
        assert!(many.contains("ulimit -Hn"), "{many}");
        let large = refusal(&HERE, Needs { bytes: 1 << 30, ..modest }).expect("refused");
        assert!(large.contains("1048 MiB") && large.contains("1024 MiB are available"), "{large}");
        let few = Limits { queue_pairs: Some(8), ..HERE };
        let pairs = refusal(&few, Needs { connections: 9, ..modest }).expect("refused");
        assert!(pairs.contains("9 queue pairs") && pairs.contains("has 8"), "{pairs}");
        let crowd = refusal(&HERE, Needs { processes: 101, ..modest }).expect("refused");
        assert!(crowd.contains("may have 100") && crowd.contains("ulimit -u"), "{crowd}");
    }

    #[test]
    fn simulated_machines_need_memory_alone() {
        let world = Limits { is_virtual: true, ..HERE };
        let needs = Needs { bytes: 1 << 20, processes: 10_000, connections: 10_000 };
        assert_eq!(refusal(&world, needs), None);
        assert!(refusal(&world, Needs { bytes: 2 << 30, ..needs }).is_some());
        assert_eq!(refusal(&Limits::default(), Needs { bytes: u64::MAX, ..needs }), None);
    }
}
