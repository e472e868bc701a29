//! `nicety bench`, end to end: real measurements, as short as possible.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use results::schema::Run;
use rustix::process::Signal;

use crate::common::{Ended, command, json, nicety, nicety_in, signal, wait};

/// One size, one launch, half a second.
const SHORT: [&str; 7] = ["--size", "8", "--quick", "--launches", "1", "--set", "budget=0.5"];

fn short<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ["bench", "latency"].iter().chain(&SHORT).chain(more).copied().collect()
}

#[test]
fn measurement_is_printed_and_written_as_json_csv_and_html() {
    let dir = tempfile::tempdir().expect("directory");
    let ended = nicety_in(dir.path(), short(&["--json", "r.json", "--csv", "r.csv", "--html", "r.html"]));
    assert_eq!(ended.status, Some(0), "{ended:?}");
    for text in ["latency write 8 B", "Trust ", "Results: r.json", "Report: r.html (open it"] {
        assert!(ended.out.contains(text), "{text}: {}", ended.out);
    }
    assert!(!ended.out.contains('\x1b') && !ended.err.contains('\x1b'), "no colour in pipes");
    let run = Run::read(dir.path().join("r.json")).expect("a result file");
    assert!(run.results.iter().any(|r| r.experiment == "latency" && r.size_bytes == 8 && r.median > 0.0));
    assert!(run.results.iter().any(|r| r.floor.is_some()), "results have floors");
    let text = |name: &str| fs::read_to_string(dir.path().join(name)).expect(name);
    assert!(text("r.csv").starts_with("experiment,device,"));
    assert!(text("r.html").contains("</html>"));
    assert_eq!(fs::read_dir(dir.path()).expect("directory").count(), 3, "no temporary files");
}

/// Goal: our MPI and another library are measured in one run, each with its own name. Method: our library takes both roles.
#[test]
fn mpi_is_measured_alternating_with_another_library() {
    let own = Path::new(env!("CARGO_BIN_EXE_nicety")).parent().expect("a directory");
    let built = ["libmpi_abi.so", "deps/libmpi_abi.so"].map(|name| own.join(name));
    let Some(library) = built.iter().find(|library| library.exists()) else {
        return eprintln!("SKIPPED: libmpi_abi.so is not built; cargo build -p abi-mpi");
    };
    let dir = tempfile::tempdir().expect("directory");
    let library = library.to_str().expect("text");
    let measured = [
        "bench",
        "mpi-latency",
        "mpi-allreduce",
        "--against",
        library,
        "--set",
        "ranks=2",
        "--json",
        "r.json",
    ];
    let ended = nicety_in(dir.path(), measured.iter().chain(&SHORT));
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let run = Run::read(dir.path().join("r.json")).expect("a result file");
    for name in ["nicety", "other"] {
        let of = run.results.iter().filter(|r| r.variant.iter().any(|level| level == ("library", name)));
        let of: Vec<_> = of.collect();
        assert_eq!(of.len(), 2, "{name}: {ended:?}");
        assert!(
            of.iter().all(|r| r.median > 0.0 && r.note.as_ref().is_some_and(|note| note.contains("Nicety")))
        );
    }
    assert!(run.parameters.iter().any(|p| p.key == "against" && p.value == library));
}

/// Goal: a stream's rate over time is printed as it runs and kept in the file, and both agree. Method: short intervals, into a pipe.
#[test]
fn stream_is_reported_over_time() {
    let dir = tempfile::tempdir().expect("directory");
    let only = ["--only", "op=write,source=nic,sink=nic"];
    let watched = ["bench", "bandwidth", "-s", "64K", "--interval", "0.2", "-D", "1", "--json", "r.json"];
    let ended = nicety_in(dir.path(), watched.iter().chain(&only));
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let run = Run::read(dir.path().join("r.json")).expect("a result file");
    assert_eq!((run.results.len(), run.results[0].launches.len()), (1, 1));
    let kept = &run.results[0].launches[0].intervals;
    assert!(kept.len() >= 2 && kept.iter().any(|interval| interval.messages > 0), "{kept:?}");
    assert!(kept.iter().all(|interval| interval.bytes == interval.messages << 16), "{kept:?}");
    assert!(kept.windows(2).all(|pair| pair[0].to_s == pair[1].from_s), "{kept:?}");
    let lines: Vec<Vec<&str>> = ended.out.lines().map(|line| line.split_whitespace().collect()).collect();
    let rows: Vec<&Vec<&str>> =
        lines.iter().skip(2).take_while(|columns| columns.len() == 4 && columns[0].contains('-')).collect();
    assert!(lines[0][0] == "#" && lines[1].join(" ") == "# seconds bytes MB/s messages", "{}", ended.out);
    assert_eq!(rows.len(), kept.len(), "{}", ended.out);
    assert!(
        rows.iter().zip(kept).all(|(row, interval)| row[1] == interval.bytes.to_string()),
        "{}",
        ended.out
    );
    nicety(["bench", "latency", "--interval", "1"]).is_error(2, "latency has none");
}

