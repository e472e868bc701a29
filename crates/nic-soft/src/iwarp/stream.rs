//! Data path: one connection. What is done when its turn comes, and how it ends.
//!
//! A connection is worked on by one thread at a time, which holds its stage: by whoever posts, by whoever polls, and by the
//! device's thread. Who polls looks at the socket without asking anybody. The thread hears of a socket by epoll(7), once,
//! until it is armed again. If it finds that somebody polls, it does not arm it but *watches* the connection: it looks, ever
//! more seldom up to once in a millisecond, whether polls go on. When they have stopped it does what is to be done and arms
//! the socket. A poller that has polled for a while disarms the socket itself and asks to be watched; one that is about to
//! sleep arms it.
//!
//! So something that comes in is always found: by epoll if the socket is armed, else by a poller, else by the thread at its
//! next look. Where a message waits for a receive nobody reads on, and the socket is armed for the peer's end even while
//! somebody polls. What a poller leaves undone (answers that can travel with the program's next message) is left only where
//! the thread watches.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use host::{Span, Time};
use iwarp::Connection;
use iwarp::outcome::blamed;
use iwarp::rx::Failure;
use iwarp::terminate::{Terminate, TerminateCode};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use verbs::{AsyncEvent, CmEvent, CmFailure, WcStatus};

use super::cm::CmInner;
use super::outcome;
use super::patrol;
use super::qp::{QpInner, state};
use super::queue::Receive;
use super::receive::Incoming;
use super::transmit::Outgoing;
use crate::fork::Fd;

/// Polls since the socket was armed that make the thread leave it to the poller.
const POLLS_OF_A_POLLER: u32 = 8;
/// Polls since then after which a poller takes the socket over by itself: some tens of microseconds of them.
const POLLS_TO_TAKE_OVER: u32 = 64;

/// After how long an initiator says something once more to a peer that has not spoken, and how often, each pause being four
/// times the one before. Linux siw may overlook what follows its reply at once, until more comes (docs/interop.md).
const NUDGE_AFTER: Span = Span::from_ms(50);
const NUDGES: u32 = 4;

/// Who works on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Somebody who polls and will do so again.
    Poller,
    /// Anybody else: nothing may be left undone.
    Other,
}

/// Why a connection ends.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// This side's program wants it.
    Asked,
    /// The peer has closed it in order.
    Closed,
    /// The peer has closed it in the middle, or it broke.
    Broken(Errno),
    /// The peer tells why.
    Terminated(Terminate),
    /// The peer broke a rule; it is told by the machine.
    Violation(Failure),
    /// The receive that a message of the peer took cannot be used.
    BadReceive,
    /// A request of this side cannot be carried out, for a reason of this side.
    Local(u64, WcStatus),
    /// The peer does not begin.
    Overdue,
    /// The completion queue overran.
    Overrun,
}

/// What holding the stage gives.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) link: Option<Box<Link>>,
    /// There is or was a connection.
    began: bool,
    /// Send requests that are over.
    pub(super) done: u64,
    /// A receive has been taken for the message under way, and which.
    pub(super) has_receive: bool,
    /// Peers' writes were placed, and nobody was woken for that yet.
    pub(super) wrote: bool,
    pub(super) receive: Receive,
}

/// A connection.
pub(super) struct Link {
    pub(super) socket: Fd,
    pub(super) connection: Connection,
    pub(super) cm: Arc<CmInner>,
    /// The program has been told that it is there.
    pub(super) established: bool,
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
    /// What epoll tells the thread of, until it has; `None` once it has.
    armed: Option<EventFlags>,
    /// The thread looks by itself, since somebody polls.
    watched: bool,
    polls_when_armed: u32,
    /// Pollers are told of the socket: see [`super::ready`].
    listed: bool,
    /// Since when the peer's host has owed an answer to something.
    unheard: Option<Time>,
    /// Nudges that are left, when the next one is due, and the pause after it.
    nudges: (u32, Time, Span),
}

impl Link {
    pub(super) fn new(
        socket: Fd,
        connection: Connection,
        cm: Arc<CmInner>,
        incoming: Incoming,
        outgoing: Outgoing,
    ) -> Self {
        Self {
            socket,
            connection,
            cm,
            established: false,
            incoming,
            outgoing,
            armed: None,
            watched: false,
            polls_when_armed: 0,
            listed: false,
            unheard: None,
            nudges: (0, Time::ZERO, NUDGE_AFTER),
        }
    }

