//! How this side's requests ended when the peer ends the stream: the request that its Terminate refers to, and those
//! that arrived.
//!
//! A Terminate alone proves nothing. It repeats a header, which flipped bits may have damaged, either on a path
//! without CRC or in a peer that used the header before it checked the CRC. RDMAP has no acknowledgement either. So
//! before a side ends a stream, with a Terminate or by closing it, it sends a *receipt*: the number of messages that
//! it has received completely, by its own count. On the wire a receipt is a zero-length Write, which a peer without
//! receipts ignores (RFC 5040 section 5.1). Its tag is [`RECEIPT_STAG`]. The lower half of its offset is the count,
//! and the upper half is the count's complement. It is valid only as the last message, or as the last before the
//! Terminate.
//!
//! The peer reads a count of N as its first N messages. So the count stops at the first message that ends inside
//! another one.
//!
//! The count includes Sends, Immediate Data, requests, and Writes and Reads of at least one byte. It excludes RNR
//! retry limits, zero-length reads that ask for arrival, and ready-to-receive messages, because they belong to no
//! work request.

use crate::ddp::{Header, QUEUE_ATOMIC, QUEUE_REQUEST, QUEUE_SEND, TAGGED_LEN, Tagged, Untagged};
use crate::rdmap::Opcode;
use crate::terminate::{Terminate, TerminateCode};

/// The effect of a request at the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerEffect {
    /// Writes a range that begins at this offset.
    Write {
        /// Steering tag of the buffer.
        stag: u32,
        /// Offset in the buffer.
        to: u64,
    },
    /// A Write followed by a message that consumes a receive.
    WriteAndSend {
        /// Steering tag of the buffer.
        stag: u32,
        /// Offset in the buffer.
        to: u64,
    },
    /// Consumes a receive buffer.
    Send,
    /// Returns data: a read or an atomic.
    Fetch,
}

/// A request of this side that the peer has not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenRequest {
    /// Identifier of the request.
    pub number: u64,
    /// Effect of the request.
    pub effect: PeerEffect,
    /// Length in bytes.
    pub len: u32,
    /// Number of its first message on the queue of Sends, and how many messages it has there.
    pub sends: (u32, u32),
    /// Number of its message on the queue of requests, if it has one.
    pub request: Option<u32>,
}

impl TerminateCode {
    /// Whether the code reports that an access right was missing.
    #[must_use]
    pub const fn is_protection(self) -> bool {
        self.etype == 1 && (self.layer == 0 || self.layer == 1)
    }
}

/// The tag of a receipt; "RCPT".
pub const RECEIPT_STAG: u32 = 0x5243_5054;

/// The offset that encodes a count of messages.
pub(crate) const fn encode_receipt(messages: u32) -> u64 {
    (!messages as u64) << 32 | messages as u64
}

/// Decodes the count of an offset; `None` if its halves do not match.
pub(crate) const fn decode_receipt(to: u64) -> Option<u32> {
    let messages = to as u32;
    if encode_receipt(messages) == to { Some(messages) } else { None }
}

impl OpenRequest {
    /// How many messages of this request a receipt counts.
    #[must_use]
    pub const fn counted_messages(&self) -> u32 {
        let other = !matches!(self.effect, PeerEffect::Send) && self.len > 0;
        self.sends.1 + other as u32
    }
}

/// How many of the open requests, from the first, have arrived in full and need no answer. `peer_count` is the count of
/// messages in the peer's receipt, if it sent one; `earlier` is the number of counted messages of earlier requests.
#[must_use]
pub fn count_arrived(peer_count: Option<u32>, earlier: u32, open: &[OpenRequest]) -> usize {
    let all = open.iter().fold(0_u32, |sum, o| sum.wrapping_add(o.counted_messages()));
    // A count above the sum of all requests cannot be valid.
    let Some(mut left) = peer_count.map(|n| n.wrapping_sub(earlier)).filter(|left| *left <= all) else {
        return 0;
    };
    let whole = open.iter().take_while(|o| {
        let enough = o.effect != PeerEffect::Fetch && o.counted_messages() <= left;
        left -= if enough { o.counted_messages() } else { 0 };
        enough
    });
    whole.count()
}

