//! Hostile and broken servers: connecting to one reports a specific error within the time-out.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::Span;
use iwarp::mpa::{Enhanced, Frame, FrameKind, RtrSet};
use nic_iwarp::{IwarpConfig, open};
use verbs::{CmEvent, CmFailure, ConnParam, Error, QpState, WcStatus};

use crate::raw::{UndisturbedConn, device, frame, invalid_frames, reset};
use crate::support::endpoint::{Endpoint, at, deadline};
use crate::support::{PATIENCE, Rng, one_at_a_time, traces, until};

/// The time-out of connecting, and how late its event may be on a busy machine.
const TIMEOUT: Duration = Duration::from_millis(800);
const SLACK: Duration = Duration::from_secs(4);

/// What a server does with each connection.
type ServerBehaviour = Arc<dyn Fn(TcpStream) + Send + Sync>;

/// A server that is not a NIC. It stops when dropped.
struct Server {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Server {
    fn start(behaviour: ServerBehaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (addr, stop) = (listener.local_addr().expect("bound"), Arc::new(AtomicBool::new(false)));
        let its_stop = stop.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if its_stop.load(Ordering::Relaxed) {
                    return;
                }
                let (stream, behaviour) = (stream.expect("a connection"), behaviour.clone());
                std::thread::spawn(move || behaviour(stream));
            }
        });
        Self { addr, stop }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the server, which then sees the flag.
        let _ = TcpStream::connect(self.addr);
    }
}

/// Reads the request; the caller does the rest.
fn request(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let mut bytes = vec![0; 20];
    if stream.read_exact(&mut bytes).is_err() {
        return Vec::new();
    }
    let more = usize::from(u16::from_be_bytes([bytes[18], bytes[19]]));
    bytes.resize(20 + more, 0);
    let _ = stream.read_exact(&mut bytes[20..]);
    bytes
}

fn answers(bytes: Vec<u8>) -> ServerBehaviour {
    Arc::new(move |mut stream| {
        request(&mut stream);
        let _ = stream.write_all(&bytes);
        // Wait until the other end closes.
        let _ = stream.read(&mut [0; 64]);
    })
}

/// The event that connecting caused, and how long that took.
fn connect_outcome(end: &Endpoint, addr: SocketAddr) -> (CmEvent, Duration) {
    let began = Instant::now();
    let param = ConnParam { timeout: Span::from_ms(TIMEOUT.as_millis() as u64), ..end.param() };
    end.cm.connect(&end.qp, addr, &param).expect("the answer comes as an event");
    let event = end.cm.get_event(deadline()).expect("an event");
    (event, began.elapsed())
}

#[track_caller]
fn expect_failure(end: &Endpoint, addr: SocketAddr, what: &str) -> CmFailure {
    let (event, took) = connect_outcome(end, addr);
    let CmEvent::ConnectFailed { qp_num, why } = event else { panic!("{what}: {event:?}") };
    assert_eq!((qp_num, end.qp.state()), (end.qp.num(), QpState::Init), "{what}");
    assert!(took < TIMEOUT + SLACK, "{what}: {took:?}");
    why
}

