//! [`Requester`]: the sending half of a queue pair. It holds the posted requests, cuts them into packets, and
//! completes them in the order of posting when the responder has acknowledged or answered them.
//!
//! It knows nothing of cards, wires and completion queues: its calls return what other modules have to do.

use std::collections::VecDeque;

use host::{Span, Time};
use verbs::{
    Access, Data, Error, QpCap, RNR_RETRY_FOREVER, Result, SendFlags, SendOp, SendWr, Sge, Wc, WcOpcode,
    WcStatus,
};

use super::packet::{Body, Outgoing, Packet, Source};
use super::protection::{Extent, Protection};
use crate::limits;
use crate::machine::{Params, WriteImmKind};
use crate::parts::us;

/// The transport engine's settings for all requesters.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransportSettings {
    /// Maximum number of requests that have begun and are not acknowledged.
    begun_max: u64,
    retry_timeout: Span,
    retry_max: u32,
    /// A write with immediate data is sent as a write followed by a message.
    splits_notice: bool,
}

impl TransportSettings {
    /// The settings of this machine.
    pub(super) fn new(params: &Params) -> Self {
        Self {
            begun_max: params.transport.begun_requests as u64,
            retry_timeout: us(params.transport.retry_timeout_us),
            retry_max: params.transport.retry_count as u32,
            splits_notice: params.api.write_imm_kind == WriteImmKind::Split,
        }
    }
}

/// A posted send request.
#[derive(Clone, Debug, Default)]
struct Wqe {
    wr_id: u64,
    op: Option<SendOp>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    signaled: bool,
    solicited: bool,
    fence: bool,
    /// Bytes of the message.
    len: u64,
    /// Packets of the message, or of the response.
    packets: u64,
    /// The number of its first packet, once it has begun.
    psn: Option<u64>,
    /// Packets of the response that have arrived.
    arrived: u64,
    /// The response is placed.
    answered: bool,
    /// How often its receiver was not ready.
    rnr_retries: u8,
    /// How it failed, if it did.
    failed: Option<WcStatus>,
}

impl Wqe {
    /// Whether it awaits a response with data.
    fn fetches(&self) -> bool {
        self.op.is_some_and(SendOp::fetches)
    }

    /// Whether no part of it has to be sent (again), if packets below `acked` are acknowledged.
    fn is_sent(&self, acked: u64) -> bool {
        match self.psn {
            None => false,
            Some(_) if self.fetches() => self.arrived == self.packets,
            Some(psn) => psn + self.packets <= acked,
        }
    }

    /// Whether it has completed.
    fn is_done(&self, acked: u64) -> bool {
        if self.fetches() { self.answered } else { self.is_sent(acked) }
    }

    /// The next packet of the response, once the request has begun.
    fn expects(&self) -> Option<u64> {
        self.psn.map(|first| first + self.arrived)
    }
}

/// A request failed before it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestFailed;

/// The effect of a receiver-not-ready NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rnr {
    /// None: its message was acknowledged since.
    Stale,
    /// Sending pauses.
    Pause,
    /// The retry limit is reached: the request failed.
    Failed,
}

/// What to do with a packet of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// The packet answers the request with this number, and is written to its memory.
    Take(u64),
    /// The packet is dropped; `resend`: there is something to retransmit, as an earlier packet is missing.
    Drop { resend: bool },
}

/// The effect of a response packet that is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseProgress {
    /// More packets follow.
    Part,
    /// It was the last packet of the response.
    Whole,
    /// The memory is gone, and the request failed.
    Failed,
}

/// What a requester does if an answer may be overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerStatus {
    /// The requester awaits nothing.
    Idle,
    /// The requester checks again at this time.
    CheckAt(Time),
    /// The requester retransmits, and checks again at this time.
    Resend(Time),
    /// The retry limit is reached: the oldest request failed.
    Failed,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct FinishedRequest {
    /// Its completion, if it has one, and the slots of the send queue that this frees. The caller fills in
    /// the queue pair.
    pub(super) completion: Option<(Wc, u32)>,
    /// Whether it failed, which ends the connection.
    pub(super) failed: bool,
}

