//! Point-to-point calls of a [`Comm`]: sends, receives, probes and partitioned communication (MPI 5.0, chapters 3 and 4).

use std::sync::Arc;

use host::{Lock, SlotKey};

use crate::comm::communicator::Comm;
use crate::comm::context::Plane;
use crate::comm::group::Group;
use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::p2p::engine::{Engine, MatchedMessage, Mode, Started, Task};
use crate::p2p::matching::MatchCriteria;
use crate::p2p::operation::{Receive, SourceRanks};
use crate::p2p::wire::MatchKey;
use crate::req::partitioned::{
    PARTITION_INFO_LEN, PartitionInfo, PartitionedReceive, PartitionedRequest, PartitionedSend,
    ReceiveProgress,
};
use crate::req::request::{Request, RequestId, Requests};
use crate::status::{ANY_SOURCE, ANY_TAG, PROC_NULL, Status};

/// A message that was matched by [`Comm::mprobe`], so that no other receive gets it (`MPI_Message`). If dropped, the message is
/// lost.
#[derive(Debug)]
pub struct Message(Option<(Comm, MatchedMessage)>);

impl Message {
    /// The message from no process (`MPI_MESSAGE_NO_PROC`).
    pub fn no_proc() -> Self {
        Self(None)
    }

    /// Whether it is the message from no process.
    pub fn is_no_proc(&self) -> bool {
        self.0.is_none()
    }

    /// The communicator that carried it; `None` for the message from no process.
    pub fn comm(&self) -> Option<&Comm> {
        self.0.as_ref().map(|(comm, _)| comm)
    }

    /// Receives the message, and waits for completion (MPI 5.0, section 3.8.3).
    pub fn receive(self, buffer: Buffer) -> Status {
        match self.0 {
            None => Status::from_proc_null(),
            Some((comm, matched)) => {
                let started = comm.core().with(|engine| engine.mrecv(matched, buffer));
                comm.core().finish("MPI_Mrecv", started)
            }
        }
    }

    /// Starts to receive it. The request is null for the message from no process; a null request completes with
    /// [`Status::from_proc_null`] (MPI 5.0, section 3.8.3).
    pub fn ireceive(self, buffer: Buffer) -> Request {
        match self.0 {
            None => Request::null(),
            Some((comm, matched)) => {
                let started = comm.core().with(|engine| engine.mrecv(matched, buffer));
                Request::new(&comm, started)
            }
        }
    }
}

/// The peer and the tag of a send or a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerTag {
    /// The rank of the other process.
    pub rank: i32,
    /// The tag.
    pub tag: i32,
}

/// A combined send and receive.
struct SendRecv {
    send: Option<SlotKey>,
    receive: Option<SlotKey>,
    failed: Option<Status>,
    status: Status,
}

impl Task for SendRecv {
    fn advance(&mut self, engine: &mut Engine) -> Option<Status> {
        if let Some(status) = self.send.and_then(|key| engine.take_status(key)) {
            self.send = None;
            self.failed = status.error.is_some().then_some(status);
            // The peer may wait for the message that this process could not send, and never send its own.
            if self.failed.is_some() && self.receive.is_some_and(|key| engine.abandon(key)) {
                self.receive = None;
            }
        }
        if let Some(status) = self.receive.and_then(|key| engine.take_status(key)) {
            self.receive = None;
            self.status = status;
        }
        let done = self.send.is_none() && self.receive.is_none();
        done.then(|| self.failed.take().unwrap_or_else(|| self.status.clone()))
    }
}

#[cold]
fn tag_error(tag: i32, what: &str) -> Error {
    Error::new(Class::TAG, format_args!("tag {tag} of a {what} is negative"))
}

#[cold]
fn rank_error(rank: i32, what: &str, peers: &Group) -> Error {
    let text = format!("{what} {rank} is not a rank of a communicator of {}", peers.size());
    Error::new(Class::RANK, text)
}

