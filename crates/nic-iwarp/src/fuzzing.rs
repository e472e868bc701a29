//! Entry point of the fuzz target `queue_pair`, and a test that replays its corpus.
//!
//! A device has a queue pair whose peer is driven by the input, over TCP: the handshake of either side, then mostly
//! valid frames, while this side posts work, too. Afterwards no byte has changed that the peer may not write, the
//! peer was sent nothing that it may not read, every request and receive has completed once and in order, and another
//! connection of the device works.

mod memory;
mod peer;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use host::Span;
use iwarp::mpa::{AcceptParams, Initiator, InitiatorConfig, Responder, ResponderConfig, Revision, RtrSet};
use verbs::{
    Access, Buf, Cm, CmEvent, ConnParam, Cq, Device, Listener, Mr, Qp, QpCap, QpInit, QpState, RecvWr,
    RemoteAddr, SendFlags, SendOp, SendWr, Wc,
};

use crate::{IwarpConfig, open};
use memory::VictimMemory;
use peer::Peer;

/// Maximum number of steps of one input.
const STEPS: usize = 64;
/// Maximum number of requests, and of receives, that one input posts.
const POSTS: u64 = 24;
/// Time limit of any wait; longer means that it hangs.
const PATIENCE: Span = Span::from_secs(60);
const CAP: QpCap =
    QpCap { max_send_wr: 32, max_recv_wr: 32, max_send_sge: 2, max_recv_sge: 2, max_inline: 64 };

/// The fuzzer's input, consumed piece by piece; reads return zeros after its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
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

    fn bit(&self, bit: u8) -> bool {
        self.0.first().is_some_and(|byte| byte >> bit & 1 == 1)
    }

    fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// Repeats `check` until it returns a value.
fn until<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    let host = host::real::host();
    let found = host.poll("fuzzing", host.after(PATIENCE), check);
    found.unwrap_or_else(|| panic!("{what} did not arrive: it hangs"))
}

/// How the connection of one input is established.
#[derive(Clone, Copy, Debug)]
struct Setup {
    /// This device requests CRCs.
    crc: bool,
    /// This side connects.
    active: bool,
    /// The peer's revision, whether it requests CRCs, and the first messages that it offers or accepts.
    revision: Revision,
    peer_crc: bool,
    peer_to_peer: RtrSet,
    /// RNR retry limit and depth of this side.
    rnr_retry: u8,
    depth: u8,
    /// Which byte of the peer's frame to change, and the bits to flip; 0 for none.
    wrong: (u8, u8),
    /// Receives posted at the beginning.
    receives: u8,
}

impl Setup {
    fn from_input(input: &mut Input<'_>) -> Self {
        let [flags, sizes, receives, at] = input.take();
        let flip = if at == 0 { 0 } else { input.byte() };
        Self {
            crc: flags & 1 == 1,
            active: flags & 2 == 2,
            revision: if flags & 4 == 4 { Revision::V1 } else { Revision::V2 },
            peer_crc: flags & 8 == 8,
            peer_to_peer: RtrSet::from_bits_truncate(flags >> 4),
            rnr_retry: [7, 0, 1, 7][usize::from(sizes & 3)],
            depth: [16, 0, 1, 2][usize::from(sizes >> 2 & 3)],
            wrong: (at, flip),
            receives: receives % 8,
        }
    }

    fn corrupt(&self, mut frame: Vec<u8>) -> Vec<u8> {
        let (at, flip) = self.wrong;
        if let Some(byte) = frame.get_mut(usize::from(at)) {
            *byte ^= flip;
        }
        frame
    }
}

/// A device under attack, and another connection of the same device.
struct Victim {
    device: Device,
    cm: Cm,
    listener: Listener,
    /// The port that this device connects to.
    hostile: TcpListener,
    send_cq: Cq,
    recv_cq: Cq,
    memory: VictimMemory,
    bystander: BystanderConn,
}

