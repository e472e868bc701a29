//! Data path: sending. The short way of a small write or send that nothing stands before: from the request to its bytes.
//!
//! It does what the long way does, without an operation in the machine's queue and an FPDU as a value; a message of 8 bytes
//! takes about half of the instructions. On any doubt nothing has happened, and the request goes the long way.

use iwarp::crc::Crc;
use iwarp::tx::OpKind;
use verbs::{SendFlags, SendOp, WcStatus};

use super::messages::check_local;
use super::outbox::SMALL_MAX;
use super::qp::QpInner;
use super::queue::Request;
use super::stream::Stream;

impl Stream {
    /// Writes the next request out; whether it went this way.
    #[inline]
    pub(super) fn begin_short(&mut self, qp: &QpInner, number: u64, request: &Request) -> bool {
        let Some(link) = &mut self.link else { return false };
        let len = request.len;
        if len as usize > SMALL_MAX || request.flags.contains(SendFlags::FENCE) {
            return false;
        }
        let kind = match request.op {
            SendOp::Write(to) => OpKind::Write { stag: to.rkey, to: to.addr, len },
            SendOp::Send => {
                let solicited = request.flags.contains(SendFlags::SOLICITED);
                OpKind::Send { len, solicited, invalidate: None }
            }
            _ => return false,
        };
        if check_local(qp, number, request).is_err() {
            return false;
        }
        let Some(header) = link.connection.begin_at_once(&kind) else { return false };
        let crc = link.connection.checks_crc();
        let outgoing = &mut link.outgoing;
        let written = outgoing.append_short(number, |to| {
            let at = to.len();
            to.extend_from_slice(&header);
            qp.append_local(number, 0, len, to).ok_or(())?;
            // RFC 5044 section 4.1: zeros up to a multiple of four, then the CRC of all of it, or zero.
            to.resize(at + (to.len() - at).next_multiple_of(4), 0);
            let sum = if crc { Crc::of(&to[at..]).to_wire() } else { [0; 4] };
            to.extend_from_slice(&sum);
            Ok(())
        });
        match written {
            Ok(()) => outgoing.begun(qp, number, request),
            // The memory has gone since it was checked.
            Err(()) => outgoing.fail(number, WcStatus::LocProtErr),
        }
        true
    }
}
