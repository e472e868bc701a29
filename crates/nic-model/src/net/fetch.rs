//! Doorbells and descriptors: how requests get from the host's memory to the card's scheduler.

use host::Time;

use super::event::Event;
use super::state::State;

impl State {
    /// A request was posted: its doorbell goes over the bus.
    pub(super) fn doorbell(&mut self, now: Time, qp: u32) {
        let Some(pair) = self.pairs.get(qp) else { return };
        let card = &mut self.cards[pair.card];
        if !card.dead {
            let known = card.doorbell.ring(now, &mut card.bus);
            self.at(known, Event::Rung(qp));
        }
    }

    /// The card knows of a further request.
    pub(super) fn rung(&mut self, now: Time, qp: u32) {
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        if pair.state == verbs::QpState::Error {
            return self.flush(now, qp);
        }
        pair.send.rung += 1;
        let card = pair.card;
        self.want_descriptor(qp);
        self.fetch(now, card);
    }

    /// Puts a queue pair among those whose descriptors are to be fetched, if it has any to fetch.
    pub(super) fn want_descriptor(&mut self, qp: u32) {
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        let descriptors = &mut self.cards[pair.card].descriptors;
        let s = &pair.send;
        if !pair.fetches && s.asked < s.rung && s.asked < s.next + descriptors.ahead {
            pair.fetches = true;
            descriptors.waiting.push_back(qp);
        }
    }

    /// Asks for descriptors, as many as may be under way.
    pub(super) fn fetch(&mut self, now: Time, card: usize) {
        while !self.cards[card].dead
            && (self.cards[card].descriptors.fetching.len() as u64) < self.cards[card].descriptors.ahead
            && let Some(qp) = self.cards[card].descriptors.waiting.pop_front()
        {
            let Some(pair) = self.pairs.get_mut(qp) else { continue };
            pair.fetches = false;
            if pair.send.asked >= pair.send.rung {
                continue;
            }
            let wqe = pair.send.at(pair.send.asked, pair.cap.max_send_wr);
            let c = &mut self.cards[card];
            let bytes = c.descriptors.send(wqe.sges.len(), pair.cap.max_send_sge, wqe.inline.len());
            c.descriptors.fetching.push_back(qp);
            let pushed = c.descriptors.pushed;
            let done = if pushed { now } else { c.bus.read(now, bytes) + c.dma.read_latency };
            pair.send.asked += 1;
            self.want_descriptor(qp);
            self.at(done, Event::Fetched(card as u32));
        }
    }

    /// A descriptor is there.
    pub(super) fn fetched(&mut self, now: Time, card: usize) {
        let Some(qp) = self.cards[card].descriptors.fetching.pop_front() else { return };
        if let Some(pair) = self.pairs.get_mut(qp)
            && pair.send.fetched < pair.send.asked
        {
            pair.send.fetched += 1;
            self.want_descriptor(qp);
            self.want_to_send(now, qp);
        }
        self.fetch(now, card);
    }
}
