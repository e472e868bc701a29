//! The state machine of the connection protocol, on the NIC thread, over Unix seqpacket sockets.
//!
//! Both ends check by SO_PEERCRED that the other runs as the same user.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use host::{Span, Time};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use verbs::provider::apply_screen;
use verbs::{CmEvent, CmFailure, ConnectRequest};

use crate::connect::handshake::{link, report_link_failure};
use crate::connect::registry::{BoundPort, CmEvents, Conn, ConnPhase, failed};
use crate::connect::request::{RequestHandle, answer_and_close};
use crate::device_inner::DeviceInner;
use crate::memory::layout::state;
use crate::protocol::names::peer_port;
use crate::protocol::socket::{receive, same_user_pid, send};
use crate::protocol::wire::{Hello, Message, PRIVATE_MAX, Shortage};
use crate::qp::QpInner;
use nic_util::fork::ForkSafeFd;
use nic_util::sync::unpoisoned;

/// How long a new connection may take to send its request.
const HELLO_PATIENCE: Span = Span::from_secs(5);
/// Number of connections accepted at a time, so that a flood does not block the thread's other work.
const ACCEPTS: usize = 64;
/// How long listeners pause after descriptors or memory have run out.
const SHORTAGE_PAUSE: Span = Span::from_ms(100);

/// Handles a socket that is readable or has ended. Runs on the NIC thread.
pub(crate) fn on_socket(device: &Arc<DeviceInner>, id: u64) {
    let registry = &device.registry;
    if let Some(conn) = registry.conn(id) {
        return on_conn(device, &conn);
    }
    let bound = unpoisoned(&registry.bound_ports).get(&id).cloned();
    if let Some(bound) = bound {
        accept_connections(device, &bound);
    }
}

fn accept_connections(device: &Arc<DeviceInner>, bound: &Arc<BoundPort>) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    for _ in 0..ACCEPTS {
        match accept_with(&bound.socket, flags) {
            Ok(socket) => await_request(device, socket.into(), bound),
            // EINVAL after the socket was shut down.
            Err(Errno::AGAIN | Errno::INVAL) => return,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                // Connections without a request hold descriptors that others need. If there are none, new
                // connections stay in the backlog.
                match device.registry.oldest_silent(bound.id, true) {
                    Some(silent) => device.registry.end_conn(&device.shared, &silent, &CmFailure::TimedOut),
                    None => return pause_accepting(device, bound),
                }
            }
            // An error of this one connection, which has already ended (accept(2)).
            Err(_) => {}
        }
    }
}

/// Pauses accepting; trying again immediately would only keep the thread busy.
fn pause_accepting(device: &DeviceInner, bound: &BoundPort) {
    device.shared.reactor.set_events_enabled(bound.socket.as_fd(), bound.id, false);
    *unpoisoned(&device.registry.paused_until) = Some(device.shared.host.now() + SHORTAGE_PAUSE);
}

/// Resumes paused listeners when it is time; returns when that will be.
pub(crate) fn resume_listeners(device: &DeviceInner, now: Time) -> Option<Time> {
    let mut paused_until = unpoisoned(&device.registry.paused_until);
    let until = (*paused_until)?;
    if now < until {
        return Some(until);
    }
    *paused_until = None;
    for (id, bound) in unpoisoned(&device.registry.bound_ports).iter() {
        device.shared.reactor.set_events_enabled(bound.socket.as_fd(), *id, true);
    }
    None
}

/// Waits for the request of a new connection.
fn await_request(device: &Arc<DeviceInner>, socket: ForkSafeFd, bound: &Arc<BoundPort>) {
    // If it is another user's process, it sees that the socket is closed.
    let Some(pid) = same_user_pid(&socket) else { return };
    if let Some(silent) = device.registry.oldest_silent(bound.id, false) {
        device.registry.end_conn(&device.shared, &silent, &CmFailure::TimedOut);
    }
    let deadline = device.shared.host.now() + HELLO_PATIENCE;
    let phase = ConnPhase::AwaitRequest { bound: bound.clone(), deadline };
    let peer = SocketAddr::new(bound.addr.ip(), peer_port(&socket));
    if let Ok(conn) = device.registry.register_conn(&device.shared, socket, pid, (bound.addr, peer), phase) {
        on_conn(device, &conn);
    }
}

