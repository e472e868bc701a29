//! A device with regions between canaries, and the traffic of a connection.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use host::Span;
use nic_shm::lab::FaultInjector;
use nic_shm::{CopyPath, ShmConfig, open};
use verbs::{
    Access, Buf, Cm, CmEvent, CompChannel, ConnParam, ConnectRequest, Cq, Device, Mr, Pd, Qp, QpCap, QpInit,
    RecvWr, RemoteAddr, SendOp, SendWr, Srq, SrqInit, Wc, WcOpcode,
};

/// The length of a region; the same length is unregistered on each side of it.
pub(super) const LEN: usize = 4096;
const CANARY: u8 = 0xc5;
/// The length of a distant buffer that is never registered.
const ELSEWHERE: usize = 1 << 20;
/// The length of a receive.
const ROOM: u32 = 1024;
const RECEIVES: u64 = 8;
const SHARED: SrqInit = SrqInit { max_wr: RECEIVES as u32, max_sge: 2 };

/// The address for listening.
pub(super) fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// The name of a copy path in messages between processes.
pub(super) fn path_name(copy: CopyPath) -> &'static str {
    if copy == CopyPath::Service { "service" } else { "auto" }
}

/// The remote addresses and keys of a side's regions.
#[derive(Clone, Copy)]
pub(super) struct RemoteRegions {
    pub(super) host: RemoteAddr,
    pub(super) nic: RemoteAddr,
}

impl RemoteRegions {
    /// As private data.
    pub(super) fn pack(&self) -> Vec<u8> {
        let words = [self.host.addr, self.host.rkey.into(), self.nic.addr, self.nic.rkey.into()];
        words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect()
    }

    /// From private data; zeros where it is too short.
    pub(super) fn unpack(data: &[u8]) -> Self {
        let word = |i: usize| {
            let bytes = data.get(i * 8..i * 8 + 8).and_then(|b| b.try_into().ok()).unwrap_or([0; 8]);
            u64::from_le_bytes(bytes)
        };
        let remote = |i| RemoteAddr { addr: word(i), rkey: word(i + 1) as u32 };
        Self { host: remote(0), nic: remote(2) }
    }
}

/// A region in the middle of a buffer of canaries.
struct GuardedRegion {
    buf: Buf,
    mr: Mr,
}

impl GuardedRegion {
    fn new(pd: &Pd, buf: Buf) -> Result<Self> {
        buf.fill(CANARY);
        let mr = pd.reg_mr_range(&buf, LEN..2 * LEN, Access::ALL)?;
        Ok(Self { buf, mr })
    }

    fn changed(&self) -> u64 {
        [0..LEN, 2 * LEN..3 * LEN].into_iter().map(|range| changed(&self.buf.slice(range))).sum()
    }
}

/// Counts the bytes that are not canaries any more, and restores them.
fn changed(buf: &verbs::Result<Buf>) -> u64 {
    let Ok(buf) = buf else { return 1 };
    let mut bytes = vec![0; buf.len()];
    if buf.read(0, &mut bytes).is_err() {
        return 1;
    }
    let count = bytes.iter().filter(|&&b| b != CANARY).count() as u64;
    if count > 0 {
        buf.fill(CANARY);
    }
    count
}

/// A device and its objects.
pub(super) struct Testbed {
    pub(super) device: Device,
    pd: Pd,
    pub(super) cm: Cm,
    channel: CompChannel,
    srq: Srq,
    host: GuardedRegion,
    nic: GuardedRegion,
    /// The bystander's regions.
    other: [GuardedRegion; 2],
    elsewhere: [Buf; 2],
    kept: RefCell<Vec<Qp>>,
}

