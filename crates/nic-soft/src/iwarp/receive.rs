//! Data path: receiving. What the bytes of the stream are for, and into place with them.
//!
//! Headers and small payload come through the buffer of what was read ahead; large payload is read from the socket straight
//! to where it belongs, with the beginning of the next FPDU behind it. Its last bytes take the way through the buffer, too:
//! they are put there last, so that whoever polls on the last byte of a message sees all of it. With CRCs everything comes
//! through the buffer, which then holds a whole FPDU: nothing of it is used before its CRC was compared.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use host::{Span, Time};
use iwarp::ddp::{QUEUE_SEND, TAGGED_LEN, UNTAGGED_LEN};
use iwarp::mpa::LENGTH_LEN;
use iwarp::rdmap::{IMMEDIATE_LEN, Opcode};
use iwarp::rx::{Event, Failure, Piece, Receive as Next, Received, ReceivedKind, Target};
use iwarp::terminate::{Terminate, TerminateCode};
use rustix::io::Errno;
use verbs::{Access, RNR_PAUSE, Wc, WcOpcode, WcStatus};

use super::ahead::Ahead;
use super::lookup::{Fault, Rights, Takes};
use super::place;
use super::qp::QpInner;
use super::stream::{End, Link, Stream};
use super::transmit::JOINED;
use crate::pieces::Pieces;

/// Payload of this size is read straight into place, in bytes; below, a copy costs less than a system call of its own.
const DIRECT_MIN: usize = 1024;
/// Payload of this size makes us expect more such: little is read ahead behind it, because that would have to be copied.
const LARGE: usize = 16 << 10;
/// What is read ahead then: trailer and header of the next FPDU, and a little more.
const BEHIND_LARGE: usize = 128;
/// Bytes at the end of payload that are put in place last.
const LAST: usize = 8;
/// Bytes that one turn receives before others get theirs.
const TURN_BYTES: usize = 2 << 20;

/// Bits of a segment's first byte: tagged, and last of its message (RFC 5041 section 4.1).
const TAGGED: u8 = 0x80;
const LAST_SEGMENT: u8 = 0x40;

/// The receiving side of a connection.
pub(super) struct Incoming {
    ahead: Ahead,
    /// Bytes of the FPDU under way that have not been consumed.
    left: usize,
    takes: Takes,
    /// Immediate data of the send that follows.
    imm: Option<u32>,
    /// Bytes of the RDMA Write that just ended, or is under way.
    written: u64,
    writing: bool,
    /// Bytes that are to be in the buffer at most.
    limit: usize,
    /// The socket had nothing more.
    dry: bool,
    /// Bytes of this turn.
    turn: usize,
    starving: bool,
    patience: Option<Span>,
    deadline: Option<Time>,
    ord: u16,
    /// The first FPDU may be a Send that takes no receive.
    greeting: bool,
    /// Whether an FPDU has come at all.
    heard: bool,
    /// Short answers that wait to be sent, and others.
    owes: Owes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owes {
    Nothing,
    Little,
    Much,
}

/// What a step came to.
enum Step {
    More,
    /// More bytes are needed.
    Dry,
    /// The next message needs a receive.
    Starving,
}

impl Incoming {
    /// `rnr_retry` pauses are granted to a message without a receive, 7 means that it may wait for ever.
    pub(super) fn new(rnr_retry: u8, ord: u16, greeting: bool) -> Self {
        Self {
            ahead: Ahead::new(),
            left: 0,
            takes: Takes::Buffer,
            imm: None,
            written: 0,
            writing: false,
            limit: usize::MAX,
            dry: false,
            turn: 0,
            starving: false,
            patience: (rnr_retry < 7).then(|| RNR_PAUSE * rnr_retry.into()),
            deadline: None,
            ord,
            greeting,
            heard: false,
            owes: Owes::Nothing,
        }
    }

    /// Bytes that came with the handshake belong to the stream.
    pub(super) fn with_bytes(mut self, bytes: &[u8]) -> Self {
        let space = self.ahead.space_up_to(bytes.len());
        let n = space.len().min(bytes.len());
        space[..n].copy_from_slice(&bytes[..n]);
        self.ahead.fill(n);
        self
    }

    pub(super) fn is_starving(&self) -> bool {
        self.starving
    }

