//! Executes the requests of the reference NIC: in sequence, each one immediately and completely.

use std::sync::atomic::{Ordering, fence};

use super::state::{Event, Fault, LocalData, NicState, PostedReceive, PostedSend, Slots};
use verbs::{Access, AsyncEvent, Buf, Error, QpState, RemoteAddr, SendOp, Sge, Wc, WcOpcode, WcStatus};

/// The result of the request at the head of a send queue.
enum Outcome {
    /// It waits for a receive.
    Waits,
    Done(u32),
    /// It failed here, or at the peer for the peer's reasons.
    Failed(WcStatus),
    /// It failed at the peer, which gets an event.
    Forbidden(WcStatus),
}

impl NicState {
    /// Executes requests until none can be executed.
    pub(super) fn run(&mut self) {
        let pairs: Vec<u32> = self.pairs.keys().copied().collect();
        while pairs.iter().any(|&pair| self.step(pair)) {}
    }

    /// Executes one request of a queue pair; returns whether that was possible.
    fn step(&mut self, pair: u32) -> bool {
        let Some(this) = self.pairs.get(&pair) else { return false };
        let (QpState::ReadyToSend, Some(peer)) = (this.state, this.peer) else { return false };
        let Some(send) = this.sends.front() else { return false };
        let (op, data, solicited) = (send.op, send.data.clone(), send.solicited);
        let outcome = self.execute(pair, peer, op, &data, solicited);
        if let Outcome::Waits = outcome {
            return false;
        }
        let send = self.pairs.get_mut(&pair).and_then(|p| p.sends.pop_front()).expect("the head");
        self.finish_request(pair, peer, &send, outcome);
        self.fail_doomed();
        true
    }

    /// Fails the queue pairs whose completion queue overran.
    pub(super) fn fail_doomed(&mut self) {
        while let Some(pair) = self.doomed.pop() {
            self.fail(pair);
        }
    }

    fn finish_request(&mut self, pair: u32, peer: u32, send: &PostedSend, outcome: Outcome) {
        match outcome {
            Outcome::Waits => {}
            Outcome::Done(bytes) => {
                if send.ring {
                    self.queues[&self.pairs[&peer].recv_cq].wakeup.notify();
                }
                self.complete_send(pair, send, WcStatus::Success, bytes);
            }
            Outcome::Failed(status) => {
                self.complete_send(pair, send, status, 0);
                self.fail(pair);
            }
            Outcome::Forbidden(status) => {
                let device = self.pairs[&peer].device;
                self.async_events[device].push_back(AsyncEvent::QpAccessError { qp_num: peer });
                self.complete_send(pair, send, status, 0);
                self.fail(pair);
            }
        }
    }

    fn execute(&mut self, pair: u32, peer: u32, op: SendOp, data: &LocalData, solicited: bool) -> Outcome {
        let domain = self.pairs[&pair].domain;
        match op {
            SendOp::Read(remote) => self.read(domain, peer, remote, data),
            SendOp::CompareSwap { remote, compare, swap } => {
                self.atomic(domain, peer, remote, data, |old| if old == compare { swap } else { old })
            }
            SendOp::FetchAdd { remote, add } => {
                self.atomic(domain, peer, remote, data, |old| old.wrapping_add(add))
            }
            _ => match self.gather(domain, data) {
                None => Outcome::Failed(WcStatus::LocProtErr),
                Some(bytes) => self.deliver(pair, peer, op, bytes, solicited),
            },
        }
    }

    /// Executes sends and writes.
    fn deliver(&mut self, pair: u32, peer: u32, op: SendOp, mut bytes: Vec<u8>, solicited: bool) -> Outcome {
        let domain = self.pairs[&peer].domain;
        let (remote, mut imm, key) = match op {
            SendOp::Write(remote) => (Some(remote), None, None),
            SendOp::WriteImm(remote, imm) => (Some(remote), Some(imm), None),
            SendOp::SendImm(imm) => (None, Some(imm), None),
            SendOp::SendInv(key) => (None, None, Some(key)),
            _ => (None, None, None),
        };
        let target = remote.map(|r| self.find_remote(domain, r, bytes.len() as u64, Access::REMOTE_WRITE));
        if let Some(None) = target {
            return Outcome::Forbidden(WcStatus::RemAccessErr);
        }
        let needs_receive = remote.is_none() || imm.is_some();
        if needs_receive && !self.has_receive(peer) {
            let waits = self.pairs[&pair].rnr_retry == Some(7);
            return if waits { Outcome::Waits } else { Outcome::Failed(WcStatus::RnrRetryExcErr) };
        }
        let len = bytes.len() as u32;
        if self.fault == Fault::DropsLastByte && remote.is_some() {
            bytes.pop();
        }
        if let Some(Some(Some((buf, offset)))) = &target {
            let room = bytes.len().min(buf.len() - offset);
            if write_last_byte_last(buf, *offset, &bytes[..room]).is_err() {
                return Outcome::Forbidden(WcStatus::RemAccessErr);
            }
        }
        if !needs_receive {
            return Outcome::Done(0);
        }
        if self.fault == Fault::ForgetsImmediate {
            imm = None;
        }
        let message = remote.is_none().then_some(bytes);
        self.receive(peer, message, Wc { imm, byte_len: len, invalidated: key, ..Wc::default() }, solicited)
    }

