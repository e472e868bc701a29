//! Hostile and broken clients: they neither harm the device nor access anything without permission.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use iwarp::crc::Crc;
use iwarp::mpa::{Enhanced, Frame, FrameKind, RtrSet};
use nic_iwarp::{IwarpConfig, Mpa, open};
use verbs::{AsyncEvent, CmEvent, CmFailure, ConnParam, ConnectRequest, Device, Listener, QpState, WcStatus};

use crate::raw::{
    FLAGS_AT, REJECT, UndisturbedConn, connect_ends, connect_raw, connect_with_request, device, frame,
    invalid_frames, read_to_end, reset, send_all,
};
use crate::support::endpoint::{Endpoint, at, deadline};
use crate::support::{PATIENCE, Rng, one_at_a_time, traces, until};

/// A listener under attack, and a connection on the same device that must keep working.
pub(crate) struct Victim {
    pub(crate) device: Device,
    pub(crate) hub: Endpoint,
    pub(crate) listener: Listener,
    pub(crate) undisturbed: UndisturbedConn,
    descriptors: usize,
}

impl Victim {
    pub(crate) fn new(backlog: u32) -> Self {
        let device = device();
        let hub = Endpoint::on(&device, 4096);
        let listener = hub.cm.listen(at(0), backlog).expect("a listener");
        let undisturbed = UndisturbedConn::start(&device);
        undisturbed.check();
        let descriptors = traces::descriptors();
        Self { device, hub, listener, undisturbed, descriptors }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.listener.addr()
    }

    #[track_caller]
    pub(crate) fn request(&self) -> ConnectRequest {
        match self.hub.cm.get_event(deadline()).expect("a request") {
            CmEvent::ConnectRequest(request) => request,
            other => panic!("expected a request, got {other:?}"),
        }
    }

    /// A raw client whose request is accepted with a new endpoint.
    #[track_caller]
    pub(crate) fn accepted(&self, param: &ConnParam) -> (TcpStream, Endpoint) {
        let stream = connect_with_request(self.addr());
        let end = Endpoint::on(&self.device, 4096);
        end.cm.accept(self.request(), &end.qp, param).expect("accepted");
        (stream, end)
    }

    /// Checks that everything is as before, and that a correct client is served.
    #[track_caller]
    pub(crate) fn end(self) {
        assert!(self.hub.cm.poll_event().is_none(), "the attacks caused an event");
        self.undisturbed.check();
        until("return of all descriptors", || (traces::descriptors() <= self.descriptors).then_some(()));
        let (mut near, mut far) = (Endpoint::on(&device(), 4096), Endpoint::on(&self.device, 4096));
        connect_ends(&mut near, &mut far);
        let proper = Endpoint::on(&self.device, 4096);
        proper.cm.connect(&proper.qp, self.addr(), &proper.param()).expect("asked");
        let end = Endpoint::on(&self.device, 4096);
        end.cm.accept(self.request(), &end.qp, &end.param()).expect("accepted");
        let event = proper.cm.get_event(deadline()).expect("an event");
        assert!(matches!(event, CmEvent::Established { .. }), "{event:?}");
        self.undisturbed.end();
    }
}

/// Goal: an invalid request ends its connection immediately, and the program is not notified. Clients that request
/// something unsupported receive a rejection. Method: each flaw of a request, then each way to disconnect.
#[test]
fn invalid_clients_are_disconnected() {
    let _gate = one_at_a_time();
    let victim = Victim::new(64);
    for (what, request) in invalid_frames(FrameKind::Request) {
        let mut client = connect_raw(victim.addr());
        send_all(&mut client, &request);
        let (answer, over) = read_to_end(&mut client, PATIENCE);
        assert!(over, "{what}: was not disconnected");
        if what == "markers" {
            assert_eq!(answer.get(FLAGS_AT).map(|flags| flags & REJECT), Some(REJECT), "{what}: {answer:?}");
        } else {
            assert!(answer.is_empty(), "{what}: {answer:?}");
        }
        victim.undisturbed.check();
    }
    let good = frame(FrameKind::Request).emit();
    for round in 0..100 {
        let mut client = connect_raw(victim.addr());
        // Incomplete, so that the program is not asked.
        send_all(&mut client, &good[..round % good.len()]);
        if round % 2 == 0 { reset(client) } else { drop(client) }
    }
    // More bytes than the request (RFC 5044 section 7.1.2).
    let mut eager = connect_raw(victim.addr());
    send_all(&mut eager, &[good.as_slice(), &[0; 8]].concat());
    assert!(read_to_end(&mut eager, PATIENCE).1, "an eager client was not disconnected");
    drop(eager);
    victim.end();
}

