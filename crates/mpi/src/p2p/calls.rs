//! Point-to-point calls of a [`Comm`]: sends, receives, probes and partitioned communication (MPI 5.0, chapters 3 and 4).

use std::sync::Arc;

use host::{Lock, SlotKey};

use crate::comm::communicator::Comm;
use crate::comm::context::Plane;
use crate::comm::group::Group;
use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::p2p::engine::{Begun, Claimed, Engine, Mode, Task};
use crate::p2p::matching::Wanted;
use crate::p2p::operation::{Names, Receive};
use crate::p2p::wire::Label;
use crate::req::partitioned::{
    PARTS_INFO_LEN, PartitionedReceive, PartitionedSend, Parts, PartsInfo, ReceiveProgress,
};
use crate::req::request::{Request, RequestId, Requests};
use crate::status::{ANY_SOURCE, ANY_TAG, PROC_NULL, Status};

/// A message that was matched by [`Comm::mprobe`], so that no other receive gets it (`MPI_Message`). If dropped, the message is
/// lost.
#[derive(Debug)]
pub struct Message(Option<(Comm, Claimed)>);

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
            None => Status::of_nobody(),
            Some((comm, claimed)) => {
                let begun = comm.core().with(|engine| engine.receive_claimed(claimed, buffer));
                comm.core().finish("MPI_Mrecv", begun)
            }
        }
    }

    /// Starts to receive it. The request is null for the message from no process; a null request completes with
    /// [`Status::of_nobody`] (MPI 5.0, section 3.8.3).
    pub fn ireceive(self, buffer: Buffer) -> Request {
        match self.0 {
            None => Request::null(),
            Some((comm, claimed)) => {
                let begun = comm.core().with(|engine| engine.receive_claimed(claimed, buffer));
                Request::new(&comm, begun)
            }
        }
    }
}

/// The peer and the tag of a send or a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct With {
    /// The rank of the other process.
    pub rank: i32,
    /// The tag.
    pub tag: i32,
}

/// A combined send and receive.
struct Pair {
    send: Option<SlotKey>,
    receive: Option<SlotKey>,
    failed: Option<Status>,
    status: Status,
}

impl Task for Pair {
    fn advance(&mut self, engine: &mut Engine) -> Option<Status> {
        if let Some(status) = self.send.and_then(|key| engine.take(key)) {
            self.send = None;
            self.failed = status.error.is_some().then_some(status);
            // The peer may wait for the message that this process could not send, and never send its own.
            if self.failed.is_some() && self.receive.is_some_and(|key| engine.abandon(key)) {
                self.receive = None;
            }
        }
        if let Some(status) = self.receive.and_then(|key| engine.take(key)) {
            self.receive = None;
            self.status = status;
        }
        let over = self.send.is_none() && self.receive.is_none();
        over.then(|| self.failed.take().unwrap_or_else(|| self.status.clone()))
    }
}

#[cold]
fn wrong_tag(tag: i32, what: &str) -> Error {
    Error::new(Class::TAG, format_args!("tag {tag} of a {what} is negative"))
}

#[cold]
fn wrong_rank(rank: i32, what: &str, peers: &Group) -> Error {
    let text = format!("{what} {rank} is not a rank of a communicator of {}", peers.size());
    Error::new(Class::RANK, text)
}

impl Comm {
    #[inline(always)]
    fn destination(&self, to: With) -> Result<Option<(u32, Label)>> {
        if to.tag < 0 {
            return Err(wrong_tag(to.tag, "send"));
        }
        if to.rank == PROC_NULL {
            return Ok(None);
        }
        let label = Label { context: self.context(Plane::Point)?, tag: to.tag };
        Ok(Some((self.member(to.rank, "destination")?, label)))
    }

    #[inline(always)]
    fn wanted(&self, from: With) -> Result<Option<Wanted>> {
        if from.tag < 0 && from.tag != ANY_TAG {
            return Err(wrong_tag(from.tag, "receive"));
        }
        let source = match from.rank {
            PROC_NULL => return Ok(None),
            ANY_SOURCE => None,
            rank => Some(self.member(rank, "source")?),
        };
        let tag = (from.tag != ANY_TAG).then_some(from.tag);
        Ok(Some(Wanted { context: self.context(Plane::Point)?, source, tag }))
    }

    #[inline(always)]
    fn member(&self, rank: i32, what: &str) -> Result<u32> {
        let peers: &Group = self.peers();
        peers.process(rank).ok_or_else(|| wrong_rank(rank, what, peers))
    }

