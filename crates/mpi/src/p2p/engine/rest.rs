//! Receiving of long messages whose beginning arrives with their header, and the rest after it. This side finds memory for the rest
//! when it has the header: that of the matching receive, or memory that keeps the message until there is one.

use host::SlotKey;
use verbs::Buf;

use super::{Engine, Started};
use crate::error::{Error, Result};
use crate::p2p::kept::{Arrival, Match, Rest, RestSink};
use crate::p2p::matching::Envelope;
use crate::p2p::operation::{ArrivedData, OpState, Operation, Receive, RestReceive, UnexpectedBody};
use crate::p2p::wire::Message;
use crate::peers::connection::Received;
use crate::peers::nic::{DIRECT_MAX, STORED_MAX};
use crate::peers::transport::MessagePlace;
use crate::status::Status;

impl Engine {
    /// The beginning of a message has arrived: finds memory for the rest.
    pub(super) fn handle_begun(&mut self, from: u32, what: &Received, place: MessagePlace) {
        let Message::Begin { match_key, length } = what.message else { return self.transport.refuse(from) };
        let max = if place.is_slot() { DIRECT_MAX } else { STORED_MAX };
        if length > max || length <= what.len as u64 || self.rests.contains_key(&from) {
            return self.transport.refuse(from);
        }
        self.host.charge_copy(what.len as u64);
        let envelope = Envelope { source: from, match_key };
        let receive = self.matching.match_arrival(&envelope);
        // An error means that there is no memory for the message, which the sender cannot take back.
        if let Err(error) = self.begin_arrival(&envelope, length, receive, (what, place)) {
            receive.into_iter().for_each(|key| self.complete(key, Status::failed(error.clone())));
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
        let (data, at) = (self.transport.payload(what, place), what.len as u64);
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
            (Some(memory), _) => beginning.copy_to_buf(memory, 0)?,
            // The status follows with the rest.
            (None, Some((_, receive))) => drop(receive.store(envelope, beginning)),
            (None, None) => {}
        }
        let left = length - at;
        let registration = place
            .is_slot()
            .then(|| self.transport.reach(from, (addr + at) as usize, left as usize, false))
            .transpose()?;
        let posted = registration.as_ref().map(|registration| registration.sge(addr + at, left as u32));
        let sink = match (memory, receive) {
            (Some(memory), _) => RestSink::Kept(self.kept.keep(from, memory, receive)),
            (None, Some(key)) => RestSink::Receive(key),
            (None, None) => return Ok(()),
        };
        match (operation, sink) {
            (Some((key, receive)), _) => {
                let rest = RestReceive { receive, envelope: *envelope, length, _registration: registration };
                self.await_rest(key, rest);
            }
            (None, RestSink::Kept(key)) => {
                self.add_unexpected(*envelope, UnexpectedBody::Kept { key, length });
            }
            (None, RestSink::Receive(_)) => {}
        }
        self.rests.insert(from, Rest { sink, at, left });
        posted.into_iter().for_each(|rest| self.transport.post_rest(place, rest));
        Ok(())
    }

    /// A receive waits for data that its sender has begun to send.
    fn await_rest(&mut self, key: SlotKey, rest: RestReceive) {
        if let Some(operation) = self.operations.get_mut(key) {
            operation.state = OpState::RestReceive(Box::new(rest));
        }
    }

    /// The whole rest of a message has arrived.
    pub(super) fn finish_rest(&mut self, sink: RestSink) {
        match sink {
            RestSink::Receive(key) => self.finish_receive(key, None),
            RestSink::Kept(kept) => match self.kept.arrived(kept) {
                Arrival::Kept => {}
                Arrival::Matched(key, memory) => self.finish_receive(key, Some(memory)),
            },
        }
    }

    /// All data of a receive have arrived: in its own memory, or in `kept`.
    fn finish_receive(&mut self, key: SlotKey, kept: Option<Buf>) {
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
