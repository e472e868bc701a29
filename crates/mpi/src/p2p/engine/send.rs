//! Sends: which protocol carries a message.

use std::borrow::Cow;

use host::Step;

use super::{Engine, Started};
use crate::error::Result;
use crate::memory::{Buffer, Piece};
use crate::p2p::matching::Envelope;
use crate::p2p::operation::{ArrivedData, MatchReport, OpState, Operation, UnexpectedBody};
use crate::p2p::proto::{Conditions, Proto};
use crate::p2p::wire::MatchKey;
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

/// How a send completes.
#[derive(Clone, Copy, Default)]
struct SendTraits {
    /// It completes only when a receive has matched it.
    awaits_fin: bool,
    /// The program waits for it in a blocking call.
    blocks: bool,
}

impl Engine {
    /// Starts a send.
    ///
    /// # Errors
    /// The process is lost; [`crate::Class::BUFFER`] without enough space for a buffered send.
    pub(crate) fn send(
        &mut self,
        to: u32,
        match_key: MatchKey,
        buffer: &Buffer,
        mode: Mode,
    ) -> Result<Started> {
        self.start_send(to, match_key, buffer, (mode, false))
    }

    /// Starts a send. With `blocks` the caller waits for its completion next, so that this process makes progress and answers the
    /// receiver.
    ///
    /// # Errors
    /// As [`Engine::send`].
    pub(crate) fn start_send(
        &mut self,
        to: u32,
        match_key: MatchKey,
        buffer: &Buffer,
        (mode, blocks): (Mode, bool),
    ) -> Result<Started> {
        self.host.charge_step(Step::Call, 1);
        if let Some(piece) = buffer.piece().filter(|_| mode.is_plain())
            && self.try_send(to, match_key, piece)
        {
            return Ok(Started::Completed(Status::empty()));
        }
        self.send_slow_path(to, match_key, buffer, (mode, blocks))
    }

    /// Sends a short message, if it can be stored immediately into the receiver's memory. Returns whether it was; if not, nothing
    /// has happened.
    #[inline]
    pub(crate) fn try_send(&mut self, to: u32, match_key: MatchKey, piece: Piece) -> bool {
        match self.portals(match_key.context) {
            Some(portals) => portals.try_send(to, match_key, piece),
            None => self.transport.send_piece(to, match_key, piece),
        }
    }

    /// Starts a send that the fast path could not complete.
    ///
    /// # Errors
    /// As [`Engine::send`].
    fn send_slow_path(
        &mut self,
        to: u32,
        match_key: MatchKey,
        buffer: &Buffer,
        (mode, blocks): (Mode, bool),
    ) -> Result<Started> {
        if mode == Mode::Buffered {
            return self.send_buffered(to, match_key, buffer);
        }
        let traits = SendTraits { awaits_fin: mode == Mode::Synchronous, blocks };
        self.dispatch(to, match_key, Cow::Borrowed(buffer), None, traits)
    }

    /// Sends the program's data, or a copy of them, by the protocol from the endpoint's table.
    fn dispatch(
        &mut self,
        to: u32,
        match_key: MatchKey,
        buffer: Cow<'_, Buffer>,
        copy: Option<Vec<u8>>,
        SendTraits { awaits_fin, blocks }: SendTraits,
    ) -> Result<Started> {
        if let Some(portals) = self.portals(match_key.context) {
            let copy = copy.map(|bytes| Buffer::from_bytes(&bytes)).transpose()?;
            let started = portals.send(to, match_key, copy.as_ref().unwrap_or(&buffer), awaits_fin);
            return self.record_portals_start(started);
        }
        if to == self.rank {
            return self.send_to_self(match_key, copy.unwrap_or_else(|| buffer.to_vec()), awaits_fin);
        }
        let in_place = copy.is_none() && !buffer.is_noncontiguous();
        let has = Conditions::new(in_place, !awaits_fin, blocks);
        match self.transport.protocol(to, buffer.len(), has)? {
            Proto::EagerFrag => self.store_fragments(to, match_key, &buffer),
            Proto::EagerDirect => self.send_direct(to, match_key, &buffer),
            // The receiver chooses between the two.
            Proto::RndvGet | Proto::RndvShm => self.send_rndv_get(to, match_key, &buffer, copy),
            Proto::Own
            | Proto::EagerLine
            | Proto::EagerRing
            | Proto::EagerWrite
            | Proto::EagerInline
            | Proto::EagerCopy => self.send_eager(to, match_key, (buffer, copy), awaits_fin),
        }
    }

    fn send_to_self(&mut self, match_key: MatchKey, bytes: Vec<u8>, awaits_fin: bool) -> Result<Started> {
        let envelope = Envelope { source: self.rank, match_key };
        self.self_traffic.count(Proto::Own, bytes.len());
        self.host.charge_copy(bytes.len() as u64);
        if let Some(key) = self.matching.match_arrival(&envelope) {
            self.complete_receive(key, &envelope, ArrivedData::Bytes(&bytes));
            return Ok(Started::Completed(Status::empty()));
        }
        let key = awaits_fin.then(|| {
            self.operations.insert(Operation::new(OpState::Send {
                to: self.rank,
                awaits_fin: true,
                long_send: None,
            }))
        });
        self.add_unexpected(envelope, UnexpectedBody::Data { bytes, answer: key.map(MatchReport::Own) });
        Ok(key.map_or(Started::Completed(Status::empty()), Started::InProgress))
    }

    fn send_buffered(&mut self, to: u32, match_key: MatchKey, buffer: &Buffer) -> Result<Started> {
        let share = self.spaces.compute_share(match_key.context, buffer.len())?;
        let copy = buffer.to_vec();
        self.host.charge_copy(buffer.len());
        if let Started::InProgress(key) =
            self.dispatch(to, match_key, Cow::Borrowed(buffer), Some(copy), SendTraits::default())?
            && let Some(operation) = self.operations.get_mut(key)
        {
            (operation.is_detached, operation.buffered) = (true, Some(Box::new(share)));
            self.spaces.mark_used(share);
        }
        Ok(Started::Completed(Status::empty()))
    }
}
