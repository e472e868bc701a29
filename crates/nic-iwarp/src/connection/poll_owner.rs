//! Which thread polls a connection's socket: the NIC thread, when epoll(7) reports it, or a thread that polls a
//! completion queue.
//!
//! A poller reads the socket directly. epoll reports an armed socket to the NIC thread once, until it is armed again.
//! If the NIC thread then finds that another thread polls, it does not arm the socket but *watches* the connection:
//! at growing intervals of up to 1 ms it checks whether polls continue. When they have stopped, it does the pending
//! work and arms the socket. A poller that has polled for a while disarms the socket itself and asks the NIC thread
//! to watch; a poller that is about to sleep arms it. While a thread sleeps on the completion queue the NIC thread
//! does not watch: the polls that it counts may all be older.
//!
//! A thread inside a wait ([`host::Source::begin_polling`]) will poll again, but where threads share cores it may not
//! run for a while. The NIC thread leaves everything to it: it watches after the first event, does not read, and does
//! not take a pause between two polls for their end.
//!
//! So every arrival is found: by epoll if the socket is armed, else by a poller, else by the NIC thread's next check.
//! While a message waits for a receive, no thread reads further, and the socket is armed for the peer's close even
//! while it is polled. While a message waits for memory for its rest, the socket is not armed at all, except for room
//! to send: the program, which has the beginning, posts that memory and so continues. A poller leaves work undone (responses that can travel with the program's next message) only
//! on watched connections.

use std::os::fd::BorrowedFd;

use rustix::event::epoll::EventFlags;

use crate::queues::qp_queues::QpQueues;
use crate::shared::DeviceShared;

/// The NIC thread leaves a connection to a poller after this many polls since the socket was armed.
const POLLS_TO_WATCH: u32 = 8;
/// A poller disarms the socket itself after this many polls since it was armed: some tens of microseconds of polling.
const POLLS_TO_TAKE_OVER: u32 = 64;

/// The NIC thread does not rely on a thread inside a wait that has not polled during this many checks, the last of them
/// a millisecond apart: it may have been stopped by a debugger, or wait for another lock.
const CHECKS_WITHOUT_POLL_MAX: u32 = 16;

/// After this many polls with received data, each soon after the previous one, the socket is removed from the pollers'
/// epoll set: enough to pay for the system call.
const POLLS_TO_LEAVE_EPOLL: u32 = 16;

/// The result of the NIC thread's check of a watched connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollCheck {
    /// Polls continue.
    Polled,
    /// Polls have stopped: the NIC thread must do the pending work now.
    Stopped,
    /// The connection is no longer watched.
    Unwatched,
}

/// What the NIC thread does about an event of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventUse {
    /// It does the work, and arms the socket again.
    Work,
    /// It does the work, and watches from now on.
    WorkAndWatch,
    /// It only watches: a thread inside a wait does the work.
    Watch,
}

/// The events of a socket that a connection needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedEvents {
    /// Data: not while a message waits for a receive, or for memory for its rest.
    pub(crate) data: bool,
    /// The peer's close: not while a message waits for memory for its rest, which the program is about to post. Everything before the
    /// close is then read first.
    pub(crate) close: bool,
    /// Room to send.
    pub(crate) room: bool,
}

/// Which thread polls a connection's socket.
#[derive(Default)]
pub(crate) struct PollOwner {
    /// The events for which epoll is armed; `None` once it has reported them.
    armed: Option<EventFlags>,
    /// The NIC thread watches the connection, because another thread polls it.
    watched: bool,
    polls_when_armed: u32,
    polls_when_checked: u32,
    /// Consecutive checks that found a poller inside a wait, but no poll.
    checks_without_poll: u32,
    /// The socket is in the pollers' epoll set: see [`crate::wake::ready`]. Then each of their polls counts for this
    /// connection.
    listed: bool,
    /// The kernel had memory to add it to that set.
    in_epoll_set: bool,
    /// Number of consecutive polls with received data; the socket leaves the epoll set at
    /// [`POLLS_TO_LEAVE_EPOLL`].
    data_streak: u32,
}

impl PollOwner {
    /// Whether work that a poller leaves undone will be done soon: the NIC thread watches, and the next poll includes
    /// the connection without an event, because it is not listed or it is `warm`.
    #[inline]
    pub(crate) fn may_defer_work(&self, warm: bool) -> bool {
        self.watched && (!self.listed || warm)
    }

