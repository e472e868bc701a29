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
const RUNNING_OF_ONE: usize = 24;
/// Waiting clients: in all, and per source.
const WAITING_MAX: usize = 64;
const WAITING_OF_ONE: usize = 48;
/// Interval at which waiting clients are sent their place in the queue, and how long they may take to answer.
const TELLING: Duration = Duration::from_secs(2);
const ANSWERING: Duration = Duration::from_secs(5);
/// Time for a process to exit on its own after its client has disconnected.
const GRACE: Duration = Duration::from_secs(1);
/// How long a client may be silent, and its process busy, while others wait.
const SILENT_BESIDE_OTHERS: Duration = Duration::from_secs(10);
const BUSY_BESIDE_OTHERS: Duration = Duration::from_secs(180);
/// And at all: a little more than the process allows itself.
const SILENT_MAX: Duration = Duration::from_secs(3660);
const BUSY_MAX: Duration = Duration::from_secs(1860);
/// Bytes of a process's last words at most.
const WORDS_MAX: usize = 4096;

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
    told: Option<(u32, Time)>,
    /// Whether it has answered.
    answered: bool,
}

struct Running {
    peer: SocketAddr,
    child: Child,
    /// To see it end; the process alone reads and writes.
    stream: TcpStream,
    pulse: UnixStream,
    words: Vec<u8>,
    /// Whether it waits for its client's word; otherwise it works. Since when.
    waits: bool,
    since: Time,
    /// When its client went.
    gone: Option<Time>,
    /// Why it was ended, if it was.
    ended: Option<&'static str>,
}

/// Something for the log.
pub(super) type Said = (SocketAddr, String);

impl Sessions {
    pub(super) fn new(command: &WorkerCommand) -> Self {
        Self { command: command.clone(), waiting: VecDeque::new(), running: Vec::new() }
    }

    /// One more client, or that client and why there is no place for it.
    pub(super) fn add(&mut self, client: Client, setup: Setup) -> Result<(), (Box<Client>, String)> {
        let from = source(client.peer);
        let same = self.waiting.iter().filter(|one| source(one.client.peer) == from).count();
        if self.waiting.len() >= WAITING_MAX || same >= WAITING_OF_ONE {
            let why = format!("it is busy: {} clients are waiting; try again later", self.waiting.len());
            return Err((Box::new(client), why));
        }
        let mut one = Waiting { client, setup, partial: Partial::default(), told: None, answered: true };
        // At once: a process takes a while to start.
        if one.tell(self.waiting.len() as u32) {
            self.waiting.push_back(one);
        }
        Ok(())
    }

    /// Handles all waiting and running clients.
    pub(super) fn tend(&mut self) -> Vec<Said> {
        let mut said = Vec::new();
        self.running.retain_mut(|one| one.tend(&mut said));
        self.waiting.retain_mut(Waiting::hear);
        self.admit(&mut said);
        let mut ahead = 0;
        self.waiting.retain_mut(|one| {
            let stays = one.tell(ahead);
            ahead += u32::from(stays);
            stays
        });
        said
    }

