//! [`Operation`]: a send or a receive under way, as the engine keeps it.

use host::{SlotKey, SlotTable};
use verbs::Buf;

use crate::comm::group::Group;
use crate::error::{Class, Error};
use crate::memory::{Buffer, Piece};
use crate::p2p::bsend_space::Share;
use crate::p2p::matching::{Envelope, Wanted};
use crate::p2p::over_portals::{Found, Name};
use crate::p2p::proto::Proto;
use crate::p2p::shm_copy::Copying;
use crate::p2p::wire::Exposed;
use crate::status::{Status, UNDEFINED};
use transport::Registration;

/// Values by [`SlotKey`]. A request is a key and two bits more, so generations have 30 bits.
pub(crate) type Table<T> = SlotTable<T, { (1 << 30) - 1 }>;

/// Where data lie that a message brought.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Brought<'a> {
    /// In a slot, at a place, so many bytes.
    Slot(&'a Buf, usize, usize),
    /// In a copy.
    Bytes(&'a [u8]),
}

impl Brought<'_> {
    /// Bytes of it.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Slot(_, _, len) => len,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Copies as much as there is room for.
    #[inline]
    fn store(self, buffer: &Buffer) -> verbs::Result<()> {
        match self {
            Self::Slot(buf, at, len) => buffer.store_from(buf, at, len),
            Self::Bytes(bytes) => {
                buffer.store(bytes);
                Ok(())
            }
        }
    }

    /// As [`Brought::store`], into one piece.
    #[inline]
    fn store_in(self, piece: Piece) -> verbs::Result<()> {
        match self {
            Self::Slot(buf, at, len) => piece.store_from(buf, at, len),
            Self::Bytes(bytes) => {
                piece.store(bytes);
                Ok(())
            }
        }
    }

    /// Copies the data.
    pub(crate) fn to_vec(self) -> verbs::Result<Vec<u8>> {
        match self {
            Self::Slot(buf, at, len) => buf.to_vec(at..at + len),
            Self::Bytes(bytes) => Ok(bytes.to_vec()),
        }
    }
}

/// Whom to tell that a message was matched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// The sender, by its name for its request.
    Peer(u64),
    /// A request of this process, which sent to itself.
    Own(SlotKey),
}

/// A long message as its RTS announces it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    /// The sender's number for its request.
    pub(crate) id: u64,
    /// The payload in the sender's memory; with `put` its length alone.
    pub(crate) at: Exposed,
    /// The first so many bytes come without a CTS.
    pub(crate) frag_bytes: u32,
    /// The sender writes the rest to where a CTS says.
    pub(crate) put: bool,
}

impl Announced {
    /// Bytes of the first `wanted` that do not come without a CTS.
    pub(crate) fn rest(&self, wanted: u64) -> u64 {
        wanted.saturating_sub(self.frag_bytes.into())
    }
}

/// What a message that nobody waited for has brought.
#[derive(Debug)]
pub(crate) enum Body {
    /// Its data.
    Here { bytes: Vec<u8>, answer: Option<Answer> },
    /// Where its data are.
    Announced(Announced),
    /// What Portals has found.
    Found(Found),
}

impl Body {
    /// Bytes of the message.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Here { bytes, .. } => bytes.len() as u64,
            Self::Announced(rts) => rts.at.length,
            Self::Found(found) => found.len,
        }
    }
}

/// What ranks those have that a receive may hear from.
#[derive(Clone, Debug)]
pub(crate) enum Names {
    /// This one, as there is one alone.
    One(i32),
    /// Theirs in this group.
    Of(Group),
}

/// What ranks those have that a plain receive may hear from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlainNames {
    /// This one, as there is one alone.
    One(i32),
    /// Their numbers, which are less than this.
    Numbers(u32),
}

impl PlainNames {
    /// The rank of a process that was heard.
    #[inline]
    fn rank_of(self, process: u32) -> i32 {
        match self {
            Self::One(rank) => rank,
            Self::Numbers(count) if process < count => process as i32,
            Self::Numbers(_) => UNDEFINED,
        }
    }
}

impl From<PlainNames> for Names {
    fn from(names: PlainNames) -> Self {
        match names {
            PlainNames::One(rank) => Self::One(rank),
            PlainNames::Numbers(count) => Self::Of(Group::of_all(count)),
        }
    }
}

