//! [`MessageRma`]: puts and gets as messages, which the target executes when it makes progress. This path is used where
//! [`OneSided`] selects it, in start-complete epochs, for memory that is not mapped, and for contiguous data. All other operations
//! use the device.
//!
//! Operations are sent when the epoch completes, and the last one to each target is marked, so that no extra message ends the
//! epoch. A short put includes its data. A long put is announced, and its data are received directly into the window. A get is a
//! request, and its reply is received directly into the origin's buffer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datatypes::{Basic, Datatype};
use host::{Host, Lock, SlotKey, Step};

use crate::comm::communicator::Comm;
use crate::comm::context::Plane;
use crate::comm::group::Group;
use crate::core::Core;
use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::p2p::engine::{Engine, Mode, Started, Task};
use crate::p2p::matching::MatchCriteria;
use crate::p2p::operation::{Receive, SourceRanks};
use crate::p2p::wire::MatchKey;
use crate::rma::control_messages::StopOnDrop;
use crate::rma::one_sided::OneSided;
use crate::rma::target::{ElementLocation, Target, TargetRange};
use crate::status::Status;

/// The tag of operations, and the first tag of separate data messages.
const OP_TAG: i32 = 2;
const DATA_TAG: i32 = 16;
/// Bytes of the header, which precedes a short put's data.
const HEADER: usize = 32;
/// Maximum data in an operation's message, in a job with the largest slots.
const SHORT_MAX: usize = 8 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpKind {
    EndEpoch,
    Put,
    LongPut,
    Get,
}

/// The header of an operation's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    kind: OpKind,
    /// The operation ends the epoch.
    is_last: bool,
    /// The tag of the data message, if the data are sent separately.
    tag: i32,
    offset: u64,
    length: u64,
    /// Operations of this origin so far, including this one.
    op_count: u64,
}

impl Header {
    fn bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        (bytes[0], bytes[1]) = (self.kind as u8, u8::from(self.is_last));
        bytes[4..8].copy_from_slice(&self.tag.to_le_bytes());
        for (at, number) in [(8, self.offset), (16, self.length), (24, self.op_count)] {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let u64_at = |at: usize| bytes.get(at..at + 8)?.first_chunk().map(|part| u64::from_le_bytes(*part));
        let kind = [OpKind::EndEpoch, OpKind::Put, OpKind::LongPut, OpKind::Get];
        let kind = *kind.get(usize::from(*bytes.first()?))?;
        let tag = bytes.get(4..8)?.first_chunk().map(|part| i32::from_le_bytes(*part))?;
        let (is_last, offset) = (bytes[1] != 0, u64_at(8)?);
        Some(Self { kind, is_last, tag, offset, length: u64_at(16)?, op_count: u64_at(24)? })
    }
}

/// The overhead that a synchronization call has, before its messages leave, in libraries that send operations as messages: MPICH2
/// 1.0.5's `ch3u_rma_sync.c`, on which MVAPICH2 builds.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncOverhead {
    /// Nested MPI calls, without the one that sends the message.
    calls: u64,
    /// Memory allocations, which are charged as requests.
    allocations: u64,
}

impl SyncOverhead {
    /// `MPI_Win_post`: `MPI_Comm_group`, `MPI_Group_translate_ranks`, `MPI_Comm_rank`; ranks in two groups.
    pub(super) const POST: Self = Self { calls: 3, allocations: 2 };
    /// `MPI_Win_complete`: the same calls; ranks in two groups, operations of each rank twice, and for all of them requests,
    /// datatypes and their loops.
    pub(super) const COMPLETE: Self = Self { calls: 3, allocations: 7 };
}

/// An operation that is queued until its epoch ends.
struct QueuedOp {
    rank: i32,
    is_put: bool,
    offset: u64,
    buffer: Buffer,
}

/// The operations that this process has started as an origin.
#[derive(Default)]
struct OriginState {
    queued: Vec<QueuedOp>,
    /// Operations sent, by rank.
    sent_counts: BTreeMap<i32, u64>,
    /// The number of the last message, from which the tag of its data derives.
    tag_counter: i32,
}

