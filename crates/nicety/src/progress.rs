//! Progress of a measurement: a live line on a terminal, otherwise plain lines at intervals; always on standard error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bench::experiment::{Cell, find};
use bench::launch::{CellEvent, CellState, Moved, Progress};
use bench::plan::{CheckedPlan, Time};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::number;
use report::{interval_head, interval_line, stream_name};
use results::schema::Measurement;
use results::stats::median;

use crate::term::{Stream, remark};

/// The minimum interval between plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(5);
/// The remaining time is estimated once this share is done.
const GUESS_FROM: f64 = 0.02;

/// The device, if there are several, and the cell.
type Key = (Option<String>, Cell);

/// The display of a run's progress.
pub(crate) struct Display<'a> {
    bar: Option<ProgressBar>,
    began: Instant,
    /// The estimate for the whole run, which counts until the run itself shows how long it takes.
    expected: Option<Duration>,
    /// When the run ends in any case, from its beginning.
    deadline: Option<Duration>,
    /// When the last plain line was written.
    spoke: Option<Instant>,
    /// The number of cells.
    total: u64,
    /// Cells that were completed before this display began.
    before: Option<u64>,
    /// The values of each cell in the launches so far.
    values: BTreeMap<Key, Vec<f64>>,
    /// The reasons why cells were skipped, per device: each is printed once, for its first cell; the report counts the cells.
    skipped: BTreeSet<(Option<String>, String)>,
    stop: &'a AtomicBool,
    /// Whether the remark that the run is stopping was printed.
    stopping: bool,
    /// Whether results so far are kept when the run is stopped.
    keeps: bool,
    /// Whether to print what devices chose and which cells are skipped.
    verbose: bool,
    /// Where to print what streams move over time, if anywhere.
    moved_to: Option<Stream>,
    /// The stream and the launch whose head was printed last.
    head: String,
}

impl<'a> Display<'a> {
    /// A live line if standard error is a terminal and `plain` is false.
    pub(crate) fn new(plain: bool, stop: &'a AtomicBool) -> Self {
        let live = !plain && Stream::Err.is_terminal();
        Self {
            bar: live.then(live_line),
            began: Instant::now(),
            expected: None,
            deadline: None,
            spoke: None,
            total: 0,
            before: None,
            values: BTreeMap::new(),
            skipped: BTreeSet::new(),
            stop,
            stopping: false,
            keeps: true,
            verbose: false,
            moved_to: None,
            head: String::new(),
        }
    }

    /// Announces the estimated time of a plan until more is known, and at most the time to its deadline.
    pub(crate) fn expecting(self, plan: &CheckedPlan) -> Self {
        let seconds = Time::of(plan).seconds;
        let expected = (seconds > 0.0).then(|| Duration::from_secs_f64(seconds));
        Self { expected, deadline: Time::deadline(plan).map(Duration::from_secs_f64), ..self }
    }

    /// Prints a line for each interval (`--interval`) to this stream, if they are measured.
    pub(crate) fn with_intervals_on(self, stream: Option<Stream>) -> Self {
        Self { moved_to: stream, ..self }
    }

    /// Also prints what devices chose, and which cells are skipped and why; the results contain both.
    pub(crate) fn verbose(self, verbose: bool) -> Self {
        Self { verbose, ..self }
    }

    /// For measurements whose partial results are discarded.
    pub(crate) fn all_or_nothing(self) -> Self {
        Self { keeps: false, ..self }
    }

    /// Prints a remark above the live line.
    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| remark(text)),
            None => remark(text),
        }
    }

    /// Removes the live line.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// The median over the launches so far, with its unit.
    fn running(&self, key: &Key) -> Option<String> {
        let (mut values, cell) = (self.values.get(key)?.clone(), &key.1);
        results::stats::sort(&mut values);
        let unit = bench::experiment::find(&cell.experiment)?.metric(&cell.variant).unit;
        Some(shown(median(&values)?, unit))
    }
}

