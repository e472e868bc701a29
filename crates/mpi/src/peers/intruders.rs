//! Tests: attackers that connect to a process, or listen in its place, and know everything but the key. On real devices one thread
//! drives all participants; in virtual time each is a rank.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use auth::{Attempt, Challenge, Key, OFFER, REQUEST, Refusal};
use host::world::{self, World};
use host::{Host, Span};
use transport::{NOT_YET, Offer};
use verbs::{Cm, CmEvent, ConnParam, Cq, Device, Listener, Qp, QpInit, RemoteAddr};

use crate::bootstrap::{Bootstrap as _, LocalKvs};
use crate::dpm::remote_jobs::Identity;
use crate::error::Class;
use crate::memory::Buffer;
use crate::p2p::calls::PeerTag;
use crate::p2p::wire::{MatchKey, Message};
use crate::peers::address::Address;
use crate::peers::connection::Payload;
use crate::peers::nic::Port;
use crate::peers::trust::PROTOCOL;
use crate::process::{Config, Process};
use crate::tool::Gauge;

/// A program without the key that uses a device of the same kind.
struct Attacker {
    cm: Cm,
    cq: Cq,
    device: Device,
}

impl Attacker {
    fn new(device: Device) -> Self {
        Self {
            cm: device.create_cm().expect("a channel"),
            cq: device.create_cq(64).expect("a queue"),
            device,
        }
    }

    fn qp(&self) -> Qp {
        let pd = self.device.alloc_pd().expect("a domain");
        pd.create_qp(&QpInit::new(&self.cq)).expect("a queue pair")
    }

    /// Connects with some private data; returns the private data of the rejection. `wait` lets the other participants run.
    fn is_rejected(&self, addr: SocketAddr, said: &[u8], mut wait: impl FnMut()) -> Vec<u8> {
        let qp = self.qp();
        self.cm.connect(&qp, addr, &ConnParam::with_private_data(said)).expect("connect");
        loop {
            match self.cm.poll_event() {
                Some(CmEvent::Rejected { private_data, .. }) => return private_data,
                Some(other) => panic!("{said:?} led to {other:?}"),
                None => wait(),
            }
        }
    }
}

fn name(process: &Process, rank: u32) -> auth::Identity {
    let identity = process.core().with(|engine| engine.transport.strangers().identity(rank));
    auth::Identity(identity.bytes())
}

fn address(process: &Process, rank: u32) -> Address {
    process.core().with(|engine| engine.transport.address_of(rank)).expect("a note")
}

/// The first connect request of a process to another, as an eavesdropper records it.
fn recorded(from: &Process, to: u32) -> [u8; REQUEST] {
    let rank = from.bootstrap().rank();
    let key = from.core().with(|engine| engine.transport.shared_with(to)).expect("a key");
    let me = name(from, rank);
    let nonce = from.core().with(|engine| engine.transport.next_nonce());
    let challenge = address(from, to).seed.challenge(PROTOCOL, me, 0);
    let offer = Offer { at: RemoteAddr { addr: 1 << 40, rkey: 5 }, len: 4096 };
    Attempt::new(PROTOCOL, key, (me, name(from, to)), (challenge, nonce), offer.bytes()).request()
}

/// The requests that attackers try before the process at rank 1 has connected to rank 0. They know both processes and all traffic,
/// but no key.
fn tries(victim: &Process, honest: &Process) -> Vec<(&'static str, Vec<u8>)> {
    let (rank0, rank1) = (name(victim, 0), name(victim, 1));
    let guessed = Key::from_bytes([7; 16]);
    let nonce = honest.core().with(|engine| engine.transport.next_nonce());
    let seed = address(victim, 0).seed;
    let with = |from: auth::Identity, to, key: &Key| {
        let challenge = seed.challenge(PROTOCOL, from, 0);
        Attempt::new(PROTOCOL, key.clone(), (from, to), (challenge, nonce), [0; OFFER]).request().to_vec()
    };
    let foreign = auth::Identity(Identity { job: 5, rank: 1 }.bytes());
    let beyond = Identity { rank: 2, ..Identity::parse(&rank1.0).expect("an identity") };
    let request = recorded(honest, 0);
    let mut changed = request;
    changed[REQUEST - 1] ^= 1;
    let mut renamed = request;
    renamed[4..16].copy_from_slice(&foreign.0);
    let key = honest.core().with(|engine| engine.transport.shared_with(0)).expect("a key");
    let reflected = {
        // The victim's own request to rank 1.
        let challenge = address(victim, 1).seed.challenge(PROTOCOL, rank0, 0);
        Attempt::new(PROTOCOL, key.clone(), (rank0, rank1), (challenge, nonce), [0; OFFER]).request()
    };
    let mut as_peer = reflected;
    as_peer[4..16].copy_from_slice(&rank1.0);
    vec![
        ("nothing", Vec::new()),
        ("zeros", vec![0; REQUEST]),
        ("magic alone", PROTOCOL.magic.to_vec()),
        ("a request cut short", request[..REQUEST - 1].to_vec()),
        ("a foreign job", with(foreign, rank0, &guessed)),
        ("the guessed number of the job", with(rank1, rank0, &guessed)),
        ("a rank that the job does not have", with(auth::Identity(beyond.bytes()), rank0, &key)),
        ("a request for another process", recorded_for(honest, rank0)),
        ("another offer", changed.to_vec()),
        ("another name", renamed.to_vec()),
        ("the victim's own request", reflected.to_vec()),
        ("the victim's own request in rank 1's name", as_peer.to_vec()),
    ]
}

