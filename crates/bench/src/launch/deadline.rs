//! [`Deadline`]: a run ends within twice its budget, however busy the machine is. The least important cells are dropped for that,
//! and launches where that is not enough.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::floor::FLOOR;
use crate::plan::{CheckedPlan, SHARE_MIN, Time};
use results::stats::LAUNCHES_FOR_95;

/// The part of the time in which the first launch shows how fast the machine is, before it is cut.
const FIRST: f64 = 0.25;
/// The time for the client to end in order when a launch is cut: at most this many seconds, and this part of the deadline.
const STOPPING: (f64, f64) = (1.0, 0.05);

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
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// Until the processes had started and opened the device.
    pub(super) start: Duration,
    /// What each cell took that was measured or skipped; of other cells, what it took in earlier launches.
    pub(super) cells: BTreeMap<usize, Duration>,
    /// The launch was ended before all cells had their turn.
    pub(super) cut: bool,
}

impl Pace {
    /// This pace, with what is known of other cells from before.
    pub(super) fn since(mut self, before: Option<Self>) -> Self {
        for (cell, took) in before.map(|before| before.cells).unwrap_or_default() {
            self.cells.entry(cell).or_insert(took);
        }
        self
    }
}

impl Deadline {
    /// The deadline of a plan; `None` if the number of launches was given, as then all launches are made.
    pub(super) fn of(plan: &CheckedPlan) -> Option<Self> {
        Some(Self {
            seconds: Time::deadline(plan)?,
            budget: plan.values.real("budget"),
            launches: plan.launches(),
            cells: by_importance(plan),
        })
    }

    /// What is left of an estimate in seconds: the run ends at the deadline in any case.
    pub(super) fn cap(&self, seconds: f64) -> f64 {
        seconds.min(self.seconds)
    }

    /// Until when, from the beginning of the run, a launch may take; `known` once a launch has shown the pace.
    pub(super) fn limit(&self, known: bool) -> Duration {
        let end = Duration::from_secs_f64(self.seconds) - self.stop_patience();
        if known { end } else { Duration::from_secs_f64(FIRST * self.seconds) }
    }

    /// How long the client may take to end in order when a launch is cut. The deadline includes this time.
    pub(super) fn stop_patience(&self) -> Duration {
        let (most, share) = STOPPING;
        Duration::from_secs_f64(most.min(share * self.seconds))
    }

    /// The cells to drop before launch `number`, so that as many launches as an interval needs end in time: the least
    /// important cells not in `never`. `devices` have a launch each; the last launch had pace `pace` and spent
    /// `share` of its time on samples.
    pub(super) fn dropped(
        &self,
        (number, devices): (u32, usize),
        gone: Duration,
        (pace, share): (&Pace, f64),
        never: &BTreeSet<usize>,
    ) -> Vec<usize> {
        let left: Vec<usize> = self.cells.iter().copied().filter(|cell| !never.contains(cell)).collect();
        let rounds = self.launches.min(LAUNCHES_FOR_95 as u32).saturating_sub(number).max(1);
        let each = (self.seconds - gone.as_secs_f64()) / f64::from(rounds);
        let mut room = each - devices as f64 * pace.start.as_secs_f64();
        let least = self.cell_seconds(pace, share, left.len());
        let fits = |cell: &usize| {
            room -= least(*cell);
            room >= 0.0
        };
        // One is measured in any case.
        let kept = left.iter().copied().take_while(fits).count().max(1).min(left.len());
        left[kept..].to_vec()
    }

