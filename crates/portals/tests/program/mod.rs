//! Programs on one interface, compared with the slow model in every result, event, counter, answer and status
//! register. Choices come from a seed, or from bytes that a fuzzer can mutate.

#[path = "../model/mod.rs"]
mod model;

use std::collections::BTreeMap;
use std::fmt::Debug;

use host::Rng;
use model::{Arrival as Expected, Later, Model};
use portals::{
    AckReq, Action, Answer, Arrival, CtEvent, CtHandle, Datatype, Delivery, Engine, Entry, EntryHandle,
    EntryOptions, EqHandle, Fail, Limits, List, ListId, MdAddr, MdHandle, MdOptions, MemoryDescriptor, Op,
    Operand, Piece, Process, PtOptions, Region, Request, Search, Source, Transfer,
};

const ME: Process = Process::physical(1, 1);
const UID: u32 = 100;

/// The source of choices.
#[allow(dead_code, reason = "not every user of this file has seeds")]
pub(crate) enum Dice {
    /// A seed.
    Seed(Rng),
    /// Bytes, then zeros.
    Bytes(std::vec::IntoIter<u8>),
}

impl Dice {
    fn next_u64(&mut self) -> u64 {
        match self {
            Self::Seed(rng) => rng.next_u64(),
            Self::Bytes(bytes) => (0..8).fold(0, |word, _| word << 8 | u64::from(bytes.next().unwrap_or(0))),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        match self {
            Self::Seed(rng) => rng.below(bound),
            Self::Bytes(bytes) => u64::from(bytes.next().unwrap_or(0)).checked_rem(bound).unwrap_or(0),
        }
    }

    fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    /// Whether the bytes are used up.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes.as_slice().is_empty())
    }
}

/// Runs the program encoded in bytes.
#[allow(dead_code, reason = "not every user of this file has bytes")]
pub(crate) fn carry_out(bytes: &[u8]) {
    let mut pair = Pair::new(Dice::Bytes(Vec::from(bytes).into_iter()));
    while !pair.rng.is_over() {
        pair.step();
    }
}

/// The engine, the model, and the program's objects of both.
pub(crate) struct Pair {
    rng: Dice,
    engine: Engine,
    model: Model,
    eqs: Vec<EqHandle>,
    cts: Vec<CtHandle>,
    mds: Vec<MdHandle>,
    entries: Vec<EntryHandle>,
    /// Messages whose data are in flight.
    arriving: Vec<(Delivery, model::Delivery)>,
    /// Requests of this process that have not arrived, and answers to its requests.
    wire: Vec<Request>,
    answers: Vec<Answer>,
    operations: Vec<u64>,
    next_user_ptr: u64,
    pub(crate) seen: Seen,
}

/// How often each outcome occurred.
pub(crate) type Seen = BTreeMap<String, u32>;

impl Pair {
    /// An interface and its model.
    pub(crate) fn new(mut rng: Dice) -> Self {
        let most = Limits { max_iovecs: 3, ..Limits::default() };
        let tight = Limits {
            max_entries: 12,
            max_list_size: 5,
            max_unexpected_headers: 4,
            max_triggered_ops: 3,
            max_mds: 4,
            ..most
        };
        let limits = *rng.one_of(&[most, most, tight]);
        let matching = !rng.one_in(4);
        let mut engine = Engine::new(ME, UID, matching, limits);
        let mut model = Model::new(ME, UID, matching, limits);
        let mut eqs = vec![];
        for slots in [1 + rng.index(6), 1 + rng.index(12), 10_000] {
            let eq = engine.eq_alloc(slots).expect("room");
            model.add_queue(eq, slots);
            eqs.push(eq);
        }
        let mut pair = Self {
            rng,
            engine,
            model,
            eqs,
            cts: vec![],
            mds: vec![],
            entries: vec![],
            arriving: vec![],
            wire: vec![],
            answers: vec![],
            operations: vec![],
            next_user_ptr: 0,
            seen: Seen::new(),
        };
        (0..4).for_each(|_| pair.add_counter());
        (0..4).for_each(|index| pair.alloc(index));
        pair
    }

