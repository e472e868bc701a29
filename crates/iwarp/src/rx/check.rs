//! Data path: everything that a segment's header tells is checked here, before a byte of payload is placed.
//!
//! The order is that of the layers: DDP (RFC 5041 section 7.1), then RDMAP (RFC 5040 section 7.2). The answer is a code for
//! Terminate.

use super::receiver::{BODY_MAX, Current, Message, Receiver};
use super::{Expected, Lookup};
use crate::ddp::{self, Header, QUEUE_REQUEST, QUEUE_SEND, QUEUES, Tagged, Untagged};
use crate::mpa::Rtr;
use crate::rdmap::{self, ATOMIC_REQUEST_LEN, ATOMIC_RESPONSE_LEN, IMMEDIATE_LEN, Opcode, READ_REQUEST_LEN};
use crate::terminate::TerminateCode;
use crate::wire::wraps;

type Verdict<T> = Result<T, TerminateCode>;

impl Receiver {
    pub(super) fn examine<L: Lookup + ?Sized>(
        &mut self,
        version: u8,
        header: &Header,
        lookup: &mut L,
    ) -> Verdict<Current> {
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
                // RFC 5040 section 4.2: each opcode has its queue.
                if opcode.queue() != Some(header.queue) {
                    return Err(TerminateCode::UNEXPECTED_OPCODE);
                }
                // TCP keeps the order, so a message with another number cannot be one that comes later.
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

    /// RFC 5040 section 7.2: version, then opcode.
    fn opcode(&self, control: u8) -> Verdict<Opcode> {
        if rdmap::version(control) != rdmap::VERSION {
            return Err(TerminateCode::RDMAP_VERSION);
        }
        Opcode::parse(control).ok_or(TerminateCode::UNEXPECTED_OPCODE)
    }

    /// Each segment of a Write stands for itself: what it says is checked, whatever came before.
    fn check_write<L: Lookup + ?Sized>(&mut self, header: &Tagged, lookup: &mut L) -> Verdict<Current> {
        let &Tagged { stag, to, .. } = header;
        if wraps(to, self.payload_len) {
            return Err(TerminateCode::TAGGED_TO_WRAP);
        }
        if self.payload_len > 0 {
            lookup.write(stag, to, self.payload_len).map_err(super::Refusal::tagged_code)?;
        }
        Ok(Current::Write { stag, to, last: header.last })
    }

    /// A Read Response goes where this side's earliest open request asked for it, in order and no further; what else its
    /// header says is refused. This is stricter than to ask only whether the tag may be written to, and lets the sink be
    /// memory that the peer may not write to otherwise.
    fn check_read_response<L: Lookup + ?Sized>(
        &mut self,
        header: &Tagged,
        lookup: &mut L,
    ) -> Verdict<Current> {
        let Some(&Expected::Read { id, stag, to, len }) = self.expected.front() else {
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
        // The flag and the length that was asked for must agree.
        if header.last != (self.payload_len == left) {
            return Err(TerminateCode::STREAM_CATASTROPHIC);
        }
        let id = id.unwrap_or_default();
        if self.payload_len > 0 {
            lookup.read_sink(id, self.read, self.payload_len).map_err(super::Refusal::tagged_code)?;
        }
        Ok(Current::ReadResponse { id, stag, to: expected_to, last: header.last })
    }

    fn check_send<L: Lookup + ?Sized>(
        &mut self,
        opcode: Opcode,
        header: &Untagged,
        lookup: &mut L,
    ) -> Verdict<Current> {
        let &Untagged { last, ulp_word: invalidate, msn, mo, .. } = header;
        // RFC 6581 section 9.2: a first message that was agreed on is not the program's, and takes no buffer.
        if self.first
            && self.config.rtr == Some(Rtr::Send)
            && (opcode, last, mo, self.payload_len) == (Opcode::Send, true, 0, 0)
        {
            return Ok(Current::Rtr);
        }
        if mo != self.message.map_or(0, |message| message.received) {
            return Err(TerminateCode::UNTAGGED_MO);
        }
        let message = match self.message {
            // All segments of a message say the same. Where the word is reserved, it is not checked (RFC 5040 section 4.1).
            Some(message)
                if message.opcode != opcode || opcode.invalidates() && message.invalidate != invalidate =>
            {
                return Err(TerminateCode::UNEXPECTED_OPCODE);
            }
            Some(message) => message,
            None => {
                if opcode.invalidates() {
                    lookup.invalidate(invalidate).map_err(super::Refusal::code)?;
                }
                let capacity = lookup.receive(msn).ok_or(TerminateCode::UNTAGGED_NO_BUFFER)?;
                Message { opcode, invalidate, capacity, received: 0 }
            }
        };
        // Kept also if it turns out to be too long: its buffer has been taken.
        self.message = Some(message);
        if self.payload_len > message.capacity - message.received {
            return Err(TerminateCode::UNTAGGED_TOO_LONG);
        }
        Ok(Current::Send { last })
    }

    /// Messages of one segment, whose body is collected here.
    fn check_control(&mut self, opcode: Opcode, header: &Untagged) -> Verdict<Current> {
        // Whoever posts in order begins nothing in the middle of a message. A request that is answered there would say that the
        // message has come: without CRCs one flipped bit, that of the last segment, is enough for it.
        if matches!(header.queue, QUEUE_SEND | QUEUE_REQUEST) && self.message.is_some() {
            return Err(TerminateCode::UNEXPECTED_OPCODE);
        }
        if header.mo != 0 {
            return Err(TerminateCode::UNTAGGED_MO);
        }
        // The queue of requests has as many buffers as requests may wait (RFC 5040 section 5.2.1).
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
        // Too short, or the first of several segments: no RFC has a code for that alone.
        if (self.payload_len as usize) < wanted || !header.last {
            return Err(TerminateCode::OPERATION_UNSPECIFIED);
        }
        Ok(Current::Control { opcode, msn: header.msn })
    }
}
