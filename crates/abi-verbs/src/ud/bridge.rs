//! [`Bridge`]: the peer, in this process, of a UD queue pair.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ffi::lock;
use verbs::host::{EventCount, Span};
use verbs::{Access, Buf, Cq, Data, Mr, Pd, Qp, QpCap, QpInit, QpState, RecvWr, SendFlags, SendOp, SendWr};

use rdma_abi::verbs::ibv_gid;

use crate::answer::Answer;
use crate::errno::Errno;
use crate::ud::counts::DatagramOutcome;
use crate::ud::frame::{GRH, MTU};

/// Messages on the bridge at a time, in each direction.
const SLOTS: u32 = 64;
/// How long the two ends in one process may take to connect: only a busy machine delays them.
pub(super) const PATIENCE: Span = Span::from_secs(60);
/// Bytes of a slot: a datagram with its global route header.
const SLOT: usize = MTU + GRH;

/// The destination of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    pub(crate) addr: SocketAddr,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
    /// The sender's GID, as reported to the receiver.
    pub(crate) source: ibv_gid,
}

/// The peer of a UD queue pair.
pub(crate) struct Bridge {
    /// The visible number of the program's queue pair.
    pub(super) number: u32,
    end: Qp,
    /// Buffers for datagrams from the program, and for datagrams to it.
    out: Mr,
    back: Mr,
    /// Free slots of `back`.
    free: Mutex<Vec<u64>>,
    /// Destinations of posted requests that have not crossed the bridge, in order.
    destinations: Mutex<VecDeque<Destination>>,
    /// Senders' queue pair numbers for receives that are filled and not polled, in order.
    sources: Mutex<VecDeque<u32>>,
    /// Sizes of receives that are posted and not filled, in order.
    receives: Mutex<VecDeque<u64>>,
    qkey: AtomicU32,
    is_ready: AtomicBool,
    /// Notified when the device reports an event of `end`.
    changed: EventCount,
}

