//! [`Engine`]: all point-to-point state of a process, and the steps that every protocol takes on it: how operations start, are
//! counted, and complete.

use std::collections::BTreeMap;

use host::{Host, SlotKey};
use pmi::profile::Traffic;

use crate::coll::check::CallHistory;
use crate::error::{Error, Result};
use crate::p2p::bsend_space::BsendSpaces;
use crate::p2p::kept::{KeptMessages, Rest};
use crate::p2p::matching::{MatchCriteria, Matching};
use crate::p2p::operation::{OpState, Operation, Table, UnexpectedBody};
use crate::p2p::over_portals::{self, Portals, PortalsStarted};
use crate::p2p::proto::Proto;
use crate::p2p::wire::{CollCall, MatchKey};
use crate::peers::transport::Transport;
use crate::status::Status;
use crate::tool::{EventRecorder, ToolEvent};

/// How an operation has started.
#[derive(Debug)]
pub(crate) enum Started {
    /// It has completed already.
    Completed(Status),
    /// It is in progress under this key.
    InProgress(SlotKey),
}

/// An operation in several steps, such as a collective operation, or a pair of a send and a receive. Each step starts when the
/// operations of the previous step have completed; the engine calls [`Task::advance`] whenever an operation has completed.
pub(crate) trait Task: Send {
    /// Continues as far as possible. Returns its status when it has completed.
    fn advance(&mut self, engine: &mut Engine) -> Option<Status>;

    /// Whether it waits for a message that may never arrive, so that [`Task::send_coll_checks`] should ask for it.
    fn may_wait_forever(&self) -> bool {
        false
    }

    /// Asks the processes whose messages it has waited for a long time.
    fn send_coll_checks(&self, _engine: &mut Engine) {}

    /// A process reports that it has called a different operation, or has given up.
    fn coll_mismatch(&mut self, _engine: &mut Engine, _from: u32, _label: MatchKey, _called: CollCall) {}
}

/// All point-to-point state of a process.
pub(crate) struct Engine {
    pub(crate) transport: Transport,
    /// Matches the messages of most contexts in place of this engine, if present. The transport then carries only the messages of
    /// the other contexts, and RDMA.
    pub(crate) portals: Option<Box<Portals>>,
    pub(super) host: Host,
    pub(super) rank: u32,
    pub(super) matching: Matching<SlotKey, UnexpectedBody>,
    /// Long messages that arrived before their receives.
    pub(super) kept: KeptMessages,
    /// For each process that has begun to send a message, its rest.
    pub(super) rests: BTreeMap<u32, Rest>,
    pub(super) operations: Table<Operation>,
    pub(super) tasks: Vec<(SlotKey, Box<dyn Task>)>,
    /// A task may be able to continue.
    pub(super) tasks_ready: bool,
    /// Space for buffered sends.
    pub(crate) spaces: BsendSpaces,
    /// An operation has completed since [`Engine::take_completed`] was last called.
    pub(super) has_completed: bool,
    /// Messages that both sides copy, and that wait for room in a send queue.
    pub(super) stalled: Vec<SlotKey>,
    /// Long sends in progress.
    pub(super) long_sends: u32,
    /// Messages from this process to itself.
    pub(super) self_traffic: Traffic,
    /// Comparisons made by the matching queues.
    pub(super) compared: u64,
    /// Collective operations that were started as schedules.
    pub(crate) scheduled: u64,
    /// The collective operations that this process has called.
    pub(super) history: CallHistory,
    /// Sends of failed collective operations, which may never be received.
    pub(super) abandoned: Vec<SlotKey>,
    /// The recorder of events, while a tool watches.
    pub(crate) recorder: Option<Box<EventRecorder>>,
    /// Receives that began with a poll of only their source's stored messages.
    pub(super) fast_receives: u32,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({:?})", self.transport)
    }
}

