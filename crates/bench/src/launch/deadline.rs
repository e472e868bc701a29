//! [`Deadline`]: a run ends within twice its budget, however busy the machine is. The least important cells are dropped for that,
//! and launches where that is not enough.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::floor::FLOOR;
use crate::plan::{CheckedPlan, DEADLINE, SHARE_MIN};
use results::stats::LAUNCHES_FOR_95;

/// The part of the time in which the first launch shows how fast the machine is, before it is cut.
const FIRST: f64 = 0.25;

/// When a run has to end, and which of its cells are most important.
pub(super) struct Deadline {
    /// Seconds from the beginning of the run.
    seconds: f64,
    budget: f64,
    launches: u32,
    /// Cells, the most important first.
    cells: Vec<usize>,
}

/// How a launch went.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Until the processes had started and opened the device.
    pub(super) start: Duration,
    /// All of the launch.
    pub(super) took: Duration,
    /// Cells that were measured or skipped.
    pub(super) cells: usize,
    /// The launch was ended before all cells had their turn.
    pub(super) cut: bool,
}

impl Deadline {
    /// The deadline of a plan; `None` if the number of launches was given, as then all launches are made.
    pub(super) fn of(plan: &CheckedPlan) -> Option<Self> {
        if plan.is_virtual() || plan.values.is_set("launches") {
            return None;
        }
        let budget = plan.values.real("budget");
        Some(Self {
            seconds: DEADLINE * budget,
            budget,
            launches: plan.launches(),
            cells: by_importance(plan),
        })
    }

    /// Until when, from the beginning of the run, a launch may take; `known` once a launch has shown the pace.
    pub(super) fn limit(&self, known: bool) -> Duration {
        Duration::from_secs_f64(if known { self.seconds } else { FIRST * self.seconds })
    }

    /// The cells to drop before launch `number`, so that as many launches as an interval needs end in time: the least
    /// important cells not in `never`. `devices` have a launch each; the last launch had pace `pace` and spent
    /// `share` of its time on samples.
    pub(super) fn dropped(
        &self,
        (number, devices): (u32, usize),
        gone: Duration,
        (pace, share): (Pace, f64),
        never: &BTreeSet<usize>,
    ) -> Vec<usize> {
        let left: Vec<usize> = self.cells.iter().copied().filter(|cell| !never.contains(cell)).collect();
        let rounds = self.launches.min(LAUNCHES_FOR_95 as u32).saturating_sub(number).max(1);
        let each = (self.seconds - gone.as_secs_f64()) / f64::from(rounds);
        let starts = devices as f64 * pace.start.as_secs_f64();
        let room = (each - starts) / self.cell_seconds(pace, share, left.len());
        // One is measured in any case.
        let kept = if room.is_finite() { (room.max(1.0) as usize).min(left.len()) } else { left.len() };
        left[kept..].to_vec()
    }

    /// Seconds of a cell with the fewest samples, where cells took as long as at `pace`.
    fn cell_seconds(&self, pace: Pace, share: f64, cells: usize) -> f64 {
        let sampling = self.budget / f64::from(self.launches) / cells.max(1) as f64;
        let took = pace.took.saturating_sub(pace.start).as_secs_f64() / pace.cells.max(1) as f64;
        (took - share * sampling).max(0.0) + SHARE_MIN * sampling
    }

    /// The message to the user about dropped cells.
    pub(super) fn remark(&self, dropped: usize, of: usize) -> String {
        format!(
            "dropping {dropped} of {of} cells, the least important: the machine is too busy to measure all of them within {:.0} s, \
             twice the budget; --launches {} insists on all, -D SECONDS gives more time",
            self.seconds, self.launches
        )
    }

    /// Why a cell was dropped, for the results.
    pub(super) fn reason(&self) -> String {
        format!(
            "dropped, as the machine was too busy to measure all cells within {:.0} s, twice the budget",
            self.seconds
        )
    }
}

