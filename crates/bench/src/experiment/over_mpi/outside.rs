//! [`Outside`]: the same loops in a C program, under our library of MPI's standard ABI or under another one. The
//! program is a job of `nicety mpirun`; this process requests rounds from its rank 0, by its standard input and
//! output, and takes no part itself.

use std::io::{BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, kill_process};
use verbs::host::{Host, bounded};

use super::super::{Fault, Round, Session, Side};
use crate::against::Against;
use results::plain;

/// Levels of the factor that selects the library.
pub(super) const LIBRARIES: [&str; 2] = [OWN_LIBRARY, "other"];
const OWN_LIBRARY: &str = "nicety";
/// Time for a job to exit on its own after the last request.
const END: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
/// Seconds after which a hung job ends if its benchmark was killed.
const JOB_TIMEOUT_S: &str = "900";
/// Maximum bytes of a line of the program.
const LINE_MAX: u64 = 4096;

/// A job under a library.
pub(super) struct Outside {
    child: Child,
    /// Closed when nothing more is asked.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    host: Host,
    messages: u64,
    note: String,
}

impl Outside {
    /// Starts a job of `ranks` ranks; an operation has `messages` messages.
    pub(super) fn start(
        session: &Session<'_>,
        against: &Against,
        library: &str,
        (ranks, messages): (u32, u64),
    ) -> Result<Self, Fault> {
        let cell = session.cell;
        let mut command = Command::new(&against.launcher);
        command.args(["mpirun", "--timeout", JOB_TIMEOUT_S, "-n", &ranks.to_string()]);
        if library == OWN_LIBRARY {
            command.args(["--device", session.device.name()]);
        } else {
            command.arg("--library").arg(&against.other);
        }
        command.arg(&against.program);
        command.args([&cell.experiment, &cell.size.to_string(), &session.settings.window.to_string()]);
        let spawn_error =
            |error| Fault::Machine(format!("{} cannot be started: {error}", against.launcher.display()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(spawn_error)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| Fault::Control("the job has no output".into()))?;
        let output = BufReader::new(output);
        let mut side =
            Self { child, input, output, host: session.host.clone(), messages, note: String::new() };
        let line = side.line(session)?;
        let Some(version) = line.strip_prefix("library ") else {
            return Err(Fault::Control(plain::line(&format!("the measuring program sent {line:?}"))));
        };
        side.note = plain::line(version);
        Ok(side)
    }

    fn ask(&mut self, what: &str) -> Result<(), Fault> {
        let input = self.input.as_mut().ok_or_else(|| Fault::Control("the job was ended".into()))?;
        // A job that has exited does not read this; its missing answer will show that.
        let _ = writeln!(input, "{what}").and_then(|()| input.flush());
        Ok(())
    }

    /// The next line from rank 0.
    fn line(&mut self, session: &Session<'_>) -> Result<String, Fault> {
        let (deadline, mut line) = (session.deadline(), Vec::new());
        while self.output.buffer().is_empty() {
            let mut fds = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
            let tick = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let ready = rustix::event::poll(&mut fds, Some(&tick));
            if ready.is_ok_and(|ready| ready > 0) {
                break;
            }
            if deadline.is_some_and(|deadline| self.host.now() > deadline) {
                return Err(Fault::TimedOut("a job under an MPI library"));
            }
        }
        let read = bounded::read_line(&mut self.output, LINE_MAX, &mut line);
        if read.map_err(|error| Fault::Control(format!("the measuring program: {error}")))? == 0 {
            return Err(Fault::Absent(
                "the job under an MPI library has ended; its own words say why".into(),
            ));
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.input = None;
        // It hangs up when it has ended, for which it has a while.
        let mut fds = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
        if !rustix::event::poll(&mut fds, Some(&END)).is_ok_and(|ready| ready > 0) {
            // It ends its ranks before itself.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

impl Side for Outside {
    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        self.ask(&format!("{} {} {}", round.lead_in, round.samples, round.batch))?;
        for _ in 0..round.samples {
            let line = self.line(s)?;
            let reading: f64 =
                line.parse().map_err(|_| Fault::Control(plain::line(&format!("{line:?} is no reading"))))?;
            readings.push(reading);
        }
        Ok(())
    }

    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        self.ask("verify")?;
        match self.line(session)?.as_str() {
            "right" => Ok(()),
            line => Err(Fault::Corrupt(plain::line(&format!("the measuring program sent {line:?}")))),
        }
    }

    fn messages(&self) -> u64 {
        self.messages
    }

    fn note(&self) -> Option<String> {
        Some(self.note.clone())
    }
}