impl Bridge {
    /// The attributes of the bridge's own queue pair.
    pub(super) fn init(cq: &Cq) -> QpInit {
        let cap =
            QpCap { max_send_wr: SLOTS, max_recv_wr: SLOTS, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        QpInit::new(cq).cap(cap)
    }

    /// Creates the bridge for the program's queue pair with this visible number.
    pub(super) fn new(number: u32, pd: &Pd, init: &QpInit) -> Answer<Self> {
        let end = pd.create_qp(init)?;
        let room = || pd.reg_mr(&Buf::alloc(SLOT * SLOTS as usize)?, Access::LOCAL_WRITE);
        let bridge = Self {
            number,
            end,
            out: room()?,
            back: room()?,
            free: Mutex::new((0..u64::from(SLOTS)).collect()),
            destinations: Mutex::default(),
            sources: Mutex::default(),
            receives: Mutex::default(),
            qkey: AtomicU32::new(0),
            is_ready: AtomicBool::new(false),
            changed: EventCount::default(),
        };
        (0..u64::from(SLOTS)).try_for_each(|slot| bridge.post_receive(slot))?;
        Ok(bridge)
    }

    /// The bridge's own queue pair.
    pub(crate) fn far_qp(&self) -> &Qp {
        &self.end
    }

    /// Starts to accept datagrams. Waits until both ends are connected, because a datagram before that would be lost.
    ///
    /// # Errors
    /// When they cannot be connected.
    pub(crate) fn begin(&self) -> Answer {
        let host = self.end.pd().device().host();
        let look = || match self.end.state() {
            QpState::ReadyToSend => Some(true),
            QpState::Error => Some(false),
            _ => None,
        };
        let is_connected = host.wait("the other end", &self.changed, host.after(PATIENCE), look);
        if is_connected != Some(true) {
            return Err(Errno(libc::ETIMEDOUT)
                .because(format_args!("the UD queue pair was not connected with its socket in {PATIENCE}; the host may be overloaded")));
        }
        self.is_ready.store(true, Ordering::Release);
        Ok(())
    }

    /// Handles an event of the bridge's own queue pair.
    pub(crate) fn wake(&self) {
        self.end.pd().device().host().notify(&self.changed);
    }

    pub(crate) fn set_qkey(&self, qkey: u32) {
        self.qkey.store(qkey, Ordering::Release);
    }

    /// Whether a datagram with this Q_Key is for this queue pair.
    pub(super) fn accepts_qkey(&self, qkey: u32) -> bool {
        self.qkey.load(Ordering::Acquire) == qkey
    }

    /// Posts a request of the program to this destination. A Q_Key with the highest bit set selects the queue pair's own (IBA 10.2.5).
    pub(crate) fn post(&self, mut to: Destination, post: impl FnOnce() -> Answer) -> Answer {
        if to.qkey & 1 << 31 != 0 {
            to.qkey = self.qkey.load(Ordering::Acquire);
        }
        let mut destinations = lock(&self.destinations);
        destinations.push_back(to);
        post().inspect_err(|_| {
            destinations.pop_back();
        })
    }

    /// Whether no posted request still has to cross the bridge.
    pub(super) fn is_empty(&self) -> bool {
        self.end.state() != QpState::ReadyToSend || lock(&self.destinations).is_empty()
    }

    /// Posts a receive of the program, of `bytes` bytes.
    pub(crate) fn expect(&self, bytes: u64, post: impl FnOnce() -> Answer) -> Answer {
        let mut receives = lock(&self.receives);
        post()?;
        receives.push_back(bytes);
        Ok(())
    }

    /// The sender's queue pair number of the receive that the program polls now.
    pub(crate) fn source(&self) -> Option<u32> {
        lock(&self.sources).pop_front()
    }

    fn post_receive(&self, slot: u64) -> Answer {
        let sge = self.out.sge(slot * SLOT as u64, MTU as u32);
        Ok(self.end.post_recv(&RecvWr::new(slot, &[sge]))?)
    }

    /// Reads the datagram of a slot and its destination, and frees the slot.
    pub(super) fn take(&self, slot: u64, len: u32, bytes: &mut Vec<u8>) -> Option<Destination> {
        let to = lock(&self.destinations).pop_front();
        let (at, start) = (slot as usize * SLOT, bytes.len());
        bytes.resize(start + (len as usize).min(MTU), 0);
        let read = self.out.buf().read(at, &mut bytes[start..]);
        let posted = self.post_receive(slot);
        to.filter(|_| read.is_ok() && posted.is_ok())
    }

    /// Frees a slot of a datagram to the program.
    pub(super) fn release(&self, slot: u64) {
        lock(&self.free).push(slot);
    }

    /// Takes the next receive for `bytes` bytes. A receive that is too short stays posted: a receive error would end the queue pair,
    /// and a sender must not be able to cause that with a datagram that is too long.
    fn take_receive(&self, bytes: usize) -> Result<(), DatagramOutcome> {
        let mut receives = lock(&self.receives);
        match receives.front() {
            None => Err(DatagramOutcome::NoReceive),
            Some(room) if *room < bytes as u64 => Err(DatagramOutcome::TooLong),
            Some(_) => {
                receives.pop_front();
                Ok(())
            }
        }
    }

    /// Sends a datagram to the program, if its next receive is long enough; otherwise drops it.
    pub(super) fn deliver(
        &self,
        head: &[u8; GRH],
        payload: &[u8],
        imm: Option<u32>,
        from: u32,
    ) -> DatagramOutcome {
        if !self.is_ready.load(Ordering::Acquire) || self.end.state() != QpState::ReadyToSend {
            return DatagramOutcome::Unknown;
        }
        let Some(slot) = lock(&self.free).pop() else { return DatagramOutcome::NoReceive };
        if let Err(fate) = self.take_receive(GRH + payload.len()) {
            self.release(slot);
            return fate;
        }
        let at = slot as usize * SLOT;
        let buf = self.back.buf();
        let written = buf.write(at, head).and_then(|()| buf.write(at + GRH, payload));
        let sge = self.back.sge(at as u64, (GRH + payload.len()) as u32);
        let op = imm.map_or(SendOp::Send, SendOp::SendImm);
        lock(&self.sources).push_back(from);
        let sent = written.and_then(|()| {
            let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
            self.end.post_send(&SendWr { wr_id: slot, op, data: Data::Sges(&[sge]), flags })
        });
        if sent.is_err() {
            lock(&self.sources).pop_back();
            self.release(slot);
            return DatagramOutcome::NoReceive;
        }
        DatagramOutcome::Received
    }
}
