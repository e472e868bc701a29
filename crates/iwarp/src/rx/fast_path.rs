//! Data path: the fast path for a complete FPDU that is a whole message or a segment of a Write.
//!
//! It has the same effect as [`Receiver::poll`] and the calls that `poll` asks for, in one step and with one memory
//! lookup. In any doubtful case it does nothing, and the FPDU takes the normal path, which reports the error.

use super::count::BufferModel;
use super::receiver::{ParseState, Receiver};
use super::{FpduKind, Received, ReceivedKind};
use crate::crc::Crc;
use crate::ddp::{self, Control, Header, QUEUE_SEND};
use crate::mpa::{CRC_LEN, LENGTH_LEN, fpdu_len};
use crate::rdmap::{self, Opcode};
use crate::wire::wraps;

/// A segment, split into header and payload.
struct Segment<'a> {
    header: Header,
    opcode: Opcode,
    payload: &'a [u8],
    /// Bytes of the whole FPDU.
    fpdu_len: usize,
}

impl Receiver {
    /// Consumes a segment of an RDMA Write with payload, if `bytes` begin with a complete one. `place` is called once
    /// with tag, offset and payload; it places the payload if the peer may write there, and returns whether it did.
    /// Returns the number of bytes consumed and the kind of FPDU.
    #[inline]
    pub fn take_write(
        &mut self,
        bytes: &[u8],
        place: impl FnOnce(u32, u64, &[u8]) -> bool,
    ) -> Option<(usize, FpduKind)> {
        let Segment { header, opcode, payload, fpdu_len } = self.whole_segment(bytes)?;
        let Header::Tagged(header) = header else { return None };
        // A length field has 16 bits.
        let len = payload.len() as u32;
        let sound = opcode == Opcode::Write && len > 0 && !wraps(header.to, len);
        if !sound || !place(header.stag, header.to, payload) {
            return None;
        }
        self.deliver(BufferModel::Tagged, header.last);
        Some((fpdu_len, FpduKind::Write { len, last: header.last }))
    }

    /// Consumes a Send of one segment without invalidation, if `bytes` begin with a complete one. `place` is called
    /// once with the payload; it places it into the next receive buffer, and returns whether it did. Returns the
    /// number of bytes consumed and the message.
    #[inline]
    pub fn take_send(
        &mut self,
        bytes: &[u8],
        place: impl FnOnce(&[u8]) -> bool,
    ) -> Option<(usize, Received)> {
        let Segment { header, opcode, payload, fpdu_len } = self.whole_segment(bytes)?;
        let Header::Untagged(header) = header else { return None };
        let msn = self.msn[QUEUE_SEND as usize];
        let sound = matches!(opcode, Opcode::Send | Opcode::SendSolicited)
            && (header.queue, header.msn, header.mo) == (QUEUE_SEND, msn, 0)
            && header.last
            && self.message.is_none();
        if !sound || !place(payload) {
            return None;
        }
        self.advance_msn(QUEUE_SEND);
        self.deliver(BufferModel::Untagged, true);
        let kind = ReceivedKind::Send { len: payload.len() as u32, invalidate: None };
        Some((fpdu_len, Received { msn, solicited: opcode.is_solicited(), kind }))
    }

    /// The FPDU at the start of `bytes`, if it is complete, its CRC is right, and the receiver is between FPDUs.
    #[inline]
    fn whole_segment<'a>(&self, bytes: &'a [u8]) -> Option<Segment<'a>> {
        // The first FPDU takes the normal path because it also makes this side ready.
        if self.first || !self.begins_fpdu() || self.config.crc != (self.parse_state == ParseState::Check) {
            return None;
        }
        let ulpdu_len = usize::from(u16::from_be_bytes(*bytes.first_chunk()?));
        let fpdu = bytes.get(..fpdu_len(ulpdu_len))?;
        let segment = fpdu.get(LENGTH_LEN..LENGTH_LEN + ulpdu_len)?;
        let header = Header::parse(segment)?;
        let ulp = match header {
            Header::Tagged(header) => header.ulp,
            Header::Untagged(header) => header.ulp,
        };
        let opcode = Opcode::parse(ulp)?;
        if Control::parse(segment[0]).version != ddp::VERSION || rdmap::version(ulp) != rdmap::VERSION {
            return None;
        }
        let (covered, crc) = fpdu.split_at(fpdu.len() - CRC_LEN);
        if self.config.crc && Crc::compute(covered).to_wire() != *crc {
            return None;
        }
        Some(Segment { header, opcode, payload: &segment[header.len()..], fpdu_len: fpdu.len() })
    }

    /// Records a good FPDU; with the `last` one of a message, the message has been received.
    #[inline]
    fn deliver(&mut self, model: BufferModel, last: bool) {
        self.count.count_delivered();
        self.count.segment(model, last, true);
        self.receipt = None;
    }
}
