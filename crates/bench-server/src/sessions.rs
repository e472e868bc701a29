//! [`Sessions`]: the admitted clients of a server. Some wait for their turn, the others have a process.
//!
//! Turns are first come, first served, within a share for each source. A waiting client gets its place in the queue and has to
//! answer. A process ends with its client: the server holds the connection as well and sees it close, whatever the process does.
//! The server kills the process of a silent client when other clients wait, or after an hour.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Duration;

use host::Time;
use rustix::event::{PollFd, PollFlags, Timespec};

use bench::launch::WorkerCommand;
use bench::launch::admission::{Client, source};
use bench::launch::guest::{self, WAITS, WORKS, describe};
use bench::launch::wire::{self, Frame, HELLO_MAX, Partial, Setup};
use bench::launch::{now, since};

/// Clients with a running process at the same time: in all, and per source, so that other sources find room.
const RUNNING_MAX: usize = 32;
const RUNNING_PER_SOURCE: usize = 24;
/// Waiting clients: in all, and per source.
const WAITING_MAX: usize = 64;
const WAITING_PER_SOURCE: usize = 48;
/// Interval at which waiting clients are sent their place in the queue, and how long they may take to answer.
const PLACE_INTERVAL: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a process to exit on its own after its client has disconnected.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a client may be silent, and its process busy, while others wait.
const SILENT_MAX_IF_OTHERS_WAIT: Duration = Duration::from_secs(10);
const BUSY_MAX_IF_OTHERS_WAIT: Duration = Duration::from_secs(180);
/// Limits without waiting clients: a little more than the process allows itself.
const SILENT_MAX: Duration = Duration::from_secs(3660);
const BUSY_MAX: Duration = Duration::from_secs(1860);
/// Largest size of a process's error text in bytes.
const FAILURE_TEXT_MAX: usize = 4096;

/// All clients, waiting and running. Dropping it ends and reaps the processes.
pub(super) struct Sessions {
    command: WorkerCommand,
    waiting: VecDeque<Waiting>,
    running: Vec<Running>,
}

struct Waiting {
    client: Client,
    setup: Setup,
    partial: Partial,
    /// The place last sent to it, and when.
    last_place: Option<(u32, Time)>,
    /// Whether it has answered.
    answered: bool,
}

struct Running {
    peer: SocketAddr,
    child: Child,
    /// To see it end; the process alone reads and writes.
    stream: TcpStream,
    /// The process reports here that it waits or measures, and why it failed.
    reports: UnixStream,
    failure_text: Vec<u8>,
    /// Whether the process waits for its client; otherwise it measures.
    is_waiting: bool,
    /// When it began to wait or to measure.
    since: Time,
    /// When its client disconnected.
    disconnected: Option<Time>,
    /// Why the server killed the process, if it did.
    kill_reason: Option<&'static str>,
}

/// A client and what has happened to it.
pub(super) type LogEntry = (SocketAddr, String);

impl Sessions {
    pub(super) fn new(command: &WorkerCommand) -> Self {
        Self { command: command.clone(), waiting: VecDeque::new(), running: Vec::new() }
    }

    /// Adds a client to the queue. Returns the client and the reason if the queue is full.
    pub(super) fn add(&mut self, client: Client, setup: Setup) -> Result<(), (Box<Client>, String)> {
        let from = source(client.peer);
        let same = self.waiting.iter().filter(|one| source(one.client.peer) == from).count();
        if self.waiting.len() >= WAITING_MAX || same >= WAITING_PER_SOURCE {
            let why = format!("it is busy: {} clients are waiting; try again later", self.waiting.len());
            return Err((Box::new(client), why));
        }
        let mut one =
            Waiting { client, setup, partial: Partial::default(), last_place: None, answered: true };
        // At once: a process takes a while to start.
        if one.send_place(self.waiting.len() as u32) {
            self.waiting.push_back(one);
        }
        Ok(())
    }

    /// Handles all waiting and running clients.
    pub(super) fn handle_events(&mut self) -> Vec<LogEntry> {
        let mut log = Vec::new();
        self.running.retain_mut(|one| one.handle_events(&mut log));
        self.waiting.retain_mut(Waiting::receive);
        self.admit(&mut log);
        let mut ahead = 0;
        self.waiting.retain_mut(|one| {
            let stays = one.send_place(ahead);
            ahead += u32::from(stays);
            stays
        });
        log
    }

    /// Starts processes for the first waiting clients.
    fn admit(&mut self, log: &mut Vec<LogEntry>) {
        let mut index = 0;
        while index < self.waiting.len() && self.running.len() < RUNNING_MAX {
            let Waiting { client, partial, .. } = &self.waiting[index];
            let from = source(client.peer);
            let same = self.running.iter().filter(|one| source(one.peer) == from).count();
            // In the middle of an answer the connection cannot be handed on.
            if same >= RUNNING_PER_SOURCE || partial.has_begun() {
                index += 1;
                continue;
            }
            let Some(Waiting { client, setup, .. }) = self.waiting.remove(index) else { return };
            let peer = client.peer;
            log.push(match Running::start(&self.command, client, setup) {
                Ok(running) => {
                    self.running.push(running);
                    (peer, "started".to_owned())
                }
                Err(e) => (peer, format!("refused: cannot start a process: {e}")),
            });
        }
        if let Some(first) = self.waiting.front() {
            self.make_room(first.client.peer);
        }
    }

