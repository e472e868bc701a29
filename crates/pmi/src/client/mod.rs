//! A rank's side: it joins its job, then asks one thing after the other.
//!
//! The caller moves bytes and keeps deadlines: send [`Client::transmit`], one write for each, give what comes to
//! [`Client::handle_bytes`], take [`Client::poll_event`] until there is none. The first event is [`Event::Joined`]; from then on
//! each [`Client::request`] is answered by one event before the next may be made. Only barriers of groups are beside that: they
//! are answered when their members are there, whatever else is asked for meanwhile.
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
//! // And so on, until:
//! assert!(matches!(client.poll_event(), Some(Event::Joined)));
//! client.request(&Request::Put { key: "card-0", value: "10.0.0.1:5000" }).expect("it fits");
//! assert_eq!(client.transmit(), b"cmd=put kvsname=k key=card-0 value=10.0.0.1:5000\n");
//! # Ok(())
//! # }
//! ```

mod pmi1;
mod pmi2;
#[cfg(test)]
mod tests;

use crate::mapping::{MappingError, RANKS_MAX};
use crate::spawn::{OwnError, Spawn};
use crate::value::{KEY_LEN_MAX, TextError, VALUE_LEN_MAX, check_key, check_line, check_value};
use crate::wire::{COMMAND_LEN_MAX, Framing, Inbox, Message, Outbox, WireError, excerpt};
use pmi1::Pmi1;
use pmi2::Pmi2;
use std::collections::VecDeque;
use thiserror::Error;

/// The longest name of a job that is taken, in bytes; it stands in commands, whose length is limited.
pub const NAME_LEN_MAX: usize = 255;
/// The most barriers of groups that may be awaited at once.
pub const BARRIERS_MAX: usize = 16;
/// Bytes that a server may put around a value in its answer, whose length is limited as a command's is.
const REPLY_OVERHEAD: usize = 64;

/// How this rank was started: what the launcher's variables say.
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
        /// What the server knows this rank by.
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

/// What a rank knows of its job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// This rank.
    pub rank: u32,
    /// Ranks of the job, one at least.
    pub size: u32,
    /// The name of the job's key-value space.
    pub name: String,
    /// Which of the job's programs this rank runs, if the launcher says.
    pub appnum: Option<u32>,
    /// How many ranks there could be in all, if that is limited.
    pub universe_size: Option<u32>,
    /// The node of each rank, if the launcher says.
    pub nodes: Option<Vec<u32>>,
    /// The protocol that the server speaks: version and subversion.
    pub version: (u32, u32),
    /// The longest key in bytes.
    pub key_len_max: usize,
    /// The longest value in bytes; see [`Self::room`].
    pub value_len_max: usize,
}

impl Job {
    fn new(rank: u32, size: u32) -> Self {
        let (key_len_max, value_len_max) = (KEY_LEN_MAX, VALUE_LEN_MAX);
        let (name, version) = (String::new(), (0, 0));
        let (appnum, universe_size, nodes) = (None, None, None);
        Self { rank, size, name, appnum, universe_size, nodes, version, key_len_max, value_len_max }
    }

    /// The longest value, in bytes, that can be put under a key.
    #[must_use]
    pub fn room(&self, key: &str) -> usize {
        let command = "cmd=put kvsname= key= value=\n".len() + self.name.len() + key.len();
        self.value_len_max.min(COMMAND_LEN_MAX.saturating_sub(command.max(REPLY_OVERHEAD)))
    }
}

/// Ranks that wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group<'a> {
    /// All of the job.
    World,
    /// Those on this rank's node.
    Node,
    /// These, this rank among them.
    Ranks(&'a [u32]),
}

/// What a rank asks for, each with the event that answers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Write into the job's key-value space: [`Event::Done`]. Others see it after the next fence.
    Put {
        /// Letters, digits, `_`, `-` and `/`.
        key: &'a str,
        /// Visible ASCII; bytes need [`crate::value::encode`].
        value: &'a str,
    },
    /// Read from the job's key-value space: [`Event::Value`].
    Get {
        /// As it was put.
        key: &'a str,
    },
    /// Wait for all ranks, and see what they put: [`Event::Done`].
    Fence,
    /// Wait for a group: [`Event::Barrier`], which other answers may overtake. PMI 1.2 only.
    Barrier {
        /// Who takes part.
        group: Group<'a>,
        /// Equal for all members, and none that this rank awaits already; not 0.
        tag: u32,
    },
    /// Let other jobs find an address by the name of a service: [`Event::Done`].
    Publish {
        /// As keys are.
        service: &'a str,
        /// As values are.
        port: &'a str,
    },
    /// Take a name back: [`Event::Done`].
    Unpublish {
        /// As it was published.
        service: &'a str,
    },
    /// Find what was published: [`Event::Value`].
    Lookup {
        /// As it was published.
        service: &'a str,
    },
    /// Start another job: [`Event::Spawned`].
    Spawn(&'a Spawn),
    /// End the whole job; there is no answer, and no other need have come.
    Abort {
        /// What the launcher is to end with.
        code: i32,
        /// For people.
        message: &'a str,
    },
    /// Leave: [`Event::Finalized`]. Whoever closes the descriptor before that ends the job.
    Finalize,
}

