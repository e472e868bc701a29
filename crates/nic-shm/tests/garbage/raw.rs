//! Raw sockets that may violate the connection protocol; and descriptors to send over them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind, connect, listen,
    recvmsg, sendmsg, socket_with, socketpair,
};

use crate::support::PATIENCE;
use crate::support::device;
use crate::support::endpoint::{Endpoint, at};

/// Size of a segment with its tables, its heap and a little NIC memory.
pub(crate) const SEGMENT_LEN: u64 = (1 << 30) + (1 << 20);
/// Offset of the queue pairs in a segment.
pub(crate) const QP_AT: u64 = 8 << 20;
/// Offsets of the token, the process's token and the queue pair in a hello.
pub(crate) const TOKEN_AT: usize = 8;
pub(crate) const PROCESS_AT: usize = 16;
pub(crate) const QP_INDEX_AT: usize = 32;

/// The result of reading a socket.
#[derive(Debug)]
pub(crate) enum ReadResult {
    Packet(Vec<u8>, Vec<OwnedFd>),
    End,
    Silence,
}

/// A message without a body, of the NIC's protocol version.
pub(crate) fn short(kind: u8) -> [u8; 8] {
    [b'n', b'S', b'H', b'M', 2, 0, kind, 0]
}

/// A connected socket.
pub(crate) struct RawSocket(OwnedFd);

fn name(port: u16) -> SocketAddrUnix {
    let uid = rustix::process::geteuid().as_raw();
    SocketAddrUnix::new_abstract_name(format!("nicety-shm/{uid}/{port}").as_bytes()).expect("a name")
}

fn new_socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket")
}

impl RawSocket {
    #[track_caller]
    pub(crate) fn connect(port: u16) -> Self {
        let socket = new_socket();
        connect(&socket, &name(port)).expect("a listener");
        Self(socket)
    }

    /// Sends a packet; the other end may be closed already.
    pub(crate) fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)), "room");
        }
        let _ = sendmsg(&self.0, &[IoSlice::new(packet)], &mut ancillary, SendFlags::NOSIGNAL);
    }

    /// Reads what arrives within `limit`.
    pub(crate) fn read_answer(&self, limit: Duration) -> ReadResult {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        if poll(&mut fds, Some(&limit)).expect("poll(2)") == 0 {
            return ReadResult::Silence;
        }
        let mut bytes = vec![0; 2048];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let got =
            recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        let fds = ancillary.drain().filter_map(|m| match m {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let fds = fds.flatten().collect();
        match got {
            Ok(got) if got.bytes > 0 => {
                bytes.truncate(got.bytes);
                ReadResult::Packet(bytes, fds)
            }
            _ => ReadResult::End,
        }
    }
}

/// A listening socket that does not belong to a NIC.
pub(crate) struct RawListener {
    socket: OwnedFd,
    pub(crate) port: u16,
}

impl RawListener {
    #[track_caller]
    pub(crate) fn new() -> Self {
        let socket = new_socket();
        let first = 20_000 + (std::process::id() % 10_000) as u16;
        let port = (first..first + 10_000).find(|&port| bind(&socket, &name(port)).is_ok());
        listen(&socket, 16).expect("listening");
        Self { socket, port: port.expect("a free port") }
    }

    #[track_caller]
    pub(crate) fn accept(&self) -> RawSocket {
        RawSocket(accept(&self.socket).expect("a connection"))
    }
}

/// The sender of a real request, which still waits for the answer.
pub(crate) struct Requester {
    _end: Endpoint,
    _raw: RawSocket,
}

/// A real request, with its segment and its wake socket, as a device sends it; valid while the asker is alive.
pub(crate) fn real_request() -> (Vec<u8>, Vec<OwnedFd>, Requester) {
    let listener = RawListener::new();
    let end = Endpoint::on(&device(nic_shm::CopyPath::Auto), 4096);
    end.cm.connect(&end.qp, at(listener.port), &end.param()).expect("asked");
    let raw = listener.accept();
    let ReadResult::Packet(packet, fds) = raw.read_answer(PATIENCE) else { panic!("no request") };
    (packet, fds, Requester { _end: end, _raw: raw })
}

/// A memory file of `len` bytes.
pub(crate) fn memory_file(len: u64, flags: MemfdFlags, seals: SealFlags) -> Option<OwnedFd> {
    let file = memfd_create("garbage", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags).ok()?;
    ftruncate(&file, len).ok()?;
    fcntl_add_seals(&file, seals).ok()?;
    Some(file)
}

/// A wake socket for a peer to ring.
pub(crate) fn wake_socket() -> OwnedFd {
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    pair.expect("two sockets").0
}

/// An eventfd, which is not a valid wake socket.
pub(crate) fn event_fd() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).expect("a counter")
}

/// A full pipe: writing to it would block forever.
pub(crate) fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    rustix::fs::fcntl_setfl(&write, rustix::fs::OFlags::NONBLOCK).expect("a flag");
    while rustix::io::write(&write, &[0; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&write, rustix::fs::OFlags::empty()).expect("a flag");
    (read, write)
}

/// Borrows all descriptors.
pub(crate) fn borrowed(fds: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    fds.iter().map(AsFd::as_fd).collect()
}

/// Writes at an offset of a file.
pub(crate) fn write_at(file: &OwnedFd, at: u64, bytes: &[u8]) {
    assert_eq!(rustix::io::pwrite(file, bytes, at).expect("written"), bytes.len());
}
