//! Data path: receiving. What the protocol machine asks about memory, answered from the tables of the device.

use iwarp::rx::{Lookup, Refusal};
use verbs::{Access, Sge};

use super::place;
use super::qp::QpInner;
use super::queue::Receive;
use crate::pieces::Pieces;

/// What was wrong on this side with what the peer sent in good faith.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The receive does not allow to be written to.
    Receive,
    /// Neither does the memory that this request fetches into.
    Sink(u64),
}

/// Which receive the message under way takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// One that its payload goes into.
    Buffer,
    /// One, of which only the completion matters.
    Completion,
    /// None: it belongs to the send behind it.
    Nothing,
}

/// Answers for one connection, while its stage is held.
pub(super) struct Rights<'a> {
    pub(super) qp: &'a QpInner,
    /// The receive that was taken for the message, if there was one.
    pub(super) receive: Option<&'a Receive>,
    pub(super) takes: Takes,
    pub(super) fault: Option<Fault>,
}

impl QpInner {
    /// Where the part `[from, from + len)` of local pieces is; `None` if a key, a range or a right does not allow it.
    pub(super) fn local(&self, sges: &[Sge], need: Access, from: u64, len: u64) -> Option<Pieces> {
        let (mut pieces, mut from, mut len) = (Pieces::new(), from, len);
        for sge in sges {
            let size = u64::from(sge.length);
            let take = size.saturating_sub(from).min(len);
            if take > 0 {
                let addr = sge.addr.checked_add(from)?;
                let at = self.device.regions.find(sge.lkey, self.pd, need, addr, take).ok()?;
                pieces.push(at, take);
                len -= take;
            }
            from = from.saturating_sub(size);
        }
        (len == 0).then_some(pieces)
    }

    /// Where a part of a request's local data is.
    pub(super) fn local_of(&self, number: u64, need: Access, from: u64, len: u64) -> Option<Pieces> {
        let queue = self.send.lock();
        if queue.get(number).inline {
            let mut pieces = Pieces::new();
            pieces.push(queue.inline(number).wrapping_add(from as usize), len);
            return Some(pieces);
        }
        self.local(queue.sges(number), need, from, len)
    }

    /// Whether all of a request's local memory may be used.
    pub(super) fn may_use(&self, number: u64, need: Access) -> bool {
        let queue = self.send.lock();
        let allowed = |sge: &Sge| {
            let len = u64::from(sge.length);
            len == 0 || self.device.regions.find(sge.lkey, self.pd, need, sge.addr, len).is_ok()
        };
        queue.get(number).inline || queue.sges(number).iter().all(allowed)
    }

    /// Copies a part of a request's local data; `None` if a key, a range or a right does not allow it.
    pub(super) fn append_local(&self, number: u64, offset: u32, len: u32, to: &mut Vec<u8>) -> Option<()> {
        let queue = self.send.lock();
        if queue.get(number).inline {
            place::append(queue.inline(number).wrapping_add(offset as usize), len as usize, to);
            return Some(());
        }
        let pieces = self.local(queue.sges(number), Access::empty(), offset.into(), len.into())?;
        for piece in pieces.as_slice() {
            place::append(piece.iov_base.cast(), piece.iov_len, to);
        }
        Some(())
    }

    /// Where a part of a peer's target or source is.
    pub(super) fn remote(&self, stag: u32, need: Access, to: u64, len: u64) -> Result<Pieces, Refusal> {
        let at = self.device.regions.find(stag, self.pd, need, to, len)?;
        let mut pieces = Pieces::new();
        pieces.push(at, len);
        Ok(pieces)
    }
}

impl Lookup for Rights<'_> {
    fn write(&mut self, stag: u32, to: u64, len: u32) -> Result<(), Refusal> {
        self.qp.remote(stag, Access::REMOTE_WRITE, to, len.into()).map(drop)
    }

    fn read_sink(&mut self, id: u64, offset: u32, len: u32) -> Result<(), Refusal> {
        // Operations are named by twice the number of their request, and one.
        match self.qp.local_of(id >> 1, Access::LOCAL_WRITE, offset.into(), len.into()) {
            Some(_) => Ok(()),
            None => {
                self.fault = Some(Fault::Sink(id >> 1));
                Err(Refusal::Access)
            }
        }
    }

    fn read_source(&mut self, stag: u32, to: u64, len: u32) -> Result<(), Refusal> {
        self.qp.remote(stag, Access::REMOTE_READ, to, len.into()).map(drop)
    }

    fn atomic(&mut self, stag: u32, to: u64) -> Result<(), Refusal> {
        let at = self.qp.device.regions.find(stag, self.qp.pd, Access::REMOTE_ATOMIC, to, 8)?;
        // A region may begin at an odd address.
        if at.cast::<u64>().is_aligned() { Ok(()) } else { Err(Refusal::Unaligned) }
    }

    fn invalidate(&mut self, stag: u32) -> Result<(), Refusal> {
        match self.qp.device.regions.may_invalidate(stag, self.qp.pd) {
            Ok(()) => Ok(()),
            Err(Refusal::NotAssociated) => Err(Refusal::CannotInvalidate),
            Err(why) => Err(why),
        }
    }

    fn receive(&mut self, _msn: u32) -> Option<u32> {
        if self.takes == Takes::Nothing {
            return Some(0);
        }
        let sges = &self.receive?.sges;
        let room = sges.total();
        let checked = self.takes == Takes::Buffer;
        if checked && self.qp.local(sges.as_slice(), Access::LOCAL_WRITE, 0, room).is_none() {
            self.fault = Some(Fault::Receive);
        }
        Some(u32::try_from(room).unwrap_or(u32::MAX))
    }
}