/// A connection to another device that must keep working whatever the hostile peer does.
struct BystanderConn {
    _device: Device,
    cq: Cq,
    qp: Qp,
    word: Mr,
    remote: RemoteAddr,
    /// The other endpoint.
    _qp: Qp,
    _cm: [Cm; 2],
    target: Mr,
    rounds: u64,
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

impl Victim {
    /// The devices with and without CRCs, each created once.
    fn get(crc: bool) -> &'static Mutex<Self> {
        static VICTIMS: [OnceLock<Mutex<Victim>>; 2] = [const { OnceLock::new() }; 2];
        VICTIMS[usize::from(crc)].get_or_init(|| Mutex::new(Self::new(crc)))
    }

    fn new(crc: bool) -> Self {
        let config = IwarpConfig { crc, dm_size: Some(1 << 20), ..IwarpConfig::default() };
        let device = open(&host::real::host(), &config).expect("a device");
        let cm = device.create_cm().expect("a channel");
        let listener = cm.listen(loopback(0), 16).expect("a listener");
        let hostile = TcpListener::bind(loopback(0)).expect("a port");
        hostile.set_nonblocking(true).expect("a socket");
        let queue = || device.create_cq(64).expect("a completion queue");
        let (send_cq, recv_cq) = (queue(), queue());
        let bystander = BystanderConn::new(&device);
        let memory = VictimMemory::new(&device);
        Self { device, cm, listener, hostile, send_cq, recv_cq, memory, bystander }
    }
}

impl BystanderConn {
    fn new(device: &Device) -> Self {
        let other = open(&host::real::host(), &IwarpConfig::default()).expect("a device");
        let cms = [device, &other].map(|device| device.create_cm().expect("a channel"));
        let listener = cms[0].listen(loopback(0), 16).expect("a listener");
        let end = |device: &Device| {
            let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
            let mr = pd.reg_mr(&Buf::alloc(64).expect("memory"), Access::ALL).expect("a region");
            (pd.create_qp(&QpInit::new(&cq).cap(CAP)).expect("a queue pair"), cq, mr)
        };
        let ((theirs, _, target), (qp, cq, word)) = (end(device), end(&other));
        cms[1].connect(&qp, listener.addr(), &ConnParam::default()).expect("the attempt starts");
        let mut up = 0;
        until("the other connection", || {
            match cms[0].poll_event().or_else(|| cms[1].poll_event()) {
                Some(CmEvent::ConnectRequest(request)) => {
                    cms[0].accept(request, &theirs, &ConnParam::default()).expect("accepted");
                }
                Some(CmEvent::Established { .. }) => up += 1,
                Some(event) => panic!("the other connection: {event:?}"),
                None => {}
            }
            (up == 2).then_some(())
        });
        let remote = target.remote(0);
        Self { _device: other, cq, qp, word, remote, _qp: theirs, _cm: cms, target, rounds: 0 }
    }

    /// Writes over the other connection, which must work whatever the hostile peer sent.
    fn check(&mut self) {
        self.rounds += 1;
        let bytes = self.rounds.to_ne_bytes();
        self.word.buf().write(0, &bytes).expect("inside");
        let op = SendOp::Write(self.remote);
        self.qp.post_send(&SendWr::new(self.rounds, op, &[self.word.sge(0, 8)])).expect("the queue has room");
        let wc = until("the other connection's write", || self.cq.poll_one().expect("no overrun"));
        assert!(wc.is_ok() && wc.wr_id == self.rounds, "the other connection: {wc:?}");
        assert_eq!(self.target.buf().to_vec(0..8).expect("inside"), bytes);
    }
}

/// The queue pair of one input.
struct Round<'a> {
    victim: &'a mut Victim,
    setup: Setup,
    qp: Qp,
    sends: VecDeque<u64>,
    receives: VecDeque<u64>,
    posted: [u64; 2],
    /// The connection manager has reported the end.
    has_ended: bool,
    has_begun: bool,
}

