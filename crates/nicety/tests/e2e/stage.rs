//! A directory with programs for `nicety mpirun`, and the processes that are started from it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Ended, command, wait};

/// How long a test waits for an expected event.
const PATIENCE: Duration = Duration::from_secs(60);
/// The variable that marks the processes of a stage.
const MARK: &str = "NICETY_TEST_STAGE";

/// PMI-1 commands for ranks that are shell scripts.
const PMI: &str = r#"#!/bin/bash
pmi() { echo "cmd=$*" >&$PMI_FD; read -r answer <&$PMI_FD; }
join() { pmi init pmi_version=1 pmi_subversion=1; pmi get_my_kvsname; kvs=${answer##*kvsname=}; }
leave() { pmi finalize; }
ring() {
    next=$(( (PMI_RANK + 1) % PMI_SIZE ))
    join; pmi put kvsname=$kvs key=card$PMI_RANK value=at$PMI_RANK
    pmi barrier_in; pmi get kvsname=$kvs key=card$next
    echo "rank $PMI_RANK finds ${answer##*value=}"; leave
}
"#;

/// A directory with programs, and the processes started from it.
pub(crate) struct Stage {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) mark: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mark = format!("{MARK}={}", dir.path().display());
        Self { dir, mark }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a program and returns its path.
    pub(crate) fn program(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).expect("a file");
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).expect("a mode");
        format!("./{name}")
    }

    /// Writes a rank's program, which can use the PMI commands.
    pub(crate) fn rank(&self, name: &str, body: &str) -> String {
        self.program(name, &format!("{PMI}{body}\n"))
    }

    /// Writes a replacement of ssh, which runs the agent's command on this host.
    pub(crate) fn rsh(&self) -> String {
        let path = self.program("rsh", "#!/bin/sh\necho welcome to $1 >&2\nshift\nexec sh -c \"$*\"\n");
        self.path(&path).to_str().expect("a path").to_owned()
    }

    pub(crate) fn mpirun(&self, args: &[&str]) -> Command {
        let mut mpirun = command();
        let (name, value) = self.mark.split_once('=').expect("a variable");
        mpirun.arg("mpirun").args(args).env(name, value).current_dir(self.dir.path());
        mpirun
    }

    /// Runs a job and waits for its end.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        let ended = self.mpirun(args).output().expect("the command runs").into();
        self.is_empty();
        ended
    }

    /// Starts a job and returns a reader of its output.
    pub(crate) fn start(&self, args: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
        let mut mpirun = self.mpirun(args);
        mpirun.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut mpirun = mpirun.spawn().expect("the command runs");
        let out = BufReader::new(mpirun.stdout.take().expect("its output"));
        (mpirun, out)
    }

    /// The running processes of this stage.
    pub(crate) fn processes(&self) -> Vec<String> {
        let entries = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
        let is_ours = |path: &PathBuf| {
            let environment = fs::read(path.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == self.mark.as_bytes())
        };
        let name = |path: PathBuf| {
            let words = fs::read(path.join("cmdline")).unwrap_or_default();
            format!("{}: {}", path.display(), String::from_utf8_lossy(&words).replace('\0', " "))
        };
        entries.map(|entry| entry.path()).filter(is_ours).map(name).collect()
    }

    /// Waits until all processes have ended.
    #[track_caller]
    pub(crate) fn is_empty(&self) {
        let began = Instant::now();
        while let left @ [_, ..] = &self.processes()[..] {
            assert!(began.elapsed() < PATIENCE, "left behind: {left:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The lines in sorted order, as the order of ranks varies.
pub(crate) fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Reads this many lines.
#[track_caller]
pub(crate) fn lines(from: &mut impl std::io::BufRead, count: usize) -> Vec<String> {
    let lines: Vec<String> = from.lines().take(count).map(|line| line.expect("text")).collect();
    assert_eq!(lines.len(), count, "it ended before: {lines:?}");
    lines
}

/// Waits for the end of a job, and returns its remaining output.
pub(crate) fn rest(mut mpirun: Child) -> Ended {
    let status = wait(&mut mpirun);
    let mut err = String::new();
    mpirun.stderr.take().expect("its errors").read_to_string(&mut err).expect("text");
    Ended { status, out: String::new(), err }
}

/// The remarks except the one about ranks that share cores, which depends on the machine.
pub(crate) fn remarks(ended: &Ended) -> Vec<&str> {
    ended.err.lines().filter(|line| !line.contains("timings are unreliable (oversubscribed)")).collect()
}

/// Checks that a failed job has this status and one remark, and returns the remark.
#[track_caller]
pub(crate) fn remark(ended: &Ended, status: i32) -> &str {
    assert_eq!(ended.status, Some(status), "{ended:?}");
    let [line] = remarks(ended)[..] else { panic!("one line is due: {ended:?}") };
    assert!(line.starts_with("nicety: "), "{line}");
    line
}
