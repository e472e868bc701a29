//! Runs end to end: real processes, the shared-memory device, few samples. Checks that a run is complete and that
//! failures are named and leave nothing behind; never durations.

use results::variant::{Variant, factor};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::launch::{BenchError, CellEvent, CellState, Progress, WorkerCommand, run_with, worker_main};
use bench::plan::{CheckedPlan, Plan};
use results::schema::{Measurement, Run};

/// Not a test: the entry point of the tests' workers, as a test binary cannot be started in another way.
#[test]
fn worker_entry() {
    // Among the other tests there is no job for it.
    if std::env::args().any(|a| a == "worker_entry") && !succeeded(worker_main()) {
        std::process::exit(1);
    }
}

/// The value of an exit code is visible only in its debug form.
fn succeeded(code: std::process::ExitCode) -> bool {
    format!("{code:?}") == format!("{:?}", std::process::ExitCode::SUCCESS)
}

fn command() -> WorkerCommand {
    let program = std::env::current_exe().expect("this test");
    let args = ["worker_entry", "--exact", "--nocapture", "--test-threads=1"];
    WorkerCommand { program, args: args.iter().map(Into::into).collect() }
}

fn plan(experiments: &[&str], sizes: &[u64], set: &[(&str, &str)]) -> CheckedPlan {
    plan_on("shm", experiments, sizes, set)
}

fn plan_on(device: &str, experiments: &[&str], sizes: &[u64], set: &[(&str, &str)]) -> CheckedPlan {
    plan_of(device, experiments, sizes, set, &[])
}

fn plan_of(
    device: &str,
    experiments: &[&str],
    sizes: &[u64],
    set: &[(&str, &str)],
    only: &[(&str, &str)],
) -> CheckedPlan {
    let usual = [("min-count", "5"), ("max-count", "20"), ("budget", "0.1"), ("connections", "8")];
    let set: BTreeMap<String, String> =
        usual.iter().chain(set).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let launches = if set.contains_key("launches") { None } else { Some(1) };
    Plan {
        experiments: experiments.iter().map(|e| (*e).to_owned()).collect(),
        device: device.to_owned(),
        sizes: Some(sizes.to_vec()),
        seed: Some(7),
        launches,
        set,
        only: only.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..Plan::default()
    }
    .check()
    .expect("a sound plan")
}

/// Prints the skipped cells, so that a failure explains itself.
#[derive(Default)]
struct Watch {
    cells: u64,
    measured: u64,
    values: Vec<f64>,
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
                self.values.push(value);
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
    let with_floor = ["latency", "bilat", "bandwidth", "bibw", "rate", "park", "mpi-latency"];
    let bare = !with_floor.contains(&r.experiment.as_str());
    assert!(bare || r.floor.as_ref().is_some_and(|f| f.value > 0.0), "{name} has no floor");
    assert!(r.launches.iter().all(|l| l.n > 0), "{name}");
}

fn every_cell(experiments: &[&str], sizes: &[u64]) {
    every_cell_on("shm", experiments, sizes);
}

fn every_cell_on(device: &str, experiments: &[&str], sizes: &[u64]) {
    every_cell_of(&plan_on(device, experiments, sizes, &[]));
}

fn every_cell_of(plan: &CheckedPlan) {
    let (run, watch) = measure(plan);
    assert_eq!(watch.cells, plan.cells.len() as u64);
    // Reasons allowed on a healthy machine, features that this device lacks, and optional requirements.
    let reasons = [
        "process_vm_writev",
        "has one port",
        "resolving",
        "an MTU",
        "no knee found",
        "pieces",
        "code that the NIC runs",
    ];
    let may_be = |s: &str| reasons.iter().any(|reason| s.contains(reason));
    watch.skipped.iter().for_each(|s| assert!(may_be(s), "{s}"));
    assert_eq!(watch.measured + watch.skipped.len() as u64, watch.cells);
    let twins = plan.cells.iter().filter(|c| c.twin).count();
    assert_eq!(run.results.len() + twins + watch.skipped.len(), plan.cells.len());
    run.results.iter().for_each(complete);
    let text = run.to_json().expect("finite");
    assert_eq!(Run::from_json(&text).expect("readable"), run);
}

#[test]
fn latencies_and_streams_are_complete_on_iwarp() {
    every_cell_on("iwarp", &["latency", "bilat", "bandwidth", "bibw", "rate"], &[8, 70_000]);
}

#[test]
fn everything_else_is_complete_on_iwarp() {
    let done = ["latency", "bilat", "bandwidth", "bibw", "rate"];
    let is_left =
        |name: &&str| !done.contains(name) && !name.starts_with("mpi-") && !name.starts_with("nas-");
    let all = bench::experiment::all().iter().map(|e| e.name()).filter(is_left);
    let mut plan = plan_on("iwarp", &all.collect::<Vec<_>>(), &[4096], &[]);
    // Eight thousand connections take as long as ten other cells, and are the same for each operation: NICETY_WIDE
    // makes them for all, otherwise one has them and the others a few hundred.
    if std::env::var_os("NICETY_WIDE").is_none() {
        let is_wide = |v: &Variant| v.is(factor::QPS, "8000") && !v.is(factor::OP, "write");
        plan.cells
            .iter_mut()
            .filter(|c| is_wide(&c.variant))
            .for_each(|c| c.variant = c.variant.with(factor::QPS, "100"));
    }
    every_cell_of(&plan);
}

