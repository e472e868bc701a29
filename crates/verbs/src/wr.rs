//! Work requests: what one posts to a queue.

use bitflags::bitflags;

use crate::WcOpcode;

/// A scatter/gather element: a piece of registered local memory. It has the layout of `ibv_sge`, so that a list of them can be passed
/// on as it is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Its address as registered: a virtual address, or an offset for NIC memory (zero-based).
    pub addr: u64,
    /// Its length in bytes; 0 contributes nothing and is not checked.
    pub length: u32,
    /// The local key of the region that holds it.
    pub lkey: u32,
}

/// A place in a peer's registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddr {
    /// The address as the peer registered it.
    pub addr: u64,
    /// The peer's key for it.
    pub rkey: u32,
}

impl RemoteAddr {
    /// The place `bytes` further on; wraps like the arithmetic of a NIC, which then refuses it.
    #[inline]
    pub fn offset(self, bytes: u64) -> Self {
        Self { addr: self.addr.wrapping_add(bytes), ..self }
    }
}

bitflags! {
    /// How a send-queue request behaves (`ibv_send_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u8 {
        /// Completes with an entry in the completion queue. Errors always do.
        const SIGNALED = 1;
        /// Counts as solicited at the receiver's completion channel.
        const SOLICITED = 2;
        /// Starts only after all earlier RDMA reads and atomics of the queue pair have completed.
        const FENCE = 4;
        /// Of an RDMA write: wakes whoever waits on the completion queue of the peer's receives ([`host::Host::wait`] on that
        /// [`crate::Cq`]), as a completion would, though none comes: the waiter looks at the memory. Costs nothing while nobody
        /// sleeps. It is not reported to a completion channel, and other operations ignore it, as they ring by their
        /// completion. Where [`crate::DeviceAttr::write_ring`] denies it, posting answers [`crate::Error::Unsupported`].
        const RING = 8;
        /// Completes as soon as its memory may be used again, whether or not it has arrived (`FI_INJECT_COMPLETE` of libfabric):
        /// for who is told by the peer. All requests before it that are not to be told of are then over in the same sense. A NIC
        /// that learns of both at once, and an operation that returns data, ignore it.
        const LOCAL = 16;
    }
}

/// The local data of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Gathered from (or scattered to) registered memory, in order.
    Sges(&'a [Sge]),
    /// Copied at the call (IBV_SEND_INLINE): needs no registration, may be reused at once.
    Inline(&'a [u8]),
}

impl Data<'_> {
    /// No data at all.
    pub const NONE: Self = Data::Sges(&[]);
}

/// What a send-queue request does (`ibv_wr_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Sends a message into the peer's next receive.
    Send,
    /// Sends a message as `Send` does, with 32 bits for the receive's completion.
    SendImm(u32),
    /// Sends a message as `Send` does, and the peer's region with this key becomes unreachable (IBA 9.4.1.1.3).
    SendInv(u32),
    /// Writes into the peer's memory without its taking part.
    Write(RemoteAddr),
    /// Writes as `Write` does; then consumes a receive at the peer and gives it 32 bits.
    WriteImm(RemoteAddr, u32),
    /// Reads from the peer's memory into local memory, which must have local write access.
    Read(RemoteAddr),
    /// Replaces eight aligned bytes of the peer by `swap` if they equal `compare`; the old value goes to
    /// local memory (8 bytes, local write access).
    CompareSwap {
        /// The eight bytes, aligned.
        remote: RemoteAddr,
        /// What they must equal.
        compare: u64,
        /// What replaces them.
        swap: u64,
    },
    /// Adds to eight aligned bytes of the peer, wrapping; the old value goes to local memory.
    FetchAdd {
        /// The eight bytes, aligned.
        remote: RemoteAddr,
        /// What is added.
        add: u64,
    },
}

impl SendOp {
    /// What its completion says that it was (`ibv_wc_opcode`).
    #[inline]
    #[must_use]
    pub fn opcode(self) -> WcOpcode {
        match self {
            Self::Send | Self::SendImm(_) | Self::SendInv(_) => WcOpcode::Send,
            Self::Write(_) | Self::WriteImm(..) => WcOpcode::Write,
            Self::Read(_) => WcOpcode::Read,
            Self::CompareSwap { .. } => WcOpcode::CompareSwap,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
        }
    }

    /// Whether it changes eight bytes of the peer and brings back what they were.
    #[inline]
    #[must_use]
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether it brings data back: its local memory is written to.
    #[inline]
    #[must_use]
    pub fn fetches(self) -> bool {
        matches!(self, Self::Read(_)) || self.is_atomic()
    }
}

/// A request for the send queue (`ibv_send_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// Local data.
    pub data: Data<'a>,
    /// How.
    pub flags: SendFlags,
}

impl<'a> SendWr<'a> {
    /// A request that signals its completion.
    #[inline]
    pub fn new(wr_id: u64, op: SendOp, sges: &'a [Sge]) -> Self {
        Self { wr_id, op, data: Data::Sges(sges), flags: SendFlags::SIGNALED }
    }

    /// A request with inline data, which are copied when it is posted.
    #[inline]
    pub fn inline(wr_id: u64, op: SendOp, bytes: &'a [u8]) -> Self {
        Self { wr_id, op, data: Data::Inline(bytes), flags: SendFlags::SIGNALED }
    }

    /// This request, signalling nothing on success.
    #[inline]
    pub fn unsignaled(mut self) -> Self {
        self.flags.remove(SendFlags::SIGNALED);
        self
    }

    /// This request with more flags.
    #[inline]
    pub fn with(mut self, flags: SendFlags) -> Self {
        self.flags |= flags;
        self
    }
}

/// A request for a receive queue (`ibv_recv_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where an incoming message goes, in order; local write access is needed.
    pub sges: &'a [Sge],
}

impl<'a> RecvWr<'a> {
    /// A receive into these pieces.
    #[inline]
    pub fn new(wr_id: u64, sges: &'a [Sge]) -> Self {
        Self { wr_id, sges }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::Sge;

    /// Of `struct ibv_sge` in infiniband/verbs.h: addr, length, lkey.
    #[test]
    fn elements_lie_as_libibverbs_has_them() {
        assert_eq!((offset_of!(Sge, addr), offset_of!(Sge, length), offset_of!(Sge, lkey)), (0, 8, 12));
        assert_eq!(size_of::<Sge>(), 16);
    }
}
