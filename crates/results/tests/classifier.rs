//! `compare_runs` as a classifier. 66 launches of 32 cells were recorded, all of one build, on a virtual machine with
//! two cores partly used by other work; so some cells are steady and others not. Two runs are two stretches of the
//! recording, and a known shift is added to the second. So every alarm without a shift is false, and every shift
//! without an alarm is missed.
//!
//! A line of the recording is a cell: its unit, its name, and the median of each launch in order.

use results::schema::{ClockKind, Launch, Measurement, Run};
use results::stats::{CompareOptions, Comparison, Rng, Verdict, compare_runs};
use results::variant::{factor, variant};

const RECORDED: &str = include_str!("data/launches.csv");

/// Pairs of runs for each shift.
const PAIRS: usize = 200;
/// Launches of a run.
const LAUNCHES: usize = 11;
/// The middle half of the launches of a steady cell is within this share of their median.
const STEADY: f64 = 0.04;

/// A recorded cell.
struct Cell {
    unit: &'static str,
    name: &'static str,
    medians: Vec<f64>,
}

fn read(text: &'static str) -> Vec<Cell> {
    let cell = |line: &'static str| {
        let mut fields = line.split(',');
        let mut word = || fields.next().expect("a field");
        let (unit, name) = (word(), word());
        Cell { unit, name, medians: fields.map(|field| field.parse().expect("a median")).collect() }
    };
    text.lines().map(cell).collect()
}

/// The run that the launches from `first` on are, slower by `shift`.
fn run(cells: &[Cell], first: usize, shift: f64) -> Run {
    let result = |cell: &Cell| {
        let slower =
            |median: &f64| if cell.unit == "us" { median * (1.0 + shift) } else { median / (1.0 + shift) };
        let medians: Vec<f64> = cell.medians[first..first + LAUNCHES].iter().map(slower).collect();
        Measurement {
            device: "shm".to_owned(),
            variant: variant(&[(factor::WHAT, cell.name)]),
            unit: cell.unit.to_owned(),
            clock: ClockKind::Tsc,
            median: results::stats::median(&{
                let mut sorted = medians.clone();
                results::stats::sort(&mut sorted);
                sorted
            })
            .expect("launches"),
            launches: medians.iter().map(|m| Launch { median: *m, ..Launch::default() }).collect(),
            ..Measurement::default()
        }
    };
    Run { results: cells.iter().map(result).collect(), ..Run::default() }
}

/// What became of the pairs of one shift.
#[derive(Debug, Default)]
struct Tally {
    cells: usize,
    worse: usize,
    better: usize,
    same: usize,
    /// Pairs with a cell that is worse or better.
    alarmed: usize,
}

impl Tally {
    fn add(&mut self, compared: &Comparison) {
        let [worse, better, same] =
            [Verdict::Worse, Verdict::Better, Verdict::Same].map(|v| compared.count(v));
        self.cells += compared.cells.len();
        self.worse += worse;
        self.better += better;
        self.same += same;
        self.alarmed += usize::from(worse + better > 0);
    }
}

/// Compares random, disjoint stretches of a recording.
fn classify(cells: &[Cell], shift: f64) -> Tally {
    let (mut rng, mut tally) = (Rng::new(1), Tally::default());
    let length = cells[0].medians.len();
    for _ in 0..PAIRS {
        let apart = |a: usize, b: usize| a.abs_diff(b) >= LAUNCHES;
        let mut start = || rng.below((length - LAUNCHES + 1) as u64) as usize;
        let (old, new) = loop {
            let (old, new) = (start(), start());
            if apart(old, new) {
                break (old, new);
            }
        };
        tally.add(&compare_runs(&run(cells, old, 0.0), &run(cells, new, shift), &CompareOptions::default()));
    }
    tally
}

fn table(name: &str, cells: &[Cell]) -> [Tally; 4] {
    [0.0, 0.05, 0.1, 0.3].map(|shift| {
        let tally = classify(cells, shift);
        println!("{name}, slower by {:.0} %: {tally:?}", 100.0 * shift);
        tally
    })
}

fn is_steady(cell: &Cell) -> bool {
    let mut sorted = cell.medians.clone();
    results::stats::sort(&mut sorted);
    let median = results::stats::median(&sorted).expect("launches");
    results::stats::iqr(&sorted).expect("launches") < STEADY * median
}

#[test]
fn recorded_shifts_are_found_in_steady_cells_and_nothing_else_is() {
    let mut cells = read(RECORDED);
    cells.retain(is_steady);
    assert!(cells.len() >= 3, "{}", cells.len());
    let [none, at_threshold, ten, thirty] = table("steady cells", &cells);
    assert!(none.alarmed <= 2, "{none:?}");
    assert_eq!((at_threshold.better, ten.better, thirty.better), (0, 0, 0));
    assert!(20 * ten.worse >= 17 * ten.cells && ten.same == 0, "{ten:?}");
    assert_eq!(thirty.worse, thirty.cells, "{thirty:?}");
}

/// Noise may take the verdict away. It makes no shift "same", and raises no alarm.
#[test]
fn recorded_noise_makes_no_alarm_and_nothing_the_same() {
    let [none, _, ten, thirty] = table("all cells", &read(RECORDED));
    assert!(none.alarmed <= 2, "{none:?}");
    assert_eq!((ten.same, thirty.same, ten.better, thirty.better), (0, 0, 0, 0));
}
