//! [`ControlServer`]: changes words of control blocks where the device has no atomics. The requester sends a message, and the
//! member changes the word when it makes progress. Only in this case must a member call MPI for others to proceed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use host::SlotKey;

use crate::comm::communicator::Comm;
use crate::comm::context::Plane;
use crate::comm::group::Group;
use crate::core::Core;
use crate::error::Result;
use crate::memory::Buffer;
use crate::p2p::engine::{Engine, Mode, Started, Task};
use crate::p2p::matching::MatchCriteria;
use crate::p2p::operation::{Receive, SourceRanks};
use crate::p2p::wire::MatchKey;
use crate::rma::control::{CHANGE_LEN, Control, WordChange};
use crate::status::Status;

/// The contexts of requests and of replies.
#[derive(Clone, Copy)]
struct Contexts {
    request: u64,
    reply: u64,
}

impl Contexts {
    fn of(comm: &Comm) -> Result<Self> {
        Ok(Self { request: comm.context(Plane::RmaRequest)?, reply: comm.context(Plane::RmaReply)? })
    }
}

/// Sends requests to one other member.
pub(super) struct ControlClient {
    process: u32,
    contexts: Contexts,
    group: Group,
    tags: AtomicU32,
}

impl ControlClient {
    /// Requests to a process of a window's communicator.
    pub(super) fn new(comm: &Comm, process: u32) -> Result<Self> {
        Ok(Self {
            process,
            contexts: Contexts::of(comm)?,
            group: comm.group().clone(),
            tags: AtomicU32::new(0),
        })
    }

    /// Has the member change a word, and waits for the former value.
    pub(super) fn change_word(&self, core: &Core, change: &WordChange) -> Result<u64> {
        let tag = (self.tags.fetch_add(1, Ordering::Relaxed) & i32::MAX as u32) as i32;
        let (request, reply) = (Buffer::from_bytes(&change.bytes())?, Buffer::from_bytes(&[0; 8])?);
        let wanted =
            MatchCriteria { context: self.contexts.reply, source: Some(self.process), tag: Some(tag) };
        let receive =
            Receive { wanted, buffer: reply.clone(), sources: SourceRanks::Group(self.group.clone()) };
        let started = core.with(|engine| -> Result<Started> {
            let started = engine.receive(receive);
            let match_key = MatchKey { context: self.contexts.request, tag };
            if let Started::InProgress(key) =
                engine.send(self.process, match_key, &request, Mode::Standard)?
            {
                engine.free(key);
            }
            Ok(started)
        })?;
        core.finish("a word of a window", started).ok()?;
        Ok(reply.to_vec().first_chunk().map_or(0, |word| u64::from_le_bytes(*word)))
    }
}

/// The task that serves others' requests at a member, during its progress, until it is stopped.
pub(super) struct ControlServer {
    control: Arc<Control>,
    contexts: Contexts,
    group: Group,
    request: Buffer,
    /// The slot key of the posted receive for the next request.
    next: Arc<AtomicU64>,
}

impl ControlServer {
    /// Starts serving; the returned [`StopOnDrop`] ends that.
    pub(super) fn start(comm: &Comm, control: &Arc<Control>) -> Result<StopOnDrop> {
        let (contexts, group, next) = (Contexts::of(comm)?, comm.group().clone(), Arc::default());
        let request = Buffer::from_bytes(&[0; CHANGE_LEN])?;
        let stop_on_drop = StopOnDrop::new(comm.core(), Arc::clone(&next));
        let server = Self { control: control.clone(), contexts, group, request, next };
        comm.core().with(|engine| {
            server.post_receive(engine);
            let started = engine.start_task(Box::new(server));
            let key = engine.key_of(started);
            engine.free(key);
        });
        Ok(stop_on_drop)
    }

    fn post_receive(&self, engine: &mut Engine) {
        let wanted = MatchCriteria { context: self.contexts.request, source: None, tag: None };
        let sources = SourceRanks::Group(self.group.clone());
        let started = engine.receive(Receive { wanted, buffer: self.request.clone(), sources });
        self.next.store(engine.key_of(started).number(), Ordering::Relaxed);
    }

    /// Replies to a request. Malformed requests, and those of lost processes, get no reply.
    fn reply(&self, engine: &mut Engine, status: &Status) {
        let requester = self.group.process(status.source).filter(|_| status.error.is_none());
        let change = WordChange::parse(&self.request.to_vec());
        let (Some(requester), Some(change)) = (requester, change) else { return };
        let old = change.execute(self.control.buf());
        let Ok(reply) = old.and_then(|old| Buffer::from_bytes(&old.to_le_bytes())) else {
            return;
        };
        let match_key = MatchKey { context: self.contexts.reply, tag: status.tag };
        if let Ok(Started::InProgress(key)) = engine.send(requester, match_key, &reply, Mode::Standard) {
            engine.free(key);
        }
    }
}

impl Task for ControlServer {
    fn advance(&mut self, engine: &mut Engine) -> Option<Status> {
        while let Some(status) = engine.take_status(SlotKey::from_number(self.next.load(Ordering::Relaxed))) {
            if status.cancelled {
                return Some(status);
            }
            self.reply(engine, &status);
            self.post_receive(engine);
        }
        None
    }
}

/// Ends a [`ControlServer`], or a similar task with a posted receive, when dropped.
pub(super) struct StopOnDrop {
    core: Core,
    next: Arc<AtomicU64>,
}

impl StopOnDrop {
    /// For the task whose posted receive has this number.
    pub(super) fn new(core: &Core, next: Arc<AtomicU64>) -> Self {
        Self { core: core.clone(), next }
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.core.with(|engine| engine.cancel(SlotKey::from_number(self.next.load(Ordering::Relaxed))));
    }
}
