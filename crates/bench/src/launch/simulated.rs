//! A run of a plan in virtual time: a world for each cell, on all cores side by side; one launch, no noise, no floors.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use verbs::host::world::Factory;

use super::collect::{Collected, Sample};
use super::job::Sampling;
use super::world::{self, Simulated};
use super::{BenchError, CellEvent, CellState, Progress};
use crate::experiment::{Cell, Fault, find};
use crate::plan::CheckedPlan;
use crate::schema::{ClockInfo, ClockKind, Run};

/// Between two looks at the stop flag.
const TICK: Duration = Duration::from_millis(100);

/// Measures a plan whose device lives in virtual time.
pub(super) fn run(
    plan: &CheckedPlan,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Run, BenchError> {
    progress.plan((plan.cells.len() - plan.unfit.len()) as u64);
    let mut all = Collected::new(plan, [None, None], 1);
    let clock = ClockInfo { kind: ClockKind::Virtual, overhead_ns: 0.0, resolution_ns: 1e-3 };
    all.begun(clock, None, [None, None]);
    let sampling = Sampling::from(world::plan(plan.seed));
    let settings = plan.settings();
    let next = AtomicUsize::new(0);
    let (said, heard) = mpsc::channel();
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(plan.cells.len().max(1));
    let corrupt = std::thread::scope(|scope| {
        for _ in 0..workers {
            let (said, next, settings) = (said.clone(), &next, &settings);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(cell) = plan.cells.get(index) else { return };
                    if plan.unfit.contains_key(&index) {
                        continue;
                    }
                    let found = world::simulate(&plan.device, cell, settings, Factory::Coroutine);
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
                    for note in simulated.notes.iter().filter(|_| !noted) {
                        progress.note(note);
                    }
                    noted = true;
                    measured(&mut all, index, simulated, (clock, sampling), (plan, &mut *progress));
                }
                Ok((_, Err(Fault::Corrupt(why)))) => {
                    next.store(usize::MAX / 2, Ordering::Relaxed);
                    break Some(why);
                }
                Ok((index, Err(fault))) => {
                    let why = fault.to_string();
                    all.skipped(index, why.clone());
                    report(progress, all.count(), &plan.cells[index], CellState::Skipped { why: &why });
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break None,
            }
        }
    });
    if stop.load(Ordering::Relaxed) || corrupt.is_some() {
        all.interrupt();
    }
    match corrupt {
        Some(why) => {
            let partial = Some(Box::new(all.finish()));
            Err(BenchError { what: Fault::Corrupt(why).to_string(), partial })
        }
        None => Ok(all.finish()),
    }
}

fn measured(
    all: &mut Collected,
    index: usize,
    simulated: Simulated,
    (clock, sampling): (ClockInfo, Sampling),
    (plan, progress): (&CheckedPlan, &mut dyn Progress),
) {
    let cell = &plan.cells[index];
    let Simulated { record, .. } = simulated;
    let shown = record.rounds.last().and_then(|r| r.last().copied()).unwrap_or(0.0);
    let messages = record.messages.max(1);
    all.measured(index, 0, Sample { clock, sampling, record, switches: 0 });
    let Some(experiment) = find(&cell.experiment) else { return };
    let metric = experiment.metric(&cell.variant);
    let value = metric.value(shown, messages, cell.size);
    report(progress, all.count(), cell, CellState::Measured { value, unit: metric.unit });
}

fn report(progress: &mut dyn Progress, done: u64, cell: &Cell, state: CellState<'_>) {
    progress.cell(&CellEvent { launch: 1, launches: 1, done, cell, state });
}
