//! [`Traffic`]: messages by send and receive over several connections, from and to several buffers, in several
//! segments. Shared by reuse, connections, maxsge, segments and mtu, which all measure the same two things: latency
//! and bandwidth.
//!
//! Each direction counts its messages: message n goes over connection n modulo their number, from and to the buffer
//! that the [`Order`] names. Every request is signaled, all completions arrive in one pair of queues, nothing is
//! inline.

use results::variant::{Variant, factor, variant};
use verbs::host::{Host, Time};
use verbs::{Buf, Mr, Pd, RecvWr, SendOp, SendWr, Sge};

use super::stream::burst;
use crate::experiment::harness::edge::meet;
use crate::experiment::harness::endpoint::{Depth, Endpoint, check, join_all, register};
use crate::experiment::harness::pattern;
use crate::experiment::harness::timing::sample;
use crate::experiment::{Fault, Metric, Round, Sampling, Scale, Session, Side};

/// Receives that are posted on each connection in a ping-pong.
const RECEIVES: u32 = 4;
/// Messages that are compared completely.
const CHECKED: u64 = 3;
/// Gap between segments, so that they are not contiguous in memory.
const GAP: u64 = 64;

/// Which buffer a message uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Each buffer in turn, cyclically.
    Round,
    /// This percentage of the messages uses the first buffer; each other message uses the least recently used one.
    Share(u64),
}

impl Order {
    /// The buffer of message `n` out of `buffers`.
    pub(crate) fn buffer(self, n: u64, buffers: u64) -> u64 {
        match self {
            Self::Round => n % buffers,
            Self::Share(percent) if (n % 100) * percent % 100 < percent || buffers < 2 => 0,
            // Earlier messages that used the first buffer are not counted.
            Self::Share(percent) => 1 + (n - (n * percent).div_ceil(100)) % (buffers - 1),
        }
    }
}

/// The shape of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) connections: u32,
    pub(crate) buffers: u64,
    pub(crate) order: Order,
    /// Pieces of a message.
    pub(crate) pieces: u32,
    /// Pieces that a request may have.
    pub(crate) pieces_max: u32,
    pub(crate) mtu: Option<u32>,
}

impl Shape {
    /// One connection, one buffer, one piece.
    pub(crate) const PLAIN: Self =
        Self { connections: 1, buffers: 1, order: Order::Round, pieces: 1, pieces_max: 1, mtu: None };
}

/// The two things that are measured.
pub(crate) fn quantities() -> Vec<Variant> {
    ["latency", "bandwidth"].map(|quantity| variant(&[(factor::QUANTITY, quantity)])).to_vec()
}

fn is_bandwidth(variant: &Variant) -> bool {
    variant.is(factor::QUANTITY, "bandwidth")
}

/// The metric of a variant.
pub(crate) fn metric(variant: &Variant) -> Metric {
    match is_bandwidth(variant) {
        true => Metric {
            name: "bandwidth",
            unit: "MB/s",
            about: "bytes of a burst of sends over the time from its first post to the acknowledgement of its last message",
            scale: Scale::Bandwidth(1.0),
        },
        false => Metric {
            name: "one_way_latency",
            unit: "us",
            about: "half the round trip of a ping-pong of sends, nothing of which travels within requests",
            scale: Scale::Time(2.0),
        },
    }
}

/// How a variant is sampled.
pub(crate) fn sampling(variant: &Variant) -> Sampling {
    if is_bandwidth(variant) { Sampling::LONG } else { Sampling::default() }
}

/// Memory of both sides.
pub(crate) fn bytes(size: u64, buffers: u64) -> u64 {
    4 * buffers * size.next_multiple_of(GAP)
}

/// One side of messages over several queue pairs or buffers.
pub(crate) struct Traffic {
    shape: Shape,
    client: bool,
    streams: bool,
    links: Vec<Endpoint>,
    source: Mr,
    sink: Mr,
    size: u64,
    /// Distance of buffers.
    stride: u64,
    window: u64,
    burst: u64,
    /// Requests that have not completed.
    outstanding: u64,
    sent: u64,
    received: u64,
    /// The next message for which each connection posts a receive.
    posted: Vec<u64>,
    /// Connections whose receive was consumed and must be reposted.
    owed: Vec<usize>,
    /// Segments of a request; as many as needed.
    sges: Vec<Sge>,
    seed: u64,
}