/// The cells of real devices, the most important first: of each experiment in turn the next one, then floors and repetitions, which
/// results are compared with.
fn by_importance(plan: &CheckedPlan) -> Vec<usize> {
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut first: Vec<(&str, &str)> = Vec::new();
    let mut last = Vec::new();
    for device in plan.devices.iter().filter(|device| !device.is_virtual) {
        for index in device.cells.clone().filter(|index| !plan.unfit.contains_key(index)) {
            let cell = &plan.cells[index];
            if cell.twin || cell.experiment == FLOOR && !plan.floors_asked {
                last.push(index);
                continue;
            }
            let group = (device.name.as_str(), cell.experiment.as_str());
            let at = first.iter().position(|known| *known == group).unwrap_or_else(|| {
                first.push(group);
                first.len() - 1
            });
            groups.entry(at).or_default().push(index);
        }
    }
    let longest = groups.values().map(Vec::len).max().unwrap_or(0);
    let mut all: Vec<usize> = (0..longest)
        .flat_map(|turn| groups.values().filter_map(move |cells| cells.get(turn).copied()))
        .collect();
    all.extend(last);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    fn plan(set: &[(&str, &str)]) -> CheckedPlan {
        let set = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Plan { quick: true, set, ..Plan::default() }.check().expect("sound")
    }

    fn pace(start: f64, took: f64, cells: usize) -> Pace {
        let [start, took] = [start, took].map(Duration::from_secs_f64);
        Pace { start, took, cells, cut: false }
    }

    #[test]
    fn given_number_of_launches_has_no_deadline() {
        assert!(Deadline::of(&plan(&[("launches", "6")])).is_none());
        assert!(Deadline::of(&plan(&[])).is_some());
    }

    #[test]
    fn each_experiment_comes_before_the_second_cell_of_any_and_floors_come_last() {
        let plan = plan(&[]);
        let deadline = Deadline::of(&plan).expect("a deadline");
        let names =
            |cells: &[usize]| cells.iter().map(|i| plan.cells[*i].experiment.clone()).collect::<Vec<_>>();
        let asked: BTreeSet<String> =
            plan.cells.iter().filter(|c| c.experiment != FLOOR).map(|c| c.experiment.clone()).collect();
        let first: BTreeSet<String> = names(&deadline.cells[..asked.len()]).into_iter().collect();
        assert_eq!(first, asked);
        assert_eq!(deadline.cells.len(), plan.real_cells());
        let is_extra = |i: &usize| plan.cells[*i].twin || plan.cells[*i].experiment == FLOOR;
        let split = deadline.cells.iter().position(is_extra).unwrap_or(deadline.cells.len());
        assert!(deadline.cells[split..].iter().all(is_extra));
    }

    #[test]
    fn nothing_is_dropped_on_a_machine_that_keeps_up() {
        let deadline = Deadline::of(&plan(&[])).expect("a deadline");
        let (cells, each) = (deadline.cells.len(), deadline.budget / f64::from(deadline.launches));
        let pace = pace(0.15, 1.1 * each, cells);
        for number in 1..deadline.launches {
            let gone = Duration::from_secs_f64(1.1 * each * f64::from(number));
            assert_eq!(deadline.dropped((number, 1), gone, (pace, 1.0), &BTreeSet::new()), [0; 0]);
        }
    }

    #[test]
    fn what_remains_ends_in_time_on_a_slow_machine() {
        let deadline = Deadline::of(&plan(&[])).expect("a deadline");
        // A launch that was cut after a quarter of the time, with a second and more for each cell.
        let (gone, pace) = (deadline.limit(false), pace(0.5, 10.5, 8));
        let dropped = deadline.dropped((0, 1), gone, (pace, 1.0), &BTreeSet::new());
        let kept = deadline.cells.len() - dropped.len();
        assert!((1..8).contains(&kept), "{kept}");
        assert_eq!(dropped, deadline.cells[kept..], "the least important");
        let cell = 10.0 / 8.0;
        assert!(gone.as_secs_f64() + 6.0 * (0.5 + kept as f64 * cell) < 1.2 * deadline.seconds);
        let never: BTreeSet<usize> = dropped.into_iter().collect();
        let none_left = deadline.dropped((5, 1), Duration::from_secs(1000), (pace, 1.0), &never);
        assert_eq!(none_left.len(), kept - 1, "one is measured in any case");
    }
}
