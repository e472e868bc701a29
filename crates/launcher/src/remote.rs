//! The connection to the crew of another host: exchanges frames with its agent through ssh, another command, or a server.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::ioctl_fionbio;

use super::crew::write_some;
use super::event_loop::PollEntry;
use super::message::{AgentInfo, CrewEvent, EVENT_LEN_MAX, Frames, Order};
use crate::install_paths;
use crate::options::Connector;
use crate::quote::shell_words;

/// How much of the connecting program's standard error is kept, in bytes.
const STDERR_KEPT_MAX: usize = 4096;
/// Bytes of one read from the agent.
const PIECE: usize = 64 << 10;
/// How long an agent may take to end everything.
const END_GRACE: Duration = Duration::from_secs(3);
/// How often, and at which interval, to check whether the connecting program has ended before it is killed.
const CHECKS_MAX: u32 = 50;
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

impl Connector {
    /// The command whose standard input and output are those of a host's agent.
    pub(super) fn command(&self, host: &str) -> Vec<OsString> {
        let own = install_paths::own_program().unwrap_or_else(|_| "nicety".into()).into_os_string();
        match self {
            Self::Shell(words) => {
                let there = format!("exec {} mpirun --agent", shell_words([&own]));
                words.iter().map(OsString::from).chain([host.into(), there.into()]).collect()
            }
            Self::Server { port, token } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
                let to = format!("{host}:{port}").into();
                [own, "mpirun".into(), "--call".into(), to].into_iter().chain(token.iter().cloned()).collect()
            }
        }
    }

    /// What the user should check if the host cannot be reached.
    fn hint(&self) -> &'static str {
        match self {
            Self::Shell(_) => {
                "check that it accepts a connection without a password, and has this program at the same path"
            }
            Self::Server { .. } => "check the output of `nicety serve` there",
        }
    }
}

/// A pipe of the connecting program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pipe {
    Stdin,
    Stdout,
    Stderr,
}

/// A host other than this one.
#[derive(Debug)]
pub(super) struct Remote {
    /// The version of this program, which the agent must have too.
    version: String,
    /// The name of the connecting program.
    program_name: String,
    /// What the user should check if the host cannot be reached.
    pub(super) hint: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    /// Encoded orders that the agent's pipe has not accepted yet.
    orders: Vec<u8>,
    stdout: Option<ChildStdout>,
    frames: Frames,
    stderr: Option<ChildStderr>,
    /// The last part of the connecting program's standard error.
    stderr_text: Vec<u8>,
    events: VecDeque<CrewEvent>,
    /// Whether the agent has sent an event.
    has_answered: bool,
    /// Set once the agent was ordered to end everything: when to stop waiting for it.
    give_up_at: Option<Instant>,
    is_gone: bool,
}

impl Remote {
    /// Starts the connecting program. Whether it reaches the host is reported later.
    ///
    /// # Errors
    /// If the connecting program cannot be started.
    pub(super) fn start(connector: &Connector, host: &str, version: &str) -> Result<Self, String> {
        let words = connector.command(host);
        let program_name = Path::new(&words[0]).display().to_string();
        let failed = |why| format!("{program_name} cannot be started: {why}; name another command by --rsh");
        // A process group of its own: mpirun handles the terminal's signals and forwards them.
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let fds = [
            stdin.as_ref().map(AsFd::as_fd),
            stdout.as_ref().map(AsFd::as_fd),
            stderr.as_ref().map(AsFd::as_fd),
        ];
        for fd in fds.into_iter().flatten() {
            // Cannot fail on an open descriptor.
            let _ = ioctl_fionbio(fd, true);
        }
        Ok(Self {
            version: version.to_owned(),
            program_name,
            hint: connector.hint(),
            child,
            stdin,
            orders: Vec::new(),
            stdout,
            frames: Frames::new(EVENT_LEN_MAX),
            stderr,
            stderr_text: Vec::new(),
            events: VecDeque::new(),
            has_answered: false,
            give_up_at: None,
            is_gone: false,
        })
    }

    /// The next event that the agent sent, or that this connection caused.
    pub(super) fn next_event(&mut self) -> Option<CrewEvent> {
        self.events.pop_front()
    }