impl<'a> Round<'a> {
    fn new(victim: &'a mut Victim, setup: Setup) -> Self {
        let init = QpInit::new(&victim.send_cq).recv_cq(&victim.recv_cq).cap(CAP);
        let qp = victim.memory.domain().create_qp(&init).expect("a queue pair");
        let mut round = Self {
            victim,
            setup,
            qp,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            posted: [0; 2],
            has_ended: false,
            has_begun: false,
        };
        for n in 0..setup.receives {
            round.receive([64, 200, 0, 8][usize::from(n) % 4]);
        }
        round
    }

    fn param(&self) -> ConnParam {
        ConnParam {
            rnr_retry: self.setup.rnr_retry,
            responder_resources: self.setup.depth,
            initiator_depth: self.setup.depth,
            timeout: Span::from_secs(10),
            ..ConnParam::default()
        }
    }

    fn receive(&mut self, len: usize) {
        if self.posted[1] < POSTS {
            let sge = self.victim.memory.receive(len);
            self.qp.post_recv(&RecvWr::new(self.posted[1], &[sge])).expect("the queue has room");
            self.receives.push_back(self.posted[1]);
            self.posted[1] += 1;
        }
    }

    /// Posts a request of this side, if it is connected.
    fn post(&mut self, input: &mut Input<'_>) {
        if self.posted[0] >= POSTS || !matches!(self.qp.state(), QpState::ReadyToSend | QpState::Error) {
            return;
        }
        let [what, len] = input.take();
        let remote = RemoteAddr { addr: 0x1000, rkey: 0x0102_0304 };
        let fetched = if what & 7 < 6 { usize::from(len) } else { 8 };
        let (op, sge) = match what & 7 {
            0 => (SendOp::Send, self.victim.memory.source(len.into())),
            1 => (SendOp::SendImm(7), self.victim.memory.source(len.into())),
            2 => (SendOp::SendInv(7), self.victim.memory.source(len.into())),
            3 => (SendOp::Write(remote), self.victim.memory.source(len.into())),
            4 => (SendOp::WriteImm(remote, 7), self.victim.memory.source(len.into())),
            5 => (SendOp::Read(remote), self.victim.memory.sink(fetched)),
            6 => (SendOp::FetchAdd { remote, add: 1 }, self.victim.memory.sink(fetched)),
            _ => (SendOp::CompareSwap { remote, compare: 0, swap: 1 }, self.victim.memory.sink(fetched)),
        };
        let flags = if what & 8 == 8 { SendFlags::FENCE } else { SendFlags::empty() };
        let number = self.posted[0];
        // With depth 0 reads are refused.
        if self.qp.post_send(&SendWr::new(number, op, &[sge]).with(flags)).is_ok() {
            self.sends.push_back(number);
            self.posted[0] += 1;
        }
    }

    /// Polls completions and events, as this side's program does.
    fn poll_all(&mut self) {
        let in_order = |wc: Wc, open: &mut VecDeque<u64>| {
            assert_eq!(open.pop_front(), Some(wc.wr_id), "completions come once and in order: {wc:?}");
        };
        while let Some(wc) = self.victim.send_cq.poll_one().expect("no overrun") {
            in_order(wc, &mut self.sends);
        }
        while let Some(wc) = self.victim.recv_cq.poll_one().expect("no overrun") {
            in_order(wc, &mut self.receives);
        }
        while let Some(event) = self.victim.cm.poll_event() {
            match event {
                CmEvent::ConnectRequest(request) => {
                    assert!(!self.has_begun, "one peer, one request");
                    // On failure the peer is rejected: there is nothing to wait for.
                    self.has_begun = self.victim.cm.accept(request, &self.qp, &self.param()).is_ok();
                    self.has_ended = !self.has_begun;
                }
                CmEvent::Established { .. } => {}
                CmEvent::ConnectFailed { qp_num, .. }
                | CmEvent::Rejected { qp_num, .. }
                | CmEvent::Disconnected { qp_num } => {
                    assert!(qp_num == self.qp.num() && !self.has_ended, "a connection ends once");
                    self.has_ended = true;
                }
            }
        }
        // Violations cause at most one event per connection.
        while self.victim.device.poll_async_event().is_some() {}
    }