    fn has_receive(&self, pair: u32) -> bool {
        let pair = &self.pairs[&pair];
        let receives = pair.srq.map_or(&pair.receives, |srq| &self.shared[&srq].receives);
        !receives.is_empty()
    }

    /// Takes the next receive, from the queue pair's own or shared queue.
    fn take_receive(&mut self, pair: u32) -> (PostedReceive, Slots) {
        let last_first = self.fault == Fault::LastReceiveFirst;
        let this = self.pairs.get_mut(&pair).expect("the peer");
        let Some(number) = this.srq else {
            let taken = if last_first { this.receives.pop_back() } else { this.receives.pop_front() };
            return (taken.expect("checked before"), Slots::Receive(pair));
        };
        let srq = self.shared.get_mut(&number).expect("its queue pair keeps it");
        let receive = srq.receives.pop_front().expect("checked before");
        if (srq.receives.len() as u32) < srq.limit {
            srq.limit = 0;
            self.async_events[srq.device].push_back(AsyncEvent::SrqLimitReached { srq: number });
        }
        (receive, Slots::SharedReceive(number, pair))
    }

    /// Consumes a receive, for a message or (without one) for immediate data alone.
    fn receive(&mut self, pair: u32, message: Option<Vec<u8>>, wc: Wc, solicited: bool) -> Outcome {
        let (receive, slots) = self.take_receive(pair);
        let this = &self.pairs[&pair];
        let domain = this.srq.map_or(this.domain, |srq| self.shared[&srq].domain);
        let (queue, qp_num) = (this.recv_cq, this.reported_qp_num);
        let opcode = if message.is_some() { WcOpcode::Recv } else { WcOpcode::RecvWriteImm };
        let mut wc = Wc { wr_id: receive.wr_id, opcode, qp_num, ..wc };
        let mut outcome = Outcome::Done(0);
        if let Some(bytes) = message {
            let room: u64 = receive.sges.iter().map(|s| u64::from(s.length)).sum();
            if bytes.len() as u64 > room {
                wc.status = WcStatus::LocLenErr;
                outcome = Outcome::Failed(WcStatus::RemInvReqErr);
            } else if !self.scatter(domain, &receive.sges, &bytes) {
                wc.status = WcStatus::LocProtErr;
                outcome = Outcome::Failed(WcStatus::RemOpErr);
            } else if !wc.invalidated.is_none_or(|key| self.invalidate(domain, key)) {
                wc.status = WcStatus::LocProtErr;
                outcome = Outcome::Forbidden(WcStatus::RemAccessErr);
            }
        }
        self.complete(queue, wc, slots, solicited);
        outcome
    }

    fn invalidate(&mut self, domain: u32, key: u32) -> bool {
        let region = self.regions.get_mut(&key).filter(|r| r.domain == domain && !r.invalidated);
        region.map(|r| r.invalidated = true).is_some()
    }

    fn read(&mut self, domain: u32, peer: u32, remote: RemoteAddr, data: &LocalData) -> Outcome {
        let LocalData::Sges(sges) = data else { return Outcome::Failed(WcStatus::LocQpOpErr) };
        let len: u64 = sges.iter().map(|s| u64::from(s.length)).sum();
        if !self.may_scatter(domain, sges, len) {
            return Outcome::Failed(WcStatus::LocProtErr);
        }
        let theirs = self.pairs[&peer].domain;
        match self.find_remote(theirs, remote, len, Access::REMOTE_READ) {
            None => return Outcome::Forbidden(WcStatus::RemAccessErr),
            Some(None) => {}
            Some(Some((buf, offset))) => {
                let end = buf.len().min(offset + len as usize);
                let Ok(bytes) = buf.to_vec(offset..end) else {
                    return Outcome::Forbidden(WcStatus::RemAccessErr);
                };
                if !self.scatter(domain, sges, &bytes) {
                    return Outcome::Failed(WcStatus::LocProtErr);
                }
            }
        }
        Outcome::Done(len as u32)
    }

