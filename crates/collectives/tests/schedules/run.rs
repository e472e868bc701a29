//! Runs the schedules of all ranks in memory, with steps in any order: with real bytes, or with a clock.

use collectives::{Costs, ElementType, Operands, Peer, Schedule, Span, SpanBuffer, Step};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Bytes of data in an element.
pub(crate) const SIZE: usize = 32;
/// Extents of the first send and the first receive type, in bytes; they differ, and neither is packed. Each further type has 8
/// more.
pub(crate) const EXTENTS: [i64; 2] = [40, 48];

/// Two by two numbers, multiplied modulo 2^64: associative, and not commutative.
pub(crate) type Matrix = [u64; 4];

pub(crate) fn multiply(a: Matrix, b: Matrix) -> Matrix {
    let cell = |row: usize, column: usize| {
        a[2 * row].wrapping_mul(b[column]).wrapping_add(a[2 * row + 1].wrapping_mul(b[2 + column]))
    };
    [cell(0, 0), cell(0, 1), cell(1, 0), cell(1, 1)]
}

/// A unique matrix.
pub(crate) fn matrix(rank: usize, element: usize) -> Matrix {
    let seed = (rank as u64 + 1) * 1_000_003 + element as u64 * 7919;
    [seed, seed ^ 0x5555, seed.wrapping_mul(31), seed | 1]
}

pub(crate) fn to_bytes(matrix: Matrix) -> Vec<u8> {
    matrix.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn from_bytes(bytes: &[u8]) -> Matrix {
    let mut matrix = [0; 4];
    for (number, bytes) in matrix.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
    matrix
}

/// The value of gap bytes, which must not change.
pub(crate) const GAP: u8 = 0xa7;

/// The buffers of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Rank {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    scratch: Vec<Vec<u8>>,
    schedule: Schedule,
    round: usize,
    /// Which steps of the round are done.
    completed: Vec<bool>,
    clock: Clock,
}

/// The times of a rank's round, and its messages and reductions so far.
#[derive(Clone, Default, Debug)]
struct Clock {
    started: f64,
    /// Number of messages sent, and the time when the last was sent.
    sent: (usize, f64),
    /// Arrival times of messages, and their bytes.
    arrivals: Vec<(f64, u64)>,
    /// The time when the reductions are done.
    reduced: f64,
}

/// Messages in flight, from (group, rank) to (group, rank), each with its arrival time.
type InFlight = BTreeMap<((usize, usize), (usize, usize)), VecDeque<(Vec<u8>, f64)>>;

/// One or two groups of ranks.
pub(crate) struct World {
    pub(crate) groups: Vec<Vec<Rank>>,
    in_flight: InFlight,
    seed: Option<u64>,
    costs: Costs,
}

/// Zero costs; a clock sets one of them.
pub(crate) const FREE: Costs = Costs { alpha: 0.0, gap: 0.0, beta: 0.0, gamma: 0.0, shared_cores: None };

impl Rank {
    pub(crate) fn new(schedule: Schedule, input: Vec<u8>, output: Vec<u8>) -> Self {
        let extent = |datatype| match datatype {
            ElementType::Bytes => 1,
            ElementType::Send(at) => EXTENTS[0] + 8 * at as i64,
            ElementType::Receive(at) => EXTENTS[1] + 8 * at as i64,
        };
        let scratch =
            schedule.scratch().iter().map(|s| vec![GAP; (s.count * extent(s.datatype)) as usize]).collect();
        assert!((0..schedule.rounds()).all(|round| !schedule.steps(round).is_empty()), "an empty round");
        let completed =
            if schedule.rounds() == 0 { Vec::new() } else { vec![false; schedule.steps(0).len()] };
        Self { input, output, scratch, schedule, round: 0, completed, clock: Clock::default() }
    }

    /// The byte ranges of a span, one per element.
    fn byte_ranges(span: Span) -> impl Iterator<Item = Range<usize>> {
        let (first, end) = (span.from, span.from + span.bytes);
        assert!(end <= span.count as u64 * span.size, "a window beyond its elements: {span:?}");
        // Plain bytes are elements without gaps: all are one range.
        let size = if span.extent as u64 == span.size { u64::MAX } else { span.size };
        let elements = if span.bytes == 0 { 0..0 } else { first / size..end.div_ceil(size) };
        elements.map(move |element| {
            let start = span.displacement + element as i64 * span.extent;
            let before = element * size;
            let within = first.max(before) - before..end.min(before.saturating_add(size)) - before;
            (start + within.start as i64) as usize..(start + within.end as i64) as usize
        })
    }

    fn buffer(&self, buffer: SpanBuffer) -> &Vec<u8> {
        match buffer {
            SpanBuffer::Input => &self.input,
            SpanBuffer::Output => &self.output,
            SpanBuffer::Scratch(at) => &self.scratch[at],
        }
    }