    /// The receive of a buffer from a source; `None` for `MPI_PROC_NULL`.
    #[inline(always)]
    fn receipt(&self, buffer: Buffer, from: With) -> Result<Option<Receive>> {
        let Some(wanted) = self.wanted(from)? else { return Ok(None) };
        let names = match wanted.source {
            Some(_) => Names::One(from.rank),
            None => Names::Of(self.peers().clone()),
        };
        Ok(Some(Receive { wanted, buffer, names }))
    }

    /// Starts a send as [`Engine::send_for`] does.
    fn start_send(&self, how: (Mode, bool), buffer: &Buffer, to: With) -> Result<Begun> {
        match self.destination(to)? {
            None => Ok(Begun::Over(Status::empty())),
            Some((process, label)) => self.core().with(|engine| engine.send_for(process, label, buffer, how)),
        }
    }

    fn start_receive(&self, buffer: Buffer, from: With) -> Result<Begun> {
        let Some(receive) = self.receipt(buffer, from)? else { return Ok(Begun::Over(Status::of_nobody())) };
        Ok(self.core().with(|engine| engine.receive(receive)))
    }

    /// Sends, and returns when the buffer may be reused (MPI 5.0, sections 3.2.1 and 3.4).
    ///
    /// # Errors
    /// [`Class::RANK`] and [`Class::TAG`] for a destination that does not exist; [`Class::BUFFER`] without space for a buffered
    /// send; [`Class::PROC_ABORTED`] when the destination is lost.
    #[inline]
    pub fn send(&self, mode: Mode, buffer: &Buffer, to: With) -> Result<()> {
        match self.begin_send_for((mode, true), buffer, to)? {
            RequestId::OVER => Ok(()),
            begun => Requests::new(self.core()).wait(begun)?.status.ok().map(drop),
        }
    }

    /// Starts to send (MPI 5.0, section 3.7.2).
    ///
    /// # Errors
    /// As [`Comm::send`].
    pub fn isend(&self, mode: Mode, buffer: &Buffer, to: With) -> Result<Request> {
        Ok(Request::new_with_id(self.core(), self.begin_send(mode, buffer, to)?))
    }

    /// Starts to send as [`Comm::isend`] does, for callers that keep requests by number (MPI 5.0, section 3.7.2).
    ///
    /// # Errors
    /// As [`Comm::send`].
    #[inline]
    pub fn begin_send(&self, mode: Mode, buffer: &Buffer, to: With) -> Result<RequestId> {
        self.begin_send_for((mode, false), buffer, to)
    }

    /// Starts a send as [`Engine::send_for`] does, as a request of this communicator.
    #[inline]
    fn begin_send_for(&self, how: (Mode, bool), buffer: &Buffer, to: With) -> Result<RequestId> {
        match self.destination(to)? {
            None => Ok(RequestId::OVER),
            Some((process, label)) => self.core().with(|engine| {
                let begun = engine.send_for(process, label, buffer, how)?;
                Ok(Requests::from_started(engine, begun, Some(self.id())))
            }),
        }
    }

    /// Creates a persistent send request (MPI 5.0, section 3.9).
    ///
    /// # Errors
    /// As [`Comm::send`], for the arguments.
    pub fn send_init(&self, mode: Mode, buffer: Buffer, to: With) -> Result<Request> {
        self.destination(to)?;
        let comm = self.clone();
        Ok(Request::persistent(self, Arc::new(move || comm.start_send((mode, false), &buffer, to))))
    }

    /// Receives. The status holds the error of a receive that failed: [`Class::TRUNCATE`] for a message longer than the buffer,
    /// whose beginning was received; [`Class::PROC_ABORTED`] when the source is lost (MPI 5.0, section 3.2.4).
    ///
    /// # Errors
    /// [`Class::RANK`] and [`Class::TAG`] for a source that does not exist.
    #[inline]
    pub fn receive(&self, buffer: Buffer, from: With) -> Result<Status> {
        match self.receipt(buffer, from)? {
            None => Ok(Status::of_nobody()),
            Some(receive) => Ok(self.core().receive("MPI_Recv", &receive)),
        }
    }

    /// Starts to receive (MPI 5.0, section 3.7.2).
    ///
    /// # Errors
    /// As [`Comm::receive`].
    pub fn ireceive(&self, buffer: Buffer, from: With) -> Result<Request> {
        Ok(Request::new_with_id(self.core(), self.begin_receive(buffer, from)?))
    }

