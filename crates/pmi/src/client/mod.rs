//! A rank's side of PMI: it joins its job, then sends one request at a time.
//!
//! The caller transfers bytes and keeps deadlines: send [`Client::transmit`], with one write per message, pass received bytes to
//! [`Client::handle_bytes`], and call [`Client::poll_event`] until it returns `None`. The first event is [`Event::Joined`]. After
//! that, each [`Client::request`] is answered by one event before the next request may be made. Only group barriers are
//! independent: they are answered when all members have entered, and other requests are allowed meanwhile.
//!
//! ```
//! # use pmi::client::{Client, Event, Failure, Join, Request};
//! # fn main() -> Result<(), Failure> {
//! let mut client = Client::new(Join::Descriptor { rank: 0, size: 1 })?;
//! assert_eq!(client.transmit(), b"cmd=init pmi_version=1 pmi_subversion=1\n");
//! # let replies = ["response_to_init pmi_version=1 pmi_subversion=1", "maxes kvsname_max=256 keylen_max=64 vallen_max=1024",
//! #     "my_kvsname kvsname=k", "appnum appnum=0", "universe_size size=-1", "get_result rc=-1"];
//! # for reply in replies {
//! #     client.sent(client.transmit().len());
//! #     client.handle_bytes(format!("cmd={reply}\n").as_bytes())?;
//! # }
//! // The replies to this and further requests arrive, and then:
//! assert!(matches!(client.poll_event(), Some(Event::Joined)));
//! client.request(&Request::Put { key: "card-0", value: "10.0.0.1:5000" }).expect("it fits");
//! assert_eq!(client.transmit(), b"cmd=put kvsname=k key=card-0 value=10.0.0.1:5000\n");
//! # Ok(())
//! # }
//! ```

mod answer;
mod failure;
mod job;
mod pmi1;
mod pmi2;
mod request;
#[cfg(test)]
mod tests;

use crate::spawn::SpawnRequestError;
use crate::value::{check_key, check_line, check_value};
use crate::wire::{COMMAND_LEN_MAX, Framing, Inbox, Message, Outbox, WireError, excerpt};
use answer::{Next, refusal};
use job::check_rank_and_size;
use pmi1::Pmi1;
use pmi2::Pmi2;
use request::PendingReply;
use std::collections::VecDeque;

pub use failure::{BARRIERS_MAX, Failure, NAME_LEN_MAX, RequestError};
pub use job::Job;
pub use request::{Group, Request};

/// How this rank was started, according to the launcher's variables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// PMI-1 on the descriptor `PMI_FD`, with `PMI_RANK` and `PMI_SIZE`.
    Descriptor {
        /// This rank.
        rank: u32,
        /// Ranks of the job.
        size: u32,
    },
    /// PMI-1 on a connection to the address `PMI_PORT`, with `PMI_ID`.
    Port {
        /// The server's number for this rank.
        id: u32,
    },
    /// PMI-2 on the descriptor `PMI_FD`, with `PMI_RANK` and `PMI_SIZE`.
    Pmi2 {
        /// This rank.
        rank: u32,
        /// Ranks of the job.
        size: u32,
    },
}

/// An event of the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// This rank is part of its job, which [`Client::job`] describes.
    Joined,
    /// The request is done.
    Done,
    /// The value of the key or name; `None` if nobody put it.
    Value(Option<String>),
    /// All members entered this barrier.
    Barrier {
        /// The tag of the request.
        tag: u32,
    },
    /// The job is started; for each process its error, 0 for none, if the server reports them.
    Spawned(Vec<i32>),
    /// The request was refused, with the server's reason.
    Refused(String),
    /// This barrier failed, for example because a member left.
    BarrierRefused {
        /// The tag of the request.
        tag: u32,
        /// The server's reason.
        why: String,
    },
    /// The server has acknowledged that this rank is done.
    Finalized,
}

/// The state machine of the protocol.
#[derive(Debug)]
enum Dialect {
    One(Pmi1),
    Two(Pmi2),
}

impl Dialect {
    fn join(&mut self, message: &Message<'_>, job: &mut Job) -> Result<Next, Failure> {
        match self {
            Self::One(pmi) => pmi.join(message, job),
            Self::Two(pmi) => pmi.join(message, job),
        }
    }

    /// The framing of messages to and from the server in this state.
    fn framing(&self) -> Framing {
        match self {
            Self::One(_) => Framing::Lines,
            Self::Two(pmi) => pmi.framing(),
        }
    }

    fn write(&self, request: &Request<'_>, job: &Job) -> Result<Vec<u8>, SpawnRequestError> {
        match self {
            Self::One(pmi) => pmi.write(request, &job.name),
            Self::Two(_) => pmi2::write(request, &job.name),
        }
    }

