//! [`Datagrams`]: moves datagrams between the bridges of a device and its socket.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use ffi::{catch_panic, lock};
use rdma_abi::verbs::ibv_gid;
use verbs::host::{Descriptor, Source, Span, Time, Wakes};
use verbs::pairing::{Endpoint, Pairing};
use verbs::{ConnParam, Cq, Device, Pd, Qp, QpInit, Wc, WcOpcode};

use crate::address;
use crate::answer::Answer;
use crate::errno::Errno;
use crate::ud::bridge::{self, Bridge};
use crate::ud::counts::{DatagramCounts, DatagramOutcome};
use crate::ud::frame::{HEADER, Header, MTU, route_header};
use crate::ud::socket::{Received, Sent, Socket};

/// Completions taken at a time.
const BATCH: usize = 16;
/// How long a datagram waits when the receiver's socket is full: longer than a busy machine suspends a process.
const PATIENCE: Span = Span::from_ms(500);
/// Number of waiting datagrams from which on no more are taken from programs.
const WAITING: usize = 64;
/// How often waiting datagrams are retried.
const PAUSE: Span = Span::from_us(100);
/// How long to wait for posted requests before their completions are counted.
const MOMENT: Span = Span::from_ms(50);
/// Polls after all datagrams have crossed, until their completions are found: a device may need two polls, as `iwarp` does, and its
/// thread may be polling at the same time.
const STEPS: u32 = 4;
/// Completion queue entries for all bridges.
const ENTRIES: u32 = 1 << 14;

/// The datagram transport of one device.
pub(crate) struct Datagrams {
    device: Device,
    socket: Descriptor<Socket>,
    /// The GID table of its port.
    gids: Vec<ibv_gid>,
    pub(crate) counts: DatagramCounts,
    pd: Pd,
    cq: Cq,
    bridges: Mutex<Bridges>,
    transfer: Mutex<TransferState>,
}

/// Bridges by the number of the program's queue pair, and by their own.
#[derive(Default)]
struct Bridges {
    programs: HashMap<u32, Arc<Bridge>>,
    own: HashMap<u32, Arc<Bridge>>,
}

/// CmIdState of the thread that moves datagrams.
struct TransferState {
    /// Datagrams for receivers whose sockets were full.
    waiting: Vec<(Time, SocketAddr, Vec<u8>)>,
    place: Vec<u8>,
}

/// Open transports of this process, and of its parents before fork(2).
static OPEN: Mutex<Vec<(u32, Arc<Datagrams>)>> = Mutex::new(Vec::new());

/// Sends posted datagrams before the process ends, if it calls exit(3).
fn leave_at_exit(datagrams: &Arc<Datagrams>) {
    extern "C" fn leave() {
        let own = std::process::id();
        let leave = || {
            let open: Vec<_> = lock(&OPEN).iter().filter(|(pid, _)| *pid == own).cloned().collect();
            open.iter().for_each(|(_, datagrams)| {
                let bridges: Vec<_> = lock(&datagrams.bridges).own.values().cloned().collect();
                datagrams.drain(&bridges);
                datagrams.socket.0.remove_name();
            });
        };
        // Too late to report an error.
        let _ = catch_panic(leave);
    }
    let mut open = lock(&OPEN);
    if open.is_empty() {
        // SAFETY: a function of this library, which is never unloaded. Test: `datagrams_in_c_arrive_or_are_dropped` in
        // tests/programs.rs.
        unsafe { libc::atexit(leave) };
    }
    open.push((std::process::id(), datagrams.clone()));
}

impl Source for Datagrams {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        self.cq.prepare_wait(wakes);
        self.socket.prepare_wait(wakes);
    }
}

impl Datagrams {
    /// Opens the socket, and starts the thread.
    pub(crate) fn open(
        device: &Device,
        is_local: bool,
        addr: SocketAddr,
        gids: Vec<ibv_gid>,
    ) -> Answer<Arc<Self>> {
        let socket = Socket::open(is_local, addr).map_err(|why| {
            Errno(why.raw_os_error().unwrap_or(libc::EADDRINUSE)).remarked(format_args!(
                "no datagrams on {}: cannot make the socket of {addr}: {why}",
                device.name()
            ))
        })?;
        let datagrams = Arc::new(Self {
            device: device.clone(),
            socket: Descriptor(socket),
            gids,
            counts: DatagramCounts::default(),
            pd: device.alloc_pd()?,
            cq: device.create_cq(ENTRIES.min(device.attr().max_cqe))?,
            bridges: Mutex::default(),
            transfer: Mutex::new(TransferState { waiting: Vec::new(), place: vec![0; HEADER + MTU + 1] }),
        });
        let (thread, run) = (std::thread::Builder::new().name("nicety-datagrams".into()), datagrams.clone());
        thread.spawn(move || run.serve()).map_err(|why| {
            let errno = Errno(why.raw_os_error().unwrap_or(libc::ENOMEM));
            errno.because(format_args!(
                "cannot start the thread for datagrams: {why}; raise the limit of processes (ulimit -u)"
            ))
        })?;
        leave_at_exit(&datagrams);
        Ok(datagrams)
    }

