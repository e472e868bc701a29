//! Work completions: results of requests.

/// The status of a completed request (`ibv_wc_status`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WcStatus {
    /// The request succeeded.
    #[default]
    Success,
    /// A message longer than the receive, or than the device's maximum.
    LocLenErr,
    /// The queue pair itself is inconsistent.
    LocQpOpErr,
    /// A local key, range or right did not allow the access.
    LocProtErr,
    /// Flushed: the queue pair was in the error state before this request began.
    WrFlushErr,
    /// A memory window could not be bound or invalidated.
    MwBindErr,
    /// The peer found the request malformed: too long for its receive, unaligned atomic, not supported.
    RemInvReqErr,
    /// The peer's key, range or rights did not allow the access.
    RemAccessErr,
    /// The peer could not complete the operation because of an error of its own.
    RemOpErr,
    /// The peer does not answer, or no longer exists.
    RetryExcErr,
    /// The peer had no receive posted until the retries were exhausted.
    RnrRetryExcErr,
    /// Any other error.
    GeneralErr,
}

/// The operation of a completed request (`ibv_wc_opcode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WcOpcode {
    /// A send of any form.
    #[default]
    Send,
    /// An RDMA write, with or without immediate data.
    Write,
    /// An RDMA read.
    Read,
    /// A compare-and-swap.
    CompareSwap,
    /// A fetch-and-add.
    FetchAdd,
    /// A memory window that was bound.
    BindMw,
    /// A memory window that was invalidated.
    LocalInv,
    /// A receive that a send filled.
    Recv,
    /// A receive that an RDMA write with immediate data consumed.
    RecvWriteImm,
    /// A receive that the beginning of a longer message filled ([`crate::QpInit::split_receives`]).
    RecvBegin,
    /// The rest of that message, in the memory of [`crate::Qp::post_rest`].
    RecvRest,
}

impl WcOpcode {
    /// Whether the request was posted to a receive queue.
    #[must_use]
    #[inline]
    pub fn is_recv(self) -> bool {
        matches!(self, Self::Recv | Self::RecvWriteImm | Self::RecvBegin | Self::RecvRest)
    }
}

/// The completion of one request (`ibv_wc`). For a status other than success, only `wr_id`, `status`, `opcode` and
/// `qp_num` are valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wc {
    /// The request's number.
    pub wr_id: u64,
    /// The status of the request.
    pub status: WcStatus,
    /// The operation of the request.
    pub opcode: WcOpcode,
    /// Bytes received (receives), written by a peer (write with immediate) or fetched (reads, atomics).
    pub byte_len: u32,
    /// The queue pair it was posted to; for a shared receive queue, the queue pair that consumed it.
    pub qp_num: u32,
    /// Immediate data, for receives only.
    pub imm: Option<u32>,
    /// The remote key that a send with invalidate invalidated here, for receives only.
    pub invalidated: Option<u32>,
}

impl Wc {
    /// Whether the request succeeded.
    #[inline]
    pub fn is_ok(&self) -> bool {
        self.status == WcStatus::Success
    }
}
