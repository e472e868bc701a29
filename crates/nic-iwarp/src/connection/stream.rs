//! Data path: the connection of a queue pair, protected by the queue pair's combining lock.
//!
//! One thread at a time works on a connection: the poster, the poller, or the NIC thread. This file defines what each
//! does when it holds the lock; `link` implements the connection itself.

use host::{Span, Time};

use crate::connection::end_reason::EndReason;
use crate::connection::link::Link;
use crate::connection::poll_owner::PollCheck;
use crate::queues::per_qp::{Queues, state};
use crate::wake::ready::Driver;

/// The connection of a queue pair, if there is one.
#[derive(Default)]
pub(crate) struct Stream {
    link: Option<Box<Link>>,
    /// There is or was a connection.
    began: bool,
}

impl Stream {
    /// Starts a connection.
    pub(crate) fn begin(&mut self, queues: &Queues, link: Link) {
        self.link = Some(Box::new(link));
        self.began = true;
        self.announce_rnr_limit(queues);
        self.progress(queues, Driver::Other);
    }

    /// Announces the program's RNR retry limit to the peer, if the program has set one.
    pub(crate) fn announce_rnr_limit(&mut self, queues: &Queues) {
        if let (Some(link), Some(retries)) = (&mut self.link, queues.rnr_retry()) {
            link.announce_rnr_limit(retries);
        }
    }

    /// Whether there is or was a connection.
    pub(crate) fn began(&self) -> bool {
        self.began
    }

    /// Receives what has arrived and sends what is queued.
    #[inline]
    pub(crate) fn progress(&mut self, queues: &Queues, driver: Driver) {
        self.work(queues, |link| link.progress(queues, driver));
    }

    /// Runs `body` on the connection, if there is one, and then continues or ends it.
    #[inline]
    fn work(&mut self, queues: &Queues, body: impl FnOnce(&mut Link) -> Result<(), EndReason>) {
        let Some(link) = &mut self.link else { return };
        queues.mark_in_use();
        let end = match body(link) {
            Ok(()) => return link.settle(queues),
            // The reason may still be in the data received before the end.
            Err(EndReason::Broken(errno)) => link.receive(queues).err().unwrap_or(EndReason::Broken(errno)),
            Err(end) => end,
        };
        self.end(queues, &end);
    }

    /// Processes newly posted work.
    #[inline]
    pub(crate) fn on_posted(&mut self, queues: &Queues) {
        if queues.state() == state::ERROR {
            return queues.flush(None);
        }
        let Some(link) = &self.link else { return };
        if link.is_rnr() {
            self.progress(queues, Driver::Other);
        } else if !link.holds_back(queues) {
            self.work(queues, |link| link.transmit(queues));
        }
    }

    /// Handles epoll's report of the socket to the NIC thread; returns whether the thread starts to watch.
    pub(crate) fn on_event(&mut self, queues: &Queues, hung_up: bool) -> bool {
        let Some(link) = &mut self.link else { return false };
        let starts = link.on_event(queues);
        if hung_up && link.is_rnr() {
            // Messages before the end of the stream can no longer be received.
            self.end(queues, &EndReason::Closed);
            return false;
        }
        self.progress(queues, Driver::Other);
        starts && self.link.is_some()
    }

    /// The NIC thread checks a watched connection; returns whether to keep watching.
    pub(crate) fn check_polls(&mut self, queues: &Queues) -> bool {
        let Some(link) = &mut self.link else { return false };
        let check = link.poll_owner().check_polls(queues);
        if check == PollCheck::Stopped {
            self.progress(queues, Driver::Other);
        }
        check == PollCheck::Polled
    }

    /// The poller is about to sleep.
    pub(crate) fn hand_over(&mut self, queues: &Queues) {
        if self.link.as_mut().is_some_and(|link| link.poll_owner().hand_over()) {
            self.progress(queues, Driver::Other);
        }
    }

    /// A timer has expired.
    pub(crate) fn on_timer(&mut self, queues: &Queues, now: Time) {
        self.work(queues, |link| link.on_timer(queues, now));
    }

    /// The NIC thread checks that the peer's host still acknowledges, and ends the connection if it has been silent
    /// for too long.
    pub(crate) fn check_keepalive(&mut self, queues: &Queues, now: Time, silence: Span) {
        if let Some(link) = &mut self.link
            && let Err(end) = link.check_keepalive(now, silence)
        {
            self.end(queues, &end);
        }
    }

    /// The peer has sent its first message, or need not.
    pub(crate) fn ready(&mut self, queues: &Queues) {
        if let Some(link) = &mut self.link {
            link.ready(queues);
        }
    }

    /// Moves to the error state and ends the connection, if there is one: reports the end and flushes the queues.
    pub(crate) fn end(&mut self, queues: &Queues, end: &EndReason) {
        queues.mark_in_use();
        let is_first = queues.set_error();
        match self.link.take() {
            Some(link) => link.end(queues, end),
            None => queues.flush(None),
        }
        if is_first {
            queues.report_last_receive();
        }
    }
}