/// A name, a server's behaviour, and a check of the resulting error.
struct Case(&'static str, ServerBehaviour, fn(&CmFailure) -> bool);

fn server_behaviours() -> Vec<Case> {
    let half = || frame(FrameKind::Reply).emit()[..21].to_vec();
    let slow: ServerBehaviour = Arc::new(|mut stream| {
        request(&mut stream);
        for byte in frame(FrameKind::Reply).emit() {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let gone = |why: &CmFailure| *why == CmFailure::PeerGone;
    let late = |why: &CmFailure| *why == CmFailure::TimedOut;
    vec![
        Case("silence", Arc::new(|mut stream| drop(stream.read_to_end(&mut Vec::new()))), late),
        Case("one byte every 100 ms", slow, late),
        Case("half a reply", answers(half()), late),
        Case("the end at once", Arc::new(drop), gone),
        Case("a reset at once", Arc::new(reset), gone),
        Case(
            "the end after the request",
            Arc::new(|mut stream| {
                request(&mut stream);
            }),
            gone,
        ),
        Case(
            "a reset after the request",
            Arc::new(|mut stream| {
                request(&mut stream);
                reset(stream);
            }),
            gone,
        ),
        Case(
            "the end after half a reply",
            Arc::new(move |mut stream| {
                request(&mut stream);
                let _ = stream.write_all(&half());
            }),
            gone,
        ),
        Case(
            "a reset after half a reply",
            Arc::new(move |mut stream| {
                request(&mut stream);
                let _ = stream.write_all(&half());
                std::thread::sleep(Duration::from_millis(20));
                reset(stream);
            }),
            gone,
        ),
    ]
}

/// Words of the error message for each flaw of a reply.
fn expected_error_words(what: &str) -> &'static str {
    match what {
        "revision 0" => "revision 0",
        "revision 3" => "revision 3",
        "markers" => "markers",
        "no words of revision 2" => "lacks the four bytes",
        "513 bytes of private data" => "513 bytes of private data",
        _ => "no MPA frame; is the port right?",
    }
}

/// Goal: whatever the server does, connecting causes one typed event within the time-out and harms no other
/// connection; the queue pair can be reused. Method: one queue pair connects to each server, next to a connection
/// with traffic, then to a correct peer.
#[test]
fn connecting_to_any_server_gives_one_event() {
    let _gate = one_at_a_time();
    let device = device();
    let undisturbed = UndisturbedConn::start(&device);
    let mut end = Endpoint::on(&device, 4096);
    let before = traces::descriptors();
    for Case(what, behaviour, expected) in server_behaviours() {
        let server = Server::start(behaviour);
        let why = expect_failure(&end, server.addr, what);
        assert!(expected(&why), "{what}: {why:?}");
        undisturbed.check();
    }
    for (what, reply) in invalid_frames(FrameKind::Reply) {
        let server = Server::start(answers(reply));
        let why = expect_failure(&end, server.addr, what);
        let CmFailure::Protocol(said) = &why else { panic!("{what}: {why:?}") };
        assert!(said.contains(expected_error_words(what)), "{what}: {said}");
        undisturbed.check();
    }
    assert!(end.cm.poll_event().is_none(), "one event each");
    until("return of all descriptors", || (traces::descriptors() <= before).then_some(()));
    let mut proper = Endpoint::on(&device, 4096);
    crate::raw::connect_ends(&mut end, &mut proper);
    undisturbed.end();
}

/// Goal: a rejection delivers its private data, also in revision 1; a peer that only supports revision 1 gets
/// revision 1.
#[test]
fn rejection_and_revision_1_servers_are_reported() {
    let _gate = one_at_a_time();
    let end = Endpoint::on(&device(), 4096);
    let nothing = Some(Enhanced { peer_to_peer: false, rtr: RtrSet::empty(), ird: 0, ord: 0 });
    let no = Frame {
        reject: true,
        private_data: b"not you".to_vec(),
        enhanced: nothing,
        ..frame(FrameKind::Reply)
    };
    let old_no = Frame { enhanced: None, revision: 1, ..no.clone() };
    for reply in [no, old_no] {
        let server = Server::start(answers(reply.emit()));
        let (event, _) = connect_outcome(&end, server.addr);
        let CmEvent::Rejected { private_data, .. } = event else { panic!("{reply:?}: {event:?}") };
        assert_eq!((private_data.as_slice(), end.qp.state()), (&b"not you"[..], QpState::Init));
    }
    // A peer that does not know revision 2 replies in revision 1 (RFC 6581 section 10).
    let old = Server::start(Arc::new(|mut stream: TcpStream| {
        let version_1 = request(&mut stream).get(17) == Some(&1);
        let answer = Frame { enhanced: None, revision: 1, reject: !version_1, ..frame(FrameKind::Reply) };
        let _ = stream.write_all(&answer.emit());
        let _ = stream.read_to_end(&mut Vec::new());
    }));
    let (event, _) = connect_outcome(&end, old.addr);
    assert!(matches!(event, CmEvent::Established { .. }), "{event:?}");
}

/// Goal: a connection that ends during the handshake does not cause a retry in revision 1. Method: a server that
/// closes, or resets, on revision 2, and would accept revision 1.
#[test]
fn broken_handshake_causes_no_retry_in_revision_1() {
    let _gate = one_at_a_time();
    for resets in [false, true] {
        let end = Endpoint::on(&device(), 4096);
        let again = Arc::new(AtomicBool::new(false));
        let seen = again.clone();
        let server = Server::start(Arc::new(move |mut stream: TcpStream| {
            if request(&mut stream).get(17) == Some(&1) {
                seen.store(true, Ordering::Relaxed);
                let yes = Frame { enhanced: None, revision: 1, ..frame(FrameKind::Reply) };
                let _ = stream.write_all(&yes.emit());
            } else if resets {
                reset(stream);
            }
        }));
        let (event, _) = connect_outcome(&end, server.addr);
        let gone = matches!(event, CmEvent::ConnectFailed { why: CmFailure::PeerGone, .. });
        assert!(gone && !again.load(Ordering::Relaxed), "{event:?}");
    }
}

/// Goal: a peer that agrees and then breaks the protocol, or the connection inside a message, ends only this
/// connection: receives are flushed, and there is one `Disconnected`.
#[test]
fn servers_that_break_protocol_end_only_their_connection() {
    let _gate = one_at_a_time();
    let device = device();
    let undisturbed = UndisturbedConn::start(&device);
    // A send of 1000 bytes that stops after 14 bytes: length, control, and part of the header.
    let mut part = vec![0x03, 0xfa, 0x41, 0x43];
    part.extend([0; 10]);
    for (what, more, resets) in [
        ("random bytes", Rng::new(8).bytes(300), false),
        ("an end", part.clone(), false),
        ("a reset", part, true),
    ] {
        let reply = [frame(FrameKind::Reply).emit(), more].concat();
        let server = Server::start(Arc::new(move |mut stream| {
            request(&mut stream);
            let _ = stream.write_all(&reply);
            std::thread::sleep(Duration::from_millis(50));
            if resets {
                reset(stream);
            }
        }));
        let end = Endpoint::on(&device, 4096);
        end.post_recv(7, verbs::MemoryKind::Host, 0, 64);
        let (event, _) = connect_outcome(&end, server.addr);
        assert!(matches!(event, CmEvent::Established { .. }), "{what}: {event:?}");
        end.disconnected();
        let wc = end.received();
        assert_eq!(
            (wc.wr_id, wc.status, end.qp.state()),
            (7, WcStatus::WrFlushErr, QpState::Error),
            "{what}"
        );
        end.check_canaries();
        undisturbed.check();
    }
    undisturbed.end();
}

/// Goal: an unusable address is reported immediately, with the reason and a remedy.
#[test]
fn unusable_addresses_are_reported() {
    let _gate = one_at_a_time();
    let side =
        |ip: &str| IwarpConfig { bind: Some(ip.parse().expect("an address")), ..IwarpConfig::default() };
    let said = |result: Result<verbs::Device, Error>| result.expect_err("an unusable address").to_string();
    let absent = said(open(&host::real::host(), &side("203.0.113.1")));
    assert!(absent.contains("203.0.113.1") && absent.contains("this host has no such address"), "{absent}");
    let end = Endpoint::on(&device(), 4096);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let refused = expect_failure(&end, taken, "nobody");
    assert_eq!(refused, CmFailure::Refused(taken));
    let busy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = busy.local_addr().expect("bound").port();
    for (addr, hint) in
        [(at(port), "the port is taken"), ("203.0.113.1:0".parse().expect("an address"), "no such address")]
    {
        let error = end.cm.listen(addr, 1).expect_err(hint);
        assert!(matches!(error, Error::Address { .. }) && error.to_string().contains(hint), "{error}");
    }
    let bound = Endpoint::on(&open(&host::real::host(), &side("127.0.0.2")).expect("a side"), 64);
    let elsewhere = bound.cm.listen(at(0), 1).expect_err("another address").to_string();
    assert!(elsewhere.contains("127.0.0.2"), "{elsewhere}");
    let v6 = bound.cm.connect(&bound.qp, "[::1]:1".parse().expect("an address"), &ConnParam::default());
    assert!(matches!(v6, Err(Error::Address { .. })), "{v6:?}");
}
