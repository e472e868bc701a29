//! Data path: predicts the segments after the current one of a long Send, so that a driver can read several segments from
//! the socket straight into place with one system call. A sender cuts all segments but the last alike.

use super::receiver::{CurrentSegment, ParseState, Receiver};
use crate::ddp::{Header, QUEUE_SEND, UNTAGGED_LEN};
use crate::mpa::{CRC_LEN, LENGTH_LEN, pad};

/// The most bytes between the payloads of two segments of a Send: trailer, length and header.
pub const GAP_MAX: usize = 3 + CRC_LEN + LENGTH_LEN + UNTAGGED_LEN;

/// Bytes between the payload of a segment of a Send, which has `len` bytes, and that of the next segment.
pub const fn gap_len(len: usize) -> usize {
    pad(UNTAGGED_LEN + len) + CRC_LEN + LENGTH_LEN + UNTAGGED_LEN
}

impl Receiver {
    /// Bytes of payload of the current segment, if it is part of a Send, another segment of the message follows, and FPDUs have no
    /// CRCs. No event comes between the two segments; so not for the first FPDU, after which this side is ready.
    #[inline]
    pub fn continued_segment(&self) -> Option<usize> {
        let is_continued = self.parse_state == ParseState::Payload
            && self.current == CurrentSegment::Send { last: false }
            && !self.config.crc
            && !self.first;
        is_continued.then_some(self.payload_len as usize)
    }

    /// Whether the bytes after the payload of the current segment are those before the payload of the next segment of the same
    /// message, which has `len` bytes. Everything else about the header is checked when it is passed to the receiver.
    #[inline]
    pub fn is_continued_by(&self, gap: &[u8], len: usize) -> bool {
        let (Some(payload_len), Some(message)) = (self.continued_segment(), &self.message) else {
            return false;
        };
        let Some(next) = gap.get(gap_len(payload_len) - LENGTH_LEN - UNTAGGED_LEN..) else { return false };
        let Some((length, header)) = next.split_first_chunk() else { return false };
        match Header::parse(header) {
            Some(Header::Untagged(header)) => {
                usize::from(u16::from_be_bytes(*length)) == UNTAGGED_LEN + len
                    && (header.queue, header.msn) == (QUEUE_SEND, self.msn[QUEUE_SEND as usize])
                    && header.mo == message.received + self.payload_len
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rx::{AccessError, Lookup, ReceiverConfig, ReceiverStep};
    use crate::tx::{Op, OpKind, Sender, SenderConfig, Transmit};

    /// A receive for any message.
    struct AnyReceive;

    impl Lookup for AnyReceive {
        fn check_write(&mut self, _: u32, _: u64, _: u32) -> Result<(), AccessError> {
            Ok(())
        }

        fn check_read_sink(&mut self, _: u64, _: u32, _: u32) -> Result<(), AccessError> {
            Err(AccessError::Invalid)
        }

        fn check_read_source(&mut self, _: u32, _: u64, _: u32) -> Result<(), AccessError> {
            Err(AccessError::Invalid)
        }

        fn check_atomic(&mut self, _: u32, _: u64) -> Result<(), AccessError> {
            Err(AccessError::Invalid)
        }

        fn check_invalidate(&mut self, _: u32) -> Result<(), AccessError> {
            Err(AccessError::CannotInvalidate)
        }

        fn take_receive(&mut self, _: u32) -> Option<u32> {
            Some(u32::MAX)
        }
    }

    /// The FPDUs of an operation: their bytes, and the length of their payload.
    fn stream(kind: OpKind) -> Vec<(Vec<u8>, usize)> {
        let config =
            SenderConfig { crc: false, ird: 1, ord: 1, queue: 1, mulpdu: 1000, held: false, rtr: None };
        let mut sender = Sender::new(config);
        sender.post(Op { id: 1, kind, fence: false }).expect("room");
        let fpdus = std::iter::from_fn(|| match sender.poll() {
            Some(Transmit::Fpdu(fpdu)) => Some(fpdu),
            _ => None,
        });
        let written = fpdus.map(|fpdu| {
            let (mut bytes, len) = (Vec::new(), fpdu.payload.len());
            let done: Result<(), ()> = fpdu.write(&mut bytes, |to| {
                to.resize(to.len() + len, 7);
                Ok(())
            });
            done.expect("written");
            (bytes, len)
        });
        written.collect()
    }

    /// A receiver that asks for the payload of the first FPDU.
    fn receiver_in_payload(first: &[u8]) -> Receiver {
        let mut receiver = Receiver::new(ReceiverConfig { crc: false, ird: 1, ord: 1, rtr: None });
        receiver.first = false;
        let mut bytes = first;
        while let ReceiverStep::Bytes(n) = receiver.poll(&mut AnyReceive).expect("valid") {
            receiver.feed(&bytes[..n]);
            bytes = &bytes[n..];
        }
        receiver
    }

    /// Goal: the bytes between two segments of a Send are recognized, and nothing else is. Method: the real ones; each byte of the
    /// header that names the segment changed; another length; too few bytes.
    #[test]
    fn next_segment_of_a_send_is_recognized() {
        let fpdus = stream(OpKind::Send { len: 2500, solicited: false, invalidate: None });
        let [(first, len), (second, next), _] = &fpdus[..] else { panic!("{} segments", fpdus.len()) };
        let receiver = receiver_in_payload(first);
        assert_eq!(receiver.continued_segment(), Some(*len));
        let mut first_of_all = receiver_in_payload(first);
        first_of_all.first = true;
        assert_eq!(first_of_all.continued_segment(), None);
        let trailer = &first[LENGTH_LEN + UNTAGGED_LEN + len..];
        let gap = [trailer, &second[..LENGTH_LEN + UNTAGGED_LEN]].concat();
        assert!(gap.len() == gap_len(*len) && gap.len() <= GAP_MAX);
        assert!(receiver.is_continued_by(&gap, *next));
        assert!(!receiver.is_continued_by(&gap, next - 1));
        assert!(!receiver.is_continued_by(&gap[..gap.len() - 1], *next));
        let header = trailer.len() + LENGTH_LEN;
        // The length, the queue, the number and the offset.
        for at in (trailer.len()..header).chain(header + 6..header + UNTAGGED_LEN) {
            let mut changed = gap.clone();
            changed[at] ^= 1;
            assert!(!receiver.is_continued_by(&changed, *next), "byte {at}");
        }
    }

    #[test]
    fn nothing_follows_last_segments_and_writes() {
        let send = stream(OpKind::Send { len: 900, solicited: false, invalidate: None });
        let write = stream(OpKind::Write { stag: 1, to: 0, len: 2500 });
        for (first, _) in [&send[0], &write[0]] {
            assert_eq!(receiver_in_payload(first).continued_segment(), None);
        }
    }
}
