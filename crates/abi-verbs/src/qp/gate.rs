//! [`Gate`]: holds requests that a program posts in RTS while its connection is still being set up. Out-of-band pairing has no moment
//! that both sides know, so such requests wait, and are posted in order when the connection is established.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ffi::lock;
use verbs::{Data, Qp, SendFlags, SendOp, SendWr, Sge};

use crate::answer::Answer;
use crate::errno::{Errno, errno};

/// Requests that wait for the connection.
#[derive(Default)]
pub(crate) struct Gate {
    /// Requests are posted directly.
    is_open: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    kept: Vec<Kept>,
    /// Requests are posted directly.
    is_over: bool,
}

/// A copy of a request with its element list or inline data.
struct Kept {
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    data: KeptData,
}

enum KeptData {
    Sges(Vec<Sge>),
    Inline(Vec<u8>),
}

impl Gate {
    /// Posts a request, or keeps it; at most `room` are kept.
    #[inline(always)]
    pub(crate) fn post_one(&self, qp: &Qp, wr: &SendWr<'_>, room: u32) -> Answer {
        if self.is_open.load(Ordering::Acquire) {
            return Ok(qp.post_send(wr)?);
        }
        self.hold_requests(qp, std::slice::from_ref(wr), room).map_err(|(_, why)| why)
    }

    /// Posts the requests, or keeps them; at most `room` are kept.
    ///
    /// # Errors
    /// The number of requests taken, and the error of the next.
    pub(crate) fn post(&self, qp: &Qp, wrs: &[SendWr<'_>], room: u32) -> Result<(), (usize, Errno)> {
        if self.is_open.load(Ordering::Acquire) {
            return qp.post_sends(wrs).map_err(|(posted, why)| (posted, why.into()));
        }
        self.hold_requests(qp, wrs, room)
    }

    #[cold]
    fn hold_requests(&self, qp: &Qp, wrs: &[SendWr<'_>], room: u32) -> Result<(), (usize, Errno)> {
        let mut waiting = lock(&self.waiting);
        // Opened in the meantime.
        if waiting.is_over {
            return qp.post_sends(wrs).map_err(|(posted, why)| (posted, why.into()));
        }
        for (taken, wr) in wrs.iter().enumerate() {
            if waiting.kept.len() >= room as usize {
                let full = errno!(
                    NOMEM,
                    "the send queue is full: {room} requests (cap.max_send_wr) wait for the connection; wait until it is established"
                );
                if fabric::is_checked() {
                    fabric::refuse_checked(qp, wr);
                }
                return Err((taken, full));
            }
            check(qp, wr).map_err(|why| (taken, why))?;
            let data = match wr.data {
                Data::Sges(sges) => KeptData::Sges(sges.to_vec()),
                Data::Inline(bytes) => KeptData::Inline(bytes.to_vec()),
            };
            if fabric::is_checked() {
                fabric::prepare_checked(qp, wr);
            }
            waiting.kept.push(Kept { wr_id: wr.wr_id, op: wr.op, flags: wr.flags, data });
        }
        Ok(())
    }

    /// Posts the requests that waited; later ones are posted directly.
    pub(crate) fn open(&self, qp: &Qp) {
        let mut waiting = lock(&self.waiting);
        for kept in waiting.kept.drain(..) {
            let data = match &kept.data {
                KeptData::Sges(sges) => Data::Sges(sges),
                KeptData::Inline(bytes) => Data::Inline(bytes),
            };
            // Sizes were checked when it was kept, and the queue is empty. Posting can fail only in the wrong state, and then the
            // request is lost with the connection.
            let _ = qp.post_send(&SendWr { wr_id: kept.wr_id, op: kept.op, data, flags: kept.flags });
        }
        waiting.is_over = true;
        self.is_open.store(true, Ordering::Release);
    }
}

/// Checks the sizes of a request, as posting it would.
fn check(qp: &Qp, wr: &SendWr<'_>) -> Answer {
    let cap = &qp.init().cap;
    match wr.data {
        Data::Sges(sges) => {
            verbs::Error::check_limit("the number of SGEs", sges.len() as u64, cap.max_send_sge.into())?;
        }
        Data::Inline(_) if wr.op.fetches() => {
            return Err(errno!(
                INVAL,
                "send_flags has IBV_SEND_INLINE, but the operation fetches data; pass a registered sg_list"
            ));
        }
        Data::Inline(bytes) => {
            verbs::Error::check_limit("inline bytes", bytes.len() as u64, cap.max_inline.into())?;
        }
    }
    Ok(())
}
