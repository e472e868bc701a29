//! Tests of a peer that forges one word of its shared memory. The siege's `liars` forges every word; these
//! are the cases that once had an effect.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use host::Span;
use verbs::provider::downcast;
use verbs::{
    Access, Buf, Cm, CmEvent, ConnParam, Cq, Data, Device, Mr, Pd, Qp, QpInit, RemoteAddr, SendFlags, SendOp,
    SendWr, Wc, WcStatus,
};

use crate::api::handle::QpHandle;
use crate::device::device_inner_of;
use crate::memory::atomic_lock::AtomicLock;
use crate::memory::layout::{MrEntry, mr_offset};
use crate::qp::QpInner;
use crate::{CopyPath, ShmConfig, open};

const LEN: usize = 4096;

/// One side of a connection.
struct Endpoint {
    device: Device,
    _pd: Pd,
    cq: Cq,
    cm: Cm,
    qp: Qp,
    inner: Arc<QpInner>,
    host: Mr,
    nic: Mr,
}

impl Endpoint {
    fn new(copy: CopyPath) -> Self {
        let device =
            open(&host::real::host(), &ShmConfig { copy, ..ShmConfig::default() }).expect("a device");
        let pd = device.alloc_pd().expect("a domain");
        let cq = device.create_cq(64).expect("a queue");
        let qp = pd.create_qp(&QpInit::new(&cq)).expect("a queue pair");
        let handle: Arc<QpHandle> =
            downcast(qp.ops().clone(), "the queue pair").expect("a queue pair of this NIC");
        let cm = device.create_cm().expect("a channel");
        let memory = Buf::alloc(3 * LEN).expect("memory");
        let host = pd.reg_mr_range(&memory, LEN..2 * LEN, Access::ALL).expect("a region");
        let nic = pd.reg_mr(&device.alloc_dm(LEN).expect("NIC memory"), Access::ALL).expect("a region");
        Self { device, _pd: pd, cq, cm, qp, inner: handle.qp.clone(), host, nic }
    }

    fn event(&self) -> CmEvent {
        self.cm.get_event(self.device.host().after(Span::from_secs(30))).expect("an event")
    }

    /// Carries out one request on `len` bytes of this side's region; returns its status.
    fn request(&self, op: SendOp, len: u32) -> WcStatus {
        let sge = [self.host.sge(0, len)];
        let wr = SendWr { wr_id: 1, op, data: Data::Sges(&sge), flags: SendFlags::SIGNALED };
        self.qp.post_send(&wr).expect("room");
        self.wait().status
    }

    fn wait(&self) -> Wc {
        self.cq.wait(self.device.host().after(Span::from_secs(30))).expect("a completion")
    }

    /// A region's entry of the table, as peers can change it.
    fn entry(&self, mr: &Mr) -> &MrEntry {
        self.inner.connection.device.table.map.get(mr_offset((mr.rkey() >> 16) as usize)).expect("an entry")
    }
}

/// A victim and its hostile peer, connected.
fn pair(copy: CopyPath) -> (Endpoint, Endpoint) {
    let (victim, hostile) = (Endpoint::new(copy), Endpoint::new(copy));
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = hostile.cm.listen(any, 4).expect("a listener");
    victim.cm.connect(&victim.qp, listener.addr(), &ConnParam::default()).expect("connecting");
    let CmEvent::ConnectRequest(request) = hostile.event() else { panic!("no request") };
    hostile.cm.accept(request, &hostile.qp, &ConnParam::default()).expect("accepted");
    assert!(matches!(victim.event(), CmEvent::Established { .. }));
    assert!(matches!(hostile.event(), CmEvent::Established { .. }));
    (victim, hostile)
}

/// Two connected queue pairs.
pub(crate) fn connected_qps() -> (Qp, Qp) {
    let (one, other) = pair(CopyPath::Auto);
    (one.qp, other.qp)
}

