//! The listening side of connections in the making: from a listener's socket to the program's answer.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use host::{Bell, Span, Time};
use iwarp::mpa::{Accept, Responder, ResponderConfig, Revision, RtrSet};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use verbs::provider::{CmOps, RequestOps};
use verbs::{CmEvent, CmFailure, ConnParam, ConnectRequest, Error, Qp, Result};

use super::cm::{ListenerInner, find_cm, own_qp};
use super::config::Mpa;
use super::device::{Inner, PRIVATE_DATA_MAX, unpoisoned};
use super::handshake::{Attempt, Phase, QUESTIONS, Turn, Wish, hear, say, since_start};
use super::nic::LISTENER;
use super::qp::{state, state_of};
use super::socket::{listen_at, prepare};
use super::stream::End;
use crate::fork::Fd;

/// How long somebody who has connected to a listener may take to say what it wants, however busily it talks.
const REQUEST_PATIENCE: Span = Span::from_secs(5);
/// How many may be in that state at once, for one listener and for the device; the one that has taken longest gives way. A
/// peer that means it needs one round trip, so those who say nothing cannot keep it out.
const HALF_OPEN_OF_LISTENER: usize = 256;
const HALF_OPEN_MAX: usize = 1024;
/// Connections taken off a listener at a time, so that a flood does not keep the thread from everything else.
const ACCEPTS: usize = 64;
/// With descriptors or memory used up, listeners rest so long.
const SHORTAGE_PAUSE: Span = Span::from_ms(100);
/// How long the device's thread may take to make a listening socket.
const LISTEN_PATIENCE: Span = Span::from_secs(10);

/// Somebody wants to listen, and waits for the socket.
pub(super) struct ListenWish {
    addr: SocketAddr,
    backlog: u32,
    bell: Bell,
    socket: Mutex<Option<Result<(Fd, SocketAddr)>>>,
}

impl ListenWish {
    pub(super) fn fulfil(&self) {
        *unpoisoned(&self.socket) = Some(listen_at(self.addr, self.backlog));
        self.bell.ring();
    }
}

impl Inner {
    /// A listening socket, made by the device's thread: a socket belongs to the network namespace of the thread that makes
    /// it, and a device to the one in which it was opened.
    pub(super) fn listening_socket(&self, addr: SocketAddr, backlog: u32) -> Result<(Fd, SocketAddr)> {
        let (bell, socket) = (Bell::new(), Mutex::new(None));
        let wish = Arc::new(ListenWish { addr, backlog, bell, socket });
        self.nic.ask(Wish::Listen(wish.clone()));
        let deadline = self.host.after(LISTEN_PATIENCE);
        self.host
            .wait("Cm::listen", &wish.bell, deadline, || unpoisoned(&wish.socket).take())
            .unwrap_or(Err(Error::TimedOut { call: "Cm::listen" }))
    }

    /// Somebody connects to a listener.
    pub(super) fn on_listener(self: &Arc<Self>, id: u64) {
        let listener = unpoisoned(&self.nic.registry.listeners).get(&id).cloned();
        let Some(listener) = listener else { return };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..ACCEPTS {
            match acceptfrom_with(&listener.socket, flags) {
                Ok((socket, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).unwrap_or(listener.addr);
                    self.hear_out(socket.into(), &listener, peer);
                }
                // The second when it has been shut down.
                Err(Errno::AGAIN | Errno::INVAL) => return,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // Whoever waits can wait on; asking again at once would only keep the thread busy.
                    self.nic.rewatch(listener.socket.as_fd(), LISTENER | id, EventFlags::empty());
                    *unpoisoned(&self.nic.registry.rest_until) = Some(self.host.now() + SHORTAGE_PAUSE);
                    return;
                }
                // Of the one connection, which is gone already (accept(2)).
                Err(_) => {}
            }
        }
    }

    /// Listeners that rest for want of descriptors go on when it is time; when that will be.
    pub(super) fn wake_listeners(&self, now: Time) -> Option<Time> {
        let mut rest_until = unpoisoned(&self.nic.registry.rest_until);
        let until = (*rest_until)?;
        if now < until {
            return Some(until);
        }
        *rest_until = None;
        for (id, listener) in unpoisoned(&self.nic.registry.listeners).iter() {
            self.nic.rewatch(listener.socket.as_fd(), LISTENER | id, EventFlags::IN);
        }
        None
    }

    /// Waits for what a new connection wants.
    fn hear_out(&self, socket: Fd, listener: &Arc<ListenerInner>, peer: SocketAddr) {
        self.make_room(listener);
        prepare(&socket, &self.config);
        let config = ResponderConfig {
            revision_max: if self.config.mpa == Mpa::V1 { Revision::V1 } else { Revision::V2 },
            crc: self.config.crc,
            peer_to_peer: RtrSet::all(),
            timeout: REQUEST_PATIENCE.to_std(),
        };
        let now = self.host.now();
        let machine = Responder::new(config, since_start(now));
        let phase = Phase::Hearing(machine, listener.clone(), peer);
        self.add_attempt(Attempt { socket, deadline: now + REQUEST_PATIENCE, phase }, EventFlags::IN);
    }

    /// Drops who has taken longest to say what it wants, if too many are about to.
    fn make_room(&self, listener: &ListenerInner) {
        let mut attempts = unpoisoned(&self.nic.registry.attempts);
        // In the order of their numbers, so the oldest first.
        let oldest = |of: Option<u64>, limit: usize| {
            let mut hearing = attempts.iter().filter(|(_, attempt)| match &attempt.phase {
                Phase::Hearing(_, its, _) => of.is_none_or(|id| id == its.id),
                _ => false,
            });
            let first = hearing.next().map(|(id, _)| *id);
            if 1 + hearing.count() >= limit { first } else { None }
        };
        let victim = oldest(Some(listener.id), HALF_OPEN_OF_LISTENER).or_else(|| oldest(None, HALF_OPEN_MAX));
        if let Some(id) = victim {
            attempts.remove(&id);
        }
    }

    /// Somebody who has connected says something, or closes.
    pub(super) fn on_words(
        &self,
        socket: &Fd,
        mut machine: Responder,
        listener: Arc<ListenerInner>,
        peer: SocketAddr,
    ) -> Turn {
        let mut bytes = [0; 1024];
        match hear(socket, &mut bytes) {
            Ok(None) => Turn::On(Phase::Hearing(machine, listener, peer)),
            Ok(Some(0)) | Err(_) => Turn::Over(Vec::new()),
            Ok(Some(n)) => match machine.handle_bytes(&bytes[..n]) {
                Ok((_, None)) => Turn::On(Phase::Hearing(machine, listener, peer)),
                Ok((_, Some(request))) => {
                    Turn::Asked(Box::new(machine), request.private_data, listener, peer)
                }
                // A refusal, if there is one to give.
                Err(_) => Turn::Over(machine.transmit().to_vec()),
            },
        }
    }

    /// A request is whole: the program is to answer.
    pub(super) fn on_request(
        self: &Arc<Self>,
        socket: Fd,
        machine: Responder,
        private_data: Vec<u8>,
        listener: &Arc<ListenerInner>,
        peer: SocketAddr,
    ) {
        let Some(cm) = listener.cm.upgrade() else { return };
        let waiting = listener.pending.fetch_add(1, Ordering::AcqRel);
        let ops =
            RequestHandle { device: self.clone(), listener: listener.clone(), open: Some((socket, machine)) };
        let request = ConnectRequest::new(Box::new(ops), private_data, peer, listener.addr);
        if waiting >= listener.backlog {
            // Rejected by being dropped.
            return drop(request);
        }
        cm.push_request(listener, CmEvent::ConnectRequest(request));
    }
}