/// The operations that this process has received as a target, of one origin.
#[derive(Clone, Copy, Default)]
struct OriginProgress {
    done: u64,
    /// The number of operations that completes the epoch.
    ends: Option<u64>,
}

/// The operations of one window that are sent as messages.
pub(super) struct MessageRma {
    limits: OneSided,
    context: u64,
    group: Group,
    origin_state: Lock<OriginState>,
    origins: Arc<Lock<Vec<OriginProgress>>>,
    /// The ranks of the last post.
    posted: Lock<Vec<i32>>,
}

impl MessageRma {
    /// Starts receiving operations on this process's part; the returned [`StopOnDrop`] ends that.
    pub(super) fn start(comm: &Comm, limits: OneSided, own: &Target) -> Result<(Self, StopOnDrop)> {
        let (core, context, group) = (comm.core(), comm.context(Plane::PointToPoint)?, comm.group().clone());
        let origins = Arc::new(Lock::new(vec![OriginProgress::default(); group.size() as usize]));
        let next = Arc::new(AtomicU64::new(0));
        let task = MessageRmaTarget {
            memory: whole_part(comm, own)?,
            context,
            group: group.clone(),
            request: Buffer::from_bytes(&[0; HEADER + SHORT_MAX])?,
            next: next.clone(),
            origins: origins.clone(),
            in_flight: Vec::new(),
        };
        core.with(|engine| {
            task.post_receive(engine);
            let started = engine.start_task(Box::new(task));
            let key = engine.key_of(started);
            engine.free(key);
        });
        let (origin_state, posted) = (Lock::default(), Lock::default());
        Ok((Self { limits, context, group, origin_state, origins, posted }, StopOnDrop::new(core, next)))
    }

    /// Charges the overhead of a synchronization call before its messages leave.
    pub(super) fn charge(&self, host: &Host, overhead: SyncOverhead) {
        host.charge_step(Step::Call, overhead.calls);
        host.charge_step(Step::Request, overhead.allocations);
    }

    /// Whether an operation of this size is sent as a message.
    pub(super) fn sends_as_message(&self, is_put: bool, bytes: u64) -> bool {
        bytes <= if is_put { self.limits.put_max } else { self.limits.get_max }
    }

    /// Queues an operation on a rank until the epoch completes.
    pub(super) fn queue(&self, host: &Host, rank: i32, is_put: bool, offset: u64, buffer: &Buffer) {
        host.charge_step(Step::Request, 1);
        self.origin_state.lock(host).queued.push(QueuedOp { rank, is_put, offset, buffer: buffer.clone() });
    }

    /// Sends the queued operations, and ends the epoch at each of these ranks, which have to be all ranks with queued operations.
    /// Returns the started sends and receives, by rank.
    ///
    /// # Errors
    /// [`Class::PROC_ABORTED`] when a target is lost.
    pub(super) fn send_queued(&self, core: &Core, ranks: &[i32]) -> Result<Vec<(i32, Started)>> {
        let queued = std::mem::take(&mut self.origin_state.lock(core.host()).queued);
        let mut started = Vec::new();
        for rank in ranks {
            let process = self.process(*rank)?;
            let own: Vec<&QueuedOp> = queued.iter().filter(|op| op.rank == *rank).collect();
            for (number, op) in own.iter().enumerate() {
                let is_last = number + 1 == own.len();
                started.extend(self.send(core, process, op, is_last)?.map(|started| (*rank, started)));
            }
            if own.is_empty() {
                let header = self.next_header(core.host(), *rank, OpKind::EndEpoch, true);
                started.push((*rank, core.with(|engine| self.send_header(engine, process, &header, &[]))?));
            }
        }
        Ok(started)
    }

    fn process(&self, rank: i32) -> Result<u32> {
        let nobody = || Error::new(Class::RANK, format_args!("there is no rank {rank} in the window"));
        self.group.process(rank).ok_or_else(nobody)
    }

