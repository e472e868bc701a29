//! The queue of send requests: when each may start, on which lanes, and how it ends.

use super::RAILS_MAX;
use super::device::Inner;
use super::hello::Hello;
use super::keys::{LaneKeys, Met, offset_of, unveil};
use super::qp::{PIECES_MAX, QpInner};
use crate::{Data, Error, QpCap, RemoteAddr, Result, SendFlags, SendOp, SendWr, Sge, Wc, WcOpcode, WcStatus};

/// The number of the device's own request that reads an entry of the peer's table.
const ASK: u64 = u64::MAX;
/// Where stripes may end, so that no two lanes share a line of memory.
const LINE: u64 = 64;

/// A request, from posting to the report of its end.
#[derive(Clone, Copy)]
struct Slot {
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    /// Bytes of the message, and how many pieces or inline bytes it is made of.
    len: u64,
    pieces: usize,
    inline: Option<usize>,
    /// Lanes that work on it, by bits, and how many still do.
    lanes: u8,
    pending: u32,
    status: WcStatus,
    bytes: u32,
}

const EMPTY: Slot = Slot {
    wr_id: 0,
    op: SendOp::Send,
    flags: SendFlags::empty(),
    len: 0,
    pieces: 0,
    inline: None,
    lanes: 0,
    pending: 0,
    status: WcStatus::Success,
    bytes: 0,
};

/// What a lane is at.
#[derive(Clone, Copy, Default)]
struct Flight {
    writes: u32,
    reads: u32,
    bytes: u64,
}

/// What a request does to the peer's memory, as far as order is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Takes a receive or changes memory once and for all: one lane, after everything on others.
    Message,
    Write,
    Read,
}

/// Requests between `head` and `next` have started, those between `next` and `tail` have not.
pub(super) struct Sends {
    slots: Vec<Slot>,
    pieces: Vec<Sge>,
    inline: Vec<u8>,
    pieces_each: usize,
    inline_each: usize,
    head: u64,
    next: u64,
    tail: u64,
    /// Requests that may still be posted before completions are polled.
    pub(super) free: u32,
    /// Requests that ended unsignalled since the last report.
    unreported: u32,
    lanes: usize,
    /// Where the peer takes messages.
    message_lane: usize,
    peer: [Option<Hello>; RAILS_MAX],
    flight: [Flight; RAILS_MAX],
    met: Met,
    asking: Option<u32>,
    /// The first request that failed.
    failed: Option<u64>,
    /// Some request failed for a reason of its own, and not because its lane has gone.
    cause: bool,
    killed: bool,
}

fn class(op: SendOp) -> Class {
    match op {
        SendOp::Write(_) => Class::Write,
        SendOp::Read(_) => Class::Read,
        _ => Class::Message,
    }
}

fn returns_data(op: SendOp) -> bool {
    matches!(op, SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
}

/// The peer's memory that a request names.
fn remote_of(op: SendOp) -> Option<RemoteAddr> {
    match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => None,
        SendOp::Write(remote) | SendOp::WriteImm(remote, _) | SendOp::Read(remote) => Some(remote),
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => Some(remote),
    }
}

/// The key of the peer's that a request needs.
fn key_of(op: SendOp) -> Option<u32> {
    match op {
        SendOp::SendInv(key) => Some(key),
        _ => remote_of(op).map(|remote| remote.rkey),
    }
}

fn opcode(op: SendOp) -> WcOpcode {
    match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => WcOpcode::Send,
        SendOp::Write(_) | SendOp::WriteImm(..) => WcOpcode::Write,
        SendOp::Read(_) => WcOpcode::Read,
        SendOp::CompareSwap { .. } => WcOpcode::CompareSwap,
        SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
    }
}

