//! [`Call`]: repeats one collective operation on all ranks, as the Pallas benchmarks do: a number of consecutive
//! calls after a barrier, and the time of rank 0 for each. There is no barrier between the calls, so that ranks that
//! finish early begin the next. A rooted operation uses the next root in each call, as in those benchmarks. With
//! thousands of ranks a single call is timed, without synchronization beyond what is necessary.

use collectives::{
    Algorithm, Blocks, Case, CollKind as Kind, ElementType, Peer, Root, Schedule, SpanBuffer, Step, Task,
};
use verbs::host::{Span, Time};

use super::super::harness::timing::sample_spans;
use super::super::{Fault, Round, Session, Side};
use super::port::Port;

/// Bytes of a number that is reduced.
const NUMBER: u64 = 8;
/// Calls timed together; more if the root rotates.
const CALLS: u64 = 4;
const CALLS_ROUND: u64 = 16;
/// Up to how many ranks: with more a single call is timed.
const RANKS_MAX: u32 = 4096;
/// Match bits of a message: the call and the sender. Messages of one sender match in order.
const CALL_SHIFT: u32 = 32;

/// A message of a round: with whom, where in memory, and how long.
#[derive(Clone, Copy, Debug)]
struct Part {
    peer: u32,
    at: u64,
    len: u64,
}

/// The consecutive actions of a rank in a call.
#[derive(Clone, Debug)]
enum Act {
    /// Messages of one round.
    Exchange { receives: Vec<Part>, sends: Vec<Part> },
    /// Bytes that the processor reads and writes.
    Work { bytes: u64 },
}

/// The operation of one rank.
pub(super) struct Call {
    port: Port,
    /// Plans of one call, and of the following calls if the root rotates.
    plans: Vec<Vec<Act>>,
    barrier: Vec<Act>,
    /// Calls that are timed together.
    together: u64,
    rank: u32,
    ranks: u32,
    /// Calls so far, and receives.
    calls: u64,
    names: u64,
}

/// The algorithms of MPICH 1.2.6, which MPI on Red Storm was made of, for messages of 16 B.
fn algorithm(kind: Kind, ranks: usize) -> &'static str {
    match kind {
        Kind::Barrier => "dissemination",
        Kind::Allreduce => "recursive-doubling",
        Kind::Allgather if ranks.is_power_of_two() => "recursive-doubling",
        Kind::Allgather => "bruck",
        _ => "binomial",
    }
}

impl Call {
    pub(super) fn prepare(session: &mut Session<'_>, kind: Kind, ranks: u32) -> Result<Self, Fault> {
        let (rank, size) = (session.rank, session.cell.size);
        let plan = |kind, root| Plan::of(kind, rank as usize, (ranks as usize, root), size);
        let barrier = plan(Kind::Barrier, 0)?;
        let together = match has_root(kind) {
            _ if ranks > RANKS_MAX => 1,
            true => CALLS_ROUND,
            false => CALLS,
        };
        let roots = if has_root(kind) { u64::from(ranks).min(together) } else { 1 };
        let plans = (0..roots).map(|root| plan(kind, root as usize)).collect::<Result<Vec<Plan>, Fault>>()?;
        let most = |of: fn(&Plan) -> u64| plans.iter().map(of).fold(1, u64::max);
        let port = Port::open(session, ranks, most(|plan| plan.bytes), most(|plan| plan.largest))?;
        let plans = plans.into_iter().map(|plan| plan.acts).collect();
        Ok(Self { port, plans, barrier: barrier.acts, together, rank, ranks, calls: 0, names: 0 })
    }

    /// Runs the operation once, with all its rounds.
    fn call(&mut self, which: usize, deadline: Option<Time>) -> Result<(), Fault> {
        let which = which % self.plans.len();
        let acts = std::mem::take(&mut self.plans[which]);
        let done = self.carry_out(&acts, deadline);
        self.plans[which] = acts;
        done
    }

    fn meet(&mut self, deadline: Option<Time>) -> Result<(), Fault> {
        let acts = std::mem::take(&mut self.barrier);
        let done = self.carry_out(&acts, deadline);
        self.barrier = acts;
        done
    }

    fn carry_out(&mut self, acts: &[Act], deadline: Option<Time>) -> Result<(), Fault> {
        self.calls += 1;
        acts.iter().try_for_each(|act| self.act(act, deadline))
    }

    fn act(&mut self, act: &Act, deadline: Option<Time>) -> Result<(), Fault> {
        let (receives, sends) = match act {
            Act::Work { bytes } => {
                self.port.host.charge_copy(*bytes);
                return Ok(());
            }
            Act::Exchange { receives, sends } => (receives, sends),
        };
        let call = self.calls << CALL_SHIFT;
        let first = self.names + 1;
        // As in a ping-pong, receives are posted while the sends are in flight.
        for Part { peer, at, len } in sends {
            self.port.send(*peer, *at, *len, call | u64::from(self.rank))?;
        }
        for Part { peer, at, len } in receives {
            self.names += 1;
            self.port.post(*at, *len, call | u64::from(*peer), self.names)?;
        }
        (first..=self.names).try_for_each(|name| self.port.wait(name, deadline).map(drop))
    }
}

