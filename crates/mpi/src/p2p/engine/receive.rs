//! Receives and probes: how arriving messages are matched with posted receives, and kept until a receive is posted.

use std::ops::ControlFlow;

use host::{SlotKey, Step};

use super::{Engine, Started};
use crate::comm::group::Group;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::p2p::matching::{Envelope, MatchCriteria, TagCriteria};
use crate::p2p::operation::{
    ArrivedData, MatchReport, OpState, Operation, PlainReceive, Receive, RtsInfo, SourceRanks,
    UnexpectedBody, envelope_status,
};
use crate::p2p::over_portals::PortalsStarted;
use crate::p2p::shm_copy::SharedMessage;
use crate::p2p::wire::Message;
use crate::peers::connection::{Next, Payload, Received, Short, Taken};
use crate::peers::transport::{MessagePlace, STORED_MAX};
use crate::status::Status;
use crate::tool::ToolEvent;

/// Polls in a row for messages stored by Portals, where a poll costs more.
const PORTALS_POLLS: u32 = 4;

/// The result of [`Engine::receive_stored`].
#[derive(Debug)]
pub(crate) enum StoredReceive {
    /// The receive got its message.
    Received(Status),
    /// The source has stored no message so far; a later poll may find one.
    NotYet {
        /// The number of the source's connection; `None` if the message would arrive by Portals.
        connection: Option<usize>,
    },
    /// The message may arrive by another path, so the receive has to be posted.
    MustPost,
}

/// A message that was taken out of matching for one receive (`MPI_Mprobe`).
#[derive(Debug)]
pub(crate) struct MatchedMessage {
    envelope: Envelope,
    body: UnexpectedBody,
    sources: Group,
}

impl Engine {
    /// Starts a receive.
    #[inline(always)] // built in its final place, not copied
    pub(crate) fn receive(&mut self, receive: Receive) -> Started {
        self.host.charge_step(Step::Call, 1);
        self.host.charge_step(Step::Request, 1);
        let wanted = receive.wanted;
        if self.portals.is_some()
            || self.matching.has_unexpected(wanted.context)
            || self.lost(&wanted).is_some()
        {
            return self.receive_or_fail_early(receive);
        }
        self.post_receive(receive)
    }

    /// Posts a receive of contiguous bytes, if no unexpected message waits for it; otherwise does nothing and returns `None`.
    #[inline]
    pub(crate) fn post_plain_receive(
        &mut self,
        wanted: MatchCriteria,
        plain: PlainReceive,
        comm: u64,
    ) -> Option<SlotKey> {
        if self.portals.is_some() || self.lost(&wanted).is_some() {
            return None;
        }
        let receives = self.matching.posted_receives(wanted.context)?;
        let key = self.operations.insert_with(|| Operation::for_comm(OpState::PlainReceive(plain), comm));
        receives.push_back((wanted, key));
        Some(key)
    }

    /// Starts a receive whose message may have arrived already, or can no longer arrive.
    fn receive_or_fail_early(&mut self, receive: Receive) -> Started {
        if let Some(portals) = self.portals(receive.wanted.context) {
            let started = portals.receive(receive);
            return self.portals_receive_started(started);
        }
        if let Some((envelope, body)) = self.matching.take_unexpected(&receive.wanted) {
            return self.receive_unexpected(receive, envelope, body);
        }
        match self.lost(&receive.wanted) {
            Some(error) => Started::Completed(Status::failed(error)),
            None => self.post_receive(receive),
        }
    }

    /// Returns how a receive over Portals started; an error becomes its status.
    fn portals_receive_started(&mut self, started: Result<PortalsStarted>) -> Started {
        if let Ok(PortalsStarted::Completed(status)) = started {
            self.complete_portals_operations();
            return Started::Completed(status);
        }
        self.record_portals_start(started).unwrap_or_else(|error| Started::Completed(Status::failed(error)))
    }

    #[inline(always)]
    fn post_receive(&mut self, receive: Receive) -> Started {
        let wanted = receive.wanted;
        let state = match receive.plain() {
            Some(plain) => OpState::PlainReceive(plain),
            None => OpState::Receive(Box::new(receive)),
        };
        let key = self.operations.insert(Operation::new(state));
        self.matching.post(wanted, key);
        Started::InProgress(key)
    }

