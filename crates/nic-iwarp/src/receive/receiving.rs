//! Data path: receiving. Parses the stream and places payload.
//!
//! Headers and small payload pass through the read-ahead buffer. Large payload is read from the socket straight into
//! place, and the same call reads the beginning of the next FPDU into the buffer. The last bytes of large payload
//! pass through the buffer, too: they are placed last, so that a program that polls the last byte of a message sees
//! all of it. With CRCs everything passes through the buffer, which then holds a whole FPDU: nothing of it is used
//! before its CRC has been checked.

use host::Time;
use iwarp::rnr_limit::RETRY_FOREVER;
use iwarp::rx::{Event, Failure, Front, Piece, Receive as Next, Received, ReceivedKind, Target};
use iwarp::terminate::{Terminate, TerminateCode};
use rustix::io::Errno;
use verbs::{Access, Wc, WcOpcode, WcStatus};

use crate::connection::context::QpContext;
use crate::connection::end::End;
use crate::memory::place;
use crate::queues::messages::{read_immediate, request_of};
use crate::queues::per_qp::Queues;
use crate::queues::request_ring::Receive;
use crate::receive::lookup::{Rights, Takes};
use crate::tcp::receive_buffer::Ahead;
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
pub(crate) struct Receiving {
    ahead: Ahead,
    /// Maximum number of bytes to read ahead.
    limit: usize,
    /// The socket had no more data.
    dry: bool,
    /// Bytes received in this turn.
    turn: usize,
    takes: Takes,
    /// The receive taken for the current message; valid if `has_receive`.
    receive: Receive,
    has_receive: bool,
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
    greeting: bool,
    /// Whether any FPDU has arrived.
    heard: bool,
}

/// The result of one step.
enum Step {
    More,
    /// An event that does not concern the receiving half alone.
    Event(Event),
    /// More bytes are needed.
    Dry,
    /// The next message needs a receive.
    Rnr,
}

impl Receiving {
    /// A message without a receive waits for `rnr_retry` pauses, or without limit if that is 7, unless the peer
    /// announces another limit. With `greeting` the first FPDU may be a Send that consumes no receive. `bytes`
    /// arrived together with the handshake and belong to the stream.
    pub(crate) fn new(rnr_retry: u8, greeting: bool, bytes: &[u8]) -> Self {
        let mut ahead = Ahead::new();
        let space = ahead.space_up_to(bytes.len());
        let n = space.len().min(bytes.len());
        space[..n].copy_from_slice(&bytes[..n]);
        ahead.fill(n);
        Self {
            ahead,
            limit: usize::MAX,
            dry: false,
            turn: 0,
            takes: Takes::Buffer,
            receive: Receive::default(),
            has_receive: false,
            imm: None,
            written: 0,
            writing: false,
            wrote: false,
            rnr: false,
            rnr_retry,
            deadline: None,
            greeting,
            heard: false,
        }
    }

    /// Whether a message waits for a receive.
    pub(crate) fn is_rnr(&self) -> bool {
        self.rnr
    }

    /// Whether the peer has sent anything.
    pub(crate) fn has_heard(&self) -> bool {
        self.heard
    }

    /// Whether this turn is so long that responses should be sent immediately.
    #[inline]
    pub(crate) fn is_long_turn(&self) -> bool {
        self.turn >= LONG_TURN
    }

