//! Two endpoints in this process, a batch of requests between them, and the comparison of what completed with what
//! arrived.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use host::Span;
use verbs::{
    Access, AsyncEvent, Buf, Cm, CmEvent, ConnParam, Cq, Device, Listener, Mr, Pd, Qp, QpCap, QpInit, RecvWr,
    SendOp, SendWr, Wc, WcStatus,
};

use crate::attack::Tally;

/// The number of canary bytes on each side of a region, and their value.
const MARGIN: usize = 4096;
const CANARY: u8 = 0xc5;
/// Requests of a batch, at most, and bytes of a slot.
pub(super) const BATCH: usize = 64;
const SLOT: usize = 512;
/// Slots that are the targets of writes and receives, and the sources of sends and reads; plus one for reads and
/// atomics.
const ROOM: usize = (2 * BATCH + 1) * SLOT;
const RECEIVES: usize = BATCH * SLOT;
const COUNTER: usize = 2 * BATCH * SLOT;
/// How long this program waits until both sides have noticed the end of a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// A device with memory between canaries.
pub(super) struct DeviceWithMemory {
    pub(super) device: Device,
    pub(super) pd: Pd,
    pub(super) cm: Cm,
    memory: Buf,
    pub(super) region: Mr,
}

impl DeviceWithMemory {
    pub(super) fn open(name: &str) -> Result<Self> {
        let device = fabric::open(name, &host::real::host())?;
        let (pd, cm) = (device.alloc_pd()?, device.create_cm()?);
        let memory = Buf::alloc(ROOM + 2 * MARGIN)?;
        memory.fill(CANARY);
        let region = pd.reg_mr_range(&memory, MARGIN..MARGIN + ROOM, Access::ALL)?;
        Ok(Self { device, pd, cm, memory, region })
    }

    pub(super) fn listen(&self, addr: SocketAddr) -> Result<Listener> {
        Ok(self.cm.listen(addr, 64)?)
    }

    /// A queue pair with its completion queues, and receives for a whole batch if `receives` is set.
    pub(super) fn queue_pair(&self, receives: bool) -> Result<QpWithCqs> {
        let queue = || self.device.create_cq(4 * BATCH as u32);
        let (send_cq, recv_cq) = (queue()?, queue()?);
        let cap = QpCap { max_send_wr: BATCH as u32, max_recv_wr: BATCH as u32, ..QpCap::default() };
        let qp = self.pd.create_qp(&QpInit::new(&send_cq).recv_cq(&recv_cq).cap(cap))?;
        for slot in 0..if receives { BATCH } else { 0 } {
            let sges = [self.region.sge((RECEIVES + slot * SLOT) as u64, SLOT as u32)];
            qp.post_recv(&RecvWr::new(slot as u64, &sges))?;
        }
        Ok(QpWithCqs { qp, send_cq, recv_cq })
    }

    /// Counts the canary bytes outside of the region that have changed, and restores them.
    pub(super) fn count_changed_canaries(&self) -> Result<u64> {
        let mut changed = 0;
        for range in [0..MARGIN, MARGIN + ROOM..ROOM + 2 * MARGIN] {
            let wrong = self.memory.to_vec(range.clone())?.iter().filter(|byte| **byte != CANARY).count();
            changed += wrong as u64;
            self.memory.slice(range)?.fill(CANARY);
        }
        Ok(changed)
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<()> {
        Ok(self.memory.write(MARGIN + at, bytes)?)
    }

    fn bytes(&self, at: usize, len: usize) -> Result<Vec<u8>> {
        Ok(self.memory.to_vec(MARGIN + at..MARGIN + at + len)?)
    }
}

/// A queue pair and its completion queues.
pub(super) struct QpWithCqs {
    pub(super) qp: Qp,
    pub(super) send_cq: Cq,
    pub(super) recv_cq: Cq,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Send,
    SendImm,
    Write,
    WriteImm,
    WriteNothing,
    Read,
    Add,
}

impl RequestKind {
    const ALL: [Self; 10] = [
        Self::Send,
        Self::Write,
        Self::Send,
        Self::SendImm,
        Self::WriteNothing,
        Self::WriteImm,
        Self::Read,
        Self::Add,
        Self::Send,
        Self::Send,
    ];

    fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::WriteImm)
    }
}