    /// The thread's main function, which runs until the process ends.
    fn serve(&self) {
        // The thread copies to and from the program's memory, and inherits its signal mask from a thread of the program.
        let _ = uaccess::unblock();
        let host = self.device.host();
        loop {
            let is_full = !lock(&self.transfer).waiting.is_empty();
            let deadline = if is_full { host.after(PAUSE) } else { None };
            let look = || {
                self.transfer_all(&mut lock(&self.transfer));
                let has_more = !is_full && !lock(&self.transfer).waiting.is_empty();
                has_more.then_some(())
            };
            if host.wait("datagrams", self, deadline, look).is_none() && deadline.is_none() {
                return;
            }
        }
    }

    /// Creates the bridge for the program's queue pair with this visible number.
    pub(crate) fn bridge(&self, number: u32, pairing: &Pairing) -> Answer<Arc<Bridge>> {
        let own = pairing.alloc_number()?;
        let init = QpInit { reported_qp_num: Some(own), ..Bridge::init(&self.cq) };
        let bridge = Bridge::new(number, &self.pd, &init).inspect_err(|_| pairing.free_number(own))?;
        Ok(Arc::new(bridge))
    }

    /// Connects a bridge and the program's queue pair. On failure, the bridge is removed.
    pub(crate) fn join(&self, qp: &Qp, bridge: &Arc<Bridge>, pairing: &Pairing) -> Answer {
        let number = bridge.far_qp().reported_qp_num();
        {
            let mut bridges = lock(&self.bridges);
            bridges.programs.insert(bridge.number, bridge.clone());
            bridges.own.insert(number, bridge.clone());
        }
        let (addr, param) = (pairing.addr(), ConnParam { timeout: bridge::PATIENCE, ..ConnParam::default() });
        let paired = pairing
            .pair(bridge.far_qp(), Endpoint { addr, qp_num: bridge.number }, &param)
            .and_then(|()| pairing.pair(qp, Endpoint { addr, qp_num: number }, &param));
        Ok(paired.inspect_err(|_| self.remove(bridge, pairing))?)
    }

    /// Sends all posted datagrams, whose completions the program may have seen, so that they are not lost when their sender ends.
    pub(crate) fn drain(&self, bridges: &[Arc<Bridge>]) {
        let host = self.device.host();
        host.poll("datagrams that are to leave", host.after(PATIENCE), || {
            self.progress();
            let is_sent = |transfer: MutexGuard<'_, TransferState>| transfer.waiting.is_empty();
            let has_left =
                bridges.iter().all(|bridge| bridge.is_empty()) && self.transfer.try_lock().is_ok_and(is_sent);
            has_left.then_some(())
        });
    }

    /// Moves posted requests across the bridges until `look` finds their completions; `look` is called after each step.
    pub(crate) fn transfer_until(&self, look: impl Fn()) {
        let bridges: Vec<_> = lock(&self.bridges).own.values().cloned().collect();
        let (host, mut steps) = (self.device.host(), STEPS);
        // If other threads keep posting, the time limit ends this.
        host.poll("datagrams that come over", host.after(MOMENT), || {
            self.transfer_all(&mut lock(&self.transfer));
            look();
            steps -= u32::from(bridges.iter().all(|bridge| bridge.is_empty()));
            (steps == 0).then_some(())
        });
    }

    /// The sender's queue pair number of the receive that is polled now, for the program's queue pair with this number.
    pub(crate) fn source(&self, number: u32) -> Option<u32> {
        lock(&self.bridges).programs.get(&number)?.source()
    }

    /// Removes a bridge: the program's queue pair is destroyed, or has another bridge.
    pub(crate) fn remove(&self, bridge: &Bridge, pairing: &Pairing) {
        pairing.forget(bridge.far_qp());
        let number = bridge.far_qp().reported_qp_num();
        let mut bridges = lock(&self.bridges);
        if bridges.own.remove(&number).is_some() {
            bridges.programs.remove(&bridge.number);
            pairing.free_number(number);
        }
    }