impl Testbed {
    /// A device that reaches private memory by this copy path.
    pub(super) fn new(copy: CopyPath) -> Result<Self> {
        let device = open(&host::real::host(), &ShmConfig { copy, ..ShmConfig::default() })?;
        let pd = device.alloc_pd()?;
        let elsewhere = [Buf::alloc(ELSEWHERE)?, device.alloc_dm(ELSEWHERE)?];
        elsewhere.iter().for_each(|buf| buf.fill(CANARY));
        let flanked = |nic| -> Result<GuardedRegion> {
            GuardedRegion::new(&pd, if nic { device.alloc_dm(3 * LEN)? } else { Buf::alloc(3 * LEN)? })
        };
        let testbed = Self {
            cm: device.create_cm()?,
            channel: device.create_comp_channel()?,
            srq: pd.create_srq(SHARED)?,
            host: flanked(false)?,
            nic: flanked(true)?,
            other: [flanked(false)?, flanked(true)?],
            elsewhere,
            kept: RefCell::default(),
            pd,
            device,
        };
        testbed.refill();
        Ok(testbed)
    }

    /// A queue pair and its completion queue; with the shared receive queue or one of its own.
    pub(super) fn queue_pair(&self, shared: bool) -> Result<(Qp, Cq)> {
        let cq = self.device.create_cq_with(256, &self.channel)?;
        let cap =
            QpCap { max_send_wr: 32, max_recv_wr: RECEIVES as u32, max_recv_sge: 2, ..QpCap::default() };
        let init = QpInit::new(&cq).cap(cap);
        let qp = self.pd.create_qp(&if shared { init.srq(&self.srq) } else { init })?;
        Ok((qp, cq))
    }

    /// Keeps a queue pair until the testbed is dropped.
    pub(super) fn keep_until_drop(&self, qp: Qp) {
        self.kept.borrow_mut().push(qp);
    }

    /// The next request to connect.
    pub(super) fn request(&self, patience: Duration) -> Result<ConnectRequest> {
        let deadline = self.device.host().after(Span::from_ms(patience.as_millis() as u64));
        loop {
            if let CmEvent::ConnectRequest(request) = self.cm.get_event(deadline)? {
                return Ok(request);
            }
        }
    }

    /// Connects to a port; returns the peer's regions.
    pub(super) fn connect(&self, qp: &Qp, port: u16, patience: Duration) -> Result<RemoteRegions> {
        let span = Span::from_ms(patience.as_millis() as u64);
        let param = ConnParam { timeout: span, ..ConnParam::with_private_data(self.remotes().pack()) };
        self.cm.connect(qp, SocketAddr::from((Ipv4Addr::LOCALHOST, port)), &param)?;
        let deadline = self.device.host().after(span);
        loop {
            match self.cm.get_event(deadline)? {
                CmEvent::Established { qp_num, private_data, .. } if qp_num == qp.num() => {
                    return Ok(RemoteRegions::unpack(&private_data));
                }
                CmEvent::ConnectFailed { qp_num, why } if qp_num == qp.num() => bail!("{why}"),
                CmEvent::Rejected { qp_num, .. } if qp_num == qp.num() => bail!("rejected"),
                _ => {}
            }
        }
    }

    /// Recreates what peers may consume or invalidate by the protocol: keys, and a shared queue's receives.
    pub(super) fn renew(&mut self) -> Result<()> {
        self.srq = self.pd.create_srq(SHARED)?;
        self.host.mr = self.pd.reg_mr_range(&self.host.buf, LEN..2 * LEN, Access::ALL)?;
        self.nic.mr = self.pd.reg_mr_range(&self.nic.buf, LEN..2 * LEN, Access::ALL)?;
        Ok(())
    }

    /// Posts to the shared receive queue as many receives as fit.
    pub(super) fn refill(&self) {
        let mut wr_id = 0;
        while self.srq.post_recv(&RecvWr::new(wr_id, &self.room())).is_ok() {
            wr_id += 1;
        }
    }

    fn room(&self) -> [verbs::Sge; 2] {
        [self.host.mr.sge(2048, 24), self.nic.mr.sge(2048, ROOM - 24)]
    }

    /// The regions that the peer may use.
    pub(super) fn remotes(&self) -> RemoteRegions {
        RemoteRegions { host: self.host.mr.remote(0), nic: self.nic.mr.remote(0) }
    }

    /// The regions that the bystander may use.
    pub(super) fn bystander_remotes(&self) -> RemoteRegions {
        RemoteRegions { host: self.other[0].mr.remote(0), nic: self.other[1].mr.remote(0) }
    }