/// The request as one lane has it: with its keys, from `at` bytes on.
fn of_lane(op: SendOp, lane: usize, keys: Option<&LaneKeys>, at: u64) -> SendOp {
    let key = keys.map_or(0, |keys| keys[lane]);
    let there = |remote: RemoteAddr| RemoteAddr { rkey: key, ..remote }.offset(at);
    match op {
        SendOp::Send | SendOp::SendImm(_) => op,
        SendOp::SendInv(_) => SendOp::SendInv(key),
        SendOp::Write(remote) => SendOp::Write(there(remote)),
        SendOp::WriteImm(remote, imm) => SendOp::WriteImm(there(remote), imm),
        SendOp::Read(remote) => SendOp::Read(there(remote)),
        SendOp::CompareSwap { remote, compare, swap } => {
            SendOp::CompareSwap { remote: there(remote), compare, swap }
        }
        SendOp::FetchAdd { remote, add } => SendOp::FetchAdd { remote: there(remote), add },
    }
}

/// The bytes of a message from `from` to `to`, out of its pieces.
fn part(pieces: &[Sge], from: u64, to: u64, out: &mut [Sge; PIECES_MAX]) -> usize {
    let (mut at, mut count) = (0, 0);
    for piece in pieces {
        let end = at + u64::from(piece.length);
        let (start, stop) = (from.max(at), to.min(end));
        if start < stop {
            out[count] = Sge {
                addr: piece.addr.wrapping_add(start - at),
                length: (stop - start) as u32,
                lkey: piece.lkey,
            };
            count += 1;
        }
        at = end;
    }
    count
}

/// Where the stripe of a lane begins and ends in a message.
fn stripe(cuts: &[f64], len: u64, lane: usize) -> (u64, u64) {
    let cut = |at: usize| match at + 1 == cuts.len() {
        true => len,
        false => (len as f64 * cuts[at]) as u64 / LINE * LINE,
    };
    (if lane == 0 { 0 } else { cut(lane - 1) }, cut(lane))
}

impl Sends {
    pub(super) fn new(cap: &QpCap, lanes: usize) -> Self {
        let (depth, pieces_each) = (cap.max_send_wr as usize, cap.max_send_sge as usize);
        let inline_each = cap.max_inline as usize;
        Self {
            slots: vec![EMPTY; depth],
            pieces: vec![Sge::default(); depth * pieces_each],
            inline: vec![0; depth * inline_each],
            pieces_each,
            inline_each,
            head: 0,
            next: 0,
            tail: 0,
            free: cap.max_send_wr,
            unreported: 0,
            lanes,
            message_lane: 0,
            peer: [None; RAILS_MAX],
            flight: [Flight::default(); RAILS_MAX],
            met: Met::new(),
            asking: None,
            failed: None,
            cause: false,
            killed: false,
        }
    }

    /// What the peer said when this lane was connected.
    pub(super) fn meet(&mut self, lane: usize, hello: Hello) {
        self.message_lane = hello.recv_lane.into();
        self.peer[lane] = Some(hello);
    }

    fn place(&self, seq: u64) -> usize {
        (seq % self.slots.len() as u64) as usize
    }

    /// Takes a request in.
    pub(super) fn push(&mut self, wr: &SendWr<'_>, len: u64) -> Result<()> {
        if self.free == 0 {
            return Err(Error::QueueFull { queue: "send", depth: self.slots.len() as u32 });
        }
        let place = self.place(self.tail);
        let (pieces, inline) = match wr.data {
            Data::Sges(sges) => {
                let from = place * self.pieces_each;
                self.pieces[from..from + sges.len()].copy_from_slice(sges);
                (sges.len(), None)
            }
            Data::Inline(bytes) => {
                let from = place * self.inline_each;
                self.inline[from..from + bytes.len()].copy_from_slice(bytes);
                (0, Some(bytes.len()))
            }
        };
        self.slots[place] =
            Slot { wr_id: wr.wr_id, op: wr.op, flags: wr.flags, len, pieces, inline, ..EMPTY };
        self.tail += 1;
        self.free -= 1;
        Ok(())
    }

    /// Requests wait that nobody but a completion can start.
    pub(super) fn waits(&self) -> bool {
        self.next < self.tail && !self.killed
    }

    /// Whether lanes are at work.
    pub(super) fn in_flight(&self) -> bool {
        self.flight.iter().any(|flight| flight.writes + flight.reads > 0)
    }

