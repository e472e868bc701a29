//! [`Hub`]: a process's connections with several others, on one pair of completion queues. It waits without holding the
//! core, because processes may outnumber cores.
//!
//! A message is anything that consumes a receive: an empty send, a write with immediate data, or, if receives have
//! memory, a send.

use verbs::host::{Span, Time};
use verbs::{Pd, RecvWr, SendOp, SendWr, Sge};

use super::edge::Edge;
use super::endpoint::{Depth, Endpoint, check, join};
use crate::experiment::{Fault, Session};

/// Receives always posted on each connection, and requests that may be in flight.
const DEPTH: Depth = Depth::new(16, 8);
/// Round trips; the median counts.
const TRIALS: usize = 200;

/// Connections by number.
pub(crate) struct Hub {
    links: Vec<Endpoint>,
    /// Receive buffers for messages of each connection; empty if messages have no contents.
    sinks: Vec<Sge>,
}

impl Hub {
    /// Creates `links` unconnected connections, with receives posted.
    pub(crate) fn create(pd: &Pd, links: usize) -> Result<Self, Fault> {
        Self::with_sinks(pd, links, Vec::new())
    }

    /// As `new`, but the messages of each connection have their own receive buffer, unless `sinks` is empty.
    pub(crate) fn with_sinks(pd: &Pd, links: usize, sinks: Vec<Sge>) -> Result<Self, Fault> {
        let hub = Self { links: Endpoint::several(pd, DEPTH, links)?, sinks };
        for link in 0..hub.links.len() {
            (0..DEPTH.recv).try_for_each(|_| hub.repost_receive(link))?;
        }
        Ok(hub)
    }

    /// Makes the connection of an edge as number `link` of this hub, or helps others to.
    pub(crate) fn join(
        &mut self,
        session: &mut Session<'_>,
        edge: Edge,
        link: Option<usize>,
    ) -> Result<(), Fault> {
        join(session, edge, link.and_then(|number| self.links.get_mut(number)))
    }

    /// Posts a signaled request.
    pub(crate) fn post(&self, link: usize, op: SendOp, sges: &[Sge]) -> Result<(), Fault> {
        Ok(self.links[link].qp.post_send(&SendWr::new(link as u64, op, sges))?)
    }

    /// Sends an empty message.
    pub(crate) fn send_empty(&self, link: usize) -> Result<(), Fault> {
        self.post(link, SendOp::Send, &[])
    }

    /// Waits until `count` posted requests have completed.
    pub(crate) fn wait_requests(&self, count: usize, deadline: Option<Time>) -> Result<(), Fault> {
        (0..count).try_for_each(|_| check(self.links[0].send_cq.wait(deadline)?, "a request").map(drop))
    }

    /// Waits for a message and returns its link. The caller [reposts](Self::repost_receive) its receive off the critical path.
    pub(crate) fn wait_message(&self, deadline: Option<Time>) -> Result<usize, Fault> {
        Ok(check(self.links[0].recv_cq.wait(deadline)?, "a receive")?.wr_id as usize)
    }

    /// Posts a receive on a link, after a message has consumed one.
    pub(crate) fn repost_receive(&self, link: usize) -> Result<(), Fault> {
        let sink = self.sinks.get(link).map_or(&[][..], std::slice::from_ref);
        Ok(self.links[link].qp.post_recv(&RecvWr::new(link as u64, sink))?)
    }

    /// The time from posting an empty message to polling its completion at the other end: half the median round trip.
    /// Both ends call this; the `first` gets the result.
    pub(crate) fn one_way(&self, session: &Session<'_>, link: usize, first: bool) -> Result<Span, Fault> {
        let mut round_trips = Vec::with_capacity(TRIALS);
        for _ in 0..TRIALS {
            let (began, deadline) = (session.host.now(), session.deadline());
            if first {
                self.send_empty(link)?;
                self.wait_message(deadline)?;
                round_trips.push(session.host.now() - began);
            } else {
                self.wait_message(deadline)?;
                self.send_empty(link)?;
            }
            self.repost_receive(link)?;
            self.wait_requests(1, deadline)?;
        }
        round_trips.sort_unstable();
        Ok(round_trips.get(TRIALS / 2).map_or(Span::ZERO, |median| *median / 2))
    }
}

/// The remainder of a span without a part of it.
pub(crate) fn without(whole: Span, part: Span) -> Span {
    Span::from_ps(whole.as_ps().saturating_sub(part.as_ps()))
}