    fn add_counter(&mut self) {
        let ct = self.engine.ct_alloc().expect("room");
        self.model.add_counter(ct);
        self.cts.push(ct);
    }

    fn saw(&mut self, what: impl Debug) {
        *self.seen.entry(format!("{what:?}")).or_default() += 1;
    }

    fn user_ptr(&mut self) -> u64 {
        self.next_user_ptr += 1;
        self.next_user_ptr
    }

    fn ct(&mut self) -> CtHandle {
        *self.rng.one_of(&self.cts)
    }

    fn maybe_eq(&mut self) -> Option<EqHandle> {
        let eq = *self.rng.one_of(&self.eqs);
        (!self.rng.one_in(4)).then_some(eq)
    }

    fn maybe_ct(&mut self) -> Option<CtHandle> {
        let ct = self.ct();
        self.rng.one_in(2).then_some(ct)
    }

    fn region(&mut self) -> Region {
        let addr = 0x1000 + self.rng.below(16) * 0x100;
        match self.rng.below(8) {
            0 => Region::new(addr, 0),
            1 => {
                let count = 1 + self.rng.below(4);
                let piece = |n| Piece { addr: addr + n * 0x40, len: 1 + self.rng.below(9) };
                let pieces: Vec<Piece> = (0..count).map(piece).collect();
                Region::from_pieces(&pieces).expect("few bytes")
            }
            _ => Region::new(addr, self.rng.below(40)),
        }
    }

    /// Mostly unset options; rare ones are rare enough that entries do match messages.
    fn options(&mut self) -> EntryOptions {
        let mut options = EntryOptions::OP_PUT | EntryOptions::OP_GET;
        for flag in EntryOptions::all() - options {
            let rare = if flag == EntryOptions::USE_ONCE { 2 } else { 6 };
            options.set(flag, self.rng.one_in(rare));
        }
        for flag in [EntryOptions::OP_PUT, EntryOptions::OP_GET] {
            if self.rng.one_in(10) {
                options.remove(flag);
            }
        }
        options
    }

    fn entry(&mut self) -> Entry {
        let wild = |rng: &mut Dice, bound: u64| (!rng.one_in(2)).then(|| rng.below(bound) as u32);
        let ignore = [0, 0, 0, 1, 2, u64::MAX];
        Entry {
            region: self.region(),
            counter: self.maybe_ct(),
            uid: self.rng.one_in(8).then_some(UID),
            options: self.options(),
            source: Source { nid: wild(&mut self.rng, 3), pid: wild(&mut self.rng, 2) },
            match_bits: self.rng.below(4),
            ignore_bits: *self.rng.one_of(&ignore),
            min_free: self.rng.below(8),
        }
    }

    fn place(&mut self) -> ListId {
        let list = *self.rng.one_of(&[List::Priority, List::Priority, List::Overflow]);
        ListId { pt_index: self.rng.below(5) as u32, list }
    }

    fn count(&mut self) -> CtEvent {
        CtEvent { success: self.rng.below(4), failure: self.rng.below(2) }
    }

    fn action(&mut self) -> (Action, u64) {
        let (op, datatype) = (*self.rng.one_of(Op::ALL), *self.rng.one_of(Datatype::ALL));
        let length = datatype.size() as u64 * self.rng.below(3);
        match self.rng.below(10) {
            0..=4 => (Action::Put, self.rng.below(30)),
            5..=6 => (Action::Get, self.rng.below(30)),
            7 => (Action::Atomic(op, datatype), length),
            8 => (Action::FetchAtomic(op, datatype), length),
            _ => (Action::Swap(op, datatype, Operand::default()), length),
        }
    }

