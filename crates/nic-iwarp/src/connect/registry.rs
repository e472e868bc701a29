//! Listeners, and connections in the making, by number; and what programs want of the device's thread.
//!
//! Bounded: how many may be about to say what they want, how long they take, how many requests wait for the program's answer
//! (the listener's backlog), and what a frame holds (512 bytes of private data).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use host::Time;
use iwarp::mpa::Initiator;
use rustix::event::epoll::EventFlags;

use crate::connect::active::Active;
use crate::connect::incoming::Hearing;
use crate::connect::listener::{Listener, SocketWish};
use crate::qp::QpInner;
use nic_util::fork::Fd;
use nic_util::sync::unpoisoned;

/// How many may be about to say what they want at once, for one listener and for the device; the one that has taken longest
/// gives way. A peer that means it needs one round trip, so those who say nothing cannot keep it out.
const HALF_OPEN_OF_LISTENER: usize = 256;
const HALF_OPEN_MAX: usize = 1024;

/// What a program wants of the device's thread.
pub(crate) enum Wish {
    Connect(Active),
    Socket(Arc<SocketWish>),
}

/// A connection in the making.
pub(crate) struct Attempt {
    pub(crate) socket: Fd,
    pub(crate) deadline: Time,
    pub(crate) phase: Phase,
}

pub(crate) enum Phase {
    /// TCP is connecting.
    Connecting(Active),
    /// The request is on its way; the reply is awaited.
    Asking(Active, Box<Initiator>),
    /// Somebody has connected and is about to say what it wants.
    Hearing(Hearing),
}

impl Phase {
    fn active(&self) -> Option<&Active> {
        match self {
            Self::Connecting(active) | Self::Asking(active, _) => Some(active),
            Self::Hearing(_) => None,
        }
    }

    /// What this side wants, if this side began.
    pub(crate) fn into_active(self) -> Option<Active> {
        match self {
            Self::Connecting(active) | Self::Asking(active, _) => Some(active),
            Self::Hearing(_) => None,
        }
    }

    /// What its socket is to tell of.
    pub(crate) fn wanted(&self) -> EventFlags {
        if matches!(self, Self::Connecting(_)) { EventFlags::OUT } else { EventFlags::IN }
    }
}

/// Listeners, and connections in the making, by number.
#[derive(Default)]
pub(crate) struct Registry {
    wishes: Mutex<Vec<Wish>>,
    listeners: Mutex<BTreeMap<u64, Arc<Listener>>>,
    attempts: Mutex<BTreeMap<u64, Attempt>>,
    /// Descriptors ran out: until then nobody is let in.
    rest_until: Mutex<Option<Time>>,
}

impl Registry {
    /// Somebody wants something; wake the thread afterwards.
    pub(crate) fn wish(&self, wish: Wish) {
        unpoisoned(&self.wishes).push(wish);
    }

    /// What has been wished for since the last call.
    pub(crate) fn take_wishes(&self) -> Vec<Wish> {
        std::mem::take(&mut *unpoisoned(&self.wishes))
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

    /// Nobody is let in before that time.
    pub(crate) fn rest(&self, until: Time) {
        *unpoisoned(&self.rest_until) = Some(until);
    }

    /// When listeners go on that rest. If that is now, `wake` is called with each listener.
    pub(crate) fn end_rest(&self, now: Time, mut wake: impl FnMut(&Listener)) -> Option<Time> {
        let mut rest_until = unpoisoned(&self.rest_until);
        let until = (*rest_until)?;
        if now < until {
            return Some(until);
        }
        *rest_until = None;
        unpoisoned(&self.listeners).values().for_each(|listener| wake(listener));
        None
    }

    /// Puts a connection in its place, unless its queue pair has gone meanwhile.
    pub(crate) fn keep(&self, id: u64, attempt: Attempt) {
        // Under the lock: whoever cancels has changed the state before, and takes the lock afterwards.
        let mut attempts = unpoisoned(&self.attempts);
        if attempt.phase.active().is_none_or(Active::is_wanted) {
            attempts.insert(id, attempt);
        }
    }

    /// Takes a connection out, to do something about it.
    pub(crate) fn take(&self, id: u64) -> Option<Attempt> {
        unpoisoned(&self.attempts).remove(&id)
    }

    /// A queue pair that is in the error state is not connected any more.
    pub(crate) fn cancel(&self, qp: &Arc<QpInner>) {
        unpoisoned(&self.attempts)
            .retain(|_, attempt| attempt.phase.active().is_none_or(|active| !Arc::ptr_eq(&active.qp, qp)));
    }

    /// Takes what takes too long; when the next deadline is.
    pub(crate) fn expire(&self, now: Time) -> (Vec<Attempt>, Option<Time>) {
        let mut attempts = unpoisoned(&self.attempts);
        let late: Vec<u64> =
            attempts.iter().filter(|(_, attempt)| now >= attempt.deadline).map(|(id, _)| *id).collect();
        let late = late.iter().filter_map(|id| attempts.remove(id)).collect();
        (late, attempts.values().map(|attempt| attempt.deadline).min())
    }

    /// Drops who has taken longest to say what it wants, if too many are about to.
    pub(crate) fn make_room(&self, listener: u64) {
        let mut attempts = unpoisoned(&self.attempts);
        // In the order of their numbers, so the oldest first.
        let oldest = |of: Option<u64>, limit: usize| {
            let mut hearing = attempts.iter().filter(|(_, attempt)| match &attempt.phase {
                Phase::Hearing(hearing) => of.is_none_or(|id| id == hearing.listener.id),
                _ => false,
            });
            let first = hearing.next().map(|(id, _)| *id);
            if 1 + hearing.count() >= limit { first } else { None }
        };
        let victim = oldest(Some(listener), HALF_OPEN_OF_LISTENER).or_else(|| oldest(None, HALF_OPEN_MAX));
        if let Some(id) = victim {
            attempts.remove(&id);
        }
    }
}
