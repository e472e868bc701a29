//! The whole state of the reference NIC, behind one lock.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::firmware::LoadedProgram;
use host::{EventCount, Host};
use rustix::event::{EventfdFlags, eventfd};

use verbs::{
    Access, AsyncEvent, Buf, CmFailure, ConnInfo, Depths, DmAccess, QpCap, QpState, Screen, SendOp, Sge, Wc,
};

/// A deliberate fault of this NIC, for the tests of the suite itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    #[default]
    None,
    OneByteTooFar,
    IgnoresRights,
    IgnoresDomains,
    ForgetsImmediate,
    LastReceiveFirst,
    FlushesSilently,
    FreesSlotsEarly,
    StaysArmed,
    DropsLastByte,
    KeepsKeys,
    SilentEnd,
    SilentInterrupt,
    LosesDeposits,
}

/// Two devices and their connections.
pub(super) struct World {
    state: Mutex<NicState>,
    pub(super) host: Host,
    /// How processors access the NICs' memory.
    pub(super) dm_access: DmAccess,
}

impl World {
    pub(super) fn new(host: Host, fault: Fault, dm_access: DmAccess) -> Arc<Self> {
        let state = Mutex::new(NicState { fault, ..NicState::default() });
        Arc::new(Self { state, host, dm_access })
    }

    /// Locks the state; a test that panicked has not left it half changed.
    pub(super) fn lock(&self) -> MutexGuard<'_, NicState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// An event count and a descriptor that is readable while something is pending.
pub(super) struct Signal {
    pub(super) wakeup: EventCount,
    pub(super) fd: OwnedFd,
}

impl Signal {
    pub(super) fn new() -> Arc<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
        Arc::new(Self { wakeup: EventCount::new(), fd })
    }

    pub(super) fn set(&self) {
        rustix::io::write(&self.fd, &1_u64.to_ne_bytes()).expect("room in an eventfd");
        self.wakeup.notify();
    }

    pub(super) fn clear(&self) {
        rustix::io::read(&self.fd, &mut [0_u8; 8]).expect("it was raised");
    }
}

/// All tables; keys are the objects' numbers, unique in the world.
#[derive(Default)]
pub(super) struct NicState {
    last: u32,
    pub(super) fault: Fault,
    pub(super) regions: BTreeMap<u32, Region>,
    pub(super) queues: BTreeMap<u32, Completions>,
    pub(super) channels: BTreeMap<u32, Channel>,
    pub(super) pairs: BTreeMap<u32, QpEntry>,
    pub(super) shared: BTreeMap<u32, SrqEntry>,
    pub(super) managers: BTreeMap<u32, CmChannel>,
    /// The channel and the screen of each listener.
    pub(super) listeners: BTreeMap<SocketAddr, (u32, Option<Arc<dyn Screen>>)>,
    /// Reserved addresses.
    pub(super) held: BTreeSet<SocketAddr>,
    pub(super) requests: BTreeMap<u32, Request>,
    pub(super) programs: BTreeMap<SocketAddr, LoadedProgram>,
    /// The program that ran last.
    pub(super) last_program: Option<SocketAddr>,
    /// NICs whose processors have been started, in virtual time.
    pub(super) has_processor: [bool; 2],
    pub(super) async_events: [VecDeque<AsyncEvent>; 2],
    pub(super) nic_memory: Vec<NicMemory>,
    pub(super) last_port: u16,
    /// Queue pairs whose completion queue overran.
    pub(super) doomed: Vec<u32>,
}

impl NicState {
    /// The next free number.
    pub(super) fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }
}

/// A memory region.
pub(super) struct Region {
    pub(super) domain: u32,
    pub(super) buf: Buf,
    pub(super) base: u64,
    pub(super) access: Access,
    pub(super) invalidated: bool,
}

/// An allocation of NIC memory, alive as long as a handle is.
pub(super) struct NicMemory {
    pub(super) device: usize,
    pub(super) len: u64,
    pub(super) owner: Weak<dyn std::marker::Send + Sync>,
}

