//! The engine of MPI's point-to-point operations: matches messages with receives, and moves the data. Short messages carry their
//! data; for long ones the receiver reads from the sender's memory, or the sender writes. This file handles the transport's events.
//!
//! | file | purpose |
//! |---|---|
//! | `state` | [`Engine`]: the state, and how operations start and complete |
//! | `operations` | operations by their keys |
//! | `send` | chooses the protocol of a message |
//! | `receive` | receives, probes, and the messages for them |
//! | `eager`, `direct`, `fragments`, `rndv_get`, `rndv_shm` | the protocols |
//! | `rest` | receives long messages whose beginning arrives with their header |
//! | `cancel` | how operations are cancelled |
//! | `tasks` | operations in several steps |

mod cancel;
mod direct;
mod eager;
mod fragments;
mod operations;
mod receive;
mod rest;
mod rndv_get;
mod rndv_shm;
mod send;
mod state;
mod tasks;

use host::{SlotKey, Step};
use verbs::{SendOp, Sge};

use crate::error::{Error, Result};
use crate::memory::Piece;
use crate::p2p::matching::{MatchCriteria, TagCriteria};
use crate::p2p::operation::{OpState, Operation, RdmaAccess, RdmaBuffer, SourceRanks, UnexpectedBody};
use crate::peers::connection::Taken;
use crate::peers::transport::Event;
use crate::status::Status;
use crate::tool::{Gauge, ToolEvent};

pub(crate) use receive::{MatchedMessage, StoredReceive};
pub use send::Mode;
pub(crate) use state::{Engine, Started, Task};

/// After this many receives by the fast path, the next one makes progress first.
const FAST_RECEIVES_MAX: u32 = 256;