/// The sending half of a queue pair. Requests are numbered from 0; the slot of a request is its number modulo
/// the depth.
pub(super) struct Requester {
    cap: QpCap,
    signal_all: bool,
    slots: Vec<Wqe>,
    /// The oldest request that is not completed.
    head: u64,
    /// Number of posted requests.
    tail: u64,
    /// Number of requests that the card knows of.
    rung: u64,
    /// Number of requests whose descriptors the card has requested.
    asked: u64,
    /// Number of requests whose descriptors the card has.
    fetched: u64,
    /// Whether the queue pair is queued for descriptor fetches.
    wants_descriptor: bool,
    /// The request to send next, and its next packet.
    next: u64,
    packet: u64,
    /// When the next request can begin, and whether an [`super::event::Event::BeginDue`] for it is scheduled.
    begins_at: Time,
    begin_timed: bool,
    /// The number of the next new packet.
    psn: u64,
    /// Packets below this are acknowledged.
    acked: u64,
    /// Slots in use until their completions are polled.
    used: u32,
    /// Completed unsignaled requests, whose slots the next completion frees.
    unsignaled: u32,
    /// Reads and atomics whose responses are not placed, and their maximum.
    reads: VecDeque<u64>,
    reads_max: usize,
    /// A packet of a response is missing, and was requested again.
    gap: bool,
    /// The receiver was not ready: sending pauses.
    rnr_pause: bool,
    /// Receiver-not-ready retry limit: the program's, and its peer's.
    rnr_retry: Option<u8>,
    rnr_retry_of_peer: u8,
    /// A request failed: later requests are not sent.
    halted: bool,
    /// An [`super::event::Event::AnswerCheck`] is scheduled.
    timed: bool,
    /// When a packet was last sent or answered.
    progress: Time,
    /// Retries without progress.
    retries: u32,
}

impl Requester {
    /// A requester with an empty send queue; with `signal_all` each request has a completion.
    pub(super) fn new(cap: QpCap, signal_all: bool) -> Self {
        Self {
            cap,
            signal_all,
            slots: Vec::new(),
            head: 0,
            tail: 0,
            rung: 0,
            asked: 0,
            fetched: 0,
            wants_descriptor: false,
            next: 0,
            packet: 0,
            begins_at: Time::ZERO,
            begin_timed: false,
            psn: 0,
            acked: 0,
            used: 0,
            unsignaled: 0,
            reads: VecDeque::new(),
            reads_max: 1,
            gap: false,
            rnr_pause: false,
            rnr_retry: None,
            rnr_retry_of_peer: RNR_RETRY_FOREVER,
            halted: false,
            timed: false,
            progress: Time::ZERO,
            retries: 0,
        }
    }

    /// Sets the receiver-not-ready retry limit; 7 means unlimited. It overrides the peer's limit.
    pub(super) fn set_rnr_retry(&mut self, retries: u8) {
        self.rnr_retry = Some(retries);
    }

    /// Sets the retry limit of the peer's program, which applies if this side's program has set none.
    pub(super) fn set_peer_rnr_retry(&mut self, retries: u8) {
        self.rnr_retry_of_peer = retries;
    }

    /// Sets the number of reads and atomics that may be in flight; at least one.
    pub(super) fn set_reads_max(&mut self, reads: u8) {
        self.reads_max = usize::from(reads.max(1));
    }

    /// The slot of a request.
    fn index(&self, number: u64) -> usize {
        (number % u64::from(self.cap.max_send_wr.max(1))) as usize
    }

    /// A request that is not completed.
    fn wqe(&self, number: u64) -> &Wqe {
        &self.slots[self.index(number)]
    }

    /// A request that is not completed.
    fn wqe_mut(&mut self, number: u64) -> &mut Wqe {
        let index = self.index(number);
        &mut self.slots[index]
    }
}

/// Posting of requests, and how the card learns of them.
impl Requester {
    /// Checks the form of a request.
    pub(super) fn check_form(&self, wr: &SendWr<'_>) -> Result<()> {
        match wr.data {
            Data::Sges(sges) => {
                Error::check_limit("pieces", sges.len() as u64, self.cap.max_send_sge.into())?;
                Error::check_limit("bytes of a message", total(sges), limits::MESSAGE_BYTES)
            }
            Data::Inline(bytes) => {
                Error::check_limit("inline bytes", bytes.len() as u64, self.cap.max_inline.into())
            }
        }
    }

    /// Checks whether there is room for another request.
    pub(super) fn check_room(&self) -> Result<()> {
        let depth = self.cap.max_send_wr;
        if self.used >= depth { Err(Error::QueueFull { queue: "send", depth }) } else { Ok(()) }
    }

