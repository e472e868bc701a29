//! Data path: receiving. Parses the stream and places payload.
//!
//! Headers and small payload pass through the read-ahead buffer. Large payload is read from the socket straight into
//! place, and the same call reads the beginning of the next FPDU into the buffer. The last bytes of large payload
//! pass through the buffer, too: they are placed last, so that a program that polls the last byte of a message sees
//! all of it. With CRCs everything passes through the buffer, which then holds a whole FPDU: nothing of it is used
//! before its CRC has been checked.
//!
//! On a queue pair with split receives, payload behind the end of the receive waits for memory that the program posts
//! when it has seen the beginning; nothing more is read from the socket until then.

use host::Time;
use iwarp::rnr_limit::RETRY_FOREVER;
use iwarp::rx::{
    Destination, Event, FpduKind, Piece, ProtocolViolation, Received, ReceivedKind, ReceiverStep as Next,
};
use iwarp::terminate::{Terminate, TerminateCode};
use rustix::io::Errno;
use verbs::{Access, Wc, WcOpcode, WcStatus};

use crate::connection::context::QpContext;
use crate::connection::end_reason::EndReason;
use crate::memory::place::{self, ReadAhead};
use crate::queues::messages::{read_immediate, request_of};
use crate::queues::qp_queues::QpQueues;
use crate::queues::request_ring::PostedReceive;
use crate::receive::lookup::{DeviceLookup, ReceiveUse};
use crate::tcp::receive_buffer::ReceiveBuffer;
use nic_util::sg_list::SgList;

/// Payload of at least this many bytes is read straight into place; below, a copy is cheaper than an extra system
/// call.
const DIRECT_MIN: usize = 1024;
/// After payload of at least this size we expect more: little is read ahead after it, because that would have to be
/// copied.
const LARGE: usize = 16 << 10;
/// How much is then read ahead: room for the short last FPDU of a 64 KiB message (784 bytes do not fit the first
/// FPDU), the next header, and a little more.
const BEHIND_LARGE: usize = 1024;
/// Number of payload bytes that are placed last.
const LAST: usize = 8;
/// Number of bytes that one turn may receive before other connections get theirs.
const TURN_BYTES: usize = 2 << 20;
/// In a turn that has received this many bytes, responses are sent before its end.
const LONG_TURN: usize = 128 << 10;

/// The receiving half of a connection.
pub(crate) struct RecvHalf {
    buffer: ReceiveBuffer,
    /// Maximum number of bytes to read ahead.
    limit: usize,
    /// The socket had no more data.
    socket_empty: bool,
    /// Bytes received in this turn.
    turn: usize,
    receive_use: ReceiveUse,
    /// The receive taken for the current message; valid if `has_receive`.
    receive: PostedReceive,
    has_receive: bool,
    /// Which part of the message the receive takes.
    part: MessagePart,
    /// Immediate data of the Send that follows.
    imm: Option<u32>,
    /// Bytes of the RDMA Write that just ended or is in progress, summed over its segments.
    written: u64,
    writing: bool,
    /// Writes of the peer were placed, and no waiting thread has been woken for them yet.
    wrote: bool,
    rnr: bool,
    /// The RNR retry limit for the peer's messages, unless the peer has announced another.
    rnr_retry: u8,
    deadline: Option<Time>,
    /// The first FPDU may be a Send that consumes no receive.
    expects_rtr_send: bool,
    /// Whether any FPDU has arrived.
    any_received: bool,
}

/// The part of the current message that its receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessagePart {
    /// All of it, or the beginning, as far as is known.
    Whole,
    /// The beginning was delivered; what follows this offset waits for memory.
    AwaitsRest(u32),
    /// What follows this offset.
    Rest(u32),
}

impl MessagePart {
    /// The offset in the message of the receive's first byte.
    fn begin(self) -> u32 {
        match self {
            Self::Whole => 0,
            Self::AwaitsRest(begin) | Self::Rest(begin) => begin,
        }
    }
}

/// The result of one step.
enum ReceiveStep {
    More,
    /// An event that does not concern the receiving half alone.
    Event(Event),
    /// More bytes are needed.
    NeedsBytes,
    /// The next message needs a receive, or this one memory for its rest.
    NeedsReceive,
}

