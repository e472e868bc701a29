//! Data path: sending. Turns requests into FPDUs, and sends as many as possible with one system call.
//!
//! While a flush marker is open (see `flush_markers`), a few small requests are held back to be sent in one batch: on
//! the response, at the next poll, or when there are enough.

use std::time::Duration;

use iwarp::Connection;
use iwarp::open_requests::{OpenRequest, find_blamed};
use iwarp::rdmap::AtomicRequest;
use iwarp::rx::ProtocolViolation;
use iwarp::terminate::{Terminate, TerminateCode};
use iwarp::tx::{Fpdu, Op, OpKind, Origin, Payload, PostError, Transmit};
use rustix::io::Errno;
use verbs::{Access, SendFlags, SendOp, WcStatus};

use crate::connection::context::QpContext;
use crate::connection::end_reason::EndReason;
use crate::memory::place::{self, Gather};
use crate::queues::messages::{check_local, is_last, request_of, split_into_messages};
use crate::queues::qp_queues::QpQueues;
use crate::queues::request_ring::{SendQueue, SendRequest};
use crate::queues::status;
use crate::send::flush_markers::{FlushMarkers, announcement, first_message, program_request_of};
use crate::tcp::outbox::{Outbox, OutboxItem, SMALL_MAX};
use nic_util::sg_list::{SgList, is_accessible};

/// Maximum number of requests to hold back while a marker is open, and maximum bytes.
const HELD_REQUESTS: u64 = 16;
const HELD_BYTES: u64 = 32 << 10;
/// Number of bytes that one turn may send before other connections get theirs.
const TURN_BYTES: usize = 4 << 20;

/// Responses to the peer that wait to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PendingResponses {
    None,
    /// Short responses, which can be sent together with later messages.
    Short,
    Long,
}

/// The sending half of a connection.
pub(crate) struct SendHalf {
    outbox: Outbox,
    markers: FlushMarkers,
    /// Number of requests whose last byte TCP has accepted.
    sent: u64,
    /// Maximum number of reads and atomics outstanding.
    ord: u16,
    /// Operations that the state machine holds back: an earlier read must be answered, or the peer must send, first.
    in_machine: u32,
    /// A request that failed locally; it is reported when those before it have completed.
    failed: Option<(u64, WcStatus)>,
    blocked: bool,
    responses: PendingResponses,
    /// The stream ends in the middle of an FPDU, so nothing more can be sent.
    is_cut: bool,
    /// An RNR retry limit that has not been announced to the peer yet.
    rnr_limit: Option<u8>,
}

/// The result of one send.
enum SendProgress {
    All,
    Part,
}

/// Why a request did not take the fast path.
enum FastPathMiss {
    /// It does not qualify; nothing has changed.
    Unfit,
    /// Its memory cannot be accessed.
    Inaccessible,
}

impl SendHalf {
    /// `uses_markers` enables flush markers; `first_send` is the number of the first message on the queue of Sends.
    pub(crate) fn new(uses_markers: bool, ord: u16, first_send: u32) -> Self {
        Self {
            outbox: Outbox::new(),
            markers: FlushMarkers::new(uses_markers, ord, first_send),
            sent: 0,
            ord,
            in_machine: 0,
            failed: None,
            blocked: false,
            responses: PendingResponses::None,
            is_cut: false,
            rnr_limit: None,
        }
    }

    /// Whether TCP accepts no more at the moment.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Records a response that the state machine has queued.
    pub(crate) fn add_response(&mut self, what: PendingResponses) {
        self.responses = self.responses.max(what);
    }

    /// Whether all sending may wait for the next poll. If nothing has arrived, that requires that there is nothing to
    /// send; if data has arrived (`any`), short responses may wait, too, to be sent with a message of the program.
    #[inline]
    pub(crate) fn may_wait(&self, queues: &QpQueues, any: bool) -> bool {
        let may = if any {
            self.responses <= PendingResponses::Short
        } else {
            self.responses == PendingResponses::None && !self.markers.is_due(false, false)
        };
        may && !self.blocked
            && self.outbox.is_empty()
            && self.in_machine == 0
            && self.markers.next_request() == queues.sends.lock().posted()
    }