/// What has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// This rank is part of its job; [`Client::job`] knows of it.
    Joined,
    /// What was asked for is done.
    Done,
    /// What was looked for; nothing if nobody put it.
    Value(Option<String>),
    /// The members of this barrier were all there.
    Barrier {
        /// As it was asked for.
        tag: u32,
    },
    /// The job is started; for each process its error, 0 for none, if the server tells.
    Spawned(Vec<i32>),
    /// What was asked for is not done; the server's words.
    Refused(String),
    /// This barrier is not done, as when a member has left; the server's words.
    BarrierRefused {
        /// As it was asked for.
        tag: u32,
        /// The server's words.
        why: String,
    },
    /// The server knows that this rank is done.
    Finalized,
}

/// Why there is no more to be had from the server. Each later call returns it again.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// What came is no message of the protocol.
    #[error("the process manager's message cannot be read: {0}")]
    Wire(#[from] WireError),
    /// A message of another kind than the one awaited.
    #[error("the process manager said {got:?} where {} was due: one of the two is out of step", expected.unwrap_or("nothing"))]
    Unexpected {
        /// What came.
        got: String,
        /// What would have been right.
        expected: Option<&'static str>,
    },
    /// The server will not have this rank.
    #[error("the process manager refused {what}: {why}")]
    Refused {
        /// The step of joining.
        what: &'static str,
        /// Its words.
        why: String,
    },
    /// The server speaks another version.
    #[error(
        "the process manager speaks PMI {0}.{1}, which is not spoken here: try the other of PMI-1 and PMI-2"
    )]
    Version(u32, u32),
    /// A rank beyond its job, or a job without ranks, or of too many.
    #[error(
        "rank {rank} of {size} cannot be: a job has between 1 and {RANKS_MAX} ranks, numbered from 0; see PMI_RANK and PMI_SIZE"
    )]
    Place {
        /// The rank.
        rank: u32,
        /// The job's size.
        size: u32,
    },
    /// No name, or one longer than [`NAME_LEN_MAX`].
    #[error("the process manager's name for the job has {0} bytes: between 1 and {NAME_LEN_MAX} can be used")]
    Name(usize),
    /// A process mapping that is none.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The stream ended before [`Event::Finalized`].
    #[error("the process manager closed the connection: the job is being ended, or the process manager died")]
    Closed,
}

/// Why a request was not made; nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RequestError {
    /// Before [`Event::Joined`].
    #[error("the rank has not joined its job yet: wait for Event::Joined")]
    NotJoined,
    /// Before the answer to the last.
    #[error("the last request is not answered yet: take its event first")]
    Busy,
    /// After the end, by whatever cause.
    #[error("the connection to the process manager is over")]
    Over,
    /// A text that not every server carries.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A spawn that not every server understands.
    #[error(transparent)]
    Spawn(#[from] OwnError),
    /// A barrier that this server does not have.
    #[error("the process manager speaks PMI {0}.{1}; barriers of groups need 1.2: use a fence")]
    NoGroups(u32, u32),
    /// A barrier that cannot end.
    #[error("this rank must be in the group, all of which must be of the job, and no rank twice")]
    Group,
    /// A tag that cannot tell this barrier from others.
    #[error("the tag {0} is 0, or that of a barrier which this rank awaits: take another")]
    Tag(u32),
    /// More than [`BARRIERS_MAX`].
    #[error("{BARRIERS_MAX} barriers of groups are awaited already: take their events first")]
    TooManyBarriers,
    /// More than [`COMMAND_LEN_MAX`].
    #[error(
        "the command has {0} bytes, {COMMAND_LEN_MAX} is the most that every server reads: name fewer ranks"
    )]
    TooLong(usize),
}

/// What was asked for and is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaited {
    Put,
    Get,
    Fence,
    Publish,
    Unpublish,
    Lookup,
    Spawn,
    Finalize,
}

impl Awaited {
    /// What a request waits for, if anything in turn.
    fn of(request: &Request<'_>) -> Option<Self> {
        Some(match request {
            Request::Put { .. } => Self::Put,
            Request::Get { .. } => Self::Get,
            Request::Fence => Self::Fence,
            Request::Publish { .. } => Self::Publish,
            Request::Unpublish { .. } => Self::Unpublish,
            Request::Lookup { .. } => Self::Lookup,
            Request::Spawn(_) => Self::Spawn,
            Request::Finalize => Self::Finalize,
            Request::Barrier { .. } | Request::Abort { .. } => return None,
        })
    }
}

