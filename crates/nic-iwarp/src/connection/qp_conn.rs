//! Data path: the connection of a queue pair, protected by the queue pair's combining lock.
//!
//! One thread at a time works on a connection: the poster, the poller, or the NIC thread. This file defines what each
//! does when it holds the lock; `active_conn` implements the connection itself.

use host::{Span, Time};

use crate::connection::active_conn::ActiveConn;
use crate::connection::end_reason::EndReason;
use crate::connection::poll_owner::{EventUse, PollCheck};
use crate::queues::qp_queues::{QpQueues, state};
use crate::wake::ready::Driver;

/// The connection of a queue pair, if there is one.
#[derive(Default)]
pub(crate) struct QpConn {
    active: Option<Box<ActiveConn>>,
    /// There is or was a connection.
    was_started: bool,
}

impl QpConn {
    /// Starts a connection.
    pub(crate) fn begin(&mut self, queues: &QpQueues, active: ActiveConn) {
        self.active = Some(Box::new(active));
        self.was_started = true;
        self.announce_rnr_limit(queues);
        self.progress(queues, Driver::Other);
    }

    /// Announces the program's RNR retry limit to the peer, if the program has set one.
    pub(crate) fn announce_rnr_limit(&mut self, queues: &QpQueues) {
        if let (Some(active), Some(retries)) = (&mut self.active, queues.rnr_retry()) {
            active.announce_rnr_limit(retries);
        }
    }

    /// Whether there is or was a connection.
    pub(crate) fn was_started(&self) -> bool {
        self.was_started
    }

    /// Receives what has arrived and sends what is queued.
    #[inline]
    pub(crate) fn progress(&mut self, queues: &QpQueues, driver: Driver) {
        self.run_active(queues, |active| active.progress(queues, driver));
    }

    /// Runs `body` on the connection, if there is one, and then continues or ends it.
    #[inline]
    fn run_active(&mut self, queues: &QpQueues, body: impl FnOnce(&mut ActiveConn) -> Result<(), EndReason>) {
        let Some(active) = &mut self.active else { return };
        queues.mark_in_use();
        let end = match body(active) {
            Ok(()) => return active.ensure_notified(queues),
            // The reason may still be in the data received before the end.
            Err(EndReason::Broken(errno)) => active.receive(queues).err().unwrap_or(EndReason::Broken(errno)),
            Err(end) => end,
        };
        self.end(queues, &end);
    }

    /// Processes newly posted work.
    #[inline]
    pub(crate) fn on_posted(&mut self, queues: &QpQueues) {
        if queues.state() == state::ERROR {
            return queues.flush(None);
        }
        let Some(active) = &self.active else { return };
        if active.is_rnr() || active.awaits_rest() {
            self.progress(queues, Driver::Other);
        } else if !active.holds_back(queues) {
            self.run_active(queues, |active| active.transmit(queues));
        }
    }

    /// Handles epoll's report of the socket to the NIC thread; returns whether the thread starts to watch.
    pub(crate) fn on_event(&mut self, queues: &QpQueues, hung_up: bool) -> bool {
        let Some(active) = &mut self.active else { return false };
        let used = active.on_event(queues);
        if hung_up && active.is_rnr() {
            // Messages before the end of the stream can no longer be received.
            self.end(queues, &EndReason::Closed);
            return false;
        }
        // A poller does not read past a message that waits for a receive.
        if used != EventUse::Watch || hung_up || active.is_rnr() {
            self.progress(queues, Driver::Other);
        }
        used != EventUse::Work && self.active.is_some()
    }

    /// The NIC thread checks a watched connection; returns whether to keep watching.
    pub(crate) fn check_polls(&mut self, queues: &QpQueues) -> bool {
        let Some(active) = &mut self.active else { return false };
        let check = active.poll_owner().check_polls(queues);
        if check == PollCheck::Stopped {
            self.progress(queues, Driver::Other);
        }
        check == PollCheck::Polled
    }

    /// The poller is about to sleep.
    pub(crate) fn hand_over_to_nic_thread(&mut self, queues: &QpQueues) {
        if self.active.as_mut().is_some_and(|active| active.poll_owner().hand_over_to_nic_thread()) {
            self.progress(queues, Driver::Other);
        }
    }

    /// A timer has expired.
    pub(crate) fn on_timer(&mut self, queues: &QpQueues, now: Time) {
        self.run_active(queues, |active| active.on_timer(queues, now));
    }

    /// The NIC thread checks that the peer's host still acknowledges, and ends the connection if it has been silent
    /// for too long.
    pub(crate) fn check_keepalive(&mut self, queues: &QpQueues, now: Time, silence: Span) {
        if let Some(active) = &mut self.active
            && let Err(end) = active.check_keepalive(now, silence)
        {
            self.end(queues, &end);
        }
    }

    /// The peer has sent its first message, or need not.
    pub(crate) fn ready(&mut self, queues: &QpQueues) {
        if let Some(active) = &mut self.active {
            active.ready(queues);
        }
    }

    /// Moves to the error state and ends the connection, if there is one: reports the end and flushes the queues.
    pub(crate) fn end(&mut self, queues: &QpQueues, end: &EndReason) {
        queues.mark_in_use();
        let is_first = queues.set_error();
        match self.active.take() {
            Some(active) => active.end(queues, end),
            None => queues.flush(None),
        }
        if is_first {
            queues.report_last_receive();
        }
    }
}