    /// Whether requests just posted should wait, to be sent in one batch.
    #[inline]
    pub(crate) fn holds_back(&self, queues: &QpQueues) -> bool {
        if !self.markers.has_open_marker() || self.failed.is_some() {
            return false;
        }
        let (queue, next) = (queues.sends.lock(), self.markers.next_request());
        queue.posted() - next < HELD_REQUESTS
            && (next..queue.posted()).map(|n| u64::from(queue.get(n).len)).sum::<u64>() < HELD_BYTES
    }

    /// Announces an RNR retry limit to the peer, before requests that begin from now on.
    pub(crate) fn announce_rnr_limit(&mut self, retries: u8) {
        self.rnr_limit = Some(retries);
    }

    /// Sends what can be sent. With `is_last_chance` no later poll will send the rest.
    pub(crate) fn transmit(&mut self, cx: &mut QpContext<'_>, is_last_chance: bool) -> Result<(), EndReason> {
        let mut turn = 0;
        loop {
            let full = self.prepare(cx, is_last_chance)?;
            self.responses = PendingResponses::None;
            if self.outbox.is_empty() {
                self.blocked = false;
                break;
            }
            match self.send(cx, &mut turn)? {
                // Perhaps only the part before inaccessible payload was gathered. Nothing else triggers another round
                // for the rest.
                SendProgress::All if (full || !self.outbox.is_empty()) && turn < TURN_BYTES => {}
                // Everything is sent, or the next lock holder continues.
                _ => break,
            }
        }
        self.complete_sent(cx.queues);
        match self.failed {
            Some((number, status)) if number == cx.queues.sends.lock().completed() => {
                Err(EndReason::Local(number, status))
            }
            _ => Ok(()),
        }
    }

    /// Fills the outbox; returns whether it is full while there may be more to send.
    fn prepare(&mut self, cx: &mut QpContext<'_>, is_last_chance: bool) -> Result<bool, EndReason> {
        loop {
            if !self.outbox.has_room() {
                return Ok(true);
            }
            let idle = cx.machine.is_idle();
            match if idle { None } else { cx.machine.poll_transmit() } {
                Some(transmit) => self.handle_transmit(cx, &transmit)?,
                None if self.begin_next(cx, is_last_chance) => {}
                None => return Ok(false),
            }
        }
    }

    /// Handles what the state machine yields.
    fn handle_transmit(&mut self, cx: &mut QpContext<'_>, transmit: &Transmit) -> Result<(), EndReason> {
        match transmit {
            Transmit::Fpdu(fpdu) => self.pack(cx, fpdu),
            Transmit::Atomic(request) => self.execute_atomic(cx, request),
        }
    }

    /// Adds an FPDU to the outbox.
    fn pack(&mut self, cx: &mut QpContext<'_>, fpdu: &Fpdu) -> Result<(), EndReason> {
        let mut completed_end = None;
        if let Origin::Op(id) = fpdu.origin {
            if fpdu.expects.is_some() {
                self.markers.on_sent(id);
            }
            if fpdu.last {
                self.in_machine -= 1;
                completed_end = program_request_of(id).filter(|_| is_last(id)).map(|number| number + 1);
            }
        } else if fpdu.expects.is_some() {
            self.markers.on_rtr_sent();
        }
        let packed = match fpdu.payload.len() {
            0..=SMALL_MAX => self.outbox.append(completed_end, |to| write_out(cx.queues, fpdu, to)),
            _ => self.pack_large(cx.queues, fpdu, completed_end),
        };
        packed.map_err(|inaccessible| end_for(cx.machine, inaccessible))
    }

    /// Adds an FPDU whose payload is gathered, or copied to the staging buffer for its CRC.
    fn pack_large(
        &mut self,
        queues: &QpQueues,
        fpdu: &Fpdu,
        completed_end: Option<u64>,
    ) -> Result<(), Inaccessible> {
        let (mut trailer_builder, mut staged) = (fpdu.trailer_builder(), None);
        if trailer_builder.wants_payload() {
            let list = payload(queues, fpdu)?;
            let (at, copy) = self.outbox.reserve_staging(fpdu.payload.len(), &queues.shared.staging);
            let mut is_copied = true;
            trailer_builder.update_with(fpdu.payload.len(), |crc| {
                place::copy_out_crc(&list, copy, crc).unwrap_or_else(|_| {
                    is_copied = false;
                    crc
                })
            });
            if !is_copied {
                return Err(inaccessible(fpdu));
            }
            staged = Some(at);
        }
        if let Ok(trailer) = trailer_builder.finish() {
            self.outbox.push(*fpdu, trailer, staged, completed_end);
        }
        Ok(())
    }