    /// Adds a request that has been checked.
    pub(super) fn post(&mut self, wr: &SendWr<'_>) {
        let index = self.index(self.tail);
        (self.tail, self.used) = (self.tail + 1, self.used + 1);
        if index == self.slots.len() {
            self.slots.push(Wqe::default());
        }
        let slot = &mut self.slots[index];
        let (mut sges, mut inline) = (std::mem::take(&mut slot.sges), std::mem::take(&mut slot.inline));
        sges.clear();
        inline.clear();
        let len = match wr.data {
            Data::Sges(list) => {
                sges.extend_from_slice(list);
                total(list)
            }
            Data::Inline(bytes) => {
                inline.extend_from_slice(bytes);
                bytes.len() as u64
            }
        };
        *slot = Wqe {
            wr_id: wr.wr_id,
            op: Some(wr.op),
            sges,
            inline,
            signaled: wr.flags.contains(SendFlags::SIGNALED),
            solicited: wr.flags.contains(SendFlags::SOLICITED),
            fence: wr.flags.contains(SendFlags::FENCE),
            len,
            ..Wqe::default()
        };
    }

    /// Frees slots whose completions were polled.
    pub(super) fn free(&mut self, slots: u32) {
        self.used -= slots;
    }

    /// The card learns of another request.
    pub(super) fn count_doorbell(&mut self) {
        self.rung += 1;
    }

    /// Whether the queue pair newly has a descriptor to fetch, if the card fetches `ahead` in advance.
    pub(super) fn queue_descriptor(&mut self, ahead: u64) -> bool {
        let begins = !self.wants_descriptor && self.asked < self.rung && self.asked < self.next + ahead;
        self.wants_descriptor |= begins;
        begins
    }

    /// Requests the next descriptor: the SGEs and inline bytes of its request, if there still is one.
    pub(super) fn next_descriptor(&mut self) -> Option<(usize, usize)> {
        self.wants_descriptor = false;
        if self.asked >= self.rung {
            return None;
        }
        let wqe = self.wqe(self.asked);
        let size = (wqe.sges.len(), wqe.inline.len());
        self.asked += 1;
        Some(size)
    }

    /// Maximum number of SGEs of a request.
    pub(super) fn max_sge(&self) -> u32 {
        self.cap.max_send_sge
    }

    /// The oldest requested descriptor has arrived; false if it was flushed meanwhile.
    pub(super) fn on_descriptor_fetched(&mut self) -> bool {
        let awaited = self.fetched < self.asked;
        self.fetched += u64::from(awaited);
        awaited
    }
}

/// Cutting of requests into packets.
impl Requester {
    /// Whether some posted request is not yet sent, or has to be sent again.
    pub(super) fn has_more(&self) -> bool {
        self.next < self.tail
    }

    /// The oldest request that is not completed.
    pub(super) fn oldest(&self) -> u64 {
        self.head
    }

    /// A request has begun: the next one cannot begin before this time.
    pub(super) fn on_begun(&mut self, next_at: Time) {
        self.begins_at = next_at;
    }

    /// Reserves the next start time for a message of the peer, which takes `turn`; returns that time.
    pub(super) fn reserve_begin(&mut self, now: Time, turn: Span) -> Time {
        let at = self.begins_at.max(now);
        self.begins_at = at + turn;
        at
    }

    /// The scheduled time at which the next request can begin has come.
    pub(super) fn begin_due(&mut self) {
        self.begin_timed = false;
    }

    /// Whether descriptors beyond that of the next request were requested.
    pub(super) fn is_ahead(&self) -> bool {
        self.asked > self.next
    }

    /// When the next request can begin, if it cannot yet, and whether the caller has to schedule that.
    pub(super) fn next_begin(&mut self, now: Time) -> Option<(Time, bool)> {
        if self.begins_at <= now {
            self.begin_timed = false;
            return None;
        }
        let begins = self.next < self.fetched && self.wqe(self.next).psn.is_none();
        begins.then(|| (self.begins_at, !std::mem::replace(&mut self.begin_timed, true)))
    }

