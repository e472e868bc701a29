//! Operations by name: whether and how one has ended, and whose it is.

use host::SlotKey;

use super::Engine;
use crate::p2p::operation::{Operation, Work};
use crate::p2p::over_portals::Portals;
use crate::status::{Ended, Status};

impl Engine {
    /// Whether an operation has ended well; nothing while it has not ended.
    #[inline]
    pub(crate) fn has_ended_well(&mut self, key: SlotKey) -> Option<bool> {
        match self.operations.get_mut(key) {
            Some(Operation { work: Work::Over(status), .. }) => Some(status.error.is_none()),
            Some(_) => None,
            None => Some(false),
        }
    }

    /// How an operation ended, if it has; it is forgotten then.
    pub(crate) fn take(&mut self, key: SlotKey) -> Option<Status> {
        match self.operations.get_mut(key) {
            Some(Operation { work: Work::Over(_), .. }) => {}
            Some(_) => return None,
            None => return Some(Status::empty()),
        }
        match self.operations.remove(key)?.work {
            Work::Over(status) => Some(status),
            _ => None,
        }
    }

    /// How the operation of a request ended, which has; `None` if there is none. It is forgotten then.
    #[inline(always)]
    pub(crate) fn collect(&mut self, key: SlotKey) -> Option<Ended> {
        self.operations.remove_by(key, |operation| {
            let comm = operation.comm();
            let Work::Over(status) = &mut operation.work else { return None };
            // All that one holds which is over.
            let status = std::mem::replace(status, Status::empty());
            Some(Ended { status, comm, is_persistent: false })
        })
    }

    /// Shows how the operation of a request ended, which has, and well; whether there is such a one. It is forgotten then.
    #[inline(always)]
    pub(crate) fn hand_out(&mut self, key: SlotKey, show: impl FnOnce(&Status)) -> bool {
        let shown = self.operations.remove_by(key, |operation| match &operation.work {
            // It holds nothing.
            Work::Over(status) if status.error.is_none() => {
                show(status);
                Some(())
            }
            _ => None,
        });
        shown.is_some()
    }

    /// Says whose an operation is.
    #[inline]
    pub(crate) fn belongs(&mut self, key: SlotKey, comm: u64) {
        if let Some(operation) = self.operations.get_mut(key) {
            operation.belongs(comm);
        }
    }

    /// Whose it is.
    pub(crate) fn comm(&mut self, key: SlotKey) -> Option<u64> {
        self.operations.get_mut(key)?.comm()
    }

    /// Whether an operation is under way that belongs to a communicator.
    pub(crate) fn is_busy(&self, comm: u64) -> bool {
        let is_of = |operation: &Operation| operation.comm() == Some(comm);
        self.operations
            .iter()
            .any(|(_, operation)| is_of(operation) && !matches!(operation.work, Work::Over(_)))
    }

    /// Whether there is such an operation.
    #[inline]
    pub(crate) fn has(&mut self, key: SlotKey) -> bool {
        self.operations.get_mut(key).is_some()
    }

    /// The operation at a place of theirs.
    pub(crate) fn at(&self, place: u32) -> Option<SlotKey> {
        self.operations.key_at(place)
    }

    /// Whether an operation has ended.
    #[inline]
    pub(crate) fn is_over(&mut self, key: SlotKey) -> bool {
        self.operations.get_mut(key).is_none_or(|operation| matches!(operation.work, Work::Over(_)))
    }

    /// How an operation ended, if it has.
    pub(crate) fn peek(&mut self, key: SlotKey) -> Option<Status> {
        match self.operations.get_mut(key) {
            Some(Operation { work: Work::Over(status), .. }) => Some(status.clone()),
            Some(_) => None,
            None => Some(Status::empty()),
        }
    }

    /// Nobody will ask how an operation ended.
    pub(crate) fn free(&mut self, key: SlotKey) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        operation.free = true;
        if let Work::Over(_) = operation.work {
            self.operations.remove(key);
        }
    }

    /// Whether the peers have, or can get, all that this process has sent.
    pub(crate) fn is_drained(&self) -> bool {
        let sends = |(key, operation): (SlotKey, &Operation)| {
            matches!(operation.work, Work::Send { .. }) && !self.abandoned.contains(&key)
        };
        let portals = self.portals.as_deref();
        portals.is_none_or(Portals::is_drained)
            && self.transport.is_drained()
            && !self.operations.iter().any(sends)
    }
}
