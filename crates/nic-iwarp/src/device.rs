//! Opening a device, and the device's calls of the API.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{Host, ProgressHook, Wake};
use verbs::provider::{
    CmOps, CompChannelOps, CqOps, DeviceOps, MrOps, MwOps, PdOps, QpOps, QpParts, SrqOps, downcast,
};
use verbs::{
    Access, AsyncEvent, AtomicCap, Buf, DeviceAttr, DmAccess, MwKind, RegionCap, Result, SrqInit, WriteOrder,
};

use crate::api::channel::ChannelInner;
use crate::api::cq::CqInner;
use crate::api::handle::QpHandle;
use crate::api::mr::{IwarpMr, IwarpMw, IwarpPd};
use crate::api::srq::SrqInner;
use crate::config::{Completion, FpduSize, IwarpConfig, PRIVATE_DATA_MAX};
use crate::connect::cm::CmHandle;
use crate::device_inner::{CQ_MAX, DeviceInner, QP_MAX, SRQ_MAX};
use crate::memory::regions::{MR_MAX, random};
use crate::nic;
use crate::queues::qp_queues::MAX_MSG_SIZE;
use crate::shared::DeviceShared;
use crate::tcp::socket::check_local_addr;
use nic_util::fork::ForkGuard;
use nic_util::limits::{half_of_memory, raise_file_limit};
use nic_util::sg_list::SGE_MAX;

/// Opens an iWARP device.
///
/// # Errors
/// [`verbs::Error::System`] if descriptors or a thread cannot be created; [`verbs::Error::Address`] for an address
/// that this host does not have.
pub fn open(host: &Host, config: &IwarpConfig) -> Result<verbs::Device> {
    let fork_guard = ForkGuard::current()?;
    uaccess::detect_features();
    config.bind.map_or(Ok(()), check_local_addr)?;
    // Without random numbers no memory can be registered, so the device is not opened.
    random()?;
    let files = raise_file_limit();
    let dm_size = config.dm_size.unwrap_or_else(half_of_memory).max(4096);
    let attr = attributes(dm_size, files, config);
    let inner = Arc::new(DeviceInner::new(DeviceShared::new(host, fork_guard, config)?, attr));
    nic::start(&inner)?;
    let hook: Arc<dyn ProgressHook> = inner.clone();
    host.add_progress_hook(Arc::downgrade(&hook));
    let name = config.bind.map_or_else(|| "iwarp".to_owned(), |ip| format!("iwarp@{ip}"));
    Ok(verbs::Device::new(Arc::new(IwarpDevice { inner, name })))
}

fn attributes(dm_size: u64, files: Option<u64>, config: &IwarpConfig) -> DeviceAttr {
    DeviceAttr {
        max_qp: QP_MAX as u32,
        max_qp_wr: 16_384,
        max_sge: SGE_MAX as u32,
        max_inline: 1024,
        max_cq: CQ_MAX as u32,
        max_cqe: 1 << 22,
        max_mr: MR_MAX as u32,
        max_mr_size: 1 << 46,
        max_msg_size: MAX_MSG_SIZE,
        implicit_mr: Some(Access::LOCAL_WRITE),
        firmware: None,
        max_srq: SRQ_MAX as u32,
        max_srq_wr: 16_384,
        max_private_data: PRIVATE_DATA_MAX as u32,
        max_rd_atomic: 255,
        max_dm_size: dm_size,
        atomic_cap: AtomicCap::Global,
        atomic_cap_dm: AtomicCap::Global,
        write_order: WriteOrder::LastByteLast,
        write_order_dm: WriteOrder::LastByteLast,
        dm_access: DmAccess::Coherent,
        write_notify: true,
        split_receives: true,
        regions: RegionCap { on_demand: true, any_address: true, rereg: true, max_mw: MR_MAX as u32 },
        maps_peers: false,
        link_rate: None,
        port_addrs: config.bind.into_iter().collect(),
        ports: 1,
        notes: vec![
            match config.crc {
                true => "CRC32c is requested".into(),
                false => "CRC32c is used if the peer requests it; TCP has a checksum of its own".into(),
            },
            match config.completion {
                Completion::Placed => "a request completes when the peer has placed or delivered it".into(),
                Completion::Sent => "a request completes when TCP has accepted it, as on an RNIC".into(),
            },
            match config.fpdu {
                FpduSize::Largest => {
                    "FPDUs are as large as possible: 63 KiB, or 60,000 bytes with CRCs".into()
                }
                FpduSize::Segment => "an FPDU fits a TCP segment".into(),
                FpduSize::Bytes(bytes) => format!("FPDUs have at most {bytes} bytes"),
            },
            match files {
                Some(n) => format!("{n} descriptors allow about as many connections"),
                None => "descriptors are not limited".into(),
            },
        ],
    }
}

