//! Data path: one connection: its socket, the protocol's state machine, and the sending and receiving halves that use
//! both.

use std::os::fd::AsFd;
use std::sync::Arc;

use host::{Span, Time};
use iwarp::mpa::{MULPDU_MAX, MULPDU_MIN, Negotiated, Revision, Role, Rtr, mulpdu_for};
use iwarp::rx::Event;
use iwarp::{Connection, Limits};
use rustix::io::Errno;
use verbs::{CmEvent, ConnInfo, ConnParam};

use crate::config::{Completion, FpduSize};
use crate::connection::context::QpContext;
use crate::connection::end_reason::EndReason;
use crate::connection::failure;
use crate::connection::poll_owner::{EventUse, PollOwner, WantedEvents};
use crate::memory::place::segment_len;
use crate::queues::cm_events::CmEvents;
use crate::queues::qp_queues::{QpQueues, state};
use crate::receive::recv_half::RecvHalf;
use crate::send::send_half::{PendingResponses, SendHalf};
use crate::shared::{DeviceShared, protocol_time};
use crate::tcp::keepalive;
use crate::tcp::socket::make_port_reusable;
use crate::wake::ready::Driver;
use nic_util::fork::ForkSafeFd;

/// Operations that the state machine may queue: those of one request, a flush marker, and a first message or
/// announcement.
const MACHINE_QUEUE: usize = 4;
/// The largest FPDU with a CRC in bytes, unless a size is configured. Two such FPDUs are copied and sent together.
/// With 65,535 bytes they needed a third TCP segment of a few bytes on loopback, and streams reached 5.3 GB/s instead
/// of 7.3.
const CRC_FPDU_LEN: u32 = 60_000;

/// An initiator repeats a message to a peer that has not sent anything: first after this time, at most this often,
/// each pause four times the one before. Linux siw may overlook data right behind its reply until more arrives
/// (docs/results/interop.md).
const REPEAT_AFTER: Span = Span::from_ms(50);
const REPEATS_MAX: u32 = 4;

/// Repeated messages to a peer that has not sent anything.
struct FirstMessageRepeats {
    left: u32,
    due: Time,
    pause: Span,
}

/// A connection: its socket, its state machine and its two halves.
pub(crate) struct ActiveConn {
    socket: ForkSafeFd,
    machine: Connection,
    receiving: RecvHalf,
    sending: SendHalf,
    poll_owner: PollOwner,
    events: Arc<CmEvents>,
    /// On a device with many connections: how many further polls include this one without an epoll event.
    polls_left: u32,
    /// The connection is queued for the next poll.
    has_next_poll: bool,
    /// Content of the `Established` event that is due when the peer has sent its first message; `None` once reported.
    pending_info: Option<ConnInfo>,
    /// Since when the peer's host has owed an acknowledgement.
    unacked_since: Option<Time>,
    repeats: FirstMessageRepeats,
}

impl ActiveConn {
    /// Makes a connection after the handshake; `rest` are the bytes that followed it.
    pub(crate) fn new(
        shared: &DeviceShared,
        socket: ForkSafeFd,
        negotiated: &Negotiated,
        events: Arc<CmEvents>,
        param: &ConnParam,
        rest: &[u8],
    ) -> Self {
        let mulpdu = match shared.config.fpdu {
            FpduSize::Largest if negotiated.crc => mulpdu_for(CRC_FPDU_LEN),
            FpduSize::Largest => MULPDU_MAX,
            FpduSize::Segment => segment_len(socket.as_fd()).map_or(MULPDU_MIN, mulpdu_for),
            FpduSize::Bytes(bytes) => mulpdu_for(bytes.into()),
        };
        let limits = Limits { queue: MACHINE_QUEUE, mulpdu, rtr_timeout: param.timeout.to_std() };
        let passive = negotiated.role == Role::Responder;
        // Whether flush markers may be sent to this peer. In revision 1 siw cannot be recognized: the program sets
        // `complete=sent`, or loses the connection rather than a message.
        let uses_markers = negotiated.answers_empty_reads() && shared.config.completion == Completion::Placed;
        let mut negotiated = negotiated.clone();
        if negotiated.revision == Revision::V1 && !uses_markers {
            // Nothing was negotiated: only the program knows how many reads the peer serves.
            negotiated.ord = negotiated.ord.min(param.initiator_depth.into());
        }
        let greeting = negotiated.rtr == Some(Rtr::Send);
        let first_send = if !passive && greeting { 2 } else { 1 };
        let socket = shared.through_relay(socket);
        Self {
            socket,
            machine: Connection::new(&negotiated, &limits, protocol_time(shared.host.now())),
            receiving: RecvHalf::new(param.rnr_retry, passive && greeting, rest),
            sending: SendHalf::new(uses_markers, negotiated.ord, first_send),
            poll_owner: PollOwner::default(),
            events,
            polls_left: 0,
            has_next_poll: false,
            pending_info: None,
            unacked_since: None,
            repeats: FirstMessageRepeats { left: 0, due: Time::ZERO, pause: REPEAT_AFTER },
        }
    }

