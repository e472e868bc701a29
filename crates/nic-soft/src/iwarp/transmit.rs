//! Data path: sending. From requests to FPDUs, and as many of them as there are into one system call.
//!
//! A write or a send is complete when the peer has taken it in, and RDMAP has no acknowledgement. It has reads of no bytes:
//! the peer answers one in order, when everything before it has been placed or delivered. So behind a batch of requests goes
//! such a *question*; its answer completes all that stood before it. One question is open at a time, or two in long batches.
//! While one is open, a few small requests are held back to go out together: the answer, the next poll, or enough of them
//! sends them.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use iwarp::outcome::Open;
use iwarp::rdmap::{AtomicRequest, ReadRequest};
use iwarp::terminate::TerminateCode;
use iwarp::tx::{Fpdu, Op, OpKind, Origin, Payload, PostError, Transmit};
use rustix::io::Errno;
use verbs::{Access, SendOp, WcStatus};

use super::messages::{check_local, messages};
use super::outbox::{Item, Outbox, SMALL_MAX};
use super::outcome::{deed, fetches, sends};
use super::place::{self, Gather};
use super::qp::QpInner;
use super::queue::Request;
use super::stream::{End, Stream};
use crate::pieces::Pieces;

/// Requests that may be held back while a question is open, and their bytes.
const HELD_REQUESTS: u64 = 16;
const HELD_BYTES: u64 = 32 << 10;
/// Requests, or bytes, after which a question is asked although there is more to send.
const ASK_REQUESTS: u64 = 16;
const ASK_BYTES: u64 = 256 << 10;
/// Bytes that one turn sends before others get theirs.
const TURN_BYTES: usize = 4 << 20;

/// Names a question: this bit, and the number of requests that its answer tells of.
const QUESTION: u64 = 1 << 63;
/// Names the first message of an initiator of revision 1, which only lets the peer speak.
const GREETING: u64 = 1 << 62;

/// Second word of immediate data that belongs to the send behind it; 0 where it stands for itself.
pub(super) const JOINED: u32 = 1;

/// The sending side of a connection.
pub(super) struct Outgoing {
    outbox: Outbox,
    /// The next request to be made into messages.
    pub(super) next: u64,
    /// Requests whose last byte TCP has taken.
    sent: u64,
    /// Requests that an open question or read will tell of.
    covered: u64,
    /// Bytes since the last question.
    bytes: u64,
    /// A request since the last question is to be told of.
    expected: bool,
    questions: u32,
    /// Whether questions are asked at all.
    asks: bool,
    /// Operations that the machine holds: an earlier read must be answered first, or the peer speak.
    held: u32,
    /// Reads, atomics and questions that are open, in order, and the number of the first one's message.
    requests: VecDeque<u64>,
    first_open_request: u32,
    /// The number of the first message on the queue of sends that belongs to a request which is not over.
    first_open_send: u32,
    /// Messages of requests that are over, as receipts count them.
    over: u32,
    /// A request that failed here; it is told of when those before it are over.
    failed: Option<(u64, WcStatus)>,
    blocked: bool,
}

/// What sending once came to.
enum Sent {
    All,
    Part,
}

impl Outgoing {
    pub(super) fn new(asks: bool, ord: u16, first_send: u32) -> Self {
        Self {
            outbox: Outbox::new(),
            next: 0,
            sent: 0,
            covered: 0,
            bytes: 0,
            expected: false,
            questions: 0,
            asks,
            held: 0,
            requests: VecDeque::with_capacity(ord.into()),
            first_open_request: 1,
            first_open_send: first_send,
            over: 0,
            failed: None,
            blocked: false,
        }
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether it is time to ask, although nothing is sent.
    pub(super) fn wants_to_ask_idly(&self) -> bool {
        self.wants_to_ask(false, false)
    }

    /// Whether nothing of this side's own waits.
    pub(super) fn is_quiet(&self, qp: &QpInner) -> bool {
        !self.blocked && self.outbox.is_empty() && self.held == 0 && self.next == qp.send.lock().posted()
    }

    /// Whether what was just posted is to wait for company.
    pub(super) fn holds_back(&self, qp: &QpInner) -> bool {
        if self.questions == 0 || self.failed.is_some() {
            return false;
        }
        let queue = qp.send.lock();
        let waiting = queue.posted() - self.next;
        waiting < HELD_REQUESTS
            && (self.next..queue.posted()).map(|n| u64::from(queue.get(n).len)).sum::<u64>() < HELD_BYTES
    }

    /// Requests that have begun and are not over, as the peer knows them.
    pub(super) fn open(&self, qp: &QpInner, from: u64) -> Vec<Open> {
        let queue = qp.send.lock();
        let mut first = self.first_open_send;
        let open = (from..self.next).map(|number| {
            let &Request { op, len, .. } = queue.get(number);
            let place = self.requests.iter().position(|&id| id == number);
            let request = place.map(|place| self.first_open_request.wrapping_add(place as u32));
            let sends = (first, sends(&op));
            first = first.wrapping_add(sends.1);
            Open { number, deed: deed(&op), len, sends, request }
        });
        open.collect()
    }

    /// The first open request is over.
    pub(super) fn finish(&mut self, op: &SendOp, len: u32) {
        let sends = sends(op);
        self.first_open_send = self.first_open_send.wrapping_add(sends);
        let other = !matches!(op, SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_)) && len > 0;
        self.over = self.over.wrapping_add(sends + u32::from(other));
    }