/// What joining comes to next.
enum Next {
    Say(Vec<u8>),
    /// Nothing, the server is not done.
    Wait,
    Joined,
}

/// The protocol, by its machine.
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

    /// How messages to and from the server are framed now.
    fn framing(&self) -> Framing {
        match self {
            Self::One(_) => Framing::Lines,
            Self::Two(pmi) => pmi.framing(),
        }
    }

    fn write(&self, request: &Request<'_>, job: &Job) -> Result<Vec<u8>, OwnError> {
        match self {
            Self::One(_) => pmi1::write(request, &job.name),
            Self::Two(_) => pmi2::write(request, &job.name),
        }
    }

    fn reply_to(&self, awaited: Awaited) -> &'static str {
        match self {
            Self::One(_) => pmi1::reply_to(awaited),
            Self::Two(_) => pmi2::reply_to(awaited),
        }
    }
}

/// How far it has come.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    Joining,
    Ready,
    /// Finalized or aborted: nothing more is said.
    Over,
    Failed(Failure),
}

/// The connection of a rank with its process manager.
#[derive(Debug)]
pub struct Client {
    dialect: Dialect,
    job: Job,
    phase: Phase,
    awaited: Option<Awaited>,
    /// Of the barriers of groups that are awaited.
    tags: Vec<u32>,
    inbox: Inbox,
    outbox: Outbox,
    events: VecDeque<Event>,
}

