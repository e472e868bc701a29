//! Runs end to end: real processes, the shared-memory device, few samples. What is checked is that a run is complete
//! and that failures are named and leave nothing behind; never how long anything takes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::launch::{BenchError, CellEvent, CellState, Progress, WorkerCommand, run_with, worker_main};
use bench::plan::{CheckedPlan, Plan};
use bench::schema::{Measurement, Run};

/// Not a test: what the workers of the tests run, as a test binary has no other way to be started.
#[test]
#[ignore = "the entry of worker processes, started by the other tests"]
fn worker_entry() {
    assert!(format!("{:?}", worker_main()).contains("0"));
}

fn command() -> WorkerCommand {
    let program = std::env::current_exe().expect("this test");
    let args = ["worker_entry", "--exact", "--ignored", "--nocapture", "--test-threads=1"];
    WorkerCommand { program, args: args.iter().map(Into::into).collect() }
}

fn plan(experiments: &[&str], sizes: &[u64], set: &[(&str, &str)]) -> CheckedPlan {
    let usual = [("min-count", "5"), ("max-count", "20"), ("budget", "0.1"), ("connections", "8")];
    let set: BTreeMap<String, String> =
        usual.iter().chain(set).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Plan {
        experiments: experiments.iter().map(|e| (*e).to_owned()).collect(),
        device: "shm".to_owned(),
        sizes: Some(sizes.to_vec()),
        seed: 7,
        launches: Some(1),
        set,
        ..Plan::default()
    }
    .check()
    .expect("a sound plan")
}

/// Prints what is skipped, so that a failure explains itself.
#[derive(Default)]
struct Watch {
    cells: u64,
    measured: u64,
    skipped: Vec<String>,
}

impl Progress for Watch {
    fn plan(&mut self, cells: u64) {
        self.cells = cells;
    }
    fn cell(&mut self, what: &CellEvent<'_>) {
        match what.state {
            CellState::Began => {}
            CellState::Measured { value, .. } => {
                assert!(value.is_finite());
                self.measured += 1;
            }
            CellState::Skipped { why } => self.skipped.push(format!("{}: {why}", what.cell)),
        }
    }
    fn note(&mut self, text: &str) {
        println!("note: {text}");
    }
}

fn measure(plan: &CheckedPlan) -> (Run, Watch) {
    let mut watch = Watch::default();
    let run = run_with(&command(), plan, &mut watch, &AtomicBool::new(false));
    let run = run.unwrap_or_else(|e: BenchError| panic!("{e}"));
    (run, watch)
}

fn complete(r: &Measurement) {
    let name = format!("{} {} {}", r.experiment, r.variant_text(","), r.size_bytes);
    assert!(r.n > 0 && !r.metric.is_empty() && !r.unit.is_empty(), "{name}");
    assert!(r.median.is_finite() && r.ci95.is_some() | r.ci95_reason.is_some(), "{name}");
    let bare = matches!(r.experiment.as_str(), "floor" | "memory");
    assert!(bare || r.floor.as_ref().is_some_and(|f| f.value > 0.0), "{name} has no floor");
    assert!(r.launches.iter().all(|l| l.n > 0), "{name}");
}

fn every_cell(experiments: &[&str], sizes: &[u64]) {
    let plan = plan(experiments, sizes, &[]);
    let (run, watch) = measure(&plan);
    assert_eq!(watch.cells, plan.cells.len() as u64);
    // process_vm_writev is the one thing that a sound machine may refuse.
    watch.skipped.iter().for_each(|s| assert!(s.contains("process_vm_writev"), "{s}"));
    assert_eq!(watch.measured + watch.skipped.len() as u64, watch.cells);
    let twins = plan.cells.iter().filter(|c| c.twin).count();
    assert_eq!(run.results.len() + twins + watch.skipped.len(), plan.cells.len());
    run.results.iter().for_each(complete);
    let text = run.to_json().expect("finite");
    assert_eq!(Run::from_json(&text).expect("readable"), run);
}

#[test]
fn latency_is_complete() {
    every_cell(&["latency"], &[1, 8, 4096]);
}

#[test]
fn bilat_is_complete() {
    every_cell(&["bilat"], &[1, 70_000]);
}

#[test]
fn streams_are_complete() {
    every_cell(&["bandwidth", "bibw", "rate"], &[1, 4096, 1 << 20]);
}

#[test]
fn park_and_memory_are_complete() {
    every_cell(&["park", "memory"], &[8]);
}

#[test]
fn a_run_that_is_stopped_keeps_what_it_has_and_says_so() {
    struct Stopper<'a>(&'a AtomicBool, u64);
    impl Progress for Stopper<'_> {
        fn plan(&mut self, _cells: u64) {}
        fn cell(&mut self, what: &CellEvent<'_>) {
            if matches!(what.state, CellState::Measured { .. }) {
                self.1 += 1;
                self.0.store(self.1 >= 3, Ordering::Relaxed);
            }
        }
        fn note(&mut self, _text: &str) {}
    }
    let plan = plan(&["latency"], &[8, 64], &[("launches", "1000")]);
    let stop = AtomicBool::new(false);
    let run = run_with(&command(), &plan, &mut Stopper(&stop, 0), &stop).expect("stopped, not broken");
    assert!(run.results.len() >= 3 && run.results.len() < plan.cells.len());
    assert!(run.parameters.iter().any(|p| p.key == "interrupted"));
}
