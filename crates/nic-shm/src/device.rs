//! Opens a device and creates its objects: domains, queues, queue pairs, channels.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{Bytes, Host, Wake};
use verbs::provider::{
    CmOps, CompChannelOps, CqOps, DeviceOps, MrOps, MwOps, PdOps, QpOps, QpParts, SrqOps, downcast,
};
use verbs::{
    Access, AsyncEvent, AtomicCap, Buf, DeviceAttr, DmAccess, Error, MwKind, RegionCap, Result, SrqInit,
    WriteOrder,
};

use crate::api::cq::{ChannelHandle, CqHandle};
use crate::api::handle::QpHandle;
use crate::api::mr::{AllMemory, ShmMr, ShmMw, ShmPd};
use crate::api::srq::SrqHandle;
use crate::connect::cm::CmHandle;
use crate::copy::copy_path::{CopyPath, CopyState};
use crate::copy::place::{self, SGE_MAX, own_pid};
use crate::device_inner::DeviceInner;
use crate::memory::allocator::{PAGE, SegmentAllocator};
use crate::memory::layout::{CQ_MAX, DM_BASE, MR_MAX, QP_MAX, SRQ_MAX};
use crate::memory::segment::{SEGMENT_MAX, Segment};
use crate::nic;
use crate::peer::device::PeerDevices;
use crate::protocol::wire::PRIVATE_MAX;
use crate::shared::{DeviceShared, NAME};
use nic_util::fork::ForkGuard;
use nic_util::limits::{half_of_memory, raise_file_limit};
use nic_util::string_moves;
use nic_util::sync::fence;

/// Configuration of a shared-memory device.
#[derive(Clone, Debug, Default)]
pub struct ShmConfig {
    /// How private memory of other processes is accessed.
    pub copy: CopyPath,
    /// Bytes of NIC memory that can be allocated. Default: half of the machine's memory, or less if the
    /// limits of this process require it. Memory is committed only as it is allocated.
    pub dm_size: Option<Bytes>,
}

/// Opens the shared-memory device.
///
/// # Errors
/// [`Error::System`] if shared memory, descriptors or a thread cannot be created.
pub fn open(host: &Host, config: &ShmConfig) -> Result<verbs::Device> {
    let fork_guard = ForkGuard::current()?;
    uaccess::detect_features();
    string_moves::detect();
    fence::register();
    let files = raise_file_limit();
    let whole_pages = |bytes: u64| bytes.next_multiple_of(PAGE).max(PAGE);
    let (segment, dm_size) = match config.dm_size.map(|wanted| whole_pages(wanted.0)) {
        Some(wanted) => {
            Error::check_limit("bytes of NIC memory", wanted, SEGMENT_MAX - DM_BASE)?;
            (Segment::create(DM_BASE + wanted)?, wanted)
        }
        None => Segment::create_within_limits(whole_pages(half_of_memory()).min(SEGMENT_MAX - DM_BASE))?,
    };
    let copy = CopyState::new(config.copy);
    let attr = attributes(dm_size, files, &copy);
    let memory = SegmentAllocator::new(segment, fork_guard, dm_size);
    let shared = DeviceShared::new(host, fork_guard, attr, memory, PeerDevices::new(copy))?;
    let device = Arc::new(DeviceInner::new(shared));
    nic::start(&device)?;
    Ok(verbs::Device::new(Arc::new(ShmDevice(device))))
}

/// For writes into host memory of another process, the kernel copies the last byte in a separate step
/// (`place`); x86 keeps stores in order.
const HOST_ORDER: WriteOrder =
    if cfg!(target_arch = "x86_64") { WriteOrder::LastByteLast } else { WriteOrder::None };

fn attributes(dm_size: u64, files: Option<u64>, copy: &CopyState) -> DeviceAttr {
    let barriers = if fence::register() { "expedited membarrier(2)" } else { "full fences" };
    DeviceAttr {
        max_qp: QP_MAX as u32,
        max_qp_wr: 16_384,
        max_sge: SGE_MAX as u32,
        max_inline: 1024,
        max_cq: CQ_MAX as u32,
        max_cqe: 1 << 22,
        max_mr: MR_MAX as u32,
        max_mr_size: 1 << 46,
        max_msg_size: 1 << 30,
        implicit_mr: implicit_rights(),
        firmware: None,
        max_srq: SRQ_MAX as u32,
        max_srq_wr: 16_384,
        max_private_data: PRIVATE_MAX as u32,
        max_rd_atomic: 255,
        max_dm_size: dm_size,
        atomic_cap: AtomicCap::Hca,
        atomic_cap_dm: AtomicCap::Global,
        write_order: HOST_ORDER,
        write_order_dm: WriteOrder::LastByteLast,
        dm_access: DmAccess::Coherent,
        write_notify: true,
        split_receives: false,
        regions: RegionCap { on_demand: true, any_address: true, rereg: true, max_mw: MR_MAX as u32 },
        maps_peers: true,
        link_rate: None,
        port_addrs: Vec::new(),
        ports: 1,
        notes: vec![
            copy.describe(),
            format!("deregistration waits for accesses by {barriers}"),
            match files {
                Some(n) => format!("{n} descriptors allow about {} connections", n / 5),
                None => "descriptors are not limited".into(),
            },
        ],
    }
}

