//! Partitioned communication (`MPI_Psend_init`): each part is sent as a message of its own when it is ready (MPI 5.0, chapter 4).
//!
//! The two sides of a request are matched once, under the program's tag: the sender announces the number of parts and their tags.
//! The receiver may divide its buffer into a different number of parts.

use std::sync::Arc;

use host::{Host, Lock, SlotKey};

use crate::comm::group::Group;
use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::p2p::engine::{Engine, Mode, Started, Task};
use crate::p2p::matching::MatchCriteria;
use crate::p2p::operation::{Receive, SourceRanks};
use crate::p2p::wire::MatchKey;
use crate::status::Status;

/// The sender's announcement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionInfo {
    pub(crate) parts: u32,
    /// The tag of the first part; the others have the following tags.
    pub(crate) first_tag: u32,
    /// Bytes of all parts.
    pub(crate) bytes: u64,
}

/// Bytes of an encoded [`PartitionInfo`].
pub(crate) const PARTITION_INFO_LEN: usize = 16;

impl PartitionInfo {
    /// Encodes the announcement.
    pub(crate) fn bytes(self) -> [u8; PARTITION_INFO_LEN] {
        let mut bytes = [0; PARTITION_INFO_LEN];
        bytes[..4].copy_from_slice(&self.parts.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.first_tag.to_le_bytes());
        bytes[8..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (parts, rest) = bytes.split_first_chunk()?;
        let (first_tag, rest) = rest.split_first_chunk()?;
        let bytes = u64::from_le_bytes(rest.try_into().ok()?);
        let (parts, first_tag) = (u32::from_le_bytes(*parts), u32::from_le_bytes(*first_tag));
        (parts > 0 && bytes % u64::from(parts) == 0).then_some(Self { parts, first_tag, bytes })
    }
}

/// The tag of a part.
fn tag_of(first: u32, part: u32) -> i32 {
    (first.wrapping_add(part) & i32::MAX as u32) as i32
}

/// A partitioned send, which may be started repeatedly.
#[derive(Debug)]
pub(crate) struct PartitionedSend {
    pub(crate) to: u32,
    /// The context of the parts' messages.
    pub(crate) context: u64,
    pub(crate) buffer: Buffer,
    pub(crate) announced: PartitionInfo,
    pub(crate) state: Lock<SendProgress>,
}

/// The progress of a started send.
#[derive(Debug, Default)]
pub(crate) struct SendProgress {
    ready: Vec<bool>,
    left: u32,
    in_flight: Vec<SlotKey>,
    failed: Option<Error>,
}

/// A partitioned receive, which may be started repeatedly.
#[derive(Debug)]
pub(crate) struct PartitionedReceive {
    pub(crate) from: u32,
    /// The program's tag.
    pub(crate) tag: i32,
    pub(crate) sources: Group,
    pub(crate) context: u64,
    pub(crate) buffer: Buffer,
    /// The number of parts on the receiver's side.
    pub(crate) parts: u32,
    pub(crate) state: Lock<ReceiveProgress>,
}

/// The progress of a started receive.
#[derive(Debug)]
pub(crate) struct ReceiveProgress {
    /// The receive of the sender's announcement, and its buffer.
    announcing: Option<(SlotKey, Buffer)>,
    announced: Option<PartitionInfo>,
    /// The receives of the sender's parts; `None` for parts that have arrived.
    pending: Vec<Option<SlotKey>>,
    posted: bool,
}

impl ReceiveProgress {
    /// The initial state, with the receive of the announcement.
    pub(crate) fn new(key: SlotKey, into: Buffer) -> Self {
        Self { announcing: Some((key, into)), announced: None, pending: Vec::new(), posted: false }
    }
}

/// The parts of a persistent request.
#[derive(Clone, Debug)]
pub(crate) enum PartitionedRequest {
    /// To or from `MPI_PROC_NULL`: always complete.
    Null,
    /// Parts of a send.
    Send(Arc<PartitionedSend>),
    /// Parts of a receive.
    Receive(Arc<PartitionedReceive>),
}

struct SendTask(Arc<PartitionedSend>, Host);
struct ReceiveTask(Arc<PartitionedReceive>, Host);

impl PartitionedSend {
    /// Starts the send, which then waits for its parts.
    pub(crate) fn start(self: &Arc<Self>, engine: &mut Engine) -> Started {
        let (host, parts) = (engine.host().clone(), self.announced.parts);
        *self.state.lock(&host) =
            SendProgress { ready: vec![false; parts as usize], left: parts, ..SendProgress::default() };
        engine.start_task(Box::new(SendTask(self.clone(), host)))
    }

