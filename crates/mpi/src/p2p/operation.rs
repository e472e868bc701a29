//! [`Operation`]: the engine's record of a send or a receive in progress.

use host::{SlotKey, SlotTable};
use verbs::Buf;

use crate::comm::group::Group;
use crate::error::{Class, Error};
use crate::memory::{Buffer, Piece};
use crate::p2p::bsend_space::SpaceShare;
use crate::p2p::matching::{Envelope, MatchCriteria};
use crate::p2p::over_portals::{FoundMessage, PortalsKey};
use crate::p2p::proto::Proto;
use crate::p2p::shm_copy::Copying;
use crate::p2p::wire::RemoteMemory;
use crate::status::{Status, UNDEFINED};
use transport::Registration;

/// Values by [`SlotKey`]. A request is a key and two more bits, so generations have 30 bits.
pub(crate) type Table<T> = SlotTable<T, { (1 << 30) - 1 }>;

/// The data of an arrived message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ArrivedData<'a> {
    /// In a slot: the buffer, an offset, and a length in bytes.
    Slot(&'a Buf, usize, usize),
    /// In a copy of the message.
    Bytes(&'a [u8]),
}

impl ArrivedData<'_> {
    /// Its length in bytes.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Slot(_, _, len) => len,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Copies as much as the buffer has room for.
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

    /// Copies as [`ArrivedData::store`] does, into one piece.
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

    /// Copies the data to an offset in a buffer.
    pub(crate) fn copy_to_buf(self, into: &Buf, at: usize) -> verbs::Result<()> {
        match self {
            Self::Slot(buf, from, len) => buf.copy_to(from, into, at, len),
            Self::Bytes(from) => into.write(at, from),
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

/// Where a match is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MatchReport {
    /// To the sender, by its number for its request.
    Peer(u64),
    /// To a request of this process, which sent to itself.
    Own(SlotKey),
}

/// A long message, as announced by its RTS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RtsInfo {
    /// The sender's number for its request.
    pub(crate) id: u64,
    /// The payload in the sender's memory.
    pub(crate) at: RemoteMemory,
}

/// The contents of an unexpected message.
#[derive(Debug)]
pub(crate) enum UnexpectedBody {
    /// Its data have arrived.
    Data { bytes: Vec<u8>, answer: Option<MatchReport> },
    /// Its data arrive, or have arrived, in memory of [`KeptMessages`](crate::p2p::kept::KeptMessages).
    Kept { key: SlotKey, length: u64 },
    /// The address of its data.
    Rts(RtsInfo),
    /// A message that Portals holds.
    FoundMessage(FoundMessage),
}

impl UnexpectedBody {
    /// Bytes of the message.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Data { bytes, .. } => bytes.len() as u64,
            Self::Kept { length, .. } => *length,
            Self::Rts(rts) => rts.at.length,
            Self::FoundMessage(found) => found.len,
        }
    }
}

/// Maps the possible senders of a receive to their ranks.
#[derive(Clone, Debug)]
pub(crate) enum SourceRanks {
    /// The rank of the only possible sender.
    One(i32),
    /// The possible senders are the members of this group.
    Group(Group),
}

/// Maps the possible senders of a plain receive to their ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlainSourceRanks {
    /// The rank of the only possible sender.
    One(i32),
    /// Process numbers are ranks, all less than this.
    Identity(u32),
}

impl PlainSourceRanks {
    /// The rank of a sender.
    #[inline]
    fn rank_of(self, process: u32) -> i32 {
        match self {
            Self::One(rank) => rank,
            Self::Identity(count) if process < count => process as i32,
            Self::Identity(_) => UNDEFINED,
        }
    }
}

impl From<PlainSourceRanks> for SourceRanks {
    fn from(sources: PlainSourceRanks) -> Self {
        match sources {
            PlainSourceRanks::One(rank) => Self::One(rank),
            PlainSourceRanks::Identity(count) => Self::Group(Group::of_all(count)),
        }
    }
}

impl SourceRanks {
    /// These sources in the form for a plain receive, if they fit.
    #[inline]
    fn plain(&self) -> Option<PlainSourceRanks> {
        match self {
            Self::One(rank) => Some(PlainSourceRanks::One(*rank)),
            Self::Group(group) => {
                group.has_world_ranks().then(|| PlainSourceRanks::Identity(group.size() as u32))
            }
        }
    }

