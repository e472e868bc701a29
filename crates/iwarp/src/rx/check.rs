//! Data path: checks every field of a segment's header before any payload is placed.
//!
//! The order is that of the layers: DDP (RFC 5041 section 7.1), then RDMAP (RFC 5040 section 7.2). A failed check
//! returns the code for a Terminate.

use super::receiver::{BODY_MAX, CurrentSegment, CurrentSend, Receiver};
use super::{ExpectedResponse, Lookup};
use crate::ddp::{self, Header, QUEUE_REQUEST, QUEUE_SEND, QUEUES, Tagged, Untagged};
use crate::mpa::Rtr;
use crate::rdmap::{self, ATOMIC_REQUEST_LEN, ATOMIC_RESPONSE_LEN, IMMEDIATE_LEN, Opcode, READ_REQUEST_LEN};
use crate::terminate::TerminateCode;
use crate::wire::wraps;

type Verdict<T> = Result<T, TerminateCode>;

impl Receiver {
    pub(super) fn check_header<L: Lookup + ?Sized>(
        &mut self,
        version: u8,
        header: &Header,
        lookup: &mut L,
    ) -> Verdict<CurrentSegment> {
        match header {
            Header::Tagged(_) if version != ddp::VERSION => Err(TerminateCode::TAGGED_VERSION),
            Header::Untagged(_) if version != ddp::VERSION => Err(TerminateCode::UNTAGGED_VERSION),
            Header::Tagged(header) => match self.opcode(header.ulp)? {
                Opcode::Write => self.check_write(header, lookup),
                Opcode::ReadResponse => self.check_read_response(header, lookup),
                _ => Err(TerminateCode::UNEXPECTED_OPCODE),
            },
            Header::Untagged(header) => {
                if header.queue as usize >= QUEUES {
                    return Err(TerminateCode::UNTAGGED_QUEUE);
                }
                let opcode = self.opcode(header.ulp)?;
                // RFC 5040 section 4.2: each opcode belongs to one queue.
                if opcode.queue() != Some(header.queue) {
                    return Err(TerminateCode::UNEXPECTED_OPCODE);
                }
                // TCP keeps the order, so any other message number is an error and not a later message.
                if header.msn != self.msn[header.queue as usize] {
                    return Err(TerminateCode::UNTAGGED_MSN);
                }
                if header.queue == QUEUE_SEND
                    && !matches!(opcode, Opcode::Immediate | Opcode::ImmediateSolicited)
                {
                    self.check_send(opcode, header, lookup)
                } else {
                    self.check_control(opcode, header)
                }
            }
        }
    }

    /// Checks version, then opcode (RFC 5040 section 7.2).
    fn opcode(&self, control: u8) -> Verdict<Opcode> {
        if rdmap::version(control) != rdmap::VERSION {
            return Err(TerminateCode::RDMAP_VERSION);
        }
        Opcode::parse(control).ok_or(TerminateCode::UNEXPECTED_OPCODE)
    }

    /// Checks one segment of a Write. Each segment is checked independently of earlier ones.
    fn check_write<L: Lookup + ?Sized>(
        &mut self,
        header: &Tagged,
        lookup: &mut L,
    ) -> Verdict<CurrentSegment> {
        let &Tagged { stag, to, .. } = header;
        if wraps(to, self.payload_len) {
            return Err(TerminateCode::TAGGED_TO_WRAP);
        }
        if self.payload_len > 0 {
            lookup.check_write(stag, to, self.payload_len).map_err(super::AccessError::tagged_code)?;
        }
        Ok(CurrentSegment::Write { stag, to, last: header.last })
    }