    fn reply_to(&self, awaited: PendingReply) -> &'static str {
        match self {
            Self::One(_) => pmi1::reply_to(awaited),
            Self::Two(_) => pmi2::reply_to(awaited),
        }
    }
}

/// The state of the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    Joining,
    Ready,
    /// Finalized or aborted: nothing more is sent.
    Closed,
    Failed(Failure),
}

/// A rank's connection to its process manager.
#[derive(Debug)]
pub struct Client {
    dialect: Dialect,
    job: Job,
    phase: Phase,
    awaited: Option<PendingReply>,
    /// Tags of the group barriers that this rank waits for.
    tags: Vec<u32>,
    inbox: Inbox,
    outbox: Outbox,
    events: VecDeque<Event>,
}

impl Client {
    /// Starts to join a job.
    ///
    /// # Errors
    /// If the rank is invalid.
    pub fn new(join: Join) -> Result<Self, Failure> {
        let (dialect, first, job) = match join {
            Join::Descriptor { rank, size } => {
                let (pmi, first) = Pmi1::at_descriptor();
                (Dialect::One(pmi), first, check_rank_and_size(Job::new(rank, size))?)
            }
            Join::Port { id } => {
                let (pmi, first) = Pmi1::at_port(id);
                // The server reports the size.
                (Dialect::One(pmi), first, Job::new(id, 0))
            }
            Join::Pmi2 { rank, size } => {
                let (pmi, first) = Pmi2::new();
                (Dialect::Two(pmi), first, check_rank_and_size(Job::new(rank, size))?)
            }
        };
        let mut outbox = Outbox::default();
        outbox.push(first);
        let (awaited, tags, events) = (None, Vec::new(), VecDeque::new());
        Ok(Self {
            dialect,
            job,
            phase: Phase::Joining,
            awaited,
            tags,
            inbox: Inbox::default(),
            outbox,
            events,
        })
    }

    /// The bytes to send next, in one write; empty if all are sent.
    #[must_use]
    pub fn transmit(&self) -> &[u8] {
        self.outbox.front()
    }

    /// Reports that `n` bytes of [`Self::transmit`] were sent.
    pub fn sent(&mut self, n: usize) {
        self.outbox.sent(n);
    }