    /// Sends parts from `first` to `last`.
    ///
    /// # Errors
    /// [`Class::ARG`] for parts that do not exist, or that were sent already.
    pub(crate) fn ready(&self, engine: &mut Engine, first: i32, last: i32) -> Result<()> {
        let host = engine.host().clone();
        let mut state = self.state.lock(&host);
        let wrong = |part: i32| {
            Error::new(
                Class::ARG,
                format_args!(
                    "partition {part} does not exist, is ready already, or its request is not started"
                ),
            )
        };
        for part in first..=last {
            let waits = usize::try_from(part).ok().and_then(|part| state.ready.get_mut(part));
            let ready = waits.filter(|ready| !**ready).ok_or_else(|| wrong(part))?;
            *ready = true;
            state.left -= 1;
            let len = self.buffer.len() / u64::from(self.announced.parts);
            let buffer = self.buffer.clone().packed_range(part as u64 * len, len);
            let match_key =
                MatchKey { context: self.context, tag: tag_of(self.announced.first_tag, part as u32) };
            match engine.send(self.to, match_key, &buffer, Mode::Standard) {
                Ok(Started::Completed(status)) => state.failed = state.failed.take().or(status.ok().err()),
                Ok(Started::InProgress(key)) => state.in_flight.push(key),
                Err(error) => state.failed = Some(error),
            }
        }
        engine.wake_tasks();
        Ok(())
    }
}

impl Task for SendTask {
    fn advance(&mut self, engine: &mut Engine) -> Option<Status> {
        let mut state = self.0.state.lock(&self.1);
        let SendProgress { in_flight, failed, .. } = &mut *state;
        in_flight.retain(|key| match engine.take_status(*key) {
            Some(status) => {
                *failed = failed.take().or(status.ok().err());
                false
            }
            None => true,
        });
        let done = state.left == 0 && state.in_flight.is_empty();
        done.then(|| state.failed.take().map_or_else(Status::empty, Status::failed))
    }
}

impl PartitionedReceive {
    /// Starts to receive.
    pub(crate) fn start(self: &Arc<Self>, engine: &mut Engine) -> Started {
        let host = engine.host().clone();
        self.state.lock(&host).posted = false;
        engine.start_task(Box::new(ReceiveTask(self.clone(), host)))
    }

    /// Whether a part has arrived.
    ///
    /// # Errors
    /// [`Class::ARG`] for a part that does not exist.
    pub(crate) fn has_arrived(&self, host: &Host, part: i32) -> Result<bool> {
        let part = u32::try_from(part).ok().filter(|part| *part < self.parts);
        let none = || Error::new(Class::ARG, format_args!("the request has only {} partitions", self.parts));
        let part = u64::from(part.ok_or_else(none)?);
        let state = self.state.lock(host);
        let Some(announced) = state.announced.filter(|_| state.posted) else { return Ok(false) };
        // By part numbers, not by bytes, so that parts of no bytes also arrive one by one.
        let (mine, theirs) = (u64::from(self.parts), u64::from(announced.parts));
        let (first, end) = (part * theirs / mine, ((part + 1) * theirs).div_ceil(mine));
        Ok((first..end).all(|at| state.pending.get(at as usize).is_none_or(Option::is_none)))
    }

    fn post(&self, engine: &mut Engine, state: &mut ReceiveProgress, announced: PartitionInfo) {
        let len = announced.bytes / u64::from(announced.parts);
        let receive = |part: u32| {
            let tag = Some(tag_of(announced.first_tag, part));
            let wanted = MatchCriteria { context: self.context, source: Some(self.from), tag };
            let buffer = self.buffer.clone().packed_range(u64::from(part) * len, len);
            let started =
                engine.receive(Receive { wanted, buffer, sources: SourceRanks::Group(self.sources.clone()) });
            Some(engine.key_of(started))
        };
        state.pending = (0..announced.parts).map(receive).collect();
        state.posted = true;
    }

    fn advance(&self, engine: &mut Engine, state: &mut ReceiveProgress) -> Result<bool> {
        if let Some((key, into)) = &state.announcing {
            let Some(status) = engine.take_status(*key) else { return Ok(false) };
            status.ok()?;
            let announced = PartitionInfo::parse(&into.to_vec());
            let wrong = || {
                Error::new(
                    Class::OTHER,
                    "the sender's announcement has a format that this version does not know",
                )
            };
            state.announced = Some(announced.ok_or_else(wrong)?);
            state.announcing = None;
        }
        let Some(announced) = state.announced else { return Ok(false) };
        if !state.posted {
            self.post(engine, state, announced);
        }
        for pending in &mut state.pending {
            if let Some(status) = pending.and_then(|key| engine.take_status(key)) {
                *pending = None;
                status.ok()?;
            }
        }
        Ok(state.pending.iter().all(Option::is_none))
    }
}

impl Task for ReceiveTask {
    fn advance(&mut self, engine: &mut Engine) -> Option<Status> {
        let Self(receiving, host) = self;
        let mut state = receiving.state.lock(host);
        match receiving.advance(engine, &mut state) {
            Ok(false) => None,
            Ok(true) => {
                let bytes = state.announced.map_or(0, |announced| announced.bytes);
                let source = receiving.sources.rank_of(receiving.from);
                let source = source.unwrap_or(crate::status::ANY_SOURCE);
                let bytes = bytes.min(receiving.buffer.len());
                Some(Status { source, tag: receiving.tag, bytes, ..Status::empty() })
            }
            Err(error) => Some(Status::failed(error)),
        }
    }
}