/// A request of rank 1 that is addressed to itself.
fn recorded_for(honest: &Process, victim: auth::Identity) -> Vec<u8> {
    let rank1 = name(honest, 1);
    let key = honest.core().with(|engine| engine.transport.shared_with(0)).expect("a key");
    let nonce = honest.core().with(|engine| engine.transport.next_nonce());
    let challenge = address(honest, 0).seed.challenge(PROTOCOL, rank1, 0);
    assert_ne!(rank1, victim);
    Attempt::new(PROTOCOL, key, (rank1, rank1), (challenge, nonce), [0; OFFER]).request().to_vec()
}

/// Checks that unproved requests in the victim's own protocol are rejected with a challenge, and other bytes without one.
fn check_refusal(what: &str, said: &[u8], refusal: &[u8]) {
    let is_request = auth::Request::parse(said, PROTOCOL).is_some();
    assert_eq!(Refusal::parse(refusal, PROTOCOL).is_some(), is_request, "{what}: {refusal:?}");
    assert_eq!(refusal.is_empty(), !is_request, "{what}");
}

fn start(host: &Host, kvs: &Arc<LocalKvs>, rank: u32, device: Device) -> Process {
    let address = device.attr().port_addrs.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let ports = vec![Port { device, address, fabric: "fabric".into() }];
    let config = Config { ports, node: "here".into(), ..Config::default() };
    Process::start(host, &config, kvs.bootstrap(rank, host)).expect("a job")
}

/// Two processes on a real device that have not connected.
fn pair(device: &str) -> [Process; 2] {
    let (host, kvs) = (host::real::host(), LocalKvs::new(2));
    let open = |rank| start(&host, &kvs, rank, fabric::open(device, &host).expect("a device"));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| open(1));
        let first = open(0);
        [first, other.join().expect("started")]
    })
}

fn send_short(from: &Process, to: u32) {
    let message = Message::Eager { match_key: MatchKey { context: 77, tag: 1 }, answer: None };
    let sent = from.core().with(|e| e.transport.send(to, message, Payload::Own(b"hi".to_vec()), None));
    sent.expect("begun");
}

fn is_open(process: &Process, to: u32) -> bool {
    process.core().with(|engine| engine.transport.is_open(to))
}

/// Goal: a process rejects an attacker that knows all but the key, keeps its state, and serves the honest peer afterwards. A replay
/// of the peer's own request is rejected, too.
fn attackers_are_rejected(device: &str) {
    let both = pair(device);
    let attacker = Attacker::new(fabric::open(device, &host::real::host()).expect("a device"));
    let addr = address(&both[1], 0).ports[0].0;
    let wait = || both.iter().for_each(Process::progress);
    let tries = tries(&both[0], &both[1]);
    for (what, said) in &tries {
        check_refusal(what, said, &attacker.is_rejected(addr, said, wait));
    }
    assert_eq!(both[0].gauge(Gauge::ConnectionsRefused), tries.len() as u64);
    assert_eq!(both[0].connected(), []);
    let request = recorded(&both[1], 0);
    send_short(&both[1], 0);
    let patience = std::time::Instant::now();
    while !(is_open(&both[0], 1) && is_open(&both[1], 0)) {
        wait();
        assert!(patience.elapsed().as_secs() < 60, "the honest peer is not served");
    }
    let replayed = attacker.is_rejected(addr, &request, wait);
    assert!(Refusal::parse(&replayed, PROTOCOL).is_some(), "replayed: {replayed:?}");
    assert_eq!(
        (both[0].connected(), both[0].gauge(Gauge::ConnectionsRefused)),
        (vec![(1, false)], tries.len() as u64 + 1)
    );
}