impl Comm {
    #[inline(always)]
    fn send_target(&self, to: PeerTag) -> Result<Option<(u32, MatchKey)>> {
        if to.tag < 0 {
            return Err(tag_error(to.tag, "send"));
        }
        if to.rank == PROC_NULL {
            return Ok(None);
        }
        let match_key = MatchKey { context: self.context(Plane::PointToPoint)?, tag: to.tag };
        Ok(Some((self.member(to.rank, "destination")?, match_key)))
    }

    #[inline(always)]
    fn wanted(&self, from: PeerTag) -> Result<Option<MatchCriteria>> {
        if from.tag < 0 && from.tag != ANY_TAG {
            return Err(tag_error(from.tag, "receive"));
        }
        let source = match from.rank {
            PROC_NULL => return Ok(None),
            ANY_SOURCE => None,
            rank => Some(self.member(rank, "source")?),
        };
        let tag = (from.tag != ANY_TAG).then_some(from.tag);
        Ok(Some(MatchCriteria { context: self.context(Plane::PointToPoint)?, source, tag }))
    }

    #[inline(always)]
    fn member(&self, rank: i32, what: &str) -> Result<u32> {
        let peers: &Group = self.peers();
        peers.process(rank).ok_or_else(|| rank_error(rank, what, peers))
    }

    /// The receive of a buffer from a source; `None` for `MPI_PROC_NULL`.
    #[inline(always)]
    fn receive_of(&self, buffer: Buffer, from: PeerTag) -> Result<Option<Receive>> {
        let Some(wanted) = self.wanted(from)? else { return Ok(None) };
        let sources = match wanted.source {
            Some(_) => SourceRanks::One(from.rank),
            None => SourceRanks::Group(self.peers().clone()),
        };
        Ok(Some(Receive { wanted, buffer, sources }))
    }

    /// Starts a send as [`Engine::start_send`] does.
    fn start_send(&self, how: (Mode, bool), buffer: &Buffer, to: PeerTag) -> Result<Started> {
        match self.send_target(to)? {
            None => Ok(Started::Completed(Status::empty())),
            Some((process, match_key)) => {
                self.core().with(|engine| engine.start_send(process, match_key, buffer, how))
            }
        }
    }

    fn start_receive(&self, buffer: Buffer, from: PeerTag) -> Result<Started> {
        let Some(receive) = self.receive_of(buffer, from)? else {
            return Ok(Started::Completed(Status::from_proc_null()));
        };
        Ok(self.core().with(|engine| engine.receive(receive)))
    }

    /// Sends, and returns when the buffer may be reused (MPI 5.0, sections 3.2.1 and 3.4).
    ///
    /// # Errors
    /// [`Class::RANK`] and [`Class::TAG`] for a destination that does not exist; [`Class::BUFFER`] without space for a buffered
    /// send; [`Class::PROC_ABORTED`] when the destination is lost.
    #[inline]
    pub fn send(&self, mode: Mode, buffer: &Buffer, to: PeerTag) -> Result<()> {
        match self.begin_send_with((mode, true), buffer, to)? {
            RequestId::COMPLETED => Ok(()),
            started => Requests::new(self.core()).wait(started)?.status.ok().map(drop),
        }
    }

    /// Starts to send (MPI 5.0, section 3.7.2).
    ///
    /// # Errors
    /// As [`Comm::send`].
    pub fn isend(&self, mode: Mode, buffer: &Buffer, to: PeerTag) -> Result<Request> {
        Ok(Request::new_with_id(self.core(), self.begin_send(mode, buffer, to)?))
    }

    /// Starts to send as [`Comm::isend`] does, for callers that keep requests by number (MPI 5.0, section 3.7.2).
    ///
    /// # Errors
    /// As [`Comm::send`].
    #[inline]
    pub fn begin_send(&self, mode: Mode, buffer: &Buffer, to: PeerTag) -> Result<RequestId> {
        self.begin_send_with((mode, false), buffer, to)
    }

    /// Starts a send as [`Engine::start_send`] does, as a request of this communicator.
    #[inline]
    fn begin_send_with(&self, how: (Mode, bool), buffer: &Buffer, to: PeerTag) -> Result<RequestId> {
        match self.send_target(to)? {
            None => Ok(RequestId::COMPLETED),
            Some((process, match_key)) => self.core().with(|engine| {
                let started = engine.start_send(process, match_key, buffer, how)?;
                Ok(Requests::from_started(engine, started, Some(self.id())))
            }),
        }
    }

