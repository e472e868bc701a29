//! Sends: short messages leave at once, long ones tell their receiver where they lie, or go in parts.

use std::borrow::Cow;

use host::{SlotKey, Step};
use verbs::{Buf, RemoteAddr, Sge};

use super::{Begun, Engine};
use crate::error::Result;
use crate::memory::{Buffer, Piece};
use crate::p2p::matching::Envelope;
use crate::p2p::operation::{Answer, Body, Brought, LongSend, Operation, PutSend, Work};
use crate::p2p::wire::{Exposed, Label, Message};
use crate::peers::connection::Payload;
use crate::status::Status;
use crate::tool::Carrier;

/// MPI's modes of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is complete when the buffer may be used again (`MPI_Send`).
    #[default]
    Standard,
    /// It is complete at once, by a copy in the space attached for that (`MPI_Bsend`).
    Buffered,
    /// It is complete when a receive has matched it (`MPI_Ssend`).
    Synchronous,
    /// The receive is posted already, says the program (`MPI_Rsend`).
    Ready,
}

impl Mode {
    /// Whether nothing is to be done but to send.
    #[inline]
    pub fn is_plain(self) -> bool {
        matches!(self, Self::Standard | Self::Ready)
    }
}

impl Engine {
    /// Begins a send.
    ///
    /// # Errors
    /// The process is lost; [`crate::Class::BUFFER`] without enough space for a buffered send.
    pub(crate) fn send(&mut self, to: u32, label: Label, buffer: &Buffer, mode: Mode) -> Result<Begun> {
        self.send_for(to, label, buffer, (mode, false))
    }

    /// Begins a send, for whose end the caller may wait at once: then this process answers the receiver.
    ///
    /// # Errors
    /// As [`Engine::send`].
    pub(crate) fn send_for(
        &mut self,
        to: u32,
        label: Label,
        buffer: &Buffer,
        (mode, waits): (Mode, bool),
    ) -> Result<Begun> {
        self.host.charge_step(Step::Call, 1);
        if let Some(piece) = buffer.piece().filter(|_| mode.is_plain())
            && self.send_piece(to, label, piece)
        {
            return Ok(Begun::Over(Status::empty()));
        }
        self.send_on(to, label, buffer, (mode, waits))
    }

    /// Sends a short message, if it can be stored at once in the receiver's memory. Whether it has left; nothing has happened otherwise.
    #[inline]
    pub(crate) fn send_piece(&mut self, to: u32, label: Label, piece: Piece) -> bool {
        match self.portals(label.context) {
            Some(portals) => portals.send_piece(to, label, piece),
            None => self.transport.send_piece(to, label, piece),
        }
    }

    /// Begins a send that does not leave at once.
    ///
    /// # Errors
    /// As [`Engine::send`].
    fn send_on(
        &mut self,
        to: u32,
        label: Label,
        buffer: &Buffer,
        (mode, waits): (Mode, bool),
    ) -> Result<Begun> {
        if mode == Mode::Buffered {
            return self.send_buffered(to, label, buffer);
        }
        self.dispatch(to, label, Cow::Borrowed(buffer), None, (mode == Mode::Synchronous, waits))
    }

    /// Sends data of the program's, or a copy of them.
    fn dispatch(
        &mut self,
        to: u32,
        label: Label,
        buffer: Cow<'_, Buffer>,
        copy: Option<Vec<u8>>,
        (answered, waits): (bool, bool),
    ) -> Result<Begun> {
        if let Some(portals) = self.portals(label.context) {
            let copy = copy.map(|bytes| Buffer::own(&bytes)).transpose()?;
            let started = portals.send(to, label, copy.as_ref().unwrap_or(&buffer), answered);
            return self.begun_by_portals(started);
        }
        let len = buffer.len();
        if to == self.rank {
            return self.send_to_self(label, copy.unwrap_or_else(|| buffer.to_vec()), answered);
        }
        if len > self.transport.payload_max(to)? as u64 {
            if !answered
                && copy.is_none()
                && !buffer.is_scattered()
                && let Some(cut) = self.transport.cut_to(to)?
                && len <= cut.whole
            {
                return self.send_in_parts(to, label, &buffer, cut.part);
            }
            return self.send_long(to, label, &buffer, (copy, waits));
        }
        let payload = match copy {
            Some(bytes) => Payload::Own(bytes),
            None => Payload::User(buffer),
        };
        if !answered && self.transport.send_now(to, &Message::Eager { label, answer: None }, &payload)? {
            return Ok(Begun::Over(Status::empty()));
        }
        self.host.charge_step(Step::Request, 1);
        let key = self.operations.insert(Operation::new(Work::Send { to, answered, held: None }));
        let message = Message::Eager { label, answer: answered.then(|| key.number()) };
        self.started(key, |engine| {
            if answered && engine.transport.send_now(to, &message, &payload)? {
                return Ok(());
            }
            // A peer that answers what it has not got must not make the program's memory free.
            let payload = match payload {
                Payload::User(buffer) if answered => Payload::Own(buffer.to_vec()),
                Payload::User(buffer) => Payload::User(Cow::Owned(buffer.into_owned())),
                Payload::Own(bytes) => Payload::Own(bytes),
                Payload::Lent { bytes, from, key } => Payload::Lent { bytes, from, key },
                Payload::None => Payload::None,
            };
            engine.transport.send(to, message, payload, (!answered).then_some(key))
        })
    }

