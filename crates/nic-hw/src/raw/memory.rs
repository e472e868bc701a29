//! [`Domain`] and [`Region`]: protection domains and memory regions.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_abi::verbs::{ibv_mr, ibv_pd};
use verbs::{Buf, Error, Result};

use super::check;
use super::context::Context;

/// A protection domain.
pub(crate) struct Domain {
    pub(crate) context: Arc<Context>,
    at: NonNull<ibv_pd>,
}

// SAFETY: functions of libibverbs may be called by any thread, at the same time. Test: the group `threads` of the
// suite in crates/abi-verbs/tests/hw_on_shm.rs.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Arc<Self>> {
        // SAFETY: the context is open. Test: crates/abi-verbs/tests/hw_on_shm.rs, as for all blocks of this file.
        let at = unsafe { (context.calls.verbs.ibv_alloc_pd)(context.as_ptr()) };
        match NonNull::new(at) {
            Some(at) => Ok(Arc::new(Self { context: context.clone(), at })),
            None => Err(Error::system("the card has no protection domain left", io::Error::last_os_error())),
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_pd {
        self.at.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if !self.context.is_forked() {
            // SAFETY: all objects of the domain hold a reference to it, so none is left.
            unsafe { (self.context.calls.verbs.ibv_dealloc_pd)(self.as_ptr()) };
        }
    }
}

/// A registered memory region, which keeps its memory.
pub(crate) struct Region {
    /// `None` once it is deregistered.
    at: Option<NonNull<ibv_mr>>,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    domain: Arc<Domain>,
    _buf: Buf,
}

// SAFETY: as for `Domain`.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Registers host memory with these `IBV_ACCESS_...` flags.
    pub(crate) fn new(domain: &Arc<Domain>, buf: &Buf, access: u32) -> io::Result<Self> {
        let address = buf.as_ptr().cast::<c_void>();
        // SAFETY: the buffer keeps the memory mapped while the region exists. A program's memory may be unmapped, which
        // the kernel survives: it pins the pages. The result is NULL or a region, whose keys are constant.
        let (at, lkey, rkey) = unsafe {
            let verbs = &domain.context.calls.verbs;
            let at = (verbs.ibv_reg_mr)(domain.as_ptr(), address, buf.len(), access as c_int);
            let at = NonNull::new(at).ok_or_else(io::Error::last_os_error)?;
            (at, at.as_ref().lkey, at.as_ref().rkey)
        };
        Ok(Self { at: Some(at), lkey, rkey, domain: domain.clone(), _buf: buf.clone() })
    }

    /// Deregisters: when this returns without an error, the card does not access the memory any more.
    pub(crate) fn dereg(&mut self) -> io::Result<()> {
        match self.at.take() {
            Some(at) if !self.domain.context.is_forked() => {
                // SAFETY: the region exists, and is forgotten here.
                check(unsafe { (self.domain.context.calls.verbs.ibv_dereg_mr)(at.as_ptr()) })
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // `MrOps::dereg` reports a failure.
        let _ = self.dereg();
    }
}