    /// Creates a persistent send request (MPI 5.0, section 3.9).
    ///
    /// # Errors
    /// As [`Comm::send`], for the arguments.
    pub fn send_init(&self, mode: Mode, buffer: Buffer, to: PeerTag) -> Result<Request> {
        self.send_target(to)?;
        let comm = self.clone();
        Ok(Request::persistent(self, Arc::new(move || comm.start_send((mode, false), &buffer, to))))
    }

    /// Receives. The status holds the error of a receive that failed: [`Class::TRUNCATE`] for a message longer than the buffer,
    /// whose beginning was received; [`Class::PROC_ABORTED`] when the source is lost (MPI 5.0, section 3.2.4).
    ///
    /// # Errors
    /// [`Class::RANK`] and [`Class::TAG`] for a source that does not exist.
    #[inline]
    pub fn receive(&self, buffer: Buffer, from: PeerTag) -> Result<Status> {
        match self.receive_of(buffer, from)? {
            None => Ok(Status::from_proc_null()),
            Some(receive) => Ok(self.core().receive("MPI_Recv", &receive)),
        }
    }

    /// Starts to receive (MPI 5.0, section 3.7.2).
    ///
    /// # Errors
    /// As [`Comm::receive`].
    pub fn ireceive(&self, buffer: Buffer, from: PeerTag) -> Result<Request> {
        Ok(Request::new_with_id(self.core(), self.begin_receive(buffer, from)?))
    }

    /// Starts to receive as [`Comm::ireceive`] does, for callers that keep requests by number (MPI 5.0, section 3.7.2).
    ///
    /// # Errors
    /// As [`Comm::receive`].
    #[inline(always)] // the buffer is built in its final place, not copied
    pub fn begin_receive(&self, buffer: Buffer, from: PeerTag) -> Result<RequestId> {
        match self.receive_of(buffer, from)? {
            None => self.begin(|_| Ok(Started::Completed(Status::from_proc_null()))),
            Some(receive) => self.begin(|engine| Ok(engine.receive(receive))),
        }
    }

    /// Creates a persistent receive request (MPI 5.0, section 3.9).
    ///
    /// # Errors
    /// As [`Comm::receive`].
    pub fn receive_init(&self, buffer: Buffer, from: PeerTag) -> Result<Request> {
        self.wanted(from)?;
        let comm = self.clone();
        Ok(Request::persistent(self, Arc::new(move || comm.start_receive(buffer.clone(), from))))
    }

    fn begin_sendrecv(
        &self,
        send: &Buffer,
        to: PeerTag,
        (receive, from): (Buffer, PeerTag),
        waits: bool,
    ) -> Result<Started> {
        self.send_target(to)?;
        let receiving = self.start_receive(receive, from)?;
        let sending = match self.start_send((Mode::Standard, waits), send, to) {
            Ok(sending) => sending,
            Err(error) => {
                self.core().with(|engine| {
                    if let Started::InProgress(key) = receiving {
                        engine.cancel(key);
                        engine.free(key);
                    }
                });
                return Err(error);
            }
        };
        let mut sendrecv = SendRecv { send: None, receive: None, failed: None, status: Status::empty() };
        match sending {
            Started::Completed(status) => sendrecv.failed = status.error.is_some().then_some(status),
            Started::InProgress(key) => sendrecv.send = Some(key),
        }
        match receiving {
            Started::Completed(status) => sendrecv.status = status,
            Started::InProgress(key) => sendrecv.receive = Some(key),
        }
        Ok(self.core().with(|engine| engine.start_task(Box::new(sendrecv))))
    }

