//! Completions: entries on their way to their queue, events for those who sleep, flushing, and the end of a queue pair.

use host::Time;
use verbs::{AsyncEvent, CmFailure, QpState, SendOp, Wc, WcOpcode, WcStatus};

use super::connect::Message;
use super::event::Event;
use super::state::State;
use super::tables::{Entry, Slots, Told};

fn opcode(op: Option<SendOp>) -> WcOpcode {
    match op {
        Some(SendOp::Write(_) | SendOp::WriteImm(..)) => WcOpcode::Write,
        Some(SendOp::Read(_)) => WcOpcode::Read,
        Some(SendOp::CompareSwap { .. }) => WcOpcode::CompareSwap,
        Some(SendOp::FetchAdd { .. }) => WcOpcode::FetchAdd,
        _ => WcOpcode::Send,
    }
}

impl State {
    /// Writes a completion entry.
    fn complete(&mut self, now: Time, key: u32, entry: Entry) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        let c = &mut self.cards[queue.card];
        if c.dead || queue.overrun {
            return;
        }
        queue.written.push_back(entry);
        let behind_data = matches!(entry.wc.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm);
        let seen = c.completion.write(now, behind_data, &mut c.bus, &c.dma);
        self.at(seen, Event::Entry(key));
    }

    /// The processor sees a queue's next entry.
    pub(super) fn entry(&mut self, now: Time, key: u32) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        let Some(entry) = queue.written.pop_front().filter(|_| !queue.overrun) else { return };
        let card = queue.card;
        if queue.entries.len() >= queue.cqe as usize {
            queue.overrun = true;
            let context = queue.context;
            let dead = self.pairs.iter().filter(|(_, pair)| pair.send_cq == key || pair.recv_cq == key);
            self.doomed.extend(dead.map(|(qp, _)| qp));
            return self.happens(context, AsyncEvent::CqError { cq: key });
        }
        queue.entries.push_back(entry);
        let counts = queue.armed.is_some_and(|only| !only || entry.solicited || !entry.wc.is_ok());
        if counts && queue.channel.is_some() {
            queue.armed = None;
            let latency = self.cards[card].interrupt.latency;
            self.after(now, latency, Event::Notify(key));
        }
        self.signal(card);
    }

    /// A queue's event reaches its channel.
    pub(super) fn notify(&mut self, key: u32) {
        let Some(queue) = self.queues.get(key) else { return };
        let card = queue.card;
        if let Some(channel) = queue.channel.and_then(|channel| self.channels.get_mut(channel)) {
            channel.events.push_back(key);
            self.signal(card);
        }
    }

    /// Completes a send request: aloud if it failed or was signalled.
    pub(super) fn sent(&mut self, now: Time, qp: u32, number: u64, status: WcStatus, byte_len: u32) {
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        let (wqe, all) = (pair.send.at(number, pair.cap.max_send_wr), pair.sig_all);
        let aloud = all || wqe.signalled || status != WcStatus::Success;
        let wc =
            Wc { wr_id: wqe.wr_id, status, opcode: opcode(wqe.op), byte_len, qp_num: qp, ..Wc::default() };
        pair.send.silent += 1;
        if aloud {
            let slots = Slots::Send(qp, std::mem::take(&mut pair.send.silent));
            let queue = pair.send_cq;
            self.complete(now, queue, Entry { wc, slots, solicited: false });
        }
    }

    /// Completes the oldest receive that a message has taken.
    pub(super) fn complete_receive(&mut self, now: Time, qp: u32, wc: Wc, solicited: bool) {
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        let Some(taken) = pair.responder.taken.pop_front() else { return };
        pair.responder.taken_first += 1;
        let (queue, wc) = (pair.recv_cq, Wc { wr_id: taken.wr_id, qp_num: qp, ..wc });
        self.spare.push(taken.sges);
        self.complete(now, queue, Entry { wc, slots: taken.slots, solicited });
    }

    /// Fails the queue pairs whose completion queue overran.
    pub(super) fn bury(&mut self, now: Time) {
        while let Some(qp) = self.doomed.pop_front() {
            self.fail(now, qp);
        }
    }

    /// Moves a queue pair to the error state, once: flushes it, tells its channel, and its peer.
    pub(super) fn fail(&mut self, now: Time, qp: u32) {
        let Some(pair) = self.pairs.get_mut(qp).filter(|pair| pair.state != QpState::Error) else { return };
        let before = std::mem::replace(&mut pair.state, QpState::Error);
        let (peer, manager, request) = (pair.peer.take(), pair.manager, pair.request.take());
        let established = std::mem::take(&mut pair.established);
        let (card, port, nak) = (pair.card, pair.port, pair.responder.nak);
        pair.responder.answers.clear();
        self.flush(now, qp);
        if let Some(manager) = manager {
            match before {
                _ if established => self.tell(manager, Told::Disconnected(qp)),
                QpState::ReadyToReceive => self.tell(manager, Told::Failed(qp, CmFailure::PeerGone)),
                _ => {}
            }
        }
        if let Some(request) = request.and_then(|request| self.requests.get_mut(request)) {
            request.closed = true;
        }
        if let Some(peer) = peer {
            let message = Message::Disconnect { pair: peer.qp, from: qp, nak };
            self.send_message(now, (card, peer.card, port), message);
        }
    }

    /// Completes everything posted to a queue pair in the error state.
    pub(super) fn flush(&mut self, now: Time, qp: u32) {
        let Some(pair) = self.pairs.get_mut(qp).filter(|pair| pair.state == QpState::Error) else { return };
        let s = &mut pair.send;
        let sends = s.head..s.tail;
        (s.head, s.next, s.packet) = (s.tail, s.tail, 0);
        (s.asked, s.fetched, s.rung) = (s.tail, s.tail, s.tail);
        s.reads.clear();
        for number in sends {
            self.sent(now, qp, number, WcStatus::WrFlushErr, 0);
        }
        let flushed = Wc { status: WcStatus::WrFlushErr, opcode: WcOpcode::Recv, ..Wc::default() };
        while self.pairs.get(qp).is_some_and(|pair| !pair.responder.taken.is_empty()) {
            self.complete_receive(now, qp, flushed, false);
        }
        loop {
            let spare = self.spare.pop().unwrap_or_default();
            let Some(pair) = self.pairs.get_mut(qp) else { return };
            let Some((wr_id, sges)) = pair.receives.pop(spare) else { return };
            let queue = pair.recv_cq;
            self.spare.push(sges);
            let wc = Wc { wr_id, qp_num: qp, ..flushed };
            self.complete(now, queue, Entry { wc, slots: Slots::Receive(qp), solicited: false });
        }
    }
}