    /// Receives a message without posting a receive, as [`Engine::receive_stored`] does, and polls `polls` times. Returns `None`
    /// if the receive got no message; the caller may poll again or post it.
    #[inline]
    pub(crate) fn poll_stored(&mut self, receive: &Receive, polls: u32) -> Option<Status> {
        if let Some(portals) = self.portals(receive.wanted.context) {
            return match portals.receive_stored(receive, polls) {
                ControlFlow::Break(status) => status,
                ControlFlow::Continue(()) => None,
            };
        }
        let mut left = polls;
        loop {
            let connection = match self.receive_stored(receive) {
                StoredReceive::Received(status) => return Some(status),
                StoredReceive::NotYet { connection } => connection?,
                StoredReceive::MustPost => return None,
            };
            while !self.transport.has_stored(connection) {
                left = left.checked_sub(1)?;
            }
        }
    }

    /// Receives a message without posting a receive, if no message or receive waits in its context and the message is the next
    /// match that its source has stored: written into memory of this process, without a completion. The source's earlier messages
    /// are matched as usual. Nothing else makes progress.
    #[inline]
    pub(crate) fn receive_stored(&mut self, receive: &Receive) -> StoredReceive {
        let wanted = &receive.wanted;
        if let Some(portals) = self.portals(wanted.context) {
            return match portals.receive_stored(receive, PORTALS_POLLS) {
                ControlFlow::Break(Some(status)) => StoredReceive::Received(status),
                ControlFlow::Break(None) => StoredReceive::MustPost,
                ControlFlow::Continue(()) => StoredReceive::NotYet { connection: None },
            };
        }
        let Some(number) = wanted.source.and_then(|source| self.transport.stored_by(source)) else {
            return StoredReceive::MustPost;
        };
        while self.matching.is_idle(wanted.context) {
            match self.transport.next(number) {
                Next::Short(short) => {
                    let (source, buf) = self.transport.origin(number, &short);
                    let envelope = Envelope { source, match_key: short.match_key };
                    if short.match_key.context == wanted.context && wanted.accepts(&envelope) {
                        let status = receive.store(&envelope, ArrivedData::Slot(buf, short.at, short.len));
                        self.transport.pass(number, &short);
                        return StoredReceive::Received(status);
                    }
                    self.receive_short(number, &short);
                }
                Next::Other if self.receive_next_message(number) => {}
                // A posted receive gets the data directly. For a receive that is posted later, the data would be kept.
                Next::Other | Next::Begun => return StoredReceive::MustPost,
                Next::Nothing => return StoredReceive::NotYet { connection: Some(number) },
            }
        }
        StoredReceive::MustPost
    }

    fn receive_unexpected(&mut self, receive: Receive, envelope: Envelope, body: UnexpectedBody) -> Started {
        match body {
            UnexpectedBody::Data { bytes, answer } => {
                let status = receive.store(&envelope, ArrivedData::Bytes(&bytes));
                self.host.charge_copy(status.bytes);
                self.report_match(envelope.source, answer);
                Started::Completed(status)
            }
            UnexpectedBody::Kept { key, length } => self.receive_kept(receive, envelope, (key, length)),
            UnexpectedBody::Rts(rts) => {
                let key = self.operations.insert(Operation::new(OpState::Receive(Box::new(receive))));
                self.start_long_receive(key, envelope, rts);
                Started::InProgress(key)
            }
            UnexpectedBody::FoundMessage(found) => match &mut self.portals {
                Some(portals) => {
                    let started = portals.receive_found(receive, &found);
                    self.portals_receive_started(started)
                }
                None => Started::Completed(receive.status(&envelope, 0)),
            },
        }
    }

    /// Returns the status of the message that a receive would get.
    pub(crate) fn probe(&mut self, wanted: &MatchCriteria, sources: &Group) -> Option<Status> {
        if let Some(portals) = self.portals(wanted.context) {
            let found = portals.probe(wanted);
            self.complete_portals_operations();
            return found.map(|found| envelope_status(&found.envelope, found.len, sources));
        }
        let (envelope, body) = self.matching.probe(wanted)?;
        Some(envelope_status(envelope, body.len(), sources))
    }

