//! A launcher's side of PMI: serves the ranks of its jobs, and reports events to its owner.
//!
//! The owner starts processes and transfers bytes. For each job it calls [`Server::add_job`], gives every process one end of a
//! socket pair as `PMI_FD`, with `PMI_RANK` and `PMI_SIZE`, and keeps the other end. It passes received bytes to
//! [`Server::handle_bytes`], the end of a stream to [`Server::handle_eof`], and sends the bytes of [`Server::transmit`] to the
//! rank. Any call may produce answers for any rank. [`Server::poll_event`] returns the events that the owner must handle.
//!
//! A rank can change its own job's keys and published names, and nothing else. The memory that it can use in the server is bounded
//! by the constants here, and a rank that violates the protocol is [`Departure::Broken`], whatever it sends after that.

mod answers;
mod barriers;
#[cfg(test)]
mod tests;
mod violation;

use crate::mapping::{self, RANKS_MAX};
use crate::spawn::{Spawn, SpawnReader};
use crate::wire::{Draft, Framing, Inbox, Message, Outbox, excerpt};
use barriers::{Barriers, Release};
use std::collections::{BTreeMap, VecDeque};
use thiserror::Error;

pub use violation::{BARRIERS_MAX, UNREAD_MAX, Violation};

/// Bytes of a key-value space's name with a terminating zero, as reported to clients.
pub const NAME_ROOM: usize = 256;
/// Bytes of a key with a terminating zero, as reported to clients.
pub const KEY_ROOM: usize = 64;
/// Bytes of a value with a terminating zero, as reported to clients.
pub const VALUE_ROOM: usize = 1024;
/// Maximum number of keys that a rank may put.
pub const KEYS_MAX: usize = 1024;
/// Maximum number of names that a rank may publish.
pub const NAMES_MAX: usize = 64;
/// The server's identifier for a rank of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RankId {
    job: u32,
    rank: u32,
}

impl RankId {
    /// The job's number, in the order of addition from 0.
    #[must_use]
    pub fn job(self) -> u32 {
        self.job
    }

    /// The rank within the job.
    #[must_use]
    pub fn rank(self) -> u32 {
        self.rank
    }
}

/// A rank's node and program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// The node's number.
    pub node: u32,
    /// The program's index within the job.
    pub appnum: u32,
}

/// A job to be served.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Job {
    /// The name of its key-value space: visible ASCII, and unique.
    pub name: String,
    /// Its ranks in order, at least one.
    pub ranks: Vec<Placement>,
    /// The maximum number of ranks in total, if it is limited.
    pub universe_size: Option<u32>,
    /// The initial contents of the key-value space, as in [`Spawn::preput`].
    pub preput: Vec<(String, String)>,
}

/// Why a job cannot be served.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum JobError {
    /// No ranks, or too many.
    #[error("a job of {0} ranks: between 1 and {RANKS_MAX} can be served")]
    Ranks(usize),
    /// A name that clients could not read, or that is in use.
    #[error("the job's name '{0}' is taken, or not of 1 to {max} visible ASCII characters", max = NAME_ROOM - 1)]
    Name(String),
    /// A key or value in [`Job::preput`] that is not a line of text.
    #[error(
        "what is put for a job before it starts must be lines of text; the key '{0}' or its value is none"
    )]
    Preput(String),
}

/// An event for the owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A rank requests another job. It waits for [`Server::spawned`].
    Spawn {
        /// The requesting rank.
        rank: RankId,
        /// The programs to start.
        spawn: Spawn,
    },
    /// A rank requests the end of its job.
    Abort {
        /// The requesting rank.
        rank: RankId,
        /// The exit code for the launcher.
        code: i32,
        /// A message for the user; may be empty.
        message: String,
    },
    /// A rank has finalized; the end of its stream will follow.
    Finalized(RankId),
    /// A rank has left, and sends nothing more.
    Left {
        /// The rank.
        rank: RankId,
        /// How it left.
        how: Departure,
    },
}

/// How a rank left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Departure {
    /// Without sending anything: it is not a parallel program.
    Silent,
    /// Regularly, after [`Event::Finalized`].
    Finalized,
    /// After [`Event::Abort`].
    Aborted,
    /// Without finalizing: it died or was killed, and the other ranks of the job would wait for it forever.
    Vanished,
    /// It violated the protocol. Close its stream; [`Server::handle_eof`] need not be called.
    Broken(Violation),
}

/// The state of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Before `init`.
    Fresh,
    Joined,
    Finalized,
    Aborted,
    /// Its stream has ended.
    Gone,
}

/// The answer that a rank waits for, before which it may send no other request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaiting {
    Fence,
    Spawn,
}

/// The server's state of a rank.
#[derive(Debug)]
struct Rank {
    place: Placement,
    phase: Phase,
    awaiting: Option<Awaiting>,
    /// Number of its keys and published names.
    keys: usize,
    names: usize,
    spawn: Option<SpawnReader>,
    inbox: Inbox,
    outbox: Outbox,
}

impl Rank {
    fn new(place: Placement) -> Self {
        Self {
            place,
            phase: Phase::Fresh,
            awaiting: None,
            keys: 0,
            names: 0,
            spawn: None,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
        }
    }
}