    /// Checks a Read Response: it may only go to the sink of this side's earliest open request, in order and within
    /// its length. This is stricter than checking whether the tag is writable, and the sink may be memory that the
    /// peer otherwise has no right to write.
    fn check_read_response<L: Lookup + ?Sized>(
        &mut self,
        header: &Tagged,
        lookup: &mut L,
    ) -> Verdict<CurrentSegment> {
        let Some(&ExpectedResponse::Read { id, stag, to, len }) = self.expected.front() else {
            return Err(TerminateCode::UNEXPECTED_OPCODE);
        };
        if len > 0 && header.stag != stag {
            return Err(TerminateCode::TAGGED_STAG_INVALID);
        }
        let left = len - self.read;
        let expected_to = to.wrapping_add(self.read.into());
        if self.payload_len > left || len > 0 && header.to != expected_to {
            return Err(TerminateCode::TAGGED_BOUNDS);
        }
        // The last flag must agree with the requested length.
        if header.last != (self.payload_len == left) {
            return Err(TerminateCode::STREAM_CATASTROPHIC);
        }
        let id = id.unwrap_or_default();
        if self.payload_len > 0 {
            lookup
                .check_read_sink(id, self.read, self.payload_len)
                .map_err(super::AccessError::tagged_code)?;
        }
        Ok(CurrentSegment::ReadResponse { id, stag, to: expected_to, last: header.last })
    }

    fn check_send<L: Lookup + ?Sized>(
        &mut self,
        opcode: Opcode,
        header: &Untagged,
        lookup: &mut L,
    ) -> Verdict<CurrentSegment> {
        let &Untagged { last, ulp_word: invalidate, msn, mo, .. } = header;
        // RFC 6581 section 9.2: an agreed ready-to-receive message does not belong to the program and consumes no
        // buffer.
        if self.first
            && self.config.rtr == Some(Rtr::Send)
            && (opcode, last, mo, self.payload_len) == (Opcode::Send, true, 0, 0)
        {
            return Ok(CurrentSegment::Rtr);
        }
        if mo != self.message.map_or(0, |message| message.received) {
            return Err(TerminateCode::UNTAGGED_MO);
        }
        let message = match self.message {
            // All segments of a message must have the same opcode and tag. A reserved tag word is not checked (RFC
            // 5040 section 4.1).
            Some(message)
                if message.opcode != opcode || opcode.invalidates() && message.invalidate != invalidate =>
            {
                return Err(TerminateCode::UNEXPECTED_OPCODE);
            }
            Some(message) => message,
            None => {
                if opcode.invalidates() {
                    lookup.check_invalidate(invalidate).map_err(super::AccessError::code)?;
                }
                let capacity = lookup.take_receive(msn).ok_or(TerminateCode::UNTAGGED_NO_BUFFER)?;
                CurrentSend { opcode, invalidate, capacity, received: 0 }
            }
        };
        // Stored even if the message turns out to be too long, because its buffer has been consumed.
        self.message = Some(message);
        if self.payload_len > message.capacity - message.received {
            return Err(TerminateCode::UNTAGGED_TOO_LONG);
        }
        Ok(CurrentSegment::Send { last })
    }

    /// Checks messages of one segment, whose body the receiver collects.
    fn check_control(&mut self, opcode: Opcode, header: &Untagged) -> Verdict<CurrentSegment> {
        // A sender that sends in order begins no other message inside a Send. Responding to such a request would
        // imply that the Send has arrived, although without CRCs one flipped bit, the last flag, is enough to get
        // here.
        if matches!(header.queue, QUEUE_SEND | QUEUE_REQUEST) && self.message.is_some() {
            return Err(TerminateCode::UNEXPECTED_OPCODE);
        }
        if header.mo != 0 {
            return Err(TerminateCode::UNTAGGED_MO);
        }
        // RFC 5040 section 5.2.1: the queue of requests has IRD buffers.
        if header.queue == QUEUE_REQUEST && self.serving >= self.config.ird {
            return Err(TerminateCode::UNTAGGED_NO_BUFFER);
        }
        let wanted = match opcode {
            Opcode::ReadRequest => READ_REQUEST_LEN,
            Opcode::AtomicRequest => ATOMIC_REQUEST_LEN,
            Opcode::AtomicResponse => ATOMIC_RESPONSE_LEN,
            Opcode::Terminate => 4.max((self.payload_len as usize).min(BODY_MAX)),
            _ => IMMEDIATE_LEN,
        };
        if self.payload_len as usize > wanted {
            return Err(TerminateCode::UNTAGGED_TOO_LONG);
        }
        // Too short, or the first of several segments: no RFC assigns a code to this.
        if (self.payload_len as usize) < wanted || !header.last {
            return Err(TerminateCode::OPERATION_UNSPECIFIED);
        }
        Ok(CurrentSegment::Control { opcode, msn: header.msn })
    }
}