/// Goal: a client that sends nothing, or too slowly, is disconnected after 5 s even if it keeps sending, and delays
/// no other client. Method: silent clients and a client that sends a byte every 200 ms, all together, and a correct
/// client.
#[test]
fn slow_clients_time_out() {
    let _gate = one_at_a_time();
    let victim = Victim::new(64);
    let began = Instant::now();
    let mut silent: Vec<TcpStream> = (0..20).map(|_| connect_raw(victim.addr())).collect();
    let addr = victim.addr();
    let drip = std::thread::spawn(move || {
        let mut client = connect_raw(addr);
        let mut request =
            Frame { private_data: vec![1; 400], ..frame(FrameKind::Request) }.emit().into_iter();
        while !read_to_end(&mut client, Duration::from_millis(200)).1 {
            assert!(began.elapsed() < PATIENCE, "the slow client was not disconnected");
            let _ = client.write_all(&[request.next().expect("more bytes than time")]);
        }
        began.elapsed()
    });
    let (mut near, mut far) = (Endpoint::on(&device(), 64), Endpoint::on(&victim.device, 64));
    connect_ends(&mut near, &mut far);
    assert!(began.elapsed() < Duration::from_secs(4), "a correct client had to wait");
    for client in &mut silent {
        let (answer, over) = read_to_end(client, PATIENCE);
        assert!(over && answer.is_empty(), "a silent client was not disconnected");
    }
    for took in [began.elapsed(), drip.join().expect("no panic")] {
        assert!(took > Duration::from_millis(4500), "disconnected after {took:?}");
    }
    drop((silent, near, far));
    victim.end();
}

/// An FPDU without a CRC.
fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut bytes = (ulpdu.len() as u16).to_be_bytes().to_vec();
    bytes.extend(ulpdu);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    // The CRC field is present whether CRCs are used or not.
    let crc = Crc::compute(&bytes);
    bytes.extend(crc.to_wire());
    bytes
}

/// An untagged segment that is a whole message.
pub(crate) fn untagged(opcode: u8, queue: u32, msn: u32, body: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![0x41, 0x40 | opcode, 0, 0, 0, 0];
    [queue, msn, 0].iter().for_each(|word| ulpdu.extend(word.to_be_bytes()));
    ulpdu.extend(body);
    fpdu(&ulpdu)
}

/// An RDMA Write of `payload`.
pub(crate) fn write(stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![0xc1, 0x40];
    ulpdu.extend(stag.to_be_bytes());
    ulpdu.extend(to.to_be_bytes());
    ulpdu.extend(payload);
    fpdu(&ulpdu)
}

/// An RDMA Read Request.
pub(crate) fn read(msn: u32, stag: u32, from: u64, len: u32) -> Vec<u8> {
    let mut body = 1_u32.to_be_bytes().to_vec();
    body.extend(0_u64.to_be_bytes());
    body.extend(len.to_be_bytes());
    body.extend(stag.to_be_bytes());
    body.extend(from.to_be_bytes());
    untagged(1, 1, msn, &body)
}

/// Checks the reply at the start of `bytes`, and returns the bytes after it.
pub(crate) fn after_reply(bytes: &[u8]) -> &[u8] {
    let len = usize::from(u16::from_be_bytes([bytes[18], bytes[19]]));
    assert_eq!(bytes[FLAGS_AT] & REJECT, 0, "rejected");
    &bytes[20 + len..]
}

/// The bytes to send to an endpoint.
type Attack = Box<dyn Fn(&Endpoint) -> Vec<u8>>;

/// Whether the bytes contain a Terminate.
fn has_terminate(bytes: &[u8]) -> bool {
    // Untagged, last; opcode 7; queue 2 (RFC 5040 section 4).
    bytes.windows(14).any(|w| w[2] == 0x41 && w[3] & 0xf == 7 && w[8..12] == [0, 0, 0, 2])
}

