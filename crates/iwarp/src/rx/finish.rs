//! Data path: executes an FPDU that is complete and whose CRC is good.

use super::count::BufferModel;
use super::receiver::{CurrentSegment, Receiver};
use super::{AccessError, Event, ExpectedResponse, Lookup, Received, ReceivedKind};
use crate::ddp::{QUEUE_ATOMIC, QUEUE_REQUEST, QUEUE_SEND};
use crate::open_requests::{RECEIPT_STAG, decode_receipt};
use crate::rdmap::{AtomicError, AtomicRequest, AtomicResponse, Opcode, ReadRequest};
use crate::rnr_limit::{RNR_LIMIT_STAG, decode_limit};
use crate::terminate::{Terminate, TerminateCode};
use crate::wire::wraps;

type Delivery = Result<Option<Event>, TerminateCode>;

impl Receiver {
    pub(super) fn finish<L: Lookup + ?Sized>(&mut self, lookup: &mut L) -> Delivery {
        // A receipt is valid only right before a Terminate or the end of the stream.
        let receipt = self.receipt.take();
        match self.current {
            CurrentSegment::Write { stag: RECEIPT_STAG, to, .. } if self.payload_len == 0 => {
                self.receipt = decode_receipt(to);
                Ok(None)
            }
            CurrentSegment::Write { stag: RNR_LIMIT_STAG, to, .. } if self.payload_len == 0 => {
                self.rnr_limit = decode_limit(to).or(self.rnr_limit);
                Ok(None)
            }
            CurrentSegment::Write { last, .. } => {
                self.count.segment(BufferModel::Tagged, last, self.payload_len > 0);
                Ok(None)
            }
            CurrentSegment::Rtr => {
                self.advance_msn(QUEUE_SEND);
                Ok(None)
            }
            CurrentSegment::ReadResponse { last, .. } => {
                self.read += self.payload_len;
                Ok(if last { self.finish_read() } else { None })
            }
            CurrentSegment::Send { last } => {
                self.count.segment(BufferModel::Untagged, last, true);
                if let Some(message) = &mut self.message {
                    message.received += self.payload_len;
                }
                Ok(if last { self.finish_send() } else { None })
            }
            CurrentSegment::Control { opcode, msn } => match opcode {
                Opcode::ReadRequest => self.finish_read_request(lookup),
                Opcode::AtomicRequest => self.finish_atomic_request(lookup),
                Opcode::AtomicResponse => self.finish_atomic_response(),
                Opcode::Terminate => {
                    self.receipt = receipt;
                    Ok(Terminate::parse(self.body()).map(Event::Terminated))
                }
                _ => self.finish_immediate(opcode, msn, lookup),
            },
        }
    }

    /// Advances the queue to its next message. Numbers wrap (RFC 5041 section 4.3).
    pub(super) fn advance_msn(&mut self, queue: u32) {
        let msn = &mut self.msn[queue as usize];
        *msn = msn.wrapping_add(1);
    }

    fn finish_read(&mut self) -> Option<Event> {
        self.read = 0;
        match self.expected.pop_front() {
            Some(ExpectedResponse::Read { id: Some(id), .. }) => Some(Event::ReadDone { id }),
            _ => Some(Event::RtrDone),
        }
    }

    fn finish_send(&mut self) -> Option<Event> {
        let message = self.message.take()?;
        let msn = self.msn[QUEUE_SEND as usize];
        self.advance_msn(QUEUE_SEND);
        let invalidate = message.opcode.invalidates().then_some(message.invalidate);
        let kind = ReceivedKind::Send { len: message.received, invalidate };
        Some(Event::Received(Received { msn, solicited: message.opcode.is_solicited(), kind }))
    }

    fn finish_immediate<L: Lookup + ?Sized>(&mut self, opcode: Opcode, msn: u32, lookup: &mut L) -> Delivery {
        let Ok(data) = self.body().try_into() else { return Err(TerminateCode::OPERATION_UNSPECIFIED) };
        // RFC 7306 section 6: Immediate Data consumes a buffer, like a Send.
        lookup.take_receive(msn).ok_or(TerminateCode::UNTAGGED_NO_BUFFER)?;
        self.count.segment(BufferModel::Untagged, true, true);
        self.advance_msn(QUEUE_SEND);
        let kind = ReceivedKind::Immediate(data);
        Ok(Some(Event::Received(Received { msn, solicited: opcode.is_solicited(), kind })))
    }

    fn finish_read_request<L: Lookup + ?Sized>(&mut self, lookup: &mut L) -> Delivery {
        let request = ReadRequest::parse(self.body()).ok_or(TerminateCode::OPERATION_UNSPECIFIED)?;
        let ReadRequest { sink_to, len, source_stag, source_to, .. } = request;
        if wraps(source_to, len) || wraps(sink_to, len) {
            return Err(TerminateCode::TO_WRAP);
        }
        if len > 0 {
            lookup.check_read_source(source_stag, source_to, len).map_err(AccessError::code)?;
        }
        self.count.segment(BufferModel::Untagged, true, len > 0);
        self.advance_msn(QUEUE_REQUEST);
        self.serving += 1;
        Ok(Some(Event::ReadRequest(request)))
    }

    fn finish_atomic_request<L: Lookup + ?Sized>(&mut self, lookup: &mut L) -> Delivery {
        let request = AtomicRequest::parse(self.body()).map_err(|error| match error {
            AtomicError::Length => TerminateCode::OPERATION_UNSPECIFIED,
            AtomicError::Operation => TerminateCode::UNEXPECTED_OPCODE,
        })?;
        // RFC 7306 section 5.1: the word is aligned. A multiple of 8 does not wrap within 8 bytes.
        let aligned = if request.to.is_multiple_of(8) { Ok(()) } else { Err(AccessError::Unaligned) };
        aligned.and_then(|()| lookup.check_atomic(request.stag, request.to)).map_err(AccessError::code)?;
        self.count.segment(BufferModel::Untagged, true, true);
        self.advance_msn(QUEUE_REQUEST);
        self.serving += 1;
        Ok(Some(Event::AtomicRequest(request)))
    }

    fn finish_atomic_response(&mut self) -> Delivery {
        let response = AtomicResponse::parse(self.body()).ok_or(TerminateCode::OPERATION_UNSPECIFIED)?;
        let Some(&ExpectedResponse::Atomic { id, request }) = self.expected.front() else {
            return Err(TerminateCode::UNEXPECTED_OPCODE);
        };
        // Responses arrive in the order of their requests (RFC 7306 section 5.4).
        if response.id != request {
            return Err(TerminateCode::STREAM_CATASTROPHIC);
        }
        self.expected.pop_front();
        self.advance_msn(QUEUE_ATOMIC);
        Ok(Some(Event::AtomicDone { id, original: response.original }))
    }
}
