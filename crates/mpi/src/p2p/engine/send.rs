//! Sends: which protocol carries a message.

use std::borrow::Cow;

use host::Step;

use super::{Begun, Engine};
use crate::error::Result;
use crate::memory::{Buffer, Piece};
use crate::p2p::matching::Envelope;
use crate::p2p::operation::{ArrivedData, MatchReport, OpState, Operation, UnexpectedBody};
use crate::p2p::proto::{Conditions, Proto};
use crate::p2p::wire::Label;
use crate::peers::connection::Payload;
use crate::status::Status;

/// MPI's modes of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Completes when the buffer may be reused (`MPI_Send`).
    #[default]
    Standard,
    /// Completes immediately, by a copy into the space attached for that (`MPI_Bsend`).
    Buffered,
    /// Completes when a receive has matched the message (`MPI_Ssend`).
    Synchronous,
    /// The program asserts that the receive is posted already (`MPI_Rsend`).
    Ready,
}

impl Mode {
    /// Whether the mode needs neither a copy nor an answer.
    #[inline]
    pub fn is_plain(self) -> bool {
        matches!(self, Self::Standard | Self::Ready)
    }
}

impl Engine {
    /// Starts a send.
    ///
    /// # Errors
    /// The process is lost; [`crate::Class::BUFFER`] without enough space for a buffered send.
    pub(crate) fn send(&mut self, to: u32, label: Label, buffer: &Buffer, mode: Mode) -> Result<Begun> {
        self.send_for(to, label, buffer, (mode, false))
    }

    /// Starts a send. With `blocks` the caller waits for its completion next, so that this process makes progress and answers the
    /// receiver.
    ///
    /// # Errors
    /// As [`Engine::send`].
    pub(crate) fn send_for(
        &mut self,
        to: u32,
        label: Label,
        buffer: &Buffer,
        (mode, blocks): (Mode, bool),
    ) -> Result<Begun> {
        self.host.charge_step(Step::Call, 1);
        if let Some(piece) = buffer.piece().filter(|_| mode.is_plain())
            && self.send_piece(to, label, piece)
        {
            return Ok(Begun::Over(Status::empty()));
        }
        self.send_on(to, label, buffer, (mode, blocks))
    }

    /// Sends a short message, if it can be stored immediately into the receiver's memory. Returns whether it was; if not, nothing
    /// has happened.
    #[inline]
    pub(crate) fn send_piece(&mut self, to: u32, label: Label, piece: Piece) -> bool {
        match self.portals(label.context) {
            Some(portals) => portals.send_piece(to, label, piece),
            None => self.transport.send_piece(to, label, piece),
        }
    }

    /// Starts a send that the fast path could not complete.
    ///
    /// # Errors
    /// As [`Engine::send`].
    fn send_on(
        &mut self,
        to: u32,
        label: Label,
        buffer: &Buffer,
        (mode, blocks): (Mode, bool),
    ) -> Result<Begun> {
        if mode == Mode::Buffered {
            return self.send_buffered(to, label, buffer);
        }
        self.dispatch(to, label, Cow::Borrowed(buffer), None, (mode == Mode::Synchronous, blocks))
    }

    /// Sends the program's data, or a copy of them, by the protocol from the endpoint's table.
    fn dispatch(
        &mut self,
        to: u32,
        label: Label,
        buffer: Cow<'_, Buffer>,
        copy: Option<Vec<u8>>,
        (answered, blocks): (bool, bool),
    ) -> Result<Begun> {
        if let Some(portals) = self.portals(label.context) {
            let copy = copy.map(|bytes| Buffer::own(&bytes)).transpose()?;
            let started = portals.send(to, label, copy.as_ref().unwrap_or(&buffer), answered);
            return self.begun_by_portals(started);
        }
        if to == self.rank {
            return self.send_to_self(label, copy.unwrap_or_else(|| buffer.to_vec()), answered);
        }
        let in_place = copy.is_none() && !buffer.is_scattered();
        let has = Conditions::new(in_place, !answered, blocks);
        match self.transport.protocol(to, buffer.len(), has)? {
            Proto::EagerFrag => self.send_fragments(to, label, &buffer),
            Proto::RndvPut => self.send_rndv_put(to, label, &buffer),
            // The receiver chooses between the two.
            Proto::RndvGet | Proto::RndvShm => self.send_rndv_get(to, label, &buffer, copy),
            Proto::Own
            | Proto::EagerLine
            | Proto::EagerRing
            | Proto::EagerWrite
            | Proto::EagerInline
            | Proto::EagerCopy => {
                let payload = copy.map_or(Payload::User(buffer), Payload::Own);
                self.send_eager(to, label, payload, answered)
            }
        }
    }

    fn send_to_self(&mut self, label: Label, bytes: Vec<u8>, answered: bool) -> Result<Begun> {
        let envelope = Envelope { source: self.rank, label };
        self.self_traffic.count(Proto::Own, bytes.len());
        self.host.charge_copy(bytes.len() as u64);
        if let Some(key) = self.matching.arrive(&envelope) {
            self.complete_receive(key, &envelope, ArrivedData::Bytes(&bytes));
            return Ok(Begun::Over(Status::empty()));
        }
        let key = answered.then(|| {
            self.operations.insert(Operation::new(OpState::Send {
                to: self.rank,
                answered: true,
                held: None,
            }))
        });
        self.keep(envelope, UnexpectedBody::Data { bytes, answer: key.map(MatchReport::Own) });
        Ok(key.map_or(Begun::Over(Status::empty()), Begun::Under))
    }

    fn send_buffered(&mut self, to: u32, label: Label, buffer: &Buffer) -> Result<Begun> {
        let share = self.spaces.share(label.context, buffer.len())?;
        let copy = buffer.to_vec();
        self.host.charge_copy(buffer.len());
        if let Begun::Under(key) =
            self.dispatch(to, label, Cow::Borrowed(buffer), Some(copy), (false, false))?
            && let Some(operation) = self.operations.get_mut(key)
        {
            (operation.free, operation.buffered) = (true, Some(Box::new(share)));
            self.spaces.take(share);
        }
        Ok(Begun::Over(Status::empty()))
    }
}