impl RecvHalf {
    /// A message without a receive waits for `rnr_retry` pauses, or without limit if that is 7, unless the peer
    /// announces another limit. With `expects_rtr_send` the first FPDU may be a Send that consumes no receive. `bytes`
    /// arrived together with the handshake and belong to the stream.
    pub(crate) fn new(rnr_retry: u8, expects_rtr_send: bool, bytes: &[u8]) -> Self {
        let mut buffer = ReceiveBuffer::new();
        let space = buffer.space_up_to(bytes.len());
        let n = space.len().min(bytes.len());
        space[..n].copy_from_slice(&bytes[..n]);
        buffer.commit(n);
        Self {
            buffer,
            limit: usize::MAX,
            socket_empty: false,
            turn: 0,
            receive_use: ReceiveUse::Buffer,
            receive: PostedReceive::default(),
            has_receive: false,
            part: MessagePart::Whole,
            imm: None,
            written: 0,
            writing: false,
            wrote: false,
            rnr: false,
            rnr_retry,
            deadline: None,
            expects_rtr_send,
            any_received: false,
        }
    }

    /// Whether a message waits for a receive.
    pub(crate) fn is_rnr(&self) -> bool {
        self.rnr
    }

    /// Whether a message waits for memory for its rest.
    #[inline]
    pub(crate) fn awaits_rest(&self) -> bool {
        matches!(self.part, MessagePart::AwaitsRest(_))
    }

    /// Whether the peer has sent anything.
    pub(crate) fn has_received(&self) -> bool {
        self.any_received
    }

    /// Whether this turn is so long that responses should be sent immediately.
    #[inline]
    pub(crate) fn is_long_turn(&self) -> bool {
        self.turn >= LONG_TURN
    }

