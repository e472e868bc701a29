//! Entry points of the fuzz targets in `fuzz/`, and the replay of their corpora by ordinary tests.
//!
//! `packet` fuzzes the parser of the connection protocol. `segment` fuzzes a hostile peer: its segment's
//! words come from the input, this side connects to it and uses it, while further words change in it and in
//! the shared parts of this side's queue pair. Nothing may panic or access memory that is not registered.
//! This side's protection table is not changed: only a process of the same user can write it, and that may
//! write anywhere in this process.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use verbs::provider::downcast;
use verbs::{
    Access, Buf, Cq, Data, Depths, Device, Mr, Pd, Qp, QpCap, QpInit, RecvWr, RemoteAddr, SendFlags, SendOp,
    SendWr, Sge, Wc,
};

use crate::api::handle::QpHandle;
use crate::copy::place;
use crate::memory::layout::{
    CHANNEL_MAX, DM_BASE, HEAP_BASE, VERSION, channel_offset, cq_offset, mr_offset, qp_offset, recv,
    srq_offset, state,
};
use crate::memory::segment::{MappedSegment, Segment};
use crate::peer::queue_pair::PeerQp;
use crate::protocol::wire::{Hello, Message};
use crate::qp::QpInner;
use crate::wake::wake_socket::WakeSocket;
use crate::{CopyPath, ShmConfig, open};

const CANARY: u8 = 0xa7;
/// Size of the local region, which is the middle third of its buffer.
const LEN: usize = 4096;
/// Maximum number of steps of an input.
const STEPS: usize = 96;
const GENERATION: u32 = 1;

/// Goal: a packet that can be parsed is emitted such that it parses to the same message.
pub fn packet(data: &[u8]) {
    if let Ok(message) = Message::parse(data) {
        assert_eq!(Message::parse(&message.emit()), Ok(message));
    }
}

/// Reads the input piece by piece; zeros after its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let n = N.min(self.0.len());
        bytes[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        bytes
    }

    fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    /// A value at or near a limit, or any value.
    fn word(&mut self) -> u64 {
        let kind = self.byte();
        let shift = self.byte() % 64;
        match kind % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << shift,
            3 => (1 << shift) - 1,
            4 => DM_BASE + u64::from(self.byte()) * 8,
            5 => HEAP_BASE + u64::from(self.byte()) * 64,
            6 => u64::from(self.byte()),
            _ => u64::from_le_bytes(self.take()),
        }
    }
}

/// The side under test, opened once.
struct TestedSide {
    device: Device,
    pd: Pd,
    cq: Cq,
    buf: Buf,
    mr: Mr,
    /// A process that serves as the peer's process: its private memory may be overwritten.
    peer_process: Child,
    /// The address and value of a word in that process.
    probe: (u64, u64),
    tokens: AtomicU64,
}

impl TestedSide {
    fn get() -> &'static Self {
        static TESTED: OnceLock<TestedSide> = OnceLock::new();
        TESTED.get_or_init(Self::new)
    }

    fn new() -> Self {
        let config = ShmConfig { copy: CopyPath::Auto, ..ShmConfig::default() };
        let device = open(&host::real::host(), &config).expect("a device");
        let pd = device.alloc_pd().expect("a domain");
        let cq = device.create_cq(4096).expect("a completion queue");
        let buf = Buf::alloc(3 * LEN).expect("memory");
        buf.fill(CANARY);
        let mr = pd.reg_mr_range(&buf, LEN..2 * LEN, Access::ALL).expect("a region");
        // It ends when its standard input closes, that is, with this process.
        let peer_process =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat starts");
        let maps = format!("/proc/{}/maps", peer_process.id());
        let probe = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            let text = std::fs::read_to_string(&maps).ok()?;
            let base = u64::from_str_radix(text.split('-').next()?, 16).ok()?;
            // The first bytes of an ELF file on this machine.
            let word = 0x0001_0102_464c_457f;
            place::probe_kernel_copy(peer_process.id() as i32, base, word).ok().map(|()| (base, word))
        });
        let probe = probe.unwrap_or((8, 8));
        Self { device, pd, cq, buf, mr, peer_process, probe, tokens: AtomicU64::new(1) }
    }

    fn check_canaries(&self) {
        for range in [0..LEN, 2 * LEN..3 * LEN] {
            let bytes = self.buf.to_vec(range).expect("inside");
            assert!(bytes.iter().all(|&b| b == CANARY), "memory outside of the region was written");
        }
    }
}