    /// The next packet, based on `base`; and whether requests were skipped because no part of them has to be
    /// sent again.
    pub(super) fn next_packet(
        &mut self,
        now: Time,
        rules: &TransportSettings,
        (protection, domain): (&Protection, u32),
        (base, mtu): (Packet, u64),
    ) -> (std::result::Result<Option<Outgoing>, RequestFailed>, bool) {
        let mut skipped = false;
        loop {
            if self.rnr_pause || self.next >= self.fetched {
                return (Ok(None), skipped);
            }
            let (number, acked) = (self.next, self.acked);
            let wqe = self.wqe(number);
            if !wqe.is_sent(acked) {
                break;
            }
            (self.next, self.packet, skipped) = (number + 1, 0, true);
        }
        let number = self.next;
        // After a failed request none begins; those before it may have to be sent again.
        let wqe = self.wqe(number);
        let begins = wqe.psn.is_none();
        if self.halted && (begins || wqe.failed.is_some()) {
            return (Ok(None), skipped);
        }
        if begins {
            if !self.may_begin(rules, number) {
                return (Ok(None), skipped);
            }
            if let Err(status) = self.begin(rules, mtu, (protection, domain)) {
                self.fail(number, status);
                return (Err(RequestFailed), skipped);
            }
        }
        let outgoing = self.packet_of(number, rules.splits_notice, mtu, Packet { begins, ..base });
        self.progress = now;
        if outgoing.ends {
            (self.next, self.packet) = (number + 1, 0);
        }
        (Ok(Some(outgoing)), skipped)
    }

    /// Whether a request may begin: limits of requests in progress and of open reads, and fences, can delay it.
    fn may_begin(&self, rules: &TransportSettings, number: u64) -> bool {
        let (wqe, reads) = (self.wqe(number), self.reads.len());
        // Earlier requests that have begun and are not completed.
        let full = number - self.head >= rules.begun_max;
        !(full || (wqe.fence && reads > 0) || (wqe.fetches() && reads >= self.reads_max))
    }

    /// Assigns packet numbers to the next request, unless it must fail.
    fn begin(
        &mut self,
        rules: &TransportSettings,
        mtu: u64,
        (protection, domain): (&Protection, u32),
    ) -> std::result::Result<(), WcStatus> {
        let (number, psn) = (self.next, self.psn);
        let wqe = self.wqe_mut(number);
        let need = if wqe.fetches() { Access::LOCAL_WRITE } else { Access::empty() };
        let atomic = wqe.op.is_some_and(SendOp::is_atomic);
        if atomic && wqe.len != 8 {
            return Err(WcStatus::LocLenErr);
        }
        if !protection.may_use(domain, &wqe.sges, need) {
            return Err(WcStatus::LocProtErr);
        }
        let notice = u64::from(rules.splits_notice && matches!(wqe.op, Some(SendOp::WriteImm(..))));
        let packets = if atomic { 1 } else { wqe.len.div_ceil(mtu).max(1) } + notice;
        (wqe.psn, wqe.packets) = (Some(psn), packets);
        let fetches = wqe.fetches();
        (self.psn, self.packet) = (psn + packets, 0);
        if fetches {
            self.reads.push_back(number);
        }
        Ok(())
    }

    /// The next packet of a request that has begun. With `split` a write with immediate data becomes a write
    /// and a message without data.
    fn packet_of(&mut self, number: u64, split: bool, mtu: u64, base: Packet) -> Outgoing {
        let (sent, acked) = (self.packet, self.acked);
        let wqe = self.wqe(number);
        let (op, psn) = (wqe.op.unwrap_or(SendOp::Send), wqe.psn.unwrap_or(0));
        let (total, solicited) = (wqe.len, wqe.solicited);
        let base = Packet { body: Body::Request(op), total, solicited, ..base };
        if wqe.fetches() {
            // Packets that have arrived are not requested again.
            let (psn, offset) = (psn + wqe.arrived, wqe.arrived * mtu);
            let packet = Packet { psn, offset, first: true, last: true, ..base };
            return Outgoing { packet, source: Source::Nowhere, ends: true };
        }
        // Acknowledged packets are not sent again either.
        let index = sent.max(acked.saturating_sub(psn));
        let (offset, last) = ((index * mtu).min(total), index + 1 == wqe.packets);
        self.packet = index + 1;
        let len = mtu.min(total - offset);
        let mut packet = Packet { psn: psn + index, offset, len, first: index == 0, last, ..base };
        match op {
            SendOp::WriteImm(remote, _) if split && !last => {
                packet.body = Body::Request(SendOp::Write(remote));
            }
            SendOp::WriteImm(..) if split => packet.begins = true,
            _ => {}
        }
        Outgoing { packet, source: Source::Request(number), ends: last }
    }

    /// Puts the memory of a packet of this request into `out`; returns whether it permits this access.
    pub(super) fn extents(
        &self,
        number: u64,
        range: (u64, u64),
        need: Access,
        (protection, domain): (&Protection, u32),
        out: &mut Vec<Extent>,
    ) -> bool {
        protection.own_extents(domain, &self.wqe(number).sges, range, need, out)
    }

