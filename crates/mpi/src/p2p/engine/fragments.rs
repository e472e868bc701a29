//! Messages in fragments, sent from the program's memory without a CTS.

use std::borrow::Cow;

use host::Step;
use verbs::Sge;

use super::{Engine, Started};
use crate::error::Result;
use crate::memory::{Buffer, Piece};
use crate::p2p::operation::{ArrivedData, LongSend, OpState, Operation};
use crate::p2p::proto::stored_fragment;
use crate::p2p::wire::{MatchKey, Message, RemoteMemory};
use crate::peers::connection::{Payload, Received};
use crate::peers::transport::MessagePlace;
use crate::status::Status;
use host::SlotKey;

impl Engine {
    /// Sends data in fragments.
    pub(super) fn send_fragments(
        &mut self,
        to: u32,
        match_key: MatchKey,
        buffer: &Buffer,
    ) -> Result<Started> {
        self.host.charge_step(Step::Request, 1);
        let bytes = buffer.piece().unwrap_or(Piece::empty());
        let (address, len) = bytes.addr_len();
        let registration = self.transport.reach(to, address as usize, len as usize, false)?;
        let whole = registration.sge(address, len as u32);
        let state = OpState::Send {
            to,
            awaits_fin: false,
            long_send: Some(Box::new(LongSend::new(registration, buffer.clone(), None))),
        };
        let key = self.operations.insert(Operation::new(state));
        let at = RemoteMemory { addr: 0, rkey: 0, length: len };
        let message = Message::Rts { match_key, id: key.number(), at, frag_bytes: len as u32, put: false };
        let started = self
            .start_or_remove(key, |engine| engine.post_fragments(to, message, (bytes, whole), Some(key)))?;
        self.long_sends += 1;
        Ok(started)
    }

    /// Sends bytes of the program, registered as `whole`: the first fragment with the message `first`, the others after it. When
    /// the last one has been sent, `key` is reported as [`Accessed`](crate::peers::transport::Event::Accessed).
    pub(super) fn post_fragments(
        &mut self,
        to: u32,
        first: Message,
        (bytes, whole): (Piece, Sge),
        key: Option<SlotKey>,
    ) -> Result<()> {
        let (Message::Rts { id, .. } | Message::Frag { id }) = first else { return Ok(()) };
        let fragment = self.transport.fragment_to(to)?;
        let (mut message, mut left) = (first, bytes);
        while left.len() > 0 {
            let [bytes, others] = left.split(fragment);
            let (addr, len) = bytes.addr_len();
            let from = Sge { addr, length: len as u32, ..whole };
            let payload = Payload::Zcopy { bytes, from, key: key.filter(|_| others.len() == 0) };
            self.transport.send(to, message, payload, None)?;
            (message, left) = (Message::Frag { id }, others);
        }
        Ok(())
    }

    /// Stores data in fragments in the ring of the receiver, which copies one while this process stores the next. Fragments without
    /// room wait.
    pub(super) fn store_fragments(
        &mut self,
        to: u32,
        match_key: MatchKey,
        buffer: &Buffer,
    ) -> Result<Started> {
        self.host.charge_step(Step::Request, 1);
        let all = buffer.piece().unwrap_or(Piece::empty());
        let fragment = self.transport.fragment_to(to)?.min(stored_fragment(all.len()));
        let key =
            self.operations.insert(Operation::new(OpState::Send { to, awaits_fin: false, long_send: None }));
        let (id, length) = (key.number(), all.len() as u64);
        let at = RemoteMemory { addr: 0, rkey: 0, length };
        let mut message = Message::Rts { match_key, id, at, frag_bytes: length as u32, put: false };
        let (mut left, mut waits) = (all, false);
        let started = self.start_or_remove(key, |engine| {
            while left.len() > 0 {
                let [part, rest] = left.split(fragment);
                if waits || !engine.transport.send_now(to, &message, &part)? {
                    waits = true;
                    let is_last = rest.len() == 0;
                    // The program's memory stays as it is until the last fragment has left.
                    let part = Payload::User(Cow::Owned(part.buffer()));
                    engine.transport.send(to, message, part, is_last.then_some(key))?;
                }
                (message, left) = (Message::Frag { id }, rest);
            }
            Ok(())
        })?;
        if waits {
            return Ok(started);
        }
        self.operations.remove(key);
        Ok(Started::Completed(Status::empty()))
    }

    /// A fragment of a message has arrived.
    pub(super) fn handle_fragment(&mut self, from: u32, id: u64, what: &Received, place: MessagePlace) {
        let (buf, range) = self.transport.payload(what, place);
        let data = ArrivedData::Slot(buf, range.start, range.len());
        self.host.charge_copy(range.len() as u64);
        if let Some(key) = self.fragments.store(from, id, data)
            && let Some(operation) = self.operations.get_mut(key)
        {
            let is_there = operation.store_fragment(data);
            self.fragment_stored(key, is_there);
        }
    }

    /// Handles a fragment that a receive has stored; `is_there` is true if the receive now has all data.
    pub(super) fn fragment_stored(&mut self, key: SlotKey, is_there: verbs::Result<bool>) {
        match is_there {
            Ok(false) => {}
            Ok(true) => self.finish_long_receive(key),
            Err(error) => self.complete(key, Status::failed(error.into())),
        }
    }
}