#[test]
fn attackers_are_rejected_on_iwarp() {
    attackers_are_rejected("iwarp");
}

#[test]
fn attackers_are_rejected_on_shm() {
    attackers_are_rejected("shm");
}

/// The replies of a program that listens in a process's place.
#[derive(Clone, Copy, Debug)]
enum FakeReply {
    /// A reply without a proof.
    Accepts,
    /// The request's own proof as the reply.
    Reflects,
    /// Rejects each request with a new challenge.
    Challenges,
    /// Rejects the request with the challenge that it has used already.
    Refuses,
    /// Claims a few times that it has just started, and then rejects as above.
    Starts,
}

/// An attacker that listens, and answers one request after the other until `is_complete`.
fn serve_fake_replies(
    attacker: &Attacker,
    how: FakeReply,
    own: Challenge,
    mut wait: impl FnMut(),
    is_complete: impl Fn() -> bool,
) {
    let (mut qps, mut asked, patience) = (Vec::new(), 0_u8, std::time::Instant::now());
    while !is_complete() {
        assert!(patience.elapsed().as_secs() < 60, "the attacker is not given up");
        let Some(CmEvent::ConnectRequest(request)) = attacker.cm.poll_event() else {
            wait();
            continue;
        };
        asked += 1;
        assert!(asked < 20, "it retries forever");
        let said = request.private_data.clone();
        let challenge = |byte| {
            auth::Gate::new(
                PROTOCOL,
                auth::Identity([byte; 12]),
                auth::Seed::from_key(Key::from_bytes([byte; 16])),
            )
        };
        match how {
            FakeReply::Accepts | FakeReply::Reflects => {
                let mut reply = vec![0; auth::REPLY];
                reply[..4].copy_from_slice(&PROTOCOL.magic);
                if let FakeReply::Reflects = how {
                    reply[4..20].copy_from_slice(&said[24..40]);
                    reply[20..].copy_from_slice(&said[40..56]);
                }
                let qp = attacker.qp();
                attacker.cm.accept(request, &qp, &ConnParam::with_private_data(reply)).expect("accept");
                qps.push(qp);
            }
            FakeReply::Challenges => {
                let refusal =
                    challenge(asked).check(&said, |_| None).expect_err("no key").expect("a challenge");
                request.reject(&refusal.bytes(PROTOCOL)).expect("reject");
            }
            FakeReply::Starts if asked < 4 => request.reject(NOT_YET).expect("reject"),
            FakeReply::Refuses | FakeReply::Starts => {
                request.reject(&Refusal(own).bytes(PROTOCOL)).expect("reject")
            }
        }
    }
}

/// Goal: a process that reaches a program without the key in place of its peer gives the peer up with a clear error, and sends it
/// nothing. Method: the peer's note names the attacker's listener.
fn connect_to_a_listener_without_the_key_fails(device: &str) {
    for how in [
        FakeReply::Accepts,
        FakeReply::Reflects,
        FakeReply::Challenges,
        FakeReply::Refuses,
        FakeReply::Starts,
    ] {
        let host = host::real::host();
        let kvs = LocalKvs::new(2);
        let open = || fabric::open(device, &host).expect("a device");
        let process = std::thread::scope(|scope| {
            let other = scope.spawn(|| drop(start(&host, &kvs, 1, open())));
            let process = start(&host, &kvs, 0, open());
            other.join().expect("started");
            process
        });
        let attacker = Attacker::new(open());
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let listener: Listener = attacker.cm.listen(any, 4).expect("a listener");
        let mut note = address(&process, 1);
        note.ports[0].0 = listener.addr();
        kvs.bootstrap(1, &host).put("mpi-1", &note.note().expect("plain")).expect("put");
        let own = note.seed.challenge(PROTOCOL, name(&process, 0), 0);
        send_short(&process, 1);
        let lost = || process.core().with(|engine| engine.transport.lost(1).cloned());
        serve_fake_replies(&attacker, how, own, || process.progress(), || lost().is_some());
        let error = lost().expect("it was given up");
        assert_eq!(error.class, Class::PROC_ABORTED);
        let (where_to, what) = (listener.addr().to_string(), "does not know the key of this job");
        assert!(error.text.contains(&where_to) && error.text.contains(what), "{how:?}: {error}");
    }
}