#[test]
fn against_refuses_experiments_of_other_programs() {
    let library = file!();
    nicety(["bench", "latency", "--against", library]).is_error(2, "latency is no MPI experiment");
    nicety(["bench", "mpi-latency", "-d", MODEL, "--against", library]).is_error(2, "modelled card");
    nicety(["bench", "mpi-latency", "--against", "/no/such/file"]).is_error(2, "there is no such file");
}

/// A modelled card: exact, the same on every machine, and computed without delay.
const MODEL: &str = "model:mt23108-vapi";

/// Goal: a single result is one line, and one value for scripts; short options are those of perftest. Method: a modelled card.
#[test]
fn single_result_is_one_line() {
    let one = ["bench", "latency", "--only", "op=write,source=host,sink=host", "-s", "8", "-d", MODEL];
    let told = |more: &[&str]| {
        let ended = nicety(one.iter().chain(more));
        assert_eq!((ended.status, ended.out.lines().count()), (Some(0), 1), "{ended:?}");
        ended.out
    };
    let line = told(&["--line"]);
    assert!(
        line.starts_with("one-way latency, write (host -> host), 8 B, model:mt23108-vapi (virtual): "),
        "{line}"
    );
    let value = told(&["-q", "-n", "40", "-D", "2"]);
    let (number, unit) = value.trim_end().split_once(' ').expect("value and unit");
    assert!(number.parse::<f64>().is_ok_and(|us| us > 1.0) && unit == "us", "{value}");
    let tail = nicety(one.iter().chain(&["--tail"])).out;
    assert_eq!(tail.lines().count(), 5, "{tail}");
    assert!(tail.lines().nth(1).is_some_and(|l| l.trim_start().starts_with("p50 ")), "{tail}");
    nicety(one.iter().chain(&["--line", "-q"])).is_error(2, "cannot be combined with");
    nicety(["bench", "latency", "--only", "op=rite"]).is_error(2, "did you mean 'write'?");
}

/// Goal: a run ends with one screen, whatever it measured; --full prints all tables of the same results.
#[test]
fn overview_prints_one_screen() {
    let dir = tempfile::tempdir().expect("directory");
    let both = format!("{MODEL},model:mt23108-ibal");
    for devices in [MODEL, &both] {
        let ended = nicety_in(dir.path(), ["bench", "--quick", "--device", devices, "--json", "r.json"]);
        assert_eq!(ended.status, Some(0), "{ended:?}");
        assert!(ended.out.lines().count() <= 30, "{}", ended.out);
        assert!(!ended.err.contains("left out"), "{}", ended.err);
        for text in ["Trust     exact", "latency", "MB/s", "Report: nicety-report.html"] {
            assert!(ended.out.contains(text), "{devices}: no {text} in {}", ended.out);
        }
        let full = nicety_in(dir.path(), ["report", "r.json", "--text", "--full"]).out;
        assert!(full.lines().count() > 60 && full.contains("Findings"), "{full}");
    }
}

/// Goal: settings of the configuration apply unless the command line overrides them; mistakes in it are named.
#[test]
fn configuration_file_sets_defaults() {
    let dir = tempfile::tempdir().expect("directory");
    let config = dir.path().join("config.toml");
    fs::write(&config, format!("device = \"{MODEL}\"\noutput = \"line\"\n")).expect("file");
    let run = |more: &[&str]| {
        let given = [
            "bench",
            "latency",
            "-s",
            "8",
            "--only",
            "op=send,source=host,sink=host",
            "--config",
            "config.toml",
        ];
        nicety_in(dir.path(), given.iter().chain(more))
    };
    let ended = run(&[]);
    assert!(ended.out.contains(MODEL) && ended.out.lines().count() == 1, "{ended:?}");
    assert!(run(&["--full"]).out.contains("Findings"));
    assert!(run(&["-q", "-d", "model:mt23108-ibal"]).out.ends_with(" us\n"));
    fs::write(&config, "devices = 1").expect("file");
    run(&[]).is_error(2, "unknown field");
    fs::remove_file(&config).expect("removed");
    run(&[]).is_error(2, "cannot read the configuration");
}