    /// Starts to receive as [`Comm::ireceive`] does, for callers that keep requests by number (MPI 5.0, section 3.7.2).
    ///
    /// # Errors
    /// As [`Comm::receive`].
    #[inline(always)] // the buffer is built in its final place, not copied
    pub fn begin_receive(&self, buffer: Buffer, from: With) -> Result<RequestId> {
        match self.receipt(buffer, from)? {
            None => self.begin(|_| Ok(Begun::Over(Status::of_nobody()))),
            Some(receive) => self.begin(|engine| Ok(engine.receive(receive))),
        }
    }

    /// Creates a persistent receive request (MPI 5.0, section 3.9).
    ///
    /// # Errors
    /// As [`Comm::receive`].
    pub fn receive_init(&self, buffer: Buffer, from: With) -> Result<Request> {
        self.wanted(from)?;
        let comm = self.clone();
        Ok(Request::persistent(self, Arc::new(move || comm.start_receive(buffer.clone(), from))))
    }

    fn begin_pair(
        &self,
        send: &Buffer,
        to: With,
        (receive, from): (Buffer, With),
        waits: bool,
    ) -> Result<Begun> {
        self.destination(to)?;
        let receiving = self.start_receive(receive, from)?;
        let sending = match self.start_send((Mode::Standard, waits), send, to) {
            Ok(sending) => sending,
            Err(error) => {
                self.core().with(|engine| {
                    if let Begun::Under(key) = receiving {
                        engine.cancel(key);
                        engine.free(key);
                    }
                });
                return Err(error);
            }
        };
        let mut pair = Pair { send: None, receive: None, failed: None, status: Status::empty() };
        match sending {
            Begun::Over(status) => pair.failed = status.error.is_some().then_some(status),
            Begun::Under(key) => pair.send = Some(key),
        }
        match receiving {
            Begun::Over(status) => pair.status = status,
            Begun::Under(key) => pair.receive = Some(key),
        }
        Ok(self.core().with(|engine| engine.begin(Box::new(pair))))
    }

    /// Sends and receives at the same time; the status is that of the receive, or of the send if that failed
    /// (MPI 5.0, section 3.2.7).
    ///
    /// # Errors
    /// As [`Comm::send`] and [`Comm::receive`].
    pub fn sendrecv(&self, send: &Buffer, to: With, receive: Buffer, from: With) -> Result<Status> {
        // A message that can be sent immediately has been sent before the receive is posted.
        if let (Some((process, label)), Some(piece), Some(receive)) =
            (self.destination(to)?, send.piece(), self.receipt(receive.clone(), from)?)
            && self.core().with(|engine| engine.send_piece(process, label, piece))
        {
            return Ok(self.core().receive("MPI_Sendrecv", &receive));
        }
        let begun = self.begin_pair(send, to, (receive, from), true)?;
        Ok(self.core().finish("MPI_Sendrecv", begun))
    }

    /// Starts to send and to receive (MPI 5.0, section 3.7.2).
    ///
    /// # Errors
    /// As [`Comm::sendrecv`].
    pub fn isendrecv(&self, send: &Buffer, to: With, receive: Buffer, from: With) -> Result<Request> {
        self.begin_pair(send, to, (receive, from), false).map(|begun| Request::new(self, begun))
    }

    /// Sends and receives as [`Comm::sendrecv`] does; the received data replace those sent (MPI 5.0, section 3.2.7).
    ///
    /// # Errors
    /// As [`Comm::sendrecv`].
    pub fn sendrecv_replace(&self, buffer: Buffer, to: With, from: With) -> Result<Status> {
        self.sendrecv(&buffer.copied()?, to, buffer, from)
    }

    /// Starts to send and to receive; the received data replace those sent (MPI 5.0, section 3.7.2).
    ///
    /// # Errors
    /// As [`Comm::sendrecv`].
    pub fn isendrecv_replace(&self, buffer: Buffer, to: With, from: With) -> Result<Request> {
        self.isendrecv(&buffer.copied()?, to, buffer, from)
    }

    /// Waits until a message has arrived that a receive would get, and leaves it there (MPI 5.0, section 3.8.1).
    ///
    /// # Errors
    /// As [`Comm::receive`]; [`Class::PROC_ABORTED`] when the source is lost.
    pub fn probe(&self, from: With) -> Result<Status> {
        let Some(wanted) = self.wanted(from)? else { return Ok(Status::of_nobody()) };
        self.core().wait("MPI_Probe", |engine| match engine.probe(&wanted, self.peers()) {
            Some(status) => Some(Ok(status)),
            None => engine.lost(&wanted).map(Err),
        })?
    }

