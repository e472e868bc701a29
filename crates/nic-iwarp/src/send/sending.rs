//! Data path: sending. From requests to FPDUs, and as many of them as there are into one system call.
//!
//! While a question is open (see `flush_markers`), a few small requests are held back to go out together: the answer, the next
//! poll, or enough of them sends them.

use std::time::Duration;

use iwarp::Connection;
use iwarp::outcome::{Open, blamed};
use iwarp::rdmap::AtomicRequest;
use iwarp::rx::Failure;
use iwarp::terminate::{Terminate, TerminateCode};
use iwarp::tx::{Fpdu, Op, OpKind, Origin, Payload, PostError, Transmit};
use rustix::io::Errno;
use verbs::{Access, SendFlags, SendOp, WcStatus};

use crate::connection::context::QpContext;
use crate::connection::end::End;
use crate::memory::place::{self, Gather};
use crate::queues::messages::{check_local, is_last, messages, request_of};
use crate::queues::outcome;
use crate::queues::per_qp::Queues;
use crate::queues::request_ring::{Request, SendQueue};
use crate::send::flush_markers::{Questions, announcement, greeting, request_behind};
use crate::tcp::outbox::{Item, Outbox, SMALL_MAX};
use nic_util::sg_list::{SgList, is_present};

/// Requests that may be held back while a question is open, and their bytes.
const HELD_REQUESTS: u64 = 16;
const HELD_BYTES: u64 = 32 << 10;
/// Bytes that one turn sends before others get theirs.
const TURN_BYTES: usize = 4 << 20;

/// Answers to the peer that wait to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owes {
    Nothing,
    /// Short ones, which can wait for company.
    Little,
    Much,
}

/// The sending half of a connection.
pub(crate) struct Sending {
    outbox: Outbox,
    questions: Questions,
    /// Requests whose last byte TCP has taken.
    sent: u64,
    /// Reads and atomics that may be open at once.
    ord: u16,
    /// Operations that the machine holds: an earlier read must be answered first, or the peer speak.
    held: u32,
    /// A request that failed here; it is told of when those before it are over.
    failed: Option<(u64, WcStatus)>,
    blocked: bool,
    owes: Owes,
    /// The stream ends in the middle of an FPDU, so that nothing more can be said.
    is_cut: bool,
    /// A limit of retries that has not been announced to the peer yet.
    rnr_limit: Option<u8>,
}

/// What sending once came to.
enum Sent {
    All,
    Part,
}

/// Why a request did not take the fast path.
enum NotFast {
    /// It is none for that; nothing has happened.
    Unfit,
    /// Its memory has gone.
    Gone,
}

impl Sending {
    /// `asks` says whether the peer is asked what has arrived, `first_send` which number its first send has.
    pub(crate) fn new(asks: bool, ord: u16, first_send: u32) -> Self {
        Self {
            outbox: Outbox::new(),
            questions: Questions::new(asks, ord, first_send),
            sent: 0,
            ord,
            held: 0,
            failed: None,
            blocked: false,
            owes: Owes::Nothing,
            is_cut: false,
            rnr_limit: None,
        }
    }

    /// Whether TCP takes no more at the moment.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// The peer is to be answered; the machine has the answer.
    pub(crate) fn owe(&mut self, what: Owes) {
        self.owes = self.owes.max(what);
    }

    /// Whether there is nothing to be sent, or, where `any`thing has come, nothing that cannot wait for the next poll: short
    /// answers may then travel with a message of the program.
    #[inline]
    pub(crate) fn may_wait(&self, queues: &Queues, any: bool) -> bool {
        let may = if any {
            self.owes <= Owes::Little
        } else {
            self.owes == Owes::Nothing && !self.questions.are_due(false, false)
        };
        may && !self.blocked
            && self.outbox.is_empty()
            && self.held == 0
            && self.questions.next() == queues.sends.lock().posted()
    }

    /// Whether what was just posted is to wait for company.
    #[inline]
    pub(crate) fn holds_back(&self, queues: &Queues) -> bool {
        if !self.questions.is_open() || self.failed.is_some() {
            return false;
        }
        let (queue, next) = (queues.sends.lock(), self.questions.next());
        queue.posted() - next < HELD_REQUESTS
            && (next..queue.posted()).map(|n| u64::from(queue.get(n).len)).sum::<u64>() < HELD_BYTES
    }

