//! Eager messages: the data leave with the message.

use std::borrow::Cow;

use host::Step;

use super::{Engine, Started};
use crate::error::Result;
use crate::memory::Buffer;
use crate::p2p::operation::{OpState, Operation};
use crate::p2p::wire::{MatchKey, Message};
use crate::peers::connection::Payload;
use crate::status::Status;

impl Engine {
    /// Sends the program's data, or a copy, with the message. With `awaits_fin` the send completes when a receive has matched it.
    pub(super) fn send_eager(
        &mut self,
        to: u32,
        match_key: MatchKey,
        (buffer, copy): (Cow<'_, Buffer>, Option<Vec<u8>>),
        awaits_fin: bool,
    ) -> Result<Started> {
        let message = Message::Eager { match_key, answer: None };
        if !awaits_fin && self.send_eager_now(to, &message, &buffer, copy.as_deref())? {
            return Ok(Started::Completed(Status::empty()));
        }
        self.host.charge_step(Step::Request, 1);
        let key = self.operations.insert(Operation::new(OpState::Send { to, awaits_fin, long_send: None }));
        let message = Message::Eager { match_key, answer: awaits_fin.then(|| key.number()) };
        self.start_or_remove(key, |engine| {
            if awaits_fin && engine.send_eager_now(to, &message, &buffer, copy.as_deref())? {
                return Ok(());
            }
            let payload = match copy {
                Some(bytes) => Payload::Own(bytes),
                // The payload is copied, so that a peer that sends a FIN too early cannot release the program's memory.
                None if awaits_fin => Payload::Own(buffer.to_vec()),
                None => Payload::User(Cow::Owned(buffer.into_owned())),
            };
            engine.transport.send(to, message, payload, (!awaits_fin).then_some(key))
        })
    }

    /// Sends a message with its data, if it can be sent immediately; returns whether it was.
    fn send_eager_now(
        &mut self,
        to: u32,
        message: &Message,
        buffer: &Buffer,
        copy: Option<&[u8]>,
    ) -> Result<bool> {
        match copy {
            Some(bytes) => self.transport.send_now(to, message, &bytes),
            None => self.transport.send_now(to, message, &Payload::User(Cow::Borrowed(buffer))),
        }
    }
}
