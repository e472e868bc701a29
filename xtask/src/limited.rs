//! Programs that run for a limited time: each is killed, by its process id, when its [`Running`] is dropped.

use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A limit for any small operation on a slow machine, in seconds.
pub const SMALL_LIMIT: u32 = 60;
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A running program; killed when dropped.
pub struct Running {
    child: Child,
    log: PathBuf,
    name: String,
}

/// The result of a program.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status; `None` if it took too long and was killed.
    pub status: Option<ExitStatus>,
    /// All of its output.
    pub output: String,
}

impl Finished {
    /// Whether it exited successfully within its limit.
    pub fn is_good(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

impl Running {
    /// Starts a program; its output goes into the file `log`.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let path = Path::new(command.get_program());
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let output = File::create(log).with_context(|| format!("{}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, log: log.to_owned(), name })
    }

    /// Its output so far.
    pub fn output(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }

    /// Its exit status and output as text, if it has exited.
    pub fn exit_report(&mut self) -> Result<Option<String>> {
        match self.child.try_wait()? {
            Some(status) => Ok(Some(format!("{} ended with {status}: {}", self.name, self.output()?))),
            None => Ok(None),
        }
    }

    /// Waits until its output contains `words`; false if it exits or `limit` passes before.
    pub fn wait_for_output(&mut self, words: &str, limit: Duration) -> Result<bool> {
        let began = Instant::now();
        loop {
            let over = self.child.try_wait()?.is_some() || began.elapsed() >= limit;
            if self.output()?.contains(words) {
                return Ok(true);
            }
            if over {
                return Ok(false);
            }
            sleep(CHECK_INTERVAL);
        }
    }

    /// Waits until a program listens on this port, by TCP or by a name of the device `shm`, without connecting to it.
    /// Programs print that they listen before they do.
    ///
    /// # Errors
    /// It ends before, or `limit` passes.
    pub fn wait_for_listener(&mut self, port: u16, limit: Duration) -> Result<()> {
        let (address, name, began) = (format!(":{port:04X}"), format!("/{port}"), Instant::now());
        let is_bound = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(&address)) && words.nth(1) == Some("0A")
        };
        let is_named = |line: &str| line.contains("@nicety-shm/") && line.ends_with(&name);
        let lines = |file: &str, is: &dyn Fn(&str) -> bool| {
            fs::read_to_string(file).is_ok_and(|text| text.lines().any(is))
        };
        while !lines("/proc/net/tcp", &is_bound)
            && !lines("/proc/net/tcp6", &is_bound)
            && !lines("/proc/net/unix", &is_named)
        {
            if let Some(ended) = self.exit_report()? {
                bail!("the server {ended}");
            }
            ensure!(began.elapsed() < limit, "nothing listens at port {port}: {}", self.output()?);
            sleep(CHECK_INTERVAL);
        }
        Ok(())
    }

    /// Waits for its exit; kills it after `limit`.
    pub fn finish(mut self, limit: Duration) -> Result<Finished> {
        let began = Instant::now();
        while began.elapsed() < limit {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Finished { status: Some(status), output: self.output()? });
            }
            sleep(CHECK_INTERVAL);
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(Finished { status: None, output: self.output()? })
    }

    /// Interrupts it as Ctrl-C does, and waits for its exit.
    pub fn interrupt(self, limit: Duration) -> Result<Finished> {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-INT", &id]).stdin(Stdio::null()).status()?;
        self.finish(limit)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_takes_too_long_is_killed() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut sleeper = Command::new("sh");
        sleeper.args(["-c", "echo begun; exec sleep 100"]);
        let mut running = Running::start(&mut sleeper, &folder.path().join("log")).expect("a shell");
        assert!(running.wait_for_output("begun", Duration::from_secs(20)).expect("readable"));
        let finished = running.finish(Duration::from_millis(100)).expect("it can be killed");
        assert!(finished.status.is_none() && finished.output == "begun\n", "{finished:?}");
    }

    #[test]
    fn listener_is_found_and_an_exit_before_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let limit = Duration::from_secs(20);
        let mut sleeper = Command::new("sleep");
        let mut running = Running::start(sleeper.arg("100"), &folder.path().join("log")).expect("it starts");
        running.wait_for_listener(port, limit).expect("this test listens");
        let why = running.wait_for_listener(0, Duration::from_millis(50)).expect_err("nothing listens");
        assert!(why.to_string().contains("nothing listens at port 0"), "{why}");
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo gone; exit 3"]);
        let mut running = Running::start(&mut shell, &folder.path().join("log")).expect("a shell");
        let why = running.wait_for_listener(0, limit).expect_err("it ends").to_string();
        assert!(why.contains("gone"), "{why}");
    }

    #[test]
    fn output_is_found_before_the_end_and_after_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo one; echo two >&2; exit 3"]);
        let mut running = Running::start(&mut shell, &folder.path().join("log")).expect("a shell");
        assert!(running.wait_for_output("two", Duration::from_secs(20)).expect("readable"));
        let finished = running.finish(Duration::from_secs(20)).expect("it ends");
        assert_eq!(finished.status.and_then(|status| status.code()), Some(3));
        assert_eq!(finished.output, "one\ntwo\n");
    }
}
