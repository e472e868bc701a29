//! The requester: acknowledgements and answers, packets sent again, completion in the order of posting.

use host::Time;
use verbs::{QpState, RNR_PAUSE, WcStatus};

use super::event::Event;
use super::packet::{Body, Packet};
use super::pair::Pair;
use super::state::State;
use crate::parts::transport::Extra;
use crate::parts::us;

/// Pauses of a receiver that is not ready that are counted at most: 7 means for ever.
const FOR_EVER: u8 = 7;

impl State {
    /// An acknowledgement, or another word about packets that were sent.
    pub(super) fn word_arrives(&mut self, now: Time, number: u32) {
        let Packet { qp, psn, body, from, .. } = self.packets[number];
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        let known = pair.peer.is_some_and(|peer| peer.card == from.card);
        if pair.state != QpState::ReadyToSend || !known || psn > pair.send.psn {
            return;
        }
        let s = &mut pair.send;
        match body {
            Body::Ack if psn > s.acked => {
                (s.acked, s.progress, s.retries) = (psn, now, 0);
                let head = s.head;
                self.advance(now, qp);
                // Others may begin in the place of those that are done.
                if self
                    .pairs
                    .get(qp)
                    .is_some_and(|pair| pair.send.head > head && pair.send.next < pair.send.tail)
                {
                    self.want_to_send(now, qp);
                }
            }
            Body::Nak(status) => self.request_failed(now, qp, psn, status),
            Body::NotReady if psn >= s.acked && !s.held => self.hold(now, qp, psn),
            Body::Missing if psn >= s.acked && !s.held => {
                s.progress = now;
                rewind(pair, psn);
                self.want_to_send(now, qp);
            }
            _ => {}
        }
    }

    /// The request with this packet failed at the peer; all before it are placed.
    pub(super) fn request_failed(&mut self, now: Time, qp: u32, psn: u64, status: WcStatus) {
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        let (s, depth) = (&mut pair.send, pair.cap.max_send_wr);
        s.acked = s.acked.max(psn);
        for number in s.head..s.tail {
            let wqe = s.at_mut(number, depth);
            let Some(first) = wqe.psn else { break };
            if (first..first + wqe.packets).contains(&psn) {
                wqe.failed = Some(status);
                s.halted = true;
                break;
            }
        }
        self.advance(now, qp);
    }

    /// The peer has no receive for the message with this packet: it is tried again after a pause.
    fn hold(&mut self, now: Time, qp: u32, psn: u64) {
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        let (retries, depth) = (pair.rnr_retry, pair.cap.max_send_wr);
        rewind(pair, psn);
        let s = &mut pair.send;
        if s.next == s.tail {
            return;
        }
        let wqe = s.at_mut(s.next, depth);
        if retries < FOR_EVER && wqe.not_ready >= retries {
            wqe.failed = Some(WcStatus::RnrRetryExcErr);
            s.halted = true;
            return self.advance(now, qp);
        }
        wqe.not_ready = wqe.not_ready.saturating_add(1);
        (s.held, s.progress, s.retries) = (true, now, 0);
        self.after(now, RNR_PAUSE, Event::Ready(qp));
    }

    /// The pause is over.
    pub(super) fn ready(&mut self, now: Time, qp: u32) {
        if let Some(pair) = self.pairs.get_mut(qp) {
            pair.send.held = false;
            pair.send.progress = now;
            self.want_to_send(now, qp);
        }
    }

    /// A packet of an answer has arrived.
    pub(super) fn answer_arrives(&mut self, now: Time, number: u32) {
        let Packet { qp, psn, from, .. } = self.packets[number];
        let Some(pair) = self.pairs.get_mut(qp) else { return self.release(now, number) };
        let known = pair.peer.is_some_and(|peer| peer.card == from.card);
        let whole = self.cards[pair.card].transport.whole;
        let head = if whole { now } else { self.packets[number].head_at };
        let (s, depth) = (&mut pair.send, pair.cap.max_send_wr);
        let waits = |&request: &u64| s.at(request, depth).arrived < s.at(request, depth).packets;
        let request = s.reads.iter().copied().find(waits);
        let [ready, _] = self.cards[pair.card].transport.receive(head, Extra::default());
        let expected = request.filter(|&request| {
            let wqe = s.at(request, depth);
            wqe.psn.map(|first| first + wqe.arrived) == Some(psn)
        });
        let Some(request) = expected.filter(|_| known && pair.state == QpState::ReadyToSend) else {
            let missing = request.and_then(|request| {
                s.at(request, depth).psn.map(|first| first + s.at(request, depth).arrived)
            });
            if let Some(missing) = missing.filter(|&missing| missing < psn && !s.held && !s.gap) {
                s.gap = true;
                rewind(pair, missing);
                self.want_to_send(now, qp);
            }
            return self.release(now, number);
        };
        s.gap = false;
        s.at_mut(request, depth).arrived += 1;
        (s.progress, s.retries) = (now, 0);
        self.packets[number].request = request;
        let r = &mut pair.responder;
        r.place_from = r.place_from.max(ready);
        let from = r.place_from;
        self.packets[number].write_from = from;
        self.at(from.max(now), Event::Place(number));
    }

