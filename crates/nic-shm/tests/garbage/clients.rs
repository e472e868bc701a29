//! Clients that send invalid data to a listener.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nic_shm::CopyPath;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use verbs::{CmEvent, Error, Listener, MemoryKind, SendOp};

use crate::raw::{
    PROCESS_AT, QP_AT, QP_INDEX_AT, RawSocket, ReadResult, SEGMENT_LEN, TOKEN_AT, borrowed, event_fd,
    full_pipe, memory_file, real_request, short, wake_socket, write_at,
};
use crate::support::agent::Agent;
use crate::support::device;
use crate::support::endpoint::{CAP, Endpoint};
use crate::support::{PATIENCE, Rng, one_at_a_time, traces, until};

/// A listener under attack, and a connection that must keep working.
struct Victim {
    hub: Endpoint,
    listener: Listener,
    good: Endpoint,
    agent: Option<Agent>,
    open: Vec<Endpoint>,
    accepted: usize,
    refused: usize,
    descriptors: usize,
    segments: usize,
}

impl Victim {
    fn new() -> Self {
        let device = device(CopyPath::Auto);
        let hub = Endpoint::on(&device, 4096);
        let listener = hub.cm.listen(crate::support::endpoint::at(0), 1024).expect("a listener");
        let mut good = Endpoint::on(&device, 4096);
        let agent = Some(Agent::start(&mut good, CopyPath::Auto, 4096));
        let (open, descriptors) = (Vec::new(), 0);
        let mut victim =
            Self { hub, listener, good, agent, open, accepted: 0, refused: 0, descriptors, segments: 0 };
        victim.check();
        victim.descriptors = traces::descriptors();
        victim.segments = traces::mapped_segments();
        victim
    }

    fn port(&self) -> u16 {
        self.listener.addr().port()
    }

    /// Accepts all requests; checks that every other event belongs to an accepted connection.
    fn serve(&mut self) {
        while let Some(event) = self.hub.cm.poll_event() {
            match event {
                CmEvent::ConnectRequest(request) => {
                    let end = Endpoint::on(&self.hub.device, 4096);
                    assert_eq!(end.qp.init().cap, CAP);
                    match self.hub.cm.accept(request, &end.qp, &end.param()) {
                        Ok(()) => {
                            self.accepted += 1;
                            self.open.push(end);
                        }
                        Err(Error::Invalid(_) | Error::System { .. }) => self.refused += 1,
                        Err(e) => panic!("{e}"),
                    }
                }
                CmEvent::Established { .. } => {}
                CmEvent::Disconnected { qp_num } | CmEvent::ConnectFailed { qp_num, .. } => {
                    let at = self.open.iter().position(|e| e.qp.num() == qp_num).expect("one end each");
                    self.open.swap_remove(at).check_canaries();
                }
                CmEvent::Rejected { .. } => panic!("nobody rejects"),
            }
        }
    }

    /// Checks that the good connection works.
    fn check(&mut self) {
        let end = &self.good;
        for op in [SendOp::Write(end.peer.host), SendOp::Read(end.peer.nic)] {
            end.post(1, op, MemoryKind::Host, 0, 4096);
            end.sent_ok(1);
        }
    }

    /// Checks that all resources were freed, and that a proper client can connect.
    fn end(mut self) {
        self.check();
        until("return of all descriptors", || {
            self.serve();
            let more = traces::descriptors() > self.descriptors || traces::mapped_segments() > self.segments;
            (self.open.is_empty() && !more).then_some(())
        });
        self.good.check_canaries();
        self.agent.take().expect("an agent").end();
        let proper = Endpoint::new(CopyPath::Auto, 4096);
        proper.cm.connect(&proper.qp, self.listener.addr(), &proper.param()).expect("asked");
        until("service for a proper client", || {
            self.serve();
            proper.cm.poll_event().map(|e| assert!(matches!(e, CmEvent::Established { .. }), "{e:?}"))
        });
    }
}

