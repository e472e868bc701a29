//! A modelled TCP connection between two machines: ordered bytes that are segmented, delayed, held up by full
//! buffers, or reset.
//!
//! Protocols on TCP run over it in virtual time, and a modelled card that implements such a protocol will use
//! it. It loses no packets: TCP turns loss into delay. [`connect`] returns both ends. Bytes given to an end
//! wait in its send buffer, leave in segments of random length as far as the peer's receive buffer has room,
//! and arrive later.
//!
//! ```
//! use host::world::{Config, World};
//! use nic_model::stream::{Direction, connect};
//!
//! let mut world = World::new(Config::default());
//! let (here, there) = (world.add_node("here"), world.add_node("there"));
//! let (a, b) = connect(&here, &there, [Direction::default(); 2], 1);
//! world.spawn("writer", &[&here], move || assert_eq!(a.send(b"hello"), Ok(5)))?;
//! world.spawn("reader", &[&there], move || {
//!     let mut bytes = [0; 5];
//!     let some = b.node().host().poll("read", None, || b.receive(&mut bytes).transpose());
//!     assert!(matches!(some, Some(Ok(1..=5))));
//! })?;
//! world.run()?;
//! # Ok::<(), host::world::Failure>(())
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use host::world::{EventHandler, HandlerId, Node, Timeline};
use host::{Rng, Span, Time};

/// One direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direction {
    /// Maximum bytes of a segment, at least 1; the length of each is random.
    pub segment: usize,
    /// Capacity of the send buffer in bytes.
    pub send_buffer: usize,
    /// Capacity of the receive buffer in bytes, including bytes in flight.
    pub receive_buffer: usize,
    /// The least time from sending to arrival.
    pub delay: Span,
    /// The maximum random delay of a segment; later segments wait for it, and arrive together with it.
    pub jitter: Span,
    /// Time per byte sent, in picoseconds.
    pub ps_per_byte: u64,
    /// The connection is reset when this many bytes have arrived.
    pub reset_at: Option<u64>,
}

impl Default for Direction {
    /// Ten gigabits per second, 10 us, segments and buffers as on Ethernet, no reset.
    fn default() -> Self {
        Self {
            segment: 1460,
            send_buffer: 64 << 10,
            receive_buffer: 64 << 10,
            delay: Span::from_us(10),
            jitter: Span::ZERO,
            ps_per_byte: 800,
            reset_at: None,
        }
    }
}

/// One end has reset the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream was reset")]
pub struct Reset;

/// The state of a direction.
#[derive(Debug)]
struct FlowState {
    direction: Direction,
    /// Accepted from the program, not yet sent.
    waiting: VecDeque<u8>,
    /// Segments in flight, in the order of arrival.
    in_flight: VecDeque<Vec<u8>>,
    in_flight_bytes: usize,
    arrived: VecDeque<u8>,
    /// Bytes accepted from the program, and bytes delivered, so far.
    accepted: u64,
    delivered: u64,
    /// A byte with a bit that is flipped in flight, and that bit.
    flip: Option<(u64, u8)>,
    /// Arrival of the last segment, which later ones must not overtake.
    last_arrival: Time,
    /// The departure of a segment is scheduled.
    leaving: bool,
    /// The program has shut the direction; the peer has seen the end.
    shut: bool,
    ended: bool,
}

impl FlowState {
    fn new(direction: Direction) -> Self {
        Self {
            direction,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            arrived: VecDeque::new(),
            accepted: 0,
            delivered: 0,
            flip: None,
            last_arrival: Time::ZERO,
            leaving: false,
            shut: false,
            ended: false,
        }
    }

    /// How many more bytes the receiver has room for.
    fn window(&self) -> usize {
        self.direction.receive_buffer.saturating_sub(self.arrived.len() + self.in_flight_bytes)
    }

