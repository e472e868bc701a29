//! Data path: the short way. An RDMA write of one piece, between remembered regions, when nothing stands in front
//! of it: the request that latency and message rate depend on most. Everything else, and every doubt, goes the
//! long way (`qp`, `engine`), which alone reports errors.

use std::sync::atomic::Ordering;

use verbs::{Access, Data, SendOp, SendWr, WcStatus};

use super::engine::Inside;
use super::place;
use super::qp::{QpInner, SendSide};

impl QpInner {
    /// Carries out the request, if it is one of those; false if nothing has happened.
    #[inline]
    pub(super) fn express(&self, wr: &SendWr<'_>) -> bool {
        let SendOp::Write(remote) = wr.op else { return false };
        let Some(link) = self.link.get() else { return false };
        let mut side = self.send.lock();
        if !self.is_ready() || side.pending_any() || side.outstanding(self) >= self.send_depth() {
            return false;
        }
        let Some((src, len)) = self.sole_piece(&side, wr) else { return false };
        let inside = Inside::enter(&link.qp.peer.0.busy);
        if !link.is_ready() {
            return false;
        }
        let Some(dst) = side.far.find(remote.rkey, Access::REMOTE_WRITE, remote.addr, len) else {
            return false;
        };
        // SAFETY: both caches vouch for mapped memory of this length, the far one as long as we are inside, the near
        // one as long as we hold the lock. Test: `write` and `memory` of the conformance suite.
        unsafe { place::copy_last_byte_last(dst, src, len as usize) };
        drop(inside);
        self.post_done(&mut side, wr, WcStatus::Success, 0);
        true
    }

    /// The request's local data, if it is one non-empty piece of allowed size.
    #[inline]
    fn sole_piece(&self, side: &SendSide, wr: &SendWr<'_>) -> Option<(*const u8, u64)> {
        match wr.data {
            Data::Sges([sge]) if sge.length > 0 => {
                let len = u64::from(sge.length);
                let fits = len <= self.device.attr.max_msg_size;
                let at = side.near.find(sge.lkey, Access::empty(), sge.addr, len)?;
                fits.then_some((at.cast_const(), len))
            }
            Data::Inline(bytes) if !bytes.is_empty() && bytes.len() <= self.inline_max() => {
                Some((bytes.as_ptr(), bytes.len() as u64))
            }
            _ => None,
        }
    }

    /// Whether requests may be carried out.
    #[inline]
    fn is_ready(&self) -> bool {
        self.shared.status.load(Ordering::Acquire) == self.ready
    }
}
