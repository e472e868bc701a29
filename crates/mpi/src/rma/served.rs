//! [`Service`]: changes words of control blocks where the device has no atomics. The requester sends a message, and the member
//! changes the word when it makes progress. Only in this case must a member call MPI for others to proceed.

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
use crate::rma::control::{CHANGE, Change, Control};
use crate::status::Status;

/// The contexts of requests and of replies.
#[derive(Clone, Copy)]
struct Planes {
    asking: u64,
    answering: u64,
}

impl Planes {
    fn of(comm: &Comm) -> Result<Self> {
        Ok(Self { asking: comm.context(Plane::RmaRequest)?, answering: comm.context(Plane::RmaReply)? })
    }
}

/// Sends requests to one other member.
pub(super) struct Asking {
    process: u32,
    planes: Planes,
    group: Group,
    tags: AtomicU32,
}

impl Asking {
    /// Requests to a process of a window's communicator.
    pub(super) fn new(comm: &Comm, process: u32) -> Result<Self> {
        Ok(Self { process, planes: Planes::of(comm)?, group: comm.group().clone(), tags: AtomicU32::new(0) })
    }

    /// Has the member change a word, and waits for the former value.
    pub(super) fn ask(&self, core: &Core, change: &Change) -> Result<u64> {
        let tag = (self.tags.fetch_add(1, Ordering::Relaxed) & i32::MAX as u32) as i32;
        let (question, answer) = (Buffer::own(&change.bytes())?, Buffer::own(&[0; 8])?);
        let wanted =
            MatchCriteria { context: self.planes.answering, source: Some(self.process), tag: Some(tag) };
        let receive =
            Receive { wanted, buffer: answer.clone(), sources: SourceRanks::Group(self.group.clone()) };
        let started = core.with(|engine| -> Result<Started> {
            let started = engine.receive(receive);
            let match_key = MatchKey { context: self.planes.asking, tag };
            if let Started::InProgress(key) =
                engine.send(self.process, match_key, &question, Mode::Standard)?
            {
                engine.free(key);
            }
            Ok(started)
        })?;
        core.finish("a word of a window", started).ok()?;
        Ok(answer.to_vec().first_chunk().map_or(0, |word| u64::from_le_bytes(*word)))
    }
}

/// The task that serves others' requests at a member, during its progress, until it is stopped.
pub(super) struct Service {
    control: Arc<Control>,
    planes: Planes,
    group: Group,
    question: Buffer,
    /// The slot key of the posted receive for the next request.
    next: Arc<AtomicU64>,
}

impl Service {
    /// Starts serving; the returned [`Stop`] ends that.
    pub(super) fn begin(comm: &Comm, control: &Arc<Control>) -> Result<Stop> {
        let (planes, group, next) = (Planes::of(comm)?, comm.group().clone(), Arc::default());
        let question = Buffer::own(&[0; CHANGE])?;
        let stop = Stop::new(comm.core(), Arc::clone(&next));
        let service = Self { control: control.clone(), planes, group, question, next };
        comm.core().with(|engine| {
            service.hear(engine);
            let started = engine.start_task(Box::new(service));
            let key = engine.key_of(started);
            engine.free(key);
        });
        Ok(stop)
    }

    fn hear(&self, engine: &mut Engine) {
        let wanted = MatchCriteria { context: self.planes.asking, source: None, tag: None };
        let sources = SourceRanks::Group(self.group.clone());
        let started = engine.receive(Receive { wanted, buffer: self.question.clone(), sources });
        self.next.store(engine.key_of(started).number(), Ordering::Relaxed);
    }

    /// Replies to a request. Malformed requests, and those of lost processes, get no reply.
    fn answer(&self, engine: &mut Engine, status: &Status) {
        let asker = self.group.process(status.source).filter(|_| status.error.is_none());
        let change = Change::parse(&self.question.to_vec());
        let (Some(asker), Some(change)) = (asker, change) else { return };
        let was = change.carry_out(self.control.buf());
        let Ok(answer) = was.and_then(|was| Buffer::own(&was.to_le_bytes())) else {
            return;
        };
        let match_key = MatchKey { context: self.planes.answering, tag: status.tag };
        if let Ok(Started::InProgress(key)) = engine.send(asker, match_key, &answer, Mode::Standard) {
            engine.free(key);
        }
    }
}

impl Task for Service {
    fn advance(&mut self, engine: &mut Engine) -> Option<Status> {
        while let Some(status) = engine.take_status(SlotKey::from_number(self.next.load(Ordering::Relaxed))) {
            if status.cancelled {
                return Some(status);
            }
            self.answer(engine, &status);
            self.hear(engine);
        }
        None
    }
}

/// Ends a [`Service`], or a similar task with a posted receive, when dropped.
pub(super) struct Stop {
    core: Core,
    next: Arc<AtomicU64>,
}

impl Stop {
    /// For the task whose posted receive has this number.
    pub(super) fn new(core: &Core, next: Arc<AtomicU64>) -> Self {
        Self { core: core.clone(), next }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.core.with(|engine| engine.cancel(SlotKey::from_number(self.next.load(Ordering::Relaxed))));
    }
}
