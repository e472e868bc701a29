//! Data path: what holding the stage of a queue pair gives: its connection, if there is one.
//!
//! A connection is worked on by one thread at a time: by whoever posts, by whoever polls, and by the device's thread. What is
//! done when whose turn comes is said here; how the connection does it, in `link`.

use host::{Span, Time};

use crate::connection::end::End;
use crate::connection::link::Link;
use crate::connection::poll_owner::Look;
use crate::queues::per_qp::{Queues, state};
use crate::wake::ready::By;

/// The connection of a queue pair, if there is one.
#[derive(Default)]
pub(crate) struct Stream {
    link: Option<Box<Link>>,
    /// There is or was a connection.
    began: bool,
}

impl Stream {
    /// Takes a connection in.
    pub(crate) fn begin(&mut self, queues: &Queues, link: Link) {
        self.link = Some(Box::new(link));
        self.began = true;
        self.announce_rnr_limit(queues);
        self.progress(queues, By::Other);
    }

    /// Announces the program's limit of retries to the peer, if the program has set one.
    pub(crate) fn announce_rnr_limit(&mut self, queues: &Queues) {
        if let (Some(link), Some(retries)) = (&mut self.link, queues.rnr_retry()) {
            link.announce_rnr_limit(retries);
        }
    }

    /// Whether there is or was a connection.
    pub(crate) fn began(&self) -> bool {
        self.began
    }

    /// Receives what has come and sends what waits.
    #[inline]
    pub(crate) fn progress(&mut self, queues: &Queues, by: By) {
        self.work(queues, |link| link.progress(queues, by));
    }

    /// Does something with the connection, if there is one, and sees to it that it goes on or ends.
    #[inline]
    fn work(&mut self, queues: &Queues, body: impl FnOnce(&mut Link) -> Result<(), End>) {
        let Some(link) = &mut self.link else { return };
        queues.enter();
        let end = match body(link) {
            Ok(()) => return link.settle(queues),
            // Why may still stand in what came before the end.
            Err(End::Broken(errno)) => link.receive(queues).err().unwrap_or(End::Broken(errno)),
            Err(end) => end,
        };
        self.end(queues, &end);
    }

    /// What was published since is worked off: something was posted.
    #[inline]
    pub(crate) fn asked(&mut self, queues: &Queues) {
        if queues.state() == state::ERROR {
            return queues.flush(None);
        }
        let Some(link) = &self.link else { return };
        if link.is_rnr() {
            self.progress(queues, By::Other);
        } else if !link.holds_back(queues) {
            self.work(queues, |link| link.transmit(queues));
        }
    }

    /// The thread has been told of the socket; whether it is to watch from now on.
    pub(crate) fn on_event(&mut self, queues: &Queues, hung_up: bool) -> bool {
        let Some(link) = &mut self.link else { return false };
        let starts = link.on_event(queues);
        if hung_up && link.is_rnr() {
            // What stands before the end cannot be received any more by anybody.
            self.end(queues, &End::Closed);
            return false;
        }
        self.progress(queues, By::Other);
        starts && self.link.is_some()
    }

    /// The thread looks at a connection that it watches; whether it goes on doing so.
    pub(crate) fn on_look(&mut self, queues: &Queues) -> bool {
        let Some(link) = &mut self.link else { return false };
        let look = link.attention().on_look(queues);
        if look == Look::Left {
            self.progress(queues, By::Other);
        }
        look == Look::Polled
    }

    /// Whoever polled is about to sleep.
    pub(crate) fn hand_over(&mut self, queues: &Queues) {
        if self.link.as_mut().is_some_and(|link| link.attention().hand_over()) {
            self.progress(queues, By::Other);
        }
    }

    /// A time has come that somebody waited for.
    pub(crate) fn on_time(&mut self, queues: &Queues, now: Time) {
        self.work(queues, |link| link.on_time(queues, now));
    }

    /// The thread looks whether the peer's host still answers, and ends the connection if it has not for too long.
    pub(crate) fn on_patrol(&mut self, queues: &Queues, now: Time, silence: Span) {
        if let Some(link) = &mut self.link
            && let Err(end) = link.on_patrol(now, silence)
        {
            self.end(queues, &end);
        }
    }

    /// The peer has spoken for the first time, or need not.
    pub(crate) fn ready(&mut self, queues: &Queues) {
        if let Some(link) = &mut self.link {
            link.ready(queues);
        }
    }

    /// Ends the connection, if there is one: everybody is told, everything is flushed.
    pub(crate) fn end(&mut self, queues: &Queues, end: &End) {
        queues.enter();
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
