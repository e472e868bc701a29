//! Operations by key: whether and how an operation has completed, and its communicator.

use host::SlotKey;

use super::Engine;
use crate::p2p::operation::{OpState, Operation};
use crate::p2p::over_portals::Portals;
use crate::status::{CompletedRequest, Status};

impl Engine {
    /// Whether an operation has completed successfully; `None` while it is in progress.
    #[inline]
    pub(crate) fn has_succeeded(&mut self, key: SlotKey) -> Option<bool> {
        match self.operations.get_mut(key) {
            Some(Operation { state: OpState::Completed(status), .. }) => Some(status.error.is_none()),
            Some(_) => None,
            None => Some(false),
        }
    }

    /// Returns the status of a completed operation, and removes it.
    pub(crate) fn take_status(&mut self, key: SlotKey) -> Option<Status> {
        match self.operations.get_mut(key) {
            Some(Operation { state: OpState::Completed(_), .. }) => {}
            Some(_) => return None,
            None => return Some(Status::empty()),
        }
        match self.operations.remove(key)?.state {
            OpState::Completed(status) => Some(status),
            _ => None,
        }
    }

    /// Returns the status of a request's completed operation, and removes it; `None` if there is none.
    #[inline(always)]
    pub(crate) fn take_completed_request(&mut self, key: SlotKey) -> Option<CompletedRequest> {
        self.operations.take_with(key, |operation| {
            let comm = operation.comm();
            let OpState::Completed(status) = &mut operation.state else { return None };
            // The status is all that a completed operation holds.
            let status = std::mem::replace(status, Status::empty());
            Some(CompletedRequest { status, comm, is_persistent: false })
        })
    }

    /// Passes the status of a request's operation to `show` if it has completed without an error, and removes it; returns whether
    /// it has.
    #[inline(always)]
    pub(crate) fn take_success(&mut self, key: SlotKey, show: impl FnOnce(&Status)) -> bool {
        let shown = self.operations.take_with(key, |operation| match &operation.state {
            // A successful status owns no memory.
            OpState::Completed(status) if status.error.is_none() => {
                show(status);
                Some(())
            }
            _ => None,
        });
        shown.is_some()
    }

    /// Sets the communicator of an operation.
    #[inline]
    pub(crate) fn set_comm(&mut self, key: SlotKey, comm: u64) {
        if let Some(operation) = self.operations.get_mut(key) {
            operation.set_comm(comm);
        }
    }

    /// The communicator of an operation.
    pub(crate) fn comm(&mut self, key: SlotKey) -> Option<u64> {
        self.operations.get_mut(key)?.comm()
    }

    /// Whether a communicator has an operation in progress.
    pub(crate) fn has_active_operation(&self, comm: u64) -> bool {
        let is_of = |operation: &Operation| operation.comm() == Some(comm);
        self.operations
            .iter()
            .any(|(_, operation)| is_of(operation) && !matches!(operation.state, OpState::Completed(_)))
    }

    /// Whether the operation exists.
    #[inline]
    pub(crate) fn contains(&mut self, key: SlotKey) -> bool {
        self.operations.get_mut(key).is_some()
    }

    /// The operation at an index of the table.
    pub(crate) fn key_at(&self, place: u32) -> Option<SlotKey> {
        self.operations.key_at(place)
    }

    /// Whether an operation has completed.
    #[inline]
    pub(crate) fn is_complete(&mut self, key: SlotKey) -> bool {
        self.operations.get_mut(key).is_none_or(|operation| matches!(operation.state, OpState::Completed(_)))
    }

    /// Returns the status of a completed operation, and keeps it.
    pub(crate) fn peek(&mut self, key: SlotKey) -> Option<Status> {
        match self.operations.get_mut(key) {
            Some(Operation { state: OpState::Completed(status), .. }) => Some(status.clone()),
            Some(_) => None,
            None => Some(Status::empty()),
        }
    }

    /// Detaches an operation: no caller will ask for its status.
    pub(crate) fn free(&mut self, key: SlotKey) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        operation.is_detached = true;
        if let OpState::Completed(_) = operation.state {
            self.operations.remove(key);
        }
    }

    /// Whether the peers have received, or can fetch without this process, all that it has sent.
    pub(crate) fn is_drained(&self) -> bool {
        let sends = |(key, operation): (SlotKey, &Operation)| {
            matches!(operation.state, OpState::Send { .. }) && !self.abandoned.contains(&key)
        };
        let portals = self.portals.as_deref();
        portals.is_none_or(Portals::is_drained)
            && self.transport.is_drained()
            && !self.operations.iter().any(sends)
    }
}
