//! The handshake: exchanges hellos and connects a queue pair with the peer's data.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use verbs::{CmFailure, ConnParam, Depths, Error, Result};

use crate::connect::registry::Conn;
use crate::peer::queue_pair::PeerQp;
use crate::protocol::socket::{peer_pidfd, send};
use crate::protocol::wire::{Hello, Message, Shortage};
use crate::qp::QpInner;
use crate::shared::DeviceShared;
use nic_util::sync::fence;

/// The hello of a queue pair.
pub(crate) fn hello_of(device: &DeviceShared, qp: &QpInner, param: &ConnParam) -> Hello {
    Hello {
        token: device.token,
        process: *device.process,
        probe_addr: std::ptr::from_ref(device.process).addr() as u64,
        qp_index: qp.index() as u32,
        generation: qp.connection.generation,
        qp_num: qp.connection.reported_qp_num,
        barriers: fence::register(),
        depths: Depths::of(param),
        rnr_retry: param.rnr_retry,
        private_data: param.private_data.clone(),
    }
}

/// Sends a hello with the descriptors that the peer needs.
pub(crate) fn send_hello(
    device: &DeviceShared,
    conn: &Conn,
    qp: &QpInner,
    message: &Message,
) -> Result<(), CmFailure> {
    let mut fds = vec![device.memory.segment.as_fd(), device.reactor.wake_socket()];
    fds.extend(qp.receiving.completions.channel.as_ref().map(|c| c.wake_socket.sender()));
    send(&conn.socket, message, &fds).map_err(|errno| match errno {
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => CmFailure::PeerGone,
        Errno::TOOMANYREFS => CmFailure::Shortage(
            "too many descriptors are in flight to peers; raise the limit with ulimit -n, or connect fewer \
             at a time"
                .into(),
        ),
        other => CmFailure::Shortage(format!("the descriptors cannot be sent to the peer: {other}")),
    })
}

/// Connects a queue pair to the sender of a hello.
pub(crate) fn link(
    device: &DeviceShared,
    conn: &Conn,
    qp: &QpInner,
    hello: &Hello,
    mut fds: Vec<OwnedFd>,
) -> Result<()> {
    if !hello.barriers {
        fence::require_full();
    }
    let peer = device.peers.get(hello, conn.pid, || peer_pidfd(&conn.socket, conn.pid), &mut fds)?;
    qp.connection.connect(PeerQp::new(peer, hello, fds.pop())?)
}

/// The reason why a connection could not be linked; sent to the peer if memory has run out.
pub(crate) fn report_link_failure(conn: &Conn, why: &Error) -> CmFailure {
    // Only ENOMEM is a shortage; any other error means that the peer sent invalid data.
    if !matches!(why, Error::System { errno: Some(errno), .. } if *errno == Errno::NOMEM.raw_os_error()) {
        return CmFailure::Protocol(why.to_string());
    }
    // A peer that has ended needs no answer.
    let _ = send(&conn.socket, &Message::Refuse(Shortage::Memory), &[]);
    CmFailure::Shortage(why.to_string())
}
