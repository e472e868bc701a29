//! Attributes, flags and states, with the standard's numbers (`dat.h`, `udat.h` of DAT 2.0).

use bitflags::bitflags;
use std::net::{IpAddr, Ipv4Addr};
use verbs::{Access, DeviceAttr, QpCap};

bitflags! {
    /// How a DTO completes (`DAT_COMPLETION_FLAGS`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CompletionFlags: u32 {
        /// No event if it succeeds.
        const SUPPRESS = 0x01;
        /// Of a send: the receiver's waiter is woken. Of an endpoint's receives: only such messages wake.
        const SOLICITED_WAIT = 0x02;
        /// The event is queued, and wakes nobody.
        const UNSIGNALLED = 0x04;
        /// Begins only when all earlier RDMA reads are done.
        const BARRIER_FENCE = 0x08;
        /// Of an endpoint's receives: the threshold of the wait decides when it wakes.
        const EVD_THRESHOLD = 0x10;
    }
}

bitflags! {
    /// What may feed an event dispatcher (`DAT_EVD_FLAGS`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EvdFlags: u32 {
        /// Events of the program itself.
        const SOFTWARE = 0x001;
        /// Connection requests of service points.
        const CR = 0x010;
        /// Completions of DTOs.
        const DTO = 0x020;
        /// What becomes of connections.
        const CONNECTION = 0x040;
        /// Completions of binds.
        const RMR_BIND = 0x080;
        /// Errors outside of any request.
        const ASYNC = 0x100;
    }
}

bitflags! {
    /// What may be done to a region (`DAT_MEM_PRIV_FLAGS`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MemPriv: u32 {
        /// The own NIC may read.
        const LOCAL_READ = 0x01;
        /// Peers may read.
        const REMOTE_READ = 0x02;
        /// The own NIC may write.
        const LOCAL_WRITE = 0x10;
        /// Peers may write.
        const REMOTE_WRITE = 0x20;
    }
}

impl MemPriv {
    /// The device's rights for these: whom peers may write to, the own NIC may, too (IBA 10.6.3.1).
    pub(crate) fn access(self) -> Access {
        let mut access = Access::empty();
        access.set(Access::LOCAL_WRITE, self.intersects(Self::LOCAL_WRITE | Self::REMOTE_WRITE));
        access.set(Access::REMOTE_READ, self.contains(Self::REMOTE_READ));
        access.set(Access::REMOTE_WRITE, self.contains(Self::REMOTE_WRITE));
        access
    }
}

/// The state of an endpoint (`DAT_EP_STATE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EpState {
    /// May be connected.
    Unconnected = 0,
    /// May be connected, but has no protection zone.
    UnconfiguredUnconnected = 1,
    /// Held by a reserved service point.
    Reserved = 2,
    /// A request came to its reserved service point.
    PassiveConnectionPending = 4,
    /// A connect is under way.
    ActiveConnectionPending = 6,
    /// Made by the provider for a request.
    TentativeConnectionPending = 7,
    /// Made by the provider for a request, and not yet told its zone and dispatchers.
    UnconfiguredTentative = 8,
    /// Connected.
    Connected = 9,
    /// A disconnect is under way.
    DisconnectPending = 10,
    /// Was connected, or failed to be; reset makes it usable again.
    Disconnected = 11,
    /// A request was accepted; the peer's word is still missing.
    CompletionPending = 12,
}

/// Whether requests that are under way are given time when a connection is closed (`DAT_CLOSE_FLAGS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// No: they are flushed.
    Abrupt,
    /// Those posted are carried out first.
    Graceful,
}

/// Attributes of an endpoint (`DAT_EP_ATTR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpAttr {
    /// Bytes in one send; 0 for what the device can do. Not checked before the device does.
    pub max_message_size: u32,
    /// Bytes in one RDMA; 0 for what the device can do. Not checked before the device does.
    pub max_rdma_size: u32,
    /// How receives notify: default, solicited wait, unsignalled, threshold.
    pub recv_completion_flags: CompletionFlags,
    /// How requests may be posted; informative.
    pub request_completion_flags: CompletionFlags,
    /// Receives that may be posted at a time.
    pub max_recv_dtos: u32,
    /// Requests that may be posted at a time.
    pub max_request_dtos: u32,
    /// Pieces of a receive.
    pub max_recv_iov: u32,
    /// Pieces of a request.
    pub max_request_iov: u32,
    /// RDMA reads that the peer may have under way here.
    pub max_rdma_read_in: u32,
    /// RDMA reads that may be under way at the peer.
    pub max_rdma_read_out: u32,
}