    /// Lets the peer connect. If that cannot succeed, the round has ended.
    fn let_peer_connect(&mut self, known: Vec<memory::KnownRegion>) -> Peer {
        let socket = TcpStream::connect(self.victim.listener.addr()).expect("the listener exists");
        let mut peer = Peer::new(socket, known);
        let config = InitiatorConfig {
            revision: self.setup.revision,
            crc: self.setup.peer_crc,
            peer_to_peer: self.setup.peer_to_peer,
            ..InitiatorConfig::default()
        };
        let mut machine = Initiator::new(config, Duration::ZERO).expect("the configuration is valid");
        let request = self.setup.corrupt(machine.transmit().to_vec());
        // Predict whether the victim will accept the request: only then wait for a reply.
        let mut model = Responder::new(ResponderConfig::default(), Duration::ZERO);
        let is_valid = matches!(model.handle_bytes(&request), Ok((_, Some(_))));
        peer.queue_bytes(&request);
        peer.send(usize::MAX);
        if !is_valid {
            self.has_ended = true;
            return peer;
        }
        until("the request", || {
            self.poll_all();
            (self.has_begun || self.has_ended).then_some(())
        });
        until("the reply", || {
            let closed = peer.receive();
            let received = std::mem::take(&mut peer.received);
            match machine.handle_bytes(&received) {
                Ok((_, None)) => closed.then_some(()),
                Ok((taken, Some(_))) => {
                    peer.received = received[taken..].to_vec();
                    Some(())
                }
                // The reply to a damaged request may be invalid for an honest peer.
                Err(_) => Some(()),
            }
        });
        peer
    }

    /// Lets this side connect.
    fn connect_to_peer(&mut self, known: Vec<memory::KnownRegion>) -> Peer {
        let addr = self.victim.hostile.local_addr().expect("the socket is bound");
        self.victim.cm.connect(&self.qp, addr, &self.param()).expect("the attempt starts");
        self.has_begun = true;
        let mut peer = self.accept_connection(&known);
        if self.setup.revision == Revision::V1 {
            // This side connects again in revision 1, unless the reply was damaged in another way.
            until("the second request", || {
                self.poll_all();
                peer.receive();
                if let Ok((socket, _)) = self.victim.hostile.accept() {
                    peer = self.reply(socket, &known);
                    return Some(());
                }
                (self.has_ended || self.qp.state() == QpState::ReadyToSend || self.setup.wrong.0 != 0)
                    .then_some(())
            });
        }
        peer
    }

    fn accept_connection(&mut self, known: &[memory::KnownRegion]) -> Peer {
        let socket = until("the connection", || self.victim.hostile.accept().ok().map(|(socket, _)| socket));
        self.reply(socket, known)
    }

    /// Replies to this side's request.
    fn reply(&mut self, socket: TcpStream, known: &[memory::KnownRegion]) -> Peer {
        let mut peer = Peer::new(socket, known.to_vec());
        let config = ResponderConfig {
            revision_max: self.setup.revision,
            crc: self.setup.peer_crc,
            peer_to_peer: self.setup.peer_to_peer,
            ..ResponderConfig::default()
        };
        let mut machine = Responder::new(config, Duration::ZERO);
        until("this side's request", || {
            assert!(!peer.receive(), "this side closes before it has its reply");
            let received = std::mem::take(&mut peer.received);
            machine.handle_bytes(&received).ok().is_none_or(|(_, request)| request.is_some()).then_some(())
        });
        // If they do not agree, the reply is a rejection.
        let _ = machine.accept(&AcceptParams { ird: 8, ord: 8, private_data: b"accepted".to_vec() });
        peer.queue_bytes(&self.setup.corrupt(machine.transmit().to_vec()));
        peer.send(usize::MAX);
        peer
    }