    /// The rank of a sender.
    #[inline]
    fn rank_of(&self, process: u32) -> Option<i32> {
        match self {
            Self::One(rank) => Some(*rank),
            Self::Group(group) => group.rank_of(process),
        }
    }

    /// Whether a process is a possible sender, for a receive from any source.
    pub(crate) fn include_any_source(&self, process: u32) -> bool {
        matches!(self, Self::Group(group) if group.rank_of(process).is_some())
    }

    /// Whether `is` holds for all processes of the group; false without a group.
    pub(crate) fn all(&self, is: impl Fn(u32) -> bool) -> bool {
        match self {
            Self::One(_) => false,
            Self::Group(group) => (0..group.size()).filter_map(|rank| group.process(rank)).all(is),
        }
    }
}

/// A receive: which messages it accepts, its buffer, and the ranks of its possible senders.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) wanted: MatchCriteria,
    pub(crate) buffer: Buffer,
    pub(crate) sources: SourceRanks,
}

impl Receive {
    /// The status of a message of `len` bytes for this receive.
    #[inline]
    pub(crate) fn status(&self, envelope: &Envelope, len: u64) -> Status {
        let source = self.sources.rank_of(envelope.source).unwrap_or(UNDEFINED);
        status_of(source, envelope.match_key.tag, len, self.buffer.len())
    }

    /// This receive as a plain one, if it can be.
    #[inline]
    pub(crate) fn plain(&self) -> Option<PlainReceive> {
        Some(PlainReceive { into: self.buffer.unowned_piece()?, sources: self.sources.plain()? })
    }

    /// Stores a message's data, which completes the receive.
    #[inline]
    pub(crate) fn store(&self, envelope: &Envelope, data: ArrivedData<'_>) -> Status {
        match data.store(&self.buffer) {
            Ok(()) => self.status(envelope, data.len() as u64),
            Err(error) => Status::failed(error.into()),
        }
    }
}

/// The status of a message of `len` bytes that was received into `room` bytes.
#[inline]
fn status_of(source: i32, tag: i32, len: u64, room: u64) -> Status {
    let error = (len > room).then(|| truncate_error(len, room).into());
    Status { source, tag, error, bytes: len.min(room), cancelled: false }
}

#[cold]
fn truncate_error(len: u64, room: u64) -> Error {
    Error::new(
        Class::TRUNCATE,
        format_args!("the message has {len} bytes, but the receive has room for {room}"),
    )
}

/// The status that a probe returns.
pub(crate) fn envelope_status(envelope: &Envelope, len: u64, sources: &Group) -> Status {
    Status {
        source: sources.rank_of(envelope.source).unwrap_or(UNDEFINED),
        tag: envelope.match_key.tag,
        bytes: len,
        ..Status::empty()
    }
}

/// The receive of a message whose data are being moved from the sender's memory.
#[derive(Debug)]
pub(crate) struct LongReceive {
    pub(crate) receive: Receive,
    pub(crate) envelope: Envelope,
    /// The message's RTS.
    pub(crate) rts: RtsInfo,
    /// Pieces that have not arrived (or bytes, before copying starts), and pieces that this side copies now. The memory is in use
    /// until both are zero.
    pub(crate) left: u64,
    pub(crate) in_flight: u64,
    /// This side's part, if the sender also copies.
    pub(crate) copying: Option<Copying>,
    /// The registration of the destination, and its address.
    pub(crate) registration: Registration,
    pub(crate) addr: u64,
    /// The destination of the data, if the program's memory is not contiguous.
    pub(crate) staging: Option<Buf>,
}

impl LongReceive {
    /// The receive of a message into memory at `addr`; nothing has arrived or is in progress.
    pub(crate) fn new(
        receive: Receive,
        (envelope, rts): (Envelope, RtsInfo),
        registration: Registration,
        (addr, staging): (u64, Option<Buf>),
    ) -> Self {
        let (left, in_flight, copying) = (0, 0, None);
        Self { receive, envelope, rts, left, in_flight, copying, registration, addr, staging }
    }