    /// Sends data in parts, from where the program has them.
    fn send_in_parts(&mut self, to: u32, label: Label, buffer: &Buffer, part: usize) -> Result<Begun> {
        self.host.charge_step(Step::Request, 1);
        let bytes = buffer.piece().unwrap_or(Piece::nothing());
        let (address, len) = bytes.place();
        let reach = self.transport.reach(to, address as usize, len as usize, false)?;
        let whole = reach.sge(address, len as u32);
        let held = LongSend { reach, staging: None, buffer: buffer.clone(), helping: None, writing: None };
        let work = Work::Send { to, answered: false, held: Some(Box::new(held)) };
        let key = self.operations.insert(Operation::new(work));
        let at = Exposed { addr: 0, rkey: 0, length: len };
        let message = Message::Rts { label, id: key.number(), at, frag_bytes: len as u32, put: false };
        let begun =
            self.started(key, |engine| engine.send_parts(to, message, (bytes, whole), part, Some(key)))?;
        self.lent += 1;
        Ok(begun)
    }

    /// Sends bytes of the program's, reached as `whole`, the first part with a message and the others behind it. When the last one has left, `key` comes out
    /// as [`Accessed`](crate::peers::transport::Event::Accessed).
    fn send_parts(
        &mut self,
        to: u32,
        first: Message,
        (bytes, whole): (Piece, Sge),
        part: usize,
        key: Option<SlotKey>,
    ) -> Result<()> {
        let (Message::Rts { id, .. } | Message::Frag { id }) = first else { return Ok(()) };
        let (mut message, mut left) = (first, bytes);
        while left.len() > 0 {
            let [bytes, others] = left.split(part);
            let (addr, len) = bytes.place();
            let from = Sge { addr, length: len as u32, ..whole };
            let payload = Payload::Lent { bytes, from, key: key.filter(|_| others.len() == 0) };
            self.transport.send(to, message, payload, None)?;
            (message, left) = (Message::Frag { id }, others);
        }
        Ok(())
    }

    /// Tells the receiver where the data are. A copy, or what lies in pieces, lies in memory of the operation's own.
    ///
    /// Who waits writes the data where the receiver wants them, on devices that send from all memory, and the first part goes at once, so
    /// that something is on its way while the two agree on the rest: to read them would take another message. Who goes on need not be
    /// asked for anything.
    fn send_long(
        &mut self,
        to: u32,
        label: Label,
        buffer: &Buffer,
        (copy, waits): (Option<Vec<u8>>, bool),
    ) -> Result<Begun> {
        let len = buffer.len() as usize;
        let (addr, staging) = self.one_piece_of(buffer, copy)?;
        self.host.charge_step(Step::Request, 1);
        let memory = if staging.is_none() { buffer.memory() } else { None };
        let cut = self.transport.cut_to(to)?.filter(|_| waits && staging.is_none());
        let put = cut.is_some();
        let reach = self.transport.reach_in(to, (addr, len), memory, !put)?;
        let remote = if put { RemoteAddr::default() } else { reach.remote(addr as u64) };
        let at = Exposed { addr: remote.addr, rkey: remote.rkey, length: len as u64 };
        // Never all of it goes at once: who gets the rest answers.
        let part = cut.map_or(0, |cut| cut.part.min(len / 2));
        let whole = buffer.piece().filter(|_| put).unwrap_or(Piece::nothing());
        let [first, rest] = whole.split(part);
        let writing = put.then_some(PutSend { rest, under_way: 0 });
        let begin = reach.sge(addr as u64, first.len() as u32);
        let key = self.operations.insert(Operation::new(Work::Send {
            to,
            answered: true,
            held: Some(Box::new(LongSend { reach, staging, buffer: buffer.clone(), helping: None, writing })),
        }));
        let id = key.number();
        let message = Message::Rts { label, id, at, frag_bytes: first.len() as u32, put };
        let begun = self.started(key, |engine| {
            engine.transport.send(to, message, Payload::None, None)?;
            engine.send_parts(to, Message::Frag { id }, (first, begin), part, None)
        })?;
        self.lent += 1;
        Ok(begun)
    }

    /// Where a buffer's bytes lie in one piece: where the program has them, or in memory that is made for that.
    fn one_piece_of(&self, buffer: &Buffer, copy: Option<Vec<u8>>) -> Result<(usize, Option<Buf>)> {
        if let (Some((addr, _)), None) = (buffer.one_piece(), &copy) {
            return Ok((addr, None));
        }
        let staging = Buf::alloc(buffer.len() as usize)?;
        match copy {
            Some(bytes) => staging.write(0, &bytes)?,
            None => buffer.load_to(&staging, 0)?,
        }
        self.host.charge_copy(buffer.len());
        Ok((staging.addr() as usize, Some(staging)))
    }

    fn send_to_self(&mut self, label: Label, bytes: Vec<u8>, answered: bool) -> Result<Begun> {
        let envelope = Envelope { source: self.rank, label };
        self.own.count(Carrier::Own, bytes.len());
        self.host.charge_copy(bytes.len() as u64);
        if let Some(key) = self.matching.arrive(&envelope) {
            self.take_in(key, &envelope, Brought::Bytes(&bytes));
            return Ok(Begun::Over(Status::empty()));
        }
        let key = answered.then(|| {
            self.operations.insert(Operation::new(Work::Send { to: self.rank, answered: true, held: None }))
        });
        self.keep(envelope, Body::Here { bytes, answer: key.map(Answer::Own) });
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
