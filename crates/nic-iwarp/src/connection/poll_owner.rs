//! Who looks at a connection's socket: the device's thread, which epoll(7) tells of it, or somebody who polls.
//!
//! Who polls looks at the socket without asking anybody. The thread hears of a socket once, until it is armed again. If it
//! finds that somebody polls, it does not arm it but *watches* the connection: it looks, ever more seldom up to once in a
//! millisecond, whether polls go on. When they have stopped it does what is to be done and arms the socket. A poller that has
//! polled for a while disarms the socket itself and asks to be watched; one that is about to sleep arms it. Where somebody sleeps
//! the thread does not watch: the polls that it counts may all be from before.
//!
//! So something that comes in is always found: by epoll if the socket is armed, else by a poller, else by the thread at its
//! next look. Where a message waits for a receive nobody reads on, and the socket is armed for the peer's end even while
//! somebody polls. What a poller leaves undone (answers that can travel with the program's next message) is left only where
//! the thread watches.

use std::os::fd::BorrowedFd;

use rustix::event::epoll::EventFlags;

use crate::queues::per_qp::Queues;
use crate::shared::Shared;

/// Polls since the socket was armed that make the thread leave it to the poller.
const POLLS_OF_A_POLLER: u32 = 8;
/// Polls since then after which a poller takes the socket over by itself: some tens of microseconds of them.
const POLLS_TO_TAKE_OVER: u32 = 64;

/// Polls with news, each soon after the one before, after which epoll is muted: enough to pay for it.
const POLLS_TO_MUTE: u32 = 16;

/// What the thread finds when it looks at a connection that it watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Polls go on.
    Polled,
    /// They have stopped: what is due is the thread's to do now.
    Left,
    /// It is not watched any more.
    Unwatched,
}

/// Who looks at a connection's socket.
#[derive(Default)]
pub(crate) struct Attention {
    /// What epoll tells the thread of, until it has; `None` once it has.
    armed: Option<EventFlags>,
    /// The thread looks by itself, since somebody polls.
    watched: bool,
    polls_when_armed: u32,
    polls_when_looked: u32,
    /// Pollers are told of the socket: see [`crate::wake::ready`]. Every one of their polls is one of this connection then.
    listed: bool,
    /// There was memory for that.
    has_place: bool,
    /// How often something has come in polls that follow each other; epoll is muted once that was often.
    streak: u32,
}

impl Attention {
    /// Whether what a poller leaves undone is soon looked after: the thread watches, and polls find the connection without
    /// there being news, all of them or, of one that is `warm`, the next.
    #[inline]
    pub(crate) fn is_tended(&self, warm: bool) -> bool {
        self.watched && (!self.listed || warm)
    }