    /// Executes an atomic of the peer; the responses before it are already queued.
    fn execute_atomic(&mut self, cx: &mut QpContext<'_>, request: &AtomicRequest) -> Result<(), EndReason> {
        let at = cx.queues.domain().find(request.stag, Access::REMOTE_ATOMIC, request.to, 8);
        let original = at
            .map_err(|_| TerminateCode::STAG_INVALID)
            .and_then(|at| place::atomic(at, request.op).ok_or(TerminateCode::PROTECTION_UNSPECIFIED));
        let original = original.map_err(|code| end_for(cx.machine, code.into()))?;
        match cx.machine.atomic_done(original) {
            Some(fpdu) => self.pack(cx, &fpdu),
            None => Ok(()),
        }
    }

    /// Passes the next request or flush marker to the state machine; returns whether there was one.
    fn begin_next(&mut self, cx: &mut QpContext<'_>, is_last_chance: bool) -> bool {
        if self.in_machine > 0 {
            return false;
        }
        if let Some(retries) = self.rnr_limit.take() {
            return self.post_op(cx.machine, announcement(retries)).is_ok();
        }
        let (queues, number) = (cx.queues, self.markers.next_request());
        let queue = queues.sends.lock();
        let more = number < queue.posted() && self.failed.is_none();
        let must = more && self.markers.must_precede(&queue.get(number).op);
        if (must || self.markers.is_due(more, is_last_chance)) && cx.machine.outstanding() < self.ord {
            drop(queue);
            return self.post_marker(cx.machine);
        }
        if must || !more {
            return false;
        }
        let request = *queue.get(number);
        let verdict = check_local(&queue, queues.domain(), number, &request)
            .and_then(|()| change_window(queues, request.op))
            .and_then(|()| self.begin(cx.machine, queues, &queue, &request));
        match verdict {
            Ok(()) => self.markers.on_begun(&request, queues.is_signaled(request.flags)),
            Err(status) => self.failed = Some((number, status)),
        }
        true
    }

    /// Begins the next request, whose memory has been checked.
    #[inline]
    fn begin(
        &mut self,
        machine: &mut Connection,
        queues: &QpQueues,
        queue: &SendQueue,
        request: &SendRequest,
    ) -> Result<(), WcStatus> {
        match self.write_fast(machine, queues, queue, request) {
            Ok(()) => Ok(()),
            Err(FastPathMiss::Inaccessible) => Err(WcStatus::LocProtErr),
            Err(FastPathMiss::Unfit) => self.post(machine, request),
        }
    }

    /// The fast path of a small write or send with nothing queued before it: writes the bytes directly, without an
    /// operation in the state machine's queue and an FPDU value. A message of 8 bytes takes about half of the
    /// instructions.
    #[inline]
    fn write_fast(
        &mut self,
        machine: &mut Connection,
        queues: &QpQueues,
        queue: &SendQueue,
        request: &SendRequest,
    ) -> Result<(), FastPathMiss> {
        let (len, number) = (request.len, self.markers.next_request());
        if len as usize > SMALL_MAX || request.flags.contains(SendFlags::FENCE) {
            return Err(FastPathMiss::Unfit);
        }
        let kind = match request.op {
            SendOp::Write(to) => OpKind::Write { stag: to.rkey, to: to.addr, len },
            SendOp::Send => {
                let solicited = request.flags.contains(SendFlags::SOLICITED);
                OpKind::Send { len, solicited, invalidate: None }
            }
            _ => return Err(FastPathMiss::Unfit),
        };
        self.outbox.append(Some(number + 1), |to| {
            let payload = |to: &mut Vec<u8>| {
                queue.append(number, queues.domain(), 0, len, to).ok_or(FastPathMiss::Inaccessible)
            };
            machine.write_single(&kind, to, payload).unwrap_or(Err(FastPathMiss::Unfit))
        })
    }