    /// The inline data of a request.
    pub(super) fn inline(&self, number: u64) -> &[u8] {
        &self.wqe(number).inline
    }

    /// A packet that needs an answer was sent: returns when to check for it, unless a check is scheduled.
    pub(super) fn expect_answer(&mut self, now: Time, rules: &TransportSettings) -> Option<Time> {
        (!std::mem::replace(&mut self.timed, true)).then(|| now + rules.retry_timeout)
    }

    /// Retransmits from this packet on.
    fn rewind(&mut self, psn: u64) {
        for number in self.head..self.next.saturating_add(1).min(self.tail) {
            let wqe = self.wqe(number);
            let Some(first) = wqe.psn else { return };
            if first + wqe.packets > psn {
                let packet = if wqe.fetches() { 0 } else { psn.saturating_sub(first) };
                if (number, packet) < (self.next, self.packet) {
                    (self.next, self.packet) = (number, packet);
                }
                return;
            }
        }
    }
}

/// Acknowledgements, responses, and their absence.
impl Requester {
    /// Whether this packet may be acknowledged.
    pub(super) fn has_sent(&self, psn: u64) -> bool {
        psn <= self.psn
    }

    /// Packets below this number are acknowledged; returns whether this is new.
    pub(super) fn acknowledge(&mut self, now: Time, psn: u64) -> bool {
        let is_new = psn > self.acked;
        if is_new {
            (self.acked, self.progress, self.retries) = (psn, now, 0);
        }
        is_new
    }

    /// The request with this packet failed at the peer; all earlier packets are placed.
    pub(super) fn reject(&mut self, psn: u64, status: WcStatus) {
        self.acked = self.acked.max(psn);
        for number in self.head..self.tail {
            let wqe = self.wqe(number);
            let Some(first) = wqe.psn else { break };
            if (first..first + wqe.packets).contains(&psn) {
                return self.fail(number, status);
            }
        }
    }

    /// Fails this request: it completes with this status in its turn, and no later request begins.
    pub(super) fn fail(&mut self, number: u64, status: WcStatus) {
        self.wqe_mut(number).failed = Some(status);
        self.halted = true;
    }

    /// The responder has no receive for the message with this packet.
    pub(super) fn receiver_not_ready(&mut self, now: Time, psn: u64) -> Rnr {
        if psn < self.acked || self.rnr_pause {
            return Rnr::Stale;
        }
        self.rewind(psn);
        if self.next == self.tail {
            return Rnr::Stale;
        }
        let (number, retries) = (self.next, self.rnr_retry.unwrap_or(self.rnr_retry_of_peer));
        let wqe = self.wqe_mut(number);
        if retries < RNR_RETRY_FOREVER && wqe.rnr_retries >= retries {
            self.fail(number, WcStatus::RnrRetryExcErr);
            return Rnr::Failed;
        }
        wqe.rnr_retries = wqe.rnr_retries.saturating_add(1);
        (self.rnr_pause, self.progress, self.retries) = (true, now, 0);
        Rnr::Pause
    }

    /// The pause after a receiver-not-ready answer has ended.
    pub(super) fn resume(&mut self, now: Time) {
        (self.rnr_pause, self.progress) = (false, now);
    }

    /// The responder misses this packet; returns whether to retransmit it.
    pub(super) fn on_missing(&mut self, now: Time, psn: u64) -> bool {
        let resend = psn >= self.acked && !self.rnr_pause;
        if resend {
            self.progress = now;
            self.rewind(psn);
        }
        resend
    }

    /// A packet of a response has arrived, from the peer if `known`.
    pub(super) fn on_response(&mut self, now: Time, psn: u64, known: bool) -> Response {
        let waits = |&request: &u64| self.wqe(request).arrived < self.wqe(request).packets;
        let request = self.reads.iter().copied().find(waits);
        let expected = request.and_then(|request| self.wqe(request).expects());
        if let Some(request) = request.filter(|_| known && expected == Some(psn)) {
            self.wqe_mut(request).arrived += 1;
            (self.gap, self.progress, self.retries) = (false, now, 0);
            return Response::Take(request);
        }
        let missing = expected.filter(|&missing| missing < psn && !self.rnr_pause && !self.gap);
        if let Some(missing) = missing {
            self.gap = true;
            self.rewind(missing);
        }
        Response::Drop { resend: missing.is_some() }
    }

    /// Whether a request still awaits its response.
    pub(super) fn awaits(&self, request: u64) -> bool {
        request >= self.head
    }