fn mutate(rng: &mut Rng, real: &[u8]) -> Vec<u8> {
    let mut packet = real.to_vec();
    match rng.below(4) {
        0 => {
            let len = rng.below(700) as usize;
            return rng.bytes(len);
        }
        1 => packet.truncate(rng.below(real.len() as u64 + 1) as usize),
        2 => {
            let more = rng.below(700) as usize;
            packet.extend(rng.bytes(more));
        }
        _ => {
            for _ in 0..=rng.below(4) {
                let at = rng.below(packet.len() as u64) as usize;
                packet[at] = rng.next_u64() as u8;
            }
        }
    }
    // Not the token of this process, whose memory could then be accessed directly.
    if packet.len() >= PROCESS_AT + 8 {
        packet[PROCESS_AT..PROCESS_AT + 8].copy_from_slice(&rng.next_u64().to_le_bytes());
    }
    packet
}

/// Goal: no packet harms the listener. Method: 600 seeded clients send random bytes, or a real request that
/// is truncated, extended or changed, with none, some or the wrong descriptors, then possibly a further
/// packet; then they close the socket, or wait for the answer.
#[test]
fn listener_survives_garbage_packets() {
    let _gate = one_at_a_time();
    let (real, real_fds, _requester) = real_request();
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("a file");
    let mut rng = Rng::new(31);
    let mut victim = Victim::new();
    for round in 0..600 {
        let raw = RawSocket::connect(victim.port());
        let fds = match rng.below(4) {
            0 => borrowed(&real_fds),
            1 => vec![null.as_fd(); rng.below(7) as usize],
            _ => Vec::new(),
        };
        raw.send(&mutate(&mut rng, &real), &fds);
        victim.serve();
        for _ in 0..rng.below(3) {
            raw.send(&short(rng.below(8) as u8), &fds);
        }
        if rng.below(8) == 0 {
            // The answer arrives quickly, or the listener waits for more.
            raw.read_answer(Duration::from_millis(5));
        }
        drop(raw);
        if round % 50 == 0 {
            victim.serve();
            victim.check();
        }
    }
    victim.serve();
    println!("600 garbage clients: {} accepted, {} refused at accept", victim.accepted, victim.refused);
    victim.end();
}

/// Sets of invalid descriptors.
fn wrong_descriptors(rng: &mut Rng, segment: &OwnedFd) -> Vec<(&'static str, Vec<OwnedFd>)> {
    let file =
        |path| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("a file");
    let good = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    let memory = |len, seals| memory_file(len, MemfdFlags::empty(), seals).expect("memory");
    let random = memory(SEGMENT_LEN, good);
    for at in [0, 64 << 10, QP_AT, 16 << 20, 28 << 20] {
        write_at(&random, at, &rng.bytes(65_536));
    }
    let own = |fd: &OwnedFd| fd.try_clone().expect("a descriptor");
    let (read, full) = full_pipe();
    let (_, closed) = rustix::pipe::pipe().map(|(r, w)| (drop(r), w)).expect("a pipe");
    let mut sets = vec![
        ("none", vec![]),
        ("one", vec![wake_socket()]),
        ("/dev/null", vec![file("/dev/null"), file("/dev/null")]),
        ("a folder", vec![file("/"), wake_socket()]),
        ("a pipe", vec![read, wake_socket()]),
        ("wake sockets", vec![wake_socket(), wake_socket(), wake_socket()]),
        ("memory that may shrink", vec![memory(SEGMENT_LEN, SealFlags::empty()), wake_socket()]),
        ("too little memory", vec![memory(4096, good), wake_socket()]),
        ("no memory", vec![memory(0, good), wake_socket()]),
        ("memory that may not be written", vec![memory(SEGMENT_LEN, good | SealFlags::WRITE), wake_socket()]),
        ("random memory", vec![random, wake_socket()]),
        ("a full pipe as wake socket", vec![own(segment), full]),
        ("a closed pipe as wake socket", vec![own(segment), closed]),
        ("an eventfd as wake socket", vec![own(segment), event_fd()]),
    ];
    if let Some(huge) = memory_file(SEGMENT_LEN, MemfdFlags::HUGETLB, good) {
        sets.push(("huge pages", vec![huge, wake_socket()]));
    }
    sets
}