    /// Announces a limit of retries to the peer, before the requests that begin from now on.
    pub(crate) fn announce_rnr_limit(&mut self, retries: u8) {
        self.rnr_limit = Some(retries);
    }

    /// Sends what can be sent. With a `hurry` nobody comes back for what is left.
    pub(crate) fn transmit(&mut self, lent: &mut QpContext<'_>, hurry: bool) -> Result<(), End> {
        let mut turn = 0;
        loop {
            let full = self.prepare(lent, hurry)?;
            self.owes = Owes::Nothing;
            if self.outbox.is_empty() {
                self.blocked = false;
                break;
            }
            match self.send(lent, &mut turn)? {
                // Only what precedes payload that is gone may have been gathered. Nothing else starts another turn for the rest.
                Sent::All if (full || !self.outbox.is_empty()) && turn < TURN_BYTES => {}
                // That was all, or whoever has the next turn goes on.
                _ => break,
            }
        }
        self.complete_sent(lent.queues);
        match self.failed {
            Some((number, status)) if number == lent.queues.sends.lock().over() => {
                Err(End::Local(number, status))
            }
            _ => Ok(()),
        }
    }

    /// Fills the outbox; whether it has no room for what there may be yet.
    fn prepare(&mut self, lent: &mut QpContext<'_>, hurry: bool) -> Result<bool, End> {
        loop {
            if !self.outbox.has_room() {
                return Ok(true);
            }
            let idle = lent.machine.is_idle();
            match if idle { None } else { lent.machine.poll_transmit() } {
                Some(transmit) => self.take_out(lent, &transmit)?,
                None if self.begin_next(lent, hurry) => {}
                None => return Ok(false),
            }
        }
    }

    /// Takes over what the machine yields.
    fn take_out(&mut self, lent: &mut QpContext<'_>, transmit: &Transmit) -> Result<(), End> {
        match transmit {
            Transmit::Fpdu(fpdu) => self.pack(lent, fpdu),
            Transmit::Atomic(request) => self.carry_out(lent, request),
        }
    }

    /// Puts an FPDU into the outbox.
    fn pack(&mut self, lent: &mut QpContext<'_>, fpdu: &Fpdu) -> Result<(), End> {
        let mut upto = None;
        if let Origin::Op(id) = fpdu.origin {
            if fpdu.expects.is_some() {
                self.questions.left(id);
            }
            if fpdu.last {
                self.held -= 1;
                upto = request_behind(id).filter(|_| is_last(id)).map(|number| number + 1);
            }
        } else if fpdu.expects.is_some() {
            self.questions.first_left();
        }
        let packed = match fpdu.payload.len() {
            0..=SMALL_MAX => self.outbox.append(upto, |to| write_out(lent.queues, fpdu, to)),
            _ => self.pack_large(lent.queues, fpdu, upto),
        };
        packed.map_err(|gone| end_of(lent.machine, gone))
    }

    /// An FPDU whose payload is gathered, or copied aside for its CRC.
    fn pack_large(&mut self, queues: &Queues, fpdu: &Fpdu, upto: Option<u64>) -> Result<(), Gone> {
        let (mut seal, mut staged) = (fpdu.seal(), None);
        if seal.wants_payload() {
            let list = payload(queues, fpdu)?;
            let (at, copy) = self.outbox.stage(fpdu.payload.len(), &queues.shared.staging);
            let mut is_copied = true;
            seal.go_on(fpdu.payload.len(), |crc| {
                place::copy_out_crc(&list, copy, crc).unwrap_or_else(|_| {
                    is_copied = false;
                    crc
                })
            });
            if !is_copied {
                return Err(gone(fpdu));
            }
            staged = Some(at);
        }
        if let Ok(trailer) = seal.finish() {
            self.outbox.push(*fpdu, trailer, staged, upto);
        }
        Ok(())
    }

    /// An atomic of the peer, when the answers before it are under way.
    fn carry_out(&mut self, lent: &mut QpContext<'_>, request: &AtomicRequest) -> Result<(), End> {
        let at = lent.queues.domain().find(request.stag, Access::REMOTE_ATOMIC, request.to, 8);
        let original = at
            .map_err(|_| TerminateCode::STAG_INVALID)
            .and_then(|at| place::atomic(at, request.op).ok_or(TerminateCode::PROTECTION_UNSPECIFIED));
        let original = original.map_err(|code| end_of(lent.machine, code.into()))?;
        match lent.machine.atomic_done(original) {
            Some(fpdu) => self.pack(lent, &fpdu),
            None => Ok(()),
        }
    }

