//! [`Time`]: estimates how long a plan takes before it is measured, from its cells and launches. What a launch, a cell and a message take
//! was measured on a virtual machine with two cores; after the first launch, what that took counts.

use fabric::Baseline;

use super::checked::CheckedPlan;
use crate::experiment::{Cell, Experiment, Settings, burst, find};
use crate::sample::Calibration;
use results::stats::LAUNCHES_FOR_95;

/// A run may take this many times its budget of timed work; beyond it later launches sample less.
pub(crate) const WALL: f64 = 1.2;
/// A run without a given number of launches ends within this many times its budget: cells are dropped for that.
const DEADLINE: f64 = 2.0;
/// Launches sample at least this share of their time, however slow the rest is.
pub(crate) const SHARE_MIN: f64 = 0.1;
/// Operations of a pilot (there are two if there is time), and samples of the first round.
const PILOT: f64 = 16.0;
/// Operations of a pilot of slow ones, and from how many seconds on they are slow.
const PILOT_SLOW: (f64, f64) = (3.0, 0.01);
/// Samples that are taken though the time is up.
const LEAST: f64 = 5.0;
/// What a sample takes at least: operations are batched until it does.
const SAMPLE_S: f64 = 2e-6;
/// Factor by which samples grow from one check of their precision to the next ([`crate::sample::Plan::growth`]).
const GROWTH: f64 = 1.5;

/// How long a plan takes, about. How precise samples are decides when sampling ends, so there are two ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    /// All of it, in seconds, on a machine so busy that nothing gets precise.
    pub seconds: f64,
    /// On a machine so quiet that everything is precise as soon as it may be.
    pub quiet_seconds: f64,
    /// Without any sampling beyond the least, and with as few launches as carry an interval.
    pub least_seconds: f64,
}

impl Time {
    /// The estimate for a plan, without simulation, whose time cannot be predicted.
    #[must_use]
    pub fn of(plan: &CheckedPlan) -> Self {
        if plan.is_virtual() {
            return Self { seconds: 0.0, quiet_seconds: 0.0, least_seconds: 0.0 };
        }
        let launches = f64::from(plan.launches());
        let budget = plan.values.real("budget");
        let (mut whole, mut quiet, mut least, mut starts) = (0.0, 0.0, 0.0, 0.0);
        for device in plan.devices.iter().filter(|device| !device.is_virtual) {
            let baseline = fabric::baseline(&device.name);
            starts += launch_seconds(baseline);
            for cell in device.cells.clone().filter(|i| !plan.unfit.contains_key(i)).map(|i| &plan.cells[i]) {
                let Some(experiment) = find(&cell.experiment) else { continue };
                let cell = cell_seconds(experiment, cell, baseline, plan);
                least += cell.least;
                quiet += cell.quiet;
                whole += cell.whole;
            }
        }
        let least_seconds = f64::from(fewest(plan)) * (starts + least);
        // Beyond the budget, launches and samples are reduced first.
        let least = Self::deadline(plan).map_or(least_seconds, |deadline| least_seconds.min(deadline));
        let lid = (WALL * budget).max(least);
        let [seconds, quiet_seconds] = [whole, quiet].map(|cells| (launches * (starts + cells)).min(lid));
        Self { seconds, quiet_seconds, least_seconds }
    }

    /// Seconds after which a run ends in any case; `None` if it simulates, or if the number of launches was given: then all
    /// are made.
    #[must_use]
    pub fn deadline(plan: &CheckedPlan) -> Option<f64> {
        let has_deadline = !plan.is_virtual() && !plan.values.is_set("launches");
        has_deadline.then(|| DEADLINE * plan.values.real("budget"))
    }

    /// Why the plan's budget cannot be kept, if it cannot.
    #[must_use]
    pub fn beyond(&self, plan: &CheckedPlan) -> Option<String> {
        let budget = plan.values.real("budget");
        if plan.is_virtual() {
            return None;
        }
        if let Some([client, server]) = plan.values.cores().filter(|[a, b]| a == b && plan.peers.is_empty()) {
            return Some(format!(
                "client and server share core {client}, so each message waits until the scheduler turns to the other: this \
                 takes many times as long as the {budget:.0} s of its budget; give them two cores instead of {client},{server}"
            ));
        }
        (self.least_seconds > WALL * budget).then(|| {
            format!(
                "the budget of {budget:.0} s cannot be kept: {} launches of {} cells take about {:.0} s for setting up and the \
                 fewest samples alone; {}",
                fewest(plan),
                plan.real_cells(),
                self.least_seconds,
                if plan.values.is_set("launches") {
                    "take fewer experiments, sizes or launches"
                } else {
                    "the least important cells are dropped if they would take twice the budget; take fewer experiments or sizes, or \
                     a longer budget (-D SECONDS)"
                }
            )
        })
    }
}

/// Launches that are made though the time is up: all that were asked for, else as many as carry an interval.
fn fewest(plan: &CheckedPlan) -> u32 {
    let launches = plan.launches();
    if plan.values.is_set("launches") { launches } else { launches.min(LAUNCHES_FOR_95 as u32) }
}