    /// Whether the peer has said anything.
    pub(super) fn has_heard(&self) -> bool {
        self.heard
    }

    pub(super) fn ord(&self) -> u16 {
        self.ord
    }

    /// Whether no more than short answers wait to be sent.
    pub(super) fn owes_little(&self) -> bool {
        self.owes <= Owes::Little
    }

    /// Whether no answer waits to be sent.
    pub(super) fn owes_none(&self) -> bool {
        self.owes == Owes::Nothing
    }

    pub(super) fn owes_nothing(&mut self) {
        self.owes = Owes::Nothing;
    }

    /// What the FPDU that begins takes, and how long it is; `None` if too little of it is there to tell.
    fn look(&self) -> Option<(usize, Option<Takes>)> {
        let bytes = self.ahead.filled();
        let &[high, low, ddp, rdmap] = bytes.first_chunk()?;
        let ulpdu_len = usize::from(u16::from_be_bytes([high, low]));
        let len = (LENGTH_LEN + ulpdu_len).next_multiple_of(4) + 4;
        let opcode = match Opcode::parse(rdmap) {
            Some(opcode) if opcode.queue() == Some(QUEUE_SEND) && ddp & TAGGED == 0 => opcode,
            _ => return Some((len, None)),
        };
        let immediate = matches!(opcode, Opcode::Immediate | Opcode::ImmediateSolicited);
        let wanted = LENGTH_LEN + UNTAGGED_LEN + if immediate { IMMEDIATE_LEN } else { 0 };
        if len < wanted {
            // The machine has something to say about it.
            return Some((len, None));
        }
        let bytes = bytes.get(..wanted)?;
        let word = |at: usize| bytes.get(at..at + 4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
        let (queue, offset) = (word(LENGTH_LEN + 6), word(LENGTH_LEN + 14));
        let takes = match (queue, offset) {
            (Some(QUEUE_SEND), Some(0)) if immediate => {
                let joined = word(LENGTH_LEN + UNTAGGED_LEN + 4) == Some(JOINED);
                Some(if joined { Takes::Nothing } else { Takes::Completion })
            }
            (Some(QUEUE_SEND), Some(0)) if self.greeting && ulpdu_len == UNTAGGED_LEN => Some(Takes::Nothing),
            (Some(QUEUE_SEND), Some(0)) => Some(Takes::Buffer),
            _ => None,
        };
        Some((len, takes))
    }

    /// The FPDU that was looked at is let in.
    fn admit(&mut self, len: usize, takes: Option<Takes>) {
        let bytes = self.ahead.filled();
        if let Some(&[high, low, ddp, rdmap]) = bytes.first_chunk() {
            // The length of a write is told by the immediate data behind it, so it is counted.
            let write = ddp & TAGGED != 0 && Opcode::parse(rdmap) == Some(Opcode::Write);
            let immediate = takes == Some(Takes::Completion);
            if write {
                let ulpdu_len = usize::from(u16::from_be_bytes([high, low]));
                let before = if self.writing { self.written } else { 0 };
                self.written = before + ulpdu_len.saturating_sub(TAGGED_LEN) as u64;
                self.writing = ddp & LAST_SEGMENT == 0;
            } else if !immediate && ddp & TAGGED == 0 {
                (self.written, self.writing) = (0, false);
            }
        }
        self.left = len;
        self.takes = takes.unwrap_or(self.takes);
        self.greeting = false;
        self.heard = true;
    }
}

impl Stream {
    /// Receives what has come; whether anything has. Writes among it wake who sleeps on the queue of receives: RDMAP carries no
    /// wish for that, so all do.
    pub(super) fn receive(&mut self, qp: &Arc<QpInner>) -> Result<bool, End> {
        let result = self.receive_turn(qp);
        if std::mem::take(&mut self.wrote) {
            qp.recv_cq.ring();
        }
        result
    }