    /// The bridge whose own queue pair has this visible number.
    pub(crate) fn by_end(&self, number: u32) -> Option<Arc<Bridge>> {
        lock(&self.bridges).own.get(&number).cloned()
    }

    /// The bridge whose own queue pair has this device number.
    pub(crate) fn of_event(&self, number: u32) -> Option<Arc<Bridge>> {
        lock(&self.bridges).own.values().find(|bridge| bridge.far_qp().num() == number).cloned()
    }

    /// Moves datagrams, unless another thread is doing so.
    pub(crate) fn progress(&self) {
        match self.transfer.try_lock() {
            Ok(mut transfer) => self.transfer_all(&mut transfer),
            Err(TryLockError::Poisoned(transfer)) => self.transfer_all(&mut transfer.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn transfer_all(&self, transfer: &mut MutexGuard<'_, TransferState>) {
        self.send_waiting(transfer);
        while self.send(transfer) | self.receive(transfer) {}
    }

    /// Retries waiting datagrams, in order per receiver; a full receiver does not delay others.
    fn send_waiting(&self, transfer: &mut TransferState) {
        if transfer.waiting.is_empty() {
            return;
        }
        let (now, mut full) = (self.device.host().now(), HashSet::new());
        transfer.waiting.retain(|(until, to, frame)| {
            let stays = full.contains(to) || self.socket.0.send(*to, frame) == Sent::Full;
            if !stays {
                self.counts.count(DatagramOutcome::Sent);
                return false;
            }
            full.insert(*to);
            let is_late = now >= *until;
            if is_late {
                self.counts.count(DatagramOutcome::NoRoom);
            }
            !is_late
        });
    }

    /// Sends datagrams that have crossed the bridges; returns whether there were any.
    fn send(&self, transfer: &mut TransferState) -> bool {
        if transfer.waiting.len() >= WAITING {
            return false;
        }
        let mut wcs = [Wc::default(); BATCH];
        let found = self.cq.poll(&mut wcs).unwrap_or(0);
        for wc in wcs[..found].iter().filter(|wc| wc.is_ok()) {
            let Some(bridge) = self.by_end(wc.qp_num) else { continue };
            if wc.opcode != WcOpcode::Recv {
                bridge.release(wc.wr_id);
                continue;
            }
            let mut frame = vec![0; HEADER];
            let Some(to) = bridge.take(wc.wr_id, wc.byte_len, &mut frame) else { continue };
            let header =
                Header { to: to.qp_num, from: bridge.number, qkey: to.qkey, imm: wc.imm, sgid: to.source };
            frame[..HEADER].copy_from_slice(&header.encode());
            let is_behind = transfer.waiting.iter().any(|(_, other, _)| *other == to.addr);
            if is_behind || self.socket.0.send(to.addr, &frame) == Sent::Full {
                transfer.waiting.push((self.device.host().now() + PATIENCE, to.addr, frame));
            } else {
                self.counts.count(DatagramOutcome::Sent);
            }
        }
        found != 0
    }

    /// Receives a datagram from the socket and passes it to its bridge; returns whether one had arrived.
    fn receive(&self, transfer: &mut TransferState) -> bool {
        let fate = match self.socket.0.receive(&mut transfer.place) {
            Received::NullValue => return false,
            Received::Stranger => DatagramOutcome::Stranger,
            // Datagrams longer than the maximum were truncated, and are not ours.
            Received::Datagram(len) if len > HEADER + MTU => DatagramOutcome::Malformed,
            Received::Datagram(len) => self.deliver(&transfer.place[..len]),
        };
        self.counts.count(fate);
        true
    }

    /// Sends a datagram over the bridge of its queue pair.
    fn deliver(&self, bytes: &[u8]) -> DatagramOutcome {
        let Some((header, payload)) = Header::decode(bytes) else { return DatagramOutcome::Malformed };
        let bridge = lock(&self.bridges).programs.get(&header.to).cloned();
        let Some(bridge) = bridge.filter(|bridge| bridge.accepts_qkey(header.qkey)) else {
            return DatagramOutcome::Unknown;
        };
        let head = route_header(payload.len(), header.sgid, self.own_gid(header.sgid));
        bridge.deliver(&head, payload, header.imm, header.from)
    }

    /// Our GID to which the sender must have sent: of the same type as the sender's GID, as on cards.
    fn own_gid(&self, sender: ibv_gid) -> ibv_gid {
        let is_same = |gid: &&ibv_gid| address::is_link_local(gid) == address::is_link_local(&sender);
        self.gids.iter().find(is_same).or(self.gids.first()).copied().unwrap_or_default()
    }
}