    /// Whether polls include the connection only on an epoll event or when it asks for it.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed
    }

    fn poll_count(&self, queues: &QpQueues) -> u32 {
        let set_polls = if self.listed { queues.shared.ready_set.poll_count() } else { 0 };
        queues.poll_count().wrapping_add(set_polls)
    }

    fn polls_since_armed(&self, queues: &QpQueues) -> u32 {
        self.poll_count(queues).wrapping_sub(self.polls_when_armed)
    }

    /// Starts watching, because another thread polls.
    fn start_watching(&mut self, socket: BorrowedFd<'_>, queues: &QpQueues) {
        self.watched = true;
        self.checks_without_poll = 0;
        self.polls_when_checked = self.poll_count(queues);
        queues.shared.reactor.disarm(socket);
        queues.record_watched();
    }

    /// Records a poll. If polls continue, the NIC thread needs no events of the socket and only watches the polls.
    #[inline]
    pub(crate) fn on_poll(&mut self, socket: BorrowedFd<'_>, queues: &QpQueues) {
        if !self.watched && self.polls_since_armed(queues) >= POLLS_TO_TAKE_OVER {
            self.armed = None;
            self.start_watching(socket, queues);
            queues.shared.reactor.request_watch(queues.num);
        }
    }

    /// Handles epoll's report of the socket to the NIC thread.
    pub(crate) fn on_event(&mut self, socket: BorrowedFd<'_>, queues: &QpQueues) -> EventUse {
        self.armed = None;
        let (is_watched, waits) = (self.watched, queues.has_poller());
        let polls = waits || self.polls_since_armed(queues) >= POLLS_TO_WATCH;
        if !is_watched && polls && !queues.has_sleeper() {
            self.start_watching(socket, queues);
            // A thread that went to sleep in between has found nothing to hand over.
            self.watched = !queues.has_sleeper();
        }
        match (self.watched && !is_watched, waits) {
            (false, _) => EventUse::Work,
            (true, false) => EventUse::WorkAndWatch,
            (true, true) => EventUse::Watch,
        }
    }

    /// Checks for the NIC thread whether polls continue. A thread inside a wait is expected to poll again, even if it
    /// has lost its core meanwhile.
    pub(crate) fn check_polls(&mut self, queues: &QpQueues) -> PollCheck {
        if !self.watched {
            return PollCheck::Unwatched;
        }
        let polls = self.poll_count(queues);
        let has_polled = std::mem::replace(&mut self.polls_when_checked, polls) != polls;
        self.checks_without_poll = if has_polled { 0 } else { self.checks_without_poll + 1 };
        if has_polled || (queues.has_poller() && self.checks_without_poll < CHECKS_WITHOUT_POLL_MAX) {
            return PollCheck::Polled;
        }
        self.watched = false;
        PollCheck::Stopped
    }

    /// The poller is about to sleep; returns whether the connection was watched, so that work may be pending.
    pub(crate) fn hand_over_to_nic_thread(&mut self) -> bool {
        std::mem::take(&mut self.watched)
    }

    /// Ensures that these events are noticed. A poller does not read past a message that waits for a receive, so it would
    /// miss the peer's close: the NIC thread is then notified of it.
    #[inline]
    pub(crate) fn ensure_notified(
        &mut self,
        socket: BorrowedFd<'_>,
        queues: &QpQueues,
        WantedEvents { data, close, room }: WantedEvents,
    ) {
        let reactor = &queues.shared.reactor;
        if !self.listed && queues.shared.has_many_connections() {
            self.listed = true;
            self.in_epoll_set = queues.shared.ready_set.add(socket, queues.num);
        }
        if self.watched && (data || !close) {
            if self.armed.take().is_some() {
                reactor.disarm(socket);
            }
            return;
        }
        let mut wanted = EventFlags::ONESHOT;
        wanted.set(EventFlags::IN, data);
        wanted.set(EventFlags::RDHUP, close);
        wanted.set(EventFlags::OUT, room);
        if self.armed != Some(wanted) {
            self.armed = Some(wanted);
            self.polls_when_armed = self.poll_count(queues);
            reactor.arm(socket, queues.num, wanted);
        }
    }

    /// A poll received data, and the next polls include this connection, too.
    #[inline]
    pub(crate) fn on_poll_data(&mut self, socket: BorrowedFd<'_>, queues: &QpQueues) {
        if self.in_epoll_set && self.data_streak < POLLS_TO_LEAVE_EPOLL {
            self.data_streak += 1;
            if self.data_streak == POLLS_TO_LEAVE_EPOLL {
                queues.shared.ready_set.remove_from_epoll(socket);
            }
        }
    }

    /// From now on polls include this connection only on an epoll event.
    #[inline]
    pub(crate) fn on_poll_idle(&mut self, socket: BorrowedFd<'_>, queues: &QpQueues) {
        let data_streak = std::mem::take(&mut self.data_streak);
        if data_streak == POLLS_TO_LEAVE_EPOLL && !queues.shared.ready_set.add_to_epoll(socket, queues.num) {
            self.in_epoll_set = false;
            queues.shared.ready_set.remove(socket);
        }
    }

    /// Stops all polling of the socket.
    pub(crate) fn stop(&self, socket: BorrowedFd<'_>, shared: &DeviceShared) {
        shared.reactor.unwatch(socket);
        if self.in_epoll_set {
            shared.ready_set.remove(socket);
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
    use crate::queues::qp_queues::QpParams;
    use nic_util::fork::ForkGuard;

    const ANY_DATA: WantedEvents = WantedEvents { data: true, close: true, room: false };

    /// The queues of a queue pair, and its completion queue.
    fn queues() -> (QpQueues, Arc<Completions>) {
        let fork_guard = ForkGuard::current().expect("handlers");
        let shared = Arc::new(
            DeviceShared::new(&host::real::host(), fork_guard, &IwarpConfig::default()).expect("descriptors"),
        );
        let ring = Arc::new(Completions::new(&shared, 0, 16, None));
        let params = QpParams {
            num: 1,
            pd: 1,
            cap: QpCap::default(),
            sq_sig_all: false,
            reported_qp_num: None,
            send_ring: ring.clone(),
            recv_ring: ring.clone(),
            srq: None,
            splits: false,
        };
        (QpQueues::new(&shared, params).expect("queues"), ring)
    }

    /// Goal: the NIC thread does not leave a connection to a poller that has gone to sleep. Method: polls, then an
    /// event, with and without a sleeper on the completion queue. The sleeper found nothing to hand over, because the
    /// socket was armed: if the thread watched, later data would wait for its next check.
    #[test]
    fn data_for_sleeping_poller_wakes_thread() {
        let (queues, ring) = queues();
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().expect("sockets");
        for sleeps in [false, true, false] {
            let mut poll_owner = PollOwner::default();
            poll_owner.ensure_notified(socket.as_fd(), &queues, ANY_DATA);
            (0..POLLS_TO_TAKE_OVER - 1).for_each(|_| queues.count_poll());
            poll_owner.on_poll(socket.as_fd(), &queues);
            if sleeps {
                ring.wakeup().prepare_to_wait();
                assert!(!poll_owner.hand_over_to_nic_thread(), "the socket is armed");
            }
            let used = if sleeps { EventUse::Work } else { EventUse::WorkAndWatch };
            assert_eq!(poll_owner.on_event(socket.as_fd(), &queues), used);
            poll_owner.ensure_notified(socket.as_fd(), &queues, ANY_DATA);
            assert_eq!(poll_owner.armed.is_some(), sleeps, "the socket is armed unless a thread polls");
            if sleeps {
                ring.wakeup().finish_wait();
            }
        }
    }

    /// Goal: the NIC thread leaves a connection to a thread inside a wait from the first event on, however long that
    /// thread waits for its core, but not for ever. Method: events and checks without a poll, with and without a
    /// waiting thread, which sleeps in one case.
    #[test]
    fn nic_thread_leaves_work_to_thread_inside_wait() {
        let (queues, ring) = queues();
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().expect("sockets");
        for (waits, sleeps) in [(false, false), (true, true), (true, false)] {
            let mut poll_owner = PollOwner::default();
            poll_owner.ensure_notified(socket.as_fd(), &queues, ANY_DATA);
            if waits {
                ring.begin_polling();
            }
            if sleeps {
                ring.wakeup().prepare_to_wait();
            }
            let used = poll_owner.on_event(socket.as_fd(), &queues);
            let checks = (0..).take_while(|_| poll_owner.check_polls(&queues) == PollCheck::Polled).count();
            if waits && !sleeps {
                assert_eq!(used, EventUse::Watch);
                assert_eq!(checks, CHECKS_WITHOUT_POLL_MAX as usize - 1, "then the thread does the work");
                assert_eq!(poll_owner.check_polls(&queues), PollCheck::Unwatched);
            } else {
                assert_eq!((used, checks), (EventUse::Work, 0), "waits {waits}, sleeps {sleeps}");
            }
            if sleeps {
                ring.wakeup().finish_wait();
            }
            if waits {
                ring.end_polling();
            }
        }
        assert!(!ring.has_poller());
    }
}
