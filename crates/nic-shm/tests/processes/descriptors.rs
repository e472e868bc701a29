//! Hostile descriptors: the device makes no call on one, not even close, that could block on the sender.

use std::io::{ErrorKind, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nic_shm::CopyPath;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType, connect,
    sendmsg, socket, sockopt,
};
use verbs::{MemoryKind, SendOp};

use crate::support::agent::Agent;
use crate::support::endpoint::Endpoint;
use crate::support::one_at_a_time;

/// A socket whose last close takes an hour: it has unsent data, and lingers.
fn lingering() -> (TcpStream, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    stream.set_nonblocking(true).expect("a flag");
    loop {
        match stream.write(&[0; 65_536]) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) => panic!("{e}"),
        }
    }
    sockopt::set_socket_linger(&stream, Some(Duration::from_secs(3600))).expect("lingers");
    (stream, listener)
}

fn send_with(port: u16, packet: &[u8], fds: &[BorrowedFd<'_>]) {
    let uid = rustix::process::geteuid().as_raw();
    let name =
        SocketAddrUnix::new_abstract_name(format!("nicety-shm/{uid}/{port}").as_bytes()).expect("a name");
    let raw = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    connect(&raw, &name).expect("connected");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
    sendmsg(&raw, &[IoSlice::new(packet)], &mut ancillary, SendFlags::NOSIGNAL).expect("sent");
}

/// Sends `packet` with a socket whose last close is done by the device, and takes an hour. Dropping the
/// returned listener ends that. If the device closes it first, so that ours is the last close, tries again
/// with another socket.
fn send_lingering_socket(port: u16, packet: &[u8]) -> TcpListener {
    loop {
        let (stream, far) = lingering();
        send_with(port, packet, &[stream.as_fd()]);
        let ours = std::thread::spawn(move || drop(stream));
        let began = Instant::now();
        while !ours.is_finished() && began.elapsed() < Duration::from_secs(2) {
            std::thread::yield_now();
        }
        if ours.is_finished() {
            return far;
        }
    }
}

/// Number of threads of this process that close descriptors for the device.
fn closing_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let name =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.map(name).filter(|name| name.trim() == "nicety-close").count()
}

/// Number of descriptors of this process, without those being closed.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

/// Goal: a descriptor whose close blocks does not block the device. Method: a client sends one with an
/// invalid packet; afterwards a proper peer connects and works.
#[test]
fn blocking_close_of_a_descriptor_blocks_nobody() {
    let _gate = one_at_a_time();
    let mut end = Endpoint::new(CopyPath::Auto, 4096);
    let listener = end.listen();
    let before = descriptors();
    // Kept until the end: dropping them ends the blocked close.
    let mut kept = Vec::new();
    for packet in [&b"nonsense"[..], &[b'n'; 48]] {
        kept.push(send_lingering_socket(listener.addr().port(), packet));
    }
    // A child that is forked while the device still holds one would inherit it, and block in execve(2) when
    // closing it.
    let began = Instant::now();
    while closing_threads() < kept.len() || descriptors() > before + kept.len() {
        assert!(began.elapsed() < Duration::from_secs(60), "the device keeps the descriptors");
        std::thread::yield_now();
    }
    let agent = Agent::start(&mut end, CopyPath::Auto, 4096);
    end.post(1, SendOp::Write(end.peer.host), MemoryKind::Host, 0, 64);
    end.sent_ok(1);
    agent.end();
}