/// Goal: the kernels of NAS give the published results, however many ranks take part; whatever does not ends the run.
#[test]
fn kernels_of_nas_are_complete() {
    for (device, ranks) in [("shm", "1,2,4"), ("iwarp", "2")] {
        let plan = plan_of(device, &["nas-is", "nas-cg"], &[8], &[("ranks", ranks)], &[("class", "S")]);
        let (run, watch) = measure(&plan);
        assert!(watch.skipped.is_empty(), "{:?}", watch.skipped);
        // Floors are measured in any run.
        let kernels: Vec<&Measurement> =
            run.results.iter().filter(|r| r.experiment.starts_with("nas-")).collect();
        assert_eq!(kernels.len(), 2 * ranks.split(',').count());
        for kernel in kernels {
            complete(kernel);
            assert!(kernel.unit == "s" && kernel.median > 0.0, "{kernel:?}");
            assert!(kernel.note.as_ref().is_some_and(|n| n.ends_with("the published one")), "{kernel:?}");
        }
    }
}

/// Goal: several devices are measured in one run, each with its own floors and its own time. Method: two real ones
/// and a card, two launches; cells that a device does not support are missing with the reason, and were not tried
/// twice.
#[test]
fn devices_are_measured_side_by_side() {
    let card = "model:mt23108-vapi";
    let mut plan =
        plan_on(&format!("shm,iwarp,{card}"), &["latency", "bandwidth"], &[8], &[("launches", "2")]);
    plan.cells.iter_mut().filter(|c| c.variant.is(factor::OP, "cas")).for_each(|c| {
        // No such memory.
        c.variant = c.variant.with(factor::SINK, "moon");
    });
    let (run, watch) = measure(&plan);
    let tried = |what: &str| watch.skipped.iter().filter(|s| s.contains(what)).count();
    assert_eq!(watch.cells, 2 * plan.real_cells() as u64 + plan.devices[2].cells.len() as u64);
    assert!(tried("moon") > 0 && run.missing.iter().any(|m| m.device == "iwarp" && m.why.contains("moon")));
    assert_eq!(tried("moon"), run.missing.iter().filter(|m| m.why.contains("moon")).count(), "once each");
    for (device, floor) in [("shm", Some("cache-line")), ("iwarp", Some("TCP")), (card, None)] {
        let of: Vec<_> =
            run.results.iter().filter(|r| r.device == device && r.experiment == "latency").collect();
        assert!(!of.is_empty(), "{device}");
        let what = |r: &&Measurement| r.floor.as_ref().map(|f| f.what.clone());
        let beside = of.iter().all(|r| what(r).is_some() == floor.is_some());
        assert!(beside && of.iter().filter_map(what).all(|w| !w.contains("TCP") || floor == Some("TCP")));
        let launches = if device == card { 1 } else { 2 };
        assert!(of.iter().all(|r| r.launches.len() == launches), "{device}");
        let info = run.environment.devices.iter().find(|info| info.name == device).expect("named");
        assert_eq!(info.clock, of[0].clock);
        assert!(!info.notes.is_empty());
    }
    assert_ne!(run.environment.clock.kind, results::schema::ClockKind::Virtual, "real devices ran");
    assert_eq!(Run::from_json(&run.to_json().expect("finite")).expect("readable"), run);
}

/// Goal: virtual time takes the samples and the batch that were asked for, as real time does. Method: a ping-pong, and a
/// stream, whose operations are never batched; the progress reports what the result says.
#[test]
fn virtual_time_takes_the_samples_and_the_batch_that_were_asked_for() {
    let of = |set: &[(&str, &str)]| {
        let only = [("op", "write"), ("source", "host"), ("sink", "host")];
        let set: Vec<(&str, &str)> = set.iter().chain(&[("burst", "8")]).copied().collect();
        let plan = plan_of("model:mt23108-vapi", &["latency", "bandwidth"], &[8], &set, &only);
        let (run, watch) = measure(&plan);
        let one = |experiment: &str| {
            let is_plain = |result: &&Measurement| result.variant.iter().count() == only.len();
            let mut of = run.results.iter().filter(|result| result.experiment == experiment);
            let found = of.find(is_plain).expect("measured");
            (found.n, found.batch, found.median)
        };
        (one("latency"), one("bandwidth"), watch.values)
    };
    let (latency, stream, _) = of(&[("min-count", "7"), ("max-count", "7")]);
    assert_eq!((latency.0, latency.1), (7, 1));
    assert_eq!((stream.0, stream.1), (7, 8), "an operation is a burst");
    let (batched, stream, shown) = of(&[("min-count", "300"), ("max-count", "300"), ("batch", "50")]);
    assert_eq!((batched.0, batched.1), (300, 50));
    assert_eq!((stream.0, stream.1), (300, 8));
    let far = |value: f64, wanted: f64| (value / wanted - 1.0).abs() > 0.02;
    assert!(!far(batched.2, latency.2), "{batched:?} and {latency:?}");
    assert!(shown.iter().any(|value| !far(*value, batched.2)), "{shown:?}");
}