    /// Gives the machine what comes next, a request or a question; whether there was something.
    fn begin_next(&mut self, lent: &mut QpContext<'_>, hurry: bool) -> bool {
        if self.held > 0 {
            return false;
        }
        if let Some(retries) = self.rnr_limit.take() {
            return self.hand(lent.machine, announcement(retries)).is_ok();
        }
        let (queues, number) = (lent.queues, self.questions.next());
        let queue = queues.sends.lock();
        let more = number < queue.posted() && self.failed.is_none();
        let must = more && self.questions.must_precede(&queue.get(number).op);
        if (must || self.questions.are_due(more, hurry)) && lent.machine.outstanding() < self.ord {
            drop(queue);
            return self.ask(lent.machine);
        }
        if must || !more {
            return false;
        }
        let request = *queue.get(number);
        let verdict = check_local(&queue, queues.domain(), number, &request)
            .and_then(|()| self.begin(lent.machine, queues, &queue, &request));
        match verdict {
            Ok(()) => self.questions.begun(&request, queues.signals(request.flags)),
            Err(status) => self.failed = Some((number, status)),
        }
        true
    }

    /// Begins the next request, whose memory has been checked.
    #[inline]
    fn begin(
        &mut self,
        machine: &mut Connection,
        queues: &Queues,
        queue: &SendQueue,
        request: &Request,
    ) -> Result<(), WcStatus> {
        match self.write_at_once(machine, queues, queue, request) {
            Ok(()) => Ok(()),
            Err(NotFast::Gone) => Err(WcStatus::LocProtErr),
            Err(NotFast::Unfit) => self.post(machine, request),
        }
    }

    /// The fast path of a small write or send that nothing stands before: from the request to its bytes, without an operation
    /// in the machine's queue and an FPDU as a value; a message of 8 bytes takes about half of the instructions.
    #[inline]
    fn write_at_once(
        &mut self,
        machine: &mut Connection,
        queues: &Queues,
        queue: &SendQueue,
        request: &Request,
    ) -> Result<(), NotFast> {
        let (len, number) = (request.len, self.questions.next());
        if len as usize > SMALL_MAX || request.flags.contains(SendFlags::FENCE) {
            return Err(NotFast::Unfit);
        }
        let kind = match request.op {
            SendOp::Write(to) => OpKind::Write { stag: to.rkey, to: to.addr, len },
            SendOp::Send => {
                let solicited = request.flags.contains(SendFlags::SOLICITED);
                OpKind::Send { len, solicited, invalidate: None }
            }
            _ => return Err(NotFast::Unfit),
        };
        self.outbox.append(Some(number + 1), |to| {
            let payload =
                |to: &mut Vec<u8>| queue.append(number, queues.domain(), 0, len, to).ok_or(NotFast::Gone);
            machine.write_at_once(&kind, to, payload).unwrap_or(Err(NotFast::Unfit))
        })
    }

    /// Gives the machine the messages of the next request.
    fn post(&mut self, machine: &mut Connection, request: &Request) -> Result<(), WcStatus> {
        messages(self.questions.next(), request).into_iter().flatten().try_for_each(|op| {
            self.hand(machine, op).map_err(|error| match error {
                PostError::Unaligned => WcStatus::RemInvReqErr,
                PostError::Wraps => WcStatus::RemAccessErr,
                _ => WcStatus::LocQpOpErr,
            })
        })
    }

    fn hand(&mut self, machine: &mut Connection, op: Op) -> Result<(), PostError> {
        machine.post(op)?;
        self.held += 1;
        Ok(())
    }

    fn ask(&mut self, machine: &mut Connection) -> bool {
        // If the stream ends, what nobody could ask about is flushed with it.
        let asked = self.hand(machine, self.questions.question()).is_ok();
        if asked {
            self.questions.ask();
        }
        asked
    }

