//! Devices, domains, regions and queues of the reference NIC.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use host::{EventCount, Host, Wake};

use super::connections::CmObject;
use super::copy_only_memory::CopyOnlyMemory;
use super::firmware;
use super::state::{
    Channel, CmChannel, Completions, Fault, LocalData, NicMemory, PostedReceive, PostedSend, QpEntry, Region,
    Signal, Slots, SrqEntry, World,
};
use verbs::provider::{
    CmOps, CompChannelOps, CqOps, DeviceOps, MrOps, PdOps, ProgramOps, QpOps, QpParts, SrqOps, downcast,
};
use verbs::{
    Access, AsyncEvent, AtomicCap, Buf, Data, Device, DeviceAttr, DmAccess, Error, Firmware, MemoryKind,
    QpState, RecvWr, RegionCap, Result, SendFlags, SendOp, SendWr, SrqInit, Wc, WriteOrder,
};

const NIC_MEMORY: u64 = 4 << 20;

struct DeviceObject {
    world: Arc<World>,
    index: usize,
    name: String,
    attr: DeviceAttr,
}

pub(super) fn device(world: &Arc<World>, index: usize) -> Device {
    let attr = DeviceAttr {
        max_qp: 4096,
        max_qp_wr: 1024,
        max_sge: 8,
        max_inline: 256,
        max_cq: 4096,
        max_cqe: 1 << 16,
        max_mr: 4096,
        max_mr_size: 1 << 40,
        max_msg_size: 1 << 31,
        implicit_mr: None,
        firmware: Some(firmware::CAP),
        max_srq: 64,
        max_srq_wr: 1024,
        max_private_data: 196,
        max_rd_atomic: 16,
        max_dm_size: NIC_MEMORY,
        atomic_cap: AtomicCap::Global,
        atomic_cap_dm: AtomicCap::Global,
        write_order: WriteOrder::LastByteLast,
        write_order_dm: WriteOrder::LastByteLast,
        dm_access: world.dm_access,
        write_notify: true,
        split_receives: false,
        regions: RegionCap { on_demand: true, any_address: true, rereg: true, max_mw: 0 },
        maps_peers: false,
        link_rate: None,
        port_addrs: Vec::new(),
        ports: 1,
        notes: Vec::new(),
    };
    let name = format!("reference{index}");
    Device::new(Arc::new(DeviceObject { world: world.clone(), index, name, attr }))
}

impl DeviceOps for DeviceObject {
    fn name(&self) -> &str {
        &self.name
    }

    fn host(&self) -> &Host {
        &self.world.host
    }

    fn attr(&self) -> &DeviceAttr {
        &self.attr
    }

    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>> {
        let number = self.world.lock().number();
        Ok(Arc::new(PdObject { world: self.world.clone(), device: self.index, number }))
    }

    fn create_cq(&self, cqe: u32, channel: Option<&Arc<dyn CompChannelOps>>) -> Result<Arc<dyn CqOps>> {
        let channel = channel.map(|channel| downcast(channel.clone(), "the completion channel"));
        let channel: Option<Arc<ChannelObject>> = channel.transpose()?;
        let (mut state, wakeup) = (self.world.lock(), Arc::new(EventCount::new()));
        let number = state.number();
        let (entries, channel_number) = (Default::default(), channel.as_ref().map(|c| c.number));
        let wakeup_too = wakeup.clone();
        let (device, overrun, armed) = (self.index, false, None);
        let queue =
            Completions { device, cqe, entries, overrun, channel: channel_number, armed, wakeup: wakeup_too };
        state.queues.insert(number, queue);
        Ok(Arc::new(CqObject { world: self.world.clone(), number, cqe, wakeup, _channel: channel }))
    }

    fn create_cm(&self) -> Result<Arc<dyn CmOps>> {
        let (mut state, signal) = (self.world.lock(), Signal::new());
        let number = state.number();
        state.managers.insert(number, CmChannel { events: Default::default(), signal: signal.clone() });
        Ok(Arc::new(CmObject { world: self.world.clone(), device: self.index, number, signal }))
    }

    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannelOps>> {
        let (mut state, signal) = (self.world.lock(), Signal::new());
        let number = state.number();
        state.channels.insert(number, Channel { events: Default::default(), signal: signal.clone() });
        Ok(Arc::new(ChannelObject { world: self.world.clone(), number, signal }))
    }