/// The request that a Terminate refers to: found by its message number or by the range that it writes, else the first
/// request that could have caused such an error, else the first. `None` if the Terminate refers to a response of this
/// side.
///
/// It only proves that the stream has ended: see [`count_arrived`].
#[must_use]
pub fn find_blamed<'a>(terminate: &Terminate, open: &'a [OpenRequest]) -> Option<&'a OpenRequest> {
    let offender = terminate.offender.as_ref();
    let exact = match offender.and_then(|offender| Header::parse(&offender.header)) {
        Some(Header::Tagged(header)) if Opcode::parse(header.ulp) == Some(Opcode::ReadResponse) => {
            return None;
        }
        Some(Header::Tagged(header)) => {
            let len = offender.and_then(|offender| usize::from(offender.segment_len).checked_sub(TAGGED_LEN));
            open.iter().find(|o| writes_segment(o, &header, len.unwrap_or(0)))
        }
        Some(Header::Untagged(Untagged { queue: QUEUE_ATOMIC, .. })) => return None,
        Some(Header::Untagged(Untagged { queue: QUEUE_SEND, msn, .. })) => {
            open.iter().find(|o| msn.wrapping_sub(o.sends.0) < o.sends.1)
        }
        Some(Header::Untagged(Untagged { queue: QUEUE_REQUEST, msn, .. })) => {
            open.iter().find(|o| o.request == Some(msn))
        }
        _ => None,
    };
    let protection = terminate.code.is_protection();
    let likely = || {
        open.iter().find(|o| match o.effect {
            PeerEffect::Send => !protection,
            PeerEffect::WriteAndSend { .. } => true,
            PeerEffect::Write { .. } | PeerEffect::Fetch => protection,
        })
    };
    exact.or_else(likely).or_else(|| open.first())
}