    /// Passes the messages of the next request to the state machine; returns the status of its completion if one is invalid.
    fn post(&mut self, machine: &mut Connection, request: &SendRequest) -> Result<(), WcStatus> {
        split_into_messages(self.markers.next_request(), request).into_iter().flatten().try_for_each(|op| {
            self.post_op(machine, op).map_err(|error| match error {
                PostError::Unaligned => WcStatus::RemInvReqErr,
                PostError::Wraps => WcStatus::RemAccessErr,
                _ => WcStatus::LocQpOpErr,
            })
        })
    }

    /// Passes one message to the state machine.
    fn post_op(&mut self, machine: &mut Connection, op: Op) -> Result<(), PostError> {
        machine.post(op)?;
        self.in_machine += 1;
        Ok(())
    }

    /// Passes a flush marker to the state machine; returns whether the machine accepted it.
    fn post_marker(&mut self, machine: &mut Connection) -> bool {
        // This fails only if the stream ends, which also flushes the requests.
        let posted = self.post_op(machine, self.markers.marker()).is_ok();
        if posted {
            self.markers.on_posted();
        }
        posted
    }

    /// Sends a first message, after which a responder of revision 1 may send.
    pub(crate) fn send_first_message(&mut self, machine: &mut Connection) {
        // This fails only if the stream ends.
        let _ = self.post_op(machine, first_message());
    }

    /// Sends the outbox, as much as fits.
    fn send(&mut self, cx: &mut QpContext<'_>, turn: &mut usize) -> Result<SendProgress, EndReason> {
        let (total, sent) = match self.outbox.only_run() {
            Some(run) => (run.len(), place::send_run(cx.socket, run)),
            None => self.send_gathered(cx)?,
        };
        let n = match sent {
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(EndReason::Broken(errno)),
        };
        if let Some(completed_end) = self.outbox.advance(n, &cx.queues.shared.staging) {
            self.sent = completed_end;
        }
        if n > 0 {
            cx.queues.count_send_progress();
        }
        *turn += n;
        self.blocked = n < total || *turn >= TURN_BYTES;
        Ok(if n == total { SendProgress::All } else { SendProgress::Part })
    }

    /// Sends the queued items by gathering; returns how many bytes were gathered, and how many were sent.
    fn send_gathered(&mut self, cx: &mut QpContext<'_>) -> Result<(usize, Result<usize, Errno>), EndReason> {
        let mut items = usize::MAX;
        loop {
            let mut gather = Gather::new();
            if let Err(inaccessible) = self.gather(cx.queues, &mut gather, items) {
                return Err(self.end_before_inaccessible(cx, inaccessible));
            }
            match place::send(cx.socket, &mut gather) {
                // Nothing was sent. The items before the unreadable payload can still be sent.
                Err(Errno::FAULT) => match self.first_inaccessible(cx.queues) {
                    (0, inaccessible) => return Err(self.end_before_inaccessible(cx, inaccessible)),
                    (place, _) => items = place.min(items.saturating_sub(1)),
                },
                sent => return Ok((gather.total(), sent)),
            }
        }
    }

    /// The first item, by position, whose payload cannot be read. Only items gathered from the program's memory
    /// count.
    #[cold]
    fn first_inaccessible(&self, queues: &QpQueues) -> (usize, Inaccessible) {
        let mut first = None;
        for (place, item) in self.outbox.items().enumerate() {
            let OutboxItem::Large { fpdu, staged: None, .. } = item else { continue };
            // If all are readable again, blame the first one, so that this terminates.
            first = first.or(Some((place, fpdu)));
            if !payload(queues, fpdu).is_ok_and(|list| is_accessible(&list, false)) {
                return (place, inaccessible(fpdu));
            }
        }
        let unknown = Inaccessible::Source(TerminateCode::PROTECTION_UNSPECIFIED);
        first.map_or((0, unknown), |(place, fpdu)| (place, inaccessible(fpdu)))
    }

