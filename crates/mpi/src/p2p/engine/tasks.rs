//! Operations in several steps, and the detection of collective operations that would wait forever.

use host::SlotKey;

use super::{Engine, Started, Task};
use crate::p2p::operation::{OpState, Operation};
use crate::p2p::wire::{CollCall, MatchKey, Message};
use crate::peers::connection::Payload;
use crate::status::Status;
use crate::tool::ToolEvent;

impl Engine {
    /// Starts a task.
    pub(crate) fn start_task(&mut self, mut task: Box<dyn Task>) -> Started {
        if let Some(status) = task.advance(self) {
            return Started::Completed(status);
        }
        let key = self.operations.insert(Operation::new(OpState::Task));
        self.tasks.push((key, task));
        Started::InProgress(key)
    }

    /// Creates an operation that another part completes, by [`Engine::complete_generalized`].
    pub(crate) fn start_generalized(&mut self) -> Started {
        Started::InProgress(self.operations.insert(Operation::new(OpState::Task)))
    }

    /// Completes an operation of [`Engine::start_generalized`]; returns whether it was freed, so that no caller asks for it.
    pub(crate) fn complete_generalized(&mut self, key: SlotKey) -> bool {
        let is_abandoned = self.operations.get_mut(key).is_some_and(|operation| operation.is_detached);
        self.complete(key, Status::empty());
        is_abandoned
    }

    /// Has the tasks advance, though no operation has completed.
    pub(crate) fn wake_tasks(&mut self) {
        self.tasks_ready = true;
    }

    /// Returns a key for a started operation, also if it has completed already.
    pub(crate) fn key_of(&mut self, started: Started) -> SlotKey {
        match started {
            Started::InProgress(key) => key,
            Started::Completed(status) => self.operations.insert(Operation::new(OpState::Completed(status))),
        }
    }

    /// Advances all tasks if there is a reason to; returns whether there was.
    pub(super) fn advance_tasks(&mut self) -> bool {
        let tasks_ready = std::mem::take(&mut self.tasks_ready);
        if tasks_ready && !self.tasks.is_empty() {
            let mut tasks = std::mem::take(&mut self.tasks);
            tasks.retain_mut(|(key, task)| match task.advance(self) {
                Some(status) => {
                    self.complete(*key, status);
                    false
                }
                None => true,
            });
            // Tasks started by these tasks go to the end of the list.
            tasks.append(&mut self.tasks);
            self.tasks = tasks;
        }
        tasks_ready
    }

    /// Whether a task may wait for a message that is never sent.
    pub(crate) fn may_wait_forever(&self) -> bool {
        // Messages by Portals are not ordered with the questions, which the transport carries.
        self.portals.is_none() && self.tasks.iter().any(|(_, task)| task.may_wait_forever())
    }

    /// This process has waited long: each task asks the processes that it waits for.
    pub(crate) fn send_coll_checks(&mut self) {
        let mut tasks = std::mem::take(&mut self.tasks);
        tasks.iter().for_each(|(_, task)| task.send_coll_checks(self));
        tasks.append(&mut self.tasks);
        self.tasks = tasks;
    }

    /// Records the start of a collective operation.
    pub(crate) fn record_collective(&mut self, match_key: MatchKey, called: CollCall) {
        self.history.record(match_key, called);
        self.record_event(ToolEvent::Scheduled { kind: called.kind, bytes: called.bytes });
    }

    /// Records the failure of a collective operation.
    pub(crate) fn record_failure(&mut self, match_key: MatchKey) {
        self.history.mark_failed(match_key);
    }

    /// The process that a send or a receive waits for.
    pub(crate) fn awaited(&mut self, key: SlotKey) -> Option<u32> {
        match &self.operations.get_mut(key)?.state {
            OpState::Receive(_) | OpState::PlainReceive(_) => self.matching.criteria_of(&key)?.source,
            OpState::Send { to, .. } => Some(*to),
            _ => None,
        }
    }

    /// Sends a message to a process, unless it is lost or is this process.
    pub(crate) fn send_control(&mut self, process: u32, message: Message) {
        if process != self.rank {
            drop(self.transport.send(process, message, Payload::None, None));
        }
    }

    /// Gives up a send or a receive whose peer may never respond. Returns false if it cannot be given up, since its data are being
    /// moved: a send that needs no answer is read from the program's memory until it has left.
    pub(crate) fn abandon(&mut self, key: SlotKey) -> bool {
        let is_leaving = self
            .operations
            .get_mut(key)
            .is_some_and(|operation| matches!(operation.state, OpState::Send { awaits_fin: false, .. }));
        if is_leaving || self.awaited(key).is_none() {
            return false;
        }
        self.cancel(key);
        self.free(key);
        if self.contains(key) {
            self.abandoned.push(key);
        }
        true
    }

    /// A process asks whether this one has called the same operation.
    pub(super) fn handle_coll_check(&mut self, from: u32, match_key: MatchKey, called: CollCall) {
        if let Some(called) = self.history.mismatch(match_key, called) {
            self.send_control(from, Message::CollMismatch { match_key, called });
        }
    }

    /// A process has called a different operation, or has given up.
    pub(super) fn handle_coll_mismatch(&mut self, from: u32, match_key: MatchKey, called: CollCall) {
        let mut tasks = std::mem::take(&mut self.tasks);
        tasks.iter_mut().for_each(|(_, task)| task.coll_mismatch(self, from, match_key, called));
        tasks.append(&mut self.tasks);
        (self.tasks, self.tasks_ready) = (tasks, true);
    }
}