    /// Lets a responder of revision 1 speak.
    pub(crate) fn greet(&mut self, machine: &mut Connection) {
        // It fails only if the stream ends.
        let _ = self.hand(machine, greeting());
    }

    /// Sends the outbox, or what of it fits.
    fn send(&mut self, lent: &mut QpContext<'_>, turn: &mut usize) -> Result<Sent, End> {
        let (total, sent) = match self.outbox.only_run() {
            Some(run) => (run.len(), place::send_run(lent.socket, run)),
            None => self.send_gathered(lent)?,
        };
        let n = match sent {
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(End::Broken(errno)),
        };
        if let Some(upto) = self.outbox.advance(n, &lent.queues.shared.staging) {
            self.sent = upto;
        }
        if n > 0 {
            lent.queues.stir_sends();
        }
        *turn += n;
        self.blocked = n < total || *turn >= TURN_BYTES;
        Ok(if n == total { Sent::All } else { Sent::Part })
    }

    /// Sends what waits, gathered: how much that was, and how much of it has left.
    fn send_gathered(&mut self, lent: &mut QpContext<'_>) -> Result<(usize, Result<usize, Errno>), End> {
        let mut items = usize::MAX;
        loop {
            let mut gather = Gather::new();
            if let Err(gone) = self.gather(lent.queues, &mut gather, items) {
                return Err(self.end_before_gone(lent, gone));
            }
            match place::send(lent.socket, &mut gather) {
                // Nothing has left. What comes before the payload that cannot be read can still be sent.
                Err(Errno::FAULT) => match self.first_gone(lent.queues) {
                    (0, gone) => return Err(self.end_before_gone(lent, gone)),
                    (place, _) => items = place.min(items.saturating_sub(1)),
                },
                sent => return Ok((gather.total(), sent)),
            }
        }
    }

    /// The first item whose payload cannot be read, by its place: one of those that are gathered from the program's memory.
    #[cold]
    fn first_gone(&self, queues: &Queues) -> (usize, Gone) {
        let mut first = None;
        for (place, item) in self.outbox.items().enumerate() {
            let Item::Large { fpdu, staged: None, .. } = item else { continue };
            // If all of them have come back meanwhile, the first one counts, so that there is an end of it.
            first = first.or(Some((place, fpdu)));
            if !payload(queues, fpdu).is_ok_and(|list| is_present(&list, false)) {
                return (place, gone(fpdu));
            }
        }
        let unknown = Gone::Source(TerminateCode::PROTECTION_UNSPECIFIED);
        first.map_or((0, unknown), |(place, fpdu)| (place, gone(fpdu)))
    }

    /// The payload of the first item is gone. If a part of it has left, the peer gets zeros for the rest, where it takes them for
    /// nothing; else the stream can only be cut.
    #[cold]
    fn end_before_gone(&mut self, lent: &mut QpContext<'_>, gone: Gone) -> End {
        if self.outbox.sent() == 0 {
            self.outbox.clear();
        } else {
            self.outbox.drop_behind_first();
            self.is_cut |= !self.outbox.keep_begun(&lent.queues.shared.staging, |_, _| false);
        }
        end_of(lent.machine, gone)
    }

    /// Gathers what waits, as far as it fits one write, and up to so many items. Fails if already the first payload is gone; what
    /// stands before one that is gone goes out first.
    fn gather(&self, queues: &Queues, gather: &mut Gather, items: usize) -> Result<(), Gone> {
        let mut skip = self.outbox.sent();
        for (place, item) in self.outbox.items().take(items).enumerate() {
            if gather.is_full() {
                break;
            }
            if let Err(gone) = put(queues, &self.outbox, item, gather, &mut skip) {
                return if place > 0 { Ok(()) } else { Err(gone) };
            }
        }
        Ok(())
    }

    /// Where nobody is asked, requests are over when TCP has them; elsewhere those are that want no more, and with them what stands
    /// before and nobody is to be told of.
    #[inline]
    fn complete_sent(&mut self, queues: &Queues) {
        if self.questions.are_asked() && !self.questions.has_locals() {
            return;
        }
        let upto = self.over_when_sent(queues);
        self.arrived(queues, upto);
    }

