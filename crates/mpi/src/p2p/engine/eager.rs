//! Eager messages: the data leave with the message.

use std::borrow::Cow;

use host::Step;

use super::{Engine, Started};
use crate::error::Result;
use crate::p2p::operation::{OpState, Operation};
use crate::p2p::wire::{MatchKey, Message};
use crate::peers::connection::Payload;
use crate::status::Status;

impl Engine {
    /// Sends a message with its data. With `awaits_fin` the send completes when a receive has matched it.
    pub(super) fn send_eager(
        &mut self,
        to: u32,
        match_key: MatchKey,
        payload: Payload<'_>,
        awaits_fin: bool,
    ) -> Result<Started> {
        if !awaits_fin
            && self.transport.send_now(to, &Message::Eager { match_key, answer: None }, &payload)?
        {
            return Ok(Started::Completed(Status::empty()));
        }
        self.host.charge_step(Step::Request, 1);
        let key = self.operations.insert(Operation::new(OpState::Send { to, awaits_fin, long_send: None }));
        let message = Message::Eager { match_key, answer: awaits_fin.then(|| key.number()) };
        self.start_or_remove(key, |engine| {
            if awaits_fin && engine.transport.send_now(to, &message, &payload)? {
                return Ok(());
            }
            // The payload is copied, so that a peer that sends a FIN too early cannot release the program's memory.
            let payload = match payload {
                Payload::User(buffer) if awaits_fin => Payload::Own(buffer.to_vec()),
                Payload::User(buffer) => Payload::User(Cow::Owned(buffer.into_owned())),
                Payload::Piece(piece) if awaits_fin => Payload::Own(piece.buffer().to_vec()),
                Payload::Piece(piece) => Payload::Piece(piece),
                Payload::Own(bytes) => Payload::Own(bytes),
                Payload::Zcopy { bytes, from, key } => Payload::Zcopy { bytes, from, key },
                Payload::None => Payload::None,
            };
            engine.transport.send(to, message, payload, (!awaits_fin).then_some(key))
        })
    }
}