impl Progress for Display<'_> {
    fn plan(&mut self, cells: u64) {
        self.total = cells;
        if let Some(bar) = &self.bar {
            bar.set_length(cells);
        }
    }

    fn cell(&mut self, what: &CellEvent<'_>) {
        let key = (what.device.map(str::to_owned), what.cell.clone());
        match what.state {
            CellState::Measured { value, .. } => self.values.entry(key.clone()).or_default().push(value),
            CellState::Skipped { why }
                if self.verbose && self.skipped.insert((key.0.clone(), why.to_owned())) =>
            {
                self.say(&format!("left out {}{}: {why}", on(what.device), what.cell));
            }
            CellState::Skipped { .. } | CellState::Began => {}
        }
        if self.stop.load(Ordering::Relaxed) && !self.stopping {
            self.stopping = true;
            self.say(if self.keeps {
                "stopping; what was measured is kept; Ctrl-C again ends immediately"
            } else {
                "stopping when the cells under way are measured; Ctrl-C again ends immediately"
            });
        }
        let before = *self.before.get_or_insert(if what.state == CellState::Began { what.done } else { 0 });
        let (done, total) = (what.done.saturating_sub(before), self.total.saturating_sub(before));
        let left = rest(done, total, (self.expected, self.deadline), self.began.elapsed());
        let value = match what.state {
            // With a single launch, the cell may be measured on several devices, and a median over these makes no sense.
            CellState::Measured { value, unit } if what.launches == 1 => Some(shown(value, unit)),
            _ => self.running(&key),
        };
        let text = describe(what, value, left);
        if let Some(bar) = &self.bar {
            bar.set_position(what.done);
            bar.set_message(results::plain::line(&text));
        } else if due(self.spoke.map(|spoke| spoke.elapsed())) {
            self.spoke = Some(Instant::now());
            remark(format_args!("{}/{} {text}", what.done, self.total));
        }
    }

    fn moved(&mut self, what: &Moved<'_>) {
        let Some(stream) = self.moved_to else { return };
        let name = format!("{}, launch {}", stream_name(&unmeasured(what.device, what.cell)), what.launch);
        let mut text = interval_line(what.interval);
        if self.head != name {
            text.insert_str(0, &interval_head(&name));
            self.head = name;
        }
        // That the stream is full or closed is noticed when the results are printed.
        match &self.bar {
            Some(bar) => bar.suspend(|| drop(stream.print(&text))),
            None => drop(stream.print(&text)),
        }
    }

    fn note(&mut self, text: &str) {
        self.say(text);
    }

    fn chosen(&mut self, text: &str) {
        if self.verbose {
            self.say(text);
        }
    }
}

/// The line of a terminal that shows the progress.
fn live_line() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    let colour = if Stream::Err.colour() { "{bar:12.cyan/dim}" } else { "{bar:12}" };
    // The default style is used if the template does not parse.
    let style = ProgressStyle::with_template(&format!("{colour} {{pos}}/{{len}} {{wide_msg}}"));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Whether it is time for another plain line.
fn due(since: Option<Duration>) -> bool {
    since.is_none_or(|since| since >= PLAIN_EVERY)
}

/// `about 40 s left: latency write nic 8 B, 0.52 us, launch 2 of 6`: a narrow terminal cuts off the end.
fn describe(what: &CellEvent<'_>, median: Option<String>, left: Option<Duration>) -> String {
    let left = left.map(|left| format!("about {} left: ", spoken(left))).unwrap_or_default();
    let median = median.map(|median| format!(", {median}")).unwrap_or_default();
    let CellEvent { cell, launch, launches, device, .. } = what;
    let on = on(*device);
    // Virtual time has only one launch, so its number is not shown.
    let launch = if *launches > 1 { format!(", launch {launch} of {launches}") } else { String::new() };
    format!("{left}{on}{cell}{median}{launch}")
}

