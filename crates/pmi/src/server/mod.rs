//! A launcher's side: it serves the ranks of its jobs, and tells its owner what only the owner can do.
//!
//! The owner starts processes and moves bytes. For each job it calls [`Server::add_job`], gives every process one end of a socket
//! pair as `PMI_FD`, with `PMI_RANK` and `PMI_SIZE`, and keeps the other end. What comes there goes to
//! [`Server::handle_bytes`], its end to [`Server::handle_eof`]; what [`Server::transmit`] has for a rank goes back. Any call may make
//! answers for any rank. [`Server::poll_event`] says what else is to be done.
//!
//! A rank is trusted with its own job's keys and with published names, and with nothing else: what it can make the server hold is
//! bounded by the constants here, and a rank that does not keep to the protocol is [`Left::Broken`], whatever it sends after that.

mod answers;
mod barriers;
#[cfg(test)]
mod tests;
mod violation;

use crate::mapping::{self, RANKS_MAX};
use crate::spawn::{Reader, Spawn};
use crate::wire::{Draft, Framing, Inbox, Message, Outbox, excerpt};
use barriers::{Barriers, Release};
use std::collections::{BTreeMap, VecDeque};
use thiserror::Error;

pub use violation::{BARRIERS_MAX, UNREAD_MAX, Violation};

/// Bytes of the name of a key-value space, with a zero at its end, as clients are told.
pub const NAME_ROOM: usize = 256;
/// Bytes of a key, with a zero at its end, as clients are told.
pub const KEY_ROOM: usize = 64;
/// Bytes of a value, with a zero at its end, as clients are told.
pub const VALUE_ROOM: usize = 1024;
/// The most keys that a rank may have put.
pub const KEYS_MAX: usize = 1024;
/// The most names that a rank may have published.
pub const NAMES_MAX: usize = 64;
/// A rank of a job, as the server knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RankId {
    job: u32,
    rank: u32,
}

impl RankId {
    /// Which job, counted from 0 in the order in which they were added.
    #[must_use]
    pub fn job(self) -> u32 {
        self.job
    }

    /// Which rank of it.
    #[must_use]
    pub fn rank(self) -> u32 {
        self.rank
    }
}

/// Where a rank is, and what it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// The number of its node.
    pub node: u32,
    /// The number of its program among the job's.
    pub appnum: u32,
}

/// A job to be served.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Job {
    /// The name of its key-value space: visible ASCII, and no other job's.
    pub name: String,
    /// Its ranks in order, one at least.
    pub ranks: Vec<Placement>,
    /// How many ranks there could be in all, if that is limited.
    pub universe_size: Option<u32>,
    /// What its ranks find in the key-value space, as [`Spawn::preput`] has it.
    pub preput: Vec<(String, String)>,
}

/// Why a job cannot be served.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum JobError {
    /// No ranks, or too many.
    #[error("a job of {0} ranks: between 1 and {RANKS_MAX} can be served")]
    Ranks(usize),
    /// A name that clients could not read, or that is taken.
    #[error("the job's name {0:?} is taken, or not of 1 to {max} visible ASCII characters", max = NAME_ROOM - 1)]
    Name(String),
    /// A key or its value in [`Job::preput`] that is no line.
    #[error(
        "what is put for a job before it starts must be lines of text; the key {0:?} or its value is none"
    )]
    Preput(String),
}

/// What is to be done, or to be known, by the owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A rank wants another job. It waits for [`Server::spawned`].
    Spawn {
        /// Who asks.
        rank: RankId,
        /// What to start.
        spawn: Spawn,
    },
    /// A rank wants its job ended.
    Abort {
        /// Who asks.
        rank: RankId,
        /// What the launcher is to end with.
        code: i32,
        /// For people; may be empty.
        message: String,
    },
    /// A rank is done; its end of the stream will follow.
    Finalized(RankId),
    /// There is nothing more to be had from a rank.
    Left {
        /// Who it was.
        rank: RankId,
        /// In which way it went.
        how: Left,
    },
}

/// How a rank went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// Without a word: it is no parallel program.
    Silent,
    /// As it should, after [`Event::Finalized`].
    Finalized,
    /// After [`Event::Abort`].
    Aborted,
    /// Without finalizing: it died or was killed, and the rest of the job waits for it in vain.
    Vanished,
    /// What it said is not the protocol. Close its stream; [`Server::handle_eof`] need not be called.
    Broken(Violation),
}