    /// The payload of the first item cannot be read. If part of it was sent, the rest is filled with zeros, provided
    /// that the peer discards it; otherwise the stream can only be cut.
    #[cold]
    fn end_before_inaccessible(&mut self, cx: &mut QpContext<'_>, inaccessible: Inaccessible) -> EndReason {
        if self.outbox.bytes_sent() == 0 {
            self.outbox.clear();
        } else {
            self.outbox.drop_behind_first();
            self.is_cut |= !self.outbox.stage_partly_sent_payload(&cx.queues.shared.staging, |_, _| false);
        }
        end_for(cx.machine, inaccessible)
    }

    /// Gathers queued items, at most `items`, as many as fit one write. Fails only if the payload of the first one is
    /// inaccessible; otherwise the items before an inaccessible one are sent first.
    fn gather(&self, queues: &QpQueues, gather: &mut Gather, items: usize) -> Result<(), Inaccessible> {
        let mut skip = self.outbox.bytes_sent();
        for (place, item) in self.outbox.items().take(items).enumerate() {
            if gather.is_full() {
                break;
            }
            if let Err(inaccessible) = push_unsent(queues, &self.outbox, item, gather, &mut skip) {
                return if place > 0 { Ok(()) } else { Err(inaccessible) };
            }
        }
        Ok(())
    }

    /// Completes requests that need no response: without flush markers all that TCP has accepted, otherwise local
    /// ones, together with unsignaled requests before them.
    #[inline]
    fn complete_sent(&mut self, queues: &QpQueues) {
        if self.markers.is_enabled() && !self.markers.has_open_locals() {
            return;
        }
        let completed_end = self.completed_when_sent(queues);
        self.complete_arrived(queues, completed_end);
    }

    /// The number of the request before which all are complete because TCP has accepted them.
    fn completed_when_sent(&self, queues: &QpQueues) -> u64 {
        let (queue, uses_markers) = (queues.sends.lock(), self.markers.is_enabled());
        let mut completed_end = queue.completed();
        for number in queue.completed()..self.sent {
            let request = queue.get(number);
            let completes = !uses_markers || request.is_local();
            if request.op.fetches() || !completes && queues.is_signaled(request.flags) {
                break;
            }
            completed_end = if completes { number + 1 } else { completed_end };
        }
        completed_end
    }

    /// The ready-to-receive message has been answered.
    pub(crate) fn on_rtr_answered(&mut self) {
        self.markers.on_rtr_answered();
    }

    /// The read, atomic or marker with this identifier has been answered.
    pub(crate) fn on_answered(&mut self, queues: &QpQueues, id: u64) {
        let completed_end = self.markers.on_answered(id);
        self.complete_arrived(queues, completed_end);
        self.complete_sent(queues);
    }

    /// An atomic of this side has been executed; `original` is the word's previous value.
    pub(crate) fn on_atomic_answered(
        &mut self,
        queues: &QpQueues,
        id: u64,
        original: u64,
    ) -> Result<(), EndReason> {
        let number = request_of(id);
        let sink = queues.sends.lock().local_addresses(number, queues.domain(), Access::LOCAL_WRITE, 0, 8);
        let copied = sink.map(|sink| place::copy_in(&original.to_ne_bytes(), &sink));
        if !matches!(copied, Some(Ok(()))) {
            return Err(EndReason::BadSink(number));
        }
        self.on_answered(queues, id);
        Ok(())
    }

    /// Completes the requests before `completed_end`, which have arrived.
    fn complete_arrived(&mut self, queues: &QpQueues, completed_end: u64) {
        while queues.sends.lock().completed() < completed_end {
            self.complete_first(queues);
        }
    }

    fn complete_first(&mut self, queues: &QpQueues) {
        let request = queues.finish_send(WcStatus::Success);
        self.markers.on_completed(&request);
    }