    /// Whether a segment, or the end of the stream, can leave.
    fn can_leave(&self) -> bool {
        let end = self.shut && !self.ended && self.waiting.is_empty();
        end || !self.waiting.is_empty() && self.window() > 0
    }
}

#[derive(Debug)]
struct StreamState {
    flows: [FlowState; 2],
    random: Rng,
    reset: bool,
}

/// The network between the two ends.
struct Wire {
    timeline: Timeline,
    nodes: [Node; 2],
    id: OnceLock<HandlerId>,
    state: Mutex<StreamState>,
}

/// Event tokens: a kind, and the direction in the low bit.
const LEAVE: u64 = 0;
const ARRIVE: u64 = 2;

/// One end of a stream; cheap to clone. Only one rank of its machine, or an event handler, may call it.
#[derive(Clone)]
pub struct Stream {
    wire: Arc<Wire>,
    end: usize,
}

/// Connects two machines: `directions[0]` leads from `a` to `b`, `directions[1]` back. `seed` determines everything
/// random.
#[must_use]
pub fn connect(a: &Node, b: &Node, directions: [Direction; 2], seed: u64) -> (Stream, Stream) {
    let timeline = a.timeline();
    let state = StreamState { flows: directions.map(FlowState::new), random: Rng::new(seed), reset: false };
    let nodes = [a.clone(), b.clone()];
    let wire = Arc::new(Wire { timeline, nodes, id: OnceLock::new(), state: Mutex::new(state) });
    // This is the only call.
    let _ = wire.id.set(wire.timeline.add_handler(wire.clone()));
    (Stream { wire: wire.clone(), end: 0 }, Stream { wire, end: 1 })
}

impl Stream {
    /// The machine of this end.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.wire.nodes[self.end]
    }

    /// Queues bytes; returns how many, fewer if the send buffer is full. The machine is notified when it has
    /// room again.
    ///
    /// # Errors
    /// [`Reset`].
    pub fn send(&self, bytes: &[u8]) -> Result<usize, Reset> {
        self.node().sync();
        let mut state = self.wire.lock();
        if state.reset {
            return Err(Reset);
        }
        let flow = &mut state.flows[self.end];
        let n = if flow.shut { 0 } else { bytes.len().min(flow.direction.send_buffer - flow.waiting.len()) };
        flow.waiting.extend(&bytes[..n]);
        flow.accepted += n as u64;
        self.wire.schedule_departure(&mut state, self.end);
        Ok(n)
    }

    /// Reads bytes that have arrived, up to the size of `into`: `None` if there are none yet, 0 at the end of
    /// the stream.
    ///
    /// # Errors
    /// [`Reset`]; arrived but unread bytes are lost, as in TCP.
    pub fn receive(&self, into: &mut [u8]) -> Result<Option<usize>, Reset> {
        self.node().sync();
        let mut state = self.wire.lock();
        if state.reset {
            return Err(Reset);
        }
        let from = 1 - self.end;
        let flow = &mut state.flows[from];
        let n = into.len().min(flow.arrived.len());
        for (place, byte) in into.iter_mut().zip(flow.arrived.drain(..n)) {
            *place = byte;
        }
        let ended = flow.ended && flow.arrived.is_empty();
        self.wire.schedule_departure(&mut state, from);
        Ok(if n > 0 || ended { Some(n) } else { None })
    }

    /// Ends this direction: the peer sees the end of the stream after all queued bytes. This end can still
    /// receive.
    pub fn shutdown_write(&self) {
        self.node().sync();
        let mut state = self.wire.lock();
        state.flows[self.end].shut = true;
        self.wire.schedule_departure(&mut state, self.end);
    }

    /// Ends both directions immediately, for both ends.
    pub fn reset(&self) {
        self.node().sync();
        self.wire.reset(&mut self.wire.lock());
    }

    /// Flips a bit of a byte that this end will send: the byte `ahead` bytes from now.
    pub fn flip_bit(&self, ahead: u64, bit: u8) {
        let flow = &mut self.wire.lock().flows[self.end];
        flow.flip = Some((flow.accepted + ahead, bit % 8));
    }

    /// Whether the byte of [`Self::flip_bit`] has arrived.
    #[must_use]
    pub fn is_bit_flipped(&self) -> bool {
        let flow = &self.wire.lock().flows[self.end];
        flow.flip.is_some_and(|(at, _)| at < flow.delivered)
    }
}

