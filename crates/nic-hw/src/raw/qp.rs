//! [`HwQp`]: queue pairs, their states, and the requests that they are given.
//!
//! Data path: requests are translated on the stack and posted through the context's table.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdma_abi::numbers as n;
use rdma_abi::verbs::*;
use verbs::{QpCap, RecvWr, SendWr};

use super::check;
use super::cq::HwCq;
use super::memory::Domain;
use super::request::{inline_piece, receive, request};
use super::srq::HwSrq;

/// Requests of a list that are posted with one call.
const BATCH: usize = 16;

/// What a queue pair is created from.
pub(crate) struct HwQpInit {
    pub(crate) send_cq: Arc<HwCq>,
    pub(crate) recv_cq: Arc<HwCq>,
    pub(crate) srq: Option<Arc<HwSrq>>,
    pub(crate) cap: QpCap,
    pub(crate) sq_sig_all: bool,
}

/// A reliable connected queue pair.
pub(crate) struct HwQp {
    at: NonNull<ibv_qp>,
    /// The card's number of it.
    pub(crate) number: u32,
    /// The sizes that the card gave it; none is smaller than requested.
    pub(crate) cap: QpCap,
    domain: Arc<Domain>,
    _parts: HwQpInit,
}

// SAFETY: functions of libibverbs may be called by any thread, at the same time. Test: the group `threads` of the
// suite in crates/abi-verbs/tests/hw_on_shm.rs.
unsafe impl Send for HwQp {}
// SAFETY: as above.
unsafe impl Sync for HwQp {}

