//! Schedules: rounds of steps on spans of buffers.

/// The buffer of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanBuffer {
    /// The caller's send buffer; never written.
    Input,
    /// The caller's receive buffer. With `MPI_IN_PLACE` it also contains the input's spans.
    Output,
    /// A buffer of [`Schedule::scratch`], by index.
    Scratch(usize),
}

/// The datatype of elements, as an argument of the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElementType {
    /// Plain bytes.
    Bytes,
    /// A type of the send side: the only one, or the type for a peer.
    Send(usize),
    /// A type of the receive side: the only one, or the type for a peer.
    Receive(usize),
}

/// Numbers of scratch buffers from here on are those of the schedule to which this one will be appended.
const OUTER: usize = usize::MAX / 2;

/// Elements in a buffer, or a window of their packed form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The buffer.
    pub buffer: SpanBuffer,
    /// The type of an element.
    pub datatype: ElementType,
    /// Offset of the first element in the buffer, in bytes.
    pub displacement: i64,
    /// Number of elements.
    pub count: i64,
    /// Distance between elements, in bytes.
    pub extent: i64,
    /// Bytes of data in an element.
    pub size: u64,
    /// Start of the window in the packed form of all elements; not 0 only for parts of data that are only moved.
    pub from: u64,
    /// Bytes of data in the window; less than all elements only for such parts.
    pub bytes: u64,
}

impl Span {
    /// `count` elements of a type, starting at a displacement in bytes.
    pub fn new(
        buffer: SpanBuffer,
        datatype: ElementType,
        displacement: i64,
        count: i64,
        extent: i64,
        size: u64,
    ) -> Self {
        Self { buffer, datatype, displacement, count, extent, size, from: 0, bytes: size * count as u64 }
    }

    /// A span of plain bytes, starting at a displacement in bytes.
    pub fn of_bytes(buffer: SpanBuffer, displacement: i64, bytes: u64) -> Self {
        Self::new(buffer, ElementType::Bytes, displacement, bytes as i64, 1, 1)
    }

    /// No data: for the messages of barriers.
    pub const EMPTY: Self = Self {
        buffer: SpanBuffer::Input,
        datatype: ElementType::Bytes,
        displacement: 0,
        count: 0,
        extent: 1,
        size: 1,
        from: 0,
        bytes: 0,
    };

    /// The elements `first..end` of a span that is no window.
    pub fn elements(self, first: i64, end: i64) -> Self {
        let displacement = self.displacement + first * self.extent;
        Self::new(self.buffer, self.datatype, displacement, end - first, self.extent, self.size)
    }

    /// The span as the task of a schedule names it that will be appended to the span's own: that schedule numbers its scratch
    /// buffers from 0 on.
    pub(crate) fn as_outer(self) -> Self {
        match self.buffer {
            SpanBuffer::Scratch(number) => Self { buffer: SpanBuffer::Scratch(OUTER + number), ..self },
            SpanBuffer::Input | SpanBuffer::Output => self,
        }
    }

    /// The bytes `first..end` of the packed form. A part depends only on sizes, so that ranks with different types agree on it.
    pub fn window(self, first: u64, end: u64) -> Self {
        Self { from: self.from + first, bytes: end - first, ..self }
    }
}

/// The source or destination of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A rank of the local group.
    Local(usize),
    /// A rank of the other group of an intercommunicator.
    Remote(usize),
}

/// The order of operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operands {
    /// `into = from op into`, as in a user-defined function.
    FromInto,
    /// `into = into op from`.
    IntoFrom,
}

/// An action of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Sends the bytes of a span.
    Send {
        /// The destination.
        peer: Peer,
        /// The data.
        span: Span,
    },
    /// Receives exactly the bytes of a span. Messages between two ranks match in the order of their steps.
    Receive {
        /// The source.
        peer: Peer,
        /// The receive buffer.
        span: Span,
    },
    /// Reduces elements into the same number of the same type.
    Reduce {
        /// The span that is read.
        from: Span,
        /// The span that is read and written.
        into: Span,
        /// The order of operands.
        operands: Operands,
    },
    /// Copies bytes of data; types may differ.
    Copy {
        /// The source.
        from: Span,
        /// The destination.
        to: Span,
    },
}

/// A buffer that a schedule needs in addition to the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scratch {
    /// The type of its elements.
    pub datatype: ElementType,
    /// Number of elements.
    pub count: i64,
}

/// A rank's actions in a collective: consecutive rounds.
///
/// No step of a round uses a byte that another step writes, so steps may run concurrently and in any order; a round starts when the
/// previous one has completed. There are rounds instead of a dependency graph: steps that may overlap are in one round, such as a
/// pipeline's sends and receives, and neither the author of an algorithm nor its executor has more to prove.
#[derive(Clone, Default, Debug)]
pub struct Schedule {
    /// The steps of all rounds.
    steps: Vec<Step>,
    /// The end of each round in `steps`. No round is empty.
    ends: Vec<usize>,
    /// The buffers of [`SpanBuffer::Scratch`], by index.
    scratch: Vec<Scratch>,
}

