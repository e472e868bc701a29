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

use crate::connect::active::{Active, Step};
use crate::connect::incoming::{Heard, Hearing, REQUEST_PATIENCE};
use crate::connect::listener::Listener;
use crate::connect::registry::{Attempt, Phase, Wish};
use crate::connect::request;
use crate::inner::Inner;
use crate::tcp::socket::prepare;
use crate::wake::reactor::{ATTEMPT, LISTENER};
use nic_util::fork::Fd;

/// Connections accepted per event, so that a flood does not keep the thread from other work.
const ACCEPTS: usize = 64;
/// How long listeners pause when descriptors or memory have run out.
const SHORTAGE_PAUSE: Span = Span::from_ms(100);

/// Starts what programs have asked for.
pub(crate) fn fulfil_wishes(device: &Inner) {
    for wish in device.registry.take_wishes() {
        match wish {
            Wish::Connect(active) => connect(device, active),
            Wish::Socket(wish) => wish.fulfil(),
        }
    }
}

/// Starts to connect; the result is reported by events.
fn connect(device: &Inner, active: Active) {
    if !active.is_wanted() {
        return;
    }
    if let Some((socket, active)) = active.connect(&device.shared) {
        let deadline = active.deadline;
        add(device, Attempt { socket, deadline, phase: Phase::Connecting(active) });
    }
}

fn add(device: &Inner, attempt: Attempt) {
    let reactor = &device.shared.reactor;
    let id = reactor.fresh_id();
    match reactor.watch(attempt.socket.as_fd(), ATTEMPT | id, attempt.phase.wanted()) {
        Ok(()) => device.registry.keep(id, attempt),
        Err(why) => drop(attempt.phase.into_active().map(|active| active.fail_unwatched(&why))),
    }
}

/// Handles an event on the socket of a connection attempt.
pub(crate) fn on_attempt(device: &Arc<Inner>, id: u64) {
    let Some(Attempt { socket, deadline, phase }) = device.registry.take(id) else { return };
    let shared = &device.shared;
    let step = match phase {
        Phase::Connecting(active) => active.on_connected(shared, &socket),
        Phase::Asking(active, machine) => active.on_reply(&socket, machine),
        Phase::Hearing(hearing) => match hearing.on_words(&socket) {
            Heard::Part(hearing) => return keep(device, id, socket, deadline, Phase::Hearing(hearing)),
            Heard::All(asked) => {
                shared.reactor.unwatch(socket.as_fd());
                return request::offer(device, socket, asked);
            }
            Heard::Over(words) => Step::Over(words),
        },
    };
    match step {
        Step::Asking(active, machine) => keep(device, id, socket, deadline, Phase::Asking(active, machine)),
        Step::Again(active) => connect(device, active),
        Step::Agreed(active, negotiated, rest) => {
            active.begin(shared, socket, &negotiated, &rest, |qp| device.add_connected(qp));
        }
        Step::Over(words) if words.is_empty() => {}
        Step::Over(words) => {
            shared.reactor.unwatch(socket.as_fd());
            shared.linger(socket, words);
        }
    }
}

/// Keeps an attempt waiting for the socket event of its phase.
fn keep(device: &Inner, id: u64, socket: Fd, deadline: Time, phase: Phase) {
    device.shared.reactor.rewatch(socket.as_fd(), ATTEMPT | id, phase.wanted());
    device.registry.keep(id, Attempt { socket, deadline, phase });
}

/// Ends attempts whose deadline has passed; returns the next deadline.
pub(crate) fn expire(device: &Inner, now: Time) -> Option<Time> {
    let (late, next) = device.registry.expire(now);
    for attempt in late {
        if let Some(active) = attempt.phase.into_active() {
            active.fail(CmFailure::TimedOut);
        }
    }
    next
}

/// Accepts the connections that wait at a listener.
pub(crate) fn on_listener(device: &Inner, id: u64) {
    let Some(listener) = device.registry.listener(id) else { return };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    for _ in 0..ACCEPTS {
        match acceptfrom_with(&listener.socket, flags) {
            Ok((socket, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                if device.shared.config.allows(peer.map(|peer| peer.ip())) {
                    hear_out(device, socket.into(), &listener, peer.unwrap_or(listener.addr));
                }
            }
            // `INVAL`: the listener has been shut down.
            Err(Errno::AGAIN | Errno::INVAL) => return,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                // Connections wait in the backlog meanwhile. Retrying immediately would only keep the thread busy.
                let shared = &device.shared;
                shared.reactor.rewatch(listener.socket.as_fd(), LISTENER | id, EventFlags::empty());
                return device.registry.rest(shared.host.now() + SHORTAGE_PAUSE);
            }
            // An error of this one connection, which is already gone (accept(2)).
            Err(_) => {}
        }
    }
}

/// Resumes paused listeners when their pause has ended; returns when that will be.
pub(crate) fn wake_listeners(device: &Inner, now: Time) -> Option<Time> {
    device.registry.end_rest(now, |listener| {
        let reactor = &device.shared.reactor;
        reactor.rewatch(listener.socket.as_fd(), LISTENER | listener.id, EventFlags::IN);
    })
}

/// Waits for the request of a new connection.
fn hear_out(device: &Inner, socket: Fd, listener: &Arc<Listener>, peer: SocketAddr) {
    let shared = &device.shared;
    device.registry.make_room(listener.id);
    prepare(&socket, &shared.config);
    let now = shared.host.now();
    let phase = Phase::Hearing(Hearing::new(&shared.config, listener, peer, now));
    add(device, Attempt { socket, deadline: now + REQUEST_PATIENCE, phase });
}