/// A wake socket as a peer sends it.
fn wake_socket_sender() -> Option<OwnedFd> {
    WakeSocket::new().ok()?.sender().try_clone_to_owned().ok()
}

/// Sets a word of shared memory, if it is inside the segment.
fn set(map: &MappedSegment, at: u64, value: u64) {
    if let Some(word) = map.bytes(at & !7, 8) {
        // SAFETY: inside the mapping, aligned; shared memory is accessed by atomics only. Test: the corpora.
        unsafe { AtomicU64::from_ptr(word.cast()) }.store(value, Ordering::Relaxed);
    }
}

/// A valid segment, before the input changes it.
fn valid_segment(token: u64, index: usize, peer_addr: u64) -> Option<Segment> {
    let segment = Segment::create(DM_BASE + 64 * 1024).ok()?;
    let map = &segment.map;
    set(map, 0, VERSION.into());
    set(map, 8, token);
    let pair = |low: u64, high: u64| high << 32 | low;
    for (i, kind, place) in [(1, 1, DM_BASE), (2, 0, peer_addr)] {
        set(map, mr_offset(i), pair((i as u64) << 16 | 7, 15));
        set(map, mr_offset(i) + 8, pair(1, kind));
        set(map, mr_offset(i) + 16, 0);
        set(map, mr_offset(i) + 24, 4096);
        set(map, mr_offset(i) + 32, place);
    }
    let qp = qp_offset(index);
    set(map, qp, state::status_word(GENERATION, state::RTS));
    set(map, qp + 8, pair(1, 0));
    set(map, qp + 16, pair(0, 4));
    set(map, qp + 24, pair(recv::stride(4), 4));
    set(map, qp + 32, HEAP_BASE);
    set(map, qp + 40, HEAP_BASE + 65_536);
    for i in 0..8 {
        let slot = HEAP_BASE + i * recv::stride(4);
        set(map, slot, pair(1, 1));
        set(map, slot + 16, 0);
        set(map, slot + 24, pair(1 << 16 | 7, 1024));
    }
    Some(segment)
}

/// The objects of one input.
struct FuzzCase {
    segment: Segment,
    qp: Qp,
    inner: Arc<QpInner>,
    index: usize,
}

impl FuzzCase {
    fn new(tested: &TestedSide, index: usize, token: u64) -> Option<Self> {
        let segment = valid_segment(token, index, tested.probe.0)?;
        let cap = QpCap { max_send_wr: 16, max_recv_wr: 16, ..QpCap::default() };
        let qp = tested.pd.create_qp(&QpInit::new(&tested.cq).cap(cap)).ok()?;
        let handle: Arc<QpHandle> = downcast(qp.ops().clone(), "the queue pair").ok()?;
        let inner = handle.qp.clone();
        Some(Self { segment, qp, inner, index })
    }