/// A queue pair that only the test accesses, as the NIC thread has ended; also returns the objects that keep
/// it alive.
pub(crate) fn unattended_qp(init: impl FnOnce(&Pd, &Cq) -> QpInit) -> (impl Sized, Arc<QpInner>) {
    let device = open(&host::real::host(), &ShmConfig::default()).expect("a device");
    device_inner_of(&device).expect("a device of this NIC").stop();
    let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
    let qp = pd.create_qp(&init(&pd, &cq)).expect("a queue pair");
    let handle: Arc<QpHandle> =
        downcast(qp.ops().clone(), "the queue pair").expect("a queue pair of this NIC");
    let inner = handle.qp.clone();
    ((device, pd, cq, qp), inner)
}

/// Goal: a peer's table that claims more than is mapped gives no access beyond it, after an access that was
/// allowed. Method: a region of NIC memory claims 2^62 bytes; a write that would reach a buffer of the victim
/// is refused.
#[test]
fn oversized_region_gives_no_access_outside() {
    let (victim, hostile) = pair(CopyPath::Auto);
    let memory = Buf::alloc(1 << 20).expect("memory");
    hostile.entry(&hostile.nic).len.store(1 << 62, Ordering::Release);
    assert_eq!(victim.request(SendOp::Write(hostile.nic.remote(0)), 8), WcStatus::Success);
    let link = victim.inner.connection.link().expect("connected");
    let place = hostile.entry(&hostile.nic).place.load(Ordering::Relaxed);
    let base = link.peer.table.map.bytes(place, 1).expect("mapped");
    let away = (memory.as_ptr().addr()).wrapping_sub(base.addr()) as u64;
    victim.host.buf().fill(1);
    assert!(away < 1 << 62, "the buffer is after the region");
    let remote = RemoteAddr { addr: away, rkey: hostile.nic.rkey() };
    assert_eq!(victim.request(SendOp::Write(remote), 8), WcStatus::RemAccessErr);
    assert_eq!(memory.word(0).expect("aligned").load(Ordering::SeqCst), 0, "written outside");
}

/// Goal: accesses to a device of this process reach registered memory only, even if another process changed
/// its table; likewise for this side's table. Method: tables that refer to an unregistered buffer.
#[test]
fn forged_table_of_this_process_gives_no_other_access() {
    for own_table in [false, true] {
        let (victim, hostile) = pair(CopyPath::Auto);
        let memory = Buf::alloc(LEN).expect("memory");
        let changed = if own_table { &victim } else { &hostile };
        changed.entry(&changed.host).place.store(memory.addr(), Ordering::Release);
        let op = if own_table {
            SendOp::Read(hostile.host.remote(0))
        } else {
            SendOp::Write(hostile.host.remote(0))
        };
        hostile.host.buf().fill(1);
        victim.host.buf().fill(1);
        for _ in 0..2 {
            victim.request(op, 8);
        }
        assert_eq!(memory.word(0).expect("aligned").load(Ordering::SeqCst), 0, "own table: {own_table}");
    }
}

/// Goal: an atomic requested from the owner changes its 8 bytes only, whatever length the request has.
/// Method: a request of length 0 for the 8 bytes after the region.
#[test]
fn atomic_of_length_zero_is_bounds_checked() {
    let (owner, requester) = pair(CopyPath::Service);
    let words = &owner.inner.connection.words.service.0;
    let behind = owner.host.buf().addr() + LEN as u64;
    words.kind.store(3, Ordering::Relaxed);
    words.addr.store(behind, Ordering::Relaxed);
    words.len.store(0, Ordering::Relaxed);
    words.key.store(owner.host.rkey(), Ordering::Relaxed);
    words.operand[0].store(1, Ordering::Relaxed);
    words.turn.fetch_add(1, Ordering::Release);
    requester.inner.connection.link().expect("connected").kick();
    let answered = || words.turn.load(Ordering::Acquire).is_multiple_of(2).then_some(());
    owner
        .device
        .host()
        .poll("the answer", owner.device.host().after(Span::from_secs(30)), answered)
        .expect("an answer");
    // SAFETY: the buffer, whose middle third is the region, is alive.
    let after = unsafe { AtomicU64::from_ptr(behind as *mut u64) }.load(Ordering::SeqCst);
    assert_eq!((after, words.refused.load(Ordering::Relaxed)), (0, 1));
}