/// The server's state of a job.
#[derive(Debug)]
struct JobState {
    name: String,
    universe_size: Option<u32>,
    /// The text of its process mapping; `None` if it exceeds the length of a value.
    mapping: Option<String>,
    space: BTreeMap<String, String>,
    ranks: Vec<Rank>,
    barriers: Barriers,
    /// Number of ranks that have left.
    gone: usize,
}

impl JobState {
    /// Answers the released ranks of a barrier.
    fn release(&mut self, release: &Release) {
        let answer = Draft::new(Framing::Lines, "barrier_out").with("rc", i32::from(!release.is_complete));
        let answer = if release.is_complete { answer } else { answer.with("msg", "a_rank_has_left") };
        let answer = release.tag.iter().fold(answer, |answer, tag| answer.with("tag", tag)).finish();
        for &rank in &release.ranks {
            let rank = &mut self.ranks[rank as usize];
            if release.tag.is_none() {
                rank.awaiting = None;
            }
            if rank.phase != Phase::Gone {
                rank.outbox.push(answer.clone());
            }
        }
    }

    /// Records that a rank will enter no more barriers, and refuses the ranks that wait for it.
    fn leave_barriers(&mut self, rank: u32) {
        for release in self.barriers.leave(rank) {
            self.release(&release);
        }
    }
}

/// A published name of a rank.
#[derive(Debug)]
struct Published {
    port: String,
    by: RankId,
}

/// A PMI server for the jobs of a launcher.
#[derive(Debug, Default)]
pub struct Server {
    jobs: BTreeMap<u32, JobState>,
    added: u32,
    names: BTreeMap<String, Published>,
    events: VecDeque<Event>,
}

impl Server {
    /// A server without jobs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job, and returns its ranks in order. It is removed, with its keys and names, when its last rank has left.
    ///
    /// # Errors
    /// If the job is invalid.
    pub fn add_job(&mut self, job: Job) -> Result<Vec<RankId>, JobError> {
        if job.ranks.is_empty() || job.ranks.len() > RANKS_MAX as usize {
            return Err(JobError::Ranks(job.ranks.len()));
        }
        let is_word =
            (1..NAME_ROOM).contains(&job.name.len()) && job.name.bytes().all(|c| c.is_ascii_graphic());
        if !is_word || self.jobs.values().any(|other| other.name == job.name) {
            return Err(JobError::Name(excerpt(&job.name)));
        }
        let is_line = |text: &String| !text.is_empty() && !text.contains(char::is_control);
        if let Some(pair) = job.preput.iter().find(|(key, value)| !is_line(key) || !is_line(value)) {
            return Err(JobError::Preput(excerpt(&pair.0)));
        }
        let nodes: Vec<u32> = job.ranks.iter().map(|place| place.node).collect();
        let served = JobState {
            name: job.name,
            universe_size: job.universe_size,
            mapping: Some(mapping::format(&nodes)).filter(|text| text.len() < VALUE_ROOM),
            space: job.preput.into_iter().collect(),
            ranks: job.ranks.into_iter().map(Rank::new).collect(),
            barriers: Barriers::new(nodes),
            gone: 0,
        };
        let job = self.added;
        self.added += 1;
        let ids = (0..served.ranks.len() as u32).map(|rank| RankId { job, rank }).collect();
        self.jobs.insert(job, served);
        Ok(ids)
    }

    /// The bytes to send to a rank next; empty if all are sent, or if it has left.
    #[must_use]
    pub fn transmit(&self, id: RankId) -> &[u8] {
        self.rank(id).map_or(&[], |rank| rank.outbox.front())
    }

    /// Reports that `n` bytes of [`Self::transmit`] were sent.
    pub fn sent(&mut self, id: RankId, n: usize) {
        if let Some(rank) = self.rank_mut(id) {
            rank.outbox.sent(n);
        }
    }