impl Names {
    /// These, if they can be those of a plain receive.
    #[inline]
    fn plain(&self) -> Option<PlainNames> {
        match self {
            Self::One(rank) => Some(PlainNames::One(*rank)),
            Self::Of(group) => group.is_numbered().then(|| PlainNames::Numbers(group.size() as u32)),
        }
    }

    /// The rank of a process that was heard.
    #[inline]
    fn rank_of(&self, process: u32) -> Option<i32> {
        match self {
            Self::One(rank) => Some(*rank),
            Self::Of(group) => group.rank_of(process),
        }
    }

    /// Whether a process may be heard from, where any of them may.
    pub(crate) fn contain(&self, process: u32) -> bool {
        matches!(self, Self::Of(group) if group.rank_of(process).is_some())
    }

    /// Whether `is` holds for all processes of the group; false without a group.
    pub(crate) fn all(&self, is: impl Fn(u32) -> bool) -> bool {
        match self {
            Self::One(_) => false,
            Self::Of(group) => (0..group.size()).filter_map(|rank| group.process(rank)).all(is),
        }
    }
}

/// A receive: what for, whereto, and what ranks its peers have.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) wanted: Wanted,
    pub(crate) buffer: Buffer,
    pub(crate) names: Names,
}

impl Receive {
    /// The status of a message of `len` bytes for this receive.
    #[inline]
    pub(crate) fn status(&self, envelope: &Envelope, len: u64) -> Status {
        let source = self.names.rank_of(envelope.source).unwrap_or(UNDEFINED);
        received(source, envelope.label.tag, len, self.buffer.len())
    }

    /// This one, if it can be a plain receive.
    #[inline]
    pub(crate) fn plain(&self) -> Option<Plain> {
        Some(Plain { into: self.buffer.bare_piece()?, names: self.names.plain()? })
    }

    /// Takes a message's data; the receive is over then.
    #[inline]
    pub(crate) fn take(&self, envelope: &Envelope, data: Brought<'_>) -> Status {
        match data.store(&self.buffer) {
            Ok(()) => self.status(envelope, data.len() as u64),
            Err(error) => Status::failed(error.into()),
        }
    }
}

/// The status of a message of `len` bytes, where there was room for so many.
#[inline]
fn received(source: i32, tag: i32, len: u64, room: u64) -> Status {
    let error = (len > room).then(|| cut(len, room).into());
    Status { source, tag, error, bytes: len.min(room), cancelled: false }
}

#[cold]
fn cut(len: u64, room: u64) -> Error {
    Error::new(
        Class::TRUNCATE,
        format_args!("the message has {len} bytes, but the receive has room for {room}"),
    )
}

/// The status that a probe gives.
pub(crate) fn envelope_status(envelope: &Envelope, len: u64, names: &Group) -> Status {
    Status {
        source: names.rank_of(envelope.source).unwrap_or(UNDEFINED),
        tag: envelope.label.tag,
        bytes: len,
        ..Status::empty()
    }
}

/// A message whose data are being read from the sender's memory.
#[derive(Debug)]
pub(crate) struct LongReceive {
    pub(crate) receive: Receive,
    pub(crate) envelope: Envelope,
    /// The whole message.
    pub(crate) rts: Announced,
    /// The sender is to write the rest of it, and has not yet.
    pub(crate) is_open: bool,
    /// How many of the bytes that come by themselves are there.
    pub(crate) brought: u64,
    /// Pieces that are not there yet, or bytes while nobody copies, and pieces that this side copies now: until they are over, the
    /// memory is in use.
    pub(crate) left: u64,
    pub(crate) under_way: u64,
    /// This side's part, if the sender copies, too.
    pub(crate) copying: Option<Copying>,
    /// Keeps the target reachable, and where it is.
    pub(crate) reach: Registration,
    pub(crate) addr: u64,
    /// Where the data go first, if the program's memory is not in one piece.
    pub(crate) staging: Option<Buf>,
}