impl Client {
    /// Begins to join a job.
    ///
    /// # Errors
    /// If there can be no such rank.
    pub fn new(join: Join) -> Result<Self, Failure> {
        let (dialect, first, job) = match join {
            Join::Descriptor { rank, size } => {
                let (pmi, first) = Pmi1::at_descriptor();
                (Dialect::One(pmi), first, checked(Job::new(rank, size))?)
            }
            Join::Port { id } => {
                let (pmi, first) = Pmi1::at_port(id);
                // The server tells the size.
                (Dialect::One(pmi), first, Job::new(id, 0))
            }
            Join::Pmi2 { rank, size } => {
                let (pmi, first) = Pmi2::new();
                (Dialect::Two(pmi), first, checked(Job::new(rank, size))?)
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

    /// What is to be sent next, in a write of its own; nothing if all is.
    #[must_use]
    pub fn transmit(&self) -> &[u8] {
        self.outbox.front()
    }

    /// So many bytes of [`Self::transmit`] are sent.
    pub fn sent(&mut self, n: usize) {
        self.outbox.sent(n);
    }

    /// Takes bytes of the server, all of them.
    ///
    /// # Errors
    /// What ended the connection, now or before.
    pub fn handle_bytes(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match &self.phase {
                Phase::Failed(failure) => return Err(failure.clone()),
                Phase::Over => return Ok(()),
                Phase::Joining | Phase::Ready => {}
            }
            self.step(&mut bytes).inspect_err(|failure| self.phase = Phase::Failed(failure.clone()))?;
        }
        Ok(())
    }

    /// The server closed the stream.
    ///
    /// # Errors
    /// If that was too early.
    pub fn handle_eof(&mut self) -> Result<(), Failure> {
        match &self.phase {
            Phase::Over => Ok(()),
            Phase::Failed(failure) => Err(failure.clone()),
            Phase::Joining | Phase::Ready => {
                self.phase = Phase::Failed(Failure::Closed);
                Err(Failure::Closed)
            }
        }
    }

    /// What has happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The job, once this rank has joined it.
    #[must_use]
    pub fn job(&self) -> Option<&Job> {
        matches!(self.phase, Phase::Ready | Phase::Over).then_some(&self.job)
    }

    /// Asks for something.
    ///
    /// # Errors
    /// If it cannot be asked for, or not now.
    pub fn request(&mut self, request: &Request<'_>) -> Result<(), RequestError> {
        match self.phase {
            Phase::Joining => return Err(RequestError::NotJoined),
            Phase::Over | Phase::Failed(_) => return Err(RequestError::Over),
            Phase::Ready => {}
        }
        let awaited = Awaited::of(request);
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
            Request::Abort { .. } => self.phase = Phase::Over,
            _ => {}
        }
        Ok(())
    }

    /// Whether every server would understand a request as it is meant.
    fn check(&self, request: &Request<'_>) -> Result<(), RequestError> {
        let job = &self.job;
        match *request {
            Request::Put { key, value } => {
                check_key(key, job.key_len_max)?;
                check_value(value, job.room(key))?;
            }
            // The process manager's own keys may be read.
            Request::Get { key } => check_key(key.strip_prefix("PMI_").unwrap_or(key), job.key_len_max)?,
            Request::Publish { service, port } => {
                check_key(service, job.key_len_max)?;
                check_value(port, job.room(service))?;
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

    /// Takes bytes up to the end of a message, and acts on it if it is whole.
    fn step(&mut self, bytes: &mut &[u8]) -> Result<(), Failure> {
        let framing = self.dialect.framing();
        self.inbox.set_framing(framing);
        let Some(text) = self.inbox.take(bytes)? else { return Ok(()) };
        let message = Message::parse(&text, framing)?;
        if self.phase == Phase::Ready {
            let event = self.answer(&message)?;
            self.events.push_back(event);
            return Ok(());
        }
        match self.dialect.join(&message, &mut self.job)? {
            Next::Say(command) => self.outbox.push(command),
            Next::Wait => {}
            Next::Joined => {
                self.phase = Phase::Ready;
                self.events.push_back(Event::Joined);
            }
        }
        Ok(())
    }

    /// What an answer says.
    fn answer(&mut self, message: &Message<'_>) -> Result<Event, Failure> {
        if let Some(event) = self.group_answer(message)? {
            return Ok(event);
        }
        let expected = self.awaited.map(|awaited| self.dialect.reply_to(awaited));
        let Some(awaited) = self.awaited.filter(|_| expected == Some(message.name())) else {
            return Err(Failure::Unexpected { got: excerpt(message.name()), expected });
        };
        self.awaited = None;
        let refusal = refusal(message)?;
        Ok(match (awaited, refusal) {
            (Awaited::Get | Awaited::Lookup, Some(_)) => Event::Value(None),
            (Awaited::Get | Awaited::Lookup, None) if message.get("found") == Some("FALSE") => {
                Event::Value(None)
            }
            (Awaited::Get, None) => Event::Value(Some(message.need("value")?.to_owned())),
            (Awaited::Lookup, None) => Event::Value(Some(message.need("port")?.to_owned())),
            (Awaited::Finalize, _) => {
                // A server that objects will not be asked again.
                self.phase = Phase::Over;
                Event::Finalized
            }
            (_, Some(why)) => Event::Refused(why),
            (Awaited::Spawn, None) => Event::Spawned(errors_of(message)?),
            (Awaited::Put | Awaited::Fence | Awaited::Publish | Awaited::Unpublish, None) => Event::Done,
        })
    }

    /// The answer to a barrier of a group, if it is one.
    fn group_answer(&mut self, message: &Message<'_>) -> Result<Option<Event>, Failure> {
        if message.name() != pmi1::reply_to(Awaited::Fence) || self.tags.is_empty() {
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

/// A job that there can be.
fn checked(job: Job) -> Result<Job, Failure> {
    let Job { rank, size, .. } = job;
    if rank < size && size <= RANKS_MAX { Ok(job) } else { Err(Failure::Place { rank, size }) }
}

/// Why a server refuses, if it does; servers of 1.1 leave out what says that they do not.
fn refusal(message: &Message<'_>) -> Result<Option<String>, WireError> {
    let code = message.number::<i64>("rc")?.unwrap_or(0);
    let words = || message.get("msg").or_else(|| message.get("errmsg")).map(excerpt);
    Ok((code != 0).then(|| words().unwrap_or_else(|| format!("error {code}, without a word"))))
}

/// A step of joining is answered by this kind of message, and not refused.
fn granted(message: &Message<'_>, expected: &'static str, what: &'static str) -> Result<(), Failure> {
    if message.name() != expected {
        return Err(Failure::Unexpected { got: excerpt(message.name()), expected: Some(expected) });
    }
    match refusal(message)? {
        Some(why) => Err(Failure::Refused { what, why }),
        None => Ok(()),
    }
}

/// The version that a server answers with; it must be the one that was asked for.
fn version_of(message: &Message<'_>, wanted: u32) -> Result<(u32, u32), Failure> {
    const EXPECTED: &str = "response_to_init";
    let number = message.number("pmi_version")?.unwrap_or(wanted);
    if message.name() == EXPECTED && number != wanted {
        return Err(Failure::Version(number, message.number("pmi_subversion")?.unwrap_or(0)));
    }
    granted(message, EXPECTED, "to let this rank join")?;
    Ok((message.need_number("pmi_version")?, message.need_number("pmi_subversion")?))
}

/// The name of the job's key-value space.
fn name_of(message: &Message<'_>, key: &'static str) -> Result<String, Failure> {
    let name = message.need(key)?;
    if (1..=NAME_LEN_MAX).contains(&name.len()) {
        Ok(name.to_owned())
    } else {
        Err(Failure::Name(name.len()))
    }
}

/// A number of which a negative one says that there is none.
fn count_of(number: i64) -> Option<u32> {
    u32::try_from(number).ok()
}

/// The errors of spawned processes; there are no more than keys fit into a message.
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
