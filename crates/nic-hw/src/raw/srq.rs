//! [`HwSrq`]: shared receive queues.
//!
//! Data path: posts through the context's table.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_abi::numbers as n;
use rdma_abi::verbs::*;
use verbs::{RecvWr, SrqInit};

use super::check;
use super::memory::Domain;
use super::request::receive;

/// A shared receive queue.
pub(crate) struct HwSrq {
    at: NonNull<ibv_srq>,
    domain: Arc<Domain>,
    /// The number by which events name it.
    pub(crate) number: u32,
    /// The receives that it holds; the card may round up.
    pub(crate) depth: u32,
}

// SAFETY: functions of libibverbs may be called by any thread, at the same time. Test: the group `threads` of the
// suite in crates/abi-verbs/tests/hw_on_shm.rs.
unsafe impl Send for HwSrq {}
// SAFETY: as above.
unsafe impl Sync for HwSrq {}

impl HwSrq {
    pub(crate) fn new(domain: &Arc<Domain>, init: SrqInit) -> io::Result<Self> {
        let number = domain.context.fresh_number();
        let mark: *mut c_void = std::ptr::without_provenance_mut(number as usize);
        let attr = ibv_srq_attr { max_wr: init.max_wr, max_sge: init.max_sge, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: mark, attr };
        // SAFETY: the domain exists; the mark is only a number. Test: the group `srq` of the suite in
        // crates/abi-verbs/tests/hw_on_shm.rs, as for all blocks of this file.
        let at = unsafe { (domain.context.calls.verbs.ibv_create_srq)(domain.as_ptr(), &raw mut init) };
        let at = NonNull::new(at).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { at, domain: domain.clone(), number, depth: init.attr.max_wr.max(attr.max_wr) })
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_srq {
        self.at.as_ptr()
    }

    #[inline]
    pub(crate) fn post(&self, wr: &RecvWr<'_>) -> io::Result<()> {
        let (mut wr, mut bad) = (receive(wr), std::ptr::null_mut());
        // SAFETY: the queue exists and belongs to a context with this table; the request and its elements are read
        // during the call.
        check(unsafe {
            match (*(*self.as_ptr()).context).ops.post_srq_recv {
                Some(post) => post(self.as_ptr(), &raw mut wr, &raw mut bad),
                None => libc::EOPNOTSUPP,
            }
        })
    }

    /// Asks for an event when fewer than `limit` receives are left.
    pub(crate) fn arm_limit(&self, limit: u32) -> io::Result<()> {
        let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: limit };
        let mask = n::IBV_SRQ_LIMIT.cast_signed();
        // SAFETY: the queue exists.
        check(unsafe { (self.domain.context.calls.verbs.ibv_modify_srq)(self.as_ptr(), &raw mut attr, mask) })
    }

    /// The armed limit.
    pub(crate) fn limit(&self) -> io::Result<u32> {
        let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 0 };
        // SAFETY: the queue exists.
        check(unsafe { (self.domain.context.calls.verbs.ibv_query_srq)(self.as_ptr(), &raw mut attr) })?;
        Ok(attr.srq_limit)
    }
}

impl Drop for HwSrq {
    fn drop(&mut self) {
        if !self.domain.context.is_forked() {
            // SAFETY: its queue pairs hold a reference to it, so none is left.
            unsafe { (self.domain.context.calls.verbs.ibv_destroy_srq)(self.as_ptr()) };
        }
    }
}