    /// Delays the `Established` event until the peer has sent its first message.
    pub(crate) fn delay_established(mut self, info: ConnInfo) -> Self {
        self.pending_info = Some(info);
        self
    }

    /// Sends a first message that the peer waits for and nothing else would send.
    pub(crate) fn send_first_message(&mut self) {
        self.sending.send_first_message(&mut self.machine);
    }

    /// Announces the RNR retry limit to the peer, if the peer may understand it.
    pub(crate) fn announce_rnr_limit(&mut self, retries: u8) {
        if self.machine.may_announce_rnr_limit() {
            self.sending.announce_rnr_limit(retries);
        }
    }

    /// Whether a message of the peer waits for a receive.
    pub(crate) fn is_rnr(&self) -> bool {
        self.receiving.is_rnr()
    }

    /// Whether a message of the peer waits for memory for its rest.
    pub(crate) fn awaits_rest(&self) -> bool {
        self.receiving.awaits_rest()
    }

    /// Whether requests just posted should wait, to be sent in one batch.
    #[inline]
    pub(crate) fn holds_back(&self, queues: &QpQueues) -> bool {
        self.sending.holds_back(queues)
    }

    pub(crate) fn poll_owner(&mut self) -> &mut PollOwner {
        &mut self.poll_owner
    }

    /// See [`PollOwner::on_event`].
    pub(crate) fn on_event(&mut self, queues: &QpQueues) -> EventUse {
        self.poll_owner.on_event(self.socket.as_fd(), queues)
    }

    /// Receives what has arrived and sends what is queued.
    pub(crate) fn progress(&mut self, queues: &QpQueues, driver: Driver) -> Result<(), EndReason> {
        let polls = driver != Driver::Other;
        match driver {
            Driver::Requeued => self.has_next_poll = false,
            // The next poll includes this connection and will find what epoll reported.
            Driver::Notified if self.has_next_poll => return Ok(()),
            Driver::Notified | Driver::Poller | Driver::Other => {}
        }
        if polls {
            self.polls_left = self.polls_left.saturating_sub(1);
            self.poll_owner.on_poll(self.socket.as_fd(), queues);
        }
        let any = self.receive(queues)?;
        if any && polls && self.polls_left > 1 {
            self.poll_owner.on_poll_data(self.socket.as_fd(), queues);
        }
        if polls && self.may_defer_work() && self.sending.may_wait(queues, any) {
            return Ok(());
        }
        self.transmit(queues)
    }

    #[inline]
    fn may_defer_work(&self) -> bool {
        self.poll_owner.may_defer_work(self.polls_left > 0)
    }

    /// Sends what is queued.
    #[inline]
    pub(crate) fn transmit(&mut self, queues: &QpQueues) -> Result<(), EndReason> {
        let is_last_chance = !self.may_defer_work();
        let mut cx = QpContext { machine: &mut self.machine, socket: self.socket.as_fd(), queues };
        self.sending.transmit(&mut cx, is_last_chance)
    }

    /// Receives what has arrived; returns whether there was anything.
    pub(crate) fn receive(&mut self, queues: &QpQueues) -> Result<bool, EndReason> {
        self.receiving.begin_turn();
        let result = self.receive_turn(queues);
        let bytes = self.receiving.end_turn(queues);
        if bytes > 0 {
            queues.count_receive_progress();
            // More may follow.
            self.polls_left = queues.shared.ready_set.polls_after_data();
            queues.shared.ready_set.count_bytes(bytes);
        }
        result.map(|()| bytes > 0)
    }

    /// Receives and handles all events of a turn. Answers requests in the middle of a long turn, so that the peer does not wait.
    fn receive_turn(&mut self, queues: &QpQueues) -> Result<(), EndReason> {
        loop {
            let mut cx = QpContext { machine: &mut self.machine, socket: self.socket.as_fd(), queues };
            match self.receiving.next(&mut cx)? {
                Some(event) => {
                    self.deliver(queues, &event)?;
                    if self.receiving.is_long_turn() {
                        self.send_responses(queues)?;
                    }
                }
                None => return Ok(()),
            }
        }
    }

    /// Sends in the middle of a turn. If the stream is broken, ignore that: the reason may be in the data still to be
    /// read.
    fn send_responses(&mut self, queues: &QpQueues) -> Result<(), EndReason> {
        self.transmit(queues)
            .or_else(|end| if matches!(end, EndReason::Broken(_)) { Ok(()) } else { Err(end) })
    }