    /// Takes the message that a receive would get out of matching.
    pub(crate) fn mprobe(
        &mut self,
        wanted: &MatchCriteria,
        sources: &Group,
    ) -> Option<(MatchedMessage, Status)> {
        let (envelope, body) = match self.portals(wanted.context) {
            Some(portals) => {
                let found = portals.mprobe(wanted);
                self.complete_portals_operations();
                let found = found?;
                (found.envelope, UnexpectedBody::FoundMessage(found))
            }
            None => self.matching.take_unexpected(wanted)?,
        };
        let status = envelope_status(&envelope, body.len(), sources);
        Some((MatchedMessage { envelope, body, sources: sources.clone() }, status))
    }

    /// Receives a matched message.
    pub(crate) fn mrecv(&mut self, matched: MatchedMessage, buffer: Buffer) -> Started {
        let MatchedMessage { envelope, body, sources } = matched;
        let match_key = envelope.match_key;
        let wanted = MatchCriteria {
            context: match_key.context,
            source: Some(envelope.source),
            tag: Some(match_key.tag),
        };
        self.receive_unexpected(
            Receive { wanted, buffer, sources: SourceRanks::Group(sources) },
            envelope,
            body,
        )
    }

    /// Receives what a peer has stored, for as long as the receives posted first are plain and match it: each message is then
    /// matched with the first receive.
    #[inline(never)] // out of line, so that it has all registers
    fn receive_into_posted(&mut self, number: usize) {
        let Self { transport, matching, operations, host, .. } = self;
        let mut count = 0;
        transport.take_from(number, |connection| {
            let (from, mut failed) = (connection.process, None);
            matching.offer_in_order(|wanted, key| {
                let Some(Operation { state, is_detached: false, .. }) = operations.get_mut(*key) else {
                    return false;
                };
                let OpState::PlainReceive(plain) = state else { return false };
                if count == STORED_MAX || wanted.source.is_some_and(|source| source != from) {
                    return false;
                }
                let wanted = TagCriteria { context: wanted.context, tag: wanted.tag };
                match connection.take_next(&wanted, plain.into) {
                    Ok(Taken::Message { tag, len }) => {
                        host.charge_copy(len as u64);
                        let status = plain.status(from, tag, len);
                        // A plain receive owns nothing, so its destructor need not run.
                        std::mem::forget(std::mem::replace(state, OpState::Completed(status)));
                        count += 1;
                        true
                    }
                    Ok(Taken::Nothing | Taken::Unknown) => false,
                    Err(error) => {
                        failed = Some(error);
                        false
                    }
                }
            });
            failed.map_or(Ok(()), Err)
        });
        if count > 0 {
            (self.has_completed, self.tasks_ready) = (true, true);
        }
    }

    /// Receives what a peer has stored.
    pub(super) fn receive_all_stored(&mut self, number: usize) {
        self.receive_into_posted(number);
        for _ in 0..STORED_MAX {
            match self.transport.next(number) {
                Next::Short(short) => self.receive_short(number, &short),
                Next::Other | Next::Begun if self.receive_next_message(number) => {}
                Next::Other | Next::Begun | Next::Nothing => return,
            }
        }
    }

    /// Receives the next message, of any kind; false if the connection was closed instead.
    fn receive_next_message(&mut self, number: usize) -> bool {
        let Some((from, what, place)) = self.transport.next_stored(number) else { return false };
        self.host.charge_step(Step::Event, 1);
        self.handle_message(from, &what, place);
        self.transport.release(place, &what.message);
        true
    }

    #[inline(always)]
    fn receive_short(&mut self, number: usize, short: &Short) {
        let (source, buf) = self.transport.origin(number, short);
        let envelope = Envelope { source, match_key: short.match_key };
        self.host.charge_copy(short.len as u64);
        let data = ArrivedData::Slot(buf, short.at, short.len);
        if let Some(key) = self.matching.match_arrival(&envelope) {
            let status = self.operations.get_mut(key).and_then(|operation| operation.store(&envelope, data));
            status.into_iter().for_each(|status| self.complete(key, status));
        } else if let Ok(bytes) = data.to_vec() {
            self.add_unexpected(envelope, UnexpectedBody::Data { bytes, answer: None });
        }
        self.transport.pass(number, short);
    }

