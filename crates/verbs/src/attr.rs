//! Attributes and limits of devices and queues.

use std::net::IpAddr;

use crate::access::Access;
use crate::firmware::FirmwareCap;
use host::{Rate, Span};

/// The scope in which a device's atomics are atomic (`ibv_atomic_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicCap {
    /// The device has no atomics.
    None,
    /// Atomic among the queue pairs of this device.
    Hca,
    /// Atomic also with respect to processors.
    Global,
}

/// Whether a poller that sees the last byte of an RDMA write may rely on its other bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOrder {
    /// No: wait for a completion.
    None,
    /// A poller that sees the last byte of a write (by an acquire load) sees all of it, and everything that the queue
    /// pair wrote before.
    LastByteLast,
}

/// How the processor accesses NIC memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmAccess {
    /// Not at all, or there is no NIC memory.
    None,
    /// By copy calls only ([`crate::Buf::read`], [`crate::Buf::write`]); it cannot be polled.
    Copy,
    /// By load and store as well, coherently with the NIC's own accesses.
    Coherent,
}

/// Capabilities and limits of a device (`ibv_device_attr`).
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceAttr {
    /// Maximum number of queue pairs.
    pub max_qp: u32,
    /// Maximum number of work requests in one queue.
    pub max_qp_wr: u32,
    /// Maximum number of scatter/gather elements in one request.
    pub max_sge: u32,
    /// Maximum number of bytes of inline data in one request.
    pub max_inline: u32,
    /// Maximum number of completion queues.
    pub max_cq: u32,
    /// Maximum number of entries of one completion queue.
    pub max_cqe: u32,
    /// Maximum number of memory regions.
    pub max_mr: u32,
    /// Maximum number of bytes in one memory region.
    pub max_mr_size: u64,
    /// Maximum number of bytes in one message.
    pub max_msg_size: u64,
    /// The rights that a region of all memory may have ([`crate::Pd::reg_all`]); `None` if such regions are not
    /// supported.
    pub implicit_mr: Option<Access>,
    /// Maximum number of shared receive queues.
    pub max_srq: u32,
    /// Maximum number of work requests in one shared receive queue.
    pub max_srq_wr: u32,
    /// Maximum number of bytes of private data in a connect, accept or reject.
    pub max_private_data: u32,
    /// Limits of programs for the NIC's own processor ([`crate::Device::load`]); `None` if it runs none.
    pub firmware: Option<FirmwareCap>,
    /// Maximum number of outstanding reads and atomics of a queue pair.
    pub max_rd_atomic: u32,
    /// Total bytes of NIC memory; 0 if there is none.
    pub max_dm_size: u64,
    /// The scope of atomics on host memory.
    pub atomic_cap: AtomicCap,
    /// The scope of atomics on NIC memory.
    pub atomic_cap_dm: AtomicCap,
    /// What the last byte of a peer's write into host memory guarantees.
    pub write_order: WriteOrder,
    /// What the last byte of a peer's write into NIC memory guarantees.
    pub write_order_dm: WriteOrder,
    /// How the processor accesses NIC memory.
    pub dm_access: DmAccess,
    /// Whether writes may notify the receiver ([`crate::SendFlags::NOTIFY`]).
    pub write_notify: bool,
    /// Whether processes can load from and store to their peers' NIC memory ([`crate::Qp::map`]), and notify the peer
    /// of that ([`crate::Qp::notify`]).
    pub maps_peers: bool,
    /// Whether a receive may take the beginning of a longer message ([`crate::QpInit::split_receives`]).
    pub split_receives: bool,
    /// What memory regions offer in addition to mapped memory at its own address.
    pub regions: RegionCap,
    /// The link's rate, if there is a link.
    pub link_rate: Option<Rate>,
    /// Number of ports.
    pub ports: u8,
    /// The address of each port: listening there, or connecting to the same port's address of a peer, uses that port.
    /// Empty if ports have no addresses of their own and any address of the machine can be used.
    pub port_addrs: Vec<IpAddr>,
    /// What the device selected when it was opened and why (the copy path of private memory...), a sentence each.
    pub notes: Vec<String>,
}

impl DeviceAttr {
    /// All rights that a region of this device can have: without atomics if the device has none.
    #[must_use]
    pub fn all_access(&self) -> Access {
        let has_atomics = self.atomic_cap != AtomicCap::None || self.atomic_cap_dm != AtomicCap::None;
        if has_atomics { Access::ALL } else { Access::ALL - Access::REMOTE_ATOMIC }
    }
}

/// What the memory regions of a device offer in addition to mapped memory at its own address. The default is
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionCap {
    /// Whether a region's memory may be unmapped when it is registered, and mapped later ([`crate::Buf::on_demand`]).
    pub on_demand: bool,
    /// Whether requests may address a region by other addresses than those of its memory ([`crate::Pd::reg_mr_at`]).
    pub any_address: bool,
    /// Whether rights, domain and memory of a region can change while its keys stay ([`crate::Pd::rereg_mr`]).
    pub rereg: bool,
    /// Maximum number of memory windows ([`crate::Pd::alloc_mw`]); they share the keys of regions, and so their limit. 0 if
    /// the device has none.
    pub max_mw: u32,
}

/// Sizes of a queue pair's queues (`ibv_qp_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCap {
    /// Outstanding send requests.
    pub max_send_wr: u32,
    /// Outstanding receives; ignored with a shared receive queue.
    pub max_recv_wr: u32,
    /// Scatter/gather elements in a send request.
    pub max_send_sge: u32,
    /// Scatter/gather elements in a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data in a send request.
    pub max_inline: u32,
}

impl Default for QpCap {
    /// 64 of each, 4 elements, 64 bytes inline.
    fn default() -> Self {
        Self { max_send_wr: 64, max_recv_wr: 64, max_send_sge: 4, max_recv_sge: 4, max_inline: 64 }
    }
}

/// Sizes of a shared receive queue (`ibv_srq_init_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqInit {
    /// Outstanding receives.
    pub max_wr: u32,
    /// Scatter/gather elements in a receive.
    pub max_sge: u32,
}

/// The value of `rnr_retry` for unlimited retries, which is also its maximum (IBA 9.7.5.2.8, `ibv_modify_qp(3)`).
pub const RNR_RETRY_FOREVER: u8 = 7;

/// The default pause before a message is retried that found no receive posted (IBA 9.7.5.2.8).
pub const RNR_PAUSE: Span = Span::from_us(640);

/// The longest such pause that a receiver may request (IBA 9.7.5.2.8, table 45).
pub const RNR_PAUSE_MAX: Span = Span::from_us(655_360);