fn pattern(round: u64, number: usize, len: usize) -> Vec<u8> {
    let begin = (round << 8 | number as u64).to_le_bytes();
    begin.iter().copied().chain((0..).map(|i: usize| (i * 7 + number) as u8)).take(len.max(8)).collect()
}

/// One connection from setup to end, with a batch on it.
pub(super) struct Round<'a> {
    a: &'a DeviceWithMemory,
    b: &'a DeviceWithMemory,
    number: u64,
    from: QpWithCqs,
    to: Option<QpWithCqs>,
    kinds: Vec<RequestKind>,
    lens: Vec<usize>,
    /// How each request ended.
    ended: Vec<Option<WcStatus>>,
    doubled: u64,
    received: Vec<Wc>,
    /// Whether each side's connection has ended or was never established.
    over: [bool; 2],
    established: bool,
    /// The peer reported an error.
    told: bool,
}

impl<'a> Round<'a> {
    /// Connects to `via`.
    pub(super) fn begin(
        a: &'a DeviceWithMemory,
        b: &'a DeviceWithMemory,
        via: SocketAddr,
        number: u64,
    ) -> Result<Self> {
        let from = a.queue_pair(false)?;
        let param =
            ConnParam { timeout: Span::from_secs(3), ..ConnParam::with_private_data(number.to_le_bytes()) };
        a.cm.connect(&from.qp, via, &param)?;
        b.write(0, &vec![0; ROOM])?;
        b.write(COUNTER, &pattern(number, 99, SLOT))?;
        Ok(Self {
            a,
            b,
            number,
            from,
            to: None,
            kinds: Vec::new(),
            lens: Vec::new(),
            ended: Vec::new(),
            doubled: 0,
            received: Vec::new(),
            over: [false; 2],
            established: false,
            told: false,
        })
    }

    /// Posts a batch of `count` requests once the connection is established.
    fn post(&mut self, count: usize) -> Result<()> {
        for number in 0..count.min(BATCH) {
            let kind = RequestKind::ALL[number % RequestKind::ALL.len()];
            let len = match kind {
                RequestKind::WriteNothing => 0,
                RequestKind::Add => 8,
                _ => 16 + number * 5 % (SLOT - 16),
            };
            let at = number * SLOT;
            self.a.write(at, &pattern(self.number, number, len))?;
            let (slot, counter) = (self.b.region.remote(at as u64), self.b.region.remote(COUNTER as u64));
            let op = match kind {
                RequestKind::Send => SendOp::Send,
                RequestKind::SendImm => SendOp::SendImm(number as u32),
                RequestKind::Write | RequestKind::WriteNothing => SendOp::Write(slot),
                RequestKind::WriteImm => SendOp::WriteImm(slot, number as u32),
                RequestKind::Read => SendOp::Read(counter),
                RequestKind::Add => SendOp::FetchAdd { remote: counter, add: 0 },
            };
            let sges = [self.a.region.sge(at as u64, len as u32)];
            self.from.qp.post_send(&SendWr::new(number as u64, op, &sges))?;
            self.kinds.push(kind);
            self.lens.push(len);
            self.ended.push(None);
        }
        Ok(())
    }

    /// Processes all pending events and completions on both sides.
    fn poll_all(&mut self, count: usize) -> Result<()> {
        while let Some(event) = self.a.cm.poll_event() {
            match event {
                CmEvent::Established { .. } => {
                    self.established = true;
                    self.post(count)?;
                }
                CmEvent::ConnectRequest(_) => {}
                CmEvent::Disconnected { qp_num }
                | CmEvent::ConnectFailed { qp_num, .. }
                | CmEvent::Rejected { qp_num, .. } => self.over[0] |= qp_num == self.from.qp.num(),
            }
        }
        while let Some(event) = self.b.cm.poll_event() {
            match event {
                // Left over from an earlier round, or with damaged private data: dropped, and thereby rejected.
                CmEvent::ConnectRequest(request)
                    if self.to.is_none() && request.private_data == self.number.to_le_bytes() =>
                {
                    let end = self.b.queue_pair(true)?;
                    // The client may have gone.
                    self.over[1] = self.b.cm.accept(request, &end.qp, &ConnParam::default()).is_err();
                    self.to = Some(end);
                }
                CmEvent::Disconnected { qp_num } | CmEvent::ConnectFailed { qp_num, .. } => {
                    self.over[1] |= self.to.as_ref().is_some_and(|end| end.qp.num() == qp_num);
                }
                _ => {}
            }
        }
        while let Some(wc) = self.from.send_cq.poll_one()? {
            let ended = &mut self.ended[wc.wr_id as usize];
            self.doubled += u64::from(ended.replace(wc.status).is_some());
        }
        while let Some(wc) = self.to.as_ref().map_or(Ok(None), |end| end.recv_cq.poll_one())? {
            self.received.extend(wc.is_ok().then_some(wc));
        }
        while let Some(event) = self.a.device.poll_async_event() {
            self.told |= matches!(event, AsyncEvent::QpFatal { .. });
        }
        while self.b.device.poll_async_event().is_some() {}
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.established && !self.ended.is_empty() && self.ended.iter().all(Option::is_some)
    }