/// Goal: if a peer dies inside after we destroyed our queue pair, the lock for atomics, the queue pair's
/// number and its rings are freed. While it lives, they stay allocated, as it may continue. Method: the
/// peer's process is a `cat`, killed after the queue pair was destroyed; the words show it as the lock's
/// holder.
#[test]
fn peer_that_dies_inside_releases_the_atomic_lock() {
    let mut peer =
        std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("cat starts");
    let pidfd = rustix::process::pidfd_open(
        rustix::process::Pid::from_child(&peer),
        rustix::process::PidfdFlags::empty(),
    );
    let victim = Endpoint::new(CopyPath::Auto);
    let (device, shared) = (
        device_inner_of(&victim.device).expect("a device of this NIC"),
        victim.inner.connection.device.clone(),
    );
    crate::fuzzing::link_to_process(&victim.inner, peer.id() as i32, pidfd.ok());
    let index = victim.inner.index();
    victim.inner.connection.words.peer.0.busy.enter(&shared.header.visited, index);
    let lock = AtomicLock::try_lock(&shared.table.map, index, 7).expect("the lock is free");
    std::mem::forget(lock);
    let Endpoint { qp, inner, .. } = victim;
    drop((qp, inner));
    assert_eq!(device.objects.lingering.lock().expect("unpoisoned").len(), 1);
    (0..3).for_each(|_| {
        device.check_atomic_lock();
    });
    assert!(AtomicLock::try_lock(&shared.table.map, 3, 1).is_none(), "the lock was taken from a live holder");
    peer.kill().expect("killed");
    peer.wait().expect("reaped");
    let free = || AtomicLock::try_lock(&shared.table.map, 3, 1).map(drop);
    let patience = shared.host.after(Span::from_secs(30));
    assert!(shared.host.poll("the atomic lock", patience, free).is_some(), "the lock was never released");
    let lingering_is_empty = || device.objects.lingering.lock().expect("unpoisoned").is_empty().then_some(());
    assert!(
        shared.host.poll("the end", patience, lingering_is_empty).is_some(),
        "the queue pair's number was never freed"
    );
    let page = || {
        let next = shared.indices.lock().qp.alloc().ok()?;
        shared.indices.lock().qp.free(next.index)
    };
    assert!(shared.host.poll("the page", patience, page).is_some(), "its page was never freed");
}

/// Goal: after failing a queue pair, the program may reuse its memory. Method: the peer is inside, and leaves
/// a little later; if that takes longer than the wait for it, the run proves nothing.
#[test]
fn to_error_waits_for_a_peer_inside() {
    let victim = Endpoint::new(CopyPath::Auto);
    let (inner, has_left) = (victim.inner.clone(), Arc::new(AtomicBool::new(false)));
    let host = inner.connection.device.host.clone();
    inner.connection.words.peer.0.busy.enter(&inner.connection.device.header.visited, inner.index());
    let leaver = {
        let (inner, has_left) = (inner.clone(), has_left.clone());
        move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            has_left.store(true, Ordering::Release);
            inner.connection.words.peer.0.busy.leave();
        }
    };
    let began = host.now();
    let leaver = host.spawn("leaver", None, leaver).expect("a thread");
    victim.qp.to_error();
    let left_before = has_left.load(Ordering::Acquire);
    assert!(left_before || host.now().since(began) >= crate::api::handle::PATIENCE, "the peer was inside");
    leaver.join();
}

/// Goal: the lock for atomics is not kept by a holder that is not inside. Method: forged holders.
#[test]
fn forged_atomic_lock_is_released() {
    let victim = Endpoint::new(CopyPath::Auto);
    let shared = &victim.inner.connection.device;
    for forged in [1, 7, u64::MAX, 1 << 40] {
        let header: &crate::memory::layout::Header = shared.table.map.get(0).expect("a header");
        header.atomic_holder.0.store(forged, Ordering::Release);
        shared.reactor.wake();
        let free = || AtomicLock::try_lock(&shared.table.map, 3, 1).map(drop);
        let patience = shared.host.after(Span::from_secs(30));
        assert!(shared.host.poll("the atomic lock", patience, free).is_some(), "{forged:#x} keeps the lock");
    }
}