impl Traffic {
    pub(crate) fn prepare(session: &mut Session<'_>, shape: Shape) -> Result<Self, Fault> {
        let streams = is_bandwidth(&session.cell.variant);
        let (size, settings) = (u64::from(session.cell.length()?), session.settings);
        if u64::from(shape.pieces) > size {
            return Err(Fault::Meaningless(format!("{size} bytes in {} pieces", shape.pieces)));
        }
        let window = if streams { settings.window.max(2) } else { 2 };
        let connections = shape.connections.max(1);
        let limit = session.device.attr().max_qp_wr;
        // A receiver that is late finds two windows of messages, over all connections.
        let receives = if streams { (2 * window).div_ceil(connections) + 2 } else { RECEIVES };
        let depth = Depth {
            pieces: shape.pieces_max.max(shape.pieces),
            mtu: shape.mtu,
            ..Depth::new((window + 2).min(limit), receives.min(limit))
        };
        let pd = session.device.alloc_pd()?;
        let stride = if shape.pieces == 1 {
            size.next_multiple_of(GAP)
        } else {
            u64::from(shape.pieces) * ((size / u64::from(shape.pieces) + 1).next_multiple_of(GAP) + GAP)
        };
        let place = |pd: &Pd| register("host", pd, (stride * shape.buffers) as usize);
        let (source, sink) = (place(&pd)?, place(&pd)?);
        let mut side = Self {
            shape,
            client: session.is_client(),
            streams,
            links: Endpoint::several(&pd, depth, connections as usize)?,
            source,
            sink,
            size,
            stride,
            window: depth.send.saturating_sub(2).into(),
            burst: if streams { burst(settings, size as u32) } else { 1 },
            outstanding: 0,
            sent: 0,
            received: 0,
            posted: (0..connections.into()).collect(),
            owed: Vec::with_capacity(2 * window as usize),
            sges: vec![Sge::default(); shape.pieces as usize],
            seed: settings.seed,
        };
        for link in 0..side.links.len() {
            (0..depth.recv).try_for_each(|_| side.post_receive(link))?;
        }
        join_all(session, &mut side.links)?;
        // Neither side sends before all are connected.
        meet(session)?;
        Ok(side)
    }

    /// Puts the segments of a buffer of `memory` into the request; together they have the message's size.
    fn pieces(&mut self, of_sink: bool, buffer: u64) {
        let count = self.sges.len() as u64;
        let (each, rest) = (self.size / count, self.size % count);
        let memory = if of_sink { &self.sink } else { &self.source };
        let mut at = buffer * self.stride;
        for (index, sge) in self.sges.iter_mut().enumerate() {
            let len = each + u64::from((index as u64) < rest);
            *sge = memory.sge(at, len as u32);
            at += (each + 1).next_multiple_of(GAP) + GAP;
        }
    }

    /// The layout of a message within its buffer: offset and length of each segment.
    fn layout(&self, buffer: u64) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (size, count, stride) = (self.size, self.sges.len() as u64, self.stride);
        (0..count).map(move |index| {
            let at = buffer * stride + index * ((size / count + 1).next_multiple_of(GAP) + GAP);
            (at as usize, (size / count + u64::from(index < size % count)) as usize)
        })
    }

    #[inline]
    fn post_receive(&mut self, link: usize) -> Result<(), Fault> {
        let n = self.posted[link];
        self.posted[link] += self.links.len() as u64;
        self.pieces(true, self.shape.order.buffer(n, self.shape.buffers));
        Ok(self.links[link].qp.post_recv(&RecvWr::new(link as u64, &self.sges))?)
    }

    /// Posts the receives again that messages have taken.
    #[inline]
    fn renew(&mut self) -> Result<(), Fault> {
        while let Some(link) = self.owed.pop() {
            self.post_receive(link)?;
        }
        Ok(())
    }

    /// Posts the next message.
    #[inline]
    fn put(&mut self) -> Result<(), Fault> {
        self.pieces(false, self.shape.order.buffer(self.sent, self.shape.buffers));
        let link = &self.links[(self.sent % self.links.len() as u64) as usize];
        self.sent += 1;
        self.outstanding += 1;
        Ok(link.qp.post_send(&SendWr::new(0, SendOp::Send, &self.sges))?)
    }

    /// Sends an empty message in place of the next one.
    fn acknowledge(&mut self) -> Result<(), Fault> {
        let link = &self.links[(self.sent % self.links.len() as u64) as usize];
        self.sent += 1;
        self.outstanding += 1;
        Ok(link.qp.post_send(&SendWr::new(0, SendOp::Send, &[]))?)
    }

    /// Waits until at most `limit` requests are in flight.
    #[inline]
    fn reap(&mut self, limit: u64, deadline: Option<Time>) -> Result<(), Fault> {
        while self.outstanding > limit {
            self.links[0].sent(deadline, "a message")?;
            self.outstanding -= 1;
        }
        Ok(())
    }

    /// Waits for a message.
    #[inline]
    fn get(&mut self, deadline: Option<Time>) -> Result<(), Fault> {
        let wc = self.links[0].received(deadline, "a receive")?;
        self.received += 1;
        self.owed.push(wc.wr_id as usize);
        Ok(())
    }

    /// One message each way.
    #[inline]
    fn ping(&mut self, deadline: Option<Time>) -> Result<(), Fault> {
        if !self.client {
            self.get(deadline)?;
        }
        self.put()?;
        // That of the message before has long been there.
        self.reap(1, deadline)?;
        self.renew()?;
        if self.client { self.get(deadline) } else { Ok(()) }
    }

    /// A burst of messages from the client, until the server has acknowledged the last.
    fn stream(&mut self, host: &Host, deadline: Option<Time>) -> Result<(), Fault> {
        if !self.client {
            for _ in 0..self.burst {
                self.get(deadline)?;
                self.renew()?;
            }
            self.acknowledge()?;
            return self.reap(0, deadline);
        }
        let mut left = self.burst;
        while left > 0 {
            // Half a window at a time.
            let room = self.window - self.outstanding;
            let now = left.min(room.max(1));
            (0..now).try_for_each(|_| self.put())?;
            left -= now;
            self.reap_some(host, self.window / 2, deadline)?;
        }
        self.get(deadline)?;
        self.renew()?;
        self.reap(0, deadline)
    }

    /// Waits until at most `limit` requests are in flight, and takes all other available completions.
    fn reap_some(&mut self, host: &Host, limit: u64, deadline: Option<Time>) -> Result<(), Fault> {
        let cq = self.links[0].send_cq.clone();
        let outstanding = &mut self.outstanding;
        // One poll takes all available completions: nothing signals them a second time.
        let mut take = || {
            while *outstanding > limit {
                match cq.poll_one()? {
                    None => return Ok(false),
                    Some(wc) => check(wc, "a message")?,
                };
                *outstanding -= 1;
            }
            Ok(true)
        };
        let look = || match take() {
            Ok(done) => done.then_some(Ok(())),
            Err(fault) => Some(Err(fault)),
        };
        host.poll("a stream", deadline, look).unwrap_or(Err(Fault::TimedOut("the stream")))
    }

    fn contents(&self, n: u64, from_client: bool) -> u64 {
        self.seed ^ (n << 1) ^ u64::from(from_client)
    }

    fn fill(&self, buf: &Buf, buffer: u64, seed: u64) -> Result<(), Fault> {
        let mut part = 0;
        self.layout(buffer).try_for_each(|(at, len)| {
            part += 1;
            pattern::fill(buf, at, len, seed ^ (part << 32))
        })
    }

    fn compare(&self, buf: &Buf, buffer: u64, seed: u64) -> Result<(), Fault> {
        let mut part = 0;
        self.layout(buffer).try_for_each(|(at, len)| {
            part += 1;
            pattern::compare(buf, at, len, seed ^ (part << 32))
        })
    }
}

