//! What `--dry-run` says of a plan's time, held against the sampler at work where work is counted and no clock runs.

use super::{CheckedPlan, is_enough, next_share};
use crate::experiment::driver::plan_for;
use crate::experiment::{Cell, find};
use crate::plan::{Plan, Time, launch_seconds, operation_seconds, setup_seconds};
use crate::sample::{Calibration, Sampler};
use results::schema::ClockKind;
use results::stats::{Draw as _, Rng};
use std::time::Duration;

/// The estimate may be off by this fraction, either way.
const OFF: f64 = 1.0 / 3.0;
/// A time-stamp counter's.
const CLOCK: Calibration = Calibration { kind: ClockKind::Tsc, overhead_ns: 15.0, resolution_ns: 1.0 };

fn plan(device: &str, experiments: &[&str], quick: bool, set: &[(&str, &str)]) -> CheckedPlan {
    let plan = Plan {
        experiments: experiments.iter().map(|&name| name.to_owned()).collect(),
        device: device.to_owned(),
        quick,
        set: set.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
        ..Plan::default()
    };
    plan.check().expect("sound")
}

/// Seconds of a cell: set up, and sampled by the sampler, whose samples take as long as operations do, times a draw.
fn cell_seconds(
    plan: &CheckedPlan,
    cell: &Cell,
    share: f64,
    rng: &mut Rng,
    draw: fn(&mut Rng) -> f64,
) -> f64 {
    let experiment = find(&cell.experiment).expect("an experiment");
    let device = plan.devices.first().expect("a device");
    let kind = fabric::baseline(&device.name);
    let operation_ns = 1e9 * operation_seconds(experiment, cell, kind, &plan.settings());
    let mut base = plan.sampling(0, plan.real_cells(), CLOCK);
    base.time_max_ns *= share;
    base.time_min_ns *= share;
    let mut sampler = Sampler::new(plan_for(experiment, &cell.variant, &base));
    let mut total_ns = 0.0;
    while let Some(round) = sampler.next_round() {
        let samples = (0..round.samples).map(|_| round.batch as f64 * operation_ns * draw(rng));
        let samples: Vec<f64> = samples.collect();
        total_ns += samples.iter().sum::<f64>();
        sampler.push(&samples).expect("durations");
    }
    setup_seconds(kind) + total_ns / 1e9
}

/// Seconds of a run: launch by launch, each with the share of its time that the ones before leave it.
fn counted(plan: &CheckedPlan, draw: fn(&mut Rng) -> f64) -> f64 {
    let (budget, launches) = (plan.values.real("budget"), plan.launches());
    let (mut rng, mut gone, mut took, mut share) = (Rng::new(7), 0.0, 0.0, 1.0);
    let cells = plan.cells.iter().enumerate().filter(|(index, _)| !plan.unfit.contains_key(index));
    let cells: Vec<&Cell> = cells.map(|(_, cell)| cell).collect();
    for number in 0..launches {
        if number > 0 {
            let spent = (Duration::from_secs_f64(gone), Duration::from_secs_f64(took));
            if !plan.values.is_set("launches") && is_enough(budget, number, spent) {
                break;
            }
            share = next_share(budget, (number, launches), share, spent);
        }
        let device = plan.devices.first().expect("a device");
        took = launch_seconds(fabric::baseline(&device.name))
            + cells.iter().map(|cell| cell_seconds(plan, cell, share, &mut rng, draw)).sum::<f64>();
        gone += took;
    }
    // Beyond that, cells are dropped.
    Time::deadline(plan).map_or(gone, |deadline| gone.min(deadline))
}

/// Goal: `--dry-run` shows how long to wait. Method: plans of all kinds, on a machine whose samples are precise
/// immediately, and on one whose samples never are; the sampler decides, and the time of its samples is added up.
#[test]
fn the_estimate_is_within_a_third() {
    let quiet = |rng: &mut Rng| 1.0 + 0.002 * rng.normal();
    let busy = |rng: &mut Rng| 0.1 + 1.8 * rng.unit();
    for plan in [
        plan("shm", &[], true, &[]),
        plan("shm", &[], true, &[("budget", "3"), ("launches", "6")]),
        plan("iwarp", &[], true, &[]),
        plan("shm", &["latency"], true, &[]),
        plan("shm", &["latency"], true, &[("launches", "12"), ("half-width", "5")]),
        plan("shm", &["bandwidth", "rate"], false, &[("budget", "30")]),
        plan("iwarp", &["bandwidth"], true, &[("window", "8")]),
        plan("shm", &["park", "memory"], true, &[]),
        plan("shm", &["latency"], true, &[("min-count", "1000"), ("max-count", "1000")]),
    ] {
        let time = Time::of(&plan);
        for (how, said, found) in [
            ("quiet", time.quiet_seconds, counted(&plan, quiet)),
            ("busy", time.seconds, counted(&plan, busy)),
        ] {
            let off = said / found - 1.0;
            let name = format!("{how}: {} cells, {} launches", plan.real_cells(), plan.launches());
            assert!(off.abs() <= OFF, "{name}: {said:.1} s said, {found:.1} s counted");
        }
    }
}