/// Seconds of a cell in a launch.
struct CellSeconds {
    /// Set up, with as few samples as there may be.
    least: f64,
    /// With samples until they may end.
    quiet: f64,
    /// With samples until they must.
    whole: f64,
}

fn cell_seconds(
    experiment: &dyn Experiment,
    cell: &Cell,
    baseline: Baseline,
    plan: &CheckedPlan,
) -> CellSeconds {
    let sampling = experiment.sampling(&cell.variant);
    let base = plan.sampling(0, plan.real_cells(), Calibration::default());
    let operation = operation_seconds(experiment, cell, baseline, &plan.settings());
    let setup = setup_seconds(baseline);
    let [soonest, share] = [base.time_min_ns, base.time_max_ns].map(|ns| ns / 1e9);
    let most = sampling.samples.unwrap_or(base.samples_max).min(base.samples_max) as f64;
    let fewest = (sampling.samples.unwrap_or(base.samples_min) as f64).min(most);
    // A caller that states the operations of a sample needs no pilots.
    let batch = if sampling.long { Some(1) } else { base.batch };
    let pilot = match batch {
        Some(_) => 0.0,
        None if operation > PILOT_SLOW.1 => PILOT_SLOW.0,
        None => PILOT,
    };
    let sample = batch.map_or(operation.max(SAMPLE_S), |batch| batch as f64 * operation);
    let first = (1.0 + pilot) * operation;
    let before = if first <= share / 4.0 { first + pilot * operation } else { first };
    let begun = match batch {
        Some(_) => ((share - before) / sample).clamp(LEAST, PILOT),
        None if before < share => PILOT,
        None => LEAST,
    };
    let begun = begun.min(most);
    let mut enough = fewest.max(LEAST);
    while enough < most && before + enough * sample < soonest {
        enough = (enough * GROWTH).min(most);
    }
    let sampled = |samples: f64| setup + before + (samples * sample).min(share - before).max(begun * sample);
    CellSeconds { least: setup + first + LEAST * operation, quiet: sampled(enough), whole: sampled(most) }
}

/// Starting the processes of a launch, calibrating, measuring the noise twice, opening the device.
pub(crate) fn launch_seconds(baseline: Baseline) -> f64 {
    match baseline {
        Baseline::Sockets => 0.2,
        Baseline::Memory | Baseline::None => 0.15,
    }
}

/// Connecting for a cell, announcing its rounds, comparing its contents.
pub(crate) fn setup_seconds(baseline: Baseline) -> f64 {
    match baseline {
        Baseline::Sockets => 0.008,
        Baseline::Memory | Baseline::None => 0.006,
    }
}

/// Seconds of an operation: one message, or one burst.
pub(crate) fn operation_seconds(
    experiment: &dyn Experiment,
    cell: &Cell,
    baseline: Baseline,
    settings: &Settings,
) -> f64 {
    let is_stream = experiment.metric(&cell.variant).unit == "MB/s";
    // A message of a stream does not wait for an answer.
    let (message, byte) = match baseline {
        Baseline::Sockets if is_stream => (1e-6, 0.5e-9),
        Baseline::Sockets => (12e-6, 0.8e-9),
        Baseline::Memory | Baseline::None => (0.5e-6, 0.2e-9),
    };
    let size = cell.size as f64;
    let messages = if is_stream { burst(settings, cell.size as u32) } else { 1 };
    messages as f64 * (message + size * byte)
}

#[cfg(test)]
mod tests {
    use super::super::Plan;
    use super::*;

    fn plan(experiments: &[&str], quick: bool, set: &[(&str, &str)]) -> CheckedPlan {
        Plan {
            experiments: experiments.iter().map(|e| (*e).to_owned()).collect(),
            quick,
            set: set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..Plan::default()
        }
        .check()
        .expect("sound")
    }

    #[test]
    fn what_cannot_be_kept_is_said_before_and_the_defaults_can() {
        let message = |plan: &CheckedPlan| Time::of(plan).beyond(plan);
        for usual in [plan(&[], true, &[]), plan(&[], false, &[]), plan(&["latency"], true, &[])] {
            assert_eq!(message(&usual), None);
        }
        let short = message(&plan(&[], false, &[("budget", "6")])).expect("too short");
        assert!(short.contains("the budget of 6 s cannot be kept: 6 launches of "), "{short}");
        let core = plan(&["latency"], true, &[("cores", "0,0")]);
        assert!(message(&core).is_some_and(|why| why.contains("share core 0")));
    }

    #[test]
    fn more_launches_take_longer_and_the_budget_is_a_lid() {
        let of = |set: &[(&str, &str)]| Time::of(&plan(&["latency"], true, set)).seconds;
        // The time for samples is shared among launches; what each takes to begin is not.
        assert!(of(&[("launches", "12"), ("budget", "900")]) > of(&[("launches", "6"), ("budget", "900")]));
        assert!(of(&[]) <= WALL * 30.0 && of(&[("budget", "900")]) > of(&[]));
        let simulated = Plan { device: "model:mt23108-vapi".to_owned(), ..Plan::default() };
        assert_eq!(Time::of(&simulated.check().expect("sound")).seconds, 0.0);
    }
}