    /// Whether all pieces have arrived, as far as either side reports, and nothing writes to the memory any more.
    pub(crate) fn is_complete(&self) -> bool {
        self.left == 0 && self.in_flight == 0
    }
}

/// The receive of a message whose sender has begun to send its data.
#[derive(Debug)]
pub(crate) struct RestReceive {
    pub(crate) receive: Receive,
    pub(crate) envelope: Envelope,
    /// Bytes of the message.
    pub(crate) length: u64,
    /// Keeps the memory registered into which the device reads the data.
    pub(crate) _registration: Option<Registration>,
}

/// Local memory that RDMA requests use until they complete.
#[derive(Debug)]
pub(crate) struct RdmaBuffer {
    pub(crate) buffer: Buffer,
    /// The contiguous memory that is written from or read into, if the buffer is not contiguous.
    pub(crate) staging: Option<Buf>,
    /// Whether data are read into `staging`, and then copied to the buffer.
    pub(crate) is_read: bool,
    /// Keeps the memory registered.
    pub(crate) _registration: Registration,
}

/// RDMA requests to a peer's memory.
#[derive(Debug)]
pub(crate) struct RdmaAccess {
    pub(crate) process: u32,
    /// Requests in flight.
    pub(crate) left: usize,
    pub(crate) rdma_buffer: Option<RdmaBuffer>,
}

/// A long message, whose data the receiver can access.
#[derive(Debug)]
pub(crate) struct LongSend {
    pub(crate) registration: Registration,
    /// A copy of the data, if they are not sent from the program's memory.
    pub(crate) staging: Option<Buf>,
    pub(crate) buffer: Buffer,
    /// This side's part in copying them, if it has one.
    pub(crate) sender_copy: Option<SenderCopy>,
    /// The protocol of the RTS, until the message is counted.
    pub(crate) uncounted: Option<Proto>,
}

impl LongSend {
    /// The send of contiguous data of the program; counted as `uncounted` when the receiver answers.
    pub(crate) fn new(registration: Registration, buffer: Buffer, uncounted: Option<Proto>) -> Self {
        Self { registration, staging: None, buffer, sender_copy: None, uncounted }
    }

    /// Whether this process's device is copying pieces of the data.
    pub(crate) fn is_copied_from(&self) -> bool {
        self.sender_copy.as_ref().is_some_and(|sender_copy| sender_copy.in_flight > 0)
    }
}

/// The part of a message that its sender copies on the receiver's invitation.
#[derive(Debug)]
pub(crate) struct SenderCopy {
    pub(crate) copying: Copying,
    /// The receiver's number for its request.
    pub(crate) key: u64,
    /// Pieces in progress, and copied pieces.
    pub(crate) in_flight: u32,
    pub(crate) copied: u32,
}

/// A receive of contiguous bytes of the program, as most are. The matching queue holds its source and tag. It owns nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainReceive {
    pub(crate) into: Piece,
    pub(crate) sources: PlainSourceRanks,
}

impl PlainReceive {
    /// Stores a message's data, which completes the receive.
    #[inline]
    fn store(&self, envelope: &Envelope, data: ArrivedData<'_>) -> Status {
        match data.store_in(self.into) {
            Ok(()) => {
                let source = self.sources.rank_of(envelope.source);
                status_of(source, envelope.match_key.tag, data.len() as u64, self.into.len() as u64)
            }
            Err(error) => Status::failed(error.into()),
        }
    }

    /// The status of a message that was received whole, with `len` bytes.
    #[inline]
    pub(crate) fn status(&self, source: u32, tag: i32, len: usize) -> Status {
        let source = self.sources.rank_of(source);
        Status { source, tag, bytes: len as u64, cancelled: false, error: None }
    }
}

/// The kind of an operation, and its state.
#[derive(Debug)]
pub(crate) enum OpState {
    /// A send, complete when its answer arrives, or without one when the message has been sent. `long_send` keeps the data
    /// accessible for the peer.
    Send { to: u32, awaits_fin: bool, long_send: Option<Box<LongSend>> },
    /// An unmatched receive. Boxed: receives that are not plain are rare, and large.
    Receive(Box<Receive>),
    /// An unmatched plain receive.
    PlainReceive(PlainReceive),
    /// A receive that is moving the data of its message.
    LongReceive(Box<LongReceive>),
    /// A receive whose message has begun to arrive, and that completes with its rest.
    RestReceive(Box<RestReceive>),
    /// RDMA to a peer's memory.
    Access(Box<RdmaAccess>),
    /// A send or a receive over Portals.
    Portals(PortalsKey),
    /// An operation in several steps.
    Task,
    /// Completed.
    Completed(Status),
}