    /// Makes progress until the batch has completed, the connection has ended, or the limit has passed.
    pub(super) fn run(&mut self, count: usize, limit: Duration) -> Result<()> {
        let began = Instant::now();
        while !self.is_complete() && !self.over[0] && began.elapsed() < limit {
            self.poll_all(count)?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Checks the end of the connection: both sides must notice, and every request must complete. Then compares the
    /// results.
    pub(super) fn finish(mut self, crc: bool, tally: &mut Tally) -> Result<()> {
        let began = Instant::now();
        // Closes a connection that is still established; without one there is nothing to close.
        let _ = self.a.cm.disconnect(&self.from.qp);
        if !self.established {
            self.over[0] = true;
        }
        let mine = |round: &Self| round.over[0] && round.ended.iter().all(Option::is_some);
        while (!mine(&self) || self.to.is_some() && !self.over[1]) && began.elapsed() < PATIENCE {
            self.poll_all(0)?;
            std::thread::yield_now();
        }
        tally.record_reaction(began.elapsed());
        let before = (tally.lost, tally.doubled, tally.outside, tally.hung);
        tally.doubled += self.doubled;
        tally.outside += self.a.count_changed_canaries()? + self.b.count_changed_canaries()?;
        // Without CRCs, undetected damage is no fault.
        if crc || self.told {
            self.compare(crc, tally)?;
        }
        let good = before == (tally.lost, tally.doubled, tally.outside, tally.hung);
        tally.survived += u64::from(good);
        if !good {
            tally.add_note(format!("round {}, told {}: {:?}", self.number, self.told, self.ended));
        }
        Ok(())
    }

    /// Requests reported successful must have arrived, once and whole.
    fn compare(&self, crc: bool, tally: &mut Tally) -> Result<()> {
        let mut came = self.received.iter();
        for (number, kind) in self.kinds.iter().enumerate() {
            let ok = self.ended[number] == Some(WcStatus::Success);
            let wanted = pattern(self.number, number, self.lens[number]);
            let len = self.lens[number];
            let right = match (kind, kind.takes_receive().then(|| came.next())) {
                (_, Some(None)) => false,
                (_, Some(Some(_))) if !crc => true,
                (RequestKind::WriteImm, Some(Some(wc))) => {
                    let there = self.b.bytes(number * SLOT, len)? == wanted[..len];
                    there && (wc.imm, wc.byte_len) == (Some(number as u32), len as u32)
                }
                (_, Some(Some(wc))) => {
                    let there = self.b.bytes(RECEIVES + wc.wr_id as usize * SLOT, len)? == wanted[..len];
                    let imm = (*kind == RequestKind::SendImm).then_some(number as u32);
                    if !there || wc.byte_len as usize != len || wc.imm != imm {
                        tally.lost += 1;
                        tally.add_note(format!("message {number} came damaged: {wc:?}"));
                    }
                    true
                }
                (RequestKind::Write, None) => !crc || self.b.bytes(number * SLOT, len)? == wanted[..len],
                (RequestKind::Read, None) if crc && ok => {
                    self.a.bytes(number * SLOT, len)? == pattern(self.number, 99, SLOT)[..len]
                }
                _ => true,
            };
            tally.lost += u64::from(ok && !right);
        }
        if came.next().is_some() {
            tally.doubled += 1;
            tally.add_note("more messages came than were sent");
        }
        Ok(())
    }

    pub(super) fn is_established(&self) -> bool {
        self.established
    }

    /// For rounds in which nothing may prevent the connection.
    pub(super) fn ensure_established(&self) -> Result<()> {
        ensure!(self.established, "no connection came about");
        Ok(())
    }
}