    /// Something failed, and everything before it has ended: the rest is to be flushed.
    pub(super) fn wants_the_lanes_killed(&self) -> bool {
        let Some(failed) = self.failed.filter(|_| self.cause && !self.killed) else { return false };
        (self.head..failed.min(self.next)).all(|seq| self.slots[self.place(seq)].pending == 0)
    }

    /// The lanes are in error: nothing starts any more.
    pub(super) fn killed(&mut self) {
        self.killed = true;
        self.failed = Some(self.failed.unwrap_or(self.next));
    }

    /// Starts what can be started, and reports what has ended.
    pub(super) fn advance(&mut self, qp: &QpInner) {
        while self.next < self.tail && self.failed.is_none() && self.start(qp) {}
        while self.head < self.tail && self.report(qp) {}
    }

    /// Starts the next request, if it may be; whether it was.
    fn start(&mut self, qp: &QpInner) -> bool {
        let place = self.place(self.next);
        let slot = self.slots[place];
        let keys = match key_of(slot.op) {
            None => None,
            // What a forgotten key looks like names no entry.
            Some(0) => Some(std::array::from_fn(|lane| self.peer[lane].map_or(0, |hello| hello.nobody))),
            Some(key) => match self.met.get(key) {
                Some(keys) => Some(*keys),
                None => {
                    self.ask(qp, key);
                    return false;
                }
            },
        };
        let Some(lanes) = self.choose(qp.device(), &slot) else { return false };
        self.next += 1;
        self.slots[place].lanes = lanes;
        for lane in (0..self.lanes).filter(|lane| lanes & 1 << lane != 0) {
            if let Err(why) = self.post(qp, place, lane, keys.as_ref()) {
                // The lane has room for all requests of the queue, and takes them in any state that it can be in now.
                debug_assert!(false, "a lane refused: {why}");
                self.slots[place].status = WcStatus::LocQpOpErr;
                self.cause = true;
                self.failed = Some(self.next - 1);
                return false;
            }
        }
        true
    }

    fn post(&mut self, qp: &QpInner, place: usize, lane: usize, keys: Option<&LaneKeys>) -> Result<()> {
        let slot = self.slots[place];
        let whole = slot.lanes.count_ones() == 1;
        let (from, to) = if whole { (0, slot.len) } else { stripe(&qp.device().cuts, slot.len, lane) };
        let (wr_id, op) = (self.next - 1, of_lane(slot.op, lane, keys, from));
        let flags = slot.flags | SendFlags::SIGNALED;
        if let Some(len) = slot.inline {
            let at = place * self.inline_each;
            let data = Data::Inline(&self.inline[at..at + len]);
            qp.lanes[lane].post_send(&SendWr { wr_id, op, data, flags })?;
        } else {
            let at = place * self.pieces_each;
            let (mut cut, all) = ([Sge::default(); PIECES_MAX], &self.pieces[at..at + slot.pieces]);
            let some = if whole {
                all
            } else {
                let count = part(all, from, to, &mut cut);
                &cut[..count]
            };
            super::qp::local_pieces(qp.device(), lane, some, |sges| {
                qp.lanes[lane].post_send(&SendWr { wr_id, op, data: Data::Sges(sges), flags })
            })?;
        }
        self.slots[place].pending += 1;
        let flight = &mut self.flight[lane];
        flight.bytes += to - from;
        match class(slot.op) {
            Class::Read => flight.reads += 1,
            Class::Message if returns_data(slot.op) => flight.reads += 1,
            _ => flight.writes += 1,
        }
        Ok(())
    }

    /// Reads what the peer's table has for this key.
    fn ask(&mut self, qp: &QpInner, key: u32) {
        let lane = self.message_lane;
        let Some(hello) = self.peer[lane].filter(|_| self.asking.is_none()) else { return };
        let remote = RemoteAddr { addr: hello.table.0, rkey: hello.table.1 }.offset(offset_of(key));
        let wr = SendWr::new(ASK, SendOp::Read(remote), &[]);
        let sges = [qp.pd.scratch_on(lane, qp.scratch)];
        match qp.lanes[lane].post_send(&SendWr { data: Data::Sges(&sges), ..wr }) {
            Ok(()) => self.asking = Some(key),
            Err(_) => {
                self.cause = true;
                self.failed = Some(self.next);
            }
        }
    }