    /// The descriptors to poll; the agent's output only if `with_output`.
    pub(super) fn poll_entries(&self, with_output: bool) -> impl Iterator<Item = PollEntry<'_, Pipe>> {
        let stdin = self.stdin.iter().filter(|_| !self.orders.is_empty());
        let stdin = stdin.map(|pipe| (Pipe::Stdin, pipe.as_fd(), PollFlags::OUT));
        let stdout = self.stdout.iter().filter(move |_| with_output);
        let stdout = stdout.map(|pipe| (Pipe::Stdout, pipe.as_fd(), PollFlags::IN));
        let stderr = self.stderr.iter().map(|pipe| (Pipe::Stderr, pipe.as_fd(), PollFlags::IN));
        stdin.chain(stdout).chain(stderr)
    }

    /// Sends to or reads from a pipe that is ready.
    pub(super) fn handle_ready(&mut self, pipe: Pipe) {
        match pipe {
            Pipe::Stdin => self.send(),
            Pipe::Stdout => self.receive(),
            Pipe::Stderr => self.read_errors(),
        }
    }

    /// Sends an order to the agent; without an answer so far, an order to end disconnects immediately.
    pub(super) fn give_order(&mut self, order: &Order) {
        if matches!(order, Order::End | Order::Kill) {
            self.give_up_at.get_or_insert_with(|| Instant::now() + END_GRACE);
            if !self.has_answered {
                return self.give_up();
            }
        }
        self.orders.extend(order.encode());
        self.send();
    }

    /// When to stop waiting for the agent; `None` unless it was ordered to end everything and has not finished.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.give_up_at.filter(|_| !self.is_gone)
    }

    /// Gives up once the agent is late to end everything.
    pub(super) fn check_deadline(&mut self) {
        if self.deadline().is_some_and(|at| at <= Instant::now()) {
            self.give_up();
        }
    }

    /// Disconnects. An agent that still runs ends everything when its standard input ends.
    fn give_up(&mut self) {
        (self.stdin, self.stdout) = (None, None);
        self.is_gone = true;
        self.events.push_back(CrewEvent::Finished);
    }

    /// Writes as many bytes of the orders as the pipe accepts.
    fn send(&mut self) {
        let is_open = self.stdin.as_mut().is_some_and(|pipe| write_some(pipe, &mut self.orders));
        if !is_open {
            // The reason is read from the other pipes.
            self.stdin = None;
            self.orders.clear();
        }
    }

    /// Reads and decodes events from the agent.
    fn receive(&mut self) {
        let mut bytes = vec![0; PIECE];
        match self.stdout.as_mut().map(|pipe| pipe.read(&mut bytes)) {
            Some(Ok(n)) if n > 0 => self.frames.push(&bytes[..n]),
            Some(Err(why)) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            _ => return self.report_lost(None),
        }
        loop {
            let frame = match self.frames.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(text) => {
                    let why = format!("it sent '{text}' instead of a message of nicety's agent");
                    return self.report_lost(Some(why));
                }
            };
            match CrewEvent::decode(frame) {
                Some(CrewEvent::Hello(hello)) if hello.version != self.version => {
                    return self.report_lost(Some(version_mismatch(&hello, &self.version)));
                }
                Some(event) => {
                    self.has_answered = true;
                    self.is_gone |= event == CrewEvent::Finished;
                    self.events.push_back(event);
                }
                None => return self.report_lost(Some("its agent sent a malformed message".to_owned())),
            }
        }
    }

    /// Keeps the last part of the standard error.
    fn read_errors(&mut self) {
        let mut bytes = [0; STDERR_KEPT_MAX];
        match self.stderr.as_mut().map(|pipe| pipe.read(&mut bytes)) {
            Some(Ok(n)) if n > 0 => {
                self.stderr_text.extend_from_slice(&bytes[..n]);
                self.stderr_text.drain(..self.stderr_text.len().saturating_sub(STDERR_KEPT_MAX));
            }
            Some(Err(why)) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            _ => self.stderr = None,
        }
    }

    /// Reports the loss of the host: for this reason, or because the connection has ended.
    fn report_lost(&mut self, reason: Option<String>) {
        (self.stdin, self.stdout) = (None, None);
        if self.is_gone {
            return;
        }
        self.is_gone = true;
        for _ in 0..CHECKS_MAX {
            if reason.is_some() || self.child.try_wait().is_ok_and(|status| status.is_some()) {
                break;
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
        // Fails if it has ended already.
        let _ = self.child.kill();
        let ended = self.child.wait().map_or_else(|why| why.to_string(), |status| status.to_string());
        self.read_errors();
        let stderr_text = String::from_utf8_lossy(&self.stderr_text);
        let last_line = stderr_text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let why = match reason {
            Some(reason) => reason,
            None if last_line.is_empty() => format!("{} ended ({ended})", self.program_name),
            None => format!("{} ended ({ended}): {last_line}", self.program_name),
        };
        self.events.push_back(CrewEvent::Lost(why));
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // The agent has finished, or ends when its standard input closes now. Killing the connecting program immediately could
        // also kill the agent before it has ended its ranks.
        (self.stdin, self.stdout) = (None, None);
        let has_ended = |child: &mut Child| child.try_wait().is_ok_and(|status| status.is_some());
        for _ in 0..CHECKS_MAX {
            if has_ended(&mut self.child) {
                break;
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
        // Fails if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The reason for the loss of a host whose agent has another version.
fn version_mismatch(hello: &AgentInfo, own: &str) -> String {
    format!("it has nicety {}, and this host has {own}", hello.version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_loop;

    /// The last event of a host whose shell runs a script instead of an agent.
    fn last_event(script: &str) -> CrewEvent {
        let mut remote =
            Remote::start(&Connector::Shell(vec!["sh".into(), "-c".into(), script.into()]), "host", "0.1.0")
                .expect("sh");
        loop {
            if let Some(event) = remote.next_event() {
                return event;
            }
            let wanted: Vec<_> = remote.poll_entries(true).collect();
            let ready = event_loop::wait_ready(&wanted, None).expect("a wait");
            ready.into_iter().for_each(|pipe| remote.handle_ready(pipe));
        }
    }

    #[test]
    fn unreachable_host_is_reported_with_the_reason() {
        let lost = |script: &str| match last_event(script) {
            CrewEvent::Lost(why) => why,
            event => panic!("{event:?}"),
        };
        let why = lost("echo banner >&2; echo 'host: no route' >&2; exit 255");
        assert_eq!(why, "sh ended (exit status: 255): host: no route");
        assert_eq!(lost("exit 0"), "sh ended (exit status: 0)");
        assert!(lost("echo welcome to host; sleep 100").starts_with("it sent 'welcome to host"));
    }

    #[test]
    fn agent_of_another_version_is_refused() {
        let hello =
            AgentInfo { version: "0.0.1".to_owned(), host: String::new(), cores: 1, addresses: Vec::new() };
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("hello");
        std::fs::write(&path, CrewEvent::Hello(hello).encode()).expect("a file");
        let CrewEvent::Lost(why) = last_event(&format!("cat {}; sleep 100", path.display())) else {
            panic!("the agent was accepted")
        };
        assert_eq!(why, "it has nicety 0.0.1, and this host has 0.1.0");
    }
}