    fn ack(&mut self) -> AckReq {
        *self.rng.one_of(&[AckReq::None, AckReq::Full, AckReq::Counting, AckReq::Completed])
    }

    fn transfer(&mut self) -> Option<Transfer> {
        let (action, length) = self.action();
        if self.mds.is_empty() {
            return None;
        }
        let mut local = || MdAddr { md: *self.rng.one_of(&self.mds), offset: self.rng.below(4) };
        let (put, get) = (local(), local());
        Some(Transfer {
            action,
            put: action.brings().then_some(put),
            get: action.fetches().then_some(get),
            length,
            ack: self.ack(),
            target: ME,
            pt_index: self.rng.below(5) as u32,
            match_bits: self.rng.below(4),
            remote_offset: self.rng.below(8),
            user_ptr: self.user_ptr(),
            hdr_data: self.rng.next_u64(),
        })
    }

    /// Makes one random call, and compares everything observable.
    pub(crate) fn step(&mut self) {
        match self.rng.below(100) {
            0..=19 => self.append(),
            20..=25 => self.unlink(),
            26..=29 => self.search(),
            30..=49 => self.message(),
            50..=64 => self.data(),
            65..=69 => self.tables(),
            70..=76 => self.counters(),
            77..=82 => self.triggers(),
            83..=85 => self.descriptors(),
            86..=92 => self.begin(),
            _ => self.hear(),
        }
        self.compare();
    }

    fn append(&mut self) {
        let (place, entry, user_ptr) = (self.place(), self.entry(), self.user_ptr());
        let want = self.model.check_append(place, &entry);
        let got = self.engine.append(place, entry.clone(), user_ptr);
        assert_eq!(got.map(drop), want);
        self.saw(want);
        if let Ok(handle) = got {
            self.model.insert(handle, place, entry, user_ptr);
            self.model.link(handle);
            self.entries.push(handle);
        }
    }

    fn unlink(&mut self) {
        if self.entries.is_empty() {
            return;
        }
        let at = self.rng.index(self.entries.len());
        let handle = self.entries[at];
        let got = self.engine.unlink(handle);
        assert_eq!(got, self.model.unlink(handle));
        self.saw(("unlink", got));
        if got.is_ok() && self.rng.one_in(2) {
            self.entries.remove(at);
        }
    }

    fn search(&mut self) {
        let (entry, user_ptr, index) = (self.entry(), self.user_ptr(), self.rng.below(5) as u32);
        let search = *self.rng.one_of(&[Search::Only, Search::Delete]);
        let got = self.engine.search(index, entry.clone(), search, user_ptr);
        assert_eq!(got, self.model.search(index, entry, search, user_ptr));
    }

    /// A message arrives: another process's, or one of this process's.
    fn message(&mut self) {
        let own = self.rng.one_in(2) && !self.wire.is_empty();
        let request = if own {
            self.wire.remove(0)
        } else {
            let (action, length) = self.action();
            Request {
                operation: u64::MAX,
                action,
                ack: self.ack(),
                initiator: Process { nid: self.rng.below(3) as u32, pid: self.rng.below(2) as u32 },
                uid: UID + u32::from(self.rng.one_in(8)),
                pt_index: self.rng.below(5) as u32,
                match_bits: self.rng.below(4),
                remote_offset: self.rng.below(8),
                length,
                hdr_data: self.rng.next_u64(),
            }
        };
        if self.rng.one_in(2) {
            return self.whole(&request, own);
        }
        match (self.engine.arrive(&request), self.model.arrive(&request)) {
            (Arrival::Deliver(got), Expected::Deliver(want)) => {
                let (region, offset, mlength) = got.place();
                assert_eq!(
                    (got.request(), offset, mlength),
                    (&want.request, want.offset, want.event.mlength)
                );
                assert_eq!(region.address(offset), want.event.start);
                self.arriving.push((got, want));
                if self.rng.one_in(2) {
                    self.finish(self.arriving.len() - 1);
                }
            }
            (Arrival::Refused(got), Expected::Refused(want)) => {
                assert_eq!(got, want);
                self.saw(("refused", got.map(|answer| answer.fail)));
                self.answers.extend(got.filter(|_| own));
            }
            (got, _) => panic!("{got:?}"),
        }
    }