    /// The lanes on which a request may start now, by bits.
    fn choose(&self, device: &Inner, slot: &Slot) -> Option<u8> {
        let kind = class(slot.op);
        let striped = kind != Class::Message
            && slot.inline.is_none()
            && self.lanes > 1
            && slot.len >= device.config.stripe_min.max(LINE * self.lanes as u64);
        let lanes = match kind {
            _ if striped => (0..self.lanes)
                .filter(|&lane| {
                    let (from, to) = stripe(&device.cuts, slot.len, lane);
                    from < to
                })
                .fold(0, |lanes, lane| lanes | 1 << lane),
            Class::Write => 1 << self.least_busy(device),
            _ => 1 << self.message_lane,
        };
        let busy =
            |lane: &usize| lanes != 1 << lane && self.flight[*lane].writes + self.flight[*lane].reads > 0;
        if !(0..self.lanes).any(|lane| busy(&lane)) {
            return Some(lanes);
        }
        let fenced = slot.flags.contains(SendFlags::FENCE);
        let others = || (0..self.lanes).filter(|lane| lanes != 1 << lane).map(|lane| self.flight[lane]);
        if fenced && others().any(|flight| flight.reads > 0) {
            return None;
        }
        let free = match kind {
            Class::Message => others().all(|flight| flight.writes == 0),
            _ => !self.meets_another(device, slot, lanes),
        };
        free.then_some(lanes)
    }

    /// The message lane, unless it has much to do and another has less.
    fn least_busy(&self, device: &Inner) -> usize {
        let much = self.flight[self.message_lane].bytes >= device.config.stripe_min;
        let by_bytes = |lane: &usize| (self.flight[*lane].bytes, *lane);
        match much {
            true => (0..self.lanes).min_by_key(by_bytes).unwrap_or(self.message_lane),
            false => self.message_lane,
        }
    }

    /// The peer's memory that a request touches on a lane.
    fn range(&self, device: &Inner, slot: &Slot, lanes: u8, lane: usize) -> Option<(u64, u64)> {
        let remote = remote_of(slot.op).filter(|_| lanes & 1 << lane != 0)?;
        let (from, to) =
            if lanes.count_ones() == 1 { (0, slot.len) } else { stripe(&device.cuts, slot.len, lane) };
        Some((remote.addr.wrapping_add(from), remote.addr.wrapping_add(to)))
    }

    /// Whether a request would touch what another touches on another lane, one of them writing.
    fn meets_another(&self, device: &Inner, slot: &Slot, lanes: u8) -> bool {
        let reads = class(slot.op) == Class::Read;
        (self.head..self.next).map(|seq| &self.slots[self.place(seq)]).any(|other| {
            let harmless = other.pending == 0 || (reads && class(other.op) == Class::Read);
            !harmless
                && (0..self.lanes).any(|here| {
                    let Some(near) = self.range(device, slot, lanes, here) else { return false };
                    (0..self.lanes).filter(|there| *there != here).any(|there| {
                        let far = self.range(device, other, other.lanes, there);
                        far.is_some_and(|far| near.0 < far.1 && far.0 < near.1)
                    })
                })
        })
    }