/// The rights that a region of all memory may have: remote access only if the kernel can copy, even within
/// this process.
fn implicit_rights() -> Option<Access> {
    let word = 0x6e69_6365_7479_u64;
    let copies = place::probe_kernel_copy(own_pid(), (&raw const word).addr() as u64, word).is_ok();
    Some(if copies { Access::ALL } else { Access::LOCAL_WRITE })
}

/// The opened device.
struct ShmDevice(Arc<DeviceInner>);

/// The internal device of an API handle.
#[cfg(test)]
pub(crate) fn device_inner_of(device: &verbs::Device) -> Result<Arc<DeviceInner>> {
    let shm: Arc<ShmDevice> = downcast(device.ops().clone(), "the device")?;
    Ok(shm.0.clone())
}

impl DeviceOps for ShmDevice {
    fn name(&self) -> &str {
        NAME
    }

    fn host(&self) -> &Host {
        &self.0.shared.host
    }

    fn check(&self) -> Result<()> {
        self.0.shared.fork_guard.check()
    }

    fn attr(&self) -> &DeviceAttr {
        &self.0.shared.attr
    }

    fn check_mtu(&self, _mtu: u32) -> Result<()> {
        let what = "an MTU: it copies messages within memory, and there are no packets";
        Err(Error::Unsupported { device: NAME.into(), what })
    }

    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>> {
        self.0.shared.fork_guard.check()?;
        Ok(Arc::new(ShmPd { device: self.0.clone(), id: self.0.alloc_pd_id() }))
    }

    fn create_cq(&self, cqe: u32, channel: Option<&Arc<dyn CompChannelOps>>) -> Result<Arc<dyn CqOps>> {
        self.0.shared.fork_guard.check()?;
        let channel = channel.map(|channel| downcast(channel.clone(), "the completion channel"));
        let channel: Option<Arc<ChannelHandle>> = channel.transpose()?;
        Ok(Arc::new(CqHandle::create(&self.0, cqe, channel.as_deref())?))
    }

    fn create_cm(&self) -> Result<Arc<dyn CmOps>> {
        self.0.shared.fork_guard.check()?;
        Ok(Arc::new(CmHandle::create(&self.0)?))
    }

    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannelOps>> {
        self.0.shared.fork_guard.check()?;
        Ok(Arc::new(ChannelHandle::create(&self.0)?))
    }

    fn alloc_dm(&self, len: usize) -> Result<Buf> {
        self.0.shared.fork_guard.check()?;
        self.0.shared.memory.alloc_dm_buf(len)
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.0.shared.fork_guard.check().ok()?;
        // Peers fill queues and consume receives without notification; the check is made here.
        self.0.check_watched();
        self.0.handle_requested_failures();
        self.0.shared.events.pop(|| {})
    }

    fn prepare_wait(&self) -> Option<Wake<'_>> {
        Some(self.0.shared.events.prepare_wait())
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.shared.events.fd())
    }
}

impl PdOps for ShmPd {
    fn reg_all(&self, access: Access) -> Result<Box<dyn MrOps>> {
        self.device.shared.fork_guard.check()?;
        Ok(Box::new(AllMemory::register(self, access)?))
    }

    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>> {
        self.device.shared.fork_guard.check()?;
        Ok(Box::new(ShmMr::register(self, buf, None, access)?))
    }

    fn reg_mr_at(&self, buf: &Buf, addr: u64, access: Access) -> Result<Box<dyn MrOps>> {
        self.device.shared.fork_guard.check()?;
        Ok(Box::new(ShmMr::register(self, buf, Some(addr), access)?))
    }

    fn alloc_mw(&self, kind: MwKind) -> Result<Box<dyn MwOps>> {
        self.device.shared.fork_guard.check()?;
        Ok(Box::new(ShmMw::create(self, kind)?))
    }

    fn create_qp(&self, init: &QpParts) -> Result<Arc<dyn QpOps>> {
        self.device.shared.fork_guard.check()?;
        Ok(Arc::new(QpHandle::create(&self.device, self.id, init)?))
    }

    fn create_srq(&self, init: SrqInit) -> Result<Arc<dyn SrqOps>> {
        self.device.shared.fork_guard.check()?;
        Ok(Arc::new(SrqHandle::create(&self.device, self.id, init)?))
    }
}

#[cfg(test)]
mod tests {
    use verbs::Qp;

    use super::*;

    /// Bytes of memory that a device's segment uses.
    fn committed(device: &DeviceInner) -> u64 {
        rustix::fs::fstat(&device.shared.memory.segment).expect("a file").st_blocks as u64 * 512
    }

    /// Goal: a destroyed queue pair leaves no memory in its device, however late its peer notices. Method:
    /// the NIC thread of the peer has ended, so that the peer first reacts when it is destroyed itself.
    #[test]
    fn destroying_the_peer_later_allocates_no_memory() {
        let (near, far) = crate::hostile_peer::connected_qps();
        let device_of = |qp: &Qp| {
            let handle: Arc<QpHandle> =
                downcast(qp.ops().clone(), "the queue pair").expect("a queue pair of this NIC");
            handle.device.clone()
        };
        let (left, other) = (device_of(&near), device_of(&far));
        other.stop();
        let before = committed(&left);
        drop(near);
        let gone = committed(&left);
        assert!(gone < before, "its page was not released: {gone} of {before}");
        drop(far);
        assert_eq!(committed(&left), gone, "its page was allocated again");
    }
}
