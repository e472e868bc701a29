//! Data path: peeks at the header of the next FPDU before the receiver is given any of it.
//!
//! A driver that holds a message back until a receive is posted, or that counts the bytes written before an Immediate
//! Data, must know the next FPDU without consuming it. Errors in the header are left to the receiver to report.

use crate::ddp::{Control, Header, QUEUE_SEND, TAGGED_LEN, UNTAGGED_LEN};
use crate::mpa::LENGTH_LEN;
use crate::rdmap::{IMMEDIATE_LEN, Opcode};

/// The kind of the next FPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FpduKind {
    /// A segment of an RDMA Write.
    Write {
        /// Its payload in bytes.
        len: u32,
        /// This is the last segment of its message.
        last: bool,
    },
    /// Another tagged segment.
    Tagged,
    /// The first segment of a Send, in any of its four forms: the message consumes a receive.
    Send {
        /// Payload of this segment in bytes.
        len: u32,
    },
    /// Immediate Data; it consumes a receive, too.
    Immediate([u8; IMMEDIATE_LEN]),
    /// Another untagged segment: it consumes no receive of its own, or the receiver will reject it.
    Untagged,
}

impl FpduKind {
    /// Classifies the FPDU that begins at the first of `bytes`; `None` if there are too few bytes.
    #[inline]
    pub fn peek(bytes: &[u8]) -> Option<Self> {
        let &[high, low, ddp, rdmap] = bytes.first_chunk()?;
        let ulpdu_len = usize::from(u16::from_be_bytes([high, low]));
        let (control, opcode) = (Control::parse(ddp), Opcode::parse(rdmap));
        if control.tagged {
            // A length field has 16 bits.
            let len = ulpdu_len.saturating_sub(TAGGED_LEN) as u32;
            let write = Self::Write { len, last: control.last };
            return Some(if opcode == Some(Opcode::Write) { write } else { Self::Tagged });
        }
        let immediate = match opcode {
            Some(Opcode::Immediate | Opcode::ImmediateSolicited) => true,
            Some(opcode) if opcode.queue() == Some(QUEUE_SEND) => false,
            _ => return Some(Self::Untagged),
        };
        let wanted = UNTAGGED_LEN + if immediate { IMMEDIATE_LEN } else { 0 };
        if ulpdu_len < wanted {
            // The receiver will reject it.
            return Some(Self::Untagged);
        }
        let segment = bytes.get(LENGTH_LEN..LENGTH_LEN + wanted)?;
        match Header::parse(segment)? {
            Header::Untagged(header) if (header.queue, header.mo) == (QUEUE_SEND, 0) => {
                let len = (ulpdu_len - UNTAGGED_LEN) as u32;
                let data = segment.get(UNTAGGED_LEN..).and_then(|data| data.try_into().ok());
                Some(data.map_or(Self::Send { len }, Self::Immediate))
            }
            _ => Some(Self::Untagged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx::{Op, OpKind, Sender, SenderConfig, Transmit};

    /// The FPDUs that a sender makes from `kinds`, as bytes.
    fn stream(mulpdu: u16, kinds: &[OpKind]) -> Vec<Vec<u8>> {
        let config = SenderConfig { crc: false, ird: 1, ord: 4, queue: 8, mulpdu, held: false, rtr: None };
        let mut sender = Sender::new(config);
        for &kind in kinds {
            sender.post(Op { id: 1, kind, fence: false }).expect("room");
        }
        let fpdus = std::iter::from_fn(|| match sender.poll() {
            Some(Transmit::Fpdu(fpdu)) => {
                let mut bytes = Vec::new();
                let nothing: Result<(), ()> = fpdu.write(&mut bytes, |to| {
                    to.resize(to.len() + fpdu.payload.len(), 7);
                    Ok(())
                });
                nothing.expect("the payload is there");
                Some(bytes)
            }
            _ => None,
        });
        fpdus.collect()
    }

    /// Goal: every kind of message is recognized correctly, as soon as enough bytes are there and not before.
    #[test]
    fn peek_classifies_all_messages() {
        let send = |len| OpKind::Send { len, solicited: len > 100, invalidate: None };
        let write = |len| OpKind::Write { stag: 5, to: 9, len };
        let data = [1, 2, 3, 4, 5, 6, 7, 8];
        let nothing =
            crate::rdmap::ReadRequest { sink_stag: 1, sink_to: 0, len: 0, source_stag: 1, source_to: 0 };
        let kinds = [
            send(0),
            send(200),
            write(3),
            write(300),
            OpKind::Immediate { data, solicited: true },
            OpKind::Read(nothing),
        ];
        let room = 256 - TAGGED_LEN as u32;
        let long = room - room % 8;
        let wanted = [
            (FpduKind::Send { len: 0 }, 20),
            (FpduKind::Send { len: 200 }, 20),
            (FpduKind::Write { len: 3, last: true }, 4),
            (FpduKind::Write { len: long, last: false }, 4),
            (FpduKind::Write { len: 300 - long, last: true }, 4),
            (FpduKind::Immediate(data), 28),
            (FpduKind::Untagged, 4),
        ];
        let fpdus = stream(256, &kinds);
        assert_eq!(fpdus.len(), wanted.len());
        for (fpdu, (front, need)) in fpdus.iter().zip(wanted) {
            assert_eq!(FpduKind::peek(&fpdu[..need - 1]), None, "{front:?}");
            assert_eq!((FpduKind::peek(&fpdu[..need]), FpduKind::peek(fpdu)), (Some(front), Some(front)));
        }
    }

    /// A later segment of a Send consumes no receive, and an FPDU that is too short for a Send is left to the
    /// receiver.
    #[test]
    fn peek_later_segments_need_no_receive() {
        let long = stream(128, &[OpKind::Send { len: 200, solicited: false, invalidate: None }]);
        assert_eq!(long.iter().map(|fpdu| FpduKind::peek(fpdu)).collect::<Vec<_>>(), {
            let room = 128 - UNTAGGED_LEN as u32;
            [Some(FpduKind::Send { len: room - room % 8 }), Some(FpduKind::Untagged)]
        });
        let mut short = long[0].clone();
        short[..2].copy_from_slice(&17_u16.to_be_bytes());
        assert_eq!(FpduKind::peek(&short), Some(FpduKind::Untagged));
        short[2] = 0x81;
        assert_eq!(FpduKind::peek(&short), Some(FpduKind::Tagged), "tagged, and not a Write");
    }
}