    /// The header of the next message to a rank: counts the operation, and takes a new tag for its data. `is_last` ends the epoch.
    fn next_header(&self, host: &Host, rank: i32, kind: OpKind, is_last: bool) -> Header {
        let mut state = self.origin_state.lock(host);
        state.tag_counter = (state.tag_counter + 1) % (1 << 20);
        let tag = DATA_TAG + state.tag_counter;
        let op_count = state.sent_counts.entry(rank).or_default();
        *op_count += 1;
        Header { kind, is_last, tag, offset: 0, length: 0, op_count: *op_count }
    }

    fn send_header(&self, engine: &mut Engine, to: u32, header: &Header, data: &[u8]) -> Result<Started> {
        let bytes = Buffer::from_bytes(&[&header.bytes(), data].concat())?;
        let match_key = MatchKey { context: self.context, tag: OP_TAG };
        engine.send(to, match_key, &bytes, Mode::Standard)
    }

    /// Sends one operation. Returns its message and its data transfer.
    fn send(&self, core: &Core, to: u32, op: &QueuedOp, is_last: bool) -> Result<[Started; 2]> {
        let (length, host) = (op.buffer.len(), core.host());
        let room = core.with(|engine| engine.transport.payload_max(to))?.min(HEADER + SHORT_MAX);
        let kind = match op.is_put {
            true if length as usize + HEADER <= room => OpKind::Put,
            true => OpKind::LongPut,
            false => OpKind::Get,
        };
        let header = Header { offset: op.offset, length, ..self.next_header(host, op.rank, kind, is_last) };
        let match_key = MatchKey { context: self.context, tag: header.tag };
        core.with(|engine| match kind {
            OpKind::Get => {
                let started = engine.receive(self.receive(to, header.tag, op.buffer.clone()));
                Ok([started, self.send_header(engine, to, &header, &[])?])
            }
            OpKind::LongPut => {
                let sent = self.send_header(engine, to, &header, &[])?;
                Ok([sent, engine.send(to, match_key, &op.buffer, Mode::Standard)?])
            }
            _ => {
                let sent = self.send_header(engine, to, &header, &op.buffer.to_vec())?;
                Ok([sent, Started::Completed(Status::empty())])
            }
        })
    }

    fn receive(&self, from: u32, tag: i32, buffer: Buffer) -> Receive {
        let wanted = MatchCriteria { context: self.context, source: Some(from), tag: Some(tag) };
        Receive { wanted, buffer, sources: SourceRanks::Group(self.group.clone()) }
    }

    /// Lets these ranks operate on this process's memory.
    pub(super) fn post(&self, host: &Host, ranks: Vec<i32>) {
        *self.posted.lock(host) = ranks;
    }

    /// Returns `Some(Ok(()))` once all ranks of the last post have completed, and resets them for the next epoch; an error if one
    /// is lost.
    pub(super) fn check_completed(&self, engine: &mut Engine) -> Option<Result<()>> {
        let host = engine.host().clone();
        let (posted, mut origins) = (self.posted.lock(&host), self.origins.lock(&host));
        let mut all = posted.iter().map(|rank| *rank as usize);
        let is_done = |of: &OriginProgress| of.ends.is_some_and(|ends| of.done >= ends);
        if all.clone().all(|rank| is_done(&origins[rank])) {
            all.for_each(|rank| origins[rank].ends = None);
            return Some(Ok(()));
        }
        let missing =
            all.find(|rank| !is_done(&origins[*rank])).and_then(|rank| self.group.process(rank as i32));
        missing.and_then(|process| engine.transport.lost(process).cloned()).map(Err)
    }
}

/// All of this process's part of a window.
fn whole_part(comm: &Comm, own: &Target) -> Result<Buffer> {
    let (rank, count) = (own.rank(), own.desc.size as i64);
    let at = TargetRange { rank, displacement: 0, count, datatype: Datatype::from(Basic::Byte) };
    match own.elements(comm, &at, 0)? {
        ElementLocation::Mapped(all) if count > 0 => Ok(all),
        _ => Ok(Buffer::empty()),
    }
}