    /// The same, of which the program has been told already.
    pub(super) fn known(mut self) -> Self {
        self.established = true;
        self
    }

    /// Whether the thread looks by itself, since somebody polls.
    pub(super) fn is_watched(&self) -> bool {
        self.watched
    }

    /// What the thread is to be told of.
    fn wanted(&self) -> EventFlags {
        let mut wanted = EventFlags::ONESHOT | EventFlags::RDHUP;
        wanted.set(EventFlags::IN, !self.incoming.is_starving());
        wanted.set(EventFlags::OUT, self.outgoing.is_blocked());
        wanted
    }

    fn arm(&mut self, qp: &QpInner) {
        let wanted = self.wanted();
        if self.armed != Some(wanted) {
            self.armed = Some(wanted);
            self.polls_when_armed = qp.polls.load(Ordering::Relaxed);
            qp.device.nic.arm(self.socket.as_fd(), qp.num, wanted);
        }
    }
}

impl Link {
    /// Sees to it that whatever comes next is found. A poller does not read on behind a message that waits for a receive,
    /// so it would not find that the peer has closed: then the thread is to be told of it.
    fn settle(&mut self, qp: &QpInner) {
        if !self.watched || self.incoming.is_starving() {
            self.arm(qp);
        } else if self.armed.take().is_some() {
            qp.device.nic.disarm(self.socket.as_fd());
        }
    }

    fn polls_since_armed(&self, qp: &QpInner) -> u32 {
        qp.polls.load(Ordering::Relaxed).wrapping_sub(self.polls_when_armed)
    }

    /// Somebody polls, and goes on doing so: the thread need not hear of the socket any more, only watch the polls.
    fn take_over(&mut self, qp: &Arc<QpInner>) {
        self.watched = true;
        self.armed = None;
        qp.device.nic.disarm(self.socket.as_fd());
        qp.device.nic.ask_to_watch(qp);
    }
}

impl Stream {
    /// Takes a connection in. With `greets`, the peer waits for a first message that nothing else would send.
    pub(super) fn begin(&mut self, qp: &Arc<QpInner>, link: Link, greets: bool) {
        self.link = Some(Box::new(link));
        self.began = true;
        qp.device.add_connected(qp);
        if greets {
            self.greet();
        }
        self.progress(qp, By::Other);
    }

    /// Whether there is or was a connection.
    pub(super) fn began(&self) -> bool {
        self.began
    }

    /// Receives what has come and sends what waits.
    pub(super) fn progress(&mut self, qp: &Arc<QpInner>, by: By) {
        let Some(link) = &mut self.link else { return };
        if by == By::Poller {
            if !link.watched && link.polls_since_armed(qp) >= POLLS_TO_TAKE_OVER {
                link.take_over(qp);
            }
            if !link.listed && qp.device.is_crowded() {
                link.listed = true;
                qp.device.nic.list(link.socket.as_fd(), qp.num);
            }
        }
        let result = match self.receive(qp) {
            Ok(any) if by == By::Poller && self.may_leave(qp, any) => Ok(()),
            Ok(_) => self.transmit(qp),
            Err(end) => Err(end),
        };
        self.conclude(qp, result);
    }

    /// Whether there is nothing to be sent, or, where `any`thing has come, nothing that cannot wait for the next poll: short
    /// answers may then travel with a message of the program.
    fn may_leave(&self, qp: &QpInner, any: bool) -> bool {
        let Some(link) = &self.link else { return true };
        let leaves = if any {
            link.incoming.owes_little()
        } else {
            link.incoming.owes_none() && !link.outgoing.wants_to_ask_idly()
        };
        link.watched && leaves && link.outgoing.is_quiet(qp)
    }

    fn conclude(&mut self, qp: &Arc<QpInner>, result: Result<(), End>) {
        let end = match result {
            Ok(()) => {
                if let Some(link) = &mut self.link {
                    link.settle(qp);
                }
                return;
            }
            // Why may still stand in what came before the end.
            Err(End::Broken(errno)) => self.receive(qp).err().unwrap_or(End::Broken(errno)),
            Err(end) => end,
        };
        self.end(qp, end);
    }

    /// What was published since is worked off: something was posted.
    pub(super) fn asked(&mut self, qp: &Arc<QpInner>) {
        if qp.state() == state::ERROR {
            return self.flush(qp, None);
        }
        let Some(link) = &self.link else { return };
        if link.incoming.is_starving() {
            self.progress(qp, By::Other);
        } else if !link.outgoing.holds_back(qp) {
            let result = self.transmit(qp);
            self.conclude(qp, result);
        }
    }

