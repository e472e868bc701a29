//! Operations in several steps, and processes that wait for each other in vain.

use host::SlotKey;

use super::{Begun, Engine, Task};
use crate::p2p::operation::{Operation, Work};
use crate::p2p::wire::{Called, Label, Message};
use crate::peers::connection::Payload;
use crate::status::Status;
use crate::tool::Happening;

impl Engine {
    /// Begins something in several steps.
    pub(crate) fn begin(&mut self, mut task: Box<dyn Task>) -> Begun {
        if let Some(status) = task.advance(self) {
            return Begun::Over(status);
        }
        let key = self.operations.insert(Operation::new(Work::Task));
        self.tasks.push((key, task));
        Begun::Under(key)
    }

    /// An operation that somebody else ends, by [`Engine::complete`].
    pub(crate) fn open(&mut self) -> Begun {
        Begun::Under(self.operations.insert(Operation::new(Work::Task)))
    }

    /// Ends what [`Engine::open`] began; whether nobody asks for it any more.
    pub(crate) fn complete(&mut self, key: SlotKey) -> bool {
        let is_abandoned = self.operations.get_mut(key).is_some_and(|operation| operation.free);
        self.end(key, Status::empty());
        is_abandoned
    }

    /// A task may be able to go on, though no operation has ended.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
    }

    /// A name for what has begun, also if it is over already.
    pub(crate) fn under(&mut self, begun: Begun) -> SlotKey {
        match begun {
            Begun::Under(key) => key,
            Begun::Over(status) => self.operations.insert(Operation::new(Work::Over(status))),
        }
    }

    /// Has all tasks go on; whether there was a reason to.
    pub(super) fn advance_tasks(&mut self) -> bool {
        let stirred = std::mem::take(&mut self.stirred);
        if stirred && !self.tasks.is_empty() {
            let mut tasks = std::mem::take(&mut self.tasks);
            tasks.retain_mut(|(key, task)| match task.advance(self) {
                Some(status) => {
                    self.end(*key, status);
                    false
                }
                None => true,
            });
            // What the tasks themselves have begun comes behind them.
            tasks.append(&mut self.tasks);
            self.tasks = tasks;
        }
        stirred
    }

    /// Whether a task may wait for what nobody sends.
    pub(crate) fn may_doubt(&self) -> bool {
        // What Portals carries does not come in one order with questions.
        self.portals.is_none() && self.tasks.iter().any(|(_, task)| task.may_doubt())
    }

    /// This process has waited long: all tasks ask those that they wait for.
    pub(crate) fn doubt(&mut self) {
        let mut tasks = std::mem::take(&mut self.tasks);
        tasks.iter().for_each(|(_, task)| task.doubt(self));
        tasks.append(&mut self.tasks);
        self.tasks = tasks;
    }

    /// A collective operation begins.
    pub(crate) fn called(&mut self, label: Label, called: Called) {
        self.ledger.begin(label, called);
        self.note(Happening::Scheduled { kind: called.kind, bytes: called.bytes });
    }

    /// One has failed.
    pub(crate) fn gave_up(&mut self, label: Label) {
        self.ledger.give_up(label);
    }

    /// Whom a send or a receive waits for.
    pub(crate) fn awaited(&mut self, key: SlotKey) -> Option<u32> {
        match &self.operations.get_mut(key)?.work {
            Work::Receive(_) | Work::Plain(_) => self.matching.wanted_by(&key)?.source,
            Work::Send { to, .. } => Some(*to),
            _ => None,
        }
    }

    /// Says something to a process; who is lost, or is this one, need not be told.
    pub(crate) fn tell_of(&mut self, process: u32, message: Message) {
        if process != self.rank {
            drop(self.transport.send(process, message, Payload::None, None));
        }
    }

    /// Gives up a send or a receive for which nobody may ever come; whether it did, or its data are being moved.
    pub(crate) fn abandon(&mut self, key: SlotKey) -> bool {
        if self.awaited(key).is_none() {
            return false;
        }
        self.cancel(key);
        self.free(key);
        if self.has(key) {
            self.abandoned.push(key);
        }
        true
    }

    /// A process wants to know whether this one has called the same.
    pub(super) fn asked(&mut self, from: u32, label: Label, called: Called) {
        if let Some(called) = self.ledger.differs(label, called) {
            self.tell_of(from, Message::CollMismatch { label, called });
        }
    }

    /// A process has called something else than this one, or has given up.
    pub(super) fn refused(&mut self, from: u32, label: Label, called: Called) {
        let mut tasks = std::mem::take(&mut self.tasks);
        tasks.iter_mut().for_each(|(_, task)| task.refuse(self, from, label, called));
        tasks.append(&mut self.tasks);
        (self.tasks, self.stirred) = (tasks, true);
    }
}