    /// How many of these open requests have arrived, by what the peer said before it ended the stream.
    pub(super) fn arrived(&self, receipt: Option<u32>, open: &[Open]) -> usize {
        iwarp::outcome::arrived(receipt, self.over, open)
    }

    /// The first open read, atomic or question has been answered.
    pub(super) fn answered(&mut self) {
        self.requests.pop_front();
        self.first_open_request = self.first_open_request.wrapping_add(1);
    }
}

impl Stream {
    /// Sends what can be sent.
    pub(super) fn transmit(&mut self, qp: &Arc<QpInner>) -> Result<(), End> {
        let mut turn = 0;
        loop {
            let full = self.prepare(qp)?;
            let Some(link) = &mut self.link else { return Ok(()) };
            link.incoming.owes_nothing();
            if link.outgoing.outbox.is_empty() {
                link.outgoing.blocked = false;
                break;
            }
            match self.send(qp, &mut turn)? {
                Sent::All if full && turn < TURN_BYTES => {}
                // That was all, or whoever has the next turn goes on.
                _ => break,
            }
        }
        self.complete_sent(qp);
        match self.link.as_ref().and_then(|link| link.outgoing.failed) {
            Some((number, status)) if number == self.done => Err(End::Local(number, status)),
            _ => Ok(()),
        }
    }

    /// Fills the outbox; whether it has no room for what there may be yet.
    fn prepare(&mut self, qp: &Arc<QpInner>) -> Result<bool, End> {
        loop {
            let Some(link) = &mut self.link else { return Ok(false) };
            if !link.outgoing.outbox.has_room() {
                return Ok(true);
            }
            let idle = link.connection.is_idle();
            match if idle { None } else { link.connection.poll_transmit() } {
                Some(Transmit::Fpdu(fpdu)) => self.pack(qp, &fpdu)?,
                Some(Transmit::Atomic(request)) => self.carry_out(qp, &request)?,
                None if self.post_next(qp) => {}
                None => return Ok(false),
            }
        }
    }

