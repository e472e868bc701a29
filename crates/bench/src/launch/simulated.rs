//! The part of a plan that lives in virtual time: a world for each cell, on all cores side by side; one launch, no noise,
//! no floors.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use verbs::host::world::FiberKind;

use super::collect::{Collected, Start};
use super::job::Sampling;
use super::sample::Sample;
use super::world::{self, Simulated};
use super::{CellEvent, CellState, Progress};
use crate::experiment::{Fault, find};
use crate::plan::CheckedPlan;
use results::schema::{ClockInfo, ClockKind};

/// Interval between two checks of the stop flag.
const TICK: Duration = Duration::from_millis(100);

/// Measures the part of a plan whose device lives in virtual time; why not, if data was wrong.
pub(super) fn run(
    plan: &CheckedPlan,
    device: usize,
    all: &mut Collected<'_>,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<(), Fault> {
    let chosen = &plan.devices[device];
    let several = plan.devices.len() > 1;
    let clock = ClockInfo { kind: ClockKind::Virtual, overhead_ns: 0.0, resolution_ns: 1e-3 };
    let known: BTreeSet<usize> =
        chosen.cells.clone().filter(|i| plan.unfit.contains_key(i) || all.is_done(*i, 0)).collect();
    if known.len() == chosen.cells.len() {
        return Ok(());
    }
    all.begun((device, 0), Start { clock, ..Start::default() });
    let (sampling, settings) = (plan.simulated_sampling(), plan.settings());
    let next = AtomicUsize::new(chosen.cells.start);
    let (said, heard) = mpsc::channel();
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(chosen.cells.len().max(1));
    let mut view = View { device: several.then_some(&*chosen.name), plan, progress };
    let corrupt = std::thread::scope(|scope| {
        for _ in 0..workers {
            let (said, next, known) = (said.clone(), &next, &known);
            let (settings, sampling) = (&settings, &sampling);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(cell) = plan.cells[..chosen.cells.end].get(index) else { return };
                    if known.contains(&index) {
                        continue;
                    }
                    let found =
                        world::simulate(&chosen.name, cell, (settings, sampling), FiberKind::Coroutine);
                    // Nobody listens any more once the run is given up.
                    if said.send((index, found)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(said);
        let mut noted = false;
        loop {
            match heard.recv_timeout(TICK) {
                Ok((index, Ok(simulated))) => {
                    if !std::mem::replace(&mut noted, true) {
                        all.noted(device, &simulated.notes);
                        view.notes(&simulated.notes);
                    }
                    view.measured(all, index, simulated, (clock, Sampling::from(sampling)));
                }
                Ok((_, Err(Fault::Corrupt(why)))) => {
                    next.store(usize::MAX / 2, Ordering::Relaxed);
                    break Some(why);
                }
                Ok((index, Err(fault))) => {
                    let why = fault.to_string();
                    all.skipped(index, why.clone(), (false, 0..1));
                    view.report(all.count(), index, CellState::Skipped { why: &why });
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break None,
            }
        }
    });
    corrupt.map_or(Ok(()), |why| Err(Fault::Corrupt(why)))
}

/// Receives the progress, and the state that it describes.
struct View<'a> {
    /// The device, where there are several.
    device: Option<&'a str>,
    plan: &'a CheckedPlan,
    progress: &'a mut dyn Progress,
}

impl View<'_> {
    /// Reports a device's notes.
    fn notes(&mut self, notes: &[String]) {
        let on = self.device.map_or_else(String::new, |name| format!("{name}: "));
        notes.iter().for_each(|note| self.progress.chosen(&format!("{on}{note}")));
    }

    /// Collects a measured cell, and reports it.
    fn measured(
        &mut self,
        all: &mut Collected<'_>,
        index: usize,
        simulated: Simulated,
        (clock, sampling): (ClockInfo, Sampling),
    ) {
        let cell = &self.plan.cells[index];
        let Simulated { record, .. } = simulated;
        let last = record.rounds.last().and_then(|r| r.last().copied()).unwrap_or(0.0);
        let shown = last / record.batch.max(1) as f64;
        let messages = record.messages.max(1);
        all.measured(index, 0, Sample { clock, sampling, record, switches: 0 });
        let Some(experiment) = find(&cell.experiment) else { return };
        let metric = experiment.metric(&cell.variant);
        let value = metric.value(shown, messages, cell.size);
        self.report(all.count(), index, CellState::Measured { value, unit: metric.unit });
    }

    /// Reports the progress of a cell.
    fn report(&mut self, done: u64, index: usize, state: CellState<'_>) {
        let (device, cell) = (self.device, &self.plan.cells[index]);
        self.progress.cell(&CellEvent { launch: 1, launches: 1, done, device, cell, state });
    }
}