/// The opened device.
struct IwarpDevice {
    inner: Arc<DeviceInner>,
    name: String,
}

impl DeviceOps for IwarpDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn host(&self) -> &Host {
        &self.inner.shared.host
    }

    fn check(&self) -> Result<()> {
        self.inner.shared.fork_guard.check()
    }

    fn attr(&self) -> &DeviceAttr {
        &self.inner.attr
    }

    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>> {
        self.inner.shared.fork_guard.check()?;
        Ok(Arc::new(IwarpPd { device: self.inner.clone(), id: self.inner.take_pd() }))
    }

    fn create_cq(&self, cqe: u32, channel: Option<&Arc<dyn CompChannelOps>>) -> Result<Arc<dyn CqOps>> {
        self.inner.shared.fork_guard.check()?;
        let Some(channel) = channel else { return Ok(Arc::new(CqInner::create(&self.inner, cqe, None)?)) };
        let channel: Arc<ChannelInner> = downcast(channel.clone(), "the completion channel")?;
        let cq = Arc::new(CqInner::create(&self.inner, cqe, Some(channel.cq_events().clone()))?);
        channel.attach(&cq);
        Ok(cq)
    }

    fn create_cm(&self) -> Result<Arc<dyn CmOps>> {
        self.inner.shared.fork_guard.check()?;
        Ok(Arc::new(CmHandle::create(&self.inner)?))
    }

    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannelOps>> {
        self.inner.shared.fork_guard.check()?;
        Ok(Arc::new(ChannelInner::create()?))
    }

    fn alloc_dm(&self, len: usize) -> Result<Buf> {
        self.inner.shared.fork_guard.check()?;
        self.inner.dm.alloc(len)
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.inner.shared.events.pop(|| {})
    }

    fn prepare_wait(&self) -> Option<Wake<'_>> {
        Some(self.inner.shared.events.prepare_wait())
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inner.shared.events.fd())
    }
}

impl PdOps for IwarpPd {
    fn reg_all(&self, access: Access) -> Result<Box<dyn MrOps>> {
        self.device.shared.fork_guard.check()?;
        Ok(Box::new(IwarpMr::register_all(self, access)?))
    }

    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>> {
        self.device.shared.fork_guard.check()?;
        Ok(Box::new(IwarpMr::register(self, buf, None, access)?))
    }

    fn reg_mr_at(&self, buf: &Buf, addr: u64, access: Access) -> Result<Box<dyn MrOps>> {
        self.device.shared.fork_guard.check()?;
        Ok(Box::new(IwarpMr::register(self, buf, Some(addr), access)?))
    }

    fn alloc_mw(&self, kind: MwKind) -> Result<Box<dyn MwOps>> {
        self.device.shared.fork_guard.check()?;
        Ok(Box::new(IwarpMw::create(self, kind)?))
    }

    fn create_qp(&self, init: &QpParts) -> Result<Arc<dyn QpOps>> {
        self.device.shared.fork_guard.check()?;
        Ok(Arc::new(QpHandle::create(&self.device, self.id, init)?))
    }

    fn create_srq(&self, init: SrqInit) -> Result<Arc<dyn SrqOps>> {
        self.device.shared.fork_guard.check()?;
        Ok(Arc::new(SrqInner::create(&self.device, init)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::QpInit;

    /// Goal: deregistering waits for connections that were worked on, and for no others. Method: holds the lock of an
    /// unused queue pair, so waiting for it would block for ever.
    #[test]
    fn dereg_does_not_wait_for_unused_queue_pairs() {
        let device = open(&host::real::host(), &IwarpConfig::default()).expect("a device");
        let ops: Arc<IwarpDevice> =
            downcast(device.ops().clone(), "the device").expect("a device of this NIC");
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
        let qps: Vec<_> = (0..3).map(|_| pd.create_qp(&QpInit::new(&cq)).expect("a queue pair")).collect();
        let mr = pd.reg_mr(&Buf::alloc(64).expect("memory"), Access::ALL).expect("a region");
        let idle = ops.inner.qp(qps[1].num()).expect("the queue pair exists");
        idle.with(|_| mr.dereg().expect("no thread uses a connection"));
        // A queue pair that was in use is waited for and removed from the set.
        idle.queues.mark_in_use();
        assert_eq!(ops.inner.shared.visited.lock().len(), 1);
        ops.inner.wait_for_lock_holders();
        assert!(ops.inner.shared.visited.lock().is_empty());
    }
}