    /// Performs one step.
    fn step(&mut self, input: &mut Input<'_>, peer: &mut Peer) {
        match input.byte() & 0x1f {
            0 => peer.send_message(input),
            1 | 2 => peer.write(input),
            3 => peer.read_request(input),
            4 => peer.atomic_request(input),
            5 => peer.immediate(input),
            6 | 7 => {
                peer.receive();
                peer.parse_requests();
                peer.respond(input);
            }
            8 => peer.terminate(input),
            9 => peer.queue_arbitrary(input, true),
            10 => peer.queue_arbitrary(input, false),
            11 => peer.corrupt_queued(input),
            12..=14 => self.post(input),
            15 | 16 => {
                let len = usize::from(input.byte());
                self.receive(len);
            }
            17 => self.victim.memory.deregister_one(),
            18 => {
                let len = usize::from(input.byte());
                peer.send(len);
            }
            19 => self.poll_all(),
            20 if self.qp.state() == QpState::ReadyToSend && input.byte() == 0 => {
                // The connection may have ended already.
                let _ = self.victim.cm.disconnect(&self.qp);
            }
            21 => (0..40).for_each(|_| self.poll_all()),
            _ => {
                peer.send(usize::MAX);
                self.poll_all();
            }
        }
    }

    /// The peer stops sending, and the connection ends.
    fn finish(&mut self, mut peer: Peer) -> Vec<u8> {
        let active = self.setup.active;
        until("the last byte", || {
            peer.send(usize::MAX);
            self.poll_all();
            (peer.receive() || peer.is_done()).then_some(())
        });
        peer.finish();
        until("the end of the connection", || {
            self.poll_all();
            if active && let Ok((socket, _)) = self.victim.hostile.accept() {
                // It retries with revision 1.
                drop(socket);
            }
            (peer.receive() && self.has_ended).then_some(())
        });
        // The work requests of a queue pair that was never connected are dropped with it.
        if self.qp.state() == QpState::Error {
            until("the last completion", || {
                self.poll_all();
                (self.sends.is_empty() && self.receives.is_empty()).then_some(())
            });
        }
        peer.received
    }
}

/// Goal: whatever a peer sends, no memory changes without its right, nothing is lost, and nothing hangs.
pub fn queue_pair(data: &[u8]) {
    let mut input = Input(data);
    let setup = Setup::from_input(&mut input);
    // A poisoned lock is ignored: the fuzzer reports the panic of the earlier input itself.
    let mut victim = Victim::get(setup.crc).lock().unwrap_or_else(PoisonError::into_inner);
    let known = victim.memory.reset();
    let mut round = Round::new(&mut victim, setup);
    let mut peer = if setup.active { round.connect_to_peer(known) } else { round.let_peer_connect(known) };
    for _ in 0..STEPS {
        if input.0.is_empty() || !round.has_begun {
            break;
        }
        round.step(&mut input, &mut peer);
    }
    let received = round.finish(peer);
    drop(round);
    while victim.cm.poll_event().is_some() {}
    victim.memory.check();
    victim.memory.check_secret(&received);
    victim.bystander.check();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what the fuzzer once found does not come back. Method: replays every input of the corpus.
    #[test]
    fn queue_pairs_of_the_corpus() {
        let folder = format!("{}/../../fuzz/corpus/queue_pair", env!("CARGO_MANIFEST_DIR"));
        let mut count = 0;
        for entry in std::fs::read_dir(&folder).expect("the corpus") {
            queue_pair(&std::fs::read(entry.expect("an entry").path()).expect("an input"));
            count += 1;
        }
        assert!(count > 0, "{folder} is empty");
    }
}
