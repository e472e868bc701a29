//! [`ProbeResults`]: measures probes, several in parallel, each once, and stores the results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::claims::quantity::{Probe, Source};
use super::error::NoValue;
use super::verdicts::machine::Machines;
use bench::launch::{CellEvent, CellState, Progress};

/// Measures one probe, in the unit of its experiment: microseconds or 10^6 bytes per second.
pub type Measure<'a> = &'a (dyn Fn(&Probe) -> Result<f64, NoValue> + Sync);

/// The measurements, and the values of the machine files.
#[derive(Debug, Default)]
pub(super) struct ProbeResults {
    results: BTreeMap<Probe, Result<f64, NoValue>>,
    machines: Machines,
}

/// State shared by the threads.
struct Work<'a> {
    next: AtomicUsize,
    stop: &'a AtomicBool,
    shared: Mutex<Shared<'a>>,
}

struct Shared<'a> {
    done: u64,
    results: BTreeMap<Probe, Result<f64, NoValue>>,
    progress: &'a mut (dyn Progress + Send),
}

impl ProbeResults {
    pub(super) fn new(machines: Machines) -> Self {
        Self { results: BTreeMap::new(), machines }
    }

    /// The results of all but these probes.
    pub(super) fn without(&self, probes: &BTreeSet<Probe>) -> Self {
        let known = self.results.iter().filter(|(probe, _)| !probes.contains(probe));
        let results = known.map(|(probe, result)| (probe.clone(), result.clone())).collect();
        Self { results, machines: self.machines.clone() }
    }

    /// Adds unknown results from others.
    pub(super) fn complete(&mut self, other: &Self) {
        for (probe, result) in &other.results {
            self.results.entry(probe.clone()).or_insert_with(|| result.clone());
        }
    }

    /// Measures all unmeasured probes, on `threads` threads; stops early if `stop` is set.
    pub(super) fn measure(
        &mut self,
        probes: BTreeSet<Probe>,
        measure: Measure<'_>,
        threads: usize,
        progress: &mut (dyn Progress + Send),
        stop: &AtomicBool,
    ) {
        let mut probes: Vec<Probe> = probes.into_iter().filter(|p| !self.results.contains_key(p)).collect();
        // The longest first, so that no single thread is left with one at the end.
        probes.sort_by_key(|probe| std::cmp::Reverse(probe.weight()));
        progress.plan(probes.len() as u64);
        let shared = Mutex::new(Shared { done: 0, results: BTreeMap::new(), progress });
        let work = Work { next: AtomicUsize::new(0), stop, shared };
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, probes.len().max(1)) {
                scope.spawn(|| work.run(&probes, measure));
            }
        });
        let shared = work.shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.results.extend(shared.results);
    }
}

impl Work<'_> {
    /// Measures probes until none is left; several threads do so together.
    fn run(&self, probes: &[Probe], measure: Measure<'_>) {
        while !self.stop.load(Ordering::Relaxed) {
            let Some(probe) = probes.get(self.next.fetch_add(1, Ordering::Relaxed)) else { return };
            let result = measure(probe);
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.done += 1;
            let unit = bench::experiment::find(&probe.cell.experiment)
                .map_or("", |experiment| experiment.metric(&probe.cell.variant).unit);
            let state = match &result {
                Ok(value) => CellState::Measured { value: *value, unit },
                Err(why) => CellState::Skipped { why: &why.to_string() },
            };
            let (done, cell) = (shared.done, &probe.cell);
            let event = CellEvent { launch: 1, launches: 1, done, device: None, cell, state };
            shared.progress.cell(&event);
            shared.results.insert(probe.clone(), result);
        }
    }
}

impl Source for ProbeResults {
    fn measured(&self, probe: &Probe) -> Result<f64, NoValue> {
        let unknown = || Err(NoValue::NotMeasured(Box::new(probe.cell.clone())));
        self.results.get(probe).cloned().unwrap_or_else(unknown)
    }

    fn parameter(&self, device: &str, key: &str) -> Result<f64, NoValue> {
        self.machines.value(device, key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::claims::quantity::{Quantity, Tuning};
    use super::*;

    fn probes(sizes: &[u64]) -> BTreeSet<Probe> {
        let mut all = BTreeSet::new();
        for size in sizes {
            Quantity::cell(
                "d",
                Tuning { window: 4, burst_bytes: 1, signal: 1 },
                "latency",
                &[("op", "write")],
                *size,
            )
            .probes(&mut all);
        }
        all
    }

    fn three() -> NoValue {
        NoValue::Failed("three".to_owned())
    }

    fn by_size(probe: &Probe) -> Result<f64, NoValue> {
        if probe.cell.size == 3 { Err(three()) } else { Ok(probe.cell.size as f64) }
    }

    /// Goal: everything is measured once, whatever the number of threads, and failures have a reason.
    #[test]
    fn every_probe_is_measured_once() {
        for threads in [1, 2, 7] {
            let count = AtomicUsize::new(0);
            let measure = |probe: &Probe| {
                count.fetch_add(1, Ordering::Relaxed);
                by_size(probe)
            };
            let mut results = ProbeResults::new(Machines::default());
            let stop = AtomicBool::new(false);
            results.measure(probes(&[1, 2, 3]), &measure, threads, &mut (), &stop);
            results.measure(probes(&[2, 4]), &measure, threads, &mut (), &stop);
            assert_eq!(count.load(Ordering::Relaxed), 4);
            let values: Vec<_> =
                probes(&[1, 2, 3, 4, 5]).iter().map(|probe| results.measured(probe)).collect();
            assert_eq!(values[..2], [Ok(1.0), Ok(2.0)]);
            assert_eq!(values[2], Err(three()));
            assert!(values[3].is_ok() && matches!(values[4], Err(NoValue::NotMeasured(_))));
        }
    }

    #[test]
    fn complete_takes_only_unknown_results() {
        let (mut results, mut other, stop) = (
            ProbeResults::new(Machines::default()),
            ProbeResults::new(Machines::default()),
            AtomicBool::new(false),
        );
        results.measure(probes(&[1]), &|_| Ok(7.0), 1, &mut (), &stop);
        other.measure(probes(&[1, 2]), &by_size, 1, &mut (), &stop);
        results.complete(&other);
        let values: Vec<_> = probes(&[1, 2]).iter().map(|probe| results.measured(probe)).collect();
        assert_eq!(values, [Ok(7.0), Ok(2.0)]);
    }

    #[test]
    fn a_stop_leaves_the_rest() {
        let mut results = ProbeResults::new(Machines::default());
        results.measure(probes(&[1, 2]), &by_size, 2, &mut (), &AtomicBool::new(true));
        assert!(results.results.is_empty());
    }
}
