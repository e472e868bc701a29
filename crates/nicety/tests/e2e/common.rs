//! Helpers of the end-to-end tests: run the built command as a user would.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use results::schema::{Environment, Floor, Launch, Measurement, Run};

/// The built command, without the environment's settings of colour and width, and with SIGHUP not ignored: it would be if the
/// tests were started by `nohup`.
pub(crate) fn command() -> Command {
    let mut command = Command::new("env");
    command
        .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_nicety")])
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS")
        .env_remove("LINES")
        .env_remove("NICETY_TOKEN")
        .env("XDG_CONFIG_HOME", "/nowhere")
        .env("TERM", "xterm")
        .stdin(Stdio::null());
    command
}

/// The result of a run of the command.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit status; `None` after a signal.
    pub(crate) status: Option<i32>,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { status: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

impl Ended {
    /// Checks the house rule for errors: this status, nothing on standard output, one line that names the program, the problem
    /// (`what`) and, after a semicolon, the remedy.
    #[track_caller]
    pub(crate) fn is_error(&self, status: i32, what: &str) {
        assert_eq!(self.status, Some(status), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        assert!(self.err.starts_with("nicety: "), "{self:?}");
        assert!(self.err.contains(what), "{what:?} is not in {self:?}");
        assert!(self.err.contains("; ") || self.err.contains(" see `"), "no remedy in {self:?}");
    }
}

/// Runs the command and waits for its end.
pub(crate) fn nicety(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ended {
    command().args(args).output().expect("the command runs").into()
}

/// Runs the command in a directory.
pub(crate) fn nicety_in(dir: &Path, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ended {
    command().current_dir(dir).args(args).output().expect("the command runs").into()
}

/// A run with six launches of 8 B latency and 64 KiB bandwidth with these medians.
pub(crate) fn made_up_run(latency_us: f64, bandwidth: f64) -> Run {
    let result = |experiment: &str, metric: &str, unit: &str, size_bytes: u64, median: f64| Measurement {
        experiment: experiment.to_owned(),
        device: "shm".to_owned(),
        variant: [("op", "write")].into_iter().collect(),
        size_bytes,
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        n: 6000,
        median,
        ci95: Some([0.99 * median, 1.01 * median]),
        floor: Some(Floor { value: median, unit: unit.to_owned(), what: "memcpy".to_owned(), ratio: 1.0 }),
        launches: (0..6)
            .map(|i| Launch { median: median * (1.0 + 0.001 * f64::from(i)), n: 1000, ..Launch::default() })
            .collect(),
        ..Measurement::default()
    };
    Run {
        environment: Environment { host: "node1".to_owned(), cores: 2, ..Environment::default() },
        results: vec![
            result("latency", "one_way_latency", "us", 8, latency_us),
            result("bandwidth", "bandwidth", "MB/s", 65536, bandwidth),
        ],
        ..Run::default()
    }
}

/// Writes a run into a directory.
pub(crate) fn save(dir: &Path, name: &str, run: &Run) -> PathBuf {
    let path = dir.join(name);
    run.write(&path).expect("the run is written");
    path
}

/// Parses text as JSON.
pub(crate) fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

/// Sends a signal to a child.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("the child is there");
}

/// Waits for a child; kills it after a minute.
pub(crate) fn wait(child: &mut Child) -> Option<i32> {
    for _ in 0..600 {
        if let Some(status) = child.try_wait().expect("a status") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    child.kill().expect("the child is there");
    panic!("the child did not end within a minute");
}