    /// Puts an FPDU into the outbox.
    fn pack(&mut self, qp: &QpInner, fpdu: &Fpdu) -> Result<(), End> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let outgoing = &mut link.outgoing;
        let mut upto = None;
        if let Origin::Op(id) = fpdu.origin {
            if fpdu.expects.is_some() {
                outgoing.requests.push_back(if id & QUESTION == 0 { id >> 1 } else { id });
            }
            if fpdu.last {
                outgoing.held -= 1;
                upto = (id & (QUESTION | GREETING) == 0 && id & 1 == 1).then_some((id >> 1) + 1);
            }
        } else if fpdu.expects.is_some() {
            outgoing.requests.push_back(QUESTION);
        }
        let packed = match fpdu.payload.len() {
            0..=SMALL_MAX => outgoing.outbox.append(upto, |to| write_out(qp, fpdu, to)),
            _ => outgoing.pack_large(qp, fpdu, upto),
        };
        packed.map_err(|gone| end_of(&mut link.connection, gone))
    }

    /// An atomic of the peer, when the answers before it are under way.
    fn carry_out(&mut self, qp: &QpInner, request: &AtomicRequest) -> Result<(), End> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let at = qp.device.regions.find(request.stag, qp.pd, Access::REMOTE_ATOMIC, request.to, 8);
        let Some(original) = at.ok().and_then(|at| place::atomic(at, request.op)) else {
            return Err(end_of(&mut link.connection, TerminateCode::STAG_INVALID.into()));
        };
        match link.connection.atomic_done(original) {
            Some(fpdu) => self.pack(qp, &fpdu),
            None => Ok(()),
        }
    }

    /// Gives the machine what comes next; whether there was something.
    fn post_next(&mut self, qp: &QpInner) -> bool {
        let Some(link) = &mut self.link else { return false };
        let watched = link.is_watched();
        let outgoing = &mut link.outgoing;
        if outgoing.held > 0 {
            return false;
        }
        let queue = qp.send.lock();
        let more = outgoing.next < queue.posted() && outgoing.failed.is_none();
        // What may wait for a receive must not keep the peer from telling of what stands before it.
        let must = outgoing.asks && outgoing.expected && more && sends(&queue.get(outgoing.next).op) > 0;
        let may = link.connection.outstanding() < link.incoming.ord();
        if may && (must || outgoing.wants_to_ask(more, !watched)) {
            drop(queue);
            return self.ask();
        }
        if must || !more {
            return false;
        }
        let (number, request) = (outgoing.next, *queue.get(outgoing.next));
        drop(queue);
        self.begin_short(qp, number, &request) || self.begin_request(qp, number, &request)
    }

    fn ask(&mut self) -> bool {
        let Some(link) = &mut self.link else { return false };
        let outgoing = &mut link.outgoing;
        let nothing = ReadRequest { sink_stag: 1, sink_to: 0, len: 0, source_stag: 1, source_to: 0 };
        let op = Op { id: QUESTION | outgoing.next, kind: OpKind::Read(nothing), fence: false };
        if link.connection.post(op).is_err() {
            // The stream ends; what nobody could ask about is flushed with it.
            return false;
        }
        (outgoing.covered, outgoing.bytes, outgoing.expected) = (outgoing.next, 0, false);
        outgoing.questions += 1;
        outgoing.held += 1;
        true
    }

    /// Lets a responder of revision 1 speak.
    pub(super) fn greet(&mut self) {
        let Some(link) = &mut self.link else { return };
        let op = Op { id: GREETING, kind: OpKind::Write { stag: 1, to: 0, len: 0 }, fence: false };
        if link.connection.post(op).is_ok() {
            link.outgoing.held += 1;
        }
    }

    fn begin_request(&mut self, qp: &QpInner, number: u64, request: &Request) -> bool {
        let Some(link) = &mut self.link else { return false };
        let outgoing = &mut link.outgoing;
        let verdict = check_local(qp, number, request).and_then(|()| {
            messages(number, request).into_iter().flatten().try_for_each(|op| {
                link.connection.post(op).map_err(|error| match error {
                    PostError::Unaligned => WcStatus::RemInvReqErr,
                    PostError::Wraps => WcStatus::RemAccessErr,
                    _ => WcStatus::LocQpOpErr,
                })?;
                outgoing.held += 1;
                Ok(())
            })
        });
        match verdict {
            Ok(()) => outgoing.begun(qp, number, request),
            Err(status) => outgoing.fail(number, status),
        }
        true
    }

    /// Sends the outbox, or what of it fits.
    fn send(&mut self, qp: &QpInner, turn: &mut usize) -> Result<Sent, End> {
        let Some(link) = &mut self.link else { return Ok(Sent::Part) };
        let outgoing = &mut link.outgoing;
        let (total, sent) = match outgoing.outbox.only_run() {
            Some(run) => (run.len(), place::send_run(link.socket.as_fd(), run)),
            None => {
                let mut gather = Gather::new();
                if let Err(gone) = outgoing.gather(qp, &mut gather) {
                    if outgoing.outbox.sent() > 0 {
                        return Err(End::Broken(Errno::FAULT));
                    }
                    outgoing.outbox.clear();
                    return Err(end_of(&mut link.connection, gone));
                }
                (gather.total(), place::send(link.socket.as_fd(), &mut gather))
            }
        };
        let n = match sent {
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(End::Broken(errno)),
        };
        if let Some(upto) = outgoing.outbox.advance(n, &qp.device.staging) {
            outgoing.sent = upto;
        }
        *turn += n;
        outgoing.blocked = n < total || *turn >= TURN_BYTES;
        Ok(if n == total { Sent::All } else { Sent::Part })
    }

    /// Where nobody is asked, requests are over when TCP has them.
    fn complete_sent(&mut self, qp: &Arc<QpInner>) {
        let Some(link) = &self.link else { return };
        if link.outgoing.asks {
            return;
        }
        let sent = link.outgoing.sent;
        while self.done < sent && !fetches(&qp.send.lock().get(self.done).op) {
            self.finish_first(qp, WcStatus::Success);
        }
    }

    /// An answer has come to the read, atomic or question of this name.
    pub(super) fn answered(&mut self, qp: &Arc<QpInner>, id: u64) {
        let Some(link) = &mut self.link else { return };
        link.outgoing.answered();
        if id & QUESTION != 0 {
            link.outgoing.questions -= 1;
            self.arrived(qp, id & !QUESTION);
        } else {
            self.arrived(qp, (id >> 1) + 1);
        }
        self.complete_sent(qp);
    }

    /// What still goes out when the connection ends: answers, and the Terminate if there is one. Returns what the socket did
    /// not take at once; payload that has not begun is left out.
    pub(super) fn last_words(&mut self, qp: &QpInner, code: Option<TerminateCode>) -> Vec<u8> {
        self.drain_machine(qp);
        if let (Some(code), Some(link)) = (code, &mut self.link) {
            link.connection.abort(code);
            self.drain_machine(qp);
        }
        let mut turn = 0;
        // What cannot be sent any more need not be.
        let _ = self.send(qp, &mut turn);
        let Some(link) = &self.link else { return Vec::new() };
        let outbox = &link.outgoing.outbox;
        let mut rest = Vec::new();
        for (place, item) in outbox.items().enumerate() {
            let begun = if place == 0 { outbox.sent() } else { 0 };
            match item {
                Item::Run { from, to } => rest.extend_from_slice(&outbox.run(*from, *to)[begun..]),
                Item::Large { .. } if begun == 0 => {}
                Item::Large { fpdu, trailer, staged } => {
                    let mut bytes = fpdu.header().to_vec();
                    let at = bytes.len();
                    bytes.resize(at + fpdu.payload.len(), 0);
                    match (staged, payload(qp, fpdu)) {
                        (Some(from), _) => {
                            let len = bytes.len() - at;
                            bytes[at..].copy_from_slice(outbox.staged(*from, len));
                        }
                        (None, Ok(pieces)) => place::copy_out(&pieces, &mut bytes[at..]),
                        // The FPDU cannot be finished, so nothing can follow it.
                        (None, Err(_)) => return Vec::new(),
                    }
                    bytes.extend_from_slice(trailer);
                    rest.extend_from_slice(&bytes[begun..]);
                }
            }
        }
        rest
    }

    /// Takes out of the machine what it has, as far as there is room, without anything new.
    fn drain_machine(&mut self, qp: &QpInner) {
        while let Some(link) = &mut self.link
            && link.outgoing.outbox.has_room()
            && let Some(transmit) = link.connection.poll_transmit()
        {
            // What fails now changes nothing: the connection ends already.
            let _ = match transmit {
                Transmit::Fpdu(fpdu) => self.pack(qp, &fpdu),
                Transmit::Atomic(request) => self.carry_out(qp, &request),
            };
        }
    }
}