    fn alloc_dm(&self, len: usize) -> Result<Buf> {
        let mut state = self.world.lock();
        state.nic_memory.retain(|m| m.owner.strong_count() > 0);
        let used: u64 = state.nic_memory.iter().filter(|m| m.device == self.index).map(|m| m.len).sum();
        Error::check_limit("bytes of NIC memory", len as u64, NIC_MEMORY - used)?;
        if len == 0 {
            return Err(Error::Invalid("NIC memory of no bytes".into()));
        }
        let buf = match self.world.dm_access {
            DmAccess::Copy => Buf::copy_only(len, 0, Arc::new(CopyOnlyMemory::new(len))),
            _ => Buf::alloc_nic(len, 0)?,
        };
        let owner = Arc::downgrade(&buf.owner());
        state.nic_memory.push(NicMemory { device: self.index, len: len as u64, owner });
        Ok(buf)
    }

    fn load(
        &self,
        pd: &Arc<dyn PdOps>,
        addr: SocketAddr,
        firmware: Box<dyn Firmware>,
    ) -> Result<Box<dyn ProgramOps>> {
        let pd: Arc<PdObject> = downcast(pd.clone(), "the protection domain")?;
        Ok(Box::new(firmware::load(&self.world, (self.index, pd.number), addr, firmware)?))
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.world.lock().async_events[self.index].pop_front()
    }
}

struct PdObject {
    world: Arc<World>,
    device: usize,
    number: u32,
}

impl PdOps for PdObject {
    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>> {
        let base = if buf.kind() == MemoryKind::Nic { 0 } else { buf.addr() };
        self.reg_mr_at(buf, base, access)
    }

    fn reg_mr_at(&self, buf: &Buf, base: u64, access: Access) -> Result<Box<dyn MrOps>> {
        let mut state = self.world.lock();
        let (is_nic, owner) = (buf.kind() == MemoryKind::Nic, Arc::downgrade(&buf.owner()));
        let owned = |m: &NicMemory| m.device == self.device && m.owner.ptr_eq(&owner);
        if is_nic && !state.nic_memory.iter().any(owned) {
            return Err(Error::Foreign { what: "the NIC memory" });
        }
        let key = state.number();
        let region = Region { domain: self.number, buf: buf.clone(), base, access, invalidated: false };
        state.regions.insert(key, region);
        Ok(Box::new(MrObject { world: self.world.clone(), device: self.device, key, base }))
    }

    fn create_qp(&self, init: &QpParts) -> Result<Arc<dyn QpOps>> {
        let queue = |cq: &Arc<dyn CqOps>| -> Result<u32> {
            let cq: Arc<CqObject> = downcast(cq.clone(), "the completion queue")?;
            Ok(cq.number)
        };
        let (send_cq, recv_cq) = (queue(&init.send_cq)?, queue(&init.recv_cq)?);
        let srq = match &init.srq {
            None => None,
            Some(srq) => {
                let srq: Arc<SrqObject> = downcast(srq.clone(), "the shared receive queue")?;
                Some(srq.number)
            }
        };
        let mut state = self.world.lock();
        let number = state.number();
        let pair = QpEntry {
            device: self.device,
            domain: self.number,
            send_cq,
            recv_cq,
            srq,
            cap: init.cap,
            sig_all: init.sq_sig_all,
            reported_qp_num: init.reported_qp_num.unwrap_or(number),
            state: QpState::Init,
            sends: Default::default(),
            sends_used: 0,
            silent: 0,
            receives: Default::default(),
            receives_used: 0,
            peer: None,
            manager: None,
            request: None,
            rnr_retry: None,
        };
        state.pairs.insert(number, pair);
        Ok(Arc::new(QpObject { world: self.world.clone(), device: self.device, number }))
    }

    fn create_srq(&self, init: SrqInit) -> Result<Arc<dyn SrqOps>> {
        let mut state = self.world.lock();
        let number = state.number();
        let (device, domain, limit, used) = (self.device, self.number, 0, 0);
        let SrqInit { max_wr, max_sge } = init;
        let receives = Default::default();
        state.shared.insert(number, SrqEntry { device, domain, max_wr, max_sge, limit, used, receives });
        Ok(Arc::new(SrqObject { world: self.world.clone(), number }))
    }
}

struct MrObject {
    world: Arc<World>,
    device: usize,
    key: u32,
    base: u64,
}