    /// The keys of the regions.
    pub(super) fn keys(&self) -> [u32; 2] {
        [self.host.mr.rkey(), self.nic.mr.rkey()]
    }

    /// The address of a canary next to the region in host memory, aligned to 8.
    fn canary(&self) -> u64 {
        self.host.buf.addr() + 2 * LEN as u64 + 64
    }

    /// Canary bytes that changed next to the regions.
    pub(super) fn bytes_changed_next_to_regions(&self) -> u64 {
        [&self.host, &self.nic, &self.other[0], &self.other[1]].map(GuardedRegion::changed).iter().sum()
    }

    /// Bytes that changed in the distant buffer.
    pub(super) fn bytes_changed_far_away(&self) -> u64 {
        self.elsewhere.each_ref().map(|buf| changed(&Ok(buf.clone()))).iter().sum()
    }

    /// The first bytes of a region.
    pub(super) fn start(&self, nic: bool) -> &Mr {
        if nic { &self.nic.mr } else { &self.host.mr }
    }
}

/// The traffic of a connection.
#[derive(Default)]
pub(super) struct Traffic {
    sent: u64,
    answered: u64,
    receives: u64,
    returned: BTreeSet<u64>,
    /// Own requests that succeeded.
    pub(super) succeeded: u64,
    /// Messages that arrived here.
    pub(super) arrived: u64,
    /// Requests or receives that completed twice.
    pub(super) doubled: u64,
    /// Messages reported as longer than their receive.
    pub(super) overstated: u64,
    /// The call that took longest.
    pub(super) slowest: Slowest,
    starved_before: Duration,
    shared: bool,
    flushed: bool,
}

/// For a call that takes longer, the time spent waiting for a processor is read, too.
const SLOW_CALL: Duration = Duration::from_millis(300);

/// The call that took longest.
#[derive(Default)]
pub(super) struct Slowest {
    pub(super) name: &'static str,
    pub(super) took: Duration,
    /// How long the thread had been runnable without a processor, since the traffic began.
    pub(super) starved: Duration,
}