impl Wire {
    /// A panic leaves no half-changed state behind.
    fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules an event of a flow.
    fn schedule(&self, at: Time, kind: u64, flow: usize) {
        if let Some(&id) = self.id.get() {
            self.timeline.schedule(at, id, kind | flow as u64);
        }
    }

    /// Schedules the departure of the next segment, if there is one and none is scheduled.
    fn schedule_departure(&self, state: &mut StreamState, number: usize) {
        let now = self.timeline.now();
        let flow = &mut state.flows[number];
        if !flow.leaving && flow.can_leave() {
            flow.leaving = true;
            self.schedule(now, LEAVE, number);
        }
    }

    /// A segment leaves.
    fn on_leave(&self, state: &mut StreamState, now: Time, number: usize) {
        let cut = 1 + state.random.below(state.flows[number].direction.segment as u64) as usize;
        let jitter = Span::from_ps(state.random.below(state.flows[number].direction.jitter.as_ps() + 1));
        let flow = &mut state.flows[number];
        flow.leaving = false;
        if !flow.can_leave() {
            return;
        }
        let n = cut.min(flow.waiting.len()).min(flow.window());
        // A segment without bytes is the end of the stream.
        let segment: Vec<u8> = flow.waiting.drain(..n).collect();
        flow.in_flight_bytes += n;
        flow.in_flight.push_back(segment);
        let gone = now + Span::from_ps(flow.direction.ps_per_byte * n as u64);
        let arrival = (gone + flow.direction.delay + jitter).max(flow.last_arrival);
        flow.last_arrival = arrival;
        self.schedule(arrival, ARRIVE, number);
        if n > 0 {
            flow.leaving = true;
            self.schedule(gone, LEAVE, number);
            // The send buffer has room again.
            self.nodes[number].signal();
        }
    }

    /// A segment arrives at the receiver; the faults may flip one bit of it, or reset the connection.
    fn on_arrive(&self, state: &mut StreamState, number: usize) {
        let flow = &mut state.flows[number];
        let Some(mut segment) = flow.in_flight.pop_front() else { return };
        flow.in_flight_bytes -= segment.len();
        flow.ended |= segment.is_empty();
        if let Some((at, bit)) = flow.flip
            && let Some(byte) = at.checked_sub(flow.delivered).and_then(|at| segment.get_mut(at as usize))
        {
            *byte ^= 1 << bit;
        }
        flow.delivered += segment.len() as u64;
        flow.arrived.extend(segment);
        if flow.direction.reset_at.is_some_and(|at| flow.delivered >= at) {
            self.reset(state);
        }
        self.nodes[1 - number].signal();
    }

    /// Resets the connection: nothing more is delivered in either direction.
    fn reset(&self, state: &mut StreamState) {
        state.reset = true;
        for flow in &mut state.flows {
            (flow.in_flight_bytes, flow.leaving) = (0, false);
            flow.waiting.clear();
            flow.in_flight.clear();
            flow.arrived.clear();
        }
        self.nodes.iter().for_each(Node::signal);
    }
}

