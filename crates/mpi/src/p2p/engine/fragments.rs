//! Long messages that are stored in fragments in the receiver's ring: the first with their header, the others behind it.

use std::borrow::Cow;

use host::Step;

use super::{Engine, Started};
use crate::error::Result;
use crate::memory::{Buffer, Piece};
use crate::p2p::kept::RestSink;
use crate::p2p::operation::{ArrivedData, OpState, Operation};
use crate::p2p::wire::{MatchKey, Message};
use crate::peers::connection::{Payload, Received};
use crate::peers::transport::MessagePlace;
use crate::status::Status;

impl Engine {
    /// Stores contiguous data of the program in fragments. The receiver copies one while this process stores the next. Fragments
    /// without room wait. No other fragmented message to the same process comes between.
    pub(super) fn store_fragments(
        &mut self,
        to: u32,
        match_key: MatchKey,
        buffer: &Buffer,
    ) -> Result<Started> {
        self.host.charge_step(Step::Request, 1);
        let all = buffer.piece().unwrap_or(Piece::empty());
        let fragment = self.transport.fragment_to(to, all.len())?;
        let (mut message, mut left) = (Message::Begin { match_key, length: all.len() as u64 }, all);
        while left.len() > 0 {
            let [part, rest] = left.split(fragment);
            if !self.transport.send_now(to, &message, &part)? {
                break;
            }
            (message, left) = (Message::Frag, rest);
        }
        if left.len() == 0 {
            return Ok(Started::Completed(Status::empty()));
        }
        let state = OpState::Send { to, awaits_fin: false, long_send: None };
        let key = self.operations.insert(Operation::new(state));
        self.start_or_remove(key, |engine| {
            while left.len() > 0 {
                let [part, rest] = left.split(fragment);
                // The program's memory stays as it is until the last fragment has left.
                let payload = Payload::User(Cow::Owned(part.buffer()));
                engine.transport.send(to, message, payload, (rest.len() == 0).then_some(key))?;
                (message, left) = (Message::Frag, rest);
            }
            Ok(())
        })
    }

    /// The next fragment of the message that a process has begun to send has arrived.
    pub(super) fn handle_fragment(&mut self, from: u32, what: &Received, place: MessagePlace) {
        let len = what.len as u64;
        let Some(rest) = self.rests.get_mut(&from).filter(|rest| len <= rest.left) else {
            return self.refuse_rest(from);
        };
        let (sink, at) = (rest.sink, rest.at as usize);
        (rest.at, rest.left) = (rest.at + len, rest.left - len);
        let is_last = rest.left == 0;
        self.host.charge_copy(len);
        let (buf, range) = self.transport.payload(what, place);
        let data = ArrivedData::Slot(buf, range.start, range.len());
        let stored = match sink {
            RestSink::Receive(key) => self.operations.get_mut(key).map_or(Ok(()), |op| op.store_at(at, data)),
            RestSink::Kept(key) => self.kept.store_at(key, at, data),
        };
        if stored.is_err() {
            return self.refuse_rest(from);
        }
        if is_last {
            self.rests.remove(&from);
            self.finish_rest(sink);
        }
    }

    /// Gives up a process that has sent a fragment that no process of this version sends.
    #[cold]
    fn refuse_rest(&mut self, from: u32) {
        self.rests.remove(&from);
        self.transport.refuse(from);
    }
}
