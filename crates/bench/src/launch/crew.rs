//! The processes of one launch: started, watched, and always ended and reaped.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::job::{Job, Lines, News, write_line};
use super::{BenchError, WorkerCommand};
use crate::machine;

/// Between the end of a worker's socket and that of its process.
const REAPING: Duration = Duration::from_secs(1);

/// One worker process; dropping it ends it.
#[derive(Debug)]
pub(super) struct Worker {
    name: &'static str,
    child: Child,
    lines: Lines,
    /// It has reported that it is done.
    done: bool,
    /// Its end has been reported.
    ended: bool,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A process that has already exited cannot be killed, which is harmless; it is reaped all the same.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a worker has done.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    /// It has sent a line.
    News(News),
    /// It has ended with success, after it reported that it was done.
    Finished,
    /// It has ended in another way, or closed its socket; with the reason, in words.
    Lost(String),
}

/// Starts a worker with `input` as its standard input, and `output` as its standard output.
///
/// # Errors
/// The operating system's.
pub fn spawn(command: &WorkerCommand, input: OwnedFd, output: Option<OwnedFd>) -> io::Result<Child> {
    Command::new(&command.program)
        .args(&command.args)
        .stdin(Stdio::from(input))
        .stdout(output.map_or_else(Stdio::null, Stdio::from))
        // What it needs of that is in its job.
        .env_remove(crate::token::VARIABLE)
        // A process group of its own: Ctrl-C reaches the orchestrator alone, which then ends all in order.
        .process_group(0)
        .spawn()
}

impl Worker {
    /// Starts a worker and gives it its job.
    pub(super) fn start(name: &'static str, command: &WorkerCommand, job: &Job) -> Result<Self, BenchError> {
        let no = |e: io::Error| {
            BenchError::new(format!("cannot start the {name} process {}: {e}", command.program.display()))
        };
        let (ours, theirs) = UnixStream::pair().map_err(no)?;
        let child = spawn(command, OwnedFd::from(theirs), None).map_err(no)?;
        let worker = Self { name, child, lines: Lines::new(ours), done: false, ended: false };
        // A process that has already exited fails this write; its status is reported when its output is read.
        let _ = write_line(worker.lines.stream(), job);
        Ok(worker)
    }

    /// Asks it to finish after what it is doing.
    pub(super) fn ask_to_stop(&self) {
        // A process that no longer reads is killed later.
        let _ = write_line(self.lines.stream(), &"stop");
    }

    /// Its role: `client`, `server` or `helper`.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Waits for the worker's next line, or for its end.
    fn next_event(&mut self) -> WorkerEvent {
        match self.lines.next() {
            Ok(Some(news)) => {
                self.done |= matches!(news, News::Done { .. });
                WorkerEvent::News(news)
            }
            Ok(None) => self.finish(None),
            Err(e) => self.finish(Some(e)),
        }
    }

    /// Notes that the worker sends nothing more, waits for the end of its process, and returns how that ended. `error` is that
    /// of the last read, if it failed.
    fn finish(&mut self, error: Option<io::Error>) -> WorkerEvent {
        self.ended = true;
        // A closed socket comes a moment before the end of the process.
        let began = machine::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if machine::since(began) < REAPING => std::thread::sleep(Duration::from_millis(2)),
                _ => break None,
            }
        };
        if self.done && status.is_some_and(|status| status.success()) {
            return WorkerEvent::Finished;
        }
        let how = match (status, error) {
            (Some(status), _) => describe(status),
            (None, Some(e)) => format!("sent what is no message: {e}"),
            (None, None) => "hung up".to_owned(),
        };
        WorkerEvent::Lost(format!("the {} process {how}", self.name))
    }
}

/// How a process ended, in words that follow its name.
#[must_use]
pub fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(9), _) => "was killed (signal 9)".to_owned(),
        (Some(signal), _) => format!("died of signal {signal}"),
        (None, Some(0)) => "ended early".to_owned(),
        (None, code) => format!("failed with status {}", code.unwrap_or_default()),
    }
}

/// Waits for the next event of any worker, at most for `limit`; `None` if there is none.
pub(super) fn wait_for_event(workers: &mut [Worker], limit: Duration) -> Option<(usize, WorkerEvent)> {
    if let Some(index) = workers.iter().position(|w| !w.ended && w.lines.is_buffered()) {
        return Some((index, workers[index].next_event()));
    }
    let open: Vec<usize> = (0..workers.len()).filter(|i| !workers[*i].ended).collect();
    let mut fds: Vec<PollFd<'_>> =
        open.iter().map(|i| PollFd::new(workers[*i].lines.stream(), PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // A signal, such as Ctrl-C, ends the wait early: the caller checks its flag.
    rustix::event::poll(&mut fds, Some(&limit)).ok()?;
    let ready = fds.iter().position(|fd| !fd.revents().is_empty())?;
    let index = open[ready];
    Some((index, workers[index].next_event()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Token;

    fn command(program: &str, args: &[&str]) -> WorkerCommand {
        WorkerCommand { program: program.into(), args: args.iter().map(Into::into).collect() }
    }

    fn server() -> Job {
        Job::Server { token: Token::random().expect("random numbers"), core: None }
    }

    #[test]
    fn worker_that_ends_is_reported_with_the_reason() {
        for (script, expected) in [
            ("exit 3", "the server process failed with status 3"),
            ("kill -9 $$", "the server process was killed (signal 9)"),
            ("exit 0", "the server process ended early"),
            ("echo nonsense >&0; exec sleep 60", "the server process sent what is no message"),
        ] {
            let worker = Worker::start("server", &command("/bin/sh", &["-c", script]), &server());
            let mut crew = [worker.expect("a shell")];
            let event = wait_for_event(&mut crew, Duration::from_secs(20));
            let Some((0, WorkerEvent::Lost(how))) = event else { panic!("{script}: {event:?}") };
            assert!(how.starts_with(expected), "{how}");
            assert!(wait_for_event(&mut crew, Duration::ZERO).is_none(), "it is reported once");
        }
    }

    /// Goal: a process that ends after its report has finished, and is not lost. Method: processes that end with status 0 after their report,
    /// with status 0 without it, and with another status after it.
    #[test]
    fn worker_that_ends_after_its_report_has_finished() {
        let done = r#"echo '{"news":"done","noise":null}' >&0"#;
        for (script, finished) in
            [(format!("{done}; exit 0"), true), ("exit 0".into(), false), (format!("{done}; exit 3"), false)]
        {
            let worker = Worker::start("server", &command("/bin/sh", &["-c", &script]), &server());
            let mut crew = [worker.expect("a shell")];
            let last = loop {
                match wait_for_event(&mut crew, Duration::from_secs(20)).expect("its end").1 {
                    WorkerEvent::News(news) => assert!(matches!(news, News::Done { noise: None })),
                    last => break last,
                }
            };
            assert_eq!(matches!(last, WorkerEvent::Finished), finished, "{script}: {last:?}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let why = Worker::start("client", &command("/no/such/program", &[]), &server()).expect_err("absent");
        assert!(why.what.contains("/no/such/program") && why.what.contains("client"), "{why}");
    }

    #[test]
    fn dropping_ends_and_reaps() {
        let worker = Worker::start("server", &command("/bin/sleep", &["60"]), &server()).expect("sleep");
        let pid = rustix::process::Pid::from_child(&worker.child);
        drop(worker);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