/// A cell as a result without values, for its name; the device if there are several.
fn unmeasured(device: Option<&str>, cell: &Cell) -> Measurement {
    let metric = find(&cell.experiment).map(|experiment| experiment.metric(&cell.variant).name);
    Measurement {
        experiment: cell.experiment.clone(),
        device: device.unwrap_or_default().to_owned(),
        variant: cell.variant.clone(),
        size_bytes: cell.size,
        metric: metric.unwrap_or_default().to_owned(),
        ..Measurement::default()
    }
}

/// `shm: ` in front of a cell, if there are several devices.
fn on(device: Option<&str>) -> String {
    device.map_or_else(String::new, |name| format!("{name}: "))
}

/// The remaining time: from the estimate first, then from the progress so far; at most the time to the deadline.
fn rest(
    done: u64,
    total: u64,
    (expected, deadline): (Option<Duration>, Option<Duration>),
    elapsed: Duration,
) -> Option<Duration> {
    let share = done as f64 / total.max(1) as f64;
    let left = match share {
        _ if share >= 1.0 => return None,
        _ if share < GUESS_FROM => expected?.saturating_sub(elapsed),
        _ => elapsed.mul_f64((1.0 - share) / share),
    };
    Some(deadline.map_or(left, |deadline| left.min(deadline.saturating_sub(elapsed))))
}

/// A value in the unit of the results, in ASCII.
fn shown(value: f64, unit: &str) -> String {
    number::value(value, unit).replace('µ', "u")
}

/// A duration rounded to about ten per cent, the accuracy of the estimate.
fn spoken(span: Duration) -> String {
    match span.as_secs() {
        s @ 0..10 => format!("{} s", s.max(1)),
        s @ 10..60 => format!("{} s", (s + 2) / 5 * 5),
        s @ 60..600 => format!("{}:{:02} min", s / 60, s % 60 / 10 * 10),
        s => format!("{} min", s / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_in_words() {
        let cell = Cell { experiment: "latency".to_owned(), size: 8, ..Cell::default() };
        let what =
            CellEvent { launch: 2, launches: 6, done: 1, device: None, cell: &cell, state: CellState::Began };
        let text = describe(&what, Some("0.5 us".to_owned()), Some(Duration::from_secs(30)));
        assert!(text.starts_with("about 30 s left: latency"), "{text}");
        assert!(text.ends_with("8 B, 0.5 us, launch 2 of 6"), "{text}");
        let text = describe(&CellEvent { device: Some("iwarp"), ..what }, None, None);
        assert!(text.starts_with("iwarp: latency"), "{text}");
    }

    #[test]
    fn the_rest_is_guessed_from_what_is_done() {
        let secs = Duration::from_secs;
        assert_eq!(rest(1, 4, (None, None), secs(10)), Some(secs(30)));
        for (done, total) in [(0, 4), (4, 4), (0, 0), (1, 1000)] {
            assert_eq!(rest(done, total, (None, None), secs(9)), None);
        }
        assert_eq!(
            rest(0, 1000, (Some(secs(22)), None), secs(2)),
            Some(secs(20)),
            "the estimate comes first"
        );
        assert_eq!(rest(500, 1000, (Some(secs(22)), None), secs(40)), Some(secs(40)));
        assert_eq!(rest(4, 4, (Some(secs(22)), None), secs(9)), None);
    }

    #[test]
    fn rest_of_a_slow_run_ends_at_its_deadline() {
        let secs = Duration::from_secs;
        let left = |done, elapsed| rest(done, 1000, (Some(secs(22)), Some(secs(44))), secs(elapsed));
        assert_eq!(left(30, 12), Some(secs(32)));
        assert_eq!(left(900, 36), Some(secs(4)));
        assert_eq!(left(900, 45), Some(secs(0)));
    }

    #[test]
    fn durations_for_people() {
        let cases = [(0, "1 s"), (9, "9 s"), (12, "10 s"), (58, "60 s"), (95, "1:30 min"), (3600, "60 min")];
        for (seconds, text) in cases {
            assert_eq!(spoken(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn plain_lines_are_seldom() {
        assert!(due(None));
        assert!(!due(Some(Duration::from_secs(4))));
        assert!(due(Some(Duration::from_secs(5))));
    }
}