    /// Returns the request that this end makes fail, and its status. Completes the requests before it that are known
    /// to have arrived; `receipt` is the peer's receipt.
    pub(crate) fn failed_request(
        &mut self,
        queues: &QpQueues,
        end: &EndReason,
        receipt: Option<u32>,
    ) -> Option<(u64, WcStatus)> {
        match end {
            EndReason::Local(number, status) => Some((*number, *status)),
            EndReason::BadSink(number) => {
                self.complete_arrived(queues, *number);
                Some((*number, WcStatus::LocProtErr))
            }
            EndReason::Closed => {
                self.complete_receipted(queues, receipt);
                None
            }
            EndReason::Broken(_) => {
                self.complete_receipted(queues, receipt);
                let first = queues.sends.lock().completed();
                (self.markers.next_request() > first).then_some((first, WcStatus::RetryExcErr))
            }
            EndReason::Terminated(terminate) => {
                // The Terminate itself proves nothing.
                let open = self.complete_receipted(queues, receipt);
                let number = find_blamed(terminate, &open)?.number;
                Some((number, status::status(terminate.code, &queues.sends.lock().get(number).op)))
            }
            _ => None,
        }
    }

    /// Completes the requests that the peer's receipt covers; returns the open ones.
    fn complete_receipted(&mut self, queues: &QpQueues, receipt: Option<u32>) -> Vec<OpenRequest> {
        let queue = queues.sends.lock();
        let (mut open, first) = (self.markers.open_requests(&queue), queue.completed());
        drop(queue);
        let arrived = self.markers.count_arrived(receipt, &open);
        self.complete_arrived(queues, first + arrived as u64);
        open.split_off(arrived)
    }

    /// Sends the last bytes of a connection: responses, a receipt, and the Terminate if there is one. Returns the
    /// bytes that the socket did not accept; payload that has not been started is left out. `None` if the stream has
    /// a gap: then the connection is reset.
    pub(crate) fn send_last_bytes(
        &mut self,
        cx: &mut QpContext<'_>,
        code: Option<TerminateCode>,
    ) -> Option<Vec<u8>> {
        self.send_last(cx);
        self.drain_machine(cx);
        self.send_last(cx);
        match code {
            Some(code) => cx.machine.abort(code),
            // No effect if the state machine has already queued a Terminate.
            None => cx.machine.finish(),
        }
        self.drain_machine(cx);
        self.send_last(cx);
        if self.is_cut {
            // If this fails, the socket is closed in the normal way.
            let _ = rustix::net::sockopt::set_socket_linger(cx.socket, Some(Duration::ZERO));
            return None;
        }
        Some(self.unsent_bytes())
    }

    /// Sends what the socket accepts. What is left no longer needs the program's memory, and has no gap.
    fn send_last(&mut self, cx: &mut QpContext<'_>) {
        if self.is_cut {
            return;
        }
        let mut turn = 0;
        // An error does not matter: the connection ends.
        let _ = self.send(cx, &mut turn);
        self.outbox.drop_unstarted();
        let copy = |fpdu: &Fpdu, to: &mut [u8]| {
            payload(cx.queues, fpdu).is_ok_and(|list| place::copy_out(&list, to).is_ok())
        };
        self.is_cut |= !self.outbox.stage_partly_sent_payload(&cx.queues.shared.staging, copy);
    }

    /// Moves what the state machine has queued into the outbox, as far as it fits, without beginning new requests.
    fn drain_machine(&mut self, cx: &mut QpContext<'_>) {
        while self.outbox.has_room()
            && let Some(transmit) = cx.machine.poll_transmit()
        {
            // An error changes nothing: the connection already ends.
            let _ = self.handle_transmit(cx, &transmit);
        }
    }

    /// The unsent bytes of the outbox, after [`Self::send_last`].
    fn unsent_bytes(&self) -> Vec<u8> {
        let mut rest = Vec::new();
        for item in self.outbox.items() {
            match item {
                OutboxItem::Run { from, to } => rest.extend_from_slice(self.outbox.run(*from, *to)),
                OutboxItem::Large { fpdu, trailer, staged: Some(at) } => {
                    rest.extend_from_slice(fpdu.header());
                    rest.extend_from_slice(self.outbox.staged(*at, fpdu.payload.len()));
                    rest.extend_from_slice(trailer);
                }
                // `send_last` has removed these items.
                OutboxItem::Large { staged: None, .. } => break,
            }
        }
        rest.split_off(self.outbox.bytes_sent().min(rest.len()))
    }
}

/// Inaccessible memory: the source of a peer's read, or local memory of a request.
enum Inaccessible {
    Source(TerminateCode),
    Local(u64),
}