#[test]
fn results_are_written_for_prometheus_and_spreadsheets() {
    let given = ["bench", "latency", "-s", "8", "--only", "op=write,source=nic,sink=nic", "-d", MODEL];
    let prometheus = nicety(given.iter().chain(&["--prometheus", "-"])).out;
    assert!(prometheus.contains("# TYPE nicety_one_way_latency_seconds gauge\n"), "{prometheus}");
    assert!(prometheus.contains("stat=\"median\"} 0.00000"), "{prometheus}");
    let csv = nicety(given.iter().chain(&["--csv", "-"])).out;
    assert_eq!(csv.lines().next().map(|head| head.contains(",p50,p90,")), Some(true), "{csv}");
}

#[test]
fn json_on_standard_output_is_the_only_output() {
    let ended = nicety(short(&["--json", "-"]));
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert_eq!(json(&ended.out)["schema"], "nicety-results/1");
    assert!(ended.err.contains("Trust "), "people read it on standard error");
}

#[test]
fn unknown_names_are_refused_before_measuring() {
    let cases: [(&[&str], &str); 12] = [
        (&["latncy"], "did you mean 'latency'?"),
        (&["--device", "shn"], "there is no device"),
        (&["--size", "8X"], "'8X' is no size"),
        (&["--size", "0"], "a message cannot have 0 bytes"),
        (&["--size", "8..4"], "is empty"),
        (&["--set", "windw=8"], "did you mean 'window'?"),
        (&["--set", "window=1"], "it takes 2 to 4096"),
        (&["--set", "window"], "is not KEY=VALUE"),
        (&["--launches", "0"], "it takes 1 to"),
        (&["--json", "-", "--csv", "-"], "both write to standard output"),
        (&["--html", "no-such-directory/r.html"], "mkdir -p"),
        (&["mtu"], "leave mtu away"),
    ];
    for (args, what) in cases {
        nicety(["bench"].iter().chain(args)).is_error(2, what);
    }
    let two = nicety(["bench", "latncy", "--set", "window=1"]);
    assert_eq!(two.err.lines().count(), 2, "a line for each mistake: {two:?}");
}