/// Goal: all kinds of wrong descriptors in a request are refused. Method: a real request with each wrong set;
/// the client is rejected and the program gets a typed error, or no request at all.
#[test]
fn wrong_descriptors_are_refused() {
    let _gate = one_at_a_time();
    let (real, real_fds, _requester) = real_request();
    let mut rng = Rng::new(32);
    let sets = wrong_descriptors(&mut rng, &real_fds[0]);
    let mut victim = Victim::new();
    for (what, fds) in &sets {
        let raw = RawSocket::connect(victim.port());
        raw.send(&real, &borrowed(fds));
        let answer = until("decision", || {
            victim.serve();
            Some(raw.read_answer(Duration::ZERO)).filter(|answer| !matches!(answer, ReadResult::Silence))
        });
        let is_rejected = match &answer {
            ReadResult::Packet(packet, _) => packet[6] == 4,
            ReadResult::End => true,
            ReadResult::Silence => false,
        };
        assert!(is_rejected, "{what}: {answer:?}");
        assert_eq!(victim.accepted, 0, "{what} was accepted");
        victim.check();
    }
    victim.end();
}

/// Connects as a client with a valid segment that has random words in its queue pairs.
fn hostile_client(victim: &mut Victim, real: &[u8], version: u32, rng: &mut Rng) {
    let good = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    let file = memory_file(SEGMENT_LEN, MemfdFlags::empty(), good).expect("memory");
    let token = rng.next_u64();
    write_at(&file, 0, &version.to_le_bytes());
    write_at(&file, 8, &token.to_le_bytes());
    for at in 0..8 {
        write_at(&file, (64 << 10) + at * 64, &rng.bytes(64));
    }
    let index = rng.below(8192);
    let (shift, at) = (rng.below(6) as u32, (32_u64 << 20) + rng.below(100) * 64);
    // Plausible enough to be accepted about half of the time.
    let words = [rng.below(64) as u32, rng.below(2) as u32, shift, 64 * rng.below(3) as u32, shift];
    let mut qp = 1_u64.to_le_bytes().to_vec();
    qp.extend([0_u32; 1].iter().chain(&words).flat_map(|w| w.to_le_bytes()));
    qp.extend(at.to_le_bytes());
    qp.extend((at + 65_536).to_le_bytes());
    qp.extend(rng.bytes(900));
    write_at(&file, QP_AT + index * 1024, &qp);
    write_at(&file, at, &rng.bytes(65_536));
    let mut hello = real.to_vec();
    hello[TOKEN_AT..TOKEN_AT + 8].copy_from_slice(&token.to_le_bytes());
    hello[PROCESS_AT..PROCESS_AT + 8].copy_from_slice(&rng.next_u64().to_le_bytes());
    hello[QP_INDEX_AT..QP_INDEX_AT + 8].copy_from_slice(&(index | 1 << 32).to_le_bytes());
    // Generation 1, ready to send.
    write_at(&file, QP_AT + index * 1024, &(3_u64 | 1 << 32).to_le_bytes());
    let raw = RawSocket::connect(victim.port());
    raw.send(&hello, &[file.as_fd(), wake_socket().as_fd(), wake_socket().as_fd()]);
    let before = victim.accepted + victim.refused;
    until("decision", || {
        victim.serve();
        (victim.accepted + victim.refused > before).then_some(())
    });
    if victim.open.is_empty() {
        return;
    }
    // Kind 3 is `Ready`.
    raw.send(&short(3), &[]);
    until("connection", || {
        let event = victim.hub.cm.poll_event()?;
        assert!(matches!(event, CmEvent::Established { .. }), "{event:?}");
        Some(())
    });
    use_connection(&victim.open[0], rng);
    drop(raw);
    until("end", || {
        victim.serve();
        victim.open.is_empty().then_some(())
    });
}