impl EpAttr {
    /// What an endpoint gets if nothing is asked for: queues as a queue pair has them by default. Larger ones take more of
    /// the processor's caches, which small messages feel: with 256 requests of 16 pieces they take a fifth longer on `shm`.
    pub fn default_for(ia: &IaAttr) -> Self {
        let cap = QpCap::default();
        Self {
            max_message_size: ia.max_message_size,
            max_rdma_size: ia.max_message_size,
            recv_completion_flags: CompletionFlags::empty(),
            request_completion_flags: CompletionFlags::empty(),
            max_recv_dtos: ia.max_dto_per_ep.min(cap.max_recv_wr),
            max_request_dtos: ia.max_dto_per_ep.min(cap.max_send_wr),
            max_recv_iov: ia.max_iov_segments_per_dto.min(cap.max_recv_sge),
            max_request_iov: ia.max_iov_segments_per_dto.min(cap.max_send_sge),
            max_rdma_read_in: ia.max_rdma_read.min(16),
            max_rdma_read_out: ia.max_rdma_read.min(16),
        }
    }

    /// Whether a device of these limits can serve it.
    pub(crate) fn fits(&self, ia: &IaAttr) -> bool {
        self.max_message_size <= ia.max_message_size
            && self.max_rdma_size <= ia.max_message_size
            && self.max_recv_dtos <= ia.max_dto_per_ep
            && self.max_request_dtos <= ia.max_dto_per_ep
            && self.max_recv_iov <= ia.max_iov_segments_per_dto
            && self.max_request_iov <= ia.max_iov_segments_per_dto
            && self.max_rdma_read_in <= ia.max_rdma_read
            && self.max_rdma_read_out <= ia.max_rdma_read
    }
}

/// Attributes of a shared receive queue (`DAT_SRQ_ATTR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttr {
    /// Receives that may be posted at a time.
    pub max_recv_dtos: u32,
    /// Pieces of a receive.
    pub max_recv_iov: u32,
    /// An event is raised when fewer are left; 0 for none.
    pub low_watermark: u32,
}

/// What an adapter can do (`DAT_IA_ATTR`), in numbers that the standard's signed 32-bit counts hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IaAttr {
    /// The device's name.
    pub adapter_name: String,
    /// Its address: the first port's, or the loopback address where any will do.
    pub address: IpAddr,
    /// Endpoints.
    pub max_eps: u32,
    /// Requests, and receives, posted to an endpoint at a time.
    pub max_dto_per_ep: u32,
    /// RDMA reads of an endpoint, in each direction.
    pub max_rdma_read: u32,
    /// Event dispatchers.
    pub max_evds: u32,
    /// Events that one holds.
    pub max_evd_qlen: u32,
    /// Pieces of a request.
    pub max_iov_segments_per_dto: u32,
    /// Local and remote regions together.
    pub max_lmrs: u32,
    /// Bytes of a region, as the 32 bits of the attribute can say it; regions may be larger.
    pub max_lmr_block_size: u32,
    /// Bytes of a message.
    pub max_message_size: u32,
    /// Shared receive queues; 0 where there are none.
    pub max_srqs: u32,
    /// Receives in one.
    pub max_recv_per_srq: u32,
    /// Bytes of private data with a connect, accept or reject.
    pub max_private_data: u32,
}

/// Objects that only take memory of the process.
const PLENTY: u32 = 65_536;

impl IaAttr {
    pub(crate) fn of(name: &str, device: &DeviceAttr) -> Self {
        let count = |value: u32| value.min(i32::MAX as u32);
        let bytes = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Self {
            adapter_name: name.to_owned(),
            address: device.port_addrs.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            max_eps: count(device.max_qp),
            max_dto_per_ep: count(device.max_qp_wr),
            max_rdma_read: count(device.max_rd_atomic).min(u8::MAX.into()),
            max_evds: count(device.max_cq).min(PLENTY),
            max_evd_qlen: count(device.max_cqe),
            max_iov_segments_per_dto: count(device.max_sge),
            max_lmrs: count(device.max_mr),
            max_lmr_block_size: bytes(device.max_mr_size),
            max_message_size: bytes(device.max_msg_size),
            max_srqs: count(device.max_srq),
            max_recv_per_srq: count(device.max_srq_wr),
            max_private_data: count(device.max_private_data),
        }
    }
}

/// What events call an object: a number that its user may choose (`set_label`), unique to begin with.
pub type Label = u64;

/// Errors outside of requests (`DAT_ASYNC_ERROR_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum AsyncKind {
    /// An event dispatcher lost events.
    EvdOverflow = 0x08001,
    /// A peer's request made an endpoint fail.
    EpBroken = 0x08003,
    /// Anything else: a shared receive queue below its low watermark, by its reason.
    ProviderInternal = 0x08005,
}
