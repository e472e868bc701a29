//! Listeners and connection attempts by number, and the requests of programs to the NIC thread.
//!
//! All are bounded: how many connections may owe their request, for how long, how many requests wait for the
//! program's answer (the listener's backlog), and the size of a frame (512 bytes of private data).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use host::Time;
use iwarp::mpa::Initiator;
use rustix::event::epoll::EventFlags;

use crate::connect::incoming::IncomingConn;
use crate::connect::listener::{Listener, SocketRequest};
use crate::connect::outgoing::OutgoingConn;
use crate::qp::QpInner;
use nic_util::fork::ForkSafeFd;
use nic_util::sync::unpoisoned;

/// Maximum number of accepted connections that have not sent their request, for one listener and for the device. At
/// the limit the oldest is dropped. An honest peer needs only one round trip, so silent ones cannot keep it out.
const HALF_OPEN_PER_LISTENER: usize = 256;
const HALF_OPEN_MAX: usize = 1024;

/// A program's request to the NIC thread.
pub(crate) enum ThreadRequest {
    Connect(OutgoingConn),
    Socket(Arc<SocketRequest>),
}

/// A connection being established.
pub(crate) struct ConnectAttempt {
    pub(crate) socket: ForkSafeFd,
    pub(crate) deadline: Time,
    pub(crate) phase: AttemptPhase,
}

pub(crate) enum AttemptPhase {
    /// TCP is connecting.
    Connecting(OutgoingConn),
    /// The request has been sent; waiting for the reply.
    AwaitingReply(OutgoingConn, Box<Initiator>),
    /// A TCP connection was accepted; waiting for its request.
    AwaitingRequest(IncomingConn),
}

impl AttemptPhase {
    fn outgoing(&self) -> Option<&OutgoingConn> {
        match self {
            Self::Connecting(outgoing) | Self::AwaitingReply(outgoing, _) => Some(outgoing),
            Self::AwaitingRequest(_) => None,
        }
    }

    /// The attempt of the active side.
    pub(crate) fn into_outgoing(self) -> Option<OutgoingConn> {
        match self {
            Self::Connecting(outgoing) | Self::AwaitingReply(outgoing, _) => Some(outgoing),
            Self::AwaitingRequest(_) => None,
        }
    }

    /// The socket events that the phase waits for.
    pub(crate) fn epoll_flags(&self) -> EventFlags {
        if matches!(self, Self::Connecting(_)) { EventFlags::OUT } else { EventFlags::IN }
    }
}

/// Listeners and connection attempts by number.
#[derive(Default)]
pub(crate) struct Registry {
    thread_requests: Mutex<Vec<ThreadRequest>>,
    listeners: Mutex<BTreeMap<u64, Arc<Listener>>>,
    attempts: Mutex<BTreeMap<u64, ConnectAttempt>>,
    /// Descriptors ran out: no connection is accepted before this time.
    paused_until: Mutex<Option<Time>>,
}

impl Registry {
    /// Queues a request to the NIC thread; the caller wakes the thread afterwards.
    pub(crate) fn push_request(&self, request: ThreadRequest) {
        unpoisoned(&self.thread_requests).push(request);
    }

    /// Takes the requests queued since the last call.
    pub(crate) fn take_thread_requests(&self) -> Vec<ThreadRequest> {
        std::mem::take(&mut *unpoisoned(&self.thread_requests))
    }

    pub(crate) fn add_listener(&self, listener: &Arc<Listener>) {
        unpoisoned(&self.listeners).insert(listener.id, listener.clone());
    }

    pub(crate) fn forget_listener(&self, id: u64) {
        unpoisoned(&self.listeners).remove(&id);
    }

    pub(crate) fn listener(&self, id: u64) -> Option<Arc<Listener>> {
        unpoisoned(&self.listeners).get(&id).cloned()
    }

    /// Pauses accepting until this time.
    pub(crate) fn pause_accepting(&self, until: Time) {
        *unpoisoned(&self.paused_until) = Some(until);
    }

    /// Returns when paused listeners resume. If that is now, calls `wake` with each listener.
    pub(crate) fn resume_accepting(&self, now: Time, mut wake: impl FnMut(&Listener)) -> Option<Time> {
        let mut paused_until = unpoisoned(&self.paused_until);
        let until = (*paused_until)?;
        if now < until {
            return Some(until);
        }
        *paused_until = None;
        unpoisoned(&self.listeners).values().for_each(|listener| wake(listener));
        None
    }

    /// Puts an attempt back, unless its queue pair no longer wants it.
    pub(crate) fn insert_attempt(&self, id: u64, attempt: ConnectAttempt) {
        // Under the lock: cancelling changes the state first and takes the lock afterwards.
        let mut attempts = unpoisoned(&self.attempts);
        if attempt.phase.outgoing().is_none_or(OutgoingConn::is_wanted) {
            attempts.insert(id, attempt);
        }
    }

    /// Takes an attempt out in order to work on it.
    pub(crate) fn take_attempt(&self, id: u64) -> Option<ConnectAttempt> {
        unpoisoned(&self.attempts).remove(&id)
    }

    /// Cancels the attempt of a queue pair in the error state.
    pub(crate) fn cancel(&self, qp: &Arc<QpInner>) {
        unpoisoned(&self.attempts).retain(|_, attempt| {
            attempt.phase.outgoing().is_none_or(|outgoing| !Arc::ptr_eq(&outgoing.qp, qp))
        });
    }

    /// Takes the attempts whose deadline has passed; returns them and the next deadline.
    pub(crate) fn expire(&self, now: Time) -> (Vec<ConnectAttempt>, Option<Time>) {
        let mut attempts = unpoisoned(&self.attempts);
        let late: Vec<u64> =
            attempts.iter().filter(|(_, attempt)| now >= attempt.deadline).map(|(id, _)| *id).collect();
        let late = late.iter().filter_map(|id| attempts.remove(id)).collect();
        (late, attempts.values().map(|attempt| attempt.deadline).min())
    }

    /// Drops the oldest connection that has not sent its request, if there are too many.
    pub(crate) fn drop_oldest_incoming(&self, listener: u64) {
        let mut attempts = unpoisoned(&self.attempts);
        // Attempts are in the order of their numbers, so the oldest comes first.
        let oldest = |of: Option<u64>, limit: usize| {
            let mut incoming = attempts.iter().filter(|(_, attempt)| match &attempt.phase {
                AttemptPhase::AwaitingRequest(incoming) => of.is_none_or(|id| id == incoming.listener.id),
                _ => false,
            });
            let first = incoming.next().map(|(id, _)| *id);
            if 1 + incoming.count() >= limit { first } else { None }
        };
        let victim = oldest(Some(listener), HALF_OPEN_PER_LISTENER).or_else(|| oldest(None, HALF_OPEN_MAX));
        if let Some(id) = victim {
            attempts.remove(&id);
        }
    }
}