    /// Starts a turn.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        (self.socket_empty, self.turn) = (false, 0);
    }

    /// Receives until there is an event that does not concern the receiving half alone, or no more data.
    pub(crate) fn next(&mut self, cx: &mut QpContext<'_>) -> Result<Option<Event>, EndReason> {
        loop {
            let step = match cx.machine.begins_fpdu() {
                // Between FPDUs the state machine always wants the next FPDU.
                true if self.buffer.filled().is_empty() => ReceiveStep::NeedsBytes,
                true if self.take_fast(cx)? => ReceiveStep::More,
                _ => self.step(cx)?,
            };
            match step {
                ReceiveStep::More => {}
                ReceiveStep::Event(event) => return Ok(Some(event)),
                ReceiveStep::NeedsBytes if self.read_ahead(cx)? => {}
                ReceiveStep::NeedsBytes | ReceiveStep::NeedsReceive => return Ok(None),
            }
        }
    }

    /// Ends a turn: wakes threads that wait for writes. Returns the number of bytes received in it.
    #[inline]
    pub(crate) fn end_turn(&mut self, queues: &QpQueues) -> usize {
        if std::mem::take(&mut self.wrote) {
            queues.wake_for_write();
        }
        self.buffer.shrink(&queues.shared.staging);
        self.turn
    }

    /// The fast path of a small message that has arrived completely; returns whether there was one. In any doubtful
    /// case it changes nothing.
    #[inline]
    fn take_fast(&mut self, cx: &mut QpContext<'_>) -> Result<bool, EndReason> {
        let (bytes, domain) = (self.buffer.filled(), cx.queues.domain());
        let written = cx.machine.take_write(bytes, |stag, to, payload| {
            let at = domain.find(stag, Access::REMOTE_WRITE, to, payload.len() as u64);
            at.is_ok_and(|at| place::copy_to(payload, at).is_ok())
        });
        if let Some((taken, kind)) = written {
            self.buffer.consume(taken);
            self.count_written(&kind);
            self.wrote = true;
            return Ok(true);
        }
        if self.rnr {
            return Ok(false);
        }
        let (receive, has_receive, queues) = (&mut self.receive, &mut self.has_receive, cx.queues);
        let sent = cx.machine.take_send(bytes, |payload| {
            *has_receive = *has_receive || queues.receives.take(receive);
            let len = payload.len() as u64;
            match receive.sges.as_slice() {
                [only] if *has_receive && len <= only.length.into() && len > 0 => {
                    let found = domain.find(only.lkey, Access::LOCAL_WRITE, only.addr, len);
                    found.is_ok_and(|at| place::copy_to(payload, at).is_ok())
                }
                _ => false,
            }
        });
        let Some((taken, received)) = sent else { return Ok(false) };
        self.buffer.consume(taken);
        self.receive_use = ReceiveUse::Buffer;
        self.count_written(&FpduKind::Send { len: 0 });
        self.finish_message(cx, &received)?;
        Ok(true)
    }

    /// Does the next step that the state machine asks for.
    fn step(&mut self, cx: &mut QpContext<'_>) -> Result<ReceiveStep, EndReason> {
        match self.poll_machine(cx)? {
            Next::Check(wanted) => Ok(self.show_fpdu(cx, wanted)),
            Next::Bytes(n) => {
                if cx.machine.begins_fpdu()
                    && let Some(step) = self.begin_fpdu(cx)
                {
                    return Ok(step);
                }
                Ok(self.feed(cx, n))
            }
            Next::Place(piece) => self.place_payload(cx, &piece),
            Next::Event(Event::Received(received)) => {
                self.finish_message(cx, &received).map(|()| ReceiveStep::More)
            }
            Next::Event(event) => Ok(ReceiveStep::Event(event)),
            Next::Closed => Err(EndReason::Closed),
        }
    }

    /// What the state machine asks for next.
    #[inline]
    fn poll_machine(&self, cx: &mut QpContext<'_>) -> Result<Next, EndReason> {
        let receive = self.has_receive.then_some(&self.receive);
        let mut lookup =
            DeviceLookup { queues: cx.queues, receive, receive_use: self.receive_use, fault: None };
        let next = cx.machine.poll_receive(&mut lookup);
        match lookup.fault {
            Some(fault) => Err(fault),
            None => next.map_err(EndReason::Violation),
        }
    }

    /// Shows the state machine the available part of the next FPDU; `wanted` bytes of it are needed.
    fn show_fpdu(&mut self, cx: &mut QpContext<'_>, wanted: usize) -> ReceiveStep {
        cx.machine.check(self.buffer.filled());
        if self.buffer.filled().len() >= wanted {
            return ReceiveStep::More;
        }
        self.buffer.make_room(wanted, &cx.queues.shared.staging);
        // Not much more than this FPDU: the rest would have to be moved to the front.
        self.limit = if wanted < LARGE { usize::MAX } else { wanted + BEHIND_LARGE };
        ReceiveStep::NeedsBytes
    }

    /// Passes bytes of headers and trailers to the state machine.
    fn feed(&mut self, cx: &mut QpContext<'_>, n: usize) -> ReceiveStep {
        // Only all wanted bytes together: the beginning of an FPDU has been classified as a whole.
        let Some(bytes) = self.buffer.filled().get(..n) else { return ReceiveStep::NeedsBytes };
        cx.machine.feed(bytes);
        self.buffer.consume(n);
        ReceiveStep::More
    }

    /// Classifies an FPDU before it is consumed: a message that needs a receive waits in the socket until one is
    /// posted. Returns the step to take instead of consuming it, if any.
    fn begin_fpdu(&mut self, cx: &QpContext<'_>) -> Option<ReceiveStep> {
        let queues = cx.queues;
        let Some(kind) = FpduKind::peek(self.buffer.filled()) else { return Some(ReceiveStep::NeedsBytes) };
        let receive_use = match kind {
            FpduKind::Write { .. } | FpduKind::Tagged | FpduKind::Untagged => None,
            FpduKind::Send { len: 0 } if self.expects_rtr_send => Some(ReceiveUse::Nothing),
            FpduKind::Send { .. } => Some(ReceiveUse::Buffer),
            FpduKind::Immediate(data) if read_immediate(data).1 => Some(ReceiveUse::Nothing),
            FpduKind::Immediate(_) => Some(ReceiveUse::Completion),
        };
        if matches!(receive_use, Some(ReceiveUse::Buffer | ReceiveUse::Completion)) && !self.has_receive {
            self.has_receive = queues.receives.take(&mut self.receive);
            if !self.has_receive && self.await_receive(cx) {
                return Some(ReceiveStep::NeedsReceive);
            }
            self.end_rnr(queues);
        }
        self.receive_use = receive_use.unwrap_or(self.receive_use);
        self.count_written(&kind);
        (self.expects_rtr_send, self.any_received) = (false, true);
        None
    }

    /// Counts the bytes of a write, whose total length the following immediate data reports.
    fn count_written(&mut self, kind: &FpduKind) {
        match *kind {
            FpduKind::Write { len, last } => {
                let before = if self.writing { self.written } else { 0 };
                (self.written, self.writing) = (before + u64::from(len), !last);
            }
            FpduKind::Immediate(_) if self.receive_use == ReceiveUse::Completion => {}
            FpduKind::Tagged => {}
            FpduKind::Send { .. } | FpduKind::Immediate(_) | FpduKind::Untagged => {
                (self.written, self.writing) = (0, false);
            }
        }
    }

    /// Records that no receive is posted, for threads that post one; returns whether the message must wait.
    fn await_receive(&mut self, cx: &QpContext<'_>) -> bool {
        let queues = cx.queues;
        let shared = &queues.shared;
        if !self.rnr {
            self.rnr = true;
            queues.set_rnr(true);
            let retries = cx.machine.rnr_limit().unwrap_or(self.rnr_retry);
            if retries < RETRY_FOREVER {
                let deadline = shared.host.now() + queues.rnr_pause() * retries.into();
                self.deadline = Some(deadline);
                shared.reactor.set_timer(deadline, queues.num);
            }
        }
        self.has_receive = queues.receives.take(&mut self.receive);
        let overdue = self.deadline.is_some_and(|deadline| shared.host.now() >= deadline);
        !self.has_receive && !overdue
    }

    /// Records that the connection no longer waits for a receive.
    fn end_rnr(&mut self, queues: &QpQueues) {
        if std::mem::take(&mut self.rnr) {
            self.deadline = None;
            queues.set_rnr(false);
        }
    }

    /// Reads ahead; returns whether data arrived.
    fn read_ahead(&mut self, cx: &mut QpContext<'_>) -> Result<bool, EndReason> {
        if self.socket_empty || self.turn >= TURN_BYTES {
            return Ok(false);
        }
        let space = self.buffer.space_up_to(self.limit);
        let room = space.len();
        match place::read_ahead(cx.socket, space) {
            Ok(0) => Err(on_eof(cx)),
            Ok(n) => {
                self.buffer.commit(n);
                self.turn += n;
                self.socket_empty = n < room;
                // Bytes after large payload that did not fit next to it are not large payload.
                self.limit = usize::MAX;
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(EndReason::Broken(errno)),
        }
    }

    /// Places as much of the piece's payload as has arrived.
    fn place_payload(&mut self, cx: &mut QpContext<'_>, piece: &Piece) -> Result<ReceiveStep, EndReason> {
        let piece = &match piece.destination {
            Destination::Receive { offset, .. } if cx.queues.splits => {
                let Some(part) = self.cut_at_receive(cx, piece, offset)? else {
                    return Ok(ReceiveStep::NeedsReceive);
                };
                part
            }
            _ => *piece,
        };
        if let Some(step) = self.place_small(cx, piece) {
            return Ok(step);
        }
        let list = self.destination(cx, piece)?;
        self.wrote |= matches!(piece.destination, Destination::Write { .. });
        let have = self.buffer.filled();
        if !have.is_empty() {
            let n = have.len().min(piece.len);
            if place::copy_in(&have[..n], &list.part(0, n as u64)).is_err() {
                return Err(unmapped(cx, piece));
            }
            cx.machine.placed(n);
            self.buffer.consume(n);
            return Ok(ReceiveStep::More);
        }
        if piece.len >= LARGE {
            self.limit = BEHIND_LARGE;
        }
        let socket_empty = self.socket_empty || self.turn >= TURN_BYTES;
        // An FPDU with a CRC is complete in the buffer.
        if cx.machine.checks_crc() || piece.len < DIRECT_MIN || socket_empty {
            return Ok(ReceiveStep::NeedsBytes);
        }
        if let Some((at, room)) = self.rest_from(cx, piece)? {
            return self.read_segments(cx, at, piece, room);
        }
        self.read_into_place(cx, &list, piece)
    }

    /// The address of the payload, and the bytes behind it, if it goes to memory for the rest of a message that is one element.
    #[inline]
    fn rest_from(&self, cx: &QpContext<'_>, piece: &Piece) -> Result<Option<(*mut u8, usize)>, EndReason> {
        let (MessagePart::Rest(begin), Destination::Receive { offset, .. }, [only]) =
            (self.part, piece.destination, self.receive.sges.as_slice())
        else {
            return Ok(None);
        };
        let from = u64::from(offset - begin);
        let len = u64::from(only.length).saturating_sub(from);
        let room = len.saturating_sub(piece.len as u64) as usize;
        let at = cx.queues.domain().find(only.lkey, Access::LOCAL_WRITE, only.addr + from, len);
        at.map(|at| Some((at, room))).map_err(|_| EndReason::BadReceive)
    }

    /// Cuts payload at `offset` of its message where the receive ends. Behind the end it delivers the beginning, and takes the memory
    /// for the rest; returns `None` if that is not posted yet.
    #[inline]
    fn cut_at_receive(
        &mut self,
        cx: &mut QpContext<'_>,
        piece: &Piece,
        offset: u32,
    ) -> Result<Option<Piece>, EndReason> {
        let len = piece.len as u64;
        if self.part == MessagePart::Whole {
            let room = self.receive.sges.total().saturating_sub(offset.into());
            if room > 0 {
                return Ok(Some(Piece { len: len.min(room) as usize, ..*piece }));
            }
            self.deliver_beginning(cx.queues, offset);
        }
        if let MessagePart::AwaitsRest(begin) = self.part {
            self.has_receive = cx.queues.take_rest(&mut self.receive);
            if !self.has_receive {
                return Ok(None);
            }
            self.part = MessagePart::Rest(begin);
        }
        if u64::from(offset - self.part.begin()) + len > self.receive.sges.total() {
            return Err(EndReason::Violation(cx.machine.refuse(TerminateCode::UNTAGGED_TOO_LONG)));
        }
        Ok(Some(*piece))
    }

    /// The first `len` bytes of a message have filled its receive, and more follow.
    fn deliver_beginning(&mut self, queues: &QpQueues, len: u32) {
        (self.has_receive, self.part) = (false, MessagePart::AwaitsRest(len));
        // Before the completion, which the program may answer immediately.
        queues.request_rest();
        let wc =
            Wc { wr_id: self.receive.wr_id, opcode: WcOpcode::RecvBegin, byte_len: len, ..Wc::default() };
        // Whether the message is solicited is known at its end.
        queues.finish_receive(wc, true);
    }

    /// Reads payload, except its last bytes, from the socket straight into place, and reads ahead what follows it.
    fn read_into_place(
        &mut self,
        cx: &mut QpContext<'_>,
        list: &SgList,
        piece: &Piece,
    ) -> Result<ReceiveStep, EndReason> {
        let direct = piece.len - LAST;
        let after_piece = self.buffer.space_up_to(self.limit);
        let room = direct + after_piece.len();
        let n = match place::receive(cx.socket, &list.part(0, direct as u64), after_piece) {
            Ok(0) => return Err(on_eof(cx)),
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(Errno::FAULT) => return Err(unmapped(cx, piece)),
            Err(errno) => return Err(EndReason::Broken(errno)),
        };
        let placed = n.min(direct);
        cx.machine.placed(placed);
        self.buffer.commit(n - placed);
        self.turn += n;
        self.socket_empty = n < room;
        if direct < LARGE {
            self.limit = usize::MAX;
        }
        Ok(ReceiveStep::More)
    }

    /// Reads the rest of a message that has one element of memory: as many of its segments as one call can, straight into place.
    fn read_segments(
        &mut self,
        cx: &mut QpContext<'_>,
        at: *mut u8,
        piece: &Piece,
        room: usize,
    ) -> Result<ReceiveStep, EndReason> {
        let mut ahead = ReadAhead::new(at, piece.len, room, cx.machine.continued_segment());
        let mut left = match ahead.read(cx.socket) {
            Ok(0) => return Err(on_eof(cx)),
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(Errno::FAULT) => return Err(unmapped(cx, piece)),
            Err(errno) => return Err(EndReason::Broken(errno)),
        };
        self.turn += left;
        self.socket_empty = left < ahead.total();
        for number in 0..ahead.lens().len() {
            let placed = left.min(ahead.lens()[number]);
            cx.machine.placed(placed);
            let (gap, behind) = ahead.gap(number, left - placed);
            let next = ahead.lens().get(number + 1).copied().filter(|_| behind > 0);
            let is_next = next.is_some_and(|len| cx.machine.is_continued_by(gap, len));
            self.buffer.append(gap);
            left = behind;
            if is_next && self.begin_continued(cx)? {
                continue;
            }
            if behind > 0 {
                // The peer cuts its messages otherwise: what was read does not belong where it is.
                return self.move_to_buffer(cx, &ahead, number + 1, behind, piece);
            }
            break;
        }
        Ok(ReceiveStep::More)
    }

    /// Passes the trailer of a segment and the header of the next one of the same message, which are all that is buffered. Returns
    /// whether the state machine wants the payload of that one.
    fn begin_continued(&mut self, cx: &mut QpContext<'_>) -> Result<bool, EndReason> {
        loop {
            match self.poll_machine(cx)? {
                Next::Place(_) => return Ok(true),
                Next::Bytes(n) => {
                    if cx.machine.begins_fpdu() {
                        // A segment in the middle of a message needs no receive.
                        self.begin_fpdu(cx);
                    }
                    if !matches!(self.feed(cx, n), ReceiveStep::More) {
                        return Ok(false);
                    }
                }
                Next::Check(_) | Next::Event(_) | Next::Closed => return Ok(false),
            }
        }
    }

    /// Moves the last `n` bytes that were read, from a segment on, into the buffer.
    #[cold]
    fn move_to_buffer(
        &mut self,
        cx: &mut QpContext<'_>,
        ahead: &ReadAhead,
        first: usize,
        n: usize,
        piece: &Piece,
    ) -> Result<ReceiveStep, EndReason> {
        let (mut bytes, mut left) = (Vec::with_capacity(n), n);
        for number in first..ahead.lens().len() {
            let placed = left.min(ahead.lens()[number]);
            if ahead.append_payload(number, placed, &mut bytes).is_err() {
                return Err(unmapped(cx, piece));
            }
            let (gap, behind) = ahead.gap(number, left - placed);
            bytes.extend_from_slice(gap);
            left = behind;
        }
        self.buffer.append(&bytes);
        Ok(ReceiveStep::More)
    }

    /// The fast path for payload that is complete in the buffer and goes to one place. In any doubtful case it
    /// changes nothing.
    #[inline]
    fn place_small(&mut self, cx: &mut QpContext<'_>, piece: &Piece) -> Option<ReceiveStep> {
        let bytes = self.buffer.filled().get(..piece.len)?;
        let len = piece.len as u64;
        let (key, need, to) = match (piece.destination, self.receive.sges.as_slice()) {
            (Destination::Write { stag, to }, _) => (stag, Access::REMOTE_WRITE, to),
            (Destination::Receive { offset: 0, .. }, [only]) if len <= only.length.into() => {
                (only.lkey, Access::LOCAL_WRITE, only.addr)
            }
            _ => return None,
        };
        place::copy_to(bytes, cx.queues.domain().find(key, need, to, len).ok()?).ok()?;
        self.wrote |= need == Access::REMOTE_WRITE;
        cx.machine.placed(piece.len);
        self.buffer.consume(piece.len);
        Some(ReceiveStep::More)
    }

    /// The destination of payload, if access is still allowed.
    fn destination(&self, cx: &mut QpContext<'_>, piece: &Piece) -> Result<SgList, EndReason> {
        let (domain, len) = (cx.queues.domain(), piece.len as u64);
        match piece.destination {
            Destination::Write { stag, to } => {
                let found = domain.remote(stag, Access::REMOTE_WRITE, to, len);
                found.map_err(|refusal| EndReason::Violation(cx.machine.refuse(refusal.code())))
            }
            Destination::ReadSink { id, offset, .. } => {
                let (queue, number) = (cx.queues.sends.lock(), request_of(id));
                let found = queue.local_addresses(number, domain, Access::LOCAL_WRITE, offset.into(), len);
                found.ok_or(EndReason::BadSink(number))
            }
            Destination::Receive { offset, .. } => {
                let (sges, at) = (self.receive.sges.as_slice(), offset - self.part.begin());
                domain.local(sges, Access::LOCAL_WRITE, at.into(), len).ok_or(EndReason::BadReceive)
            }
        }
    }

    /// A message has been delivered.
    fn finish_message(&mut self, cx: &mut QpContext<'_>, received: &Received) -> Result<(), EndReason> {
        let mut wc = Wc::default();
        match received.kind {
            ReceivedKind::Immediate(data) => {
                let imm = Some(read_immediate(data).0);
                if self.receive_use == ReceiveUse::Nothing {
                    self.imm = imm;
                    return Ok(());
                }
                (wc.opcode, wc.imm) = (WcOpcode::RecvWriteImm, imm);
                wc.byte_len = u32::try_from(std::mem::take(&mut self.written)).unwrap_or(u32::MAX);
            }
            ReceivedKind::Send { len, invalidate } => {
                let part = std::mem::replace(&mut self.part, MessagePart::Whole);
                (wc.opcode, wc.byte_len) = match part {
                    MessagePart::Whole => (WcOpcode::Recv, len),
                    part => (WcOpcode::RecvRest, len - part.begin()),
                };
                wc.invalidated = invalidate;
                wc.imm = self.imm.take();
                if let Some(key) = invalidate
                    && !cx.queues.domain().invalidate(key)
                {
                    // The tag was valid when the message began.
                    return Err(abort_by_violation(cx, TerminateCode::CANNOT_INVALIDATE));
                }
            }
        }
        if std::mem::take(&mut self.has_receive) {
            wc.wr_id = self.receive.wr_id;
            cx.queues.finish_receive(wc, received.solicited);
        }
        Ok(())
    }

    /// Ends receiving: the receive of the current message is reported with this status.
    pub(crate) fn end_with(&mut self, queues: &QpQueues, status: WcStatus) {
        self.end_rnr(queues);
        if std::mem::take(&mut self.has_receive) {
            let is_rest = matches!(self.part, MessagePart::Rest(_));
            let opcode = if is_rest { WcOpcode::RecvRest } else { WcOpcode::Recv };
            queues.fail_receive(self.receive.wr_id, opcode, status);
        }
    }
}

/// The destination of payload has been unmapped or protected.
#[cold]
fn unmapped(cx: &mut QpContext<'_>, piece: &Piece) -> EndReason {
    match piece.destination {
        Destination::Write { .. } => {
            EndReason::Violation(cx.machine.refuse(TerminateCode::PROTECTION_UNSPECIFIED))
        }
        Destination::ReadSink { id, .. } => EndReason::BadSink(request_of(id)),
        Destination::Receive { .. } => EndReason::BadReceive,
    }
}

/// The peer's access has become invalid in the middle of a message.
fn abort_by_violation(cx: &mut QpContext<'_>, code: TerminateCode) -> EndReason {
    cx.machine.abort(code);
    EndReason::Violation(ProtocolViolation { terminate: Terminate::new(code) })
}

/// The peer has closed its side.
fn on_eof(cx: &mut QpContext<'_>) -> EndReason {
    // Even inside a message: the peer is gone, and an incomplete message is not delivered.
    let _ = cx.machine.handle_eof();
    EndReason::Closed
}