/// Uses a hostile connection; requests must complete or wait for its end.
fn use_connection(end: &Endpoint, rng: &mut Rng) {
    for id in 0..8 {
        let remote = verbs::RemoteAddr { addr: rng.next_u64(), rkey: rng.below(8 << 16) as u32 };
        let op = match id {
            0 | 4 => SendOp::Send,
            1 => SendOp::Write(remote),
            2 => SendOp::Read(remote),
            3 => SendOp::WriteImm(remote, 1),
            5 => SendOp::SendInv(remote.rkey),
            6 => SendOp::FetchAdd { remote, add: 1 },
            _ => SendOp::CompareSwap { remote, compare: 0, swap: 1 },
        };
        end.post(id, op, MemoryKind::Host, 0, 8);
        end.post_recv(id, MemoryKind::Host, 0, 64);
    }
    while end.send_cq.poll_one().expect("no overrun").is_some() {}
    while end.recv_cq.poll_one().expect("no overrun").is_some() {}
}

/// Goal: a peer with a forged segment harms only its own connection. Method: 150 clients with segments of
/// random queue pairs, regions and rings, half plausible; each accepted one is used for every operation.
#[test]
fn listener_survives_forged_segments() {
    let _gate = one_at_a_time();
    let (real, real_fds, _requester) = real_request();
    // The first word of a segment; with another version, all would be refused.
    let mut version = [0; 4];
    rustix::io::pread(&real_fds[0], &mut version, 0).expect("a segment");
    let mut rng = Rng::new(33);
    let mut victim = Victim::new();
    for round in 0..150 {
        hostile_client(&mut victim, &real, u32::from_le_bytes(version), &mut rng);
        if round % 10 == 0 {
            victim.check();
        }
    }
    println!("150 forged segments: {} accepted, {} refused", victim.accepted, victim.refused);
    assert!(victim.accepted > 10 && victim.refused > 10, "both ways are exercised");
    victim.end();
}

/// Goal: clients that send nothing block others only briefly, and are disconnected. Method: 300 such clients,
/// more than may be half-open; the oldest are closed immediately, the rest after the listener's timeout of 5
/// s.
#[test]
fn silent_clients_are_disconnected() {
    let _gate = one_at_a_time();
    let mut victim = Victim::new();
    let silent: Vec<RawSocket> = (0..300).map(|_| RawSocket::connect(victim.port())).collect();
    let began = Instant::now();
    let closed = |raw: &RawSocket, limit| matches!(raw.read_answer(limit), ReadResult::End);
    until("end of the surplus clients", || {
        let now = silent.iter().filter(|raw| closed(raw, Duration::ZERO)).count();
        (now >= 44).then_some(())
    });
    victim.check();
    let (first, rest) = silent.split_at(44);
    assert!(first.iter().all(|raw| closed(raw, Duration::ZERO)), "the oldest are closed");
    assert!(rest.iter().all(|raw| closed(raw, PATIENCE)), "a silent client is still connected");
    println!("300 silent clients: disconnected within {:?}", began.elapsed());
    drop(silent);
    victim.end();
}

/// Goal: a client may disconnect at every step. Method: fifty each that disconnect after connecting, after
/// half a request, after a request, after the reply, after confirming, after ending.
#[test]
fn clients_may_disconnect_at_every_step() {
    let _gate = one_at_a_time();
    // A complete peer, as far as the victim can see.
    let (real, fds, _requester) = real_request();
    let mut victim = Victim::new();
    for step in 0..6 {
        for _ in 0..50 {
            let raw = RawSocket::connect(victim.port());
            match step {
                0 => {}
                1 => raw.send(&real[..30], &borrowed(&fds)),
                _ => raw.send(&real, &borrowed(&fds)),
            }
            if step >= 3 {
                let before = victim.accepted;
                until("reply", || {
                    victim.serve();
                    (victim.accepted > before).then_some(())
                });
                let reply = raw.read_answer(PATIENCE);
                assert!(matches!(&reply, ReadResult::Packet(p, f) if p[6] == 2 && f.len() >= 2), "{reply:?}");
            }
            if step >= 4 {
                raw.send(&short(3), &[]);
            }
            if step == 5 {
                raw.send(&short(5), &[]);
            }
        }
        victim.check();
    }
    victim.serve();
    victim.end();
}