    fn read(&self, span: Span) -> Vec<u8> {
        let buffer = self.buffer(span.buffer);
        let mut bytes = Vec::with_capacity(span.bytes as usize);
        Self::byte_ranges(span).for_each(|place| bytes.extend_from_slice(&buffer[place]));
        bytes
    }

    fn write(&mut self, span: Span, bytes: &[u8]) {
        assert_eq!(bytes.len() as u64, span.bytes, "a message of another length: {span:?}");
        if bytes.is_empty() {
            return;
        }
        let mut bytes = bytes;
        let buffer = match span.buffer {
            SpanBuffer::Input => panic!("the input is not to be written"),
            SpanBuffer::Output => &mut self.output,
            SpanBuffer::Scratch(at) => &mut self.scratch[at],
        };
        for place in Self::byte_ranges(span) {
            let (now, rest) = bytes.split_at(place.len());
            buffer[place].copy_from_slice(now);
            bytes = rest;
        }
    }

    fn reduce(&mut self, from: Span, into: Span, operands: Operands) {
        assert_eq!((from.count, from.from, into.from), (into.count, 0, 0), "whole elements");
        assert_eq!((from.size, from.bytes), (SIZE as u64, into.bytes));
        let (from, old) = (self.read(from), self.read(into));
        let pairs = from.chunks_exact(SIZE).zip(old.chunks_exact(SIZE));
        let new: Vec<u8> = pairs
            .flat_map(|(from, into)| {
                let (from, into) = (from_bytes(from), from_bytes(into));
                to_bytes(match operands {
                    Operands::FromInto => multiply(from, into),
                    Operands::IntoFrom => multiply(into, from),
                })
            })
            .collect();
        self.write(into, &new);
    }

    fn is_done(&self) -> bool {
        self.round == self.schedule.rounds()
    }

    fn end_round(&mut self, costs: Costs) {
        self.round += 1;
        let steps = if self.is_done() { 0 } else { self.schedule.steps(self.round).len() };
        self.completed = vec![false; steps];
        self.clock = Clock::starting_at(self.clock.end(costs));
    }
}

impl World {
    /// Executes steps in a pseudo-random order.
    pub(crate) fn new(groups: Vec<Vec<Rank>>, seed: u64) -> Self {
        for rank in groups.iter().flatten() {
            (0..rank.schedule.rounds()).for_each(|round| check_round(rank.schedule.steps(round)));
        }
        Self { groups, in_flight: InFlight::new(), seed: Some(seed), costs: FREE }
    }

    /// Executes the steps of a round in order, with a clock.
    pub(crate) fn timed(groups: Vec<Vec<Rank>>, costs: Costs) -> Self {
        Self { groups, in_flight: InFlight::new(), seed: None, costs }
    }

    fn random(&mut self, below: usize) -> usize {
        let Some(seed) = &mut self.seed else { return 0 };
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as usize % below
    }

    /// Runs all ranks to their ends, one step of one rank at a time. Returns the longest time.
    pub(crate) fn run(&mut self) -> f64 {
        let mut waiting: Vec<(usize, usize)> = (0..self.groups.len())
            .flat_map(|group| (0..self.groups[group].len()).map(move |rank| (group, rank)))
            .collect();
        while !waiting.is_empty() {
            let (start, mut progressed) = (self.random(waiting.len()), false);
            for i in 0..waiting.len() {
                let (group, rank) = waiting[(start + i) % waiting.len()];
                if self.groups[group][rank].is_done() || self.step(group, rank) {
                    progressed = true;
                    break;
                }
            }
            assert!(progressed, "a deadlock of {waiting:?}");
            waiting.retain(|&(group, rank)| !self.groups[group][rank].is_done());
        }
        let left: Vec<_> = self
            .in_flight
            .iter()
            .filter(|(_, messages)| !messages.is_empty())
            .map(|(ends, _)| ends)
            .collect();
        assert!(left.is_empty(), "messages that nobody received: {left:?}");
        self.groups.iter().flatten().map(|rank| rank.clock.started).fold(0.0, f64::max)
    }

