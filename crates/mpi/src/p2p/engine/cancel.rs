//! Cancelling: an unmatched receive completes immediately, and a send when its receiver has returned the message (MPI 5.0,
//! section 3.8.4). Operations that have matched complete normally, as do operations without matching.

use host::SlotKey;

use super::Engine;
use crate::p2p::operation::{MatchReport, OpState, UnexpectedBody};
use crate::p2p::wire::Message;
use crate::peers::connection::Payload;
use crate::status::Status;

impl Engine {
    /// Cancels an operation, if possible; otherwise it completes normally.
    pub(crate) fn cancel(&mut self, key: SlotKey) {
        let is_cancelled = match self.operations.get_mut(key).map(|operation| &operation.state) {
            Some(OpState::Receive(_) | OpState::PlainReceive(_)) => self.matching.cancel(&key),
            Some(OpState::Send { to, awaits_fin: true, .. }) if *to == self.rank => {
                self.withdraw_own_message(key)
            }
            Some(OpState::Send { to, awaits_fin: true, .. }) => {
                let to = *to;
                return self.request_cancel(to, key);
            }
            Some(OpState::Portals(name)) => {
                let name = *name;
                self.portals.as_deref_mut().is_some_and(|portals| portals.cancel(name))
            }
            _ => false,
        };
        if is_cancelled {
            self.complete(key, cancelled());
        }
    }

    /// Removes a message from this process to itself; returns whether no receive had matched it.
    fn withdraw_own_message(&mut self, key: SlotKey) -> bool {
        let is_it = |body: &UnexpectedBody| match body {
            UnexpectedBody::Data { answer: Some(MatchReport::Own(of)), .. } => *of == key,
            _ => false,
        };
        self.matching.remove_unexpected(self.rank, is_it).is_some()
    }

    /// Asks the receiver of a message to drop it.
    fn request_cancel(&mut self, to: u32, key: SlotKey) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        if !std::mem::replace(&mut operation.cancel_requested, true) {
            // A send to a lost process is failed by the loss.
            drop(self.transport.send(to, Message::CancelReq { id: key.number() }, Payload::None, None));
        }
    }

    /// A peer cancels a message. If a receive has matched it, the peer gets the FIN of the match instead.
    pub(super) fn handle_cancel_req(&mut self, to: u32, id: u64) {
        let is_it = |body: &UnexpectedBody| match body {
            UnexpectedBody::Data { answer: Some(MatchReport::Peer(of)), .. } => *of == id,
            UnexpectedBody::Rts(rts) => rts.id == id,
            _ => false,
        };
        if self.matching.remove_unexpected(to, is_it).is_none() {
            return;
        }
        // A lost peer needs no reply.
        drop(self.transport.send(to, Message::CancelRsp { id }, Payload::None, None));
    }

    /// A peer has dropped a message; counts only if this process asked for it.
    pub(super) fn handle_cancel_rsp(&mut self, from: u32, key: SlotKey) {
        let is_asked = self.operations.get_mut(key).is_some_and(|operation| operation.cancel_requested);
        if is_asked && self.accepts_answer_of(key, from) {
            self.complete(key, cancelled());
        }
    }
}

fn cancelled() -> Status {
    Status { cancelled: true, ..Status::empty() }
}