    /// Changes one word of the peer's segment, or of the part of this side's segment that peers write.
    fn corrupt_word(&self, input: &mut Input<'_>) {
        let (place, offset) = (input.byte() % 12, u64::from(input.byte()) * 8);
        let value = input.word();
        let map = &self.segment.map;
        let own = &self.inner.connection.device.table.map;
        match place {
            0 => set(map, 16 + offset % 128, value),
            1 => set(map, mr_offset(1) + offset % 64, value),
            2 => set(map, mr_offset(2) + offset % 64, value),
            3 | 4 => set(map, qp_offset(self.index) + offset % 1024, value),
            5 => set(map, cq_offset(usize::from(value as u8)) + offset % 2048, value),
            6 => set(map, srq_offset(0) + offset % 512, value),
            7 => set(map, channel_offset((value as usize) % CHANNEL_MAX), value),
            8 => set(map, HEAP_BASE + offset, value),
            9 => set(map, HEAP_BASE + 65_536 + offset, value),
            10 => {
                let at = qp_offset(self.inner.index()) + offset % 1024;
                let busy = std::ptr::from_ref(&self.inner.connection.words.peer).cast::<u8>().cast_mut();
                // A peer that stays inside forever would delay each deregistration by a second.
                if own.bytes(at, 8) != Some(busy) {
                    set(own, at, value);
                }
            }
            _ => {
                let ring = self.inner.rings.lock().first().map_or(HEAP_BASE, |ring| ring.at);
                set(own, ring + offset, value);
            }
        }
    }

    fn link(&self, tested: &TestedSide, input: &mut Input<'_>, token: u64) {
        let by_kernel = input.byte().is_multiple_of(2);
        let hello = Hello {
            token,
            process: if by_kernel { tested.probe.1 } else { 3 },
            probe_addr: tested.probe.0,
            qp_index: self.index as u32,
            generation: GENERATION,
            qp_num: 5,
            barriers: true,
            depths: Depths { responder_resources: 16, initiator_depth: 16 },
            rnr_retry: input.byte() % 8,
            private_data: Vec::new(),
        };
        let mut fds: Vec<OwnedFd> = self.segment.as_fd().try_clone_to_owned().into_iter().collect();
        fds.extend(wake_socket_sender());
        fds.extend(wake_socket_sender());
        let connection = &self.inner.connection;
        let Ok(peer) =
            connection.device.peers.get(&hello, tested.peer_process.id() as i32, || None, &mut fds)
        else {
            return;
        };
        if let Ok(link) = PeerQp::new(peer, &hello, fds.pop())
            && connection.connect(link).is_ok()
        {
            connection.advance(state::INIT, state::RTS);
        }
    }

    fn post(&self, tested: &TestedSide, input: &mut Input<'_>) {
        let kind = input.byte();
        let rkey = [1 << 16 | 7, 2 << 16 | 7, input.byte().into(), input.word() as u32];
        let addr = if input.byte().is_multiple_of(2) { 0 } else { input.word() };
        let remote = RemoteAddr { addr, rkey: rkey[usize::from(kind >> 4) % 4] };
        let op = match kind % 8 {
            0 => SendOp::Send,
            1 => SendOp::SendImm(7),
            2 => SendOp::SendInv(remote.rkey),
            3 => SendOp::Write(remote),
            4 => SendOp::WriteImm(remote, 8),
            5 => SendOp::Read(remote),
            6 => SendOp::CompareSwap { remote, compare: 0, swap: 1 },
            _ => SendOp::FetchAdd { remote, add: 1 },
        };
        let len = if kind % 8 >= 6 { 8 } else { [0, 1, 96, 97, 1024, 4096][usize::from(input.byte()) % 6] };
        let sge = [tested.mr.sge(0, len)];
        let data = match (input.byte() % 4, &op) {
            (0, SendOp::Send | SendOp::Write(_)) => Data::Inline(b"inline data"),
            _ => Data::Sges(&sge),
        };
        // It may be refused.
        let _ = self.qp.post_send(&SendWr { wr_id: 1, op, data, flags: SendFlags::SIGNALED });
    }

    fn step(&self, tested: &TestedSide, input: &mut Input<'_>, token: u64) {
        let mut wcs = [Wc::default(); 8];
        match input.byte() % 8 {
            0..=2 => self.corrupt_word(input),
            3 => self.link(tested, input, token),
            4 | 5 => self.post(tested, input),
            6 => {
                let sge = Sge { length: input.byte().into(), ..tested.mr.sge(0, 0) };
                let _ = self.qp.post_recv(&RecvWr::new(2, &[sge]));
            }
            _ => {
                let _ = tested.cq.poll(&mut wcs);
            }
        }
    }
}