    /// Kills the process that has been silent or busy for longest, if any exceeds its limit and makes room for this peer.
    fn make_room(&mut self, peer: SocketAddr) {
        if self.running.iter().any(|one| one.kill_reason.is_some()) {
            return;
        }
        let from = source(peer);
        let full = self.running.len() >= RUNNING_MAX;
        let overdue = self.running.iter_mut().filter(|one| {
            let limit = if one.is_waiting { SILENT_MAX_IF_OTHERS_WAIT } else { BUSY_MAX_IF_OTHERS_WAIT };
            since(one.since) > limit && (full || source(one.peer) == from)
        });
        if let Some(oldest) = overdue.min_by_key(|one| one.since) {
            oldest.kill("it was idle for too long while others wait");
        }
    }

    /// File descriptors to poll for events of these clients.
    pub(super) fn watched(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let waiting = self.waiting.iter().map(|one| (one.client.stream.as_fd(), PollFlags::IN));
        let running = self.running.iter().flat_map(|one| {
            // The end of a stream is level-triggered: once seen, it would be reported on every poll.
            let stream = one.disconnected.is_none().then(|| (one.stream.as_fd(), PollFlags::RDHUP));
            stream.into_iter().chain(one.kill_reason.is_none().then(|| (one.reports.as_fd(), PollFlags::IN)))
        });
        waiting.chain(running)
    }
}

impl Waiting {
    /// Reads answers of the client. Returns whether it is connected, answers in time, and sends nothing else.
    fn receive(&mut self) -> bool {
        loop {
            match self.partial.pull(&mut self.client.stream, HELLO_MAX) {
                Ok(None) => break,
                Ok(Some(body)) if matches!(wire::parse(&body), Ok(Frame::Still)) && !self.answered => {
                    self.answered = true;
                }
                _ => return false,
            }
        }
        self.answered || self.last_place.is_none_or(|(_, at)| since(at) < ANSWER_TIMEOUT)
    }

    /// Sends the client its place if it changed or was sent long ago. Returns whether the client still answers.
    fn send_place(&mut self, ahead: u32) -> bool {
        let is_due = self.last_place.is_none_or(|(place, at)| place != ahead || since(at) > PLACE_INTERVAL);
        if !is_due || !self.answered {
            return true;
        }
        (self.last_place, self.answered) = (Some((ahead, now())), false);
        wire::write(&mut self.client.stream, &Frame::Wait { ahead }).is_ok()
    }
}

impl Running {
    fn start(command: &WorkerCommand, client: Client, setup: Setup) -> io::Result<Self> {
        let Client { stream, peer, hello } = client;
        let watched = stream.try_clone()?;
        let (child, reports) = guest::start(command, stream, hello, setup)?;
        Ok(Self {
            peer,
            child,
            stream: watched,
            reports,
            failure_text: Vec::new(),
            is_waiting: false,
            since: now(),
            disconnected: None,
            kill_reason: None,
        })
    }

    /// Handles reports, exit and timeouts of the process. Returns whether it still runs.
    fn handle_events(&mut self, log: &mut Vec<LogEntry>) -> bool {
        self.read_reports();
        match self.child.try_wait() {
            Ok(Some(status)) => {
                // Its last messages may have arrived after the previous read.
                self.read_reports();
                log.push((self.peer, self.end_text(status)));
                return false;
            }
            Ok(None) => {}
            Err(e) => {
                log.push((self.peer, format!("lost: {e}")));
                return false;
            }
        }
        if self.disconnected.is_none() && is_hung_up(&self.stream) {
            self.disconnected = Some(now());
        }
        let most = if self.is_waiting { SILENT_MAX } else { BUSY_MAX };
        if self.disconnected.is_some_and(|at| since(at) > EXIT_TIMEOUT) {
            self.kill("its client has disconnected");
        } else if since(self.since) > most {
            self.kill(if self.is_waiting {
                "its client was silent for too long"
            } else {
                "it took too long"
            });
        }
        true
    }

    /// Text for the log on how the process ended.
    fn end_text(&self, status: std::process::ExitStatus) -> String {
        match (self.kill_reason, guest::failure(&self.failure_text)) {
            (Some(why), _) => format!("ended: {why}"),
            (None, Some(why)) => format!("failed: {why}"),
            (None, None) if status.success() => "done".to_owned(),
            (None, None) => format!("its process {}", describe(status)),
        }
    }

    /// Reads reports of the process: that it waits or measures, and finally why it failed.
    fn read_reports(&mut self) {
        let mut bytes = [0; 1024];
        while let Ok(n @ 1..) = self.reports.read(&mut bytes) {
            for byte in &bytes[..n] {
                match *byte {
                    WAITS | WORKS => (self.is_waiting, self.since) = (*byte == WAITS, now()),
                    other => self.failure_text.push(other),
                }
            }
            let more = self.failure_text.len().saturating_sub(FAILURE_TEXT_MAX);
            self.failure_text.drain(..more);
        }
    }

    /// Kills the process; `handle_events` reaps it later.
    fn kill(&mut self, why: &'static str) {
        if self.kill_reason.is_none() {
            self.kill_reason = Some(why);
            // A process that has already exited cannot be killed, which is harmless.
            let _ = self.child.kill();
        }
    }
}

fn is_hung_up(stream: &TcpStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
}

impl Drop for Sessions {
    fn drop(&mut self) {
        for one in &mut self.running {
            // As above; it is reaped all the same.
            let _ = one.child.kill();
            let _ = one.child.wait();
        }
    }
}