    /// A lane's part of a request has ended.
    pub(super) fn complete(&mut self, qp: &QpInner, lane: usize, wc: &Wc) {
        if wc.wr_id == ASK {
            return self.answer(qp, wc);
        }
        if !(self.head..self.next).contains(&wc.wr_id) {
            return;
        }
        let (seq, place) = (wc.wr_id, self.place(wc.wr_id));
        let cuts = &qp.device().cuts;
        let slot = &mut self.slots[place];
        let (from, to) =
            if slot.lanes.count_ones() == 1 { (0, slot.len) } else { stripe(cuts, slot.len, lane) };
        let flight = &mut self.flight[lane];
        flight.bytes = flight.bytes.saturating_sub(to - from);
        if class(slot.op) == Class::Read || returns_data(slot.op) {
            flight.reads = flight.reads.saturating_sub(1);
        } else {
            flight.writes = flight.writes.saturating_sub(1);
        }
        slot.pending = slot.pending.saturating_sub(1);
        slot.bytes = slot.bytes.saturating_add(wc.byte_len);
        if !wc.is_ok() {
            // What went wrong says more than that the rest was flushed.
            if matches!(slot.status, WcStatus::Success | WcStatus::WrFlushErr) {
                slot.status = wc.status;
            }
            self.cause |= wc.status != WcStatus::WrFlushErr;
            self.failed = Some(self.failed.map_or(seq, |failed| failed.min(seq)));
        }
    }

    /// The entry of the peer's table has come.
    fn answer(&mut self, qp: &QpInner, wc: &Wc) {
        let Some(key) = self.asking.take() else { return };
        match qp.pd.scratch_read(qp.scratch).filter(|_| wc.is_ok()) {
            Some(entry) => self.met.insert(key, unveil(key, &entry)),
            None => {
                let place = self.place(self.next);
                self.slots[place].status = wc.status;
                self.cause |= wc.status != WcStatus::WrFlushErr;
                self.failed = Some(self.failed.unwrap_or(self.next));
                if self.next < self.tail {
                    // It ends here, without a lane.
                    self.next += 1;
                }
            }
        }
    }

    /// Reports the oldest request, if it has ended; whether it has.
    fn report(&mut self, qp: &QpInner) -> bool {
        let place = self.place(self.head);
        let slot = self.slots[place];
        let started = self.head < self.next;
        if (started && slot.pending > 0) || (!started && !self.killed) {
            return false;
        }
        let behind = self.failed.is_some_and(|failed| self.head > failed);
        let status = if !started || behind { WcStatus::WrFlushErr } else { slot.status };
        self.head += 1;
        self.next = self.next.max(self.head);
        let wc = Wc {
            wr_id: slot.wr_id,
            status,
            opcode: opcode(slot.op),
            byte_len: if returns_data(slot.op) { slot.bytes } else { 0 },
            qp_num: qp.num,
            ..Wc::default()
        };
        if wc.is_ok() && !slot.flags.contains(SendFlags::SIGNALED) && !qp.signals_all() {
            self.unreported += 1;
        } else {
            let slots = std::mem::take(&mut self.unreported) + 1;
            qp.send_cq.push(wc, slots, 0);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_cover_a_message_once() {
        for cuts in [&[1.0][..], &[0.5, 1.0], &[0.2, 1.0], &[0.25, 0.5, 0.75, 1.0], &[0.001, 0.002, 1.0]] {
            for len in [0, 1, 63, 64, 65, 1000, 4096, 1 << 20, (1 << 30) + 7] {
                let mut at = 0;
                for lane in 0..cuts.len() {
                    let (from, to) = stripe(cuts, len, lane);
                    assert_eq!(from, at, "{cuts:?}, {len} B, lane {lane}");
                    assert!(to >= from && (to % LINE == 0 || to == len));
                    at = to;
                }
                assert_eq!(at, len, "{cuts:?}");
            }
        }
    }

    #[test]
    fn parts_of_pieces_are_their_bytes() {
        let lens = [5_u32, 0, 100, 1, 64];
        let pieces: Vec<Sge> = lens
            .iter()
            .enumerate()
            .map(|(i, &length)| Sge { addr: 1000 * i as u64, length, lkey: i as u32 })
            .collect();
        let bytes = |pieces: &[Sge]| -> Vec<(u64, u32)> {
            pieces.iter().flat_map(|p| (0..u64::from(p.length)).map(|b| (p.addr + b, p.lkey))).collect()
        };
        let (all, mut out) = (bytes(&pieces), [Sge::default(); PIECES_MAX]);
        for from in 0..=170 {
            for to in from..=170 {
                let count = part(&pieces, from, to, &mut out);
                assert_eq!(bytes(&out[..count]), all[from as usize..to as usize], "{from} to {to}");
            }
        }
    }
}