    /// Up to which request all are over as TCP has them.
    fn over_when_sent(&self, queues: &Queues) -> u64 {
        let (queue, asks) = (queues.sends.lock(), self.questions.are_asked());
        let mut upto = queue.over();
        for number in queue.over()..self.sent {
            let request = queue.get(number);
            let is_over = !asks || request.is_local();
            if request.op.fetches() || !is_over && queues.signals(request.flags) {
                break;
            }
            upto = if is_over { number + 1 } else { upto };
        }
        upto
    }

    /// The message with which the connection began has been answered.
    pub(crate) fn first_answered(&mut self) {
        self.questions.first_answered();
    }

    /// An answer has come to the read, atomic or question of this name.
    pub(crate) fn answered(&mut self, queues: &Queues, id: u64) {
        let upto = self.questions.answered(id);
        self.arrived(queues, upto);
        self.complete_sent(queues);
    }

    /// An atomic of this side has been carried out; `original` is what the word held before.
    pub(crate) fn atomic_answered(&mut self, queues: &Queues, id: u64, original: u64) -> Result<(), End> {
        let number = request_of(id);
        let sink = queues.sends.lock().locate(number, queues.domain(), Access::LOCAL_WRITE, 0, 8);
        let copied = sink.map(|sink| place::copy_in(&original.to_ne_bytes(), &sink));
        if !matches!(copied, Some(Ok(()))) {
            return Err(End::BadSink(number));
        }
        self.answered(queues, id);
        Ok(())
    }

    /// Requests up to this one are known to have arrived.
    fn arrived(&mut self, queues: &Queues, upto: u64) {
        while queues.sends.lock().over() < upto {
            self.finish_first(queues);
        }
    }

    fn finish_first(&mut self, queues: &Queues) {
        let request = queues.finish_send(WcStatus::Success);
        self.questions.finished(&request);
    }

    /// Which request fails by itself because of this end, and how. Those before it that are known to have arrived are
    /// completed; `receipt` is what the peer has said of them.
    pub(crate) fn failing(
        &mut self,
        queues: &Queues,
        end: &End,
        receipt: Option<u32>,
    ) -> Option<(u64, WcStatus)> {
        match end {
            End::Local(number, status) => Some((*number, *status)),
            End::BadSink(number) => {
                self.arrived(queues, *number);
                Some((*number, WcStatus::LocProtErr))
            }
            End::Closed => {
                self.receipted(queues, receipt);
                None
            }
            End::Broken(_) => {
                self.receipted(queues, receipt);
                let first = queues.sends.lock().over();
                (self.questions.next() > first).then_some((first, WcStatus::RetryExcErr))
            }
            End::Terminated(terminate) => {
                // The Terminate itself proves nothing.
                let open = self.receipted(queues, receipt);
                let number = blamed(terminate, &open)?.number;
                Some((number, outcome::status(terminate.code, &queues.sends.lock().get(number).op)))
            }
            _ => None,
        }
    }

    /// Completes the requests that the peer's receipt covers; returns the open ones.
    fn receipted(&mut self, queues: &Queues, receipt: Option<u32>) -> Vec<Open> {
        let queue = queues.sends.lock();
        let (mut open, first) = (self.questions.open(&queue), queue.over());
        drop(queue);
        let arrived = self.questions.arrived(receipt, &open);
        self.arrived(queues, first + arrived as u64);
        open.split_off(arrived)
    }

    /// Sends the last bytes of a connection: answers, a receipt, and the Terminate if there is one. Returns the bytes that the socket
    /// did not accept; payload that has not begun is left out. `None` if the stream has a gap: then the connection is reset.
    pub(crate) fn last_words(
        &mut self,
        lent: &mut QpContext<'_>,
        code: Option<TerminateCode>,
    ) -> Option<Vec<u8>> {
        self.send_last(lent);
        self.drain_machine(lent);
        self.send_last(lent);
        match code {
            Some(code) => lent.machine.abort(code),
            // No effect if the machine has already queued a Terminate.
            None => lent.machine.finish(),
        }
        self.drain_machine(lent);
        self.send_last(lent);
        if self.is_cut {
            // It is closed all the same if that fails.
            let _ = rustix::net::sockopt::set_socket_linger(lent.socket, Some(Duration::ZERO));
            return None;
        }
        Some(self.rest())
    }