fn on_conn(device: &Arc<DeviceInner>, conn: &Arc<Conn>) {
    loop {
        match receive(&conn.socket) {
            Ok(None) => return,
            Ok(Some(packet)) if packet.is_cut => {
                return refuse_for_shortage(device, conn, Shortage::Descriptors);
            }
            Ok(Some(packet)) => match Message::parse(&packet.bytes) {
                Ok(message) => on_message(device, conn, message, packet.fds),
                Err(why) => {
                    return device.registry.end_conn(
                        &device.shared,
                        conn,
                        &CmFailure::Protocol(why.to_string()),
                    );
                }
            },
            Err(Errno::BADMSG) => {
                let why = "it sent descriptors that the protocol does not allow";
                return device.registry.end_conn(&device.shared, conn, &CmFailure::Protocol(why.into()));
            }
            Err(_) => return device.registry.end_conn(&device.shared, conn, &CmFailure::PeerGone),
        }
        if matches!(*unpoisoned(&conn.phase), ConnPhase::Closed) {
            return;
        }
    }
}

/// Ends a connection that is being set up because a resource has run out, and reports that to both sides.
pub(crate) fn refuse_for_shortage(device: &Arc<DeviceInner>, conn: &Arc<Conn>, shortage: Shortage) {
    // A peer that has ended needs no answer.
    let _ = send(&conn.socket, &Message::Refuse(shortage), &[]);
    device.registry.end_conn(
        &device.shared,
        conn,
        &CmFailure::Shortage(shortage.explanation("this process")),
    );
}

fn on_message(device: &Arc<DeviceInner>, conn: &Arc<Conn>, message: Message, fds: Vec<OwnedFd>) {
    let mut phase = unpoisoned(&conn.phase);
    device.registry.unindex_phase(conn.id, &phase);
    match (std::mem::replace(&mut *phase, ConnPhase::Closed), message) {
        (ConnPhase::AwaitRequest { bound, .. }, Message::Request(hello)) => {
            *phase = ConnPhase::Requested { hello: Box::new(hello.clone()), fds };
            drop(phase);
            on_request(device, conn, &bound, hello);
        }
        (ConnPhase::AwaitReply { qp, cm, .. }, Message::Reply(hello)) => {
            drop(phase);
            on_reply(device, conn, qp, cm, hello, fds);
        }
        (ConnPhase::AwaitReply { qp, cm, .. }, Message::Reject(private_data)) => {
            drop(phase);
            device.registry.drop_conn(&device.shared, conn);
            cm.push(CmEvent::Rejected { qp_num: qp.num(), private_data });
        }
        (ConnPhase::AwaitReply { qp, cm, .. }, Message::NoListener) => {
            drop(phase);
            device.registry.drop_conn(&device.shared, conn);
            cm.push(failed(&qp, CmFailure::Refused(conn.info().peer)));
        }
        (ConnPhase::AwaitReady { qp, cm, .. }, Message::Ready) => {
            *phase = ConnPhase::Established { qp: qp.clone(), cm: cm.clone() };
            drop(phase);
            qp.connection.advance(state::RTR, state::RTS);
            let info = conn.info();
            cm.push(CmEvent::Established { qp_num: qp.num(), private_data: Vec::new(), info });
        }
        (ConnPhase::Established { qp, cm }, Message::Disconnect) => {
            drop(phase);
            device.registry.drop_conn(&device.shared, conn);
            disconnected(&qp, &cm);
        }
        (ConnPhase::AwaitReady { qp, cm, .. }, Message::Disconnect) => {
            // Ready and disconnected before this thread ran: both events, in order.
            drop(phase);
            device.registry.drop_conn(&device.shared, conn);
            disconnected(&qp, &cm);
        }
        (
            other @ (ConnPhase::AwaitReply { .. } | ConnPhase::AwaitReady { .. }),
            Message::Refuse(shortage),
        ) => {
            *phase = other;
            drop(phase);
            device.registry.end_conn(
                &device.shared,
                conn,
                &CmFailure::Shortage(shortage.explanation("the peer's process")),
            );
        }
        (other, _) => {
            *phase = other;
            drop(phase);
            device.registry.end_conn(
                &device.shared,
                conn,
                &CmFailure::Protocol("it sent a message that is not allowed in this state".into()),
            );
        }
    }
}