    /// Handles an event that does not concern the receiving half alone.
    fn deliver(&mut self, queues: &QpQueues, event: &Event) -> Result<(), EndReason> {
        match *event {
            Event::Ready => self.ready(queues),
            Event::ReadRequest(request) if request.len == 0 => {
                self.sending.add_response(PendingResponses::Short)
            }
            Event::ReadRequest(_) | Event::AtomicRequest(_) => {
                self.sending.add_response(PendingResponses::Long)
            }
            Event::ReadDone { id } => self.sending.on_answered(queues, id),
            Event::AtomicDone { id, original } => self.sending.on_atomic_answered(queues, id, original)?,
            Event::RtrDone => self.sending.on_rtr_answered(),
            Event::Terminated(terminate) => return Err(EndReason::Terminated(terminate)),
            // The receiving half has handled it.
            Event::Received(_) => {}
        }
        Ok(())
    }

    /// The peer has sent its first message.
    pub(crate) fn ready(&mut self, queues: &QpQueues) {
        if let Some(info) = self.pending_info.take_if(|_| queues.advance(state::RTR, state::RTS)) {
            let (qp_num, private_data) = (queues.num, Vec::new());
            self.events.push(CmEvent::Established { qp_num, private_data, info });
        }
    }

    /// Ensures that the next arrival is noticed.
    #[inline]
    pub(crate) fn ensure_notified(&mut self, queues: &QpQueues) {
        let blocked = self.sending.is_blocked();
        if blocked || !self.receiving.awaits_rest() {
            let wanted = WantedEvents {
                data: !self.receiving.is_rnr() && !self.receiving.awaits_rest(),
                close: !self.receiving.awaits_rest(),
                room: blocked,
            };
            self.poll_owner.ensure_notified(self.socket.as_fd(), queues, wanted);
        }
        if !self.poll_owner.is_listed() || self.has_next_poll {
            return;
        }
        if self.polls_left > 0 || blocked {
            self.has_next_poll = true;
            queues.shared.ready_set.requeue(queues.num, Driver::Requeued);
        } else {
            self.poll_owner.on_poll_idle(self.socket.as_fd(), queues);
        }
    }

    /// Schedules repeated messages, because the peer may overlook the initiator's first one.
    pub(crate) fn schedule_first_message_repeats(&mut self, queues: &QpQueues) {
        let due = queues.shared.host.now() + REPEAT_AFTER;
        self.repeats = FirstMessageRepeats { left: REPEATS_MAX, due, pause: REPEAT_AFTER };
        queues.shared.reactor.set_timer(due, queues.num);
    }

    /// A timer has expired.
    pub(crate) fn on_timer(&mut self, queues: &QpQueues, now: Time) -> Result<(), EndReason> {
        self.machine.handle_timeout(protocol_time(now)).map_err(|_| EndReason::FirstMessageTimeout)?;
        self.repeat_first_message(queues, now);
        self.progress(queues, Driver::Other)
    }

    /// Sends a zero-length write, which changes nothing, if it is due and the peer has sent nothing yet.
    fn repeat_first_message(&mut self, queues: &QpQueues, now: Time) {
        let repeats = &mut self.repeats;
        if repeats.left == 0 || now < repeats.due {
            return;
        }
        if self.receiving.has_received() {
            repeats.left = 0;
            return;
        }
        repeats.pause = repeats.pause * 4;
        (repeats.left, repeats.due) = (repeats.left - 1, now + repeats.pause);
        if repeats.left > 0 {
            queues.shared.reactor.set_timer(repeats.due, queues.num);
        }
        self.send_first_message();
    }

    /// Checks that the peer's host still acknowledges; fails if it has been silent for too long.
    pub(crate) fn check_keepalive(&mut self, now: Time, silence: Span) -> Result<(), EndReason> {
        self.unacked_since = keepalive::unacked_since(self.socket.as_fd(), self.unacked_since, now);
        match self.unacked_since {
            Some(since) if now.since(since) >= silence => Err(EndReason::Broken(Errno::TIMEDOUT)),
            _ => Ok(()),
        }
    }

    /// Ends the connection: sends the last bytes, flushes the queues and reports the end. The queue pair is in the
    /// error state.
    pub(crate) fn end(mut self, queues: &QpQueues, end: &EndReason) {
        let rest = end.terminate_to_send().and_then(|code| {
            let mut cx = QpContext { machine: &mut self.machine, socket: self.socket.as_fd(), queues };
            self.sending.send_last_bytes(&mut cx, code)
        });
        let failed = self.sending.failed_request(queues, end, self.machine.receipt());
        queues.record_failure(failure::explain(queues, end, failed));
        self.receiving.end_with(queues, end.receive_status());
        queues.flush(failed);
        let (shared, qp_num) = (&queues.shared, queues.num);
        shared.record_ended(qp_num);
        make_port_reusable(&self.socket);
        self.poll_owner.stop(self.socket.as_fd(), shared);
        if let Some(event) = end.async_event(qp_num) {
            shared.async_event(event);
        }
        if !queues.is_dropped() {
            self.events.push(match self.pending_info.is_none() {
                true => CmEvent::Disconnected { qp_num },
                false => CmEvent::ConnectFailed { qp_num, why: end.connect_failure() },
            });
        }
        if let Some(rest) = rest {
            shared.linger(self.socket, rest);
        }
    }
}