impl MrOps for MrObject {
    fn lkey(&self) -> u32 {
        self.key
    }

    fn rkey(&self) -> u32 {
        self.key
    }

    fn addr(&self) -> u64 {
        self.base
    }

    fn rereg(&mut self, pd: &Arc<dyn PdOps>, buf: Option<&Buf>, access: Access) -> Result<()> {
        let pd: Arc<PdObject> = downcast(pd.clone(), "the protection domain")?;
        if pd.device != self.device {
            return Err(Error::Foreign { what: "the protection domain" });
        }
        let mut state = self.world.lock();
        let region = state.regions.get_mut(&self.key).expect("this region");
        (region.domain, region.access, region.invalidated) = (pd.number, access, false);
        if let Some(buf) = buf {
            self.base = if buf.kind() == MemoryKind::Nic { 0 } else { buf.addr() };
            (region.buf, region.base) = (buf.clone(), self.base);
        }
        Ok(())
    }

    fn dereg(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Drop for MrObject {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        if state.fault != Fault::KeepsKeys {
            state.regions.remove(&self.key);
        }
    }
}

struct CqObject {
    world: Arc<World>,
    number: u32,
    cqe: u32,
    wakeup: Arc<EventCount>,
    _channel: Option<Arc<ChannelObject>>,
}

impl CqOps for CqObject {
    fn id(&self) -> u32 {
        self.number
    }

    fn cqe(&self) -> u32 {
        self.cqe
    }

    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        let mut state = self.world.lock();
        for (count, place) in wcs.iter_mut().enumerate() {
            let queue = state.queues.get_mut(&self.number).expect("the queue exists");
            if queue.overrun {
                return Err(Error::CqOverrun { cqe: self.cqe });
            }
            let Some((wc, slots)) = queue.entries.pop_front() else { return Ok(count) };
            *place = wc;
            match slots {
                Slots::Send(pair, n) => drop(state.pairs.get_mut(&pair).map(|p| p.sends_used -= n)),
                Slots::Receive(pair) => drop(state.pairs.get_mut(&pair).map(|p| p.receives_used -= 1)),
                Slots::SharedReceive(srq, _) => drop(state.shared.get_mut(&srq).map(|s| s.used -= 1)),
            }
        }
        Ok(wcs.len())
    }

    fn req_notify(&self, solicited_only: bool) -> Result<()> {
        let mut state = self.world.lock();
        let queue = state.queues.get_mut(&self.number).expect("the queue exists");
        if queue.channel.is_none() {
            return Err(Error::Invalid("the completion queue has no channel".into()));
        }
        queue.armed = Some(solicited_only && queue.armed != Some(false));
        Ok(())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.wakeup)
    }
}

impl Drop for CqObject {
    fn drop(&mut self) {
        self.world.lock().queues.remove(&self.number);
    }
}

struct ChannelObject {
    world: Arc<World>,
    number: u32,
    signal: Arc<Signal>,
}

impl CompChannelOps for ChannelObject {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.signal.fd.as_fd())
    }

    fn poll_event(&self) -> Option<u32> {
        let mut state = self.world.lock();
        let channel = state.channels.get_mut(&self.number).expect("this channel");
        let event = channel.events.pop_front()?;
        if channel.events.is_empty() {
            channel.signal.clear();
        }
        Some(event)
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.signal.wakeup)
    }
}

impl Drop for ChannelObject {
    fn drop(&mut self) {
        self.world.lock().channels.remove(&self.number);
    }
}

pub(super) struct QpObject {
    world: Arc<World>,
    pub(super) device: usize,
    pub(super) number: u32,
}

impl QpOps for QpObject {
    fn num(&self) -> u32 {
        self.number
    }

    fn state(&self) -> QpState {
        self.world.lock().pairs[&self.number].state
    }

    fn set_rnr_retry(&self, retries: u8) -> Result<()> {
        self.world.lock().pairs.get_mut(&self.number).expect("this queue pair").rnr_retry = Some(retries);
        Ok(())
    }

    fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        let mut state = self.world.lock();
        let pair = state.pairs.get_mut(&self.number).expect("this queue pair");
        check_send(wr)?;
        if !matches!(pair.state, QpState::ReadyToSend | QpState::Error) {
            return Err(Error::WrongState { call: "post_send", state: pair.state });
        }
        if let Data::Sges(sges) = wr.data {
            Error::check_limit("pieces", sges.len() as u64, pair.cap.max_send_sge.into())?;
            let len = sges.iter().map(|s| u64::from(s.length)).sum();
            Error::check_limit("bytes of a message", len, 1 << 31)?;
        }
        if let Data::Inline(bytes) = wr.data {
            Error::check_limit("inline bytes", bytes.len() as u64, pair.cap.max_inline.into())?;
        }
        if pair.sends_used >= pair.cap.max_send_wr {
            return Err(Error::QueueFull { queue: "send", depth: pair.cap.max_send_wr });
        }
        pair.sends_used += 1;
        let data = match wr.data {
            Data::Sges(sges) => LocalData::Sges(sges.to_vec()),
            Data::Inline(bytes) => LocalData::Inline(bytes.to_vec()),
        };
        let signalled = pair.sig_all || wr.flags.contains(SendFlags::SIGNALED);
        let (solicited, ring) =
            (wr.flags.contains(SendFlags::SOLICITED), wr.flags.contains(SendFlags::NOTIFY));
        pair.sends.push_back(PostedSend { wr_id: wr.wr_id, op: wr.op, data, signalled, solicited, ring });
        if pair.state == QpState::Error {
            state.flush(self.number);
        }
        state.run();
        Ok(())
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        let mut state = self.world.lock();
        let pair = state.pairs.get_mut(&self.number).expect("this queue pair");
        if pair.srq.is_some() {
            return Err(Error::Invalid("receives go to the shared receive queue".into()));
        }
        Error::check_limit("pieces", wr.sges.len() as u64, pair.cap.max_recv_sge.into())?;
        if pair.receives_used >= pair.cap.max_recv_wr {
            return Err(Error::QueueFull { queue: "receive", depth: pair.cap.max_recv_wr });
        }
        pair.receives_used += 1;
        pair.receives.push_back(PostedReceive { wr_id: wr.wr_id, sges: wr.sges.to_vec() });
        if pair.state == QpState::Error {
            state.flush(self.number);
        }
        state.run();
        Ok(())
    }

    fn to_error(&self) {
        let mut state = self.world.lock();
        state.fail(self.number);
        state.fail_doomed();
    }
}

fn check_send(wr: &SendWr<'_>) -> Result<()> {
    if wr.op.is_of_window() {
        return Err(verbs::provider::no_windows("the reference NIC"));
    }
    let fetches = matches!(wr.op, SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
    if fetches && matches!(wr.data, Data::Inline(_)) {
        return Err(Error::Invalid("inline data with an operation that returns data".into()));
    }
    Ok(())
}

impl Drop for QpObject {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        let pair = state.pairs.get_mut(&self.number).expect("this queue pair");
        pair.sends.clear();
        pair.receives.clear();
        // Its end is not reported.
        (pair.manager, pair.srq) = (None, None);
        state.fail(self.number);
        state.pairs.remove(&self.number);
        // Its completions are dropped with it.
        let super::state::NicState { queues, shared, .. } = &mut *state;
        for queue in queues.values_mut() {
            queue.entries.retain(|&(_, slots)| {
                if let Slots::SharedReceive(srq, pair) = slots
                    && pair == self.number
                {
                    shared.get_mut(&srq).into_iter().for_each(|srq| srq.used -= 1);
                }
                slots.pair() != self.number
            });
        }
    }
}

struct SrqObject {
    world: Arc<World>,
    number: u32,
}

impl SrqOps for SrqObject {
    fn id(&self) -> u32 {
        self.number
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        let mut state = self.world.lock();
        let srq = state.shared.get_mut(&self.number).expect("the queue exists");
        Error::check_limit("pieces", wr.sges.len() as u64, srq.max_sge.into())?;
        if srq.used >= srq.max_wr {
            return Err(Error::QueueFull { queue: "shared receive", depth: srq.max_wr });
        }
        srq.used += 1;
        srq.receives.push_back(PostedReceive { wr_id: wr.wr_id, sges: wr.sges.to_vec() });
        state.run();
        Ok(())
    }

    fn arm_limit(&self, limit: u32) -> Result<()> {
        self.world.lock().shared.get_mut(&self.number).expect("the queue exists").limit = limit;
        Ok(())
    }

    fn limit(&self) -> u32 {
        self.world.lock().shared[&self.number].limit
    }
}

impl Drop for SrqObject {
    fn drop(&mut self) {
        self.world.lock().shared.remove(&self.number);
    }
}