    /// The thread has been told of the socket; whether it is to watch from now on.
    pub(super) fn on_event(&mut self, qp: &Arc<QpInner>, hung_up: bool) -> bool {
        let Some(link) = &mut self.link else { return false };
        link.armed = None;
        let starts = !link.watched && link.polls_since_armed(qp) >= POLLS_OF_A_POLLER;
        if starts {
            link.watched = true;
            qp.device.nic.disarm(link.socket.as_fd());
        }
        if hung_up && link.incoming.is_starving() {
            // What stands before the end cannot be received any more by anybody.
            self.end(qp, End::Closed);
            return false;
        }
        self.progress(qp, By::Other);
        starts && self.link.is_some()
    }

    /// The thread looks at a connection that it watches; whether it goes on doing so.
    pub(super) fn on_look(&mut self, qp: &Arc<QpInner>, polls_before: u32) -> bool {
        match &mut self.link {
            Some(link) if link.watched => {
                if qp.polls.load(Ordering::Relaxed) != polls_before {
                    return true;
                }
                link.watched = false;
            }
            _ => return false,
        }
        self.progress(qp, By::Other);
        false
    }

    /// Whoever polled is about to sleep.
    pub(super) fn hand_over(&mut self, qp: &Arc<QpInner>) {
        if let Some(link) = &mut self.link
            && std::mem::take(&mut link.watched)
        {
            self.progress(qp, By::Other);
        }
    }

    /// A time has come that somebody waited for.
    pub(super) fn on_time(&mut self, qp: &Arc<QpInner>, now: Time) {
        let Some(link) = &mut self.link else { return };
        if link.connection.handle_timeout(now.since(Time::ZERO).to_std()).is_err() {
            return self.end(qp, End::Overdue);
        }
        self.nudge(qp, now);
        self.progress(qp, By::Other);
    }

    /// The peer may overlook what this side, the initiator, says first.
    pub(super) fn expect_silence(&mut self, qp: &Arc<QpInner>) {
        let Some(link) = &mut self.link else { return };
        let due = qp.device.host.now() + NUDGE_AFTER;
        link.nudges = (NUDGES, due, NUDGE_AFTER);
        qp.device.nic.at(due, qp);
    }

    /// Says something once more if it is time and nothing has been heard: a write of no bytes, which changes nothing.
    fn nudge(&mut self, qp: &Arc<QpInner>, now: Time) {
        let Some(link) = &mut self.link else { return };
        let (left, due, pause) = link.nudges;
        if left == 0 || now < due {
            return;
        }
        let pause = pause * 4;
        link.nudges =
            if link.incoming.has_heard() { (0, due, pause) } else { (left - 1, now + pause, pause) };
        let (left, due, _) = link.nudges;
        if !link.incoming.has_heard() {
            self.greet();
        }
        if left > 0 {
            qp.device.nic.at(due, qp);
        }
    }

    /// The thread looks whether the peer's host still answers, and ends the connection if it has not for too long.
    pub(super) fn on_patrol(&mut self, qp: &Arc<QpInner>, now: Time, silence: Span) {
        let Some(link) = &mut self.link else { return };
        link.unheard = patrol::unheard(link.socket.as_fd(), link.unheard, now);
        if link.unheard.is_some_and(|since| now.since(since) >= silence) {
            self.end(qp, End::Broken(Errno::TIMEDOUT));
        }
    }

    /// The peer has spoken for the first time.
    pub(super) fn ready(&mut self, qp: &QpInner) {
        if let Some(link) = &mut self.link
            && !link.established
            && qp.advance(state::RTR, state::RTS)
        {
            link.established = true;
            link.cm.push(CmEvent::Established { qp_num: qp.num, private_data: Vec::new() });
        }
    }

    /// Requests up to this one are known to have arrived.
    pub(super) fn arrived(&mut self, qp: &Arc<QpInner>, upto: u64) {
        while self.done < upto {
            self.finish_first(qp, WcStatus::Success);
        }
    }

    /// Completes the first request that is not over.
    pub(super) fn finish_first(&mut self, qp: &Arc<QpInner>, status: WcStatus) {
        let request = *qp.send.lock().get(self.done);
        let number = self.done;
        self.done += 1;
        if let Some(link) = &mut self.link {
            link.outgoing.finish(&request.op, request.len);
        }
        qp.complete_send(&request, number, status);
    }

