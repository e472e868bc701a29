//! Child processes of this program in a role. They communicate in lines, and die with their parent.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child as Process, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// In a child, first: it dies with its parent.
pub(crate) fn die_with_parent() -> Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// In a child: sends a line to the parent.
pub(crate) fn send_to_parent(line: impl std::fmt::Display) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// In a child: the parent's next line; `None` at the end of input.
pub(crate) fn receive_from_parent() -> Result<Option<String>> {
    let mut line = String::new();
    let n = std::io::stdin().lock().read_line(&mut line)?;
    Ok((n > 0).then(|| line.trim_end().to_owned()))
}

/// A child; killed and reaped when dropped.
pub(crate) struct Child {
    process: Process,
    stdin: ChildStdin,
    lines: Receiver<String>,
    reaped: bool,
}

impl Child {
    /// Starts this program in a role.
    pub(crate) fn start(role: &str) -> Result<Self> {
        Self::of(Command::new(std::env::current_exe()?).args(["--role", role]))
    }

    /// Starts this command, and communicates with it in lines.
    pub(crate) fn of(command: &mut Command) -> Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = process.stdin.take().context("its input is piped")?;
        let stdout = process.stdout.take().context("its output is piped")?;
        let (tx, lines) = channel();
        // Ends with the child's output.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                if tx.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { process, stdin, lines, reaped: false })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Sends it a line.
    pub(crate) fn send(&mut self, line: impl std::fmt::Display) -> Result<()> {
        writeln!(self.stdin, "{line}")?;
        Ok(self.stdin.flush()?)
    }

    /// Its next line, if one arrives within `limit`.
    pub(crate) fn receive_within(&self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }

    /// Its next line.
    pub(crate) fn receive(&self) -> Result<String> {
        self.receive_within(Duration::from_secs(20)).context("the child is silent or has ended")
    }

    /// Sends a line and waits for the answer.
    pub(crate) fn request(&mut self, line: impl std::fmt::Display) -> Result<String> {
        self.send(line)?;
        self.receive()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid(), signal)?)
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Kills and reaps it; returns the time of its death. An error if it had exited before.
    pub(crate) fn kill(&mut self) -> Result<Instant> {
        self.process.kill()?;
        let status = self.process.wait()?;
        self.reaped = true;
        let gone = Instant::now();
        ensure!(status.signal() == Some(9), "the child had ended by itself: {status}");
        Ok(gone)
    }

    /// Waits for it to exit successfully.
    pub(crate) fn expect_success(mut self, limit: Duration) -> Result<()> {
        let (status, _) = self.wait_for_exit(limit)?;
        ensure!(status.success(), "the child ended with {status}");
        Ok(())
    }

    /// Its exit status, if it exits within `limit`, and what it wrote to a piped standard error.
    pub(crate) fn wait_for_exit(&mut self, limit: Duration) -> Result<(ExitStatus, String)> {
        let began = Instant::now();
        while began.elapsed() < limit {
            if let Some(status) = self.process.try_wait()? {
                self.reaped = true;
                let mut words = String::new();
                if let Some(mut stderr) = self.process.stderr.take() {
                    stderr.read_to_string(&mut words)?;
                }
                return Ok((status, words));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        bail!("the child did not end within {limit:?}")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // It may have ended already.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}