/// Whether one rank's data or result differs from the others'.
fn has_root(kind: Kind) -> bool {
    matches!(kind, Kind::Reduce | Kind::Bcast)
}

/// A schedule as a rank carries it out.
struct Plan {
    acts: Vec<Act>,
    /// Bytes of all buffers, and of the largest message.
    bytes: u64,
    largest: u64,
}

impl Plan {
    fn of(kind: Kind, rank: usize, (ranks, root): (usize, usize), size: u64) -> Result<Self, Fault> {
        let case = Case {
            kind,
            size: ranks,
            bytes: size,
            commutative: true,
            equal_blocks: true,
            segment: u64::MAX,
            shared: 0,
            hosts: 1,
        };
        let algorithm = Algorithm::by_name(algorithm(kind, ranks), &case);
        let algorithm = algorithm.map_err(|error| Fault::Meaningless(error.to_string()))?;
        let one = |buffer| {
            let count = if kind.reduces() { size / NUMBER } else { size };
            let each = if kind.reduces() { NUMBER } else { 1 };
            collectives::Span::new(buffer, ElementType::Send(0), 0, count as i64, each as i64, each)
        };
        let gets = if kind == Kind::Allgather { ranks } else { 1 };
        let output = Blocks::Equal { first: one(SpanBuffer::Output), count: gets };
        let task = Task {
            rank,
            size: ranks,
            remote_size: 0,
            root: Root::Rank(root),
            input: Blocks::single(one(SpanBuffer::Input)),
            output,
            commutative: true,
            segment: u64::MAX,
            hosts: [].into(),
        };
        let each = if kind.reduces() { NUMBER } else { 1 };
        let without = || Fault::Meaningless(format!("{} has no messages", algorithm.name));
        let schedule = algorithm.plan(&task).ok_or_else(without)?;
        Ok(Self::read(&schedule, [size, size * gets as u64], each))
    }

    /// Buffers are contiguous: input, output, and the schedule's scratch.
    fn read(schedule: &Schedule, own: [u64; 2], each: u64) -> Self {
        let mut starts = vec![0, own[0], own[0] + own[1]];
        for scratch in schedule.scratch() {
            let each = if scratch.datatype == ElementType::Bytes { 1 } else { each };
            starts.push(starts[starts.len() - 1] + scratch.count as u64 * each);
        }
        let at = |span: &collectives::Span| {
            let start = match span.buffer {
                SpanBuffer::Input => 0,
                SpanBuffer::Output => 1,
                SpanBuffer::Scratch(which) => 2 + which,
            };
            starts[start] + span.displacement as u64 + span.from
        };
        let part = |peer: &Peer, span: &collectives::Span| {
            let (Peer::Local(peer) | Peer::Remote(peer)) = *peer;
            Part { peer: peer as u32, at: at(span), len: span.bytes }
        };
        let (mut acts, mut largest) = (Vec::new(), 0);
        for round in 0..schedule.rounds() {
            let (mut receives, mut sends, mut work) = (Vec::new(), Vec::new(), 0);
            for step in schedule.steps(round) {
                match step {
                    Step::Receive { peer, span } => receives.push(part(peer, span)),
                    Step::Send { peer, span } => sends.push(part(peer, span)),
                    Step::Reduce { from, .. } | Step::Copy { from, .. } => work += from.bytes,
                }
            }
            largest = receives.iter().chain(&sends).map(|part| part.len).fold(largest, u64::max);
            if !receives.is_empty() || !sends.is_empty() {
                acts.push(Act::Exchange { receives, sends });
            }
            if work > 0 {
                acts.push(Act::Work { bytes: work });
            }
        }
        Self { acts, bytes: starts[starts.len() - 1], largest }
    }
}

impl Side for Call {
    fn round(
        &mut self,
        session: &mut Session<'_>,
        round: Round,
        readings: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let is_huge = self.ranks > RANKS_MAX;
        sample_spans(session, round, readings, |session, count, deadline| {
            let mut all = Span::ZERO;
            if is_huge && count == 0 {
                return Ok(all);
            }
            for _ in 0..count {
                self.meet(deadline)?;
                let began = session.host.now();
                (0..self.together).try_for_each(|which| self.call(which as usize, deadline))?;
                all += session.host.now() - began;
            }
            // A rank that sends last, such as one in a tree, must not leave before its NIC has sent: after a barrier
            // it has.
            if !is_huge {
                self.meet(deadline)?;
            }
            Ok(all)
        })?;
        // A rank that ends now may have data queued that others wait for. If the number of ranks is a power of two,
        // all end with a receive.
        if is_huge || !self.ranks.is_power_of_two() {
            self.port.offload.finish();
        }
        Ok(())
    }

    fn messages(&self) -> u64 {
        self.together
    }
}