    /// Gives a process to those whose turn it is.
    fn admit(&mut self, said: &mut Vec<Said>) {
        let mut index = 0;
        while index < self.waiting.len() && self.running.len() < RUNNING_MAX {
            let Waiting { client, partial, .. } = &self.waiting[index];
            let from = source(client.peer);
            let same = self.running.iter().filter(|one| source(one.peer) == from).count();
            // In the middle of an answer the connection cannot be handed on.
            if same >= RUNNING_OF_ONE || partial.has_begun() {
                index += 1;
                continue;
            }
            let Some(Waiting { client, setup, .. }) = self.waiting.remove(index) else { return };
            let peer = client.peer;
            said.push(match Running::start(&self.command, client, setup) {
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

    /// Ends the process that has been of no use for longest, if one has for long, for a client from there.
    fn make_room(&mut self, peer: SocketAddr) {
        if self.running.iter().any(|one| one.ended.is_some()) {
            return;
        }
        let from = source(peer);
        let full = self.running.len() >= RUNNING_MAX;
        let useless = self.running.iter_mut().filter(|one| {
            let patience = if one.waits { SILENT_BESIDE_OTHERS } else { BUSY_BESIDE_OTHERS };
            since(one.since) > patience && (full || source(one.peer) == from)
        });
        if let Some(oldest) = useless.min_by_key(|one| one.since) {
            oldest.end("it was idle for too long while others wait");
        }
    }

    /// File descriptors to poll for events of these clients.
    pub(super) fn watched(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let waiting = self.waiting.iter().map(|one| (one.client.stream.as_fd(), PollFlags::IN));
        let running = self.running.iter().flat_map(|one| {
            // The end of a stream is level-triggered: once seen, it would be reported on every poll.
            let stream = one.gone.is_none().then(|| (one.stream.as_fd(), PollFlags::RDHUP));
            stream.into_iter().chain(one.ended.is_none().then(|| (one.pulse.as_fd(), PollFlags::IN)))
        });
        waiting.chain(running)
    }
}

impl Waiting {
    /// Whether it is still there, and says nothing but that.
    fn hear(&mut self) -> bool {
        loop {
            match self.partial.pull(&mut self.client.stream, HELLO_MAX) {
                Ok(None) => break,
                Ok(Some(body)) if matches!(wire::parse(&body), Ok(Frame::Still)) && !self.answered => {
                    self.answered = true;
                }
                _ => return false,
            }
        }
        self.answered || self.told.is_none_or(|(_, at)| since(at) < ANSWERING)
    }

    /// Sends the client its place if it changed or was sent long ago. Returns whether the client still answers.
    fn tell(&mut self, ahead: u32) -> bool {
        let news = self.told.is_none_or(|(place, at)| place != ahead || since(at) > TELLING);
        if !news || !self.answered {
            return true;
        }
        (self.told, self.answered) = (Some((ahead, now())), false);
        wire::write(&mut self.client.stream, &Frame::Wait { ahead }).is_ok()
    }
}

impl Running {
    fn start(command: &WorkerCommand, client: Client, setup: Setup) -> io::Result<Self> {
        let Client { stream, peer, hello } = client;
        let watched = stream.try_clone()?;
        let (child, pulse) = guest::start(command, stream, hello, setup)?;
        Ok(Self {
            peer,
            child,
            stream: watched,
            pulse,
            words: Vec::new(),
            waits: false,
            since: now(),
            gone: None,
            ended: None,
        })
    }

    /// Whether its process is still there.
    fn tend(&mut self, said: &mut Vec<Said>) -> bool {
        self.listen();
        match self.child.try_wait() {
            Ok(Some(status)) => {
                // Its last messages may have arrived after the previous read.
                self.listen();
                said.push((self.peer, self.verdict(status)));
                return false;
            }
            Ok(None) => {}
            Err(e) => {
                said.push((self.peer, format!("lost: {e}")));
                return false;
            }
        }
        if self.gone.is_none() && hung_up(&self.stream) {
            self.gone = Some(now());
        }
        let most = if self.waits { SILENT_MAX } else { BUSY_MAX };
        if self.gone.is_some_and(|at| since(at) > GRACE) {
            self.end("its client has disconnected");
        } else if since(self.since) > most {
            self.end(if self.waits { "its client was silent for too long" } else { "it took too long" });
        }
        true
    }

    /// How it ended.
    fn verdict(&self, status: std::process::ExitStatus) -> String {
        match (self.ended, guest::failure(&self.words)) {
            (Some(why), _) => format!("ended: {why}"),
            (None, Some(why)) => format!("failed: {why}"),
            (None, None) if status.success() => "done".to_owned(),
            (None, None) => format!("its process {}", describe(status)),
        }
    }

    /// What its process says: that it waits or works, and at last why it failed.
    fn listen(&mut self) {
        let mut bytes = [0; 1024];
        while let Ok(n @ 1..) = self.pulse.read(&mut bytes) {
            for byte in &bytes[..n] {
                match *byte {
                    WAITS | WORKS => (self.waits, self.since) = (*byte == WAITS, now()),
                    other => self.words.push(other),
                }
            }
            let more = self.words.len().saturating_sub(WORDS_MAX);
            self.words.drain(..more);
        }
    }

    /// Kills its process, which is reaped when that has happened.
    fn end(&mut self, why: &'static str) {
        if self.ended.is_none() {
            self.ended = Some(why);
            // A process that has already exited cannot be killed, which is harmless.
            let _ = self.child.kill();
        }
    }
}

fn hung_up(stream: &TcpStream) -> bool {
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