#[test]
fn latency_is_complete() {
    every_cell(&["latency"], &[1, 8, 4096]);
}

#[test]
fn bilat_is_complete() {
    every_cell(&["bilat"], &[1, 70_000]);
}

/// Goal: data retransmitted after the peer's message has arrived is unchanged. Method: cards that lose packets read
/// the source again to retransmit.
#[test]
fn bilat_is_complete_where_packets_are_lost() {
    let plan = plan_on("model:mt23108-vapi(faults.loss_ppm=20000)", &["bilat"], &[70_000], &[]);
    let (_, watch) = measure(&plan);
    assert!(watch.skipped.is_empty(), "{:?}", watch.skipped);
    assert_eq!(watch.measured, plan.cells.len() as u64);
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
fn experiments_with_nic_memory_are_complete() {
    every_cell(&["nicmem", "pack"], &[8192]);
}

#[test]
fn experiments_with_up_to_eight_processes_are_complete() {
    every_cell(&["hotspot", "chain"], &[2048]);
}

#[test]
fn single_calls_are_complete() {
    every_cell(&["reg", "post", "poll", "connect"], &[4096]);
}

#[test]
fn costs_to_the_processor_are_complete() {
    every_cell(&["overhead", "availability", "notify", "blocking"], &[4096]);
}

#[test]
fn traffic_of_many_kinds_is_complete() {
    every_cell(&["connections", "maxsge", "segments", "mtu"], &[64]);
    every_cell(&["reuse"], &[4096]);
}

/// Two MPI experiments, on either kind of device; `what_mpi_moves_comes_whole` runs all MPI experiments in one
/// process.
#[test]
fn mpi_is_complete() {
    for device in ["shm", "iwarp"] {
        every_cell_on(device, &["mpi-latency", "mpi-allreduce"], &[8, 20_000]);
    }
}

#[test]
fn rails_are_complete() {
    let all = ["rail-bandwidth", "rail-bibw", "rail-latency", "rail-breakdown"];
    every_cell(&all, &[3]);
    every_cell_on("rails(iwarp@127.0.0.1,iwarp@127.0.0.2)", &all, &[100_001]);
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

#[test]
fn a_peer_that_is_not_there_and_one_that_is_no_peer_are_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound");
    let mut checked = plan(&["rate"], &[8], &[]);
    checked.peers = vec![addr.to_string()];
    let fail = |plan: &CheckedPlan| {
        run_with(&command(), plan, &mut (), &AtomicBool::new(false)).expect_err("no peer").to_string()
    };
    let answer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("sent");
    });
    let why = fail(&checked);
    answer.join().expect("no panic");
    assert!(why.contains(&addr.to_string()) && why.contains("no nicety peer"), "{why}");
    let why = fail(&checked);
    assert!(why.contains("nicety serve") && !why.contains('\n'), "{why}");
}

/// Processes whose parent is this one and that run a worker.
fn workers() -> Vec<i32> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("Linux").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let status = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = status.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)).map(str::to_owned);
        if parent.as_deref() == Some(&own) {
            found.push(pid);
        }
    }
    found
}

/// Goal: whichever process is killed, the run names it, keeps its results, and ends all other processes. Method: a
/// run in its own process (other tests have workers too) kills each of its workers in turn after a few cells.
#[test]
fn killing_entry() {
    if !std::env::args().any(|a| a == "killing_entry") {
        return;
    }
    struct Killer(u64, usize);
    impl Progress for Killer {
        fn plan(&mut self, _cells: u64) {}
        fn cell(&mut self, what: &CellEvent<'_>) {
            if matches!(what.state, CellState::Measured { .. }) {
                self.0 += 1;
            }
            if self.0 == 3 {
                self.0 += 1;
                let mut pids = workers();
                pids.sort_unstable();
                let pid = rustix::process::Pid::from_raw(pids[self.1]).expect("a process");
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
            }
        }
        fn note(&mut self, _text: &str) {}
    }
    for (victim, name) in [(0, "server"), (1, "client")] {
        let plan = plan(&["latency"], &[8, 64], &[("launches", "1000")]);
        let stop = AtomicBool::new(false);
        let error = run_with(&command(), &plan, &mut Killer(0, victim), &stop).expect_err("one was killed");
        assert!(error.what.contains(name) && error.what.contains("signal 9"), "{error}");
        let partial = error.partial.expect("what was measured");
        assert!(partial.results.len() >= 3, "{} results", partial.results.len());
        assert!(workers().is_empty(), "left behind: {:?}", workers());
    }
}

#[test]
fn a_worker_that_is_killed_is_named_and_the_rest_is_kept() {
    let mut again = std::process::Command::new(std::env::current_exe().expect("this test"));
    let status = again.args(["killing_entry", "--exact", "--nocapture"]).status();
    assert!(status.expect("started").success());
}