impl Outgoing {
    /// A request is with the machine, or written out.
    pub(super) fn begun(&mut self, qp: &QpInner, number: u64, request: &Request) {
        self.next = number + 1;
        self.bytes += u64::from(request.len);
        self.expected |= qp.signals(request.flags);
        if fetches(&request.op) {
            (self.covered, self.bytes, self.expected) = (number + 1, 0, false);
        }
    }

    /// A request cannot be carried out.
    pub(super) fn fail(&mut self, number: u64, status: WcStatus) {
        self.failed = Some((number, status));
    }

    /// Writes a request out that is whole with that.
    pub(super) fn append_short<E>(
        &mut self,
        number: u64,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.outbox.append(Some(number + 1), write)
    }

    /// An FPDU whose payload is gathered, or copied aside for its CRC.
    fn pack_large(&mut self, qp: &QpInner, fpdu: &Fpdu, upto: Option<u64>) -> Result<(), Gone> {
        let (mut seal, mut staged) = (fpdu.seal(), None);
        if seal.wants_payload() {
            let pieces = payload(qp, fpdu)?;
            let (at, copy) = self.outbox.stage(fpdu.payload.len(), &qp.device.staging);
            seal.go_on(fpdu.payload.len(), |crc| place::copy_out_crc(&pieces, copy, crc));
            staged = Some(at);
        }
        if let Ok(trailer) = seal.finish() {
            self.outbox.push(*fpdu, trailer, staged, upto);
        }
        Ok(())
    }

