//! Attributes and limits of devices and queues.

use std::net::IpAddr;

use crate::access::Access;
use crate::firmware::FirmwareCap;
use host::{Rate, Span};

/// How far a device's atomics are atomic (`ibv_atomic_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicCap {
    /// It has none.
    None,
    /// Among the queue pairs of this device.
    Hca,
    /// With respect to the processors as well.
    Global,
}

/// What seeing the last byte of an RDMA write says of its other bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOrder {
    /// Nothing: await a completion.
    None,
    /// Whoever sees the last byte of a write (an acquiring load) sees all of it, and all that the queue pair wrote before.
    LastByteLast,
}

/// How the processor reaches NIC memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmAccess {
    /// There is none, or it cannot.
    None,
    /// By copies that are calls ([`crate::Buf::read`], [`crate::Buf::write`]): nothing to poll on.
    Copy,
    /// By load and store as well, coherently with the NIC's own accesses.
    Coherent,
}

/// What a device can do (`ibv_device_attr`).
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceAttr {
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests in one queue.
    pub max_qp_wr: u32,
    /// Pieces in one request.
    pub max_sge: u32,
    /// Bytes of inline data in one request.
    pub max_inline: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of one completion queue.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Bytes in one memory region.
    pub max_mr_size: u64,
    /// Bytes in one message.
    pub max_msg_size: u64,
    /// The rights that a region of all memory may have ([`crate::Pd::reg_all`]); `None` where there is no such region.
    pub implicit_mr: Option<Access>,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Work requests in one shared receive queue.
    pub max_srq_wr: u32,
    /// Bytes of private data in a connect, accept or reject.
    pub max_private_data: u32,
    /// What programs for the NIC's own processor may say and be told ([`crate::Device::load`]); `None` where it runs none.
    pub firmware: Option<FirmwareCap>,
    /// Outstanding reads and atomics of a queue pair.
    pub max_rd_atomic: u32,
    /// Bytes of NIC memory in all; 0 where there is none.
    pub max_dm_size: u64,
    /// How far atomics on host memory are atomic.
    pub atomic_cap: AtomicCap,
    /// How far atomics on NIC memory are atomic.
    pub atomic_cap_dm: AtomicCap,
    /// What the last byte of a peer's write into host memory says.
    pub write_order: WriteOrder,
    /// What the last byte of a peer's write into NIC memory says.
    pub write_order_dm: WriteOrder,
    /// How the processor reaches NIC memory.
    pub dm_access: DmAccess,
    /// Whether writes may ring ([`crate::SendFlags::RING`]).
    pub write_ring: bool,
    /// Whether processes load and store in their peers' NIC memory ([`crate::Qp::map`]), and ring for it ([`crate::Qp::ring`]).
    pub maps_peers: bool,
    /// The link's rate, where there is a link.
    pub link_rate: Option<Rate>,
    /// Ports of the device.
    pub ports: u8,
    /// The address of each port: listening there, or connecting to the same port's address of a peer, uses that port.
    /// Empty where ports have no addresses of their own and any address of the machine will do.
    pub port_addrs: Vec<IpAddr>,
    /// In a sentence each: what the device chose at its start and why (the copy path of private memory...).
    pub notes: Vec<String>,
}

/// Sizes of a queue pair's queues (`ibv_qp_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCap {
    /// Outstanding send requests.
    pub max_send_wr: u32,
    /// Outstanding receives; ignored with a shared receive queue.
    pub max_recv_wr: u32,
    /// Pieces in a send request.
    pub max_send_sge: u32,
    /// Pieces in a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data in a send request.
    pub max_inline: u32,
}

impl Default for QpCap {
    /// 64 of each, 4 pieces, 64 bytes inline.
    fn default() -> Self {
        Self { max_send_wr: 64, max_recv_wr: 64, max_send_sge: 4, max_recv_sge: 4, max_inline: 64 }
    }
}

/// Sizes of a shared receive queue (`ibv_srq_init_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqInit {
    /// Outstanding receives.
    pub max_wr: u32,
    /// Pieces in a receive.
    pub max_sge: u32,
}

/// The value of `rnr_retry` that means retries without end, and its highest value (IBA 9.7.5.2.8, `ibv_modify_qp(3)`).
pub const RNR_RETRY_FOREVER: u8 = 7;

/// The default pause before a message whose receiver had no receive posted is tried again (IBA 9.7.5.2.8).
pub const RNR_PAUSE: Span = Span::from_us(640);

/// The longest pause of a receiver without a receive (IBA 9.7.5.2.8, table 45).
pub const RNR_PAUSE_MAX: Span = Span::from_us(655_360);