    /// Checks whether a message has arrived that a receive would get (MPI 5.0, section 3.8.1).
    ///
    /// # Errors
    /// As [`Comm::probe`].
    pub fn iprobe(&self, from: With) -> Result<Option<Status>> {
        let Some(wanted) = self.wanted(from)? else { return Ok(Some(Status::of_nobody())) };
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
    pub fn mprobe(&self, from: With) -> Result<(Message, Status)> {
        let Some(wanted) = self.wanted(from)? else { return Ok((Message::no_proc(), Status::of_nobody())) };
        self.core().wait("MPI_Mprobe", |engine| self.claimed(engine, &wanted))?
    }

    /// Checks whether a message has arrived that a receive would get, and reserves it for [`Message::receive`]
    /// (MPI 5.0, section 3.8.2).
    ///
    /// # Errors
    /// As [`Comm::probe`].
    pub fn improbe(&self, from: With) -> Result<Option<(Message, Status)>> {
        let Some(wanted) = self.wanted(from)? else {
            return Ok(Some((Message::no_proc(), Status::of_nobody())));
        };
        self.core().test(|engine| self.claimed(engine, &wanted)).transpose()
    }

    fn claimed(&self, engine: &mut Engine, wanted: &Wanted) -> Option<Result<(Message, Status)>> {
        match engine.claim(wanted, self.peers()) {
            Some((claimed, status)) => Some(Ok((Message(Some((self.clone(), claimed))), status))),
            None => engine.lost(wanted).map(Err),
        }
    }

    /// Creates a persistent request that sends a buffer in parts of equal size, each after [`crate::Requests::parts_ready`] is
    /// called for it (MPI 5.0, section 4.2.1).
    ///
    /// # Errors
    /// [`Class::RANK`] and [`Class::TAG`] as [`Comm::send`]; [`Class::COUNT`] if the elements cannot be divided into this many
    /// parts.
    pub fn send_parts_init(&self, buffer: Buffer, parts: i32, to: With) -> Result<Request> {
        let parts = parts_of(&buffer, parts)?;
        let Some((to, Label { tag, .. })) = self.destination(to)? else { return Ok(self.no_parts()) };
        let announced = PartsInfo { parts, first_tag: self.tags_of_parts(parts), bytes: buffer.len() };
        let (said, context) = (Buffer::own(&announced.bytes())?, self.context(Plane::Announcing)?);
        self.core().with(|engine| -> Result<()> {
            if let Begun::Under(key) = engine.send(to, Label { context, tag }, &said, Mode::Standard)? {
                engine.free(key);
            }
            Ok(())
        })?;
        let context = self.context(Plane::Parts)?;
        let sending = Arc::new(PartitionedSend { to, context, buffer, announced, state: Lock::default() });
        let (core, parts) = (self.core().clone(), Parts::Send(sending.clone()));
        Ok(Request::partitioned(self, Arc::new(move || Ok(core.with(|engine| sending.start(engine)))), parts))
    }

    /// Creates a persistent request that receives a buffer in parts of equal size; [`crate::Requests::part_arrived`] tests a part
    /// (MPI 5.0, section 4.2.1).
    ///
    /// # Errors
    /// As [`Comm::send_parts_init`]; any source and any tag are not possible.
    pub fn receive_parts_init(&self, buffer: Buffer, parts: i32, from: With) -> Result<Request> {
        let parts = parts_of(&buffer, parts)?;
        let Some((from, Label { tag, .. })) = self.destination(from)? else { return Ok(self.no_parts()) };
        let (into, names) = (Buffer::own(&[0; PARTS_INFO_LEN])?, self.peers().clone());
        let wanted = Wanted { context: self.context(Plane::Announcing)?, source: Some(from), tag: Some(tag) };
        let receive = Receive { wanted, buffer: into.clone(), names: Names::Of(names.clone()) };
        let key = self.core().with(|engine| {
            let begun = engine.receive(receive);
            engine.under(begun)
        });
        let (context, state) = (self.context(Plane::Parts)?, Lock::new(ReceiveProgress::new(key, into)));
        let receiving = Arc::new(PartitionedReceive { from, tag, names, context, buffer, parts, state });
        let (core, parts) = (self.core().clone(), Parts::Receive(receiving.clone()));
        Ok(Request::partitioned(
            self,
            Arc::new(move || Ok(core.with(|engine| receiving.start(engine)))),
            parts,
        ))
    }

    /// A partitioned request to or from `MPI_PROC_NULL`.
    fn no_parts(&self) -> Request {
        Request::partitioned(self, Arc::new(|| Ok(Begun::Over(Status::of_nobody()))), Parts::Null)
    }
}

fn parts_of(buffer: &Buffer, parts: i32) -> Result<u32> {
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