/// Attributes of a queue pair, all zero.
pub(crate) fn no_attributes() -> ibv_qp_attr {
    // SAFETY: numbers and arrays of numbers, which may be zero. Test: crates/abi-verbs/tests/hw_on_shm.rs, as for
    // all blocks of this file.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

impl HwQp {
    /// A queue pair in state RESET.
    pub(crate) fn new(domain: &Arc<Domain>, parts: HwQpInit) -> io::Result<Self> {
        let cap = parts.cap;
        let (max_recv_wr, max_recv_sge) =
            if parts.srq.is_some() { (0, 0) } else { (cap.max_recv_wr, cap.max_recv_sge) };
        let mut init = ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: parts.send_cq.as_ptr(),
            recv_cq: parts.recv_cq.as_ptr(),
            srq: parts.srq.as_ref().map_or(null_mut(), |srq| srq.as_ptr()),
            cap: ibv_qp_cap {
                max_send_wr: cap.max_send_wr,
                max_recv_wr,
                max_send_sge: cap.max_send_sge,
                max_recv_sge,
                max_inline_data: cap.max_inline,
            },
            qp_type: n::IBV_QPT_RC.cast_signed(),
            sq_sig_all: parts.sq_sig_all.into(),
        };
        // SAFETY: the domain and the queues exist, and belong to one context; the result is NULL or a queue pair.
        let (at, number) = unsafe {
            let at = (domain.context.calls.verbs.ibv_create_qp)(domain.as_ptr(), &raw mut init);
            let at = NonNull::new(at).ok_or_else(io::Error::last_os_error)?;
            (at, at.as_ref().qp_num)
        };
        let cap = QpCap {
            max_send_wr: init.cap.max_send_wr.max(cap.max_send_wr),
            max_recv_wr: init.cap.max_recv_wr.max(cap.max_recv_wr),
            max_inline: init.cap.max_inline_data.max(cap.max_inline),
            ..cap
        };
        Ok(Self { at, number, cap, domain: domain.clone(), _parts: parts })
    }

    fn as_ptr(&self) -> *mut ibv_qp {
        self.at.as_ptr()
    }

    /// Changes the attributes in the mask.
    pub(crate) fn modify(&self, mut attr: ibv_qp_attr, mask: u32) -> io::Result<()> {
        let modify = self.domain.context.calls.verbs.ibv_modify_qp;
        // SAFETY: the queue pair exists.
        check(unsafe { modify(self.as_ptr(), &raw mut attr, mask.cast_signed()) })
    }

    /// Moves it from RESET to INIT, with all rights that peers can have.
    pub(crate) fn to_init(&self, port: u8, access: u32) -> io::Result<()> {
        let mut attr = no_attributes();
        attr.qp_state = n::IBV_QPS_INIT.cast_signed();
        (attr.port_num, attr.qp_access_flags) = (port, access);
        self.modify(attr, n::IBV_QP_STATE | n::IBV_QP_PKEY_INDEX | n::IBV_QP_PORT | n::IBV_QP_ACCESS_FLAGS)
    }

    /// Moves it to another state that needs no attributes: RESET or ERR.
    pub(crate) fn to_state(&self, state: u32) -> io::Result<()> {
        let mut attr = no_attributes();
        attr.qp_state = state.cast_signed();
        self.modify(attr, n::IBV_QP_STATE)
    }

    /// Its state, as the card has it now.
    pub(crate) fn state(&self) -> io::Result<u32> {
        let mut attr = no_attributes();
        let mut init = MaybeUninit::<ibv_qp_init_attr>::zeroed();
        let query = self.domain.context.calls.verbs.ibv_query_qp;
        // SAFETY: the queue pair exists; the function fills both structures in.
        check(unsafe {
            query(self.as_ptr(), &raw mut attr, n::IBV_QP_STATE.cast_signed(), init.as_mut_ptr())
        })?;
        Ok(attr.qp_state.cast_unsigned())
    }

    /// Posts a request.
    #[inline]
    pub(crate) fn post_send(&self, wr: &SendWr<'_>) -> io::Result<()> {
        let mut piece = inline_piece(wr);
        let mut wr = request(wr, &raw mut piece);
        self.post_chain(&raw mut wr).map_err(|(_, why)| why)
    }

    /// Posts requests in order; an error comes with the number of posted ones.
    pub(crate) fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, io::Error)> {
        for (batch, some) in wrs.chunks(BATCH).enumerate() {
            let mut pieces = [ibv_sge { addr: 0, length: 0, lkey: 0 }; BATCH];
            let mut chain = [const { MaybeUninit::<ibv_send_wr>::uninit() }; BATCH];
            let first = chain.as_mut_ptr().cast::<ibv_send_wr>();
            for (at, wr) in some.iter().enumerate() {
                pieces[at] = inline_piece(wr);
                let mut wr = request(wr, &raw mut pieces[at]);
                wr.next = if at + 1 < some.len() { first.wrapping_add(at + 1) } else { null_mut() };
                chain[at].write(wr);
            }
            self.post_chain(first).map_err(|(bad, why)| {
                let posted = bad.addr().saturating_sub(first.addr()) / size_of::<ibv_send_wr>();
                (batch * BATCH + posted.min(some.len()), why)
            })?;
        }
        Ok(())
    }

    /// Posts a chain of requests on the caller's stack; an error comes with the address of the first refused one.
    #[inline]
    fn post_chain(&self, first: *mut ibv_send_wr) -> Result<(), (*mut ibv_send_wr, io::Error)> {
        let mut bad = first;
        // SAFETY: the queue pair exists and belongs to a context with this table; the requests and their elements are
        // read during the call.
        let posted = unsafe {
            match (*(*self.as_ptr()).context).ops.post_send {
                Some(post) => post(self.as_ptr(), first, &raw mut bad),
                None => libc::EOPNOTSUPP,
            }
        };
        check(posted).map_err(|why| (bad, why))
    }

    /// Posts a receive.
    #[inline]
    pub(crate) fn post_recv(&self, wr: &RecvWr<'_>) -> io::Result<()> {
        let (mut wr, mut bad) = (receive(wr), null_mut());
        // SAFETY: as in `post_chain`.
        check(unsafe {
            match (*(*self.as_ptr()).context).ops.post_recv {
                Some(post) => post(self.as_ptr(), &raw mut wr, &raw mut bad),
                None => libc::EOPNOTSUPP,
            }
        })
    }
}

impl Drop for HwQp {
    fn drop(&mut self) {
        if !self.domain.context.is_forked() {
            // SAFETY: no user is left, and its asynchronous events are acknowledged.
            unsafe { (self.domain.context.calls.verbs.ibv_destroy_qp)(self.as_ptr()) };
        }
    }
}