    /// A packet of a response is in memory, if that was `found`.
    pub(super) fn on_response_placed(&mut self, request: u64, psn: u64, found: bool) -> ResponseProgress {
        if !found {
            self.fail(request, WcStatus::LocProtErr);
            return ResponseProgress::Failed;
        }
        let wqe = self.wqe_mut(request);
        if wqe.psn.map(|first| first + wqe.packets) != Some(psn + 1) {
            return ResponseProgress::Part;
        }
        wqe.answered = true;
        self.reads.retain(|read| *read != request);
        ResponseProgress::Whole
    }

    /// Checks whether answers are overdue; `alive`: neither the connection nor the card has failed.
    pub(super) fn check_answers(
        &mut self,
        now: Time,
        rules: &TransportSettings,
        alive: bool,
    ) -> AnswerStatus {
        let timeout = rules.retry_timeout;
        self.timed = alive && self.head < self.tail && self.wqe(self.head).psn.is_some();
        if !self.timed {
            return AnswerStatus::Idle;
        }
        if self.rnr_pause || self.progress + timeout > now {
            let since = if self.rnr_pause { now } else { self.progress };
            return AnswerStatus::CheckAt(since + timeout);
        }
        self.retries += 1;
        if self.retries > rules.retry_max {
            self.fail(self.head, WcStatus::RetryExcErr);
            return AnswerStatus::Failed;
        }
        self.progress = now;
        let unanswered =
            self.reads.iter().map(|&read| self.wqe(read)).filter(|wqe| wqe.arrived < wqe.packets);
        let oldest = unanswered.filter_map(Wqe::expects).min();
        self.rewind(oldest.map_or(self.acked, |psn| psn.min(self.acked)));
        AnswerStatus::Resend(now + timeout)
    }
}

/// Completion of requests, in the order of posting.
impl Requester {
    /// Removes the oldest request, if it has completed or failed.
    pub(super) fn retire_oldest(&mut self) -> Option<FinishedRequest> {
        if self.head == self.tail {
            return None;
        }
        let (number, wqe) = (self.head, self.wqe(self.head));
        let (failed, done) = (wqe.failed, wqe.is_done(self.acked));
        if failed.is_none() && !done {
            return None;
        }
        let bytes = if wqe.fetches() { wqe.len as u32 } else { 0 };
        self.head += 1;
        if self.next < self.head {
            (self.next, self.packet) = (self.head, 0);
        }
        let completion = self.completion(number, failed.unwrap_or_default(), bytes);
        Some(FinishedRequest { completion, failed: failed.is_some() })
    }

    /// The completion of a request, if it is signaled or failed.
    fn completion(&mut self, number: u64, status: WcStatus, byte_len: u32) -> Option<(Wc, u32)> {
        self.unsignaled += 1;
        let wqe = self.wqe(number);
        if !(self.signal_all || wqe.signaled || status != WcStatus::Success) {
            return None;
        }
        let wc = Wc {
            wr_id: wqe.wr_id,
            status,
            opcode: wqe.op.map_or(WcOpcode::Send, SendOp::opcode),
            byte_len,
            ..Wc::default()
        };
        Some((wc, std::mem::take(&mut self.unsignaled)))
    }

    /// Removes all requests of a queue pair in the error state; returns their completions.
    pub(super) fn flush(&mut self) -> impl Iterator<Item = (Wc, u32)> {
        let flushed = self.head..self.tail;
        (self.head, self.next, self.packet) = (self.tail, self.tail, 0);
        (self.asked, self.fetched, self.rung) = (self.tail, self.tail, self.tail);
        self.reads.clear();
        flushed.filter_map(|number| self.completion(number, WcStatus::WrFlushErr, 0))
    }

    /// Drops all requests of a destroyed queue pair.
    pub(super) fn clear(&mut self) {
        self.head = self.tail;
    }
}

