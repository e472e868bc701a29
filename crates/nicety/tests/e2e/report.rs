//! `nicety report`, end to end.

use std::fs;
use std::process::Command;

use crate::common::{made_up_run, nicety, nicety_in, save};

#[test]
fn several_runs_become_one_page() {
    let dir = tempfile::tempdir().expect("directory");
    save(dir.path(), "a.json", &made_up_run(1.0, 9000.0));
    save(dir.path(), "b.json", &made_up_run(1.1, 9100.0));
    let ended = nicety_in(dir.path(), ["report", "a.json", "b.json", "-o", "both.html"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let said = ended.out.split_once('\n').expect("two lines");
    assert!(said.0.starts_with("b.json against a.json: ") && said.0.contains("in both runs"), "{ended:?}");
    assert_eq!(said.1, "Report of 2 runs: both.html (open it in a browser)\n");
    let page = fs::read_to_string(dir.path().join("both.html")).expect("the page");
    assert!(
        page.contains("</html>") && page.contains("b.json against a.json"),
        "runs are named by their files"
    );
    save(dir.path(), "c.json", &made_up_run(1.0, 9000.0));
    let ended = nicety_in(dir.path(), ["report", "a.json", "c.json"]);
    assert!(ended.out.starts_with("c.json against a.json: no difference found beyond 5.0 %; "), "{ended:?}");
    let ended = nicety_in(dir.path(), ["report", "a.json"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(dir.path().join("nicety-report.html").exists(), "the default name");
    let ended = nicety_in(dir.path(), ["report", "a.json", "-o", "-"]);
    assert!(ended.out.contains("</html>") && ended.err.is_empty());
}

/// Goal: scripts that parse OSU's tables parse ours. Method: every line without `#` is split at spaces.
#[test]
fn osu_tables_are_columns_of_numbers() {
    let dir = tempfile::tempdir().expect("directory");
    let mut run = made_up_run(1.0, 9000.0);
    run.results.iter_mut().for_each(|r| r.experiment = format!("mpi-{}", r.experiment));
    save(dir.path(), "mpi.json", &run);
    save(dir.path(), "verbs.json", &made_up_run(1.0, 9000.0));
    let ended = nicety_in(dir.path(), ["report", "mpi.json", "--text", "--osu"]);
    let rows = ended.out.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let numbers: Vec<Vec<f64>> = rows
        .map(|row| row.split_whitespace().map(|word| word.parse().expect("a number")).collect())
        .collect();
    assert_eq!(numbers, [[8.0, 1.0], [65_536.0, 9000.0]], "{}", ended.out);
    nicety_in(dir.path(), ["report", "verbs.json", "--text", "--osu"]).is_error(2, "no result of mpi-...");
    nicety(["bench", "latency", "--osu"]).is_error(2, "tables of MPI only");
}

/// Goal: the screen fits the terminal that it is shown on. Method: terminals of usual shapes, by script(1); lines and columns are counted.
#[test]
fn screen_fits_its_terminal() {
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../report/tests/recorded/shm-quick.json");
    let shown = |rows: usize, columns: usize| {
        let line =
            format!("stty rows {rows} cols {columns}; {} report {run} --text", env!("CARGO_BIN_EXE_nicety"));
        let ended = Command::new("script").args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").output();
        String::from_utf8(ended.expect("script(1)").stdout).expect("text")
    };
    for (rows, columns) in [(24, 80), (30, 100), (60, 120)] {
        let text = shown(rows, columns);
        let widest = text.lines().map(|line| bare(line.trim_end()).chars().count()).max().unwrap_or(0);
        assert!(
            text.lines().count() < rows && widest <= columns,
            "{rows} x {columns}: {widest} wide\n{text}"
        );
        assert!(text.contains("latency") && text.contains("\x1b["), "{rows} x {columns}:\n{text}");
    }
    assert!(shown(60, 120).lines().count() > shown(24, 80).lines().count() + 10);
    let piped = nicety(["report", run, "--text"]);
    assert!(
        piped.out.lines().count() <= 30 && piped.out.lines().all(|line| line.len() <= 80),
        "{}",
        piped.out
    );
}

/// A line without its escape sequences.
fn bare(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[test]
fn invalid_run_file_is_refused_and_old_page_is_kept() {
    let dir = tempfile::tempdir().expect("directory");
    let good = save(dir.path(), "good.json", &made_up_run(1.0, 9000.0));
    let whole = fs::read_to_string(&good).expect("file");
    let page = dir.path().join("page.html");
    fs::write(&page, "old").expect("file");
    let cases = [
        ("cut.json", whole[..whole.len() / 3].to_owned(), "cut off"),
        ("text.json", "hello".to_owned(), "not JSON"),
        ("newer.json", whole.replace("nicety-results/1", "nicety-results/9"), "newer"),
    ];
    for (name, text, what) in cases {
        let bad = dir.path().join(name);
        fs::write(&bad, text).expect("file");
        nicety(["report".as_ref(), good.as_os_str(), bad.as_os_str(), "-o".as_ref(), page.as_os_str()])
            .is_error(2, what);
    }
    nicety_in(dir.path(), ["report", "missing.json"]).is_error(2, "No such file");
    nicety_in(dir.path(), ["report", "good.json", "-o", "no/page.html"]).is_error(2, "mkdir -p");
    nicety_in(dir.path(), ["report", "good.json", "-o", "."]).is_error(2, "directory");
    nicety(["report"]).is_error(2, "<RUN.json>");
    assert_eq!(fs::read_to_string(&page).expect("file"), "old");
}