/// Whether a request writes such a segment of `len` bytes. Only a zero-length request has a segment without payload,
/// and a segment ends its message where the request's range ends.
fn writes_segment(open: &OpenRequest, segment: &Tagged, len: usize) -> bool {
    let (PeerEffect::Write { stag, to } | PeerEffect::WriteAndSend { stag, to }) = open.effect else {
        return false;
    };
    let end = segment.to.wrapping_sub(to).checked_add(len as u64);
    let fits = end.is_some_and(|end| end <= open.len.into() && segment.last == (end == u64::from(open.len)));
    stag == segment.stag && fits && (len > 0) == (open.len > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminate::Offender;
    use crate::wire::InlineBytes;

    fn about(code: TerminateCode, header: &Header, payload: usize) -> Terminate {
        let mut bytes = InlineBytes::new();
        header.emit(&mut bytes);
        let segment_len = (header.len() + payload) as u16;
        Terminate { code, offender: Some(Offender { segment_len, header: bytes, read_request: None }) }
    }

    fn write_at(to: u64, last: bool, payload: usize) -> Terminate {
        let header = Tagged { last, ulp: Opcode::Write.control(), stag: 9, to };
        about(TerminateCode::TAGGED_BOUNDS, &Header::Tagged(header), payload)
    }

    fn message(opcode: Opcode, msn: u32) -> Terminate {
        let queue = opcode.queue().expect("untagged");
        let header = Untagged { last: true, ulp: opcode.control(), ulp_word: 0, queue, msn, mo: 0 };
        about(TerminateCode::UNTAGGED_NO_BUFFER, &Header::Untagged(header), 8)
    }

    fn write(number: u64, to: u64, len: u32) -> OpenRequest {
        OpenRequest { number, effect: PeerEffect::Write { stag: 9, to }, len, sends: (1, 0), request: None }
    }

    fn blame(terminate: &Terminate, open: &[OpenRequest]) -> Option<u64> {
        find_blamed(terminate, open).map(|open| open.number)
    }

    #[test]
    fn a_write_is_found_by_its_range() {
        let open = [write(1, 100, 50), write(2, 200, 50), write(3, 200, 50)];
        for (to, last, payload, number) in [(100, true, 50, 1), (116, false, 8, 1), (200, false, 16, 2)] {
            assert_eq!(blame(&write_at(to, last, payload), &open), Some(number), "at {to}");
        }
    }

    /// Goal: a valid neighbouring write is not blamed. Method: some writes begin where the bad one begins, or end
    /// where it ends, but none has such a segment.
    #[test]
    fn neighbouring_writes_are_not_blamed() {
        let open = [write(1, 100, 0), write(2, 100, 8), write(3, 92, 8), write(4, 100, 16)];
        assert_eq!(blame(&write_at(100, true, 16), &open), Some(4));
        assert_eq!(blame(&write_at(100, true, 8), &open), Some(2));
        assert_eq!(blame(&write_at(100, true, 0), &open), Some(1), "its version may be wrong");
    }

    #[test]
    fn messages_are_found_by_their_numbers_which_wrap() {
        let send = |number, first, count| OpenRequest {
            effect: PeerEffect::Send,
            sends: (first, count),
            ..write(number, 0, 8)
        };
        let fetch = |number, msn| OpenRequest {
            effect: PeerEffect::Fetch,
            request: Some(msn),
            ..write(number, 0, 8)
        };
        let open = [write(1, 100, 50), send(2, u32::MAX, 2), send(3, 1, 1), fetch(4, 7), fetch(5, 8)];
        for (opcode, msn, number) in [
            (Opcode::Send, 1, 3),
            (Opcode::Send, 0, 2),
            (Opcode::SendSolicited, u32::MAX, 2),
            (Opcode::ReadRequest, 8, 5),
            (Opcode::AtomicRequest, 7, 4),
        ] {
            assert_eq!(blame(&message(opcode, msn), &open), Some(number), "{opcode:?} {msn}");
        }
        assert_eq!(blame(&message(Opcode::Send, 77), &open), Some(2), "the first send");
    }

    #[test]
    fn without_a_header_the_likely_one_is_blamed() {
        let send = OpenRequest { effect: PeerEffect::Send, sends: (1, 1), ..write(2, 0, 8) };
        let open = [write(1, 0, 8), send, write(3, 0, 8)];
        assert_eq!(blame(&Terminate::new(TerminateCode::TAGGED_STAG_INVALID), &open), Some(1));
        assert_eq!(blame(&Terminate::new(TerminateCode::STREAM_CATASTROPHIC), &open), Some(2));
        assert_eq!(blame(&Terminate::new(TerminateCode::LLP_CRC), &[]), None);
    }

    /// Goal: a receipt covers the messages that it counts and nothing after them; a fetch still needs its response.
    /// Method: every count, also across the wrap, and impossible counts.
    #[test]
    fn receipts_cover_what_they_count() {
        let send = OpenRequest { effect: PeerEffect::Send, sends: (1, 2), ..write(3, 0, 8) };
        let both = OpenRequest {
            effect: PeerEffect::WriteAndSend { stag: 9, to: 0 },
            sends: (3, 1),
            ..write(4, 0, 8)
        };
        let fetch = OpenRequest { effect: PeerEffect::Fetch, request: Some(1), ..write(5, 0, 8) };
        let open = [write(1, 0, 8), write(2, 0, 0), send, both, fetch, write(6, 0, 8)];
        for earlier in [0, 7, u32::MAX - 2] {
            let by = |n: u32| count_arrived(Some(earlier.wrapping_add(n)), earlier, &open);
            assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8].map(by), [0, 2, 2, 3, 3, 4, 4, 4, 0], "earlier {earlier}");
            assert_eq!((by(u32::MAX), count_arrived(None, earlier, &open)), (0, 0));
        }
        for messages in [0, 1, 0x1234_5678, u32::MAX] {
            let to = encode_receipt(messages);
            assert_eq!(decode_receipt(to), Some(messages));
            assert!((0..64).all(|bit| decode_receipt(to ^ 1 << bit).is_none()), "a flipped bit shows");
        }
    }

    /// Goal: a Terminate about a response blames no request.
    #[test]
    fn terminate_about_response_blames_no_request() {
        let open = [write(1, 100, 50)];
        let header = Tagged { last: true, ulp: Opcode::ReadResponse.control(), stag: 9, to: 100 };
        assert_eq!(blame(&about(TerminateCode::TAGGED_BOUNDS, &Header::Tagged(header), 50), &open), None);
        assert_eq!(blame(&message(Opcode::AtomicResponse, 1), &open), None);
    }
}