    /// Ends the connection, if there is one: everybody is told, everything is flushed.
    pub(super) fn end(&mut self, qp: &Arc<QpInner>, end: End) {
        qp.set_error();
        if self.link.is_none() {
            return self.flush(qp, None);
        }
        self.starve_no_more(qp);
        let rest = match &end {
            // Nobody hears it.
            End::Closed | End::Broken(_) | End::Terminated(_) => None,
            End::BadReceive => Some(self.last_words(qp, Some(TerminateCode::STREAM_CATASTROPHIC))),
            End::Local(..) | End::Overrun => {
                Some(self.last_words(qp, Some(TerminateCode::RDMAP_CATASTROPHIC)))
            }
            End::Asked | End::Violation(_) | End::Overdue => Some(self.last_words(qp, None)),
        };
        let failed = self.failing(qp, &end);
        let received = match &end {
            End::BadReceive => WcStatus::LocProtErr,
            End::Violation(failure) if failure.terminate.code == TerminateCode::UNTAGGED_TOO_LONG => {
                WcStatus::LocLenErr
            }
            _ => WcStatus::WrFlushErr,
        };
        if std::mem::take(&mut self.has_receive) {
            qp.fail_receive(self.receive.wr_id, received);
        }
        self.flush(qp, failed);
        self.part(qp, &end, rest);
    }

    /// Which request fails by itself, and how. Those before it that are known to have arrived are completed.
    fn failing(&mut self, qp: &Arc<QpInner>, end: &End) -> Option<(u64, WcStatus)> {
        let begun = self.link.as_ref().is_some_and(|link| link.outgoing.next > self.done);
        match end {
            End::Local(number, status) => Some((*number, *status)),
            End::Broken(_) => begun.then_some((self.done, WcStatus::RetryExcErr)),
            End::Terminated(terminate) => self.blame(qp, terminate),
            _ => None,
        }
    }

    fn blame(&mut self, qp: &Arc<QpInner>, terminate: &Terminate) -> Option<(u64, WcStatus)> {
        let link = self.link.as_ref()?;
        let open = link.outgoing.open(qp, self.done);
        let arrived = link.outgoing.arrived(link.connection.receipt(), &open);
        // The Terminate itself proves nothing.
        self.arrived(qp, self.done + arrived as u64);
        let open = &open[arrived..];
        let number = blamed(terminate, open)?.number;
        Some((number, outcome::status(terminate.code, &qp.send.lock().get(number).op)))
    }

    /// Lets go of the connection, and tells the program.
    fn part(&mut self, qp: &QpInner, end: &End, rest: Option<Vec<u8>>) {
        let Some(link) = self.link.take() else { return };
        let device = &qp.device;
        device.forget_connected(qp);
        device.nic.unwatch(link.socket.as_fd());
        if link.listed {
            device.nic.unlist(link.socket.as_fd());
        }
        match end {
            End::Violation(failure) if failure.terminate.code.is_protection() => {
                device.async_event(AsyncEvent::QpAccessError { qp_num: qp.num });
            }
            End::Violation(Failure { terminate }) | End::Terminated(terminate) => {
                device.async_event(AsyncEvent::QpFatal { qp_num: qp.num, why: terminate.code.name() });
            }
            _ => {}
        }
        if !qp.is_dropped() {
            link.cm.push(match (link.established, end) {
                (true, _) => CmEvent::Disconnected { qp_num: qp.num },
                (false, end) => CmEvent::ConnectFailed { qp_num: qp.num, why: end.before_it_began() },
            });
        }
        if let Some(rest) = rest {
            device.nic.linger(device, link.socket, rest);
        }
    }

    /// Completes everything that waits. `failed` is the request that failed by itself.
    fn flush(&mut self, qp: &Arc<QpInner>, failed: Option<(u64, WcStatus)>) {
        while self.done < qp.send.lock().posted() {
            let own = failed.filter(|(number, _)| *number == self.done);
            self.finish_first(qp, own.map_or(WcStatus::WrFlushErr, |(_, status)| status));
        }
        while qp.take_own_receive(&mut self.receive) {
            qp.fail_receive(self.receive.wr_id, WcStatus::WrFlushErr);
        }
    }
}

impl End {
    /// The same for a connection that the program has not been told of.
    fn before_it_began(&self) -> CmFailure {
        match self {
            Self::Overdue => CmFailure::TimedOut,
            Self::Violation(failure) => CmFailure::Protocol(failure.to_string()),
            Self::Terminated(terminate) => CmFailure::Protocol(terminate.code.to_string()),
            _ => CmFailure::PeerGone,
        }
    }
}