    /// Handles a message that has arrived.
    pub(super) fn handle_message(&mut self, from: u32, what: &Received, place: MessagePlace) {
        match what.message {
            Message::Eager { match_key, answer } => {
                let envelope = Envelope { source: from, match_key };
                self.receive_eager(&envelope, answer.map(MatchReport::Peer), what, place);
            }
            // Its header is shorter than the longest, so that a slot may have room for all of it.
            Message::Begin { match_key, length } if length == what.len as u64 => {
                self.receive_eager(&Envelope { source: from, match_key }, None, what, place);
            }
            // The device reports the beginning of a message whose rest it can read.
            Message::Begin { .. } if place.is_slot() => self.transport.refuse(from),
            Message::Begin { .. } => self.handle_begun(from, what, place),
            Message::Frag => self.handle_fragment(from, what, place),
            Message::Rts { match_key, id, at } => {
                let (envelope, rts) = (Envelope { source: from, match_key }, RtsInfo { id, at });
                match self.matching.match_arrival(&envelope) {
                    Some(key) => self.start_long_receive(key, envelope, rts),
                    None => self.add_unexpected(envelope, UnexpectedBody::Rts(rts)),
                }
            }
            Message::Fin { id, ok } => {
                let key = SlotKey::from_number(id);
                if self.accepts_answer_of(key, from) {
                    self.count_long(key, from, None);
                    let failed = || Status::failed(Error::lost(from, "it could not read the message"));
                    self.complete(key, if ok { Status::empty() } else { failed() });
                }
            }
            Message::CancelReq { id } => self.handle_cancel_req(from, id),
            Message::CancelRsp { id } => self.handle_cancel_rsp(from, SlotKey::from_number(id)),
            Message::ShmCts { id, key, at, word, sequence } => {
                let share = SharedMessage { word, sequence, length: at.length };
                self.start_sender_copy(from, SlotKey::from_number(id), key, share, at);
            }
            Message::ShmFin { key, pieces } => self.handle_shm_fin(from, SlotKey::from_number(key), pieces),
            Message::CollCheck { match_key, called } => self.handle_coll_check(from, match_key, called),
            Message::CollMismatch { match_key, called } => self.handle_coll_mismatch(from, match_key, called),
            // The transport handles these.
            Message::Credit | Message::Leave => {}
        }
    }

    /// A message has arrived with all of its data.
    fn receive_eager(
        &mut self,
        envelope: &Envelope,
        answer: Option<MatchReport>,
        what: &Received,
        place: MessagePlace,
    ) {
        let (buf, range) = self.transport.payload(what, place);
        let data = ArrivedData::Slot(buf, range.start, range.len());
        self.host.charge_copy(range.len() as u64);
        if let Some(key) = self.matching.match_arrival(envelope) {
            let operation = self.operations.get_mut(key);
            let status = operation.and_then(|operation| operation.store(envelope, data));
            status.into_iter().for_each(|status| self.complete(key, status));
            self.report_match(envelope.source, answer);
        } else if let Ok(bytes) = data.to_vec() {
            self.add_unexpected(*envelope, UnexpectedBody::Data { bytes, answer });
        }
    }

    /// Keeps an unexpected message.
    pub(super) fn add_unexpected(&mut self, envelope: Envelope, body: UnexpectedBody) {
        if self.recorder.is_some() {
            let (from, tag) = (envelope.source, envelope.match_key.tag);
            self.record_event(ToolEvent::Unexpected { from, tag, bytes: body.len() });
        }
        self.matching.add_unexpected(envelope, body);
    }

    /// Completes a receive with its data.
    pub(super) fn complete_receive(&mut self, key: SlotKey, envelope: &Envelope, data: ArrivedData<'_>) {
        let status = self.operations.get_mut(key).and_then(|operation| operation.store(envelope, data));
        status.into_iter().for_each(|status| self.complete(key, status));
    }

    /// Reports a match to the sender, if it waits for that.
    pub(super) fn report_match(&mut self, from: u32, answer: Option<MatchReport>) {
        match answer {
            Some(MatchReport::Peer(id)) => self.send_fin(from, id),
            Some(MatchReport::Own(key)) => self.complete(key, Status::empty()),
            None => {}
        }
    }

    /// Reports to the sender that all data have been received, or that the receive is matched.
    pub(super) fn send_fin(&mut self, process: u32, id: u64) {
        self.send_fin_message(process, Message::Fin { id, ok: true });
    }

    /// Reports to the sender that the receive has failed.
    pub(super) fn send_failed_fin(&mut self, process: u32, id: u64) {
        self.send_fin_message(process, Message::Fin { id, ok: false });
    }

    fn send_fin_message(&mut self, process: u32, fin: Message) {
        // A lost peer needs no FIN.
        drop(self.transport.send(process, fin, Payload::None, None));
    }
}