    /// Starts a turn.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        (self.dry, self.turn) = (false, 0);
    }

    /// Receives until there is an event that does not concern the receiving half alone, or no more data.
    pub(crate) fn next(&mut self, lent: &mut QpContext<'_>) -> Result<Option<Event>, End> {
        loop {
            let step = match lent.machine.begins_fpdu() {
                // Between FPDUs the state machine always wants the next FPDU.
                true if self.ahead.filled().is_empty() => Step::Dry,
                true if self.take_fast(lent)? => Step::More,
                _ => self.step(lent)?,
            };
            match step {
                Step::More => {}
                Step::Event(event) => return Ok(Some(event)),
                Step::Dry if self.fill(lent)? => {}
                Step::Dry | Step::Rnr => return Ok(None),
            }
        }
    }

    /// Ends a turn: wakes threads that wait for writes. Returns the number of bytes received in it.
    #[inline]
    pub(crate) fn end_turn(&mut self, queues: &Queues) -> usize {
        if std::mem::take(&mut self.wrote) {
            queues.wake_for_write();
        }
        self.ahead.shrink(&queues.shared.staging);
        self.turn
    }

    /// The fast path of a small message that has arrived completely; returns whether there was one. In any doubtful
    /// case it changes nothing.
    #[inline]
    fn take_fast(&mut self, lent: &mut QpContext<'_>) -> Result<bool, End> {
        let (bytes, domain) = (self.ahead.filled(), lent.queues.domain());
        let written = lent.machine.take_write(bytes, |stag, to, payload| {
            let at = domain.find(stag, Access::REMOTE_WRITE, to, payload.len() as u64);
            at.is_ok_and(|at| place::copy_to(payload, at).is_ok())
        });
        if let Some((taken, front)) = written {
            self.ahead.consume(taken);
            self.count_written(&front);
            self.wrote = true;
            return Ok(true);
        }
        if self.rnr {
            return Ok(false);
        }
        let (receive, has_receive, queues) = (&mut self.receive, &mut self.has_receive, lent.queues);
        let sent = lent.machine.take_send(bytes, |payload| {
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
        self.ahead.consume(taken);
        self.takes = Takes::Buffer;
        self.count_written(&Front::Send { len: 0 });
        self.finish_message(lent, &received)?;
        Ok(true)
    }

    /// Does the next step that the state machine asks for.
    fn step(&mut self, lent: &mut QpContext<'_>) -> Result<Step, End> {
        let receive = self.has_receive.then_some(&self.receive);
        let mut rights = Rights { queues: lent.queues, receive, takes: self.takes, fault: None };
        let next = lent.machine.poll_receive(&mut rights);
        if let Some(fault) = rights.fault {
            return Err(fault);
        }
        match next.map_err(End::Violation)? {
            Next::Check(wanted) => Ok(self.show(lent, wanted)),
            Next::Bytes(n) => {
                if lent.machine.begins_fpdu()
                    && let Some(step) = self.begin_fpdu(lent)
                {
                    return Ok(step);
                }
                Ok(self.feed(lent, n))
            }
            Next::Place(piece) => self.place(lent, &piece),
            Next::Event(Event::Received(received)) => {
                self.finish_message(lent, &received).map(|()| Step::More)
            }
            Next::Event(event) => Ok(Step::Event(event)),
            Next::Closed => Err(End::Closed),
        }
    }

    /// Shows the state machine the available part of the next FPDU; `wanted` bytes of it are needed.
    fn show(&mut self, lent: &mut QpContext<'_>, wanted: usize) -> Step {
        lent.machine.check(self.ahead.filled());
        if self.ahead.filled().len() >= wanted {
            return Step::More;
        }
        self.ahead.make_room(wanted, &lent.queues.shared.staging);
        // Not much more than this FPDU: the rest would have to be moved to the front.
        self.limit = if wanted < LARGE { usize::MAX } else { wanted + BEHIND_LARGE };
        Step::Dry
    }

    /// Passes bytes of headers and trailers to the state machine.
    fn feed(&mut self, lent: &mut QpContext<'_>, n: usize) -> Step {
        // Only all wanted bytes together: the beginning of an FPDU has been classified as a whole.
        let Some(bytes) = self.ahead.filled().get(..n) else { return Step::Dry };
        lent.machine.feed(bytes);
        self.ahead.consume(n);
        Step::More
    }

    /// Classifies an FPDU before it is consumed: a message that needs a receive waits in the socket until one is
    /// posted. Returns the step to take instead of consuming it, if any.
    fn begin_fpdu(&mut self, lent: &QpContext<'_>) -> Option<Step> {
        let queues = lent.queues;
        let Some(front) = Front::of(self.ahead.filled()) else { return Some(Step::Dry) };
        let takes = match front {
            Front::Write { .. } | Front::Tagged | Front::Untagged => None,
            Front::Send { len: 0 } if self.greeting => Some(Takes::Nothing),
            Front::Send { .. } => Some(Takes::Buffer),
            Front::Immediate(data) if read_immediate(data).1 => Some(Takes::Nothing),
            Front::Immediate(_) => Some(Takes::Completion),
        };
        if matches!(takes, Some(Takes::Buffer | Takes::Completion)) && !self.has_receive {
            self.has_receive = queues.receives.take(&mut self.receive);
            if !self.has_receive && self.lacks_receive(lent) {
                return Some(Step::Rnr);
            }
            self.end_rnr(queues);
        }
        self.takes = takes.unwrap_or(self.takes);
        self.count_written(&front);
        (self.greeting, self.heard) = (false, true);
        None
    }

    /// Counts the bytes of a write, whose total length the following immediate data reports.
    fn count_written(&mut self, front: &Front) {
        match *front {
            Front::Write { len, last } => {
                let before = if self.writing { self.written } else { 0 };
                (self.written, self.writing) = (before + u64::from(len), !last);
            }
            Front::Immediate(_) if self.takes == Takes::Completion => {}
            Front::Tagged => {}
            Front::Send { .. } | Front::Immediate(_) | Front::Untagged => {
                (self.written, self.writing) = (0, false);
            }
        }
    }

    /// Records that no receive is posted, for threads that post one; returns whether the message must wait.
    fn lacks_receive(&mut self, lent: &QpContext<'_>) -> bool {
        let queues = lent.queues;
        let shared = &queues.shared;
        if !self.rnr {
            self.rnr = true;
            queues.set_rnr(true);
            let retries = lent.machine.rnr_limit().unwrap_or(self.rnr_retry);
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
    fn end_rnr(&mut self, queues: &Queues) {
        if std::mem::take(&mut self.rnr) {
            self.deadline = None;
            queues.set_rnr(false);
        }
    }

    /// Reads ahead; returns whether data arrived.
    fn fill(&mut self, lent: &mut QpContext<'_>) -> Result<bool, End> {
        if self.dry || self.turn >= TURN_BYTES {
            return Ok(false);
        }
        let space = self.ahead.space_up_to(self.limit);
        let room = space.len();
        match place::read_ahead(lent.socket, space) {
            Ok(0) => Err(eof(lent)),
            Ok(n) => {
                self.ahead.fill(n);
                self.turn += n;
                self.dry = n < room;
                // Bytes after large payload that did not fit next to it are not large payload.
                self.limit = usize::MAX;
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(End::Broken(errno)),
        }
    }

    /// Places payload.
    fn place(&mut self, lent: &mut QpContext<'_>, piece: &Piece) -> Result<Step, End> {
        if let Some(step) = self.place_small(lent, piece) {
            return Ok(step);
        }
        let list = self.target(lent, piece)?;
        self.wrote |= matches!(piece.target, Target::Write { .. });
        let have = self.ahead.filled();
        if !have.is_empty() {
            let n = have.len().min(piece.len);
            if place::copy_in(&have[..n], &list.part(0, n as u64)).is_err() {
                return Err(gone(lent, piece));
            }
            lent.machine.placed(n);
            self.ahead.consume(n);
            return Ok(Step::More);
        }
        if piece.len >= LARGE {
            self.limit = BEHIND_LARGE;
        }
        let dry = self.dry || self.turn >= TURN_BYTES;
        // An FPDU with a CRC is complete in the buffer.
        if lent.machine.checks_crc() || piece.len < DIRECT_MIN || dry {
            return Ok(Step::Dry);
        }
        self.read_into_place(lent, &list, piece)
    }

    /// Reads payload, except its last bytes, from the socket straight into place, and reads ahead what follows it.
    fn read_into_place(
        &mut self,
        lent: &mut QpContext<'_>,
        list: &SgList,
        piece: &Piece,
    ) -> Result<Step, End> {
        let direct = piece.len - LAST;
        let behind = self.ahead.space_up_to(self.limit);
        let room = direct + behind.len();
        let n = match place::receive(lent.socket, &list.part(0, direct as u64), behind) {
            Ok(0) => return Err(eof(lent)),
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(Errno::FAULT) => return Err(gone(lent, piece)),
            Err(errno) => return Err(End::Broken(errno)),
        };
        let placed = n.min(direct);
        lent.machine.placed(placed);
        self.ahead.fill(n - placed);
        self.turn += n;
        self.dry = n < room;
        if direct < LARGE {
            self.limit = usize::MAX;
        }
        Ok(Step::More)
    }

    /// The fast path for payload that is complete in the buffer and goes to one place. In any doubtful case it
    /// changes nothing.
    #[inline]
    fn place_small(&mut self, lent: &mut QpContext<'_>, piece: &Piece) -> Option<Step> {
        let bytes = self.ahead.filled().get(..piece.len)?;
        let len = piece.len as u64;
        let (key, need, to) = match (piece.target, self.receive.sges.as_slice()) {
            (Target::Write { stag, to }, _) => (stag, Access::REMOTE_WRITE, to),
            (Target::Receive { offset: 0, .. }, [only]) if len <= only.length.into() => {
                (only.lkey, Access::LOCAL_WRITE, only.addr)
            }
            _ => return None,
        };
        place::copy_to(bytes, lent.queues.domain().find(key, need, to, len).ok()?).ok()?;
        self.wrote |= need == Access::REMOTE_WRITE;
        lent.machine.placed(piece.len);
        self.ahead.consume(piece.len);
        Some(Step::More)
    }

    /// The destination of payload, if access is still allowed.
    fn target(&self, lent: &mut QpContext<'_>, piece: &Piece) -> Result<SgList, End> {
        let (domain, len) = (lent.queues.domain(), piece.len as u64);
        match piece.target {
            Target::Write { stag, to } => {
                let found = domain.remote(stag, Access::REMOTE_WRITE, to, len);
                found.map_err(|refusal| End::Violation(lent.machine.refuse(refusal.code())))
            }
            Target::ReadSink { id, offset, .. } => {
                let (queue, number) = (lent.queues.sends.lock(), request_of(id));
                let found = queue.locate(number, domain, Access::LOCAL_WRITE, offset.into(), len);
                found.ok_or(End::BadSink(number))
            }
            Target::Receive { offset, .. } => {
                let sges = self.receive.sges.as_slice();
                domain.local(sges, Access::LOCAL_WRITE, offset.into(), len).ok_or(End::BadReceive)
            }
        }
    }

    /// A message has been delivered.
    fn finish_message(&mut self, lent: &mut QpContext<'_>, received: &Received) -> Result<(), End> {
        let mut wc = Wc::default();
        match received.kind {
            ReceivedKind::Immediate(data) => {
                let imm = Some(read_immediate(data).0);
                if self.takes == Takes::Nothing {
                    self.imm = imm;
                    return Ok(());
                }
                (wc.opcode, wc.imm) = (WcOpcode::RecvWriteImm, imm);
                wc.byte_len = u32::try_from(std::mem::take(&mut self.written)).unwrap_or(u32::MAX);
            }
            ReceivedKind::Send { len, invalidate } => {
                (wc.opcode, wc.byte_len, wc.invalidated) = (WcOpcode::Recv, len, invalidate);
                wc.imm = self.imm.take();
                if let Some(key) = invalidate
                    && !lent.queues.domain().invalidate(key)
                {
                    // The tag was valid when the message began.
                    return Err(violated(lent, TerminateCode::CANNOT_INVALIDATE));
                }
            }
        }
        if std::mem::take(&mut self.has_receive) {
            wc.wr_id = self.receive.wr_id;
            lent.queues.finish_receive(wc, received.solicited);
        }
        Ok(())
    }

    /// Ends receiving: the receive of the current message is reported with this status.
    pub(crate) fn give_up(&mut self, queues: &Queues, status: WcStatus) {
        self.end_rnr(queues);
        if std::mem::take(&mut self.has_receive) {
            queues.fail_receive(self.receive.wr_id, status);
        }
    }
}

/// The destination of payload has been unmapped or protected.
#[cold]
fn gone(lent: &mut QpContext<'_>, piece: &Piece) -> End {
    match piece.target {
        Target::Write { .. } => End::Violation(lent.machine.refuse(TerminateCode::PROTECTION_UNSPECIFIED)),
        Target::ReadSink { id, .. } => End::BadSink(request_of(id)),
        Target::Receive { .. } => End::BadReceive,
    }
}

/// The peer's access has become invalid in the middle of a message.
fn violated(lent: &mut QpContext<'_>, code: TerminateCode) -> End {
    lent.machine.abort(code);
    End::Violation(Failure { terminate: Terminate::new(code) })
}

/// The peer has closed its side.
fn eof(lent: &mut QpContext<'_>) -> End {
    // Even inside a message: the peer is gone, and an incomplete message is not delivered.
    let _ = lent.machine.handle_eof();
    End::Closed
}
