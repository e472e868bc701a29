//! Connection establishment: TCP, then the MPA frames, until the stream begins. Runs on the NIC thread, except that
//! the program answers requests on any thread.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use host::{Span, Time};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use verbs::CmFailure;

use crate::connect::incoming::{IncomingConn, IncomingStep, REQUEST_TIMEOUT};
use crate::connect::listener::Listener;
use crate::connect::outgoing::{OutgoingConn, OutgoingStep};
use crate::connect::registry::{AttemptPhase, ConnectAttempt, ThreadRequest};
use crate::connect::request;
use crate::device_inner::DeviceInner;
use crate::tcp::socket::set_options;
use crate::wake::reactor::{ATTEMPT, LISTENER};
use nic_util::fork::ForkSafeFd;

/// Connections accepted per event, so that a flood does not keep the thread from other work.
const ACCEPTS_PER_EVENT: usize = 64;
/// How long listeners pause when descriptors or memory have run out.
const SHORTAGE_PAUSE: Span = Span::from_ms(100);

/// Starts what programs have asked for.
pub(crate) fn handle_thread_requests(device: &DeviceInner) {
    for request in device.registry.take_thread_requests() {
        match request {
            ThreadRequest::Connect(outgoing) => connect(device, outgoing),
            ThreadRequest::Socket(request) => request.create_socket(),
        }
    }
}

/// Starts to connect; the result is reported by events.
fn connect(device: &DeviceInner, outgoing: OutgoingConn) {
    if !outgoing.is_wanted() {
        return;
    }
    if let Some((socket, outgoing)) = outgoing.connect(&device.shared) {
        let deadline = outgoing.deadline;
        add(device, ConnectAttempt { socket, deadline, phase: AttemptPhase::Connecting(outgoing) });
    }
}

fn add(device: &DeviceInner, attempt: ConnectAttempt) {
    let reactor = &device.shared.reactor;
    let id = reactor.new_id();
    match reactor.watch(attempt.socket.as_fd(), ATTEMPT | id, attempt.phase.epoll_flags()) {
        Ok(()) => device.registry.insert_attempt(id, attempt),
        Err(why) => drop(attempt.phase.into_outgoing().map(|outgoing| outgoing.fail_to_watch(&why))),
    }
}

/// Handles an event on the socket of a connection attempt.
pub(crate) fn on_attempt(device: &Arc<DeviceInner>, id: u64) {
    let Some(ConnectAttempt { socket, deadline, phase }) = device.registry.take_attempt(id) else { return };
    let shared = &device.shared;
    let step = match phase {
        AttemptPhase::Connecting(outgoing) => outgoing.on_connected(shared, &socket),
        AttemptPhase::AwaitingReply(outgoing, machine) => outgoing.on_reply(shared, &socket, machine),
        AttemptPhase::AwaitingRequest(incoming) => match incoming.on_data(shared, &socket) {
            IncomingStep::Incomplete(incoming) => {
                return keep_waiting(device, id, socket, deadline, AttemptPhase::AwaitingRequest(incoming));
            }
            IncomingStep::Complete(request) => {
                shared.reactor.unwatch(socket.as_fd());
                return request::report(device, socket, request);
            }
            IncomingStep::Ended(last_bytes) => OutgoingStep::Ended(last_bytes),
        },
    };
    match step {
        OutgoingStep::AwaitingReply(outgoing, machine) => {
            keep_waiting(device, id, socket, deadline, AttemptPhase::AwaitingReply(outgoing, machine))
        }
        OutgoingStep::Retry(outgoing) => connect(device, outgoing),
        OutgoingStep::Established(outgoing, negotiated, rest) => {
            outgoing.begin(shared, socket, &negotiated, &rest, |qp| device.add_connected(qp));
        }
        OutgoingStep::Ended(last_bytes) if last_bytes.is_empty() => {}
        OutgoingStep::Ended(last_bytes) => {
            shared.reactor.unwatch(socket.as_fd());
            shared.linger(socket, last_bytes);
        }
    }
}

/// Keeps an attempt waiting for the socket event of its phase.
fn keep_waiting(device: &DeviceInner, id: u64, socket: ForkSafeFd, deadline: Time, phase: AttemptPhase) {
    device.shared.reactor.rewatch(socket.as_fd(), ATTEMPT | id, phase.epoll_flags());
    device.registry.insert_attempt(id, ConnectAttempt { socket, deadline, phase });
}

/// Ends attempts whose deadline has passed; returns the next deadline.
pub(crate) fn expire(device: &DeviceInner, now: Time) -> Option<Time> {
    let (late, next) = device.registry.expire(now);
    for attempt in late {
        if let Some(outgoing) = attempt.phase.into_outgoing() {
            outgoing.fail(CmFailure::TimedOut);
        }
    }
    next
}

/// Accepts the connections that wait at a listener.
pub(crate) fn on_listener(device: &DeviceInner, id: u64) {
    let Some(listener) = device.registry.listener(id) else { return };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    for _ in 0..ACCEPTS_PER_EVENT {
        match acceptfrom_with(&listener.socket, flags) {
            Ok((socket, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                if device.shared.config.allows(peer.map(|peer| peer.ip())) {
                    await_request(device, socket.into(), &listener, peer.unwrap_or(listener.addr));
                }
            }
            // `INVAL`: the listener has been shut down.
            Err(Errno::AGAIN | Errno::INVAL) => return,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                // Connections wait in the backlog meanwhile. Retrying immediately would only keep the thread busy.
                let shared = &device.shared;
                shared.reactor.rewatch(listener.socket.as_fd(), LISTENER | id, EventFlags::empty());
                return device.registry.pause_accepting(shared.host.now() + SHORTAGE_PAUSE);
            }
            // An error of this one connection, which is already gone (accept(2)).
            Err(_) => {}
        }
    }
}

/// Resumes paused listeners when their pause has ended; returns when that will be.
pub(crate) fn resume_listeners(device: &DeviceInner, now: Time) -> Option<Time> {
    device.registry.resume_accepting(now, |listener| {
        let reactor = &device.shared.reactor;
        reactor.rewatch(listener.socket.as_fd(), LISTENER | listener.id, EventFlags::IN);
    })
}

/// Waits for the request of a new connection.
fn await_request(device: &DeviceInner, socket: ForkSafeFd, listener: &Arc<Listener>, peer: SocketAddr) {
    let shared = &device.shared;
    device.registry.drop_oldest_incoming(listener.id);
    set_options(&socket, &shared.config);
    let now = shared.host.now();
    let phase = AttemptPhase::AwaitingRequest(IncomingConn::new(&shared.config, listener, peer, now));
    add(device, ConnectAttempt { socket, deadline: now + REQUEST_TIMEOUT, phase });
}