impl LongReceive {
    /// Of a message into memory at `addr`, of which nothing is there or under way.
    pub(crate) fn new(
        receive: Receive,
        (envelope, rts): (Envelope, Announced),
        reach: Registration,
        (addr, staging): (u64, Option<Buf>),
    ) -> Self {
        let (is_open, brought, left, under_way, copying) = (false, 0, 0, 0, None);
        Self { receive, envelope, rts, is_open, brought, left, under_way, copying, reach, addr, staging }
    }

    /// Whether all pieces are there, whoever says so, and nothing is written to the memory any more.
    pub(crate) fn is_whole(&self) -> bool {
        self.left == 0 && self.under_way == 0
    }
}

/// What requests that read or write a peer's memory use of this process's until they are over.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) buffer: Buffer,
    /// What is written from or read into, if the buffer is not in one piece.
    pub(crate) staging: Option<Buf>,
    /// Whether what was read goes from there into the buffer.
    pub(crate) is_read: bool,
    /// Keeps the memory reachable for the device.
    pub(crate) _reach: Registration,
}

/// Requests that read or change a peer's memory.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) process: u32,
    /// Those under way.
    pub(crate) left: usize,
    pub(crate) lent: Option<Lent>,
}

/// A long message whose data the receiver can reach.
#[derive(Debug)]
pub(crate) struct LongSend {
    pub(crate) reach: Registration,
    /// Where the data are, if not in the program's memory.
    pub(crate) staging: Option<Buf>,
    pub(crate) buffer: Buffer,
    /// This side's part in copying them, if it has one.
    pub(crate) helping: Option<ShmHelp>,
    /// What this side writes to the receiver, if it does.
    pub(crate) writing: Option<PutSend>,
    /// The protocol that the RTS stands for, until the message is counted.
    pub(crate) uncounted: Option<Proto>,
}

impl LongSend {
    /// Of data in one piece of the program's; `uncounted` is counted when the receiver answers.
    pub(crate) fn new(reach: Registration, buffer: Buffer, uncounted: Option<Proto>) -> Self {
        Self { reach, staging: None, buffer, helping: None, writing: None, uncounted }
    }

    /// Whether this process's device copies pieces of the data.
    pub(crate) fn is_copied_from(&self) -> bool {
        self.helping.as_ref().is_some_and(|helping| helping.under_way > 0)
            || self.writing.as_ref().is_some_and(|writing| writing.under_way > 0)
    }
}

/// How the sender of a message writes the rest of it.
#[derive(Debug)]
pub(crate) struct PutSend {
    /// The rest.
    pub(crate) rest: Piece,
    /// Writes that are not over.
    pub(crate) under_way: u32,
}

/// How the sender of a message copies pieces of it.
#[derive(Debug)]
pub(crate) struct ShmHelp {
    pub(crate) copying: Copying,
    /// The receiver's name for its request.
    pub(crate) key: u64,
    /// Pieces under way, and those that are there.
    pub(crate) under_way: u32,
    pub(crate) copied: u32,
}

/// A receive of bytes of the program's in one piece: most are such. What it is for stands where receives wait. It holds nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    pub(crate) into: Piece,
    pub(crate) names: PlainNames,
}

impl Plain {
    /// Takes a message's data; the receive is over then.
    #[inline]
    fn take(&self, envelope: &Envelope, data: Brought<'_>) -> Status {
        match data.store_in(self.into) {
            Ok(()) => {
                let source = self.names.rank_of(envelope.source);
                received(source, envelope.label.tag, data.len() as u64, self.into.len() as u64)
            }
            Err(error) => Status::failed(error.into()),
        }
    }

    /// The status of a message of which it has got all `len` bytes.
    #[inline]
    pub(crate) fn status(&self, source: u32, tag: i32, len: usize) -> Status {
        let source = self.names.rank_of(source);
        Status { source, tag, bytes: len as u64, cancelled: false, error: None }
    }
}

/// What an operation is about.
#[derive(Debug)]
pub(crate) enum Work {
    /// A message waits for its answer, or else to leave. What it holds keeps the data reachable for the peer.
    Send { to: u32, answered: bool, held: Option<Box<LongSend>> },
    /// A receive waits for its message. Those that are not plain are few, and large.
    Receive(Box<Receive>),
    /// Likewise.
    Plain(Plain),
    /// A receive has its message, and reads the data.
    LongReceive(Box<LongReceive>),
    /// A peer's memory is read or changed.
    Access(Box<Access>),
    /// A send or a receive goes over Portals.
    Portals(Name),
    /// Something in several steps.
    Task,
    /// It is over.
    Over(Status),
}

