//! Schedules: rounds of steps on spans of buffers.

/// Where bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffer {
    /// The caller's send buffer; never written.
    Input,
    /// The caller's receive buffer. With `MPI_IN_PLACE` spans of it stand for the input, too.
    Output,
    /// A buffer of [`Schedule::scratch`], by index.
    Scratch(usize),
}

/// In which datatype elements are, as an argument of the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// Plain bytes.
    Bytes,
    /// A type of the send side: the only one, or that for a peer.
    Send(usize),
    /// A type of the receive side: the only one, or that for a peer.
    Receive(usize),
}

/// Elements in a buffer, or a window of their packed form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Where they are.
    pub buffer: Buffer,
    /// What an element is.
    pub datatype: Type,
    /// Of the first element from the buffer's start, in bytes.
    pub displacement: i64,
    /// Elements.
    pub count: i64,
    /// Bytes from one element to the next.
    pub extent: i64,
    /// Bytes of data in an element.
    pub size: u64,
    /// Where the window begins in the packed form of all elements; 0 but for parts of what is only moved.
    pub from: u64,
    /// Bytes of data in the window; all there are but for such parts.
    pub bytes: u64,
}

impl Span {
    /// `count` elements of a type, from a displacement in bytes on.
    pub fn new(
        buffer: Buffer,
        datatype: Type,
        displacement: i64,
        count: i64,
        extent: i64,
        size: u64,
    ) -> Self {
        Self { buffer, datatype, displacement, count, extent, size, from: 0, bytes: size * count as u64 }
    }

    /// A span of plain bytes, from a displacement in bytes on.
    pub fn of_bytes(buffer: Buffer, displacement: i64, bytes: u64) -> Self {
        Self::new(buffer, Type::Bytes, displacement, bytes as i64, 1, 1)
    }

    /// Nothing: what a message that only says "I am here" carries.
    pub const EMPTY: Self = Self {
        buffer: Buffer::Input,
        datatype: Type::Bytes,
        displacement: 0,
        count: 0,
        extent: 1,
        size: 1,
        from: 0,
        bytes: 0,
    };

    /// Elements from `first` to before `end`, of a span that is no window.
    pub fn elements(self, first: i64, end: i64) -> Self {
        let displacement = self.displacement + first * self.extent;
        Self::new(self.buffer, self.datatype, displacement, end - first, self.extent, self.size)
    }

    /// Bytes of the packed form from `first` to before `end`: a part that depends on sizes alone, so that ranks whose types differ
    /// agree on it.
    pub fn window(self, first: u64, end: u64) -> Self {
        Self { from: self.from + first, bytes: end - first, ..self }
    }
}

/// Whom a message goes to or comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A rank of the own group.
    Local(usize),
    /// A rank of the other group of an intercommunicator.
    Remote(usize),
}

/// Which operand stands on the left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operands {
    /// `into = from op into`, as a user's function has it.
    FromInto,
    /// `into = into op from`.
    IntoFrom,
}

/// What a rank does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Sends the bytes of a span.
    Send {
        /// To whom.
        peer: Peer,
        /// What.
        span: Span,
    },
    /// Receives exactly the bytes of a span. Messages between two ranks match in the order of their steps.
    Receive {
        /// From whom.
        peer: Peer,
        /// Where to.
        span: Span,
    },
    /// Reduces elements into as many of the same type.
    Reduce {
        /// Read.
        from: Span,
        /// Read and written.
        into: Span,
        /// In which order.
        operands: Operands,
    },
    /// Copies as many bytes of data; types may differ.
    Copy {
        /// Read.
        from: Span,
        /// Written.
        to: Span,
    },
}

/// A buffer that a schedule needs besides the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scratch {
    /// What it holds.
    pub datatype: Type,
    /// How many elements of that.
    pub count: i64,
}

/// What one rank does in a collective: rounds, one after the other.
///
/// Steps of a round use no byte that another of them writes, so they may run at once and in any order; a round begins when the
/// one before is over. Rounds, and not a graph of dependencies: what an algorithm may overlap stands in one round, a pipeline's
/// sends beside its receives, and neither who writes an algorithm nor who runs it has to prove more.
#[derive(Clone, Default, Debug)]
pub struct Schedule {
    /// Round after round.
    steps: Vec<Step>,
    /// Where each round ends among them. None is empty.
    ends: Vec<usize>,
    /// What [`Buffer::Scratch`] names, by index.
    scratch: Vec<Scratch>,
}

impl Schedule {
    /// How many rounds there are.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// The steps of a round, at least one.
    ///
    /// # Panics
    /// If there is no such round.
    pub fn steps(&self, round: usize) -> &[Step] {
        let start = if round == 0 { 0 } else { self.ends[round - 1] };
        &self.steps[start..self.ends[round]]
    }

    /// The buffers that [`Buffer::Scratch`] names, by index. What they hold at the start does not matter.
    pub fn scratch(&self) -> &[Scratch] {
        &self.scratch
    }

    /// Appends a round of the steps that there are.
    pub(crate) fn round(&mut self, steps: impl IntoIterator<Item = Option<Step>>) {
        let before = self.steps.len();
        self.steps.extend(steps.into_iter().flatten());
        if self.steps.len() > before {
            self.ends.push(self.steps.len());
        }
    }

    /// Appends the rounds of another one that uses no buffers of its own.
    pub(crate) fn then(&mut self, other: &Self) {
        debug_assert!(other.scratch.is_empty(), "indices would clash");
        let before = self.steps.len();
        self.steps.extend(&other.steps);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }

    /// A new buffer of bytes.
    pub(crate) fn bytes(&mut self, bytes: u64) -> Span {
        self.scratch.push(Scratch { datatype: Type::Bytes, count: bytes as i64 });
        Span::of_bytes(Buffer::Scratch(self.scratch.len() - 1), 0, bytes)
    }

    /// A new buffer for elements as those of a span.
    pub(crate) fn like(&mut self, span: Span) -> Span {
        self.scratch.push(Scratch { datatype: span.datatype, count: span.count });
        Span { buffer: Buffer::Scratch(self.scratch.len() - 1), displacement: 0, ..span }
    }
}

/// Sends to a rank of the own group, if there is anything to send. Its peer knows as well that there is nothing.
pub(crate) fn send(peer: usize, span: Span) -> Option<Step> {
    (span.bytes > 0).then_some(Step::Send { peer: Peer::Local(peer), span })
}

/// Receives from a rank of the own group, if there is anything to receive.
pub(crate) fn receive(peer: usize, span: Span) -> Option<Step> {
    (span.bytes > 0).then_some(Step::Receive { peer: Peer::Local(peer), span })
}

/// Sends to a rank of the other group, if there is anything to send.
pub(crate) fn send_remote(peer: usize, span: Span) -> Option<Step> {
    (span.bytes > 0).then_some(Step::Send { peer: Peer::Remote(peer), span })
}

/// Receives from a rank of the other group, if there is anything to receive.
pub(crate) fn receive_remote(peer: usize, span: Span) -> Option<Step> {
    (span.bytes > 0).then_some(Step::Receive { peer: Peer::Remote(peer), span })
}

/// Copies, unless it is there already, as with `MPI_IN_PLACE`.
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