/// Goal: an accepted client that breaks the protocol later loses only its own connection: receives are flushed,
/// nothing is written without permission, and it gets a Terminate where possible. Method: random bytes, accesses out
/// of bounds, with wrong tags and without rights, more concurrent reads than granted, closes and resets inside a
/// message.
#[test]
fn clients_that_break_protocol_lose_only_their_connection() {
    let _gate = one_at_a_time();
    let victim = Victim::new(64);
    let first = write(1, 0, &[]);
    let bad: Vec<(&str, Attack)> = vec![
        ("random bytes", Box::new(|_| Rng::new(9).bytes(200))),
        ("a write before the region", Box::new(|end| write(end.host.rkey(), end.host.addr() - 1, &[1; 8]))),
        ("a write over its end", Box::new(|end| write(end.host.rkey(), end.host.addr() + 4090, &[1; 8]))),
        ("a write that wraps", Box::new(|end| write(end.host.rkey(), u64::MAX - 3, &[1; 8]))),
        ("a guessed tag", Box::new(|end| write(end.host.rkey() ^ 1, end.host.addr(), &[1; 8]))),
        ("a read over the end", Box::new(|end| read(1, end.host.rkey(), end.host.addr() + 1, 4096))),
        ("a send over the receive", Box::new(|_| untagged(3, 0, 1, &[1; 65]))),
        ("an unknown opcode", Box::new(|_| untagged(13, 0, 1, &[1; 8]))),
        ("an unknown queue", Box::new(|_| untagged(3, 7, 1, &[1; 8]))),
    ];
    for (what, attack) in bad {
        let (mut client, end) = victim.accepted(&ConnParam::default());
        end.post_recv(3, verbs::MemoryKind::Host, 0, 64);
        end.host.buf().fill(0);
        send_all(&mut client, &first);
        let event = end.cm.get_event(deadline()).expect("an event");
        assert!(matches!(event, CmEvent::Established { .. }), "{what}: {event:?}");
        send_all(&mut client, &attack(&end));
        end.disconnected();
        let wc = end.received();
        assert_eq!(wc.wr_id, 3);
        assert!(matches!(wc.status, WcStatus::WrFlushErr | WcStatus::LocLenErr), "{what}: {wc:?}");
        assert!(end.host.buf().to_vec(64..4096).expect("inside").iter().all(|&b| b == 0), "{what}: written");
        end.check_canaries();
        let (said, over) = read_to_end(&mut client, PATIENCE);
        assert!(over && has_terminate(after_reply(&said)), "{what}: {said:?}");
        victim.undisturbed.check();
    }
    for resets in [false, true] {
        let (mut client, end) = victim.accepted(&ConnParam::default());
        end.post_recv(3, verbs::MemoryKind::Host, 0, 64);
        send_all(&mut client, &first);
        assert!(matches!(end.cm.get_event(deadline()), Ok(CmEvent::Established { .. })));
        send_all(&mut client, &untagged(3, 0, 1, &[1; 60])[..40]);
        std::thread::sleep(Duration::from_millis(20));
        if resets {
            reset(client)
        } else {
            drop(client)
        }
        end.disconnected();
        assert_eq!((end.received().status, end.qp.state()), (WcStatus::WrFlushErr, QpState::Error));
    }
    let (mut accesses, mut others) = (0, 0);
    while let Some(event) = victim.device.poll_async_event() {
        match event {
            AsyncEvent::QpAccessError { .. } => accesses += 1,
            AsyncEvent::QpFatal { why, .. } if !why.is_empty() => others += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((accesses, others), (5, 4), "the program can find out why");
    victim.end();
}

/// Goal: a client that does not send its first message, or vanishes before it, fails the accepted queue pair within
/// its time-out.
#[test]
fn clients_without_first_message_time_out() {
    let _gate = one_at_a_time();
    let victim = Victim::new(64);
    let param = ConnParam { timeout: host::Span::from_ms(300), ..ConnParam::default() };
    let (silent, end) = victim.accepted(&param);
    let began = Instant::now();
    match end.cm.get_event(deadline()) {
        Ok(CmEvent::ConnectFailed { why: CmFailure::TimedOut, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(began.elapsed() < Duration::from_secs(5) && end.qp.state() == QpState::Error);
    drop((silent, end));
    for resets in [false, true] {
        let (client, end) = victim.accepted(&ConnParam::default());
        if resets {
            reset(client)
        } else {
            drop(client)
        }
        match end.cm.get_event(deadline()) {
            Ok(CmEvent::ConnectFailed { why: CmFailure::PeerGone, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    victim.end();
}

/// Goal: a client with incompatible parameters is rejected when the program accepts, and receives the rejection.
/// Method: it offers only a read as the first message, but will have none outstanding; and revision 2 to a device of
/// revision 1.
#[test]
fn incompatible_clients_are_rejected() {
    let _gate = one_at_a_time();
    let victim = Victim::new(64);
    let only_read = Enhanced { peer_to_peer: true, rtr: RtrSet::READ, ird: 16, ord: 0 };
    let mut client = connect_raw(victim.addr());
    send_all(&mut client, &Frame { enhanced: Some(only_read), ..frame(FrameKind::Request) }.emit());
    let end = Endpoint::on(&victim.device, 64);
    let refused = end.cm.accept(victim.request(), &end.qp, &ConnParam::default());
    assert!(refused.as_ref().is_err_and(|e| e.to_string().contains("ready-to-receive")), "{refused:?}");
    let (answer, over) = read_to_end(&mut client, PATIENCE);
    assert!(over && answer.get(FLAGS_AT).is_some_and(|flags| flags & REJECT != 0), "{answer:?}");
    assert_eq!(end.qp.state(), QpState::Init);
    drop((client, end));
    let old = IwarpConfig { mpa: Mpa::V1, ..IwarpConfig::default() };
    let hub = Endpoint::on(&open(&host::real::host(), &old).expect("a device"), 64);
    let listener = hub.cm.listen(at(0), 4).expect("a listener");
    let (answer, over) = read_to_end(&mut connect_with_request(listener.addr()), PATIENCE);
    assert!(over && answer[17] == 1 && answer[FLAGS_AT] & REJECT != 0, "{answer:?}");
    drop((hub, listener));
    victim.end();
}