    fn receive_turn(&mut self, qp: &Arc<QpInner>) -> Result<bool, End> {
        let Some(link) = &mut self.link else { return Ok(false) };
        (link.incoming.dry, link.incoming.turn) = (false, 0);
        // Between FPDUs the machine need not be asked what it wants.
        if link.incoming.left == 0 && link.incoming.ahead.filled().is_empty() && !self.fill()? {
            return Ok(false);
        }
        loop {
            match self.step(qp)? {
                Step::More => {}
                Step::Starving => break,
                Step::Dry => {
                    if !self.fill()? {
                        break;
                    }
                }
            }
        }
        let Some(Link { incoming, .. }) = self.link.as_deref_mut() else { return Ok(false) };
        if incoming.left == 0 {
            incoming.ahead.shrink(&qp.device.staging);
        }
        Ok(incoming.turn > 0)
    }

    /// Does the next thing that the machine wants.
    fn step(&mut self, qp: &Arc<QpInner>) -> Result<Step, End> {
        let Some(link) = &mut self.link else { return Ok(Step::Starving) };
        let takes = link.incoming.takes;
        let receive = self.has_receive.then_some(&self.receive);
        let mut rights = Rights { qp, receive, takes, fault: None };
        let next = link.connection.poll_receive(&mut rights);
        match rights.fault {
            Some(Fault::Receive) => return Err(End::BadReceive),
            Some(Fault::Sink(number)) => return Err(self.cannot_fetch(qp, number)),
            None => {}
        }
        match next.map_err(End::Violation)? {
            Next::Check(wanted) => Ok(self.show(qp, wanted)),
            Next::Bytes(n) => {
                if link.incoming.left == 0
                    && let Some(step) = self.begin_fpdu(qp)
                {
                    return Ok(step);
                }
                Ok(self.feed(n))
            }
            Next::Place(piece) => self.place(qp, &piece),
            Next::Event(event) => self.on_delivery(qp, event).map(|()| Step::More),
            Next::Closed => Err(End::Closed),
        }
    }

    /// Shows the machine what there is of the next FPDU; `wanted` bytes of it are needed.
    fn show(&mut self, qp: &QpInner, wanted: usize) -> Step {
        let Some(Link { incoming, connection, .. }) = self.link.as_deref_mut() else { return Step::Dry };
        connection.check(incoming.ahead.filled());
        if incoming.ahead.filled().len() >= wanted {
            return Step::More;
        }
        incoming.ahead.make_room(wanted, &qp.device.staging);
        // Not much more than this one: the rest would have to be moved to the front.
        incoming.limit = if wanted < LARGE { usize::MAX } else { wanted + BEHIND_LARGE };
        Step::Dry
    }

    /// Gives the machine bytes of headers and trailers.
    fn feed(&mut self, n: usize) -> Step {
        let Some(Link { incoming, connection, .. }) = self.link.as_deref_mut() else { return Step::Dry };
        // Never a part of what it wants: then the end of an FPDU is always known.
        let Some(bytes) = incoming.ahead.filled().get(..n) else { return Step::Dry };
        connection.feed(bytes);
        incoming.ahead.consume(n);
        incoming.left = incoming.left.saturating_sub(n);
        Step::More
    }

    /// Looks at an FPDU before it is let in: a message that needs a receive waits in the socket until there is one. What is
    /// to be done instead of letting it in, if anything.
    fn begin_fpdu(&mut self, qp: &Arc<QpInner>) -> Option<Step> {
        let Some(link) = &mut self.link else { return Some(Step::Starving) };
        let Some((len, takes)) = link.incoming.look() else { return Some(Step::Dry) };
        let needs = matches!(takes, Some(Takes::Buffer | Takes::Completion)) && !self.has_receive;
        if needs {
            self.has_receive = qp.take_receive(&mut self.receive);
            if !self.has_receive && self.starves(qp) {
                return Some(Step::Starving);
            }
            self.starve_no_more(qp);
        }
        self.link.as_mut()?.incoming.admit(len, takes);
        None
    }