impl Schedule {
    /// Number of rounds.
    pub fn rounds(&self) -> usize {
        self.ends.len()
    }

    /// The steps of a round, at least one.
    ///
    /// # Panics
    /// If the round does not exist.
    pub fn steps(&self, round: usize) -> &[Step] {
        let start = if round == 0 { 0 } else { self.ends[round - 1] };
        &self.steps[start..self.ends[round]]
    }

    /// The buffers of [`SpanBuffer::Scratch`], by index. Their initial contents do not matter.
    pub fn scratch(&self) -> &[Scratch] {
        &self.scratch
    }

    /// Appends a round with the steps that are not `None`, if there are any.
    pub(crate) fn push_round(&mut self, steps: impl IntoIterator<Item = Option<Step>>) {
        let before = self.steps.len();
        self.steps.extend(steps.into_iter().flatten());
        if self.steps.len() > before {
            self.ends.push(self.steps.len());
        }
    }

    /// Appends the rounds of another schedule, which must not use scratch buffers.
    pub(crate) fn append(&mut self, other: &Self) {
        debug_assert!(other.scratch.is_empty(), "indices would clash");
        let before = self.steps.len();
        self.steps.extend(&other.steps);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }

    /// Appends the rounds of a schedule of some ranks, the members: its peers are their numbers in the list.
    pub(crate) fn append_among(&mut self, other: &Self, members: &[usize]) {
        let buffers = self.scratch.len();
        let moved = |span: &Span| match span.buffer {
            SpanBuffer::Scratch(number) => {
                let number = number.checked_sub(OUTER).unwrap_or(buffers + number);
                Span { buffer: SpanBuffer::Scratch(number), ..*span }
            }
            SpanBuffer::Input | SpanBuffer::Output => *span,
        };
        let rank = |peer: &Peer| match peer {
            Peer::Local(number) => Peer::Local(members[*number]),
            Peer::Remote(number) => Peer::Remote(*number),
        };
        let before = self.steps.len();
        self.steps.extend(other.steps.iter().map(|step| match step {
            Step::Send { peer, span } => Step::Send { peer: rank(peer), span: moved(span) },
            Step::Receive { peer, span } => Step::Receive { peer: rank(peer), span: moved(span) },
            Step::Reduce { from, into, operands } => {
                Step::Reduce { from: moved(from), into: moved(into), operands: *operands }
            }
            Step::Copy { from, to } => Step::Copy { from: moved(from), to: moved(to) },
        }));
        self.ends.extend(other.ends.iter().map(|end| before + end));
        self.scratch.extend(&other.scratch);
    }

    /// A new scratch buffer of bytes.
    pub(crate) fn scratch_bytes(&mut self, bytes: u64) -> Span {
        self.scratch.push(Scratch { datatype: ElementType::Bytes, count: bytes as i64 });
        Span::of_bytes(SpanBuffer::Scratch(self.scratch.len() - 1), 0, bytes)
    }

    /// A new scratch buffer for elements like a span's.
    pub(crate) fn scratch_like(&mut self, span: Span) -> Span {
        self.scratch.push(Scratch { datatype: span.datatype, count: span.count });
        Span { buffer: SpanBuffer::Scratch(self.scratch.len() - 1), displacement: 0, ..span }
    }
}

/// Sends to a rank of the local group, unless the span is empty. The peer then knows that it is empty, too.
pub(crate) fn send(peer: usize, span: Span) -> Option<Step> {
    (span.bytes > 0).then_some(Step::Send { peer: Peer::Local(peer), span })
}

/// Receives from a rank of the local group, unless the span is empty.
pub(crate) fn receive(peer: usize, span: Span) -> Option<Step> {
    (span.bytes > 0).then_some(Step::Receive { peer: Peer::Local(peer), span })
}

/// Sends to a rank of the other group, unless the span is empty.
pub(crate) fn send_remote(peer: usize, span: Span) -> Option<Step> {
    (span.bytes > 0).then_some(Step::Send { peer: Peer::Remote(peer), span })
}

/// Receives from a rank of the other group, unless the span is empty.
pub(crate) fn receive_remote(peer: usize, span: Span) -> Option<Step> {
    (span.bytes > 0).then_some(Step::Receive { peer: Peer::Remote(peer), span })
}

/// Copies, unless both spans are the same, as with `MPI_IN_PLACE`.
pub(crate) fn copy(from: Span, to: Span) -> Option<Step> {
    (from.bytes > 0 && from != to).then_some(Step::Copy { from, to })
}

/// `into = from op into`.
pub(crate) fn reduce_left(from: Span, into: Span) -> Option<Step> {
    (from.bytes > 0).then_some(Step::Reduce { from, into, operands: Operands::FromInto })
}

/// `into = into op from`.
pub(crate) fn reduce_right(from: Span, into: Span) -> Option<Step> {
    (from.bytes > 0).then_some(Step::Reduce { from, into, operands: Operands::IntoFrom })
}