/// Goal: a peer with arbitrary words in its shared memory causes nothing worse than errors and delays.
pub fn segment(data: &[u8]) {
    let tested = TestedSide::get();
    let token = tested.tokens.fetch_add(1, Ordering::Relaxed);
    let mut input = Input(data);
    let index = usize::from(input.byte()) * 32;
    let Some(world) = FuzzCase::new(tested, index, token) else { return };
    for _ in 0..STEPS {
        if input.0.is_empty() {
            break;
        }
        world.step(tested, &mut input, token);
    }
    world.inner.connection.words.peer.0.busy.leave();
    let FuzzCase { qp, inner, .. } = world;
    drop(qp);
    drop(inner);
    let mut wcs = [Wc::default(); 64];
    while tested.cq.poll(&mut wcs).is_ok_and(|n| n > 0) {}
    while tested.device.poll_async_event().is_some() {}
    tested.check_canaries();
}

/// Connects a queue pair to a valid segment, which pretends to belong to process `pid`.
#[cfg(test)]
pub(crate) fn link_to_process(qp: &QpInner, pid: i32, pidfd: Option<OwnedFd>) {
    let token = 77;
    let segment = valid_segment(token, 0, 8).expect("a segment");
    let hello = Hello {
        token,
        process: 3,
        probe_addr: 8,
        qp_index: 0,
        generation: GENERATION,
        qp_num: 5,
        barriers: true,
        depths: Depths { responder_resources: 16, initiator_depth: 16 },
        rnr_retry: 7,
        private_data: Vec::new(),
    };
    let mut fds = vec![
        segment.as_fd().try_clone_to_owned().expect("a descriptor"),
        wake_socket_sender().expect("a wake socket"),
    ];
    let peer = qp.connection.device.peers.get(&hello, pid, || pidfd, &mut fds).expect("a peer");
    assert!(qp.connection.connect(PeerQp::new(peer, &hello, None).expect("a link")).is_ok());
    assert!(qp.connection.advance(state::INIT, state::RTS));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(folder: &str, target: fn(&[u8])) {
        let folder = format!("{}/../../{folder}", env!("CARGO_MANIFEST_DIR"));
        let mut count = 0;
        for entry in std::fs::read_dir(&folder).expect("the corpus") {
            target(&std::fs::read(entry.expect("an entry").path()).expect("an input"));
            count += 1;
        }
        assert!(count > 0, "{folder} is empty");
    }

    /// Goal: crashes that the fuzzer found stay fixed. Method: every input of the corpus.
    #[test]
    fn packets_of_the_corpus() {
        replay("fuzz/corpus/packet", packet);
    }

    /// Goal: as above, for hostile segments.
    #[test]
    fn segments_of_the_corpus() {
        replay("fuzz/corpus/segment", segment);
    }

    /// Goal: a process that repeats this process's token is not mistaken for it. Method: the hello of a
    /// device of this process, as another process would send it.
    #[test]
    fn another_process_is_not_mistaken_for_this_one() {
        use crate::peer::device::CopyMethod;
        let tested = TestedSide::get();
        let token = tested.tokens.fetch_add(1, Ordering::Relaxed);
        let world = FuzzCase::new(tested, 0, token).expect("a world");
        let hello = Hello {
            token,
            process: *crate::protocol::token::process_token().expect("random bits"),
            probe_addr: tested.probe.0,
            qp_index: 0,
            generation: GENERATION,
            qp_num: 5,
            barriers: true,
            depths: Depths { responder_resources: 16, initiator_depth: 16 },
            rnr_retry: 7,
            private_data: Vec::new(),
        };
        let mut fds = vec![
            world.segment.as_fd().try_clone_to_owned().expect("a descriptor"),
            wake_socket_sender().expect("a wake socket"),
        ];
        let peer = world.inner.connection.device.peers.get(
            &hello,
            tested.peer_process.id() as i32,
            || None,
            &mut fds,
        );
        let peer = peer.expect("a peer");
        assert!(!matches!(peer.copy_method, CopyMethod::Direct { .. }));
    }
}