    /// There is no receive: says so to those who post some. Whether the message is to wait.
    fn starves(&mut self, qp: &Arc<QpInner>) -> bool {
        let Some(Link { incoming, .. }) = self.link.as_deref_mut() else { return false };
        if !incoming.starving {
            incoming.starving = true;
            qp.starving.store(true, Ordering::Relaxed);
            if let Some(srq) = &qp.srq {
                srq.starving.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(patience) = incoming.patience {
                let deadline = qp.device.host.now() + patience;
                incoming.deadline = Some(deadline);
                qp.device.nic.at(deadline, qp);
            }
        }
        // One who posted before it could see that looks at nothing: its receive is seen here.
        fence(Ordering::SeqCst);
        self.has_receive = qp.take_receive(&mut self.receive);
        let overdue = incoming.deadline.is_some_and(|deadline| qp.device.host.now() >= deadline);
        !self.has_receive && !overdue
    }

    /// Nobody needs to be told of receives any more.
    pub(super) fn starve_no_more(&mut self, qp: &QpInner) {
        let Some(Link { incoming, .. }) = self.link.as_deref_mut() else { return };
        if std::mem::take(&mut incoming.starving) {
            incoming.deadline = None;
            qp.starving.store(false, Ordering::Relaxed);
            if let Some(srq) = &qp.srq {
                srq.starving.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Reads ahead; whether anything came.
    fn fill(&mut self) -> Result<bool, End> {
        let Some(Link { incoming, socket, connection, .. }) = self.link.as_deref_mut() else {
            return Ok(false);
        };
        if incoming.dry || incoming.turn >= TURN_BYTES {
            return Ok(false);
        }
        let space = incoming.ahead.space_up_to(incoming.limit);
        let room = space.len();
        match place::read_ahead(socket.as_fd(), space) {
            Ok(0) => Err(eof(connection)),
            Ok(n) => {
                incoming.ahead.fill(n);
                incoming.turn += n;
                incoming.dry = n < room;
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(End::Broken(errno)),
        }
    }

    /// Puts payload where it belongs.
    fn place(&mut self, qp: &Arc<QpInner>, piece: &Piece) -> Result<Step, End> {
        if let Some(step) = self.place_small(qp, piece) {
            return Ok(step);
        }
        let pieces = self.target(qp, piece)?;
        self.wrote |= matches!(piece.target, Target::Write { .. });
        let Some(Link { incoming, socket, connection, .. }) = self.link.as_deref_mut() else {
            return Ok(Step::Starving);
        };
        let have = incoming.ahead.filled();
        if !have.is_empty() {
            let n = have.len().min(piece.len);
            let pieces = pieces.part(0, n as u64);
            place::copy_in(&have[..n], &pieces);
            connection.placed(n);
            incoming.ahead.consume(n);
            incoming.left = incoming.left.saturating_sub(n);
            return Ok(Step::More);
        }
        let large = piece.len >= LARGE;
        incoming.limit = if large { BEHIND_LARGE } else { usize::MAX };
        // What has a CRC is there as a whole.
        let dry = incoming.dry || incoming.turn >= TURN_BYTES;
        if connection.checks_crc() || piece.len < DIRECT_MIN || dry {
            return Ok(Step::Dry);
        }
        let direct = piece.len - LAST;
        let behind = incoming.ahead.space_up_to(incoming.limit);
        let room = direct + behind.len();
        let n = match place::receive(socket.as_fd(), &pieces.part(0, direct as u64), behind) {
            Ok(0) => return Err(eof(connection)),
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(End::Broken(errno)),
        };
        let placed = n.min(direct);
        connection.placed(placed);
        incoming.left = incoming.left.saturating_sub(placed);
        incoming.ahead.fill(n - placed);
        incoming.turn += n;
        incoming.dry = n < room;
        Ok(Step::More)
    }

    /// The short way for payload that has been read ahead as a whole and goes to one place. On any doubt nothing has happened.
    #[inline]
    fn place_small(&mut self, qp: &QpInner, piece: &Piece) -> Option<Step> {
        let Link { incoming, connection, .. } = self.link.as_deref_mut()?;
        let bytes = incoming.ahead.filled().get(..piece.len)?;
        let len = piece.len as u64;
        let (key, need, to) = match (piece.target, self.receive.sges.as_slice()) {
            (Target::Write { stag, to }, _) => (stag, Access::REMOTE_WRITE, to),
            (Target::Receive { offset: 0, .. }, [only]) if len <= only.length.into() => {
                (only.lkey, Access::LOCAL_WRITE, only.addr)
            }
            _ => return None,
        };
        let at = qp.device.regions.find(key, qp.pd, need, to, len).ok()?;
        place::copy_to(bytes, at);
        self.wrote |= need == Access::REMOTE_WRITE;
        connection.placed(piece.len);
        incoming.ahead.consume(piece.len);
        incoming.left = incoming.left.saturating_sub(piece.len);
        Some(Step::More)
    }

    /// Where payload belongs, if that is still allowed.
    fn target(&mut self, qp: &Arc<QpInner>, piece: &Piece) -> Result<Pieces, End> {
        let len = piece.len as u64;
        match piece.target {
            Target::Write { stag, to } => {
                let found = qp.remote(stag, Access::REMOTE_WRITE, to, len);
                found.map_err(|refusal| self.violated(refusal.code()))
            }
            Target::ReadSink { id, offset, .. } => {
                let found = qp.local_of(id >> 1, Access::LOCAL_WRITE, offset.into(), len);
                found.ok_or_else(|| self.cannot_fetch(qp, id >> 1))
            }
            Target::Receive { offset, .. } => {
                let sges = self.receive.sges.as_slice();
                qp.local(sges, Access::LOCAL_WRITE, offset.into(), len).ok_or(End::BadReceive)
            }
        }
    }

    /// Something has been delivered.
    fn on_delivery(&mut self, qp: &Arc<QpInner>, event: Event) -> Result<(), End> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let incoming = &mut link.incoming;
        match event {
            Event::Ready => self.ready(qp),
            Event::Received(received) => return self.on_message(qp, &received),
            Event::ReadRequest(request) if request.len == 0 => {
                incoming.owes = incoming.owes.max(Owes::Little)
            }
            Event::ReadRequest(_) | Event::AtomicRequest(_) => incoming.owes = Owes::Much,
            Event::ReadDone { id } => self.answered(qp, id),
            Event::AtomicDone { id, original } => {
                let found = qp.local_of(id >> 1, Access::LOCAL_WRITE, 0, 8);
                let pieces = found.ok_or_else(|| self.cannot_fetch(qp, id >> 1))?;
                place::copy_in(&original.to_ne_bytes(), &pieces);
                self.answered(qp, id);
            }
            Event::RtrDone => link.outgoing.answered(),
            Event::Terminated(terminate) => return Err(End::Terminated(terminate)),
        }
        Ok(())
    }

    fn on_message(&mut self, qp: &Arc<QpInner>, received: &Received) -> Result<(), End> {
        let Some(Link { incoming, .. }) = self.link.as_deref_mut() else { return Ok(()) };
        let mut wc = Wc::default();
        match received.kind {
            ReceivedKind::Immediate([a, b, c, d, ..]) => {
                let imm = Some(u32::from_be_bytes([a, b, c, d]));
                if incoming.takes == Takes::Nothing {
                    incoming.imm = imm;
                    return Ok(());
                }
                wc.opcode = WcOpcode::RecvWriteImm;
                wc.imm = imm;
                wc.byte_len = u32::try_from(std::mem::take(&mut incoming.written)).unwrap_or(u32::MAX);
            }
            ReceivedKind::Send { len, invalidate } => {
                (wc.opcode, wc.byte_len, wc.invalidated) = (WcOpcode::Recv, len, invalidate);
                wc.imm = incoming.imm.take();
                if let Some(key) = invalidate
                    && !qp.device.regions.invalidate(key, qp.pd)
                {
                    // It was there when the message began.
                    return Err(self.violated(TerminateCode::CANNOT_INVALIDATE));
                }
            }
        }
        if std::mem::take(&mut self.has_receive) {
            wc.wr_id = self.receive.wr_id;
            qp.complete_receive(wc, received.solicited);
        }
        Ok(())
    }

    /// The memory that a request fetches into does not allow it. The peer has answered, so what stood before has arrived.
    fn cannot_fetch(&mut self, qp: &Arc<QpInner>, number: u64) -> End {
        self.arrived(qp, number);
        End::Local(number, WcStatus::LocProtErr)
    }

    /// The peer's access is not allowed any more in the middle of a message.
    fn violated(&mut self, code: TerminateCode) -> End {
        if let Some(link) = &mut self.link {
            link.connection.abort(code);
        }
        End::Violation(Failure { terminate: Terminate::new(code) })
    }
}

/// The peer has closed its side.
fn eof(connection: &mut iwarp::Connection) -> End {
    // In the middle of a message or not: it is gone, and what it had not finished is not delivered.
    let _ = connection.handle_eof();
    End::Closed
}