/// An operation under way. It is small, as each message has one.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) work: Work,
    /// Nobody asks for its status: it goes when it is over.
    pub(crate) free: bool,
    /// It is a send, and its receiver has been asked to give the message back.
    pub(crate) withdrawing: bool,
    /// What it takes of a space for buffered sends.
    pub(crate) buffered: Option<Box<Share>>,
    comm: u64,
}

// With its place in the table it is one cache line.
const _: () = assert!(size_of::<Operation>() <= 56);

/// In the place of a communicator's number: a number that none has.
const NO_COMM: u64 = u64::MAX;

impl Operation {
    /// An operation that somebody will ask for.
    #[inline]
    pub(crate) fn new(work: Work) -> Self {
        Self { work, free: false, withdrawing: false, buffered: None, comm: NO_COMM }
    }

    /// As [`Operation::new`], one of a communicator's.
    #[inline]
    pub(crate) fn of(work: Work, comm: u64) -> Self {
        Self { comm, ..Self::new(work) }
    }

    /// The number of its communicator, if a request names it.
    #[inline]
    pub(crate) fn comm(&self) -> Option<u64> {
        (self.comm != NO_COMM).then_some(self.comm)
    }

    /// Says whose it is.
    #[inline]
    pub(crate) fn belongs(&mut self, comm: u64) {
        self.comm = comm;
    }

    /// The ranks of its possible senders, if it is a receive that has not matched.
    pub(crate) fn names(&self) -> Option<Names> {
        match &self.work {
            Work::Receive(receive) => Some(receive.names.clone()),
            Work::Plain(plain) => Some(plain.names.into()),
            _ => None,
        }
    }

    /// The receive of a message for which it has waited, if it is one.
    pub(crate) fn receive(&self, envelope: &Envelope) -> Option<Receive> {
        match &self.work {
            Work::Receive(receive) => Some(Receive::clone(receive)),
            Work::Plain(Plain { into, names }) => {
                let Envelope { source, label } = *envelope;
                let wanted = Wanted { context: label.context, source: Some(source), tag: Some(label.tag) };
                Some(Receive { wanted, buffer: into.buffer(), names: (*names).into() })
            }
            _ => None,
        }
    }

    /// Gives a receive the data of a message for which it has waited: how it ends; nothing if it is none.
    #[inline]
    pub(crate) fn take(&self, envelope: &Envelope, data: Brought<'_>) -> Option<Status> {
        match &self.work {
            Work::Plain(plain) => Some(plain.take(envelope, data)),
            Work::Receive(receive) => Some(receive.take(envelope, data)),
            _ => None,
        }
    }

    /// Gives a receive the next part of its message; whether it has all of it then.
    ///
    /// # Errors
    /// The memory's.
    pub(crate) fn take_part(&mut self, data: Brought<'_>) -> verbs::Result<bool> {
        let Work::LongReceive(reading) = &mut self.work else { return Ok(false) };
        let at = reading.brought as usize;
        match (&reading.staging, reading.receive.buffer.piece()) {
            (None, Some(all)) => {
                let [_, behind] = all.split(at);
                data.store_in(behind)?;
            }
            (Some(staging), _) if at < staging.len() => {
                let bytes = data.to_vec()?;
                staging.write(at, &bytes[..bytes.len().min(staging.len() - at)])?;
            }
            // There is no room for it.
            _ => {}
        }
        let before = reading.brought;
        reading.brought += data.len() as u64;
        let all = u64::from(reading.rts.frag_bytes);
        if before < all && all <= reading.brought {
            reading.left = reading.left.saturating_sub(1);
        }
        Ok(reading.is_whole())
    }

    /// Whether it can come to no good end without this process.
    pub(crate) fn needs(&self, process: u32) -> bool {
        match &self.work {
            Work::Send { to, .. } => *to == process,
            Work::LongReceive(reading) => reading.envelope.source == process,
            Work::Access(access) => access.process == process,
            Work::Receive(_) | Work::Plain(_) | Work::Portals(_) | Work::Task | Work::Over(_) => false,
        }
    }
}