impl From<TerminateCode> for Inaccessible {
    fn from(code: TerminateCode) -> Self {
        Self::Source(code)
    }
}

/// The connection's end that inaccessible memory causes.
fn end_for(machine: &mut Connection, inaccessible: Inaccessible) -> EndReason {
    match inaccessible {
        Inaccessible::Local(number) => EndReason::Local(number, WcStatus::LocProtErr),
        Inaccessible::Source(code) => {
            debug_assert!(code.is_protection());
            machine.abort(code);
            EndReason::Violation(ProtocolViolation { terminate: Terminate::new(code) })
        }
    }
}

/// Carries out a request that changes a memory window; other requests change nothing.
#[inline]
fn change_window(queues: &QpQueues, op: SendOp) -> Result<(), WcStatus> {
    let domain = queues.domain();
    match op.is_of_window() && !domain.regions.change_window((domain.pd, domain.qp), op) {
        true => Err(WcStatus::MwBindErr),
        false => Ok(()),
    }
}

/// The meaning of an FPDU whose payload cannot be read.
#[cold]
fn inaccessible(fpdu: &Fpdu) -> Inaccessible {
    match fpdu.payload {
        Payload::Op { id, .. } => Inaccessible::Local(request_of(id)),
        Payload::None | Payload::Source { .. } => Inaccessible::Source(TerminateCode::PROTECTION_UNSPECIFIED),
    }
}

/// The addresses of an FPDU's payload.
fn payload(queues: &QpQueues, fpdu: &Fpdu) -> Result<SgList, Inaccessible> {
    let domain = queues.domain();
    match fpdu.payload {
        Payload::None => Ok(SgList::new()),
        Payload::Op { id, offset, len } => {
            let (queue, number) = (queues.sends.lock(), request_of(id));
            let found = queue.local_addresses(number, domain, Access::empty(), offset.into(), len.into());
            found.ok_or(Inaccessible::Local(number))
        }
        Payload::Source { stag, to, len } => {
            domain.remote(stag, Access::REMOTE_READ, to, len.into()).map_err(|refusal| refusal.code().into())
        }
    }
}

/// Serializes a small FPDU.
fn write_out(queues: &QpQueues, fpdu: &Fpdu, to: &mut Vec<u8>) -> Result<(), Inaccessible> {
    let domain = queues.domain();
    fpdu.write(to, |to| match fpdu.payload {
        Payload::None => Ok(()),
        Payload::Op { id, offset, len } => {
            let (queue, number) = (queues.sends.lock(), request_of(id));
            queue.append(number, domain, offset, len, to).ok_or(Inaccessible::Local(number))
        }
        Payload::Source { stag, to: from, len } => {
            let found = domain.find(stag, Access::REMOTE_READ, from, len.into());
            let at = found.map_err(|refusal| refusal.code())?;
            place::append(at, len as usize, to).map_err(|_| inaccessible(fpdu))
        }
    })
}

/// Adds the unsent part of an item to a gathered write.
fn push_unsent(
    queues: &QpQueues,
    outbox: &Outbox,
    item: &OutboxItem,
    gather: &mut Gather,
    skip: &mut usize,
) -> Result<(), Inaccessible> {
    match item {
        OutboxItem::Run { from, to } => gather.push_bytes(outbox.run(*from, *to), skip),
        OutboxItem::Large { fpdu, trailer, staged: Some(at) } => {
            gather.push_bytes(fpdu.header(), skip);
            gather.push_bytes(outbox.staged(*at, fpdu.payload.len()), skip);
            gather.push_bytes(trailer, skip);
        }
        OutboxItem::Large { fpdu, trailer, staged: None } => {
            let list = payload(queues, fpdu)?;
            // Checked while the FPDU can still be left out: the kernel may notice only in the middle that a page is
            // unmapped.
            if *skip == 0 && fpdu.completes_message() && !place::is_readable(&list) {
                return Err(inaccessible(fpdu));
            }
            gather.push_bytes(fpdu.header(), skip);
            gather.push_list(&list, skip);
            gather.push_bytes(trailer, skip);
        }
    }
    Ok(())
}
