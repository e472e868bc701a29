//! `nicety bench --plan`, end to end: the example, interruptions, changed plans, and mistakes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use results::schema::{ClockKind, Run};
use rustix::process::Signal;

use crate::common::{Ended, command, nicety_in, signal, wait};

/// Two parts with a few cells in six launches.
const SMALL: &str = "\
[defaults]
launches = 6
quick = true
sizes = [8]
set = { budget = 1.5 }

[part.small]
experiments = ['latency']

[part.calls]
experiments = ['post', 'poll']
devices = ['shm', 'model:mt23108-vapi']
";

fn plan(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("p.toml");
    fs::write(&path, text).expect("file");
    (dir, path)
}

/// Measures the plan.
const MEASURE: [&str; 3] = ["bench", "--plan", "p.toml"];

fn run(dir: &Path, more: &[&str]) -> Ended {
    nicety_in(dir, MEASURE.iter().chain(more))
}

/// The cells in the journal with their launches. Checks that no line occurs twice.
fn measured(dir: &Path) -> BTreeSet<(String, u64)> {
    let text = fs::read_to_string(dir.join("p.journal")).expect("a journal");
    let mut all = BTreeSet::new();
    for line in text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()) {
        if line["line"] == "measured" {
            let cell = line["cell"].as_str().expect("a cell").to_owned();
            assert!(all.insert((cell, line["launch"].as_u64().expect("a launch"))), "measured twice: {line}");
        }
    }
    all
}