    /// Seconds of each cell with the fewest samples. A cell that was not measured yet takes as long as others on average.
    fn cell_seconds(&self, pace: &Pace, share: f64, cells: usize) -> impl Fn(usize) -> f64 {
        let sampling = self.budget / f64::from(self.launches) / cells.max(1) as f64;
        let known = pace.cells.values().map(Duration::as_secs_f64);
        let usual = known.clone().sum::<f64>() / known.len().max(1) as f64;
        move |cell| {
            let took = pace.cells.get(&cell).map_or(usual, Duration::as_secs_f64);
            (took - share * sampling).max(0.0) + SHARE_MIN * sampling
        }
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

    /// A launch that took `took` in all. The first `cells` cells of the plan shared the time after `start` equally.
    fn pace(start: f64, took: f64, cells: usize) -> Pace {
        let each = Duration::from_secs_f64((took - start) / cells as f64);
        let cells = (0..cells).map(|cell| (cell, each)).collect();
        Pace { start: Duration::from_secs_f64(start), cells, cut: false }
    }

    #[test]
    fn given_number_of_launches_has_no_deadline() {
        assert!(Deadline::of(&plan(&[("launches", "6")])).is_none());
        assert!(Deadline::of(&plan(&[])).is_some());
    }

    #[test]
    fn launch_that_is_cut_ends_at_the_deadline() {
        for budget in ["3", "22", "220"] {
            let deadline = Deadline::of(&plan(&[("budget", budget)])).expect("a deadline");
            let end = deadline.limit(true) + deadline.stop_patience();
            assert_eq!(end, Duration::from_secs_f64(deadline.seconds), "{budget}");
            assert!(deadline.stop_patience() <= Duration::from_secs(1));
        }
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
            assert_eq!(deadline.dropped((number, 1), gone, (&pace, 1.0), &BTreeSet::new()), [0; 0]);
        }
    }

    /// Goal: few slow cells do not cost many fast ones. Method: the least important tenth of the cells takes as long as the whole run may.
    #[test]
    fn slow_cells_are_dropped_and_fast_ones_stay() {
        let deadline = Deadline::of(&plan(&[])).expect("a deadline");
        let split = deadline.cells.len() * 9 / 10;
        let took = |slow: bool| Duration::from_secs_f64(if slow { deadline.seconds } else { 0.01 });
        let cells = deadline.cells.iter().enumerate().map(|(at, cell)| (*cell, took(at >= split))).collect();
        let pace = Pace { start: Duration::from_millis(150), cells, cut: true };
        let dropped = deadline.dropped((0, 1), deadline.limit(false), (&pace, 1.0), &BTreeSet::new());
        assert_eq!(dropped, deadline.cells[split..]);
    }

    #[test]
    fn cell_that_this_launch_did_not_reach_keeps_its_cost() {
        let (before, now) = (pace(0.1, 4.1, 4), pace(0.2, 2.2, 2));
        let known = now.since(Some(before));
        assert_eq!(known.start, Duration::from_millis(200));
        assert_eq!(
            (known.cells[&1], known.cells[&3], known.cells.len()),
            (Duration::from_secs(1), Duration::from_secs(1), 4)
        );
    }

    #[test]
    fn what_remains_ends_in_time_on_a_slow_machine() {
        let deadline = Deadline::of(&plan(&[])).expect("a deadline");
        // A launch that was cut after a quarter of the time, with a second and more for each cell.
        let (gone, pace) = (deadline.limit(false), pace(0.5, 10.5, 8));
        let dropped = deadline.dropped((0, 1), gone, (&pace, 1.0), &BTreeSet::new());
        let kept = deadline.cells.len() - dropped.len();
        assert!((1..8).contains(&kept), "{kept}");
        assert_eq!(dropped, deadline.cells[kept..], "the least important");
        let cell = 10.0 / 8.0;
        assert!(gone.as_secs_f64() + 6.0 * (0.5 + kept as f64 * cell) < 1.2 * deadline.seconds);
        let never: BTreeSet<usize> = dropped.into_iter().collect();
        let none_left = deadline.dropped((5, 1), Duration::from_secs(1000), (&pace, 1.0), &never);
        assert_eq!(none_left.len(), kept - 1, "one is measured in any case");
    }
}