/// An operation in progress. It is small, since each message has one.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) state: OpState,
    /// Detached: removed when it completes, since no caller asks for its status.
    pub(crate) is_detached: bool,
    /// A send whose receiver was asked to drop the message.
    pub(crate) cancel_requested: bool,
    /// The part of a space for buffered sends that it uses.
    pub(crate) buffered: Option<Box<SpaceShare>>,
    comm: u64,
}

// With its slot's bookkeeping it fills one cache line.
const _: () = assert!(size_of::<Operation>() <= 56);

/// Stands for no communicator: no communicator has this number.
const NO_COMM: u64 = u64::MAX;

impl Operation {
    /// Creates an operation whose status a caller will ask for.
    #[inline]
    pub(crate) fn new(state: OpState) -> Self {
        Self { state, is_detached: false, cancel_requested: false, buffered: None, comm: NO_COMM }
    }

    /// Creates an operation as [`Operation::new`] does, for a communicator.
    #[inline]
    pub(crate) fn for_comm(state: OpState, comm: u64) -> Self {
        Self { comm, ..Self::new(state) }
    }

    /// The number of its communicator, if a request names it.
    #[inline]
    pub(crate) fn comm(&self) -> Option<u64> {
        (self.comm != NO_COMM).then_some(self.comm)
    }

    /// Sets its communicator.
    #[inline]
    pub(crate) fn set_comm(&mut self, comm: u64) {
        self.comm = comm;
    }

    /// The processes that may send its message, if it is an unmatched receive.
    pub(crate) fn possible_sources(&self) -> Option<SourceRanks> {
        match &self.state {
            OpState::Receive(receive) => Some(receive.sources.clone()),
            OpState::PlainReceive(plain) => Some(plain.sources.into()),
            _ => None,
        }
    }

    /// The receive that this message has matched; `None` if the operation is not a receive.
    pub(crate) fn receive(&self, envelope: &Envelope) -> Option<Receive> {
        match &self.state {
            OpState::Receive(receive) => Some(Receive::clone(receive)),
            OpState::PlainReceive(PlainReceive { into, sources }) => {
                let Envelope { source, match_key } = *envelope;
                let wanted = MatchCriteria {
                    context: match_key.context,
                    source: Some(source),
                    tag: Some(match_key.tag),
                };
                Some(Receive { wanted, buffer: into.buffer(), sources: (*sources).into() })
            }
            _ => None,
        }
    }

    /// Stores the data of the message that a receive has matched. Returns its status; `None` if the operation is not a receive.
    #[inline]
    pub(crate) fn store(&self, envelope: &Envelope, data: ArrivedData<'_>) -> Option<Status> {
        match &self.state {
            OpState::PlainReceive(plain) => Some(plain.store(envelope, data)),
            OpState::Receive(receive) => Some(receive.store(envelope, data)),
            _ => None,
        }
    }

    /// Stores data at an offset in the memory of a receive whose message has begun to arrive.
    ///
    /// # Errors
    /// The memory's.
    pub(crate) fn store_at(&self, at: usize, data: ArrivedData<'_>) -> verbs::Result<()> {
        let OpState::RestReceive(rest) = &self.state else { return Ok(()) };
        let Some(all) = rest.receive.buffer.piece() else { return Ok(()) };
        let [_, behind] = all.split(at);
        data.store_in(behind)
    }

    /// Whether it cannot complete successfully without this process.
    pub(crate) fn depends_on(&self, process: u32) -> bool {
        match &self.state {
            OpState::Send { to, .. } => *to == process,
            OpState::LongReceive(long_receive) => long_receive.envelope.source == process,
            OpState::RestReceive(rest) => rest.envelope.source == process,
            OpState::Access(access) => access.process == process,
            OpState::Receive(_)
            | OpState::PlainReceive(_)
            | OpState::Portals(_)
            | OpState::Task
            | OpState::Completed(_) => false,
        }
    }
}