    /// Sends and receives at the same time; the status is that of the receive, or of the send if that failed
    /// (MPI 5.0, section 3.2.7).
    ///
    /// # Errors
    /// As [`Comm::send`] and [`Comm::receive`].
    pub fn sendrecv(&self, send: &Buffer, to: PeerTag, receive: Buffer, from: PeerTag) -> Result<Status> {
        // A message that can be sent immediately has been sent before the receive is posted.
        if let (Some((process, match_key)), Some(piece), Some(receive)) =
            (self.send_target(to)?, send.piece(), self.receive_of(receive.clone(), from)?)
            && self.core().with(|engine| engine.try_send(process, match_key, piece))
        {
            return Ok(self.core().receive("MPI_Sendrecv", &receive));
        }
        let started = self.begin_sendrecv(send, to, (receive, from), true)?;
        Ok(self.core().finish("MPI_Sendrecv", started))
    }

    /// Starts to send and to receive (MPI 5.0, section 3.7.2).
    ///
    /// # Errors
    /// As [`Comm::sendrecv`].
    pub fn isendrecv(&self, send: &Buffer, to: PeerTag, receive: Buffer, from: PeerTag) -> Result<Request> {
        self.begin_sendrecv(send, to, (receive, from), false).map(|started| Request::new(self, started))
    }

    /// Sends and receives as [`Comm::sendrecv`] does; the received data replace those sent (MPI 5.0, section 3.2.7).
    ///
    /// # Errors
    /// As [`Comm::sendrecv`].
    pub fn sendrecv_replace(&self, buffer: Buffer, to: PeerTag, from: PeerTag) -> Result<Status> {
        self.sendrecv(&buffer.copied()?, to, buffer, from)
    }

    /// Starts to send and to receive; the received data replace those sent (MPI 5.0, section 3.7.2).
    ///
    /// # Errors
    /// As [`Comm::sendrecv`].
    pub fn isendrecv_replace(&self, buffer: Buffer, to: PeerTag, from: PeerTag) -> Result<Request> {
        self.isendrecv(&buffer.copied()?, to, buffer, from)
    }

    /// Waits until a message has arrived that a receive would get, and leaves it there (MPI 5.0, section 3.8.1).
    ///
    /// # Errors
    /// As [`Comm::receive`]; [`Class::PROC_ABORTED`] when the source is lost.
    pub fn probe(&self, from: PeerTag) -> Result<Status> {
        let Some(wanted) = self.wanted(from)? else { return Ok(Status::from_proc_null()) };
        self.core().wait("MPI_Probe", |engine| match engine.probe(&wanted, self.peers()) {
            Some(status) => Some(Ok(status)),
            None => engine.lost(&wanted).map(Err),
        })?
    }

    /// Checks whether a message has arrived that a receive would get (MPI 5.0, section 3.8.1).
    ///
    /// # Errors
    /// As [`Comm::probe`].
    pub fn iprobe(&self, from: PeerTag) -> Result<Option<Status>> {
        let Some(wanted) = self.wanted(from)? else { return Ok(Some(Status::from_proc_null())) };
        let found = self.core().test(|engine| match engine.probe(&wanted, self.peers()) {
            Some(status) => Some(Ok(status)),
            None => engine.lost(&wanted).map(Err),
        });
        found.transpose()
    }

    /// Waits until a message has arrived that a receive would get, and reserves it for [`Message::receive`]
    /// (MPI 5.0, section 3.8.2).
    ///
    /// # Errors
    /// As [`Comm::probe`].
    pub fn mprobe(&self, from: PeerTag) -> Result<(Message, Status)> {
        let Some(wanted) = self.wanted(from)? else {
            return Ok((Message::no_proc(), Status::from_proc_null()));
        };
        self.core().wait("MPI_Mprobe", |engine| self.try_mprobe(engine, &wanted))?
    }

    /// Checks whether a message has arrived that a receive would get, and reserves it for [`Message::receive`]
    /// (MPI 5.0, section 3.8.2).
    ///
    /// # Errors
    /// As [`Comm::probe`].
    pub fn improbe(&self, from: PeerTag) -> Result<Option<(Message, Status)>> {
        let Some(wanted) = self.wanted(from)? else {
            return Ok(Some((Message::no_proc(), Status::from_proc_null())));
        };
        self.core().test(|engine| self.try_mprobe(engine, &wanted)).transpose()
    }