    /// Takes all of these bytes from a rank.
    pub fn handle_bytes(&mut self, id: RankId, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(rank) = self.rank_mut(id) else { return };
            if matches!(rank.phase, Phase::Aborted | Phase::Gone) {
                return;
            }
            let line = rank.inbox.take(&mut bytes).map_err(Violation::from);
            let done = line.and_then(|line| line.map_or(Ok(()), |line| self.handle_line(id, &line)));
            if let Err(violation) = done {
                self.end_rank(id, Departure::Broken(violation));
            }
        }
    }

    /// Reports the end of a rank's stream.
    pub fn handle_eof(&mut self, id: RankId) {
        let Some(rank) = self.rank(id) else { return };
        let how = match rank.phase {
            Phase::Fresh => Departure::Silent,
            Phase::Joined => Departure::Vanished,
            Phase::Finalized => Departure::Finalized,
            Phase::Aborted => Departure::Aborted,
            Phase::Gone => return,
        };
        self.end_rank(id, how);
    }

    /// The next event, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The value of a key in the space of a rank's job, until the last rank has left.
    #[must_use]
    pub fn value(&self, id: RankId, key: &str) -> Option<&str> {
        self.jobs.get(&id.job)?.space.get(key).map(String::as_str)
    }

    /// Answers an [`Event::Spawn`]: for each process 0, or an error code of the owner. Does nothing without that event.
    pub fn spawned(&mut self, id: RankId, errors: &[i32]) {
        let Some(rank) = self.rank_mut(id) else { return };
        if rank.awaiting == Some(Awaiting::Spawn) {
            rank.awaiting = None;
            let code = i32::from(errors.iter().any(|&error| error != 0));
            let list: Vec<String> = errors.iter().map(i32::to_string).collect();
            let answer = Draft::new(Framing::Lines, "spawn_result").with("rc", code);
            rank.outbox.push(
                if list.is_empty() { answer } else { answer.with("errcodes", list.join(",")) }.finish(),
            );
        }
    }

    fn rank(&self, id: RankId) -> Option<&Rank> {
        self.jobs.get(&id.job)?.ranks.get(id.rank as usize)
    }

    fn rank_mut(&mut self, id: RankId) -> Option<&mut Rank> {
        self.jobs.get_mut(&id.job)?.ranks.get_mut(id.rank as usize)
    }

    /// Marks a rank as gone, answers the ranks that wait for it, and removes its job after the last rank.
    fn end_rank(&mut self, id: RankId, how: Departure) {
        let Some(job) = self.jobs.get_mut(&id.job) else { return };
        let rank = &mut job.ranks[id.rank as usize];
        rank.phase = Phase::Gone;
        rank.outbox.clear();
        rank.spawn = None;
        job.gone += 1;
        job.leave_barriers(id.rank);
        if job.gone == job.ranks.len() {
            self.jobs.remove(&id.job);
            self.names.retain(|_, published| published.by.job != id.job);
        }
        self.events.push_back(Event::Left { rank: id, how });
    }

    /// Handles a line.
    fn handle_line(&mut self, id: RankId, line: &str) -> Result<(), Violation> {
        let Some(rank) = self.rank_mut(id) else { return Ok(()) };
        if rank.outbox.len() >= UNREAD_MAX {
            return Err(Violation::Unread);
        }
        if rank.spawn.is_some() || SpawnReader::starts_request(line) {
            return self.spawn_line(id, line);
        }
        if line.starts_with("cmd=abort ") || line == "cmd=abort" {
            return self.abort(id, line);
        }
        let message = Message::parse(line, Framing::Lines)?;
        self.admit(id, message.name())?;
        match message.name() {
            "init" => self.init(id, &message),
            "finalize" => self.finalize(id),
            "barrier_in" => self.barrier(id, &message),
            _ => self.answer(id, &message),
        }
    }

    /// Checks that a rank may send this message in its state.
    fn admit(&mut self, id: RankId, name: &str) -> Result<(), Violation> {
        let Some(rank) = self.rank(id) else { return Ok(()) };
        let is_due = match rank.phase {
            Phase::Fresh => name == "init",
            Phase::Joined => name != "init",
            Phase::Finalized | Phase::Aborted | Phase::Gone => false,
        };
        if !is_due {
            return Err(Violation::Order(excerpt(name)));
        }
        match rank.awaiting {
            Some(_) => Err(Violation::OutOfTurn(excerpt(name))),
            None => Ok(()),
        }
    }

    /// Handles one of the lines of a spawn request.
    fn spawn_line(&mut self, id: RankId, line: &str) -> Result<(), Violation> {
        self.admit(id, "spawn")?;
        let Some(rank) = self.rank_mut(id) else { return Ok(()) };
        if let Some(spawn) = rank.spawn.get_or_insert_default().line(line)? {
            rank.spawn = None;
            rank.awaiting = Some(Awaiting::Spawn);
            self.events.push_back(Event::Spawn { rank: id, spawn });
        }
        Ok(())
    }

    /// Ends a rank's job, at any time. The message is everything after its key, because aborting programs may not format it
    /// properly.
    fn abort(&mut self, id: RankId, line: &str) -> Result<(), Violation> {
        let Some(job) = self.jobs.get_mut(&id.job) else { return Ok(()) };
        let rank = &mut job.ranks[id.rank as usize];
        if rank.phase == Phase::Finalized {
            return Err(Violation::Order("abort".to_owned()));
        }
        let (head, message) = line.split_once(" message=").unwrap_or((line, ""));
        let code = Message::parse(head, Framing::Lines)?.number("exitcode")?.unwrap_or(1);
        rank.phase = Phase::Aborted;
        job.barriers.retire(id.rank);
        self.events.push_back(Event::Abort { rank: id, code, message: message.to_owned() });
        Ok(())
    }

    /// Enters a rank into a barrier.
    fn barrier(&mut self, id: RankId, message: &Message<'_>) -> Result<(), Violation> {
        let Some(job) = self.jobs.get_mut(&id.job) else { return Ok(()) };
        let (tag, release) = job.barriers.enter(id.rank, message)?;
        if tag.is_none() {
            job.ranks[id.rank as usize].awaiting = Some(Awaiting::Fence);
        }
        if let Some(release) = release {
            job.release(&release);
        }
        Ok(())
    }
}
