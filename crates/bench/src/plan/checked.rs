//! [`CheckedPlan`]: what will be measured, cell by cell, device by device.

use std::collections::BTreeMap;
use std::ops::Range;

use super::keys::Values;
use crate::against::Against;
use crate::experiment::{Cell, Settings};
use crate::launch::world::plan as simulated_plan;
use crate::sample;
use crate::token::Token;
use results::schema::Parameter;

/// The shortest time between two reports of what a stream moves: shorter ones would disturb it.
const INTERVAL_MS_MIN: u64 = 100;
/// Samples of a cell whose rate is reported over time, at most: their times fit a line to the orchestrator.
const WATCHED_MAX: u64 = 1 << 21;

/// One device of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// What opens it, with its options.
    pub name: String,
    /// Whether it lives in virtual time: one launch, no floors, no noise.
    pub is_virtual: bool,
    /// Which of the plan's cells are its own.
    pub cells: Range<usize>,
}

/// A plan that can be run.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedPlan {
    /// Devices, in the order in which they were given.
    pub devices: Vec<Chosen>,
    /// `HOST:PORT` of the peers, rank by rank from 1 on; none where all processes are started here.
    pub peers: Vec<String>,
    /// Seed.
    pub seed: u64,
    /// Whether it is a short overview.
    pub quick: bool,
    /// Whether floors were requested explicitly, and are not only bounds of other results.
    pub floors_asked: bool,
    /// Everything to measure, device by device, each in the order of the report; floors and twins included.
    pub cells: Vec<Cell>,
    /// Cells that this machine cannot measure, by number, with the reason: what is needed, what there is.
    pub unfit: BTreeMap<usize, String>,
    /// The effective value of every key.
    pub values: Values,
    /// The effective parameters, with where each came from.
    pub parameters: Vec<Parameter>,
    /// The MPI library measured for comparison with ours, with all that it needs.
    pub against: Option<Against>,
    /// The secret that this user and the peers share, where they have one.
    pub token: Option<Token>,
}

impl CheckedPlan {
    /// Whether all devices live in virtual time.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.devices.iter().all(|d| d.is_virtual)
    }

    /// Launches of each device that is real.
    #[must_use]
    pub fn launches(&self) -> u32 {
        if self.is_virtual() {
            return 1;
        }
        self.values.whole("launches").clamp(1, 1000) as u32
    }

    /// The device of a cell.
    #[must_use]
    pub fn device_of(&self, cell: usize) -> Option<&Chosen> {
        self.devices.iter().find(|d| d.cells.contains(&cell))
    }

    /// Cells of a device that this machine can measure.
    pub(crate) fn fitting(&self, device: &Chosen) -> usize {
        device.cells.clone().filter(|i| !self.unfit.contains_key(i)).count()
    }

    /// Cells that take time of the machine's own, in each launch.
    #[must_use]
    pub fn real_cells(&self) -> usize {
        self.devices.iter().filter(|d| !d.is_virtual).map(|d| self.fitting(d)).sum()
    }

    /// What both sides need to know.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let v = &self.values;
        Settings {
            seed: self.seed,
            window: v.whole("window") as u32,
            burst: v.whole("burst") as u32,
            short: self.quick,
            signal: v.whole("signal") as u32,
            inline: v.whole("inline") as u32,
            connections: v.whole("connections") as u32,
            mops: v.whole("mops") as u32,
            verify: v.on("verify"),
            patience_ms: (v.real("patience") * 1e3) as u64,
        }
    }

    /// Milliseconds between reports of what a stream moves; 0 for none.
    #[must_use]
    pub fn interval_ms(&self) -> u64 {
        let seconds = self.values.real("interval");
        if seconds > 0.0 { ((seconds * 1e3) as u64).max(INTERVAL_MS_MIN) } else { 0 }
    }

    /// How to sample a cell in virtual time: few samples, unless the user gives their number or their batch.
    #[must_use]
    pub(crate) fn simulated_sampling(&self) -> sample::Plan {
        let (v, usual) = (&self.values, simulated_plan(self.seed));
        let given = |key: &str| v.is_set(key).then(|| v.whole(key));
        let samples_min = given("min-count").unwrap_or(usual.samples_min);
        let samples_max = given("max-count").unwrap_or_else(|| samples_min.max(usual.samples_max));
        sample::Plan {
            samples_min: samples_min.min(samples_max),
            samples_max,
            batch: given("batch").filter(|batch| *batch > 0).or(usual.batch),
            ..usual
        }
    }

    /// How to sample a cell in launch number `launch`, in which `cells` cells share the time.
    #[must_use]
    pub fn sampling(&self, launch: u32, cells: usize, clock: sample::Calibration) -> sample::Plan {
        let v = &self.values;
        let share = v.real("budget") * 1e9 / f64::from(self.launches()) / cells.max(1) as f64;
        let (min, max) = (v.whole("min-count"), v.whole("max-count"));
        let interval_ms = self.interval_ms() as f64;
        let is_watched = interval_ms > 0.0;
        let max = if is_watched && !v.is_set("max-count") { WATCHED_MAX } else { max };
        sample::Plan {
            half_width_target: v.real("half-width") / 100.0,
            samples_min: min.min(max),
            samples_max: max,
            // What is watched goes on until its time is up.
            time_min_ns: if is_watched { share } else { 1e7_f64.min(share / 4.0) },
            time_max_ns: share,
            samples_kept_max: max.max(1) as usize,
            round_max: 4096,
            // A report is late by a round at most.
            round_time_ns: is_watched.then(|| (interval_ms * 1e5).min(1e8)),
            batch: Some(v.whole("batch")).filter(|b| *b > 0),
            seed: self.seed.wrapping_add(launch.into()),
            clock,
            ..sample::Plan::default()
        }
    }
}
