//! Long messages that are sent as one, from the program's memory. Their beginning arrives in a slot with the header, and this side
//! names memory for the rest: that of the matching receive, or memory that keeps the message until there is one.

use host::{SlotKey, Step};
use verbs::Buf;

use super::{Engine, Started};
use crate::error::{Error, Result};
use crate::memory::{Buffer, Piece};
use crate::p2p::kept::{Arrival, Match, RestSink};
use crate::p2p::matching::Envelope;
use crate::p2p::operation::{
    ArrivedData, LongSend, OpState, Operation, Receive, RestReceive, UnexpectedBody,
};
use crate::p2p::wire::{MatchKey, Message};
use crate::peers::connection::{Payload, Received};
use crate::peers::nic::DIRECT_MAX;
use crate::peers::transport::MessagePlace;
use crate::status::Status;

impl Engine {
    /// Sends contiguous data of the program with their header.
    pub(super) fn send_direct(&mut self, to: u32, match_key: MatchKey, buffer: &Buffer) -> Result<Started> {
        self.host.charge_step(Step::Request, 1);
        let bytes = buffer.piece().unwrap_or(Piece::empty());
        let (address, length) = bytes.addr_len();
        let registration = self.transport.reach(to, address as usize, length as usize, false)?;
        let from = registration.sge(address, length as u32);
        let long_send = Some(Box::new(LongSend::new(registration, buffer.clone(), None)));
        let state = OpState::Send { to, awaits_fin: false, long_send };
        let key = self.operations.insert(Operation::new(state));
        let payload = Payload::Zcopy { bytes, from, key: Some(key) };
        let message = Message::Direct { match_key, length };
        let started =
            self.start_or_remove(key, |engine| engine.transport.send(to, message, payload, None))?;
        self.long_sends += 1;
        Ok(started)
    }

    /// The beginning of a message has arrived: names memory for the rest.
    pub(super) fn handle_begun(&mut self, from: u32, what: &Received, place: MessagePlace) {
        let Message::Direct { match_key, length } = what.message else { return self.transport.refuse(from) };
        if length > DIRECT_MAX || length <= what.len as u64 {
            return self.transport.refuse(from);
        }
        self.host.charge_copy(what.len as u64);
        let envelope = Envelope { source: from, match_key };
        let receive = self.matching.match_arrival(&envelope);
        // An error means that there is no memory for the message, which the sender cannot take back.
        if self.begin_arrival(&envelope, length, receive, (what, place)).is_err() {
            self.transport.refuse(from);
        }
    }

    fn begin_arrival(
        &mut self,
        envelope: &Envelope,
        length: u64,
        receive: Option<SlotKey>,
        (what, place): (&Received, MessagePlace),
    ) -> Result<()> {
        let from = envelope.source;
        let operation = receive.and_then(|key| Some((key, self.operations.get_mut(key)?.receive(envelope)?)));
        let (data, behind) = (self.transport.payload(what, place), what.len as u64);
        let beginning = ArrivedData::Slot(data.0, data.1.start, what.len);
        let fits = |receive: &Receive| {
            receive.buffer.contiguous_range().filter(|(_, room)| *room as u64 >= length).map(|(addr, _)| addr)
        };
        let (memory, addr) = match operation.as_ref().and_then(|(_, receive)| fits(receive)) {
            Some(addr) => (None, addr as u64),
            None => {
                let memory = self.kept.memory(length as usize)?;
                let addr = memory.addr();
                (Some(memory), addr)
            }
        };
        match (&memory, &operation) {
            (Some(memory), _) => beginning.copy_to_buf(memory)?,
            // The status follows with the rest.
            (None, Some((_, receive))) => drop(receive.store(envelope, beginning)),
            (None, None) => {}
        }
        let (at, left) = (addr + behind, length - behind);
        let registration = self.transport.reach(from, at as usize, left as usize, false)?;
        let rest = registration.sge(at, left as u32);
        let sink = match (memory, receive) {
            (Some(memory), _) => RestSink::Kept(self.kept.keep(from, memory, receive)),
            (None, Some(key)) => RestSink::Receive(key),
            (None, None) => return Ok(()),
        };
        match (operation, sink) {
            (Some((key, receive)), _) => {
                let rest =
                    RestReceive { receive, envelope: *envelope, length, _registration: Some(registration) };
                self.await_rest(key, rest);
            }
            (None, RestSink::Kept(key)) => {
                self.add_unexpected(*envelope, UnexpectedBody::Kept { key, length });
            }
            (None, RestSink::Receive(_)) => {}
        }
        self.rest_sinks.insert(from, (sink, left));
        self.transport.post_rest(place, rest);
        Ok(())
    }

    /// A receive waits for data that its sender has begun to send.
    fn await_rest(&mut self, key: SlotKey, rest: RestReceive) {
        if let Some(operation) = self.operations.get_mut(key) {
            operation.state = OpState::RestReceive(Box::new(rest));
        }
    }

    /// The rest of the message that a process has begun has arrived.
    pub(super) fn handle_rest(&mut self, from: u32, len: u32) {
        match self.rest_sinks.remove(&from) {
            Some((_, wanted)) if wanted != u64::from(len) => self.transport.refuse(from),
            Some((RestSink::Receive(key), _)) => self.finish_direct(key, None),
            Some((RestSink::Kept(kept), _)) => match self.kept.arrived(kept) {
                Arrival::Kept => {}
                Arrival::Matched(key, memory) => self.finish_direct(key, Some(memory)),
            },
            None => {}
        }
    }

    /// All data of a receive have arrived: in its own memory, or in `kept`.
    fn finish_direct(&mut self, key: SlotKey, kept: Option<Buf>) {
        let Some(Operation { state: OpState::RestReceive(rest), .. }) = self.operations.get_mut(key) else {
            return;
        };
        let RestReceive { receive, envelope, length, .. } = &**rest;
        let status = match &kept {
            None => receive.status(envelope, *length),
            Some(memory) => receive.store(envelope, ArrivedData::Slot(memory, 0, *length as usize)),
        };
        if let Some(memory) = kept {
            self.host.charge_copy(status.bytes);
            self.kept.reuse(memory);
        }
        self.complete(key, status);
    }

    /// Receives a kept message.
    pub(super) fn receive_kept(
        &mut self,
        receive: Receive,
        envelope: Envelope,
        (kept, length): (SlotKey, u64),
    ) -> Started {
        match self.kept.take(kept) {
            Match::Data(memory) => {
                let status = receive.store(&envelope, ArrivedData::Slot(&memory, 0, length as usize));
                self.host.charge_copy(status.bytes);
                self.kept.reuse(memory);
                Started::Completed(status)
            }
            Match::Awaited => {
                let rest = RestReceive { receive, envelope, length, _registration: None };
                let key = self.operations.insert(Operation::new(OpState::RestReceive(Box::new(rest))));
                self.kept.await_for(kept, key);
                Started::InProgress(key)
            }
            Match::Lost => {
                let source = envelope.source;
                let incomplete = || Error::lost(source, "its message has not arrived completely");
                Started::Completed(Status::failed(
                    self.transport.lost(source).cloned().unwrap_or_else(incomplete),
                ))
            }
        }
    }
}