    fn atomic(
        &mut self,
        domain: u32,
        peer: u32,
        remote: RemoteAddr,
        data: &LocalData,
        change: impl Fn(u64) -> u64,
    ) -> Outcome {
        let LocalData::Sges(sges) = data else { return Outcome::Failed(WcStatus::LocQpOpErr) };
        if sges.iter().map(|s| u64::from(s.length)).sum::<u64>() != 8 {
            return Outcome::Failed(WcStatus::LocLenErr);
        }
        if !self.may_scatter(domain, sges, 8) {
            return Outcome::Failed(WcStatus::LocProtErr);
        }
        if !remote.addr.is_multiple_of(8) {
            return Outcome::Forbidden(WcStatus::RemInvReqErr);
        }
        let theirs = self.pairs[&peer].domain;
        let Some(Some((buf, offset))) = self.find_remote(theirs, remote, 8, Access::REMOTE_ATOMIC) else {
            return Outcome::Forbidden(WcStatus::RemAccessErr);
        };
        let old = match buf.update_word(offset, &change) {
            Ok(old) => old,
            Err(Error::Memory { .. }) => return Outcome::Forbidden(WcStatus::RemAccessErr),
            // No processor changes it meanwhile, and other NICs wait for the lock.
            Err(Error::Unsupported { .. }) => {
                let mut old = [0; 8];
                buf.read(offset, &mut old).expect("the access was checked");
                let old = u64::from_ne_bytes(old);
                buf.write(offset, &change(old).to_ne_bytes()).expect("the access was checked");
                old
            }
            Err(_) => return Outcome::Forbidden(WcStatus::RemInvReqErr),
        };
        if !self.scatter(domain, sges, &old.to_ne_bytes()) {
            return Outcome::Failed(WcStatus::LocProtErr);
        }
        Outcome::Done(8)
    }

    /// The bytes of a key, if domain, rights and range allow the access; `Some(None)` for zero bytes.
    fn find_remote(
        &self,
        domain: u32,
        remote: RemoteAddr,
        len: u64,
        need: Access,
    ) -> Option<Option<(Buf, usize)>> {
        if len == 0 {
            return Some(None);
        }
        self.find_memory(domain, remote.rkey, remote.addr, len, need)
            .filter(|_| self.is_open(remote.rkey))
            .map(Some)
    }

    fn is_open(&self, rkey: u32) -> bool {
        !self.regions[&rkey].invalidated
    }

    fn find_memory(&self, domain: u32, key: u32, addr: u64, len: u64, need: Access) -> Option<(Buf, usize)> {
        let region = self.regions.get(&key)?;
        let right = region.access.contains(need) || self.fault == Fault::IgnoresRights;
        let domain = region.domain == domain || self.fault == Fault::IgnoresDomains;
        let slack = u128::from(self.fault == Fault::OneByteTooFar);
        let end = u128::from(region.base) + region.buf.len() as u128 + slack;
        let inside = addr >= region.base && u128::from(addr) + u128::from(len) <= end;
        (right && domain && inside).then(|| (region.buf.clone(), (addr - region.base) as usize))
    }

    pub(super) fn local(&self, domain: u32, sge: &Sge, need: Access) -> Option<(Buf, usize)> {
        self.find_memory(domain, sge.lkey, sge.addr, sge.length.into(), need)
    }

    pub(super) fn gather(&self, domain: u32, data: &LocalData) -> Option<Vec<u8>> {
        let sges = match data {
            LocalData::Inline(bytes) => return Some(bytes.clone()),
            LocalData::Sges(sges) => sges,
        };
        let mut bytes = Vec::new();
        for sge in sges.iter().filter(|s| s.length > 0) {
            let (buf, offset) = self.local(domain, sge, Access::empty())?;
            bytes.extend(buf.to_vec(offset..offset + sge.length as usize).ok()?);
        }
        Some(bytes)
    }

    /// Whether `len` bytes may be written to these elements. Elements beyond the last byte are not checked.
    fn may_scatter(&self, domain: u32, sges: &[Sge], len: u64) -> bool {
        used(sges, len).all(|sge| self.local(domain, &sge, Access::LOCAL_WRITE).is_some())
    }

    /// All or nothing, except where a program has unmapped a part.
    fn scatter(&self, domain: u32, sges: &[Sge], bytes: &[u8]) -> bool {
        let len = bytes.len() as u64;
        if !self.may_scatter(domain, sges, len) {
            return false;
        }
        let mut rest = bytes;
        for sge in used(sges, len) {
            let (now, later) = rest.split_at(sge.length as usize);
            let (buf, offset) =
                self.local(domain, &sge, Access::LOCAL_WRITE).expect("the access was checked");
            if write_last_byte_last(&buf, offset, now).is_err() {
                return false;
            }
            rest = later;
        }
        true
    }