fn disconnected(qp: &Arc<QpInner>, cm: &CmEvents) {
    qp.connection.set_peer_disconnected();
    qp.fail();
    cm.push(CmEvent::Disconnected { qp_num: qp.num() });
}

fn on_request(device: &Arc<DeviceInner>, conn: &Arc<Conn>, bound: &BoundPort, hello: Hello) {
    let listener = unpoisoned(&bound.listener).clone();
    let with_cm = listener.and_then(|listener| Some((listener.cm.upgrade()?, listener)));
    let Some((cm, listener)) = with_cm else { return answer_and_close(device, conn, &Message::NoListener) };
    conn.store_peer_params(&hello);
    let screened = match apply_screen(listener.screen.as_ref(), &hello.private_data, conn.info(), PRIVATE_MAX)
    {
        Ok(screened) => screened,
        Err(words) => return answer_and_close(device, conn, &Message::Reject(words)),
    };
    let request = RequestHandle { device: device.clone(), conn: conn.clone(), listener: listener.clone() };
    if listener.pending.fetch_add(1, Ordering::AcqRel) >= listener.backlog {
        drop(request);
        return answer_and_close(device, conn, &Message::Reject(Vec::new()));
    }
    let request = ConnectRequest::new(Box::new(request), hello.private_data, conn.info()).screened(screened);
    cm.push(CmEvent::ConnectRequest(request));
}

fn on_reply(
    device: &Arc<DeviceInner>,
    conn: &Arc<Conn>,
    qp: Arc<QpInner>,
    cm: Arc<CmEvents>,
    hello: Hello,
    fds: Vec<OwnedFd>,
) {
    if let Err(why) = link(&device.shared, conn, &qp, &hello, fds) {
        let why = report_link_failure(conn, &why);
        device.registry.drop_conn(&device.shared, conn);
        return cm.push(failed(&qp, why));
    }
    *unpoisoned(&conn.phase) = ConnPhase::Established { qp: qp.clone(), cm: cm.clone() };
    if !qp.connection.advance(state::INIT, state::RTS) {
        // Destroyed or failed by the program while the reply was in flight.
        *unpoisoned(&conn.phase) = ConnPhase::Closed;
        return device.registry.drop_conn(&device.shared, conn);
    }
    if let Some(link) = qp.connection.link() {
        link.allow_sends();
    }
    let sent = send(&conn.socket, &Message::Ready, &[]);
    conn.store_peer_params(&hello);
    let (private_data, info) = (hello.private_data, conn.info());
    cm.push(CmEvent::Established { qp_num: qp.num(), private_data, info });
    if sent.is_err() {
        device.registry.end_conn(&device.shared, conn, &CmFailure::PeerGone);
    }
}

/// Ends handshakes that have timed out; returns when the next one will.
pub(crate) fn expire_handshakes(device: &Arc<DeviceInner>, now: Time) -> Option<Time> {
    let (late, next) = device.registry.take_timed_out(now);
    for conn in late {
        // Unless it has just been established.
        let is_late = unpoisoned(&conn.phase).deadline().is_some_and(|deadline| deadline <= now);
        if is_late {
            device.registry.end_conn(&device.shared, &conn, &CmFailure::TimedOut);
        }
    }
    next
}