    /// Executes any possible step of a rank's round. Returns whether there was one.
    fn step(&mut self, group: usize, rank: usize) -> bool {
        let me = &self.groups[group][rank];
        let round = me.schedule.steps(me.round).to_vec();
        // Messages of one pair match in the order of their steps, so only the first send and the first receive of a peer are
        // possible.
        let (start, mut progressed) = (self.random(round.len()), false);
        for i in 0..round.len() {
            let at = (start + i) % round.len();
            let is_first = |peer: Peer, sends: bool| {
                !round[..at].iter().zip(&self.groups[group][rank].completed).any(|(step, completed)| {
                    match step {
                        Step::Send { peer: other, .. } => sends && *other == peer && !completed,
                        Step::Receive { peer: other, .. } => !sends && *other == peer && !completed,
                        _ => false,
                    }
                })
            };
            let ready = match round[at] {
                _ if self.groups[group][rank].completed[at] => false,
                Step::Send { peer, .. } => is_first(peer, true),
                Step::Receive { peer, .. } => is_first(peer, false),
                Step::Reduce { .. } | Step::Copy { .. } => true,
            };
            if ready && self.execute((group, rank), round[at]) {
                self.groups[group][rank].completed[at] = true;
                progressed = true;
                break;
            }
        }
        if self.groups[group][rank].completed.iter().all(|&completed| completed) {
            self.groups[group][rank].end_round(self.costs);
        }
        progressed
    }

    /// Executes a step, unless it is a receive whose message was not sent yet.
    fn execute(&mut self, (group, rank): (usize, usize), step: Step) -> bool {
        let Costs { gamma, .. } = self.costs;
        let end = |peer| match peer {
            Peer::Local(other) => (group, other),
            Peer::Remote(other) => (1 - group, other),
        };
        let me = &mut self.groups[group][rank];
        match step {
            Step::Send { peer, span } => {
                let message = (me.read(span), me.clock.send(span.bytes, self.costs));
                self.in_flight.entry(((group, rank), end(peer))).or_default().push_back(message);
            }
            Step::Receive { peer, span } => {
                let Some(messages) = self.in_flight.get_mut(&(end(peer), (group, rank))) else {
                    return false;
                };
                let Some((bytes, time)) = messages.pop_front() else { return false };
                me.clock.arrivals.push((time.max(me.clock.started), span.bytes));
                me.write(span, &bytes);
            }
            Step::Reduce { from, into, operands } => {
                me.reduce(from, into, operands);
                me.clock.reduced += gamma * from.bytes as f64;
            }
            Step::Copy { from, to } => {
                let bytes = me.read(from);
                me.write(to, &bytes);
            }
        }
        true
    }
}

impl Clock {
    fn starting_at(started: f64) -> Self {
        Self { started, reduced: started, ..Self::default() }
    }

    /// Sends a message: the first of a round after alpha, further ones a gap later. Returns its arrival time.
    fn send(&mut self, bytes: u64, costs: Costs) -> f64 {
        let (count, last) = self.sent;
        let start = if count == 0 { self.started + costs.alpha } else { last + costs.gap };
        self.sent = (count + 1, start + costs.beta * bytes as f64);
        self.sent.1
    }

    /// The time when the round ends. Messages are received one after the other.
    fn end(&mut self, costs: Costs) -> f64 {
        self.arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut received = self.started;
        for (place, &(time, bytes)) in self.arrivals.iter().enumerate() {
            let each = if place == 0 { 0.0 } else { costs.gap + costs.beta * bytes as f64 };
            received = time.max(received + each);
        }
        received.max(self.sent.1).max(self.reduced)
    }
}

/// Checks that no step of a round uses a byte that another one writes.
fn check_round(round: &[Step]) {
    let written = |step: &Step| match *step {
        Step::Receive { span, .. } => Some(span),
        Step::Reduce { into, .. } => Some(into),
        Step::Copy { to, .. } => Some(to),
        Step::Send { .. } => None,
    };
    let used = |step: &Step| match *step {
        Step::Send { span, .. } | Step::Receive { span, .. } => vec![span],
        Step::Reduce { from, into, .. } => vec![from, into],
        Step::Copy { from, to } => vec![from, to],
    };
    let key = |buffer| match buffer {
        SpanBuffer::Input => 0,
        SpanBuffer::Output => 1,
        SpanBuffer::Scratch(at) => 2 + at,
    };
    let mut writers: BTreeMap<(usize, usize), (usize, usize)> = BTreeMap::new();
    for (at, step) in round.iter().enumerate() {
        for place in written(step).into_iter().flat_map(|span| byte_ranges(key(span.buffer), span)) {
            writers.insert((place.0, place.1.start), (place.1.end, at));
        }
    }
    for (at, step) in round.iter().enumerate() {
        for (buffer, place) in used(step).into_iter().flat_map(|span| byte_ranges(key(span.buffer), span)) {
            // Among written ranges that start before the end of this one, only the last could overlap it.
            let before = writers.range((buffer, 0)..(buffer, place.end)).next_back();
            if let Some((_, &(end, writer))) = before {
                assert!(
                    end <= place.start || writer == at,
                    "{step:?} uses what another step of its round writes: {:?}",
                    round[writer]
                );
            }
        }
    }
}

/// A span's byte ranges, each with its buffer's number.
fn byte_ranges(buffer: usize, span: Span) -> impl Iterator<Item = (usize, Range<usize>)> {
    Rank::byte_ranges(span).map(move |place| (buffer, place))
}