    /// Takes all of these bytes from the server.
    ///
    /// # Errors
    /// The failure that ended the connection, now or earlier.
    pub fn handle_bytes(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match &self.phase {
                Phase::Failed(failure) => return Err(failure.clone()),
                Phase::Closed => return Ok(()),
                Phase::Joining | Phase::Ready => {}
            }
            self.step(&mut bytes).inspect_err(|failure| self.phase = Phase::Failed(failure.clone()))?;
        }
        Ok(())
    }

    /// Reports that the server closed the stream.
    ///
    /// # Errors
    /// If the rank was not finalized.
    pub fn handle_eof(&mut self) -> Result<(), Failure> {
        match &self.phase {
            Phase::Closed => Ok(()),
            Phase::Failed(failure) => Err(failure.clone()),
            Phase::Joining | Phase::Ready => {
                self.phase = Phase::Failed(Failure::Closed);
                Err(Failure::Closed)
            }
        }
    }

    /// The next event, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The job, once this rank has joined it.
    #[must_use]
    pub fn job(&self) -> Option<&Job> {
        matches!(self.phase, Phase::Ready | Phase::Closed).then_some(&self.job)
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If the request is invalid, or not allowed now.
    pub fn request(&mut self, request: &Request<'_>) -> Result<(), RequestError> {
        match self.phase {
            Phase::Joining => return Err(RequestError::NotJoined),
            Phase::Closed | Phase::Failed(_) => return Err(RequestError::Closed),
            Phase::Ready => {}
        }
        let awaited = PendingReply::for_request(request);
        if awaited.is_some() && self.awaited.is_some() {
            return Err(RequestError::Busy);
        }
        self.check(request)?;
        let command = self.dialect.write(request, &self.job)?;
        if command.len() > COMMAND_LEN_MAX && !matches!(request, Request::Spawn(_)) {
            return Err(RequestError::TooLong(command.len()));
        }
        self.outbox.push(command);
        self.awaited = awaited.or(self.awaited);
        match *request {
            Request::Barrier { tag, .. } => self.tags.push(tag),
            Request::Abort { .. } => self.phase = Phase::Closed,
            _ => {}
        }
        Ok(())
    }

    /// Checks that every server would interpret a request correctly.
    fn check(&self, request: &Request<'_>) -> Result<(), RequestError> {
        let job = &self.job;
        match *request {
            Request::Put { key, value } => {
                check_key(key, job.key_len_max)?;
                check_value(value, job.value_len_max_for(key))?;
            }
            // Keys of the process manager itself may be read.
            Request::Get { key } => check_key(key.strip_prefix("PMI_").unwrap_or(key), job.key_len_max)?,
            Request::Publish { service, port } => {
                check_key(service, job.key_len_max)?;
                check_value(port, job.value_len_max_for(service))?;
            }
            Request::Unpublish { service } | Request::Lookup { service } => {
                check_key(service, job.key_len_max)?
            }
            Request::Barrier { group, tag } => self.check_barrier(group, tag)?,
            Request::Abort { message, .. } => {
                check_line("message", message, COMMAND_LEN_MAX / 2, Framing::Packets)?
            }
            Request::Fence | Request::Spawn(_) | Request::Finalize => {}
        }
        Ok(())
    }

    fn check_barrier(&self, group: Group<'_>, tag: u32) -> Result<(), RequestError> {
        let (version, subversion) = self.job.version;
        if version != 1 || subversion < 2 {
            return Err(RequestError::NoGroups(version, subversion));
        }
        if tag == 0 || self.tags.contains(&tag) {
            return Err(RequestError::Tag(tag));
        }
        if self.tags.len() == BARRIERS_MAX {
            return Err(RequestError::TooManyBarriers);
        }
        let Group::Ranks(ranks) = group else { return Ok(()) };
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        let is_whole =
            ranks.contains(&self.job.rank) && sorted.last().is_some_and(|&last| last < self.job.size);
        if is_whole && sorted.is_sorted_by(|a, b| a < b) { Ok(()) } else { Err(RequestError::Group) }
    }

    /// Takes bytes up to the end of a message, and handles it once it is complete.
    fn step(&mut self, bytes: &mut &[u8]) -> Result<(), Failure> {
        let framing = self.dialect.framing();
        self.inbox.set_framing(framing);
        let Some(text) = self.inbox.take(bytes)? else { return Ok(()) };
        let message = Message::parse(&text, framing)?;
        if self.phase == Phase::Ready {
            let event = self.handle_answer(&message)?;
            self.events.push_back(event);
            return Ok(());
        }
        match self.dialect.join(&message, &mut self.job)? {
            Next::Send(command) => self.outbox.push(command),
            Next::Wait => {}
            Next::Joined => {
                self.phase = Phase::Ready;
                self.events.push_back(Event::Joined);
            }
        }
        Ok(())
    }

    /// The event for an answer.
    fn handle_answer(&mut self, message: &Message<'_>) -> Result<Event, Failure> {
        if let Some(event) = self.handle_barrier_answer(message)? {
            return Ok(event);
        }
        let expected = self.awaited.map(|awaited| self.dialect.reply_to(awaited));
        let Some(awaited) = self.awaited.filter(|_| expected == Some(message.name())) else {
            return Err(Failure::Unexpected { got: excerpt(message.name()), expected });
        };
        self.awaited = None;
        let refusal = refusal(message)?;
        Ok(match (awaited, refusal) {
            (PendingReply::Get | PendingReply::Lookup, Some(_)) => Event::Value(None),
            (PendingReply::Get | PendingReply::Lookup, None) if message.get("found") == Some("FALSE") => {
                Event::Value(None)
            }
            (PendingReply::Get, None) => Event::Value(Some(message.need("value")?.to_owned())),
            (PendingReply::Lookup, None) => Event::Value(Some(message.need("port")?.to_owned())),
            (PendingReply::Finalize, _) => {
                // A refused finalize is not repeated.
                self.phase = Phase::Closed;
                Event::Finalized
            }
            (_, Some(why)) => Event::Refused(why),
            (PendingReply::Spawn, None) => Event::Spawned(errors_of(message)?),
            (
                PendingReply::Put | PendingReply::Fence | PendingReply::Publish | PendingReply::Unpublish,
                None,
            ) => Event::Done,
        })
    }

    /// The event if this answers a group barrier.
    fn handle_barrier_answer(&mut self, message: &Message<'_>) -> Result<Option<Event>, Failure> {
        if message.name() != pmi1::reply_to(PendingReply::Fence) || self.tags.is_empty() {
            return Ok(None);
        }
        let tag: Option<u32> = message.number("tag")?;
        let Some(at) = self.tags.iter().position(|&awaited| Some(awaited) == tag) else { return Ok(None) };
        let tag = self.tags.swap_remove(at);
        Ok(Some(match refusal(message)? {
            None => Event::Barrier { tag },
            Some(why) => Event::BarrierRefused { tag, why },
        }))
    }
}

/// The errors of spawned processes; their number is bounded by the size of a message.
fn errors_of(message: &Message<'_>) -> Result<Vec<i32>, WireError> {
    let Some(list) = message.get("errcodes") else { return Ok(Vec::new()) };
    let wrong = |text: &str| WireError::Number {
        message: excerpt(message.name()),
        key: "errcodes",
        value: excerpt(text),
    };
    list.split(',')
        .filter(|code| !code.is_empty())
        .map(|code| code.parse().map_err(|_| wrong(code)))
        .collect()
}