impl Side for Traffic {
    /// Also uses every buffer once if all are used in turn, so that caches have seen every buffer.
    fn warm(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        self.source.buf().fill(0x5a);
        self.sink.buf().fill(0);
        let passes = if self.shape.order == Order::Round { self.shape.buffers } else { 0 };
        if passes > 1 {
            meet(session)?;
            (0..passes).try_for_each(|_| self.ping(session.deadline()))?;
        }
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        let streams = self.streams;
        sample(s, round, readings, |s, count, deadline| {
            (0..count)
                .try_for_each(|_| if streams { self.stream(s.host, deadline) } else { self.ping(deadline) })
        })
    }

    /// Compares some messages completely.
    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let mut verdict = Ok(());
        for _ in 0..CHECKED {
            let (order, buffers) = (self.shape.order, self.shape.buffers);
            let (out, into) = (order.buffer(self.sent, buffers), order.buffer(self.received, buffers));
            let (mine, theirs) =
                (self.contents(self.sent, self.client), self.contents(self.received, !self.client));
            self.fill(self.source.buf(), out, mine)?;
            self.sink.buf().fill(0);
            meet(session)?;
            self.ping(session.deadline())?;
            meet(session)?;
            verdict = verdict.and(self.compare(self.sink.buf(), into, theirs));
        }
        self.reap(0, session.deadline())?;
        verdict
    }

    fn messages(&self) -> u64 {
        self.burst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two illustrations of the thesis, 2.2.7.
    #[test]
    fn buffers_are_used_as_the_thesis_shows() {
        let sequence =
            |order: Order, buffers| (0..12).map(|n| order.buffer(n, buffers)).collect::<Vec<u64>>();
        assert_eq!(sequence(Order::Round, 4), [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(sequence(Order::Share(25), 100), [0, 1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9]);
    }

    #[test]
    fn the_share_of_the_first_buffer_is_as_asked_and_others_take_turns() {
        for percent in [0, 1, 25, 33, 50, 99, 100] {
            let order = Order::Share(percent);
            let used: Vec<u64> = (0..1000).map(|n| order.buffer(n, 8)).collect();
            let first = used.iter().filter(|b| **b == 0).count() as u64;
            assert_eq!(first, 10 * percent, "{percent} %");
            let fresh: Vec<u64> = used.into_iter().filter(|b| *b != 0).collect();
            assert!(fresh.iter().enumerate().all(|(i, b)| *b == 1 + i as u64 % 7), "{percent} %");
        }
    }
}