impl Engine {
    /// The current value of a gauge.
    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        let ((receives, messages), (kept, most)) =
            (self.matching.queue_lengths(), self.matching.unexpected_counts());
        match gauge {
            Gauge::PostedReceives => receives as u64,
            Gauge::UnexpectedMessages => messages as u64,
            Gauge::UnexpectedMost => most as u64,
            Gauge::UnexpectedTotal => kept,
            Gauge::MatchProbes => self.compared,
            Gauge::Operations => self.operations.iter().count() as u64,
            Gauge::Connections => self.transport.open() as u64,
            Gauge::WaitingRequests => self.transport.waiting() as u64,
            Gauge::MemoryFound => self.transport.reached[0],
            Gauge::MemoryRegistered => self.transport.reached[1],
            Gauge::CollectivesScheduled => self.scheduled,
            Gauge::ConnectionsRefused => self.transport.admission().refused(),
        }
    }

    /// Drops the messages of a freed communicator.
    pub(crate) fn drop_context(&mut self, context: u64) {
        match self.portals(context) {
            Some(portals) => portals.drop_context(context),
            None => {
                for (_, body) in self.matching.remove_context(context) {
                    if let UnexpectedBody::Kept { key, .. } = body {
                        self.kept.discard(key);
                    }
                }
            }
        }
    }

    /// Receives a message from a process without posting a receive, if no message or receive waits in its context and the next
    /// message that the process has stored matches; polls `polls` times. Returns its tag and its length; if `None`, nothing has
    /// happened.
    #[inline]
    pub(crate) fn try_receive(
        &mut self,
        from: u32,
        wanted: &TagCriteria,
        into: Piece,
        polls: u32,
    ) -> Option<(i32, usize)> {
        let stored = self.transport.stored_by(from);
        if (stored.is_none() && self.portals.is_none()) || !self.matching.is_idle(wanted.context) {
            return None;
        }
        self.fast_receives = self.fast_receives.wrapping_add(1);
        if self.fast_receives.is_multiple_of(FAST_RECEIVES_MAX) {
            // A program that never has to wait must still make progress on other operations.
            self.progress(true);
            return None;
        }
        if let Some(portals) = self.portals(wanted.context) {
            let wanted = MatchCriteria { context: wanted.context, source: Some(from), tag: wanted.tag };
            return portals.try_receive(&wanted, into, polls);
        }
        let number = stored?;
        for _ in 0..polls {
            match self.transport.take_piece(number, wanted, into) {
                Taken::Nothing => {}
                Taken::Message { tag, len } => return Some((tag, len)),
                Taken::Unknown => return None,
            }
        }
        None
    }

    /// Makes all possible progress; with `brief` only the likely part, and everything once in a while.
    pub(crate) fn progress(&mut self, brief: bool) {
        self.transport.poll(brief);
        if let Some(portals) = &mut self.portals {
            portals.poll();
        }
        self.handle_events();
        // Operations that a task starts can complete immediately; no caller may go to sleep before they are processed.
        while self.advance_tasks() {
            self.handle_events();
        }
        let compared = self.matching.take_comparisons();
        if compared > 0 {
            self.compared += compared;
            self.host.charge_step(Step::Match, compared);
        }
    }

    fn handle_events(&mut self) {
        self.complete_portals_operations();
        loop {
            while let Some(event) = self.transport.next_event() {
                match event {
                    Event::Received { from, what, place } => {
                        self.host.charge_step(Step::Event, 1);
                        self.handle_message(from, &what, place);
                        self.transport.release(place, &what.message);
                    }
                    Event::Sent(key) => self.complete(key, Status::empty()),
                    Event::Began { from, what, place } => {
                        self.host.charge_step(Step::Event, 1);
                        self.handle_begun(from, &what, place);
                        self.transport.release(place, &what.message);
                    }
                    Event::RestArrived { from, len } => self.handle_rest(from, len),
                    Event::Accessed(key) => {
                        self.rdma_completed(key);
                        self.resume_stalled();
                    }
                    Event::Lost { process, error } => self.handle_lost(process, &error),
                    Event::Left { process, error } => self.handle_left(process, &error),
                }
            }
            let Some(number) = self.transport.next_stored_to() else { return };
            self.receive_all_stored(number);
            self.transport.pump_stored(number);
        }
    }

    /// Starts to read or change a peer's memory by these requests.
    ///
    /// # Errors
    /// The process is lost, or cannot be reached.
    pub(crate) fn start_rdma(
        &mut self,
        process: u32,
        requests: &[(SendOp, Sge)],
        rdma_buffer: Option<RdmaBuffer>,
    ) -> Result<Started> {
        self.host.charge_step(Step::Request, 1);
        let access = RdmaAccess { process, left: requests.len(), rdma_buffer };
        let key = self.operations.insert(Operation::new(OpState::Access(Box::new(access))));
        self.start_or_remove(key, |engine| {
            requests.iter().try_for_each(|(op, piece)| engine.transport.access(process, *op, *piece, key))
        })
    }

    /// One request of an access has completed, or one read of a receive.
    fn rdma_completed(&mut self, key: SlotKey) {
        let Some(Operation { state: OpState::Access(access), .. }) = self.operations.get_mut(key) else {
            return self.piece_completed(key);
        };
        access.left -= 1;
        if access.left > 0 {
            return;
        }
        let mut status = Status::empty();
        if let Some(RdmaBuffer { buffer, staging: Some(staging), is_read: true, .. }) = &access.rdma_buffer {
            self.host.charge_copy(staging.len() as u64);
            if let Err(error) = buffer.store_from(staging, 0, staging.len()) {
                status = Status::failed(error.into());
            }
        }
        self.complete(key, status);
    }

    /// A process is lost: fails the operations that name it, and receives from any source that it could have matched.
    fn handle_lost(&mut self, process: u32, error: &Error) {
        self.record_event(ToolEvent::Lost { process });
        self.fail_operations(process, error, |_, sources| sources.include_any_source(process));
    }

    /// A process has left in order: fails the operations that name it. Receives from any source fail when no other member is left.
    fn handle_left(&mut self, process: u32, error: &Error) {
        self.fail_operations(process, error, |engine, sources| {
            let is_gone = |other: u32| other != engine.rank && engine.transport.lost(other).is_some();
            sources.include_any_source(process) && sources.all(is_gone)
        });
    }

    /// Fails the operations that depend on a process, and receives from any source if `must_fail` of their possible sources.
    fn fail_operations(
        &mut self,
        process: u32,
        error: &Error,
        must_fail: impl Fn(&Self, &SourceRanks) -> bool,
    ) {
        self.kept.remove_process(process);
        self.rests.remove(&process);
        let stuck = self.operations.iter().filter(|(_, operation)| operation.depends_on(process));
        let mut stuck: Vec<SlotKey> = stuck.map(|(key, _)| key).collect();
        let mut matching = std::mem::take(&mut self.matching);
        stuck.extend(matching.remove_receives(|wanted, key| {
            match wanted.source {
                Some(source) => source == process,
                None => self
                    .operations
                    .get_mut(*key)
                    .and_then(|operation| operation.possible_sources())
                    .is_some_and(|sources| must_fail(self, &sources)),
            }
        }));
        self.matching = matching;
        stuck.into_iter().for_each(|key| self.complete(key, Status::failed(error.clone())));
    }
}