/// The bytes of all elements.
fn total(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use verbs::{Buf, RemoteAddr};

    const NOW: Time = Time::ZERO;
    const MTU: u64 = 2048;
    const REMOTE: RemoteAddr = RemoteAddr { addr: 1 << 20, rkey: 9 };

    /// A requester whose card learns of requests immediately, with memory to send.
    struct Bench {
        requester: Requester,
        rules: TransportSettings,
        protection: Protection,
        memory: Sge,
    }

    impl Bench {
        fn new() -> Self {
            let params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
            let (mut protection, buf) =
                (Protection::new(0, crate::config::Payload::Bytes), Buf::alloc(1 << 16).expect("memory"));
            let (lkey, addr) = protection.register((1, 0), 1, &buf, Access::LOCAL_WRITE).expect("a region");
            let cap = QpCap { max_send_wr: 8, ..QpCap::default() };
            let memory = Sge { addr, length: 0, lkey };
            let (requester, rules) = (Requester::new(cap, false), TransportSettings::new(&params));
            Self { requester, rules, protection, memory }
        }

        fn post(&mut self, wr_id: u64, op: SendOp, length: u32) {
            self.requester.check_room().expect("room");
            self.requester.post(&SendWr::new(wr_id, op, &[Sge { length, ..self.memory }]));
            self.requester.count_doorbell();
            assert!(self.requester.next_descriptor().is_some() && self.requester.on_descriptor_fetched());
        }

        /// The numbers of the packets that can be sent now.
        fn sends(&mut self) -> Vec<u64> {
            let mut next = || {
                let (memory, base) = ((&self.protection, 1), (Packet::default(), MTU));
                self.requester.next_packet(NOW, &self.rules, memory, base).0.expect("nothing fails")
            };
            std::iter::from_fn(|| next().map(|outgoing| outgoing.packet.psn)).collect()
        }

        /// The requests that have ended: number and status, if they have a completion.
        fn retires(&mut self) -> Vec<Option<(u64, WcStatus)>> {
            let retired = std::iter::from_fn(|| self.requester.retire_oldest());
            retired.map(|retired| retired.completion.map(|(wc, _)| (wc.wr_id, wc.status))).collect()
        }
    }

    #[test]
    fn next_request_waits_for_its_start_time() {
        let mut bench = Bench::new();
        bench.post(1, SendOp::Send, 5000);
        let later = NOW + Span::from_ns(700);
        assert_eq!(bench.requester.next_begin(NOW), None);
        assert_eq!(bench.sends(), [0, 1, 2]);
        bench.requester.on_begun(later);
        assert_eq!(bench.requester.next_begin(NOW), None, "there is none");
        bench.post(2, SendOp::Send, 8);
        assert_eq!(bench.requester.next_begin(NOW), Some((later, true)));
        assert_eq!(bench.requester.next_begin(NOW), Some((later, false)), "one event is enough");
        assert_eq!(bench.requester.next_begin(later), None);
        assert_eq!(bench.sends(), [3]);
    }

    #[test]
    fn messages_are_cut_and_complete_in_order() {
        let mut bench = Bench::new();
        bench.post(1, SendOp::Send, 5000);
        bench.post(2, SendOp::Write(REMOTE), 10);
        assert_eq!(bench.sends(), [0, 1, 2, 3]);
        assert!(bench.requester.acknowledge(NOW, 2) && !bench.requester.acknowledge(NOW, 2));
        assert!(bench.retires().is_empty(), "a part of the first");
        bench.requester.acknowledge(NOW, 4);
        let done = [1, 2].map(|wr_id| Some((wr_id, WcStatus::Success)));
        assert_eq!(bench.retires(), done);
    }

    #[test]
    fn missing_packet_is_retransmitted_with_all_later_ones() {
        let mut bench = Bench::new();
        bench.post(1, SendOp::Send, 5000);
        bench.post(2, SendOp::Send, 10);
        assert_eq!(bench.sends(), [0, 1, 2, 3]);
        assert!(bench.requester.on_missing(NOW, 1));
        assert_eq!(bench.sends(), [1, 2, 3]);
        bench.requester.acknowledge(NOW, 3);
        assert!(!bench.requester.on_missing(NOW, 2), "it has been acknowledged since");
    }

    #[test]
    fn rnr_retries_stop_at_the_limit() {
        let mut bench = Bench::new();
        bench.requester.set_rnr_retry(1);
        bench.post(1, SendOp::Send, 10);
        assert_eq!(bench.sends(), [0]);
        assert_eq!(bench.requester.receiver_not_ready(NOW, 0), Rnr::Pause);
        assert_eq!(bench.requester.receiver_not_ready(NOW, 0), Rnr::Stale, "it pauses already");
        assert!(bench.sends().is_empty());
        bench.requester.resume(NOW);
        assert_eq!(bench.sends(), [0]);
        assert_eq!(bench.requester.receiver_not_ready(NOW, 0), Rnr::Failed);
        assert_eq!(bench.retires(), [Some((1, WcStatus::RnrRetryExcErr))]);
    }

    #[test]
    fn read_completes_when_its_whole_response_is_placed() {
        let mut bench = Bench::new();
        bench.post(1, SendOp::Read(REMOTE), 5000);
        assert_eq!(bench.sends(), [0], "one packet asks for three");
        assert_eq!(bench.requester.on_response(NOW, 1, true), Response::Drop { resend: true });
        assert_eq!(
            bench.requester.on_response(NOW, 2, true),
            Response::Drop { resend: false },
            "asked for already"
        );
        assert_eq!(bench.sends(), [0]);
        for psn in 0..3 {
            assert_eq!(bench.requester.on_response(NOW, psn, true), Response::Take(0));
            let placed = if psn == 2 { ResponseProgress::Whole } else { ResponseProgress::Part };
            assert_eq!(bench.requester.on_response_placed(0, psn, true), placed);
        }
        assert_eq!(bench.retires(), [Some((1, WcStatus::Success))]);
    }

    #[test]
    fn missing_answer_causes_retries_and_then_failure() {
        let mut bench = Bench::new();
        bench.post(1, SendOp::Send, 10);
        assert_eq!(bench.sends(), [0]);
        let at = bench.requester.expect_answer(NOW, &bench.rules).expect("no check is scheduled");
        assert_eq!(bench.requester.expect_answer(NOW, &bench.rules), None);
        let (mut now, mut tries) = (at, 0);
        while let AnswerStatus::Resend(at) = bench.requester.check_answers(now, &bench.rules, true) {
            assert_eq!(bench.sends(), [0]);
            (now, tries) = (at, tries + 1);
        }
        assert_eq!(tries, bench.rules.retry_max);
        assert_eq!(bench.retires(), [Some((1, WcStatus::RetryExcErr))]);
    }

    #[test]
    fn unsignaled_requests_free_their_slots_with_the_next_completion() {
        let mut bench = Bench::new();
        let list = [Sge { length: 8, ..bench.memory }];
        let loud = SendWr::new(1, SendOp::Send, &list);
        [loud.unsignaled(), loud].iter().for_each(|wr| bench.requester.post(wr));
        (0..2).for_each(|_| bench.requester.count_doorbell());
        while bench.requester.next_descriptor().is_some() && bench.requester.on_descriptor_fetched() {}
        assert_eq!(bench.sends(), [0, 1]);
        bench.requester.acknowledge(NOW, 2);
        let [first, second] =
            [(); 2].map(|()| bench.requester.retire_oldest().expect("it is done").completion);
        assert!(first.is_none());
        assert_eq!(second.map(|(_, freed)| freed), Some(2));
    }

    #[test]
    fn messages_of_both_directions_alternate() {
        let mut bench = Bench::new();
        let at = |nanos| NOW + host::Span::from_ns(nanos);
        bench.requester.on_begun(at(100));
        assert_eq!(
            bench.requester.reserve_begin(at(40), host::Span::from_ns(70)),
            at(100),
            "behind the own one"
        );
        assert_eq!(bench.requester.reserve_begin(at(300), host::Span::from_ns(70)), at(300), "at once");
        bench.post(1, SendOp::Send, 10);
        assert_eq!(bench.requester.next_begin(at(300)), Some((at(370), true)));
        assert_eq!(bench.requester.next_begin(at(310)), Some((at(370), false)), "an event is scheduled");
        bench.requester.begin_due();
        assert_eq!(bench.requester.next_begin(at(320)), Some((at(370), true)));
        assert_eq!(bench.requester.next_begin(at(370)), None);
    }

    #[test]
    fn no_request_begins_after_a_failed_one() {
        let mut bench = Bench::new();
        bench.post(1, SendOp::Send, 10);
        bench.post(2, SendOp::Send, 1 << 20);
        bench.post(3, SendOp::Send, 10);
        let mut next = || {
            let (memory, base) = ((&bench.protection, 1), (Packet::default(), MTU));
            bench.requester.next_packet(NOW, &bench.rules, memory, base).0
        };
        assert!(matches!(next(), Ok(Some(_))));
        assert_eq!(next().err(), Some(RequestFailed), "its memory is smaller");
        assert!(matches!(next(), Ok(None)));
        assert!(bench.retires().is_empty(), "the first comes first");
        bench.requester.acknowledge(NOW, 1);
        assert_eq!(bench.retires(), [Some((1, WcStatus::Success)), Some((2, WcStatus::LocProtErr))]);
        assert_eq!(bench.requester.flush().map(|(wc, _)| wc.wr_id).collect::<Vec<_>>(), [3]);
    }
}
