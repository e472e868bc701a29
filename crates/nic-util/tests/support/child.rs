//! Child processes: this test binary again, in a role that an environment variable names. They communicate in
//! lines.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child as Process, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use super::PATIENCE;

const ROLE: &str = "NICETY_TEST_ROLE";
/// Separates the child's lines from the output of the test harness.
const MARK: &str = "@ ";

/// Runs a role, in a child: the body of a test named `child_entry`. Does nothing in the parent.
pub(crate) fn enter(roles: &[(&str, fn())]) {
    let Ok(role) = std::env::var(ROLE) else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a death signal");
    let (_, body) = roles.iter().find(|(name, _)| *name == role).expect("a known role");
    body();
    std::process::exit(0);
}

/// In a child: sends a line to the parent.
pub(crate) fn send_line(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush()).expect("a parent that reads");
}

/// In a child: the parent's next line; `None` at the end of input.
pub(crate) fn recv_line() -> Option<String> {
    let mut line = String::new();
    let n = std::io::stdin().lock().read_line(&mut line).expect("a parent that writes");
    (n > 0).then(|| line.trim_end().to_string())
}

/// A child process; killed and reaped when dropped.
pub(crate) struct Child {
    process: Process,
    stdin: ChildStdin,
    lines: Receiver<String>,
    reaped: bool,
    /// Reads the child's output until it ends.
    reader: Option<JoinHandle<()>>,
}

impl Child {
    /// Starts this test binary as `role`.
    #[track_caller]
    pub(crate) fn start(role: &str) -> Self {
        let exe = std::env::current_exe().expect("this binary");
        Self::try_start(role, &exe, None).expect("a child")
    }

    /// Starts the binary at `exe`, as another user if given.
    pub(crate) fn try_start(role: &str, exe: &std::path::Path, uid: Option<u32>) -> std::io::Result<Self> {
        let mut command = Command::new(exe);
        if let Some(uid) = uid {
            command.uid(uid).gid(uid).current_dir("/");
        }
        Self::of(role, command)
    }

    /// Starts this test binary in a PID namespace of its own; `None` where that is not allowed.
    pub(crate) fn in_pid_namespace(role: &str) -> Option<Self> {
        let unshare = ["--pid", "--fork", "--kill-child"];
        let allowed = Command::new("unshare").args(unshare).arg("true").stderr(Stdio::null()).status();
        if !allowed.is_ok_and(|status| status.success()) {
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(unshare).arg(std::env::current_exe().expect("this binary"));
        Some(Self::of(role, command).expect("a child"))
    }

    fn of(role: &str, mut command: Command) -> std::io::Result<Self> {
        command
            .args(["--exact", "child_entry", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let stdin = process.stdin.take().expect("piped");
        let stdout = process.stdout.take().expect("piped");
        let (tx, lines) = channel();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                if let Some(said) = line.strip_prefix(MARK)
                    && tx.send(said.to_string()).is_err()
                {
                    return;
                }
            }
        });
        Ok(Self { process, stdin, lines, reaped: false, reader: Some(reader) })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id() as i32).expect("a process number")
    }

    /// Sends a line to the child.
    #[track_caller]
    pub(crate) fn send_line(&mut self, line: impl std::fmt::Display) {
        writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush()).expect("a child that reads");
    }

    /// The child's next line.
    #[track_caller]
    pub(crate) fn recv_line(&self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("the child is silent"),
            Err(RecvTimeoutError::Disconnected) => panic!("the child has ended"),
        }
    }

    /// Sends a line and returns the answer.
    #[track_caller]
    pub(crate) fn request(&mut self, line: impl std::fmt::Display) -> String {
        self.send_line(line);
        self.recv_line()
    }

    /// Sends a signal.
    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a process to signal");
    }

    /// Stops the process and returns when it has stopped.
    #[track_caller]
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.process.id());
        super::until("stopped process", || {
            let text = std::fs::read_to_string(&stat).expect("its state");
            text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T')).then_some(())
        });
    }

    /// Continues a stopped process.
    #[track_caller]
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills and reaps the process; returns the time at which it was gone.
    #[track_caller]
    pub(crate) fn kill(&mut self) -> Instant {
        self.process.kill().expect("killed");
        let status = self.process.wait().expect("reaped");
        self.reaped = true;
        assert_eq!(status.signal(), Some(9), "it ended before it was killed: {status:?}");
        Instant::now()
    }

    /// Waits until the child exits with success.
    #[track_caller]
    pub(crate) fn end(mut self) {
        let process = &mut self.process;
        let status = super::until("end of the child", || process.try_wait().expect("a child"));
        self.reaped = true;
        assert!(status.success(), "{status:?}");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // It may have ended already.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        let _ = self.reader.take().map(JoinHandle::join);
    }
}
