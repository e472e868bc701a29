//! The device.

use std::net::IpAddr;
use std::sync::Arc;

use host::{EventCount, Host, Rate};
use verbs::provider::{CmOps, CompChannelOps, CqOps, DeviceOps, PdOps, downcast};
use verbs::{AsyncEvent, AtomicCap, Buf, DeviceAttr, DmAccess, Error, RegionCap, Result, WriteOrder};

use super::domain::DomainObject;
use super::manager::CmObject;
use super::opened::OpenedDevice;
use super::queues::{ChannelObject, CqObject};
use crate::config::Config;
use crate::limits::{self, ObjectKind};
use crate::machine::WriteImmKind;
use crate::net::connections::address;

/// A device: one opening of a node's card.
pub(crate) struct DeviceObject(pub(crate) Arc<OpenedDevice>);

/// The attributes of the card of a machine in this node.
pub(crate) fn attr_of(config: &Config, node: usize) -> DeviceAttr {
    let (p, rail) = (&config.machine.params, config.rail);
    let rails = rail.map_or(0..p.link.port_count as usize, |rail| rail..rail + 1);
    let mut notes = config.notes();
    let atomics = if p.api.atomics_flag { AtomicCap::Hca } else { AtomicCap::None };
    if p.api.write_imm_kind == WriteImmKind::Split {
        notes.push("a write with immediate data is sent as a write followed by a message".to_owned());
    }
    let shared = p.api.shared_receives_flag;
    DeviceAttr {
        max_qp: ObjectKind::QueuePair.limit(),
        max_qp_wr: limits::REQUESTS,
        max_sge: limits::SGES,
        max_inline: limits::INLINE_BYTES,
        max_cq: ObjectKind::CompletionQueue.limit(),
        max_cqe: limits::ENTRIES,
        max_mr: ObjectKind::Region.limit(),
        max_mr_size: limits::REGION_BYTES,
        max_msg_size: limits::MESSAGE_BYTES,
        implicit_mr: None,
        firmware: None,
        max_srq: if shared { ObjectKind::SharedReceiveQueue.limit() } else { 0 },
        max_srq_wr: if shared { limits::REQUESTS } else { 0 },
        max_private_data: limits::PRIVATE_BYTES,
        max_rd_atomic: p.transport.reads_requests as u32,
        max_dm_size: (p.nic_memory.size_mib as u64) << 20,
        atomic_cap: atomics,
        atomic_cap_dm: atomics,
        write_order: WriteOrder::LastByteLast,
        write_order_dm: WriteOrder::LastByteLast,
        dm_access: if p.nic_memory.size_mib > 0.0 { DmAccess::Coherent } else { DmAccess::None },
        write_notify: false,
        split_receives: false,
        regions: RegionCap::default(),
        maps_peers: false,
        link_rate: Some(Rate(p.link.rate_mbps * 1e6)),
        ports: rails.len() as u8,
        port_addrs: rails.map(|port| IpAddr::V4(address(node, port))).collect(),
        notes,
    }
}

impl DeviceOps for DeviceObject {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn host(&self) -> &Host {
        &self.0.host
    }

    fn attr(&self) -> &DeviceAttr {
        &self.0.attr
    }

    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>> {
        let number = self.0.net.lock().domain();
        Ok(Arc::new(DomainObject { opened: self.0.clone(), number }))
    }

    fn create_cq(&self, cqe: u32, channel: Option<&Arc<dyn CompChannelOps>>) -> Result<Arc<dyn CqOps>> {
        let channel = channel.map(|channel| downcast(channel.clone(), "the completion channel"));
        let channel: Option<Arc<ChannelObject>> = channel.transpose()?;
        let key = self.0.net.lock().create_cq(self.0.context, cqe, channel.as_ref().map(|c| c.key))?;
        Ok(Arc::new(CqObject {
            opened: self.0.clone(),
            key,
            cqe,
            wakeup: EventCount::new(),
            _channel: channel,
        }))
    }

    fn create_cm(&self) -> Result<Arc<dyn CmOps>> {
        let key = self.0.net.lock().create_cm(self.0.card);
        Ok(Arc::new(CmObject { opened: self.0.clone(), key, wakeup: EventCount::new() }))
    }

    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannelOps>> {
        let key = self.0.net.lock().create_channel();
        Ok(Arc::new(ChannelObject { opened: self.0.clone(), key, wakeup: EventCount::new() }))
    }

    fn alloc_dm(&self, len: usize) -> Result<Buf> {
        self.0.net.lock().alloc_dm(self.0.context, len)
    }

    fn check_mtu(&self, mtu: u32) -> Result<()> {
        if mtu < 256 {
            return Err(Error::Invalid(format!("an MTU of {mtu} bytes: the least is 256")));
        }
        let limit = self.0.net.lock().mtu();
        Error::check_limit("the MTU in bytes", mtu.into(), limit)
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        let (mut state, _) = self.0.lock_synced();
        state.poll_async_event(self.0.context)
    }
}