/// A running measurement that has already measured something.
fn under_way(dir: &Path, args: &[&str]) -> Child {
    let mut child = command()
        .current_dir(dir)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let lines = BufReader::new(child.stderr.take().expect("standard error")).lines();
    std::thread::spawn(move || lines.count());
    let journal = dir.join("p.journal");
    let begun = || fs::read_to_string(&journal).is_ok_and(|text| text.contains("\"line\":\"measured\""));
    for _ in 0..1200 {
        if begun() || child.try_wait().expect("a status").is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    assert!(begun(), "something is measured within 30 s");
    child
}

#[test]
fn example_plan_is_measured_into_files_next_to_it() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/survey.toml");
    // Unchanged, except for a shorter time.
    let example = fs::read_to_string(example).expect("the example");
    let (dir, _path) = plan(&example.replace("budget = 15", "budget = 1"));
    assert!(example.contains("budget = 15"), "the time is in it");
    let outline = run(dir.path(), &["--dry-run"]);
    assert_eq!(outline.status, Some(0), "{outline:?}");
    let names = ["small", "streams-window-8", "streams-window-64", "crowd"];
    assert!(names.iter().all(|name| outline.out.contains(&format!("{name}: "))), "{}", outline.out);
    assert!(!dir.path().join("p.journal").exists(), "nothing was begun");
    let ended = run(dir.path(), &[]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    for name in names {
        let run = Run::read(dir.path().join(format!("p.{name}.json"))).expect("a result file");
        assert!(!run.results.is_empty(), "{name}: {:?}", run.missing);
        // Shared memory has no step to resolve an address, and in a second not every cell has its turn.
        assert!(run.missing.iter().all(|missing| !missing.why.is_empty()), "{name}: {:?}", run.missing);
        assert!(run.parameters.iter().any(|p| p.key == "part" && p.value == name));
    }
    assert!(fs::read_to_string(dir.path().join("p.html")).expect("a page").contains("</html>"));
    assert!(ended.out.contains("Part crowd") && ended.out.contains("Report: p.html"), "{}", ended.out);
}

/// Goal: the survey writes the plan that it measures, and leaves other plans alone. Method: a device that is always there,
/// interrupted as soon as something is measured.
#[test]
fn survey_measures_the_plan_that_it_writes() {
    let dir = tempfile::tempdir().expect("a folder");
    let outline = nicety_in(dir.path(), ["survey", "--dry-run"]);
    assert_eq!(outline.status, Some(0), "{outline:?}");
    assert!(outline.out.contains("cells on hw, 6 launches"), "{}", outline.out);
    assert!(!dir.path().join("nicety-survey.toml").exists(), "nothing is written");
    let failed = nicety_in(dir.path(), ["survey", "hw(lib=/no/such)"]);
    assert_eq!(failed.status, Some(1), "{failed:?}");
    assert!(
        !dir.path().join("nicety-survey.toml").exists(),
        "nothing is written for a device that does not work"
    );
    let mut child = under_way(dir.path(), &["survey", "shm", "-D", "1", "--name", "p", "--plain"]);
    signal(&child, Signal::INT);
    assert_eq!(wait(&mut child), Some(130));
    let outline = run(dir.path(), &["--dry-run"]);
    assert!(outline.out.contains("cells on shm, 6 launches"), "{outline:?}");
    let other = nicety_in(dir.path(), ["survey", "iwarp", "--name", "p"]);
    assert_eq!(other.status, Some(2), "{other:?}");
    assert!(other.err.contains("p.toml exists and is another plan"), "{}", other.err);
}

/// Goal: an interruption loses only the cell being measured. Method: the first run is ended by Ctrl-C, the second is killed,
/// the third completes; the journal contains no cell of a launch twice, and the results contain every launch of every cell.
#[test]
fn interrupted_plan_continues_without_repeating_cells() {
    let (dir, _path) = plan(SMALL);
    let mut child = under_way(dir.path(), &MEASURE);
    signal(&child, Signal::INT);
    assert_eq!(wait(&mut child), Some(130));
    let first = measured(dir.path());
    assert!(!first.is_empty());
    let mut child = under_way(dir.path(), &MEASURE);
    signal(&child, Signal::KILL);
    assert_eq!(wait(&mut child), None);
    let second = measured(dir.path());
    assert!(second.is_superset(&first));
    let ended = run(dir.path(), &[]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.err.contains(&format!("resuming: {} of", second.len())), "{}", ended.err);
    let all = measured(dir.path());
    assert!(all.is_superset(&second));
    let results = Run::read(dir.path().join("p.small.json")).expect("a result file");
    assert!(results.results.iter().all(|r| r.launches.len() == 6), "{:?}", results.missing);
    assert!(results.environment.warnings.iter().any(|w| w.what.contains("at other times")), "it says so");
    let there = || {
        ["small.json", "calls.json", "html"].map(|end| {
            let path = dir.path().join(format!("p.{end}"));
            (fs::read(&path).expect("a file"), fs::metadata(&path).expect("a file").ino())
        })
    };
    let before = there();
    // With nothing left to measure, the results and their files stay unchanged.
    let again = run(dir.path(), &[]);
    assert_eq!(again.status, Some(0), "{again:?}");
    assert!(again.err.contains(&format!("all {} measurements exist", all.len())), "{}", again.err);
    assert_eq!(measured(dir.path()), all);
    assert_eq!(there(), before);
}

/// Goal: a modelled device in the same plan does not mark the machine's results as simulated, however often the plan is run.
/// Method: runs the same plan twice, the second time with nothing left to measure.
#[test]
fn machine_description_is_kept_after_rerun_with_modelled_device() {
    let (dir, _path) = plan(&SMALL.replace("launches = 6", "launches = 1"));
    let environment = || {
        assert_eq!(run(dir.path(), &[]).status, Some(0));
        Run::read(dir.path().join("p.calls.json")).expect("a result file").environment
    };
    let first = environment();
    assert!(first.clock.kind != ClockKind::Virtual && !first.pinned_cores.is_empty(), "{first:?}");
    assert!(first.noise_before.is_some() && first.noise_after.is_some(), "{first:?}");
    // The date has a resolution of one second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(environment(), first);
}

#[test]
fn changed_plan_or_machine_is_detected() {
    let text = SMALL.replace("launches = 6", "launches = 1");
    let (dir, path) = plan(&text);
    assert_eq!(run(dir.path(), &[]).status, Some(0));
    let before = measured(dir.path());
    fs::write(&path, text.replace("sizes = [8]", "sizes = [8, 64]")).expect("file");
    let ended = run(dir.path(), &[]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.err.contains("the plan has changed") && ended.err.contains("resuming"), "{}", ended.err);
    let after = measured(dir.path());
    assert!(after.is_superset(&before) && after.len() > before.len());
    let journal = dir.path().join("p.journal");
    let other = fs::read_to_string(&journal).expect("file").replacen("\"host\":\"", "\"host\":\"not-", 1);
    fs::write(&journal, &other).expect("file");
    run(dir.path(), &[]).is_error(2, "p.journal was begun with the host not-");
    assert_eq!(fs::read_to_string(&journal).expect("file"), other);
    let fresh = run(dir.path(), &["--fresh"]);
    assert_eq!(fresh.status, Some(0), "{fresh:?}");
    assert_eq!(fs::read_to_string(dir.path().join("p.journal.old")).expect("file"), other);
    assert_eq!(measured(dir.path()).len(), after.len());
}

/// Goal: a part that fails does not affect other parts, and is measured again. Method: its peer cannot be reached in the first
/// run.
#[test]
fn failed_part_is_retried_and_others_are_measured() {
    let server = crate::serve::Server::start();
    let addr = server.addr.clone();
    drop(server);
    let text = format!(
        "{SMALL}\n[part.far]\nexperiments = ['latency']\npeers = ['{addr}']\n[part.last]\nexperiments = ['post']\n"
    );
    let (dir, _path) = plan(&text.replace("launches = 6", "launches = 1"));
    let ended = run(dir.path(), &[]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(
        ended.err.contains(&format!("part far: launch 1 of 1: the connection failed: {addr}")),
        "{}",
        ended.err
    );
    assert!(dir.path().join("p.last.json").exists() && !dir.path().join("p.far.json").exists());
    let before = measured(dir.path());
    let mut child =
        command().args(["serve", "--listen", &addr]).stdout(Stdio::piped()).spawn().expect("a server");
    let lines = BufReader::new(child.stdout.take().expect("standard output")).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.next().is_some_and(|line| line.contains("listening at")));
    std::thread::spawn(move || lines.count());
    let ended = run(dir.path(), &[]);
    signal(&child, Signal::INT);
    wait(&mut child);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(measured(dir.path()).is_superset(&before) && dir.path().join("p.far.json").exists());
}

#[test]
fn plan_errors_are_reported_with_lines_before_measuring() {
    let (dir, _path) = plan("[part.a]\nexperiments = ['latncy']\nsizes = ['8X']\n\n[part.b]\nlaunches = 0\n");
    let ended = run(dir.path(), &[]);
    assert_eq!((ended.status, ended.out.as_str()), (Some(2), ""), "{ended:?}");
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!(lines.len(), 3, "{ended:?}");
    for (line, text) in
        lines.iter().zip(["p.toml:2: there is no experiment", "p.toml:3: '8X'", "p.toml:6: launches"])
    {
        assert!(line.starts_with(&format!("nicety: {text}")), "{ended:?}");
    }
    assert_eq!(fs::read_dir(dir.path()).expect("directory").count(), 1, "nothing was begun");
    nicety_in(dir.path(), ["bench", "--plan", "none.toml"]).is_error(2, "cannot read the plan none.toml");
    nicety_in(dir.path(), ["bench", "--plan", "p.toml", "--size", "8"])
        .is_error(2, "cannot be combined with");
    nicety_in(dir.path(), ["bench", "--fresh"]).is_error(2, "--plan");
}