/// Goal: a failed run leaves the files of an earlier run unchanged.
#[test]
fn unreachable_peer_is_named_and_files_are_kept() {
    let dir = tempfile::tempdir().expect("directory");
    fs::write(dir.path().join("r.json"), "old").expect("file");
    let free =
        TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").to_string();
    let ended = nicety_in(dir.path(), short(&["--json", "r.json", "--peer", &free]));
    assert_eq!((ended.status, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    let last = ended.err.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("nicety: ") && last.contains("refused") && last.contains("nicety serve"),
        "{ended:?}"
    );
    assert_eq!(fs::read_to_string(dir.path().join("r.json")).expect("file"), "old");
}

/// Goal: an option that a command does not support is not ignored silently.
#[test]
fn dry_run_measures_nothing_and_fresh_needs_a_plan() {
    let dir = tempfile::tempdir().expect("directory");
    let ended = nicety_in(dir.path(), short(&["--json", "r.json", "--dry-run"]));
    assert_eq!((ended.status, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.out.contains("cells on shm, 1 launch\n") && ended.out.contains("\nabout "), "{ended:?}");
    assert!(nicety_in(dir.path(), ["bench", "--quick", "--dry-run"]).out.contains("6 launches"));
    nicety_in(dir.path(), short(&["--fresh"])).is_error(2, "--fresh");
    nicety_in(dir.path(), ["bench", "--quick", "--fresh"]).is_error(2, "--fresh");
    assert_eq!(fs::read_dir(dir.path()).expect("directory").count(), 0, "nothing was written");
}

/// Goal: without --device iwarp, a remote peer is an error: the run must not report this machine's floors with status 0.
/// Method: a peer at a documentation address (RFC 5737), where nothing would answer.
#[test]
fn shm_with_remote_peer_is_refused_before_measuring() {
    let dir = tempfile::tempdir().expect("directory");
    let ended = nicety_in(dir.path(), short(&["--json", "r.json", "--peer", "192.0.2.1"]));
    assert_eq!((ended.status, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    let last = ended.err.lines().last().unwrap_or_default();
    assert!(last.contains("shm reaches processes of this machine only"), "{ended:?}");
    assert!(last.contains("192.0.2.1:7471") && last.contains("; take --device iwarp"), "{ended:?}");
    assert_eq!(fs::read_dir(dir.path()).expect("directory").count(), 0, "nothing was written");
}

/// Method: the peer's port accepts connections, as the kernel completes them without the program, but never sends anything.
#[test]
fn silent_peer_times_out() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = silent.local_addr().expect("its address").to_string();
    let ended = nicety(short(&["--peer", &addr, "--set", "patience=0.5"]));
    assert_eq!((ended.status, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.err.lines().last().unwrap_or_default().starts_with("nicety: "), "{ended:?}");
}

/// A measurement of many minutes; returns once progress shows that something was measured.
pub(crate) fn long(dir: &Path, mark: &str, more: &[&str]) -> Child {
    let mut command = command();
    command
        .env("NICETY_TEST_MARK", mark)
        .args(["bench", "latency", "--size", "8", "--json", "r.json"])
        .args(more);
    long_with(command, dir).0
}

/// Like [`long`] for any command; also returns a thread that reads the remaining lines of standard error.
pub(crate) fn long_with(mut command: Command, dir: &Path) -> (Child, JoinHandle<Vec<String>>) {
    let mut child = command
        .current_dir(dir)
        .args(["--set", "budget=900", "--launches", "1000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut lines = BufReader::new(child.stderr.take().expect("standard error")).lines();
    let measured = |line: &str| line.contains(", launch ") && !line.starts_with("nicety: 0/");
    let first = lines.find(|line| line.as_ref().is_ok_and(|line| measured(line)));
    first.expect("progress").expect("text");
    // Standard error must be read to its end, or later remarks of the command would fail.
    (child, std::thread::spawn(move || lines.map_while(Result::ok).collect()))
}

/// The number of running processes with this mark in their environment.
fn marked(mark: &str) -> usize {
    let wanted = format!("NICETY_TEST_MARK={mark}");
    let of = |entry: fs::DirEntry| fs::read(entry.path().join("environ")).ok();
    let all = fs::read_dir("/proc").expect("/proc").flatten().filter_map(of);
    all.filter(|environ| environ.split(|byte| *byte == 0).any(|part| part == wanted.as_bytes())).count()
}

/// Goal: after an interruption by any of the signals, partial results are saved, earlier results are unchanged, and no process
/// is left.
#[test]
fn interruption_keeps_results_and_old_files_and_leaves_no_process() {
    for (ending, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let dir = tempfile::tempdir().expect("directory");
        fs::write(dir.path().join("r.json"), "old").expect("file");
        let mark = dir.path().display().to_string();
        let mut child = long(dir.path(), &mark, &[]);
        signal(&child, ending);
        assert_eq!(wait(&mut child), Some(status), "{ending:?}");
        let run = Run::read(dir.path().join("r.partial.json")).expect("a result file");
        assert!(!run.results.is_empty());
        assert_eq!(fs::read_to_string(dir.path().join("r.json")).expect("file"), "old", "{ending:?}");
        assert_eq!(marked(&mark), 0, "processes were left");
    }
}

/// Method: as with nohup, the shell ignores the signal before it executes the command.
#[test]
fn run_under_nohup_survives_its_terminal() {
    let mut child = Command::new("sh")
        .args([
            "-c",
            "trap '' HUP; exec \"$0\" bench latency --size 8 --quick --launches 2 --set budget=1 --json -",
        ])
        .arg(env!("CARGO_BIN_EXE_nicety"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut lines = BufReader::new(child.stderr.take().expect("standard error")).lines();
    lines
        .find(|line| line.as_ref().is_ok_and(|line| line.contains(", launch ")))
        .expect("progress")
        .expect("text");
    let rest = std::thread::spawn(move || lines.count());
    signal(&child, Signal::HUP);
    let ended: Ended = child.wait_with_output().expect("the command ends").into();
    rest.join().expect("no panic");
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert_eq!(json(&ended.out)["schema"], "nicety-results/1");
}

#[test]
fn second_ctrl_c_ends_immediately_and_leaves_no_process() {
    let dir = tempfile::tempdir().expect("directory");
    let mark = dir.path().display().to_string();
    let mut child = long(dir.path(), &mark, &[]);
    let began = Instant::now();
    signal(&child, Signal::INT);
    // Two signals at the same moment would be merged into one.
    std::thread::sleep(Duration::from_millis(20));
    signal(&child, Signal::INT);
    assert_eq!(wait(&mut child), Some(130));
    assert!(began.elapsed() < Duration::from_secs(4), "took {:?}", began.elapsed());
    // The kernel kills the workers when their parent dies, which takes a moment.
    let gone = (0..50).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        marked(&mark) == 0
    });
    assert!(gone, "processes were left");
}

#[test]
fn bench_help_lists_experiments_and_parameters() {
    let Ended { out, .. } = nicety(["bench", "--help"]);
    for text in ["EXPERIMENTS\n  latency ", "  bandwidth ", "PARAMETERS", "  window ", "takes 2 to 4096"] {
        assert!(out.contains(text), "{text}: {out}");
    }
}