    /// A packet of an answer is in memory.
    pub(super) fn answer_placed(&mut self, now: Time, number: u32) {
        let Packet { qp, psn, request, to, body, .. } = self.packets[number];
        let Some(pair) = self.pairs.get(qp).filter(|pair| pair.state == QpState::ReadyToSend) else { return };
        if request < pair.send.head {
            return;
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        let found = self.find_target(number, &mut pieces);
        let packet = &self.packets[number];
        match body {
            _ if !found => {}
            Body::Old(old) => self.scatter(&pieces, 0, 8, &old.to_ne_bytes()),
            _ => self.scatter(&pieces, packet.offset, packet.total, &packet.data),
        }
        self.pieces = pieces;
        self.signal(to.card);
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        let (s, depth) = (&mut pair.send, pair.cap.max_send_wr);
        let wqe = s.at_mut(request, depth);
        if !found {
            wqe.failed = Some(WcStatus::LocProtErr);
            s.halted = true;
            return self.advance(now, qp);
        }
        if wqe.psn.map(|first| first + wqe.packets) == Some(psn + 1) {
            wqe.answered = true;
            s.reads.retain(|read| *read != request);
            self.advance(now, qp);
            self.want_to_send(now, qp);
        }
    }

    /// Completes what is done, in the order of posting. One that failed ends the connection.
    pub(super) fn advance(&mut self, now: Time, qp: u32) {
        loop {
            let Some(pair) = self.pairs.get_mut(qp) else { return };
            let (s, depth) = (&mut pair.send, pair.cap.max_send_wr);
            if s.head == s.tail {
                return;
            }
            let (number, acked) = (s.head, s.acked);
            let wqe = s.at(number, depth);
            let (failed, done) = (wqe.failed, wqe.is_done(acked));
            if failed.is_none() && !done {
                return;
            }
            let bytes = if wqe.fetches() { wqe.len as u32 } else { 0 };
            s.head += 1;
            if s.next < s.head {
                (s.next, s.packet) = (s.head, 0);
            }
            self.sent(now, qp, number, failed.unwrap_or_default(), bytes);
            if failed.is_some() {
                return self.fail(now, qp);
            }
        }
    }

    /// Something was sent that wants an answer: looks in a while whether it came.
    pub(super) fn expect_answer(&mut self, now: Time, qp: u32) {
        let timeout = us(self.params.transport.retry_timeout_us);
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        if !std::mem::replace(&mut pair.send.timed, true) {
            self.after(now, timeout, Event::Overdue(qp));
        }
    }

    /// Looks whether answers are overdue, and sends again what they are about.
    pub(super) fn overdue(&mut self, now: Time, qp: u32) {
        let timeout = us(self.params.transport.retry_timeout_us);
        let retries = self.params.transport.retry_count as u32;
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        let (s, depth) = (&mut pair.send, pair.cap.max_send_wr);
        s.timed = false;
        let outstanding = s.head < s.tail && s.at(s.head, depth).psn.is_some();
        if pair.state != QpState::ReadyToSend || !outstanding || self.cards[pair.card].dead {
            return;
        }
        s.timed = true;
        if s.held || s.progress + timeout > now {
            let at = if s.held { now + timeout } else { s.progress + timeout };
            return self.at(at, Event::Overdue(qp));
        }
        s.retries += 1;
        if s.retries > retries {
            let oldest = s.head;
            s.at_mut(oldest, depth).failed = Some(WcStatus::RetryExcErr);
            s.halted = true;
            return self.advance(now, qp);
        }
        s.progress = now;
        let acked = s.acked;
        let unanswered =
            s.reads.iter().map(|&read| s.at(read, depth)).filter(|wqe| wqe.arrived < wqe.packets);
        let oldest = unanswered.filter_map(|wqe| wqe.psn.map(|first| first + wqe.arrived)).min();
        rewind(pair, oldest.map_or(acked, |psn| psn.min(acked)));
        self.after(now, timeout, Event::Overdue(qp));
        self.want_to_send(now, qp);
    }
}

/// Sends again from this packet on.
fn rewind(pair: &mut Pair, psn: u64) {
    let (s, depth) = (&mut pair.send, pair.cap.max_send_wr);
    for number in s.head..s.next.saturating_add(1).min(s.tail) {
        let wqe = s.at(number, depth);
        let Some(first) = wqe.psn else { return };
        if first + wqe.packets > psn {
            let packet = if wqe.fetches() { 0 } else { psn.saturating_sub(first) };
            if (number, packet) < (s.next, s.packet) {
                (s.next, s.packet) = (number, packet);
            }
            return;
        }
    }
}