impl EventHandler for Wire {
    fn on_event(&self, now: Time, token: u64) {
        let (kind, number) = (token & ARRIVE, (token & 1) as usize);
        let mut state = self.lock();
        if state.reset {
            return;
        }
        match kind {
            ARRIVE => self.on_arrive(&mut state, number),
            _ => self.on_leave(&mut state, now, number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::world::{Config, World};

    /// Runs a writer of `content`, which then shuts its direction, and a reader; returns the pieces read, how
    /// the stream ended, and when.
    fn transfer(
        direction: Direction,
        content: Vec<u8>,
        flip: Option<(u64, u8)>,
    ) -> (Vec<Vec<u8>>, Result<(), Reset>, Time) {
        let mut world = World::new(Config::default());
        let (here, there) = (world.add_node("here"), world.add_node("there"));
        let (a, b) = connect(&here, &there, [direction; 2], 7);
        let read = Arc::new(Mutex::new((Vec::new(), Ok(()))));
        let result = read.clone();
        world
            .spawn("writer", &[&here], move || {
                if let Some((ahead, bit)) = flip {
                    a.flip_bit(ahead, bit);
                }
                let mut rest = content.as_slice();
                let all = a.node().host().poll("send", None, || match a.send(rest) {
                    Ok(n) => {
                        rest = &rest[n..];
                        rest.is_empty().then_some(())
                    }
                    Err(Reset) => Some(()),
                });
                assert_eq!(all, Some(()));
                a.shutdown_write();
            })
            .expect("a fiber");
        world
            .spawn("reader", &[&there], move || {
                let host = b.node().host();
                let mut bytes = [0; 4096];
                loop {
                    let next = host.poll("receive", None, || b.receive(&mut bytes).transpose());
                    let mut result = result.lock().expect("nobody panicked");
                    match next.expect("no deadline") {
                        Ok(0) => return,
                        Ok(n) => result.0.push(bytes[..n].to_vec()),
                        Err(reset) => {
                            result.1 = Err(reset);
                            return;
                        }
                    }
                }
            })
            .expect("a fiber");
        let ended = world.run().expect("it ends");
        let (pieces, end) =
            std::mem::replace(&mut *read.lock().expect("nobody panicked"), (Vec::new(), Ok(())));
        (pieces, end, ended.time)
    }

    fn content(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 % 251) as u8).collect()
    }

    #[test]
    fn bytes_arrive_in_order_however_they_are_cut() {
        for segment in [1, 7, 1460] {
            for (send_buffer, receive_buffer) in [(1, 1), (10, 3), (64 << 10, 64 << 10)] {
                let direction = Direction {
                    segment,
                    send_buffer,
                    receive_buffer,
                    jitter: Span::from_us(50),
                    ..Direction::default()
                };
                let (pieces, end, _) = transfer(direction, content(3000), None);
                assert_eq!((pieces.concat(), end), (content(3000), Ok(())), "{direction:?}");
                assert!(
                    pieces.iter().all(|piece| piece.len() <= receive_buffer),
                    "the receive buffer is a bound"
                );
            }
        }
    }

    /// Goal: times follow from the values. Method: only one segment is in flight at a time.
    #[test]
    fn full_receive_buffer_stops_the_sender() {
        let direction = Direction { segment: 1, receive_buffer: 1, ps_per_byte: 0, ..Direction::default() };
        let (_, _, time) = transfer(direction, content(100), None);
        assert!(time.since(Time::ZERO) >= Span::from_us(100 * 10), "{time:?}");
        let (_, _, time) = transfer(Direction { receive_buffer: 100, ..direction }, content(100), None);
        assert!(time.since(Time::ZERO) < Span::from_us(30), "{time:?}");
    }

    #[test]
    fn stream_resets_at_the_configured_byte() {
        for at in [1, 500, 2999] {
            let (pieces, end, _) =
                transfer(Direction { reset_at: Some(at), ..Direction::default() }, content(3000), None);
            let read = pieces.concat();
            assert_eq!((end, content(3000).starts_with(&read)), (Err(Reset), true));
            assert!(read.len() < 3000, "what arrived last is lost");
        }
    }

    #[test]
    fn flip_bit_changes_one_bit() {
        let mut wanted = content(3000);
        wanted[1234] ^= 1 << 5;
        assert_eq!(transfer(Direction::default(), content(3000), Some((1234, 5))).0.concat(), wanted);
    }
}
