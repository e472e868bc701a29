//! Raw sockets that send valid or invalid MPA, and a connection that must keep working next to them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iwarp::mpa::{Enhanced, Frame, FrameKind, RtrSet};
use nic_iwarp::{IwarpConfig, open};
use verbs::{CmEvent, Device, MemoryKind, SendOp};

use crate::support::endpoint::{Endpoint, deadline};
use crate::support::{PATIENCE, Rng};

/// A device with the default configuration.
#[track_caller]
pub(crate) fn device() -> Device {
    open(&host::real::host(), &IwarpConfig::default()).expect("an iWARP device")
}

/// A valid frame of revision 2.
pub(crate) fn frame(kind: FrameKind) -> Frame {
    let rtr = if kind == FrameKind::Request { RtrSet::all() } else { RtrSet::WRITE };
    Frame {
        kind,
        markers: false,
        crc: false,
        reject: false,
        revision: 2,
        enhanced: Some(Enhanced { peer_to_peer: true, rtr, ird: 16, ord: 16 }),
        private_data: Vec::new(),
    }
}

/// Positions of the flags and the length in a frame.
pub(crate) const FLAGS_AT: usize = 16;
pub(crate) const LENGTH_AT: usize = 18;
/// The flag for the presence of the revision 2 words.
pub(crate) const ENHANCED: u8 = 0x10;
/// The flag of a rejection.
pub(crate) const REJECT: u8 = 0x20;

/// Invalid frames, each with a description.
pub(crate) fn invalid_frames(kind: FrameKind) -> Vec<(&'static str, Vec<u8>)> {
    let good = frame(kind).emit();
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let other = match kind {
        FrameKind::Request => FrameKind::Reply,
        FrameKind::Reply => FrameKind::Request,
    };
    let mut bare = Frame { enhanced: None, ..frame(kind) }.emit();
    bare[FLAGS_AT] |= ENHANCED;
    let mut long = Frame { private_data: vec![7; 508], ..frame(kind) }.emit();
    long[LENGTH_AT + 1] += 1;
    long.push(7);
    vec![
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec()),
        ("random bytes", Rng::new(77).bytes(400)),
        ("the last letter of the key", changed(15, b'f')),
        ("the other side's key", frame(other).emit()),
        ("revision 0", changed(17, 0)),
        ("revision 3", changed(17, 3)),
        ("markers", Frame { markers: true, ..frame(kind) }.emit()),
        ("no words of revision 2", bare),
        ("513 bytes of private data", long),
    ]
}

/// Reads until the end, a reset, or the time limit; returns the bytes, and whether the stream ended in order.
pub(crate) fn read_to_end(stream: &mut TcpStream, limit: Duration) -> (Vec<u8>, bool) {
    let (began, mut all, mut bytes) = (Instant::now(), Vec::new(), [0; 4096]);
    while let Some(left) = limit.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
        stream.set_read_timeout(Some(left)).expect("a time-out");
        match stream.read(&mut bytes) {
            Ok(0) => return (all, true),
            Ok(n) => all.extend(&bytes[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return (all, true),
        }
    }
    (all, false)
}

/// Closes a connection such that the peer gets a reset.
pub(crate) fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("an option");
}

/// A raw client connection. The peer may already have closed it when the client sends.
#[track_caller]
pub(crate) fn connect_raw(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("a listener");
    stream.set_nodelay(true).expect("an option");
    stream
}

/// Sends as much as possible.
pub(crate) fn send_all(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

/// A raw client that has sent a valid request.
#[track_caller]
pub(crate) fn connect_with_request(addr: SocketAddr) -> TcpStream {
    let mut stream = connect_raw(addr);
    send_all(&mut stream, &frame(FrameKind::Request).emit());
    stream
}

/// A connection with traffic, which nothing else in the test may disturb.
pub(crate) struct UndisturbedConn {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// Connects two endpoints.
#[track_caller]
pub(crate) fn connect_ends(near: &mut Endpoint, far: &mut Endpoint) {
    let listener = far.listen();
    near.cm.connect(&near.qp, listener.addr(), &near.param()).expect("connecting");
    far.accept();
    match near.cm.get_event(deadline()) {
        Ok(CmEvent::Established { private_data, .. }) => near.set_peer_regions(&private_data),
        other => panic!("expected Established, got {other:?}"),
    }
}

impl UndisturbedConn {
    /// Starts traffic between this device and another one of this process.
    #[track_caller]
    pub(crate) fn start(device: &Device) -> Self {
        let (mut far, mut near) = (Endpoint::on(device, 4096), Endpoint::on(&self::device(), 4096));
        connect_ends(&mut near, &mut far);
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (its_stop, its_rounds) = (stop.clone(), rounds.clone());
        let body = move || {
            let mut rng = Rng::new(5);
            while !its_stop.load(Ordering::Relaxed) {
                let bytes = rng.bytes(4096);
                near.host.buf().write(0, &bytes).expect("fits");
                near.post(1, SendOp::Write(near.peer.host), MemoryKind::Host, 0, 4096);
                near.sent_ok(1);
                assert_eq!(far.host.buf().to_vec(0..4096).expect("inside"), bytes, "written");
                near.post(2, SendOp::Read(near.peer.host), MemoryKind::Nic, 0, 4096);
                near.sent_ok(2);
                assert_eq!(near.nic.buf().to_vec(0..4096).expect("inside"), bytes, "read back");
                its_rounds.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
            far.check_canaries();
            near.check_canaries();
        };
        Self { stop, rounds, thread: Some(std::thread::spawn(body)) }
    }

    /// Checks that the traffic continues.
    #[track_caller]
    pub(crate) fn check(&self) {
        let (before, began) = (self.rounds.load(Ordering::Relaxed), Instant::now());
        while self.rounds.load(Ordering::Relaxed) < before + 2 {
            assert!(began.elapsed() < PATIENCE, "the undisturbed connection makes no progress");
            let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!ended, "the undisturbed connection has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Checks that the traffic has continued all the time, and stops it.
    #[track_caller]
    pub(crate) fn end(mut self) {
        self.check();
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("a thread").join().expect("the thread of the undisturbed connection");
    }
}

impl Drop for UndisturbedConn {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