    /// Sends what the socket takes. What is left needs the program's memory no more, and has no gap.
    fn send_last(&mut self, lent: &mut QpContext<'_>) {
        if self.is_cut {
            return;
        }
        let mut turn = 0;
        // What cannot be sent any more need not be.
        let _ = self.send(lent, &mut turn);
        self.outbox.drop_unbegun();
        let copy = |fpdu: &Fpdu, to: &mut [u8]| {
            payload(lent.queues, fpdu).is_ok_and(|list| place::copy_out(&list, to).is_ok())
        };
        self.is_cut |= !self.outbox.keep_begun(&lent.queues.shared.staging, copy);
    }

    /// Takes out of the machine what it has, as far as there is room, without anything new.
    fn drain_machine(&mut self, lent: &mut QpContext<'_>) {
        while self.outbox.has_room()
            && let Some(transmit) = lent.machine.poll_transmit()
        {
            // What fails now changes nothing: the connection ends already.
            let _ = self.take_out(lent, &transmit);
        }
    }

    /// What of the outbox has not been sent, as bytes, after [`Self::send_last`].
    fn rest(&self) -> Vec<u8> {
        let mut rest = Vec::new();
        for item in self.outbox.items() {
            match item {
                Item::Run { from, to } => rest.extend_from_slice(self.outbox.run(*from, *to)),
                Item::Large { fpdu, trailer, staged: Some(at) } => {
                    rest.extend_from_slice(fpdu.header());
                    rest.extend_from_slice(self.outbox.staged(*at, fpdu.payload.len()));
                    rest.extend_from_slice(trailer);
                }
                // There is none.
                Item::Large { staged: None, .. } => break,
            }
        }
        rest.split_off(self.outbox.sent().min(rest.len()))
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
fn end_of(machine: &mut Connection, gone: Gone) -> End {
    match gone {
        Gone::Local(number) => End::Local(number, WcStatus::LocProtErr),
        Gone::Source(code) => {
            debug_assert!(code.is_protection());
            machine.abort(code);
            End::Violation(Failure { terminate: Terminate::new(code) })
        }
    }
}

/// What it means that an FPDU's payload cannot be read.
#[cold]
fn gone(fpdu: &Fpdu) -> Gone {
    match fpdu.payload {
        Payload::Op { id, .. } => Gone::Local(request_of(id)),
        Payload::None | Payload::Source { .. } => Gone::Source(TerminateCode::PROTECTION_UNSPECIFIED),
    }
}

/// Where an FPDU's payload is.
fn payload(queues: &Queues, fpdu: &Fpdu) -> Result<SgList, Gone> {
    let domain = queues.domain();
    match fpdu.payload {
        Payload::None => Ok(SgList::new()),
        Payload::Op { id, offset, len } => {
            let (queue, number) = (queues.sends.lock(), request_of(id));
            let found = queue.locate(number, domain, Access::empty(), offset.into(), len.into());
            found.ok_or(Gone::Local(number))
        }
        Payload::Source { stag, to, len } => {
            domain.remote(stag, Access::REMOTE_READ, to, len.into()).map_err(|refusal| refusal.code().into())
        }
    }
}

/// Writes a small FPDU out.
fn write_out(queues: &Queues, fpdu: &Fpdu, to: &mut Vec<u8>) -> Result<(), Gone> {
    let domain = queues.domain();
    fpdu.write(to, |to| match fpdu.payload {
        Payload::None => Ok(()),
        Payload::Op { id, offset, len } => {
            let (queue, number) = (queues.sends.lock(), request_of(id));
            queue.append(number, domain, offset, len, to).ok_or(Gone::Local(number))
        }
        Payload::Source { stag, to: from, len } => {
            let found = domain.find(stag, Access::REMOTE_READ, from, len.into());
            let at = found.map_err(|refusal| refusal.code())?;
            place::append(at, len as usize, to).map_err(|_| gone(fpdu))
        }
    })
}

/// Adds what is left of an item to a gathered write.
fn put(
    queues: &Queues,
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
            let list = payload(queues, fpdu)?;
            // Asked while it can still be left out: the kernel may find only in the middle that a page has gone.
            if *skip == 0 && fpdu.completes_message() && !place::is_readable(&list) {
                return Err(gone(fpdu));
            }
            gather.push_bytes(fpdu.header(), skip);
            gather.push_list(&list, skip);
            gather.push_bytes(trailer, skip);
        }
    }
    Ok(())
}