    fn try_mprobe(&self, engine: &mut Engine, wanted: &MatchCriteria) -> Option<Result<(Message, Status)>> {
        match engine.mprobe(wanted, self.peers()) {
            Some((matched, status)) => Some(Ok((Message(Some((self.clone(), matched))), status))),
            None => engine.lost(wanted).map(Err),
        }
    }

    /// Creates a persistent request that sends a buffer in parts of equal size, each after [`crate::Requests::parts_ready`] is
    /// called for it (MPI 5.0, section 4.2.1).
    ///
    /// # Errors
    /// [`Class::RANK`] and [`Class::TAG`] as [`Comm::send`]; [`Class::COUNT`] if the elements cannot be divided into this many
    /// parts.
    pub fn send_parts_init(&self, buffer: Buffer, parts: i32, to: PeerTag) -> Result<Request> {
        let parts = partition_count(&buffer, parts)?;
        let Some((to, MatchKey { tag, .. })) = self.send_target(to)? else {
            return Ok(self.null_partitioned());
        };
        let announced =
            PartitionInfo { parts, first_tag: self.reserve_part_tags(parts), bytes: buffer.len() };
        let (announcement, context) =
            (Buffer::from_bytes(&announced.bytes())?, self.context(Plane::PartitionedInfo)?);
        self.core().with(|engine| -> Result<()> {
            if let Started::InProgress(key) =
                engine.send(to, MatchKey { context, tag }, &announcement, Mode::Standard)?
            {
                engine.free(key);
            }
            Ok(())
        })?;
        let context = self.context(Plane::PartitionedData)?;
        let sending = Arc::new(PartitionedSend { to, context, buffer, announced, state: Lock::default() });
        let (core, parts) = (self.core().clone(), PartitionedRequest::Send(sending.clone()));
        Ok(Request::partitioned(self, Arc::new(move || Ok(core.with(|engine| sending.start(engine)))), parts))
    }

    /// Creates a persistent request that receives a buffer in parts of equal size; [`crate::Requests::part_arrived`] tests a part
    /// (MPI 5.0, section 4.2.1).
    ///
    /// # Errors
    /// As [`Comm::send_parts_init`]; any source and any tag are not possible.
    pub fn receive_parts_init(&self, buffer: Buffer, parts: i32, from: PeerTag) -> Result<Request> {
        let parts = partition_count(&buffer, parts)?;
        let Some((from, MatchKey { tag, .. })) = self.send_target(from)? else {
            return Ok(self.null_partitioned());
        };
        let (into, sources) = (Buffer::from_bytes(&[0; PARTITION_INFO_LEN])?, self.peers().clone());
        let wanted = MatchCriteria {
            context: self.context(Plane::PartitionedInfo)?,
            source: Some(from),
            tag: Some(tag),
        };
        let receive = Receive { wanted, buffer: into.clone(), sources: SourceRanks::Group(sources.clone()) };
        let key = self.core().with(|engine| {
            let started = engine.receive(receive);
            engine.key_of(started)
        });
        let (context, state) =
            (self.context(Plane::PartitionedData)?, Lock::new(ReceiveProgress::new(key, into)));
        let receiving = Arc::new(PartitionedReceive { from, tag, sources, context, buffer, parts, state });
        let (core, parts) = (self.core().clone(), PartitionedRequest::Receive(receiving.clone()));
        Ok(Request::partitioned(
            self,
            Arc::new(move || Ok(core.with(|engine| receiving.start(engine)))),
            parts,
        ))
    }

    /// A partitioned request to or from `MPI_PROC_NULL`.
    fn null_partitioned(&self) -> Request {
        Request::partitioned(
            self,
            Arc::new(|| Ok(Started::Completed(Status::from_proc_null()))),
            PartitionedRequest::Null,
        )
    }
}

fn partition_count(buffer: &Buffer, parts: i32) -> Result<u32> {
    let text = || {
        Error::new(
            Class::COUNT,
            format_args!("{} elements cannot be divided into {parts} partitions", buffer.count()),
        )
    };
    u32::try_from(parts)
        .ok()
        .filter(|parts| *parts > 0 && buffer.count() % i64::from(*parts) == 0)
        .ok_or_else(text)
}
