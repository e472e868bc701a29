//! [`CallBuffers`]: translates the spans of a schedule to memory, and its ranks to processes.

use collectives::{ElementType, Operands, Peer, Schedule, Span, Step};
use datatypes::{Basic, Datatype, Op};

use crate::coll::sched::{Plan, SchedStep};
use crate::comm::group::Group;
use crate::error::{Class, Error, Result};
use crate::memory::{Buffer, ScratchPool};
use crate::p2p::wire::MatchKey;

/// The buffers of a call. Where each block has its own buffer, the index in a span's type is the block's number.
#[derive(Debug)]
pub(crate) struct CallBuffers {
    /// Input buffers: one for each block, or a single one.
    input: Vec<Buffer>,
    /// Output buffers.
    output: Vec<Buffer>,
    scratch: Vec<Buffer>,
}

fn not_in_call() -> Error {
    Error::new(Class::INTERN, "a schedule refers to a buffer or a rank that its call does not have")
}

impl CallBuffers {
    /// The buffers of a call with this input and output.
    pub(crate) fn new(input: Vec<Buffer>, output: Vec<Buffer>) -> Self {
        Self { input, output, scratch: Vec::new() }
    }

    /// The plan for a schedule, with scratch memory from the pool.
    pub(crate) fn plan(
        mut self,
        schedule: &Schedule,
        (mine, others): (&Group, &Group),
        match_key: MatchKey,
        op: Option<Op>,
        pool: &ScratchPool,
    ) -> Result<Plan> {
        for scratch in schedule.scratch() {
            let datatype = self.datatype(scratch.datatype)?;
            self.scratch.push(Buffer::scratch(datatype, scratch.count, pool)?);
        }
        let process = |peer: &Peer| match peer {
            Peer::Local(rank) => mine.process(*rank as i32).ok_or_else(not_in_call),
            Peer::Remote(rank) => others.process(*rank as i32).ok_or_else(not_in_call),
        };
        let bind = |step: &Step| {
            Ok(match step {
                Step::Send { peer, span } => {
                    SchedStep::Send { to: process(peer)?, buffer: self.buffer(span)? }
                }
                Step::Receive { peer, span } => {
                    SchedStep::Receive { from: process(peer)?, buffer: self.buffer(span)? }
                }
                Step::Reduce { from, into, operands } => {
                    let swapped = *operands == Operands::IntoFrom;
                    SchedStep::Reduce { from: self.buffer(from)?, into: self.buffer(into)?, swapped }
                }
                Step::Copy { from, to } => SchedStep::Copy { from: self.buffer(from)?, to: self.buffer(to)? },
            })
        };
        let rounds = (0..schedule.rounds()).map(|round| schedule.steps(round).iter().map(bind).collect());
        Ok(Plan { rounds: rounds.collect::<Result<_>>()?, match_key, op, called: None })
    }

    fn datatype(&self, datatype: ElementType) -> Result<Datatype> {
        match datatype {
            ElementType::Bytes => Ok(Basic::Byte.into()),
            ElementType::Send(at) => Ok(self.input.get(at).ok_or_else(not_in_call)?.datatype().clone()),
            ElementType::Receive(at) => Ok(self.output.get(at).ok_or_else(not_in_call)?.datatype().clone()),
        }
    }

    fn buffer(&self, span: &Span) -> Result<Buffer> {
        if span.bytes == 0 {
            return Ok(Buffer::empty());
        }
        let (ElementType::Send(at) | ElementType::Receive(at)) = span.datatype else {
            let collectives::SpanBuffer::Scratch(at) = span.buffer else { return Err(not_in_call()) };
            return self.part(self.scratch.get(at).ok_or_else(not_in_call)?, span);
        };
        let whole = match span.buffer {
            collectives::SpanBuffer::Input => self.input.get(at),
            collectives::SpanBuffer::Output => self.output.get(at),
            collectives::SpanBuffer::Scratch(at) => self.scratch.get(at),
        };
        self.part(whole.ok_or_else(not_in_call)?, span)
    }

    fn part(&self, whole: &Buffer, span: &Span) -> Result<Buffer> {
        let datatype = self.datatype(span.datatype)?;
        // SAFETY: schedules stay within the blocks that their call describes, which are the buffers of `input` and `output`, and
        // within the scratch that they ask for. Test: collectives_match_a_reference, and those of the crate `collectives`.
        let elements = unsafe { whole.at_displacement(span.displacement, span.count, &datatype) }?;
        Ok(elements.packed_range(span.from, span.bytes))
    }
}