/// A connect request that waits for its answer.
struct RequestHandle {
    device: Arc<Inner>,
    listener: Arc<ListenerInner>,
    open: Option<(Fd, Responder)>,
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.listener.pending.fetch_sub(1, Ordering::AcqRel);
    }
}

impl RequestHandle {
    fn decline(&mut self, private_data: &[u8]) {
        let Some((socket, mut machine)) = self.open.take() else { return };
        // It fails if the machine has refused already, because the two sides have nothing in common.
        let _ = machine.reject(private_data);
        self.device.nic.linger(&self.device, socket, machine.transmit().to_vec());
    }

    fn try_accept(&mut self, cm: &dyn CmOps, qp: &Qp, param: &ConnParam) -> Result<()> {
        let device = self.device.clone();
        let (cm, qp) = (find_cm(&device, cm)?, own_qp(qp)?);
        if qp.state() != state::INIT {
            return Err(Error::WrongState { call: "accept", state: state_of(qp.state()) });
        }
        let Some((socket, mut machine)) = self.open.take() else {
            return Err(Error::Invalid("the connect request has already been answered".into()));
        };
        let accept = Accept {
            ird: u16::from(param.responder_resources) + QUESTIONS,
            ord: u16::from(param.initiator_depth) + QUESTIONS,
            private_data: param.private_data.clone(),
        };
        let negotiated = match machine.accept(&accept) {
            Ok(negotiated) => negotiated,
            Err(error) => {
                self.open = Some((socket, machine));
                return Err(Error::Invalid(error.to_string()));
            }
        };
        if !qp.advance(state::INIT, state::RTR) {
            let now = state_of(qp.state());
            drop(socket);
            return Err(Error::WrongState { call: "accept", state: now });
        }
        let (reply, qp_num) = (machine.transmit(), qp.num);
        let said = device.nic.watch(socket.as_fd(), u64::MAX, EventFlags::ONESHOT).is_ok()
            && say(&socket, reply).is_ok_and(|n| n == reply.len());
        let link = device.link(socket, &negotiated, cm.clone(), param, &[]);
        qp.with(|stream| {
            if !said {
                qp.set_error();
                cm.push(CmEvent::ConnectFailed { qp_num, why: CmFailure::PeerGone });
                return stream.end(&qp, End::Closed);
            }
            stream.begin(&qp, link, false);
            if negotiated.rtr.is_none() {
                // Nothing more is awaited; what this side sends is held back until the peer has spoken.
                stream.ready(&qp);
            }
        });
        if negotiated.rtr.is_some() {
            device.nic.at(device.host.now() + param.timeout, &qp);
        }
        Ok(())
    }
}

impl RequestOps for RequestHandle {
    fn accept(mut self: Box<Self>, cm: &dyn CmOps, qp: &Qp, param: &ConnParam) -> Result<()> {
        self.device.birth.check()?;
        let result = self.try_accept(cm, qp, param);
        if result.is_err() {
            self.decline(&[]);
        }
        result
    }

    fn reject(mut self: Box<Self>, private_data: &[u8]) -> Result<()> {
        self.device.birth.check()?;
        let fits =
            Error::check_limit("bytes of private data", private_data.len() as u64, PRIVATE_DATA_MAX as u64);
        self.decline(if fits.is_ok() { private_data } else { &[] });
        fits
    }
}
