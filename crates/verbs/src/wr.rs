//! Work requests: requests that are posted to a queue.

use bitflags::bitflags;

use crate::WcOpcode;
use crate::binding::MwBind;

/// A scatter/gather element: a range of registered local memory. It has the layout of `ibv_sge`, so that a C list of
/// elements can be used as it is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// The registered address: a virtual address, or an offset for NIC memory (zero-based).
    pub addr: u64,
    /// Its length in bytes; an element of length 0 contributes nothing and is not checked.
    pub length: u32,
    /// The local key of its region.
    pub lkey: u32,
}

/// An address in a peer's registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddr {
    /// The address as the peer registered it.
    pub addr: u64,
    /// The peer's key for it.
    pub rkey: u32,
}

impl RemoteAddr {
    /// The address `bytes` further on; wraps like the arithmetic of a NIC, which then refuses it.
    #[inline]
    pub fn offset(self, bytes: u64) -> Self {
        Self { addr: self.addr.wrapping_add(bytes), ..self }
    }
}

bitflags! {
    /// Options of a send-queue request (`ibv_send_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u8 {
        /// Completes with an entry in the completion queue. Errors always do.
        const SIGNALED = 1;
        /// Counts as solicited at the receiver's completion channel.
        const SOLICITED = 2;
        /// Starts only after all earlier RDMA reads and atomics of the queue pair have completed.
        const FENCE = 4;
        /// For an RDMA write: wakes waiters on the completion queue of the peer's receives ([`host::Host::wait`] on
        /// that [`crate::Cq`]), as a completion would, but without one: the waiter polls the memory. Costs nothing
        /// while no thread sleeps. It is not reported to a completion channel, and other operations ignore it, as their
        /// completion wakes waiters anyway. Without [`crate::DeviceAttr::write_notify`], posting returns
        /// [`crate::Error::Unsupported`].
        const NOTIFY = 8;
        /// Completes as soon as its memory may be used again, whether or not the data have arrived
        /// (`FI_INJECT_COMPLETE` of libfabric): for senders that the peer acknowledges itself. All earlier unsignaled
        /// requests are then complete in the same sense. Ignored by a NIC that learns both at the same time, and by
        /// operations that return data.
        const LOCAL = 16;
    }
}

/// The local data of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Gathered from (or scattered to) registered memory, in order.
    Sges(&'a [Sge]),
    /// Copied during the call (IBV_SEND_INLINE): needs no registration, and may be reused immediately.
    Inline(&'a [u8]),
}

impl Data<'_> {
    /// The data of a request without data.
    pub const NONE: Self = Data::Sges(&[]);
}

/// The operation of a send-queue request (`ibv_wr_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Sends a message into the peer's next receive.
    Send,
    /// Sends a message as `Send` does, with 32 bits for the receive's completion.
    SendImm(u32),
    /// Sends a message as `Send` does, and invalidates the peer's region with this key (IBA 9.4.1.1.3).
    SendInv(u32),
    /// Writes into the peer's memory without involving its processor.
    Write(RemoteAddr),
    /// Writes as `Write` does; then consumes a receive of the peer, with 32 bits for its completion.
    WriteImm(RemoteAddr, u32),
    /// Reads from the peer's memory into local memory, which must have local write access.
    Read(RemoteAddr),
    /// Replaces eight aligned bytes of the peer by `swap` if they equal `compare`; the old value is stored in local
    /// memory (8 bytes, local write access).
    CompareSwap {
        /// The eight bytes, aligned.
        remote: RemoteAddr,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Adds to eight aligned bytes of the peer, wrapping; the old value is stored in local memory.
    FetchAdd {
        /// The eight bytes, aligned.
        remote: RemoteAddr,
        /// The value to add.
        add: u64,
    },
    /// Binds a memory window: without local data, and without a message to the peer.
    BindMw(MwBind),
    /// Invalidates the memory window of type 2 with this key, as the peer does by `SendInv`.
    LocalInv(u32),
}

impl SendOp {
    /// The opcode of its completion (`ibv_wc_opcode`).
    #[inline]
    #[must_use]
    pub fn opcode(self) -> WcOpcode {
        match self {
            Self::Send | Self::SendImm(_) | Self::SendInv(_) => WcOpcode::Send,
            Self::Write(_) | Self::WriteImm(..) => WcOpcode::Write,
            Self::Read(_) => WcOpcode::Read,
            Self::CompareSwap { .. } => WcOpcode::CompareSwap,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
            Self::BindMw(_) => WcOpcode::BindMw,
            Self::LocalInv(_) => WcOpcode::LocalInv,
        }
    }

    /// Whether it changes eight bytes of the peer and returns their old value.
    #[inline]
    #[must_use]
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether it changes a memory window of this side.
    #[inline]
    #[must_use]
    pub fn is_of_window(self) -> bool {
        matches!(self, Self::BindMw(_) | Self::LocalInv(_))
    }

    /// Whether it returns data, which are written to its local memory.
    #[inline]
    #[must_use]
    pub fn fetches(self) -> bool {
        matches!(self, Self::Read(_)) || self.is_atomic()
    }
}

/// A request for the send queue (`ibv_send_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWr<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// Local data.
    pub data: Data<'a>,
    /// Options.
    pub flags: SendFlags,
}

impl<'a> SendWr<'a> {
    /// A signaled request.
    #[inline]
    pub fn new(wr_id: u64, op: SendOp, sges: &'a [Sge]) -> Self {
        Self { wr_id, op, data: Data::Sges(sges), flags: SendFlags::SIGNALED }
    }

    /// A request with inline data, which are copied when it is posted.
    #[inline]
    pub fn inline(wr_id: u64, op: SendOp, bytes: &'a [u8]) -> Self {
        Self { wr_id, op, data: Data::Inline(bytes), flags: SendFlags::SIGNALED }
    }

    /// Makes the request unsignaled: no completion on success.
    #[inline]
    pub fn unsignaled(mut self) -> Self {
        self.flags.remove(SendFlags::SIGNALED);
        self
    }

    /// Adds flags to the request.
    #[inline]
    pub fn with(mut self, flags: SendFlags) -> Self {
        self.flags |= flags;
        self
    }
}

/// A request for a receive queue (`ibv_recv_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvWr<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Where an incoming message is stored, in order; local write access is needed.
    pub sges: &'a [Sge],
}

impl<'a> RecvWr<'a> {
    /// A receive into these elements.
    #[inline]
    pub fn new(wr_id: u64, sges: &'a [Sge]) -> Self {
        Self { wr_id, sges }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::Sge;

    /// The layout of `struct ibv_sge` in infiniband/verbs.h: addr, length, lkey.
    #[test]
    fn sge_has_the_layout_of_ibv_sge() {
        assert_eq!((offset_of!(Sge, addr), offset_of!(Sge, length), offset_of!(Sge, lkey)), (0, 8, 12));
        assert_eq!(size_of::<Sge>(), 16);
    }
}