impl Engine {
    /// Creates the engine of process `rank`.
    pub(crate) fn new(host: &Host, rank: u32, transport: Transport, portals: Option<Portals>) -> Self {
        Self {
            transport,
            portals: portals.map(Box::new),
            host: host.clone(),
            rank,
            matching: Matching::default(),
            kept: KeptMessages::default(),
            rests: BTreeMap::new(),
            operations: Table::default(),
            tasks: Vec::new(),
            tasks_ready: false,
            spaces: BsendSpaces::default(),
            has_completed: false,
            stalled: Vec::new(),
            long_sends: 0,
            self_traffic: Traffic::default(),
            compared: 0,
            scheduled: 0,
            history: CallHistory::default(),
            abandoned: Vec::new(),
            recorder: None,
            fast_receives: 0,
        }
    }

    /// The host that it runs on.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// Portals, if it matches the messages of a context.
    #[inline]
    pub(super) fn portals(&mut self, context: u64) -> Option<&mut Portals> {
        self.portals.as_deref_mut().filter(|_| over_portals::carries(context))
    }

    /// Makes an operation of what has started over Portals, and completes the operations that Portals has reported meanwhile.
    pub(super) fn record_portals_start(&mut self, started: Result<PortalsStarted>) -> Result<Started> {
        let started = match started? {
            PortalsStarted::Completed(status) => Started::Completed(status.ok()?),
            PortalsStarted::InProgress(name) => {
                let key = self.operations.insert(Operation::new(OpState::Portals(name)));
                if let Some(portals) = &mut self.portals {
                    portals.set_operation(name, key);
                }
                Started::InProgress(key)
            }
        };
        self.complete_portals_operations();
        Ok(started)
    }

    /// Completes the operations whose completion Portals has reported.
    pub(super) fn complete_portals_operations(&mut self) {
        while let Some((key, status)) = self.portals.as_deref_mut().and_then(Portals::next_completed) {
            self.complete(key, status);
        }
    }

    /// Starts an operation, and removes it if that fails.
    pub(super) fn start_or_remove(
        &mut self,
        key: SlotKey,
        begin: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Started> {
        match begin(self) {
            Ok(()) => Ok(Started::InProgress(key)),
            Err(error) => {
                self.operations.remove(key);
                Err(error)
            }
        }
    }

    /// Messages and bytes from this process to itself.
    pub(crate) fn self_traffic(&self) -> &Traffic {
        &self.self_traffic
    }

    /// Whether an operation has completed since this was last called.
    pub(crate) fn take_completed(&mut self) -> bool {
        std::mem::take(&mut self.has_completed)
    }

    /// Records an event, while a tool watches.
    pub(super) fn record_event(&mut self, what: ToolEvent) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(self.host.now(), what);
        }
    }

    /// Counts a long message at the first answer to its RTS, by the protocol that the answer shows, or else by the protocol of the
    /// RTS.
    pub(super) fn count_long(&mut self, key: SlotKey, to: u32, shown: Option<Proto>) {
        if let Some(Operation { state: OpState::Send { long_send: Some(long_send), .. }, .. }) =
            self.operations.get_mut(key)
            && let Some(proto) = long_send.uncounted.take()
        {
            self.transport.count(to, shown.unwrap_or(proto), long_send.buffer.len());
        }
    }

    /// Whether an operation is a send that an answer from this peer may complete. Any other key is invalid, and so is an answer
    /// before this side has copied its pieces; both are ignored.
    pub(super) fn accepts_answer_of(&mut self, key: SlotKey, from: u32) -> bool {
        self.operations.get_mut(key).is_some_and(|operation| match &operation.state {
            OpState::Send { to, awaits_fin: true, long_send } => {
                *to == from && !long_send.as_ref().is_some_and(|long_send| long_send.is_copied_from())
            }
            _ => false,
        })
    }

    /// The error of a lost source, from which no more messages arrive.
    #[inline]
    pub(crate) fn lost(&self, wanted: &MatchCriteria) -> Option<Error> {
        wanted.source.and_then(|source| self.transport.lost(source)).cloned()
    }

    /// Completes an operation with this status.
    #[inline]
    pub(super) fn complete(&mut self, key: SlotKey, status: Status) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        if let OpState::Send { long_send: Some(_), .. } = operation.state {
            self.long_sends -= 1;
        }
        operation.state = OpState::Completed(status);
        (self.has_completed, self.tasks_ready) = (true, true);
        if let Some(share) = operation.buffered.take() {
            self.spaces.release(*share);
        }
        if operation.is_detached {
            self.operations.remove(key);
        }
    }
}