/// The task that executes others' operations during progress, until it is stopped.
struct MessageRmaTarget {
    memory: Buffer,
    context: u64,
    group: Group,
    request: Buffer,
    /// The slot key of the posted receive for the next operation.
    next: Arc<AtomicU64>,
    origins: Arc<Lock<Vec<OriginProgress>>>,
    /// Separate data transfers in flight, with their origin's rank.
    in_flight: Vec<(usize, SlotKey)>,
}

impl MessageRmaTarget {
    fn post_receive(&self, engine: &mut Engine) {
        let wanted = MatchCriteria { context: self.context, source: None, tag: Some(OP_TAG) };
        let sources = SourceRanks::Group(self.group.clone());
        let started = engine.receive(Receive { wanted, buffer: self.request.clone(), sources });
        self.next.store(engine.key_of(started).number(), Ordering::Relaxed);
    }

    fn update_origin(&self, engine: &Engine, rank: usize, act: impl FnOnce(&mut OriginProgress)) {
        act(&mut self.origins.lock(engine.host())[rank]);
    }

    /// Executes the operation in a message. A malformed operation is dropped, and its epoch does not end.
    fn execute(&mut self, engine: &mut Engine, status: &Status) {
        let bytes = self.request.clone().packed_range(0, status.bytes).to_vec();
        let process = self.group.process(status.source).filter(|_| status.error.is_none());
        let (Some(process), Some(header)) = (process, Header::parse(&bytes)) else { return };
        let rank = status.source as usize;
        let is_inside = header.offset.checked_add(header.length).is_some_and(|end| end <= self.memory.len());
        if !is_inside && header.kind != OpKind::EndEpoch {
            return;
        }
        if header.is_last {
            self.update_origin(engine, rank, |origin| origin.ends = Some(header.op_count));
        }
        let place = self.memory.clone().packed_range(header.offset, header.length);
        let started = match header.kind {
            OpKind::EndEpoch => None,
            OpKind::Put if bytes.len() - HEADER == header.length as usize => {
                // The receive has already charged this copy, which a real library makes directly to this place.
                place.store(&bytes[HEADER..]);
                None
            }
            OpKind::Put => return,
            OpKind::LongPut => {
                let wanted =
                    MatchCriteria { context: self.context, source: Some(process), tag: Some(header.tag) };
                let sources = SourceRanks::Group(self.group.clone());
                Some(Ok(engine.receive(Receive { wanted, buffer: place, sources })))
            }
            OpKind::Get => {
                let match_key = MatchKey { context: self.context, tag: header.tag };
                Some(engine.send(process, match_key, &place, Mode::Standard))
            }
        };
        match started {
            Some(Ok(Started::InProgress(key))) => self.in_flight.push((rank, key)),
            // The waiting side detects a lost peer.
            Some(Err(_)) => {}
            None | Some(Ok(Started::Completed(_))) => {
                self.update_origin(engine, rank, |origin| origin.done += 1)
            }
        }
    }
}

impl Task for MessageRmaTarget {
    fn advance(&mut self, engine: &mut Engine) -> Option<Status> {
        while let Some(status) = engine.take_status(SlotKey::from_number(self.next.load(Ordering::Relaxed))) {
            if status.cancelled {
                return Some(status);
            }
            self.execute(engine, &status);
            self.post_receive(engine);
        }
        for (rank, key) in std::mem::take(&mut self.in_flight) {
            match engine.take_status(key) {
                Some(_) => self.update_origin(engine, rank, |origin| origin.done += 1),
                None => self.in_flight.push((rank, key)),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_roundtrip_keeps_values() {
        for kind in [OpKind::EndEpoch, OpKind::Put, OpKind::LongPut, OpKind::Get] {
            let header = Header {
                kind,
                is_last: kind == OpKind::Get,
                tag: 77,
                offset: 1 << 40,
                length: 3,
                op_count: 9,
            };
            assert_eq!(Header::parse(&header.bytes()), Some(header));
            assert_eq!(Header::parse(&header.bytes()[..HEADER - 1]), None);
        }
        assert_eq!(Header::parse(&[9; HEADER]), None, "no such operation");
        assert_eq!(Header::parse(&[]), None);
    }
}