    /// Whether polls find the connection only if there is news, or if it asks for it.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed
    }

    fn polls(&self, queues: &Queues) -> u32 {
        let of_all = if self.listed { queues.shared.news.polls() } else { 0 };
        queues.polls().wrapping_add(of_all)
    }

    fn polls_since_armed(&self, queues: &Queues) -> u32 {
        self.polls(queues).wrapping_sub(self.polls_when_armed)
    }

    /// Somebody polls: the thread looks by itself from now on.
    fn watch(&mut self, socket: BorrowedFd<'_>, queues: &Queues) {
        self.watched = true;
        self.polls_when_looked = self.polls(queues);
        queues.shared.reactor.disarm(socket);
        queues.note_watched();
    }

    /// Somebody polls. If that goes on, the thread need not hear of the socket any more, only watch the polls.
    #[inline]
    pub(crate) fn on_poll(&mut self, socket: BorrowedFd<'_>, queues: &Queues) {
        if !self.watched && self.polls_since_armed(queues) >= POLLS_TO_TAKE_OVER {
            self.armed = None;
            self.watch(socket, queues);
            queues.shared.reactor.ask_to_watch(queues.num);
        }
    }

    /// The thread has been told of the socket; whether it is to watch from now on.
    pub(crate) fn on_event(&mut self, socket: BorrowedFd<'_>, queues: &Queues) -> bool {
        self.armed = None;
        let starts =
            !self.watched && self.polls_since_armed(queues) >= POLLS_OF_A_POLLER && !queues.has_sleeper();
        if starts {
            self.watch(socket, queues);
            // Who went to sleep meanwhile has found nothing to hand over.
            self.watched = !queues.has_sleeper();
        }
        self.watched && starts
    }

    /// The thread looks.
    pub(crate) fn on_look(&mut self, queues: &Queues) -> Look {
        if !self.watched {
            return Look::Unwatched;
        }
        let polls = self.polls(queues);
        if std::mem::replace(&mut self.polls_when_looked, polls) != polls {
            return Look::Polled;
        }
        self.watched = false;
        Look::Left
    }

    /// Whoever polled is about to sleep; whether something is to be done about that.
    pub(crate) fn hand_over(&mut self) -> bool {
        std::mem::take(&mut self.watched)
    }

    /// Sees to it that whatever comes next is found. A poller does not read on behind a message that waits for a receive
    /// (`rnr`), so it would not find that the peer has closed: then the thread is to be told of it. It is told of room to
    /// send if that is what the connection waits for (`blocked`).
    #[inline]
    pub(crate) fn settle(&mut self, socket: BorrowedFd<'_>, queues: &Queues, rnr: bool, blocked: bool) {
        let reactor = &queues.shared.reactor;
        if !self.listed && queues.shared.is_crowded() {
            self.listed = true;
            self.has_place = queues.shared.news.list(socket, queues.num);
        }
        if self.watched && !rnr {
            if self.armed.take().is_some() {
                reactor.disarm(socket);
            }
            return;
        }
        let mut wanted = EventFlags::ONESHOT | EventFlags::RDHUP;
        wanted.set(EventFlags::IN, !rnr);
        wanted.set(EventFlags::OUT, blocked);
        if self.armed != Some(wanted) {
            self.armed = Some(wanted);
            self.polls_when_armed = self.polls(queues);
            reactor.arm(socket, queues.num, wanted);
        }
    }

    /// Something has come in a poll, and the next ones look here, too.
    #[inline]
    pub(crate) fn on_news(&mut self, socket: BorrowedFd<'_>, queues: &Queues) {
        if self.has_place && self.streak < POLLS_TO_MUTE {
            self.streak += 1;
            if self.streak == POLLS_TO_MUTE {
                queues.shared.news.mute(socket);
            }
        }
    }

    /// The next poll looks here only if it is told of the socket.
    #[inline]
    pub(crate) fn on_calm(&mut self, socket: BorrowedFd<'_>, queues: &Queues) {
        let streak = std::mem::take(&mut self.streak);
        if streak == POLLS_TO_MUTE && !queues.shared.news.unmute(socket, queues.num) {
            self.has_place = false;
            queues.shared.news.unlist(socket);
        }
    }

    /// Nobody is to look any more.
    pub(crate) fn leave(&self, socket: BorrowedFd<'_>, shared: &Shared) {
        shared.reactor.unwatch(socket);
        if self.has_place {
            shared.news.unlist(socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use verbs::QpCap;

    use super::*;
    use crate::config::IwarpConfig;
    use crate::queues::completions::Completions;
    use crate::queues::per_qp::Making;
    use nic_util::fork::ForkGuard;

    /// A connection's queue pair, and its queue of completions.
    fn queues() -> (Queues, Arc<Completions>) {
        let birth = ForkGuard::here().expect("handlers");
        let shared =
            Arc::new(Shared::new(&host::real::host(), birth, &IwarpConfig::default()).expect("descriptors"));
        let ring = Arc::new(Completions::new(&shared, 0, 16, None));
        let making = Making {
            num: 1,
            pd: 1,
            cap: QpCap::default(),
            sq_sig_all: false,
            known_as: None,
            send_ring: ring.clone(),
            recv_ring: ring.clone(),
            srq: None,
        };
        (Queues::new(&shared, making).expect("queues"), ring)
    }

    /// Goal: the thread does not leave a connection to a poller that has gone to sleep. Method: polls, then something comes, with and
    /// without a sleeper on the completion queue. A sleeper found nothing to hand over, as the socket was armed: if the thread watched, the
    /// rest of what comes would wait for its next look.
    #[test]
    fn what_comes_for_a_sleeper_that_has_polled_is_heard() {
        let (queues, ring) = queues();
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().expect("sockets");
        for sleeps in [false, true, false] {
            let mut attention = Attention::default();
            attention.settle(socket.as_fd(), &queues, false, false);
            (0..POLLS_TO_TAKE_OVER - 1).for_each(|_| queues.count_poll());
            attention.on_poll(socket.as_fd(), &queues);
            if sleeps {
                ring.bell().announce();
                assert!(!attention.hand_over(), "the socket is armed");
            }
            assert_eq!(attention.on_event(socket.as_fd(), &queues), !sleeps);
            attention.settle(socket.as_fd(), &queues, false, false);
            assert_eq!(attention.armed.is_some(), sleeps, "the thread hears of more if nobody polls");
            if sleeps {
                ring.bell().retract();
            }
        }
    }
}