/// How far a rank has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Before `init`.
    Fresh,
    Joined,
    Finalized,
    Aborted,
    /// Its stream is at its end.
    Gone,
}

/// What a rank waits for before it may ask for anything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaiting {
    Fence,
    Spawn,
}

/// What is known of a rank.
#[derive(Debug)]
struct Rank {
    place: Placement,
    phase: Phase,
    awaiting: Option<Awaiting>,
    /// Keys that it put and names that it published.
    keys: usize,
    names: usize,
    spawn: Option<Reader>,
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

/// A job that is served.
#[derive(Debug)]
struct Served {
    name: String,
    universe_size: Option<u32>,
    /// The text of its process mapping; none if it is longer than a value may be.
    mapping: Option<String>,
    space: BTreeMap<String, String>,
    ranks: Vec<Rank>,
    barriers: Barriers,
    /// How many of its ranks are gone.
    gone: usize,
}

impl Served {
    /// Tells ranks that they are let go.
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

    /// A rank will come to no barrier any more: who waits for it is let go, with a refusal.
    fn leave_barriers(&mut self, rank: u32) {
        for release in self.barriers.leave(rank) {
            self.release(&release);
        }
    }
}

/// A name that a rank of a job published.
#[derive(Debug)]
struct Published {
    port: String,
    by: RankId,
}

/// The jobs of a launcher.
#[derive(Debug, Default)]
pub struct Server {
    jobs: BTreeMap<u32, Served>,
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

    /// Adds a job, and returns its ranks in order. It is forgotten, with its keys and names, when the last of them is gone.
    ///
    /// # Errors
    /// If it cannot be served.
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
        let served = Served {
            name: job.name,
            universe_size: job.universe_size,
            mapping: Some(mapping::text(&nodes)).filter(|text| text.len() < VALUE_ROOM),
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

    /// What is to be sent to a rank next; nothing if all is, or if it is gone.
    #[must_use]
    pub fn transmit(&self, id: RankId) -> &[u8] {
        self.rank(id).map_or(&[], |rank| rank.outbox.front())
    }

    /// So many bytes of [`Self::transmit`] are sent.
    pub fn sent(&mut self, id: RankId, n: usize) {
        if let Some(rank) = self.rank_mut(id) {
            rank.outbox.sent(n);
        }
    }

    /// Takes bytes of a rank, all of them.
    pub fn handle_bytes(&mut self, id: RankId, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(rank) = self.rank_mut(id) else { return };
            if matches!(rank.phase, Phase::Aborted | Phase::Gone) {
                return;
            }
            let line = rank.inbox.take(&mut bytes).map_err(Violation::from);
            let done = line.and_then(|line| line.map_or(Ok(()), |line| self.line(id, &line)));
            if let Err(violation) = done {
                self.leave(id, Left::Broken(violation));
            }
        }
    }

    /// The stream of a rank is at its end.
    pub fn handle_eof(&mut self, id: RankId) {
        let Some(rank) = self.rank(id) else { return };
        let how = match rank.phase {
            Phase::Fresh => Left::Silent,
            Phase::Joined => Left::Vanished,
            Phase::Finalized => Left::Finalized,
            Phase::Aborted => Left::Aborted,
            Phase::Gone => return,
        };
        self.leave(id, how);
    }

    /// What has happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What was put under a key in the space of a rank's job, which is forgotten when the last rank is gone.
    #[must_use]
    pub fn value(&self, id: RankId, key: &str) -> Option<&str> {
        self.jobs.get(&id.job)?.space.get(key).map(String::as_str)
    }

    /// Tells a rank what came of [`Event::Spawn`]: for each process 0, or an error of the owner's. Without that event it does
    /// nothing.
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

    /// A rank is gone: whoever waits for it is told, and its job is forgotten if it was the last.
    fn leave(&mut self, id: RankId, how: Left) {
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

    /// Acts on a line.
    fn line(&mut self, id: RankId, line: &str) -> Result<(), Violation> {
        let Some(rank) = self.rank_mut(id) else { return Ok(()) };
        if rank.outbox.len() >= UNREAD_MAX {
            return Err(Violation::Unread);
        }
        if rank.spawn.is_some() || Reader::begins(line) {
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

    /// Whether a rank may say this now.
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

    /// One of several lines of a request to spawn.
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

    /// A rank ends its job, at any time. Its words are all that follows, as programs do not keep to the form in their last breath.
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

    /// A rank comes to a barrier.
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
