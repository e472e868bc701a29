//! Eager messages: the data leave with the message.

use std::borrow::Cow;

use host::Step;

use super::{Begun, Engine};
use crate::error::Result;
use crate::p2p::operation::{OpState, Operation};
use crate::p2p::wire::{Label, Message};
use crate::peers::connection::Payload;
use crate::status::Status;

impl Engine {
    /// Sends a message with its data. With `answered` the send completes when a receive has matched it.
    pub(super) fn send_eager(
        &mut self,
        to: u32,
        label: Label,
        payload: Payload<'_>,
        answered: bool,
    ) -> Result<Begun> {
        if !answered && self.transport.send_now(to, &Message::Eager { label, answer: None }, &payload)? {
            return Ok(Begun::Over(Status::empty()));
        }
        self.host.charge_step(Step::Request, 1);
        let key = self.operations.insert(Operation::new(OpState::Send { to, answered, held: None }));
        let message = Message::Eager { label, answer: answered.then(|| key.number()) };
        self.started(key, |engine| {
            if answered && engine.transport.send_now(to, &message, &payload)? {
                return Ok(());
            }
            // The payload is copied, so that a peer that sends a FIN too early cannot release the program's memory.
            let payload = match payload {
                Payload::User(buffer) if answered => Payload::Own(buffer.to_vec()),
                Payload::User(buffer) => Payload::User(Cow::Owned(buffer.into_owned())),
                Payload::Piece(piece) if answered => Payload::Own(piece.buffer().to_vec()),
                Payload::Piece(piece) => Payload::Piece(piece),
                Payload::Own(bytes) => Payload::Own(bytes),
                Payload::Zcopy { bytes, from, key } => Payload::Zcopy { bytes, from, key },
                Payload::None => Payload::None,
            };
            engine.transport.send(to, message, payload, (!answered).then_some(key))
        })
    }
}