    /// A message arrives with its data.
    fn whole(&mut self, request: &Request, own: bool) {
        let fail = if self.rng.one_in(10) { Fail::Undeliverable } else { Fail::Ok };
        let mut place = None;
        let got = self.engine.arrive_whole(request, |region, offset, mlength| {
            place = Some((region.address(offset), offset, mlength));
            fail
        });
        let want = match self.model.arrive(request) {
            Expected::Deliver(want) => {
                assert_eq!(place, Some((want.event.start, want.offset, want.event.mlength)));
                self.model.deliver(want, fail)
            }
            Expected::Refused(want) => {
                assert_eq!(place, None);
                self.saw(("refused", want.map(|answer| answer.fail)));
                want
            }
        };
        assert_eq!(got, Some(want));
        self.answers.extend(want.filter(|_| own));
    }

    /// The data of a message arrive or are lost.
    fn data(&mut self) {
        if !self.arriving.is_empty() {
            let at = self.rng.index(self.arriving.len());
            self.finish(at);
        }
    }

    fn finish(&mut self, at: usize) {
        let (got, want) = self.arriving.remove(at);
        let fail = if self.rng.one_in(10) { Fail::Undeliverable } else { Fail::Ok };
        let own = got.request().operation != u64::MAX;
        let answer = self.engine.deliver(got, fail);
        assert_eq!(answer, self.model.deliver(want, fail));
        self.answers.extend(answer.filter(|_| own));
    }

    fn tables(&mut self) {
        let index = self.rng.below(5) as u32;
        match self.rng.below(4) {
            0 => assert_eq!(self.engine.pt_disable(index), self.model.pt_enable(index, false)),
            1 => assert_eq!(self.engine.pt_enable(index), self.model.pt_enable(index, true)),
            2 if self.rng.one_in(3) => assert_eq!(self.engine.pt_free(index), self.model.pt_free(index)),
            _ => self.alloc(index),
        }
    }

    fn alloc(&mut self, index: u32) {
        let mut options = PtOptions::empty();
        options.set(PtOptions::FLOWCTRL, self.rng.one_in(2));
        let eq = self.maybe_eq();
        if self.engine.pt_alloc(options, eq, Some(index)).is_ok() {
            self.model.pt_alloc(index, options, eq);
        }
    }

    fn counters(&mut self) {
        let (ct, by) = (self.ct(), self.count());
        match self.rng.below(12) {
            0 => assert_eq!(self.engine.ct_set(ct, by), self.model.change(ct, by, true)),
            1 => assert_eq!(self.engine.ct_cancel(ct), self.model.cancel(ct)),
            2 => {
                assert_eq!(self.engine.ct_free(ct), self.model.free_counter(ct));
                self.cts.retain(|other| *other != ct);
                self.add_counter();
            }
            _ => assert_eq!(self.engine.ct_inc(ct, by), self.model.change(ct, by, false)),
        }
    }

