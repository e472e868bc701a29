//! Data path: the short way. An RDMA write of one piece between remembered regions, and a small send of one piece into a
//! waiting receive, when nothing stands in front: the requests that latency and message rate depend on most.
//! Everything else, and every doubt, goes the long way (`qp`, `engine`), which alone reports errors.

use std::sync::atomic::Ordering;

use verbs::{Access, Data, SendFlags, SendOp, SendWr, WcOpcode, WcStatus};

use super::engine::{Inside, News};
use super::layout::{comp, recv};
use super::peer::Link;
use super::place::{self, Pieces};
use super::qp::{QpInner, SendSide};

impl QpInner {
    /// Carries out the request, if it is one of those; false if nothing has happened.
    #[inline]
    pub(super) fn express(&self, wr: &SendWr<'_>) -> bool {
        if !matches!(wr.op, SendOp::Write(_) | SendOp::Send | SendOp::SendImm(_)) {
            return false;
        }
        let Some(link) = self.link.get() else { return false };
        let mut side = self.enter_send();
        if !self.is_ready() || side.pending_any() || side.outstanding(self) >= self.send_depth() {
            return false;
        }
        let Some((src, len)) = self.sole_piece(&side, wr) else { return false };
        let inside = Inside::enter(link);
        if !link.is_ready() {
            return false;
        }
        if let SendOp::Write(remote) = wr.op {
            let far = &side.far;
            let Some(dst) = far.find(remote.rkey, Access::REMOTE_WRITE, remote.addr, len) else {
                return false;
            };
            // SAFETY: both caches vouch for mapped memory of this length, the far one as long as we are inside, the
            // near one as long as we hold the lock. Test: `write` and `memory` of the conformance suite.
            unsafe { place::copy_last_byte_last(dst, src, len as usize) };
            if wr.flags.contains(SendFlags::RING) {
                side.progress.ring_peer(link);
            }
        } else if !self.express_send(&mut side, link, wr, src, len) {
            return false;
        }
        drop(inside);
        self.post_done(&mut side, wr, WcStatus::Success, 0);
        true
    }

    /// Delivers a message that its completion can carry into a waiting receive of the peer's own queue whose first
    /// piece holds it; false if nothing has happened.
    #[inline]
    fn express_send(
        &self,
        side: &mut SendSide,
        link: &Link,
        wr: &SendWr<'_>,
        src: *const u8,
        len: u64,
    ) -> bool {
        let imm = if let SendOp::SendImm(imm) = wr.op { Some(imm) } else { None };
        let Some(receive) = self.waiting_receive(link) else { return false };
        let [_, _, addr, length_key, ..] = receive else { return false };
        let length_key = length_key.load(Ordering::Relaxed);
        let pieces = recv::pieces(receive);
        if pieces == 0 || len > comp::INLINE_MAX as u64 || len > length_key >> 32 {
            return false;
        }
        let (key, addr) = (length_key as u32, addr.load(Ordering::Relaxed));
        if link.peer.table.check(key, link.pd, Access::LOCAL_WRITE, addr, len).is_none() {
            return false;
        }
        let mut local = Pieces::new();
        local.push(src.cast_mut(), len);
        let solicited = wr.flags.contains(SendFlags::SOLICITED);
        let mut news = News::of(WcOpcode::Recv, len, solicited);
        news.imm = imm;
        self.publish(side, link, &news, Some(&local));
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