    /// Gathers what waits, as far as it fits one write. Fails if already the first payload is gone; what stands before one
    /// that is gone goes out first.
    fn gather(&self, qp: &QpInner, gather: &mut Gather) -> Result<(), Gone> {
        let mut skip = self.outbox.sent();
        for (place, item) in self.outbox.items().enumerate() {
            if gather.is_full() {
                break;
            }
            if let Err(gone) = put(qp, &self.outbox, item, gather, &mut skip) {
                return if place > 0 { Ok(()) } else { Err(gone) };
            }
        }
        Ok(())
    }

    /// Whether a question is due; `more` requests wait to be sent. Without a hurry, one that nobody waits for is left to
    /// those who come later.
    fn wants_to_ask(&self, more: bool, hurry: bool) -> bool {
        if !self.asks || self.next == self.covered {
            return false;
        }
        let much = self.next - self.covered >= ASK_REQUESTS || self.bytes >= ASK_BYTES;
        match self.questions {
            0 => much || !more && (self.expected || hurry),
            1 => much,
            _ => false,
        }
    }
}

/// Memory that is gone: a peer's source, or a local piece.
enum Gone {
    Source(TerminateCode),
    Local(u64),
}

impl From<TerminateCode> for Gone {
    fn from(code: TerminateCode) -> Self {
        Self::Source(code)
    }
}

/// The end that follows from memory that is gone.
fn end_of(connection: &mut iwarp::Connection, gone: Gone) -> End {
    match gone {
        Gone::Local(number) => End::Local(number, WcStatus::LocProtErr),
        Gone::Source(code) => {
            debug_assert!(code.is_protection());
            connection.abort(code);
            End::Violation(iwarp::rx::Failure { terminate: iwarp::terminate::Terminate::new(code) })
        }
    }
}

/// Where an FPDU's payload is.
fn payload(qp: &QpInner, fpdu: &Fpdu) -> Result<Pieces, Gone> {
    match fpdu.payload {
        Payload::None => Ok(Pieces::new()),
        Payload::Op { id, offset, len } => {
            qp.local_of(id >> 1, Access::empty(), offset.into(), len.into()).ok_or(Gone::Local(id >> 1))
        }
        Payload::Source { stag, to, len } => {
            qp.remote(stag, Access::REMOTE_READ, to, len.into()).map_err(|refusal| refusal.code().into())
        }
    }
}

/// Writes a small FPDU out.
fn write_out(qp: &QpInner, fpdu: &Fpdu, to: &mut Vec<u8>) -> Result<(), Gone> {
    to.extend_from_slice(fpdu.header());
    let at = to.len();
    match fpdu.payload {
        Payload::None => {}
        Payload::Op { id, offset, len } => {
            qp.append_local(id >> 1, offset, len, to).ok_or(Gone::Local(id >> 1))?;
        }
        Payload::Source { stag, to: from, len } => {
            let found = qp.device.regions.find(stag, qp.pd, Access::REMOTE_READ, from, len.into());
            place::append(found.map_err(|refusal| refusal.code())?, len as usize, to);
        }
    }
    let mut seal = fpdu.seal();
    seal.update(&to[at..]);
    if let Ok(trailer) = seal.finish() {
        to.extend_from_slice(&trailer);
    }
    Ok(())
}

/// Adds what is left of an item to a gathered write.
fn put(
    qp: &QpInner,
    outbox: &Outbox,
    item: &Item,
    gather: &mut Gather,
    skip: &mut usize,
) -> Result<(), Gone> {
    match item {
        Item::Run { from, to } => gather.push_bytes(outbox.run(*from, *to), skip),
        Item::Large { fpdu, trailer, staged: Some(at) } => {
            gather.push_bytes(fpdu.header(), skip);
            gather.push_bytes(outbox.staged(*at, fpdu.payload.len()), skip);
            gather.push_bytes(trailer, skip);
        }
        Item::Large { fpdu, trailer, staged: None } => {
            let pieces = payload(qp, fpdu)?;
            gather.push_bytes(fpdu.header(), skip);
            gather.push_pieces(&pieces, skip);
            gather.push_bytes(trailer, skip);
        }
    }
    Ok(())
}
