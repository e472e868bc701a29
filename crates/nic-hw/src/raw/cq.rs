//! [`HwCq`]: a completion queue with a completion channel of its own, on whose descriptor threads sleep.
//!
//! Data path: polls through the context's table, in batches, without a lock or an allocation.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_abi::numbers as n;
use rdma_abi::verbs::*;
use verbs::{Error, Result, Wc, WcOpcode, WcStatus};

use super::check;
use super::context::{Context, set_nonblocking};

/// Completions that are taken in one call: one queue's burst, on the stack.
const BATCH: usize = 16;

/// A completion channel.
struct Channel {
    context: Arc<Context>,
    at: NonNull<ibv_comp_channel>,
}

impl Channel {
    fn new(context: &Arc<Context>) -> Result<Self> {
        let refused =
            "cannot create a completion channel (if descriptors ran out, raise the limit with ulimit -n)";
        // SAFETY: the context is open. Test: crates/abi-verbs/tests/hw_on_shm.rs, as for all blocks of this file.
        let at = unsafe { (context.calls.verbs.ibv_create_comp_channel)(context.as_ptr()) };
        let at = NonNull::new(at).ok_or_else(|| Error::system(refused, io::Error::last_os_error()))?;
        let channel = Self { context: context.clone(), at };
        set_nonblocking(channel.fd()).map_err(|why| Error::system(refused, why))?;
        Ok(channel)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel keeps its descriptor open, and the borrow lasts no longer than the channel.
        unsafe { BorrowedFd::borrow_raw(self.at.as_ref().fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.context.is_forked() {
            // SAFETY: its only queue is destroyed before it.
            unsafe { (self.context.calls.verbs.ibv_destroy_comp_channel)(self.at.as_ptr()) };
        }
    }
}

/// A completion queue.
pub(crate) struct HwCq {
    at: NonNull<ibv_cq>,
    channel: Channel,
    /// The number by which events name it.
    pub(crate) number: u32,
}

// SAFETY: functions of libibverbs may be called by any thread, at the same time. Test: the group `threads` of the
// suite in crates/abi-verbs/tests/hw_on_shm.rs.
unsafe impl Send for HwCq {}
// SAFETY: as above.
unsafe impl Sync for HwCq {}

impl HwCq {
    pub(crate) fn new(context: &Arc<Context>, cqe: u32) -> Result<Self> {
        let channel = Channel::new(context)?;
        let number = context.fresh_number();
        let cqe_c = c_int::try_from(cqe).unwrap_or(c_int::MAX);
        let mark: *mut c_void = std::ptr::without_provenance_mut(number as usize);
        // SAFETY: context and channel exist; the mark is only a number.
        let at = unsafe {
            (context.calls.verbs.ibv_create_cq)(context.as_ptr(), cqe_c, mark, channel.at.as_ptr(), 0)
        };
        let at = NonNull::new(at).ok_or_else(|| {
            let why = io::Error::last_os_error();
            Error::system(format!("the card refuses a completion queue of {cqe} entries"), why)
        })?;
        Ok(Self { at, channel, number })
    }

    fn context(&self) -> &Context {
        &self.channel.context
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_cq {
        self.at.as_ptr()
    }

    /// The number of entries that the card gave it; it may round up.
    pub(crate) fn cqe(&self) -> u32 {
        // SAFETY: the queue exists; only `resize` changes the number, which its caller serialises.
        unsafe { (*self.as_ptr()).cqe.cast_unsigned() }
    }

    pub(crate) fn resize(&self, cqe: u32) -> io::Result<()> {
        let cqe = c_int::try_from(cqe).unwrap_or(c_int::MAX);
        // SAFETY: the queue exists.
        check(unsafe { (self.context().calls.verbs.ibv_resize_cq)(self.as_ptr(), cqe) })
    }

    /// Takes completions; `None` if the queue has overrun or failed.
    #[inline]
    pub(crate) fn poll(&self, wcs: &mut [Wc]) -> Option<usize> {
        let mut taken = 0;
        while taken < wcs.len() {
            let wanted = BATCH.min(wcs.len() - taken);
            let mut batch = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
            // SAFETY: the queue exists and belongs to a context, whose table has this function; there is room for as
            // many completions as are wanted, and the function fills in as many as it returns.
            let found = unsafe {
                let poll = (*(*self.as_ptr()).context).ops.poll_cq?;
                poll(self.as_ptr(), wanted as c_int, batch.as_mut_ptr().cast())
            };
            let found = usize::try_from(found).ok()?.min(wanted);
            for (place, wc) in wcs[taken..].iter_mut().zip(&batch[..found]) {
                // SAFETY: as above.
                *place = completion(unsafe { wc.assume_init_ref() });
            }
            taken += found;
            if found < wanted {
                break;
            }
        }
        Some(taken)
    }

    /// Arms the queue: its next completion, or its next solicited one, makes the descriptor readable.
    pub(crate) fn arm(&self, solicited_only: bool) -> io::Result<()> {
        // SAFETY: as in `poll`.
        let armed = unsafe {
            match (*(*self.as_ptr()).context).ops.req_notify_cq {
                Some(arm) => arm(self.as_ptr(), solicited_only.into()),
                None => libc::EOPNOTSUPP,
            }
        };
        check(armed)
    }

    /// The channel's descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    /// Takes all events of the channel.
    pub(crate) fn take_events(&self) {
        while self.take_event() {}
    }

    /// Takes an event of the channel; whether there was one.
    pub(crate) fn take_event(&self) -> bool {
        let verbs = &self.context().calls.verbs;
        let (mut cq, mut mark) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the channel exists, and its descriptor does not block. All its events are of this queue, and each is
        // acknowledged once.
        unsafe {
            let taken = (verbs.ibv_get_cq_event)(self.channel.at.as_ptr(), &raw mut cq, &raw mut mark);
            if taken == 0 {
                (verbs.ibv_ack_cq_events)(self.as_ptr(), 1);
            }
            taken == 0
        }
    }
}

impl Drop for HwCq {
    fn drop(&mut self) {
        if !self.context().is_forked() {
            // SAFETY: its queue pairs hold a reference to it, so none is left, and its events are acknowledged.
            unsafe { (self.context().calls.verbs.ibv_destroy_cq)(self.as_ptr()) };
        }
    }
}

/// A completion of ours from one of C.
#[inline]
fn completion(wc: &ibv_wc) -> Wc {
    let has = |flag| wc.wc_flags & flag != 0;
    Wc {
        wr_id: wc.wr_id,
        status: status(wc.status.cast_unsigned()),
        opcode: opcode(wc.opcode.cast_unsigned()),
        byte_len: wc.byte_len,
        qp_num: wc.qp_num,
        imm: has(n::IBV_WC_WITH_IMM).then_some(u32::from_be(wc.imm_data)),
        invalidated: has(n::IBV_WC_WITH_INV).then_some(wc.imm_data),
    }
}

/// Numbers of statuses that our own library never reports.
const MW_BIND_ERR: u32 = 6;
const BAD_RESP_ERR: u32 = 7;
const LOC_ACCESS_ERR: u32 = 8;
const RESP_TIMEOUT_ERR: u32 = 20;

#[inline]
fn status(status: u32) -> WcStatus {
    if status == n::IBV_WC_SUCCESS { WcStatus::Success } else { failure(status) }
}

#[cold]
fn failure(status: u32) -> WcStatus {
    match status {
        n::IBV_WC_LOC_LEN_ERR => WcStatus::LocLenErr,
        n::IBV_WC_LOC_QP_OP_ERR | MW_BIND_ERR => WcStatus::LocQpOpErr,
        n::IBV_WC_LOC_PROT_ERR | LOC_ACCESS_ERR => WcStatus::LocProtErr,
        n::IBV_WC_WR_FLUSH_ERR => WcStatus::WrFlushErr,
        n::IBV_WC_REM_INV_REQ_ERR => WcStatus::RemInvReqErr,
        n::IBV_WC_REM_ACCESS_ERR => WcStatus::RemAccessErr,
        n::IBV_WC_REM_OP_ERR | BAD_RESP_ERR => WcStatus::RemOpErr,
        n::IBV_WC_RETRY_EXC_ERR | RESP_TIMEOUT_ERR => WcStatus::RetryExcErr,
        n::IBV_WC_RNR_RETRY_EXC_ERR => WcStatus::RnrRetryExcErr,
        _ => WcStatus::GeneralErr,
    }
}

#[inline]
fn opcode(opcode: u32) -> WcOpcode {
    match opcode {
        n::IBV_WC_RDMA_WRITE => WcOpcode::Write,
        n::IBV_WC_RDMA_READ => WcOpcode::Read,
        n::IBV_WC_COMP_SWAP => WcOpcode::CompareSwap,
        n::IBV_WC_FETCH_ADD => WcOpcode::FetchAdd,
        n::IBV_WC_RECV => WcOpcode::Recv,
        n::IBV_WC_RECV_RDMA_WITH_IMM => WcOpcode::RecvWriteImm,
        _ => WcOpcode::Send,
    }
}