    /// Completes a send request: with an entry if it failed or was signaled.
    fn complete_send(&mut self, pair: u32, send: &PostedSend, status: WcStatus, byte_len: u32) {
        let (fault, this) = (self.fault, self.pairs.get_mut(&pair).expect("a queue pair"));
        let flushed_silently = fault == Fault::FlushesSilently && status == WcStatus::WrFlushErr;
        if fault == Fault::FreesSlotsEarly {
            this.sends_used -= 1;
            this.silent = u32::MAX;
        }
        this.silent = this.silent.wrapping_add(1);
        if !send.signalled && (status == WcStatus::Success || flushed_silently) {
            return;
        }
        let (slots, queue) = (Slots::Send(pair, std::mem::take(&mut this.silent)), this.send_cq);
        let qp_num = this.reported_qp_num;
        let wc =
            Wc { wr_id: send.wr_id, status, opcode: send.op.opcode(), byte_len, qp_num, ..Wc::default() };
        self.complete(queue, wc, slots, false);
    }

    fn complete(&mut self, queue: u32, wc: Wc, slots: Slots, solicited: bool) {
        let fault = self.fault;
        let Some(cq) = self.queues.get_mut(&queue).filter(|cq| !cq.overrun) else { return };
        if cq.entries.len() >= cq.cqe as usize {
            cq.overrun = true;
            cq.wakeup.notify();
            self.async_events[cq.device].push_back(AsyncEvent::CqError { cq: queue });
            let dead = self.pairs.iter().filter(|(_, p)| p.send_cq == queue || p.recv_cq == queue);
            return self.doomed.extend(dead.map(|(&number, _)| number));
        }
        cq.entries.push_back((wc, slots));
        cq.wakeup.notify();
        let counts = cq.armed.is_some_and(|only| !only || solicited || !wc.is_ok());
        if let (true, Some(channel)) = (counts, cq.channel) {
            if fault != Fault::StaysArmed {
                cq.armed = None;
            }
            let channel = self.channels.get_mut(&channel).expect("its queue keeps it");
            channel.events.push_back(queue);
            channel.signal.set();
        }
    }

    /// Moves a queue pair to the error state, once: flushes it, and fails its peer.
    pub(super) fn fail(&mut self, pair: u32) {
        let Some(this) = self.pairs.get_mut(&pair).filter(|p| p.state != QpState::Error) else { return };
        this.state = QpState::Error;
        let (peer, manager, request) = (this.peer.take(), this.manager, this.request.take());
        self.flush(pair);
        let this = &self.pairs[&pair];
        if this.srq.is_some() {
            self.async_events[this.device].push_back(AsyncEvent::LastWqeReached { qp_num: pair });
        }
        if let (Some(_), Some(manager)) = (peer, manager) {
            self.push_event(manager, Event::Disconnected(pair));
        }
        request.map(|request| self.requests.remove(&request));
        if let Some(peer) = peer.filter(|_| self.fault != Fault::SilentEnd) {
            self.fail(peer);
        }
    }

    /// Flushes everything posted to a queue pair in the error state.
    pub(super) fn flush(&mut self, pair: u32) {
        let this = self.pairs.get_mut(&pair).expect("a queue pair");
        let (sends, receives) = (std::mem::take(&mut this.sends), std::mem::take(&mut this.receives));
        let (recv_cq, qp_num) = (this.recv_cq, this.reported_qp_num);
        for send in sends {
            self.complete_send(pair, &send, WcStatus::WrFlushErr, 0);
        }
        for receive in receives {
            let (status, opcode) = (WcStatus::WrFlushErr, WcOpcode::Recv);
            let wc = Wc { wr_id: receive.wr_id, status, opcode, qp_num, ..Wc::default() };
            self.complete(recv_cq, wc, Slots::Receive(pair), false);
        }
    }

    pub(super) fn push_event(&mut self, manager: u32, event: Event) {
        if let Some(manager) = self.managers.get_mut(&manager) {
            manager.events.push_back(event);
            manager.signal.set();
        }
    }
}

/// The parts of these elements that a message of `len` bytes fills.
fn used(sges: &[Sge], len: u64) -> impl Iterator<Item = Sge> {
    let mut rest = len;
    let parts = sges.iter().map(move |sge| {
        let length = sge.length.min(u32::try_from(rest).unwrap_or(u32::MAX));
        rest -= u64::from(length);
        Sge { length, ..*sge }
    });
    parts.filter(|sge| sge.length > 0)
}

/// Writes the last byte last, as pollers of that byte take it as the sign that all bytes have arrived.
fn write_last_byte_last(buf: &Buf, offset: usize, bytes: &[u8]) -> verbs::Result<()> {
    let Some((last, rest)) = bytes.split_last() else { return Ok(()) };
    buf.write(offset, rest)?;
    fence(Ordering::Release);
    buf.write(offset + rest.len(), &[*last])
}
