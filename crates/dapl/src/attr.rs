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
        /// For a send: the receiver's waiter is woken. For an endpoint's receives: only such messages wake a waiter.
        const SOLICITED_WAIT = 0x02;
        /// The event is queued without waking a waiter.
        const UNSIGNALLED = 0x04;
        /// Starts only when all earlier RDMA reads have completed.
        const BARRIER_FENCE = 0x08;
        /// For an endpoint's receives: the threshold of the wait decides when it wakes.
        const EVD_THRESHOLD = 0x10;
    }
}

bitflags! {
    /// The event streams that an event dispatcher accepts (`DAT_EVD_FLAGS`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EvdFlags: u32 {
        /// Events of the program itself.
        const SOFTWARE = 0x001;
        /// Connection requests of service points.
        const CR = 0x010;
        /// Completions of DTOs.
        const DTO = 0x020;
        /// Events of connections.
        const CONNECTION = 0x040;
        /// Completions of binds.
        const RMR_BIND = 0x080;
        /// Errors outside of any request.
        const ASYNC = 0x100;
    }
}

bitflags! {
    /// The access rights of a region (`DAT_MEM_PRIV_FLAGS`).
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
    /// The device's rights for these: remote write implies local write (IBA 10.6.3.1).
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
    /// A request has arrived at its reserved service point.
    PassiveConnectionPending = 4,
    /// A connect is in progress.
    ActiveConnectionPending = 6,
    /// Created by the provider for a request.
    TentativeConnectionPending = 7,
    /// Created by the provider for a request, without a zone and dispatchers yet.
    UnconfiguredTentative = 8,
    /// Connected.
    Connected = 9,
    /// A disconnect is in progress.
    DisconnectPending = 10,
    /// Was connected, or failed to connect; a reset makes it usable again.
    Disconnected = 11,
    /// A request was accepted; the peer's confirmation has not arrived.
    CompletionPending = 12,
}

/// Whether requests in flight may complete when a connection is closed (`DAT_CLOSE_FLAGS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// No: they are flushed.
    Abrupt,
    /// Yes: posted requests are executed first.
    Graceful,
}

/// Attributes of an endpoint (`DAT_EP_ATTR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpAttr {
    /// Bytes in one send; 0 for the device's limit. Checked by the device only.
    pub max_message_size: u32,
    /// Bytes in one RDMA; 0 for the device's limit. Checked by the device only.
    pub max_rdma_size: u32,
    /// How receives notify: default, solicited wait, unsignalled, threshold.
    pub recv_completion_flags: CompletionFlags,
    /// How requests may be posted; informative.
    pub request_completion_flags: CompletionFlags,
    /// Receives that may be posted at the same time.
    pub max_recv_dtos: u32,
    /// Requests that may be posted at the same time.
    pub max_request_dtos: u32,
    /// Segments of a receive.
    pub max_recv_iov: u32,
    /// Segments of a request.
    pub max_request_iov: u32,
    /// The peer's RDMA reads that may be in flight to this side.
    pub max_rdma_read_in: u32,
    /// RDMA reads that may be in flight to the peer.
    pub max_rdma_read_out: u32,
}

impl EpAttr {
    /// The default attributes: queues as a queue pair has them by default. Larger queues take more of the processor's
    /// caches, which slows small messages: with 256 requests of 16 segments they take a fifth longer on `shm`.
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

    /// Whether a device with these limits supports it.
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
    /// Receives that may be posted at the same time.
    pub max_recv_dtos: u32,
    /// Segments of a receive.
    pub max_recv_iov: u32,
    /// An event is raised when fewer are left; 0 for none.
    pub low_watermark: u32,
}

/// The capabilities of an adapter (`DAT_IA_ATTR`), limited to what the standard's signed 32-bit counts hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IaAttr {
    /// The device's name.
    pub adapter_name: String,
    /// Its address: the first port's, or the loopback address if any address will do.
    pub address: IpAddr,
    /// Endpoints.
    pub max_eps: u32,
    /// Requests, and receives, posted to an endpoint at the same time.
    pub max_dto_per_ep: u32,
    /// RDMA reads of an endpoint, in each direction.
    pub max_rdma_read: u32,
    /// Event dispatchers.
    pub max_evds: u32,
    /// Events in a dispatcher.
    pub max_evd_qlen: u32,
    /// Segments of a request.
    pub max_iov_segments_per_dto: u32,
    /// Local and remote regions together.
    pub max_lmrs: u32,
    /// Bytes of a region, limited to the attribute's 32 bits; regions may be larger.
    pub max_lmr_block_size: u32,
    /// Bytes of a message.
    pub max_message_size: u32,
    /// Shared receive queues; 0 if not supported.
    pub max_srqs: u32,
    /// Receives in a shared receive queue.
    pub max_recv_per_srq: u32,
    /// Bytes of private data with a connect, accept or reject.
    pub max_private_data: u32,
}

/// The limit for objects that only take memory of the process.
const PLENTY: u32 = 65_536;

impl IaAttr {
    pub(crate) fn new(name: &str, device: &DeviceAttr) -> Self {
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

/// The number that identifies an object in events; unique at first, and its user may change it (`set_label`).
pub type Label = u64;

/// Errors outside of requests (`DAT_ASYNC_ERROR_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum AsyncKind {
    /// An event dispatcher lost events.
    EvdOverflow = 0x08001,
    /// A peer's request caused an endpoint to fail.
    EpBroken = 0x08003,
    /// Any other error, identified by its reason: a shared receive queue below its low watermark.
    ProviderInternal = 0x08005,
}