#[test]
fn connect_to_a_listener_without_the_key_fails_on_iwarp() {
    connect_to_a_listener_without_the_key_fails("iwarp");
}

#[test]
fn connect_to_a_listener_without_the_key_fails_on_shm() {
    connect_to_a_listener_without_the_key_fails("shm");
}

/// Passed from rank 1 to the attacker: the address of rank 0, the private data of the attempts, and a request for the replay.
type Plan = Arc<Mutex<Option<(SocketAddr, Vec<(&'static str, Vec<u8>)>, [u8; REQUEST])>>>;

const CARD: &str = "model:mt23108-vapi";

fn pause(host: &Host, span: Span) {
    host.wait("a pause", &host::EventCount::new(), host.after(span), || None::<()>);
}

/// The honest peer: shows the attacker all that it could overhear, and then exchanges messages with rank 0.
fn honest(process: &Process, plan: &Plan) {
    let victim = address(process, 0).ports[0].0;
    *plan.lock().expect("no panic") = Some((victim, tries(process, process), recorded(process, 0)));
    let host = process.host();
    pause(host, Span::from_ms(200));
    let to = PeerTag { rank: 0, tag: 1 };
    for _ in 0..2 {
        let byte = Buffer::from_bytes(&[1]).expect("memory");
        process.world().send(crate::p2p::engine::Mode::Standard, &byte, to).expect("sent");
        pause(host, Span::from_ms(200));
    }
}

/// Tries every request in the first 200 ms, and replays one in the next. Each try starts at a random time.
fn attack(host: &Host, plan: &Plan, seed: u64) {
    let mut rng = host::Rng::new(seed);
    pause(host, Span::from_ms(10));
    let (victim, mut tries, request) = plan.lock().expect("no panic").take().expect("rank 1 came first");
    rng.shuffle(&mut tries);
    let attacker = Attacker::new(fabric::open(CARD, host).expect("a card"));
    let wait = || pause(host, Span::from_us(5));
    for (what, said) in &tries {
        pause(host, Span::from_us(rng.below(1000)));
        check_refusal(what, said, &attacker.is_rejected(victim, said, wait));
    }
    pause(host, Span::from_ms(200));
    assert!(Refusal::parse(&attacker.is_rejected(victim, &request, wait), PROTOCOL).is_some(), "replayed");
}

/// Runs a world with a job of two and an attacker; returns its trace.
fn world(seed: u64) -> u64 {
    let mut world = World::new(world::Config { seed, stack: 1 << 20, ..world::Config::default() });
    let (kvs, plan) = (LocalKvs::new(2), Plan::default());
    let refused = Arc::new(Mutex::new((0, Vec::new())));
    for rank in 0..2 {
        let node = world.add_node("node");
        let (host, kvs, plan, refused) = (node.host(), kvs.clone(), plan.clone(), refused.clone());
        let body = move || {
            let process = start(&host, &kvs, rank, fabric::open(CARD, &host).expect("a card"));
            if rank == 1 {
                return honest(&process, &plan);
            }
            let from = PeerTag { rank: 1, tag: 1 };
            for _ in 0..2 {
                let byte = Buffer::from_bytes(&[0]).expect("memory");
                assert_eq!(process.world().receive(byte, from).expect("valid").bytes, 1);
            }
            *refused.lock().expect("no panic") =
                (process.gauge(Gauge::ConnectionsRefused), process.connected());
        };
        world.spawn(&format!("rank-{rank}"), &[&node], body).expect("a fiber");
    }
    let node = world.add_node("node");
    let host = node.host();
    world.spawn("attacker", &[&node], move || attack(&host, &plan, seed)).expect("a fiber");
    let ended = world.run().unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    let (count, connected) = refused.lock().expect("no panic").clone();
    assert_eq!((count, connected), (13, vec![(1, false)]), "seed {seed}");
    ended.trace
}

/// Goal: the same as on real devices, for any timing; and keys that derive from the seed make equal worlds.
#[test]
fn attackers_are_rejected_in_virtual_time() {
    for seed in 1..=20 {
        let trace = world(seed);
        if seed % 5 == 0 {
            assert_eq!(trace, world(seed), "seed {seed}: another world");
        }
    }
}