    fn triggers(&mut self) {
        let (ct, other, by) = (self.ct(), self.ct(), self.count());
        let threshold = self.rng.below(20);
        let room = self.model.check_trigger(ct, threshold);
        let (got, want, later) = match self.rng.below(5) {
            0 => (self.engine.trigger_ct_inc(ct, threshold, other, by), room, Later::Inc(other, by)),
            1 => (self.engine.trigger_ct_set(ct, threshold, other, by), room, Later::Set(other, by)),
            2 if !self.entries.is_empty() => {
                let entry = *self.rng.one_of(&self.entries);
                (self.engine.trigger_unlink(ct, threshold, entry), room, Later::Unlink(entry))
            }
            3 => {
                let (place, entry, user_ptr) = (self.place(), self.entry(), self.user_ptr());
                let want = self.model.check_append(place, &entry).and(room);
                let got = self.engine.trigger_append(ct, threshold, place, entry.clone(), user_ptr);
                assert_eq!(got.map(drop), want);
                let Ok(handle) = got else { return };
                self.model.insert(handle, place, entry, user_ptr);
                self.entries.push(handle);
                (Ok(()), want, Later::Append(handle))
            }
            _ => {
                let Some(transfer) = self.transfer() else { return };
                let want = self.model.check_transfer(&transfer).and(room);
                (self.engine.trigger(ct, threshold, &transfer), want, Later::Transfer(transfer))
            }
        };
        assert_eq!(got, want);
        self.saw(("trigger", got));
        if got.is_ok() {
            self.model.trigger(ct, threshold, later);
        }
    }

    fn descriptors(&mut self) {
        if !self.mds.is_empty() && self.rng.one_in(3) {
            let at = self.rng.index(self.mds.len());
            let got = self.engine.md_release(self.mds[at]);
            assert_eq!(got, self.model.release(self.mds[at]));
            self.saw(("release", got));
            if got.is_ok() {
                self.mds.remove(at);
            }
            return;
        }
        let mut options = MdOptions::empty();
        for flag in MdOptions::all() {
            options.set(flag, self.rng.one_in(3));
        }
        let region = Region::new(0x8000, 20 + self.rng.below(80));
        let md = MemoryDescriptor { region, options, eq: self.maybe_eq(), counter: self.maybe_ct() };
        if let Ok(handle) = self.engine.md_bind(md.clone()) {
            self.model.bind(handle, md);
            self.mds.push(handle);
        }
    }

    fn begin(&mut self) {
        let Some(transfer) = self.transfer() else { return };
        let got = self.engine.transfer(&transfer);
        assert_eq!(got, self.model.check_transfer(&transfer));
        if got.is_ok() {
            self.model.outgoing.push(transfer);
        }
    }

    /// An operation of this process gets a real or a bogus answer.
    fn hear(&mut self) {
        if !self.answers.is_empty() && !self.rng.one_in(3) {
            let at = self.rng.index(self.answers.len());
            let answer = self.answers.remove(at);
            self.engine.answered(&answer);
            self.model.answered(&answer);
        } else if !self.operations.is_empty() {
            let operation = *self.rng.one_of(&self.operations);
            if self.rng.one_in(8) {
                self.engine.undeliverable(operation);
                self.model.undeliverable(operation);
            } else {
                self.engine.sent(operation);
                self.model.sent(operation, Fail::Ok);
            }
        }
    }

    fn compare(&mut self) {
        self.model.settle();
        let outgoing = std::mem::take(&mut self.model.outgoing);
        for transfer in outgoing {
            let got = self.engine.next_outgoing().expect("the model sends");
            let number = got.request.operation;
            assert_eq!((got.request, got.target), (self.model.start(&transfer, number), transfer.target));
            assert_eq!(got.payload.is_some(), transfer.action.brings());
            self.operations.push(number);
            self.wire.push(got.request);
        }
        assert_eq!(self.engine.next_outgoing(), None);
        for ct in self.cts.clone() {
            assert_eq!(self.engine.ct_get(ct), self.model.value(ct));
        }
        assert_eq!(self.engine.status(), self.model.status);
        for at in 0..self.eqs.len() {
            // The first two fill up sometimes.
            let takes = at == 2 || self.rng.one_in(6);
            if !takes {
                continue;
            }
            loop {
                let got = self.engine.eq_get(self.eqs[at]).expect("a queue");
                assert_eq!(got, self.model.pop(self.eqs[at]));
                let Some((event, lost)) = got else { break };
                self.saw((event.kind, event.fail));
                self.saw(("lost", lost));
            }
        }
    }
}