/// How long this thread has been runnable without a processor (the second figure of schedstat, ns).
fn time_without_processor() -> Duration {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(said.split(' ').nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

/// Work request ids of receives begin here, those of requests at 0.
const RECEIVE: u64 = 1 << 32;

impl Traffic {
    pub(super) fn new() -> Self {
        Self { starved_before: time_without_processor(), ..Self::default() }
    }

    /// Makes a call and measures its duration.
    pub(super) fn timed<T>(&mut self, name: &'static str, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = call();
        let took = began.elapsed();
        if took > self.slowest.took {
            // Read only when it matters: reading takes as long as a call does.
            let starved = if took > SLOW_CALL { time_without_processor() } else { Duration::ZERO };
            self.slowest = Slowest { name, took, starved: starved.saturating_sub(self.starved_before) };
        }
        result
    }

    /// Posts receives, unless they are shared.
    pub(super) fn receive(&mut self, testbed: &Testbed, qp: &Qp, shared: bool) {
        self.shared = shared;
        while !shared && self.receives < RECEIVES {
            if qp.post_recv(&RecvWr::new(RECEIVE + self.receives, &testbed.room())).is_err() {
                return;
            }
            self.receives += 1;
        }
    }

    /// Posts a request of every kind, short and long, on host memory and NIC memory.
    pub(super) fn send_all(&mut self, testbed: &Testbed, qp: &Qp, peer: &RemoteRegions) {
        let add = SendOp::FetchAdd { remote: peer.host, add: 1 };
        let swap = |remote| SendOp::CompareSwap { remote, compare: 1, swap: 2 };
        let requests = [
            (SendOp::Write(peer.nic), 8),
            (SendOp::Write(peer.nic.offset(1024)), 1024),
            (SendOp::Read(peer.nic.offset(8)), 100),
            (SendOp::Write(peer.nic), 8),
            (SendOp::Send, 16),
            (SendOp::SendImm(7), 900),
            (SendOp::Write(peer.host), 8),
            (SendOp::Read(peer.host), 1500),
            (SendOp::WriteImm(peer.host.offset(64), 9), 64),
            (add, 8),
            (swap(peer.nic), 8),
            (SendOp::Send, 40),
        ];
        for (i, (op, len)) in requests.into_iter().enumerate() {
            let sge = [testbed.start(i % 2 == 1).sge(0, len)];
            let wr = SendWr::new(self.sent, op, &sge);
            if self.timed("Qp::post_send", || qp.post_send(&wr)).is_err() {
                return;
            }
            self.sent += 1;
        }
        if qp.init().recv_cq.req_notify(false).is_ok() {
            // The peer decides whether there is an event.
            self.timed("CompChannel::poll_event", || testbed.channel.poll_event());
        }
    }

    /// Polls completions until every request has completed or the time has passed.
    pub(super) fn poll(&mut self, cq: &Cq, limit: Duration) {
        let began = Instant::now();
        let mut wcs = [Wc::default(); 16];
        loop {
            let Ok(n) = self.timed("Cq::poll", || cq.poll(&mut wcs)) else { return };
            wcs[..n].iter().for_each(|wc| self.count(wc));
            if self.answered >= self.sent || began.elapsed() >= limit {
                return;
            }
            if n == 0 {
                // Leaves the processor to the peer.
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }

    /// Writes to an address outside of the peer's region where this side would hit its own canary if nothing checked the
    /// region's end. The region itself is written right before, so that it is cached.
    pub(super) fn overreach(&mut self, testbed: &Testbed, qp: &Qp, peer: &RemoteRegions) {
        let lab = FaultInjector::of(qp).ok();
        let Some(addr) = lab.and_then(|lab| lab.out_of_bounds_address(peer.nic.rkey, testbed.canary()))
        else {
            return;
        };
        for remote in [peer.nic, RemoteAddr { addr, ..peer.nic }] {
            let sge = [testbed.start(false).sge(0, 8)];
            let wr = SendWr::new(self.sent, SendOp::Write(remote), &sge);
            if self.timed("Qp::post_send", || qp.post_send(&wr)).is_err() {
                return;
            }
            self.sent += 1;
        }
    }

    /// Whether everything posted so far succeeded.
    pub(super) fn is_good(&self) -> bool {
        self.sent > 0 && self.succeeded == self.sent
    }

    fn count(&mut self, wc: &Wc) {
        let is_receive = matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm);
        if is_receive {
            self.arrived += u64::from(wc.is_ok());
            self.overstated += u64::from(wc.is_ok() && wc.opcode == WcOpcode::Recv && wc.byte_len > ROOM);
        } else {
            self.answered += 1;
            self.succeeded += u64::from(wc.is_ok());
        }
        // Completions of a shared queue's receives have no id of this connection.
        if !(is_receive && self.shared) {
            self.doubled += u64::from(!self.returned.insert(wc.wr_id));
        }
    }

    /// Ends the connection, and waits for all outstanding work to complete.
    pub(super) fn disconnect_and_drain(&mut self, testbed: &Testbed, qp: &Qp, cq: &Cq) {
        // It may have ended already.
        let _ = self.timed("Cm::disconnect", || testbed.cm.disconnect(qp));
        self.timed("Qp::to_error", || qp.to_error());
        // Receives of a shared queue are not waited for: they were posted before.
        self.poll(cq, Duration::ZERO);
        let began = Instant::now();
        while !self.is_all_back() && began.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_micros(20));
            self.poll(cq, Duration::ZERO);
        }
        self.flushed = true;
    }

    /// Whether requests were posted and all have completed.
    pub(super) fn is_answered(&self) -> bool {
        self.sent > 0 && self.answered >= self.sent
    }

    fn is_all_back(&self) -> bool {
        self.returned.len() as u64 >= self.sent + self.receives
    }

    /// Requests and receives that never completed.
    pub(super) fn unanswered(&self) -> u64 {
        if !self.flushed { 0 } else { (self.sent + self.receives).saturating_sub(self.returned.len() as u64) }
    }
}