/// A completion queue: each entry with the slots that polling it frees.
pub(super) struct Completions {
    pub(super) device: usize,
    pub(super) cqe: u32,
    pub(super) entries: VecDeque<(Wc, Slots)>,
    pub(super) overrun: bool,
    pub(super) channel: Option<u32>,
    /// `Some(true)`: for solicited completions only.
    pub(super) armed: Option<bool>,
    pub(super) wakeup: Arc<EventCount>,
}

/// Slots of a queue that a completion frees.
#[derive(Clone, Copy)]
pub(super) enum Slots {
    Send(u32, u32),
    Receive(u32),
    /// Of this shared queue, by this queue pair.
    SharedReceive(u32, u32),
}

impl Slots {
    /// The queue pair whose completion frees the slots.
    pub(super) fn pair(self) -> u32 {
        match self {
            Self::Send(pair, _) | Self::Receive(pair) | Self::SharedReceive(_, pair) => pair,
        }
    }
}

/// A completion channel.
pub(super) struct Channel {
    pub(super) events: VecDeque<u32>,
    pub(super) signal: Arc<Signal>,
}

/// A queue pair.
pub(super) struct QpEntry {
    pub(super) device: usize,
    pub(super) domain: u32,
    pub(super) send_cq: u32,
    pub(super) recv_cq: u32,
    pub(super) srq: Option<u32>,
    pub(super) cap: QpCap,
    pub(super) sig_all: bool,
    /// The number that completions carry.
    pub(super) reported_qp_num: u32,
    pub(super) state: QpState,
    pub(super) sends: VecDeque<PostedSend>,
    pub(super) sends_used: u32,
    /// Completed unsignaled requests, whose slots the next completion frees.
    pub(super) silent: u32,
    pub(super) receives: VecDeque<PostedReceive>,
    pub(super) receives_used: u32,
    pub(super) peer: Option<u32>,
    pub(super) manager: Option<u32>,
    pub(super) request: Option<u32>,
    /// The limit of retries set by its program, or else its peer's.
    pub(super) rnr_retry: Option<u8>,
}

/// A posted send request.
pub(super) struct PostedSend {
    pub(super) wr_id: u64,
    pub(super) op: SendOp,
    pub(super) data: LocalData,
    pub(super) signalled: bool,
    pub(super) solicited: bool,
    /// Wakes a sleeper at the peer, without a completion.
    pub(super) ring: bool,
}

/// Local data of a posted request.
#[derive(Clone)]
pub(super) enum LocalData {
    Sges(Vec<Sge>),
    Inline(Vec<u8>),
}

/// A posted receive.
pub(super) struct PostedReceive {
    pub(super) wr_id: u64,
    pub(super) sges: Vec<Sge>,
}

/// A shared receive queue.
pub(super) struct SrqEntry {
    pub(super) device: usize,
    pub(super) domain: u32,
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    pub(super) limit: u32,
    pub(super) used: u32,
    pub(super) receives: VecDeque<PostedReceive>,
}

/// A connection channel.
pub(super) struct CmChannel {
    pub(super) events: VecDeque<Event>,
    pub(super) signal: Arc<Signal>,
}

/// A pending connection event.
pub(super) enum Event {
    Request(u32),
    Established(u32, Vec<u8>, ConnInfo),
    Rejected(u32, Vec<u8>),
    Failed(u32, CmFailure),
    Disconnected(u32),
}

/// An unanswered connect request.
pub(super) struct Request {
    pub(super) pair: u32,
    pub(super) reported_qp_num: u32,
    pub(super) manager: u32,
    pub(super) listener: SocketAddr,
    /// The reserved address that it comes from.
    pub(super) from: Option<SocketAddr>,
    pub(super) depths: Depths,
    pub(super) private_data: Vec<u8>,
    pub(super) rnr_retry: u8,
    /// The value of the listener's screen.
    pub(super) screened: Option<Box<dyn Any + std::marker::Send>>,
}
