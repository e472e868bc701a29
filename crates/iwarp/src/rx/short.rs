//! Data path: the short way of an FPDU that has come as a whole, and is a message of its own or a segment of a Write.
//!
//! What it does is what [`Receiver::poll`] and the calls that it asks for come to, in one step and with one question about
//! memory. On any doubt nothing has happened, and the FPDU goes the long way, which says what is wrong with it.

use super::count::Model;
use super::receiver::{Receiver, Stage};
use super::{Front, Received, ReceivedKind};
use crate::crc::Crc;
use crate::ddp::{self, Control, Header, QUEUE_SEND};
use crate::mpa::{CRC_LEN, LENGTH_LEN, fpdu_len};
use crate::rdmap::{self, Opcode};
use crate::wire::wraps;

/// A segment without its header.
struct Segment<'a> {
    header: Header,
    opcode: Opcode,
    payload: &'a [u8],
    /// Bytes of the whole FPDU.
    fpdu_len: usize,
}

impl Receiver {
    /// Takes a segment of an RDMA Write with payload, if `bytes` begin with a whole one: `place` is asked once, with tag,
    /// offset and payload, to put it where it belongs if the peer may write there, and says whether it has. Returns how many
    /// bytes have been taken, and what they began with.
    #[inline]
    pub fn take_write(
        &mut self,
        bytes: &[u8],
        place: impl FnOnce(u32, u64, &[u8]) -> bool,
    ) -> Option<(usize, Front)> {
        let Segment { header, opcode, payload, fpdu_len } = self.whole(bytes)?;
        let Header::Tagged(header) = header else { return None };
        // A length field has 16 bits.
        let len = payload.len() as u32;
        let sound = opcode == Opcode::Write && len > 0 && !wraps(header.to, len);
        if !sound || !place(header.stag, header.to, payload) {
            return None;
        }
        self.deliver(Model::Tagged, header.last);
        Some((fpdu_len, Front::Write { len, last: header.last }))
    }

    /// Takes a Send of one segment that invalidates nothing, if `bytes` begin with a whole one: `place` is asked once, with
    /// the payload, to put it into the next receive buffer, and says whether it has. Returns how many bytes have been taken,
    /// and the message.
    #[inline]
    pub fn take_send(
        &mut self,
        bytes: &[u8],
        place: impl FnOnce(&[u8]) -> bool,
    ) -> Option<(usize, Received)> {
        let Segment { header, opcode, payload, fpdu_len } = self.whole(bytes)?;
        let Header::Untagged(header) = header else { return None };
        let msn = self.msn[QUEUE_SEND as usize];
        let sound = matches!(opcode, Opcode::Send | Opcode::SendSolicited)
            && (header.queue, header.msn, header.mo) == (QUEUE_SEND, msn, 0)
            && header.last
            && self.message.is_none();
        if !sound || !place(payload) {
            return None;
        }
        self.next(QUEUE_SEND);
        self.deliver(Model::Untagged, true);
        let kind = ReceivedKind::Send { len: payload.len() as u32, invalidate: None };
        Some((fpdu_len, Received { msn, solicited: opcode.is_solicited(), kind }))
    }

    /// The FPDU that `bytes` begin with, if it is whole, the machine is between two, and its CRC is right.
    #[inline]
    fn whole<'a>(&self, bytes: &'a [u8]) -> Option<Segment<'a>> {
        // The first FPDU says more than what is in it.
        if self.first || !self.begins_fpdu() || self.config.crc != (self.stage == Stage::Check) {
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
        if self.config.crc && Crc::of(covered).to_wire() != *crc {
            return None;
        }
        Some(Segment { header, opcode, payload: &segment[header.len()..], fpdu_len: fpdu.len() })
    }

    /// An FPDU was good; with it a message has been received if it was the `last` of one.
    #[inline]
    fn deliver(&mut self, model: Model, last: bool) {
        self.count.settle();
        self.count.segment(model, last, true);
        self.receipt = None;
    }
}
