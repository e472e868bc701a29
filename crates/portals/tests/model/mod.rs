//! Portals according to the text of the standard, slow and obvious: lists are vectors, every lookup is a
//! linear search, and handles are those of the engine. It shares only the types of arguments and results with
//! the engine.

#![allow(dead_code, reason = "each test uses a part of it")]

use portals::{
    AckReq, Action, Answer, CtEvent, CtHandle, Entry, EntryHandle, EntryOptions, EqHandle, Error, Event,
    EventKind, Fail, Limits, List, ListId, MdHandle, MdOptions, MemoryDescriptor, Process, PtOptions, Region,
    Request, Result, Search, Source, Status, Transfer,
};

pub(crate) struct Queue {
    name: EqHandle,
    events: Vec<(Event, bool)>,
    slots: usize,
    kept: usize,
    lost: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Later {
    Transfer(Transfer),
    Inc(CtHandle, CtEvent),
    Set(CtHandle, CtEvent),
    Append(EntryHandle),
    Unlink(EntryHandle),
}

pub(crate) struct Counter {
    name: CtHandle,
    value: CtEvent,
    later: Vec<(u64, Later)>,
}

struct Me {
    name: EntryHandle,
    entry: Entry,
    user_ptr: u64,
    place: ListId,
    is_waiting: bool,
    is_linked: bool,
    local: u64,
    delivering: usize,
    unlink_told: bool,
    kept: usize,
}

struct Header {
    number: u64,
    event: Event,
    owner: EntryHandle,
    is_listed: bool,
    is_ready: bool,
    claim: Option<Claim>,
}

#[derive(Clone)]
struct Claim {
    options: EntryOptions,
    counter: Option<CtHandle>,
    user_ptr: u64,
    leaves: bool,
}

struct Pt {
    eq: Option<EqHandle>,
    flow: bool,
    enabled: bool,
    delivering: usize,
}

pub(crate) struct Delivery {
    pub(crate) request: Request,
    pub(crate) event: Event,
    pub(crate) offset: u64,
    owner: EntryHandle,
    header: Option<u64>,
    kept: usize,
}

pub(crate) enum Arrival {
    Deliver(Delivery),
    Refused(Option<Answer>),
}

struct Operation {
    number: u64,
    transfer: Transfer,
    sides: [Option<MemoryDescriptor>; 2],
    sent: bool,
    failure_told: bool,
}

pub(crate) struct Model {
    matching: bool,
    limits: Limits,
    process: Process,
    uid: u32,
    pub(crate) queues: Vec<Queue>,
    pub(crate) counters: Vec<Counter>,
    pts: Vec<Option<Pt>>,
    /// In the order of appending.
    mes: Vec<Me>,
    /// In the order of arrival.
    headers: Vec<Header>,
    mds: Vec<(MdHandle, MemoryDescriptor)>,
    operations: Vec<Operation>,
    due: Vec<Later>,
    pub(crate) outgoing: Vec<Transfer>,
    pub(crate) status: Status,
    came: u64,
}

const NO: EntryOptions = EntryOptions::empty();

impl Model {
    pub(crate) fn new(process: Process, uid: u32, matching: bool, limits: Limits) -> Self {
        Self {
            matching,
            limits,
            process,
            uid,
            queues: vec![],
            counters: vec![],
            pts: (0..=limits.max_pt_index).map(|_| None).collect(),
            mes: vec![],
            headers: vec![],
            mds: vec![],
            operations: vec![],
            due: vec![],
            outgoing: vec![],
            status: Status::default(),
            came: 0,
        }
    }

    pub(crate) fn add_queue(&mut self, name: EqHandle, slots: usize) {
        self.queues.push(Queue { name, events: vec![], slots, kept: 0, lost: false });
    }

    pub(crate) fn add_counter(&mut self, name: CtHandle) {
        self.counters.push(Counter { name, value: CtEvent::default(), later: vec![] });
    }

    pub(crate) fn free_counter(&mut self, name: CtHandle) -> Result<()> {
        self.cancel(name)?;
        self.counters.retain(|counter| counter.name != name);
        Ok(())
    }

    pub(crate) fn cancel(&mut self, name: CtHandle) -> Result<()> {
        let later = std::mem::take(&mut self.counter(name)?.later);
        for (_, what) in later {
            if let Later::Append(entry) = what {
                self.mes.retain(|me| me.name != entry || !me.is_waiting);
            }
        }
        Ok(())
    }

    fn counter(&mut self, name: CtHandle) -> Result<&mut Counter> {
        self.counters.iter_mut().find(|counter| counter.name == name).ok_or(Error::ArgInvalid)
    }

    pub(crate) fn value(&mut self, name: CtHandle) -> Result<CtEvent> {
        self.counter(name).map(|counter| counter.value)
    }

    pub(crate) fn pop(&mut self, name: EqHandle) -> Option<(Event, bool)> {
        let queue = self.queues.iter_mut().find(|queue| queue.name == name)?;
        if queue.events.is_empty() {
            return None;
        }
        Some((queue.events.remove(0).0, std::mem::take(&mut queue.lost)))
    }

    fn queue(&mut self, name: Option<EqHandle>) -> Option<&mut Queue> {
        self.queues.iter_mut().find(|queue| Some(queue.name) == name)
    }

    fn post(&mut self, name: Option<EqHandle>, event: Event) {
        let Some(queue) = self.queue(name) else { return };
        let ordinary = queue.events.iter().filter(|(_, extra)| !extra).count();
        if ordinary + queue.kept >= queue.slots {
            queue.lost = true;
            let Some(oldest) = queue.events.iter().position(|(_, extra)| !extra) else { return };
            queue.events.remove(oldest);
        }
        queue.events.push((event, false));
    }

    fn keep(&mut self, name: Option<EqHandle>, slots: usize) -> bool {
        let Some(queue) = self.queue(name) else { return true };
        let ordinary = queue.events.iter().filter(|(_, extra)| !extra).count();
        let fits = ordinary + queue.kept + slots <= queue.slots;
        queue.kept += if fits { slots } else { 0 };
        fits
    }

    fn unkeep(&mut self, name: Option<EqHandle>, slots: usize) {
        if let Some(queue) = self.queue(name) {
            queue.kept -= slots;
        }
    }

    pub(crate) fn change(&mut self, name: CtHandle, by: CtEvent, is_set: bool) -> Result<()> {
        let counter = self.counter(name)?;
        if is_set {
            counter.value = by;
        } else {
            counter.value.success = counter.value.success.wrapping_add(by.success);
            counter.value.failure = counter.value.failure.wrapping_add(by.failure);
        }
        let mut due = vec![];
        // All due operations: the least threshold first, and equal ones in the order of the calls.
        loop {
            let reached = counter.value.success.saturating_add(counter.value.failure);
            let least = counter.later.iter().map(|(threshold, _)| *threshold).min();
            let Some(least) = least.filter(|least| *least <= reached) else { break };
            let at = counter.later.iter().position(|(threshold, _)| *threshold == least).expect("the least");
            let (_, what) = counter.later.remove(at);
            due.push(what);
        }
        self.due.extend(due);
        Ok(())
    }

    fn count(&mut self, name: Option<CtHandle>, fail: Fail, by: u64) {
        let by = if fail == Fail::Ok {
            CtEvent { success: by, failure: 0 }
        } else {
            CtEvent { success: 0, failure: 1 }
        };
        if let Some(name) = name {
            let _ = self.change(name, by, false);
        }
    }

    pub(crate) fn settle(&mut self) {
        while !self.due.is_empty() {
            match self.due.remove(0) {
                Later::Transfer(transfer) => self.outgoing.push(transfer),
                Later::Inc(counter, by) => drop(self.change(counter, by, false)),
                Later::Set(counter, to) => drop(self.change(counter, to, true)),
                Later::Append(entry) => self.link(entry),
                Later::Unlink(entry) => drop(self.unlink(entry)),
            }
        }
    }

    pub(crate) fn check_trigger(&mut self, name: CtHandle, threshold: u64) -> Result<()> {
        let waiting: usize = self.counters.iter().map(|counter| counter.later.len()).sum();
        let most = self.limits.max_triggered_ops as usize;
        let value = self.counter(name)?.value;
        let reached = value.success.saturating_add(value.failure) >= threshold;
        if !reached && waiting >= most { Err(Error::NoSpace) } else { Ok(()) }
    }

    pub(crate) fn trigger(&mut self, name: CtHandle, threshold: u64, what: Later) {
        let counter = self.counter(name).expect("checked");
        if counter.value.success.saturating_add(counter.value.failure) >= threshold {
            self.due.push(what);
        } else {
            counter.later.push((threshold, what));
        }
    }

    pub(crate) fn pt_alloc(&mut self, index: u32, options: PtOptions, eq: Option<EqHandle>) {
        let flow = options.contains(PtOptions::FLOWCTRL);
        self.pts[index as usize] = Some(Pt { eq, flow, enabled: true, delivering: 0 });
    }

    fn pt(&mut self, index: u32) -> Result<&mut Pt> {
        self.pts.get_mut(index as usize).and_then(Option::as_mut).ok_or(Error::ArgInvalid)
    }

    pub(crate) fn pt_enable(&mut self, index: u32, enabled: bool) -> Result<()> {
        self.pt(index)?.enabled = enabled;
        Ok(())
    }

    pub(crate) fn pt_free(&mut self, index: u32) -> Result<()> {
        let (delivering, eq) = (self.pt(index)?.delivering, self.pt(index)?.eq);
        if delivering > 0 || self.mes.iter().any(|me| me.is_linked && me.place.pt_index == index) {
            return Err(Error::PtInUse);
        }
        self.pts[index as usize] = None;
        while let Some(at) = self.headers.iter().position(|header| header.event.pt_index == index) {
            let owner = self.headers.remove(at).owner;
            self.leave(eq, owner);
        }
        Ok(())
    }

    fn normal(&mut self, index: u32, mut entry: Entry) -> Result<Entry> {
        self.pt(index)?;
        if entry.region.piece_count() > self.limits.max_iovecs as usize {
            return Err(Error::ArgInvalid);
        }
        if !self.matching {
            let only_matching =
                EntryOptions::MANAGE_LOCAL | EntryOptions::NO_TRUNCATE | EntryOptions::MAY_ALIGN;
            if entry.options.intersects(only_matching) {
                return Err(Error::ArgInvalid);
            }
            (entry.ignore_bits, entry.source) = (u64::MAX, Source::ANY);
        }
        Ok(entry)
    }

    /// The checks of an append; the entry is then added under the engine's handle.
    pub(crate) fn check_append(&mut self, place: ListId, entry: &Entry) -> Result<()> {
        self.normal(place.pt_index, entry.clone())?;
        if let Some(counter) = entry.counter {
            self.counter(counter)?;
        }
        let linked = self.mes.iter().filter(|me| me.is_linked && me.place == place).count();
        if linked >= self.limits.max_list_size as usize {
            return Err(Error::ListTooLong);
        }
        if self.mes.len() >= self.limits.max_entries as usize {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    pub(crate) fn insert(&mut self, name: EntryHandle, place: ListId, entry: Entry, user_ptr: u64) {
        let entry = self.normal(place.pt_index, entry).expect("checked");
        let (is_waiting, is_linked, local, delivering, unlink_told, kept) = (true, false, 0, 0, false, 0);
        self.mes.push(Me {
            name,
            entry,
            user_ptr,
            place,
            is_waiting,
            is_linked,
            local,
            delivering,
            unlink_told,
            kept,
        });
    }

    pub(crate) fn link(&mut self, name: EntryHandle) {
        let Some(at) = self.mes.iter().position(|me| me.name == name && me.is_waiting) else { return };
        let mut me = self.mes.remove(at);
        let ListId { pt_index, list } = me.place;
        let Ok(pt) = self.pt(pt_index) else { return };
        let eq = pt.eq;
        if list == List::Priority {
            let wanted = self.wanted(pt_index, &me.entry);
            let once = me.entry.options.contains(EntryOptions::USE_ONCE);
            let leaves = once && !wanted.is_empty();
            let claim =
                Claim { options: me.entry.options, counter: me.entry.counter, user_ptr: me.user_ptr, leaves };
            wanted.into_iter().for_each(|number| self.claim(eq, number, claim.clone()));
            if leaves {
                return;
            }
        }
        if !me.entry.options.contains(EntryOptions::EVENT_LINK_DISABLE) {
            self.post(eq, Event { pt_index, list, ..Event::new(EventKind::Link, me.user_ptr) });
        }
        (me.is_waiting, me.is_linked) = (false, true);
        self.mes.push(me);
    }

    fn wanted(&self, pt_index: u32, entry: &Entry) -> Vec<u64> {
        let mut wanted: Vec<u64> = self
            .headers
            .iter()
            .filter(|header| header.is_listed && header.event.pt_index == pt_index)
            .filter(|header| {
                let event = &header.event;
                takes(entry, 0, event.initiator, event.match_bits, event.remote_offset, event.rlength)
            })
            .map(|header| header.number)
            .collect();
        if entry.options.contains(EntryOptions::USE_ONCE) {
            wanted.truncate(1);
        }
        wanted
    }

    fn claim(&mut self, eq: Option<EqHandle>, number: u64, claim: Claim) {
        let header = self.headers.iter_mut().find(|header| header.number == number).expect("listed");
        header.is_listed = false;
        header.claim = Some(claim);
        if header.is_ready {
            self.hand_over(eq, number);
        }
    }

    fn hand_over(&mut self, eq: Option<EqHandle>, number: u64) {
        let at = self.headers.iter().position(|header| header.number == number).expect("kept");
        let Header { event, owner, claim, .. } = self.headers.remove(at);
        let Claim { options, counter, user_ptr, leaves } = claim.expect("claimed");
        let shown = if event.fail == Fail::Ok { EntryOptions::EVENT_SUCCESS_DISABLE } else { NO };
        if !options.intersects(EntryOptions::EVENT_OVER_DISABLE | shown) {
            let kind = match event.kind {
                EventKind::Put => EventKind::PutOverflow,
                EventKind::Get => EventKind::GetOverflow,
                EventKind::Atomic => EventKind::AtomicOverflow,
                _ => EventKind::FetchAtomicOverflow,
            };
            self.post(eq, Event { kind, user_ptr, ..event });
        }
        if options.contains(EntryOptions::EVENT_CT_OVERFLOW) {
            let bytes = options.contains(EntryOptions::EVENT_CT_BYTES);
            self.count(counter, event.fail, if bytes { event.mlength } else { 1 });
        }
        self.leave(eq, owner);
        if leaves && !options.contains(EntryOptions::EVENT_UNLINK_DISABLE) {
            let pt_index = event.pt_index;
            self.post(eq, Event { pt_index, ..Event::new(EventKind::AutoUnlink, user_ptr) });
        }
    }

    /// Reports an automatically unlinked entry, and drops it when nothing of it is left.
    fn leave(&mut self, eq: Option<EqHandle>, name: EntryHandle) {
        let headers = self.headers.iter().filter(|header| header.owner == name).count();
        let Some(at) = self.mes.iter().position(|me| me.name == name) else { return };
        let me = &mut self.mes[at];
        if me.is_linked || me.delivering > 0 {
            return;
        }
        let ListId { pt_index, list } = me.place;
        let mut events = vec![];
        if !std::mem::replace(&mut me.unlink_told, true) {
            events.push(EventKind::AutoUnlink);
        }
        if headers == 0 && list == List::Overflow {
            events.push(EventKind::AutoFree);
        }
        let user_ptr = me.user_ptr;
        if !me.entry.options.contains(EntryOptions::EVENT_UNLINK_DISABLE) {
            for kind in events {
                let slot = usize::from(self.mes[at].kept > 0);
                self.mes[at].kept -= slot;
                self.unkeep(eq, slot);
                self.post(eq, Event { pt_index, list, ..Event::new(kind, user_ptr) });
            }
        }
        if headers == 0 {
            self.mes.remove(at);
        }
    }

    pub(crate) fn unlink(&mut self, name: EntryHandle) -> Result<()> {
        let headers = self.headers.iter().any(|header| header.owner == name);
        let at = self.mes.iter().position(|me| me.name == name).ok_or(Error::ArgInvalid)?;
        let me = &self.mes[at];
        if !me.is_waiting && !me.is_linked && me.delivering == 0 {
            return Err(Error::ArgInvalid);
        }
        if me.delivering > 0 || headers {
            return Err(Error::InUse);
        }
        self.mes.remove(at);
        Ok(())
    }

    pub(crate) fn search(&mut self, index: u32, entry: Entry, search: Search, user_ptr: u64) -> Result<()> {
        let entry = self.normal(index, entry)?;
        let eq = self.pt(index)?.eq;
        let wanted = self.wanted(index, &entry);
        let options = entry.options;
        let quiet = options.contains(EntryOptions::EVENT_COMM_DISABLE);
        if wanted.is_empty() && !quiet {
            let fail = Fail::NoMatch;
            self.post(eq, Event { fail, pt_index: index, ..Event::new(EventKind::Search, user_ptr) });
        }
        for number in wanted {
            if search == Search::Delete {
                self.claim(eq, number, Claim { options, counter: None, user_ptr, leaves: false });
            } else if !quiet && !options.contains(EntryOptions::EVENT_SUCCESS_DISABLE) {
                let header = self.headers.iter().find(|header| header.number == number).expect("listed");
                let event = Event { kind: EventKind::Search, fail: Fail::Ok, user_ptr, ..header.event };
                self.post(eq, event);
            }
        }
        Ok(())
    }

    pub(crate) fn arrive(&mut self, request: &Request) -> Arrival {
        match self.admit(request) {
            Ok(delivery) => Arrival::Deliver(delivery),
            Err(fail) => {
                match fail {
                    Fail::PermViolation => self.status.permission_violations += 1,
                    Fail::OpViolation => self.status.operation_violations += 1,
                    _ => self.status.drops += 1,
                }
                Arrival::Refused(wants_answer(request).then_some(Answer {
                    operation: request.operation,
                    fail,
                    is_quiet: false,
                    list: List::Priority,
                    mlength: 0,
                    offset: 0,
                }))
            }
        }
    }

    fn full(&mut self, index: u32, options: EntryOptions) -> Fail {
        let pt = self.pt(index).expect("there");
        if !pt.flow {
            return Fail::Dropped;
        }
        pt.enabled = false;
        let (eq, fail) = (pt.eq, Fail::PtDisabled);
        if !options.contains(EntryOptions::EVENT_FLOWCTRL_DISABLE)
            && let Some(queue) = self.queue(eq)
        {
            let event = Event { fail, pt_index: index, ..Event::new(EventKind::PtDisabled, 0) };
            queue.events.push((event, true));
        }
        fail
    }

    fn admit(&mut self, request: &Request) -> std::result::Result<Delivery, Fail> {
        let index = request.pt_index;
        let pt = self.pt(index).map_err(|_| Fail::Dropped)?;
        if !pt.enabled {
            return Err(Fail::PtDisabled);
        }
        let (eq, flow) = (pt.eq, pt.flow);
        let Request { initiator, match_bits, remote_offset, length, .. } = *request;
        let find = |list: List| {
            self.mes.iter().position(|me| {
                me.is_linked
                    && me.place == ListId { pt_index: index, list }
                    && takes(&me.entry, me.local, initiator, match_bits, remote_offset, length)
            })
        };
        let Some(at) = find(List::Priority).or_else(|| find(List::Overflow)) else {
            return Err(self.full(index, NO));
        };
        let me = &self.mes[at];
        let (entry, options, list) = (me.entry.clone(), me.entry.options, me.place.list);
        if entry.uid.is_some_and(|uid| uid != request.uid) {
            return Err(Fail::PermViolation);
        }
        let puts = request.action != Action::Get;
        let gets = matches!(request.action, Action::Get | Action::FetchAtomic(..) | Action::Swap(..));
        if puts && !options.contains(EntryOptions::OP_PUT) || gets && !options.contains(EntryOptions::OP_GET)
        {
            return Err(Fail::OpViolation);
        }
        let managed = options.contains(EntryOptions::MANAGE_LOCAL);
        let offset = if managed { me.local } else { remote_offset };
        let mut mlength = length.min(entry.region.len().saturating_sub(offset));
        if let Some((_, datatype)) = request.action.atomic() {
            mlength -= mlength % datatype.size() as u64;
        }
        let left = entry.region.len() - (me.local + mlength).min(entry.region.len());
        let leaves = options.contains(EntryOptions::USE_ONCE) || managed && left < entry.min_free;
        let header = list == List::Overflow && !options.contains(EntryOptions::UNEXPECTED_HDR_DISABLE);
        if header && self.headers.len() >= self.limits.max_unexpected_headers as usize {
            return Err(self.full(index, options));
        }
        let quiet = EntryOptions::EVENT_COMM_DISABLE | EntryOptions::EVENT_SUCCESS_DISABLE;
        let now = usize::from(flow && !options.intersects(quiet));
        let telling = flow && leaves && !options.contains(EntryOptions::EVENT_UNLINK_DISABLE);
        let later = if telling { 1 + usize::from(list == List::Overflow) } else { 0 };
        if flow && !self.keep(eq, now + later) {
            return Err(self.full(index, options));
        }
        self.pt(index).expect("there").delivering += 1;
        let me = &mut self.mes[at];
        me.local += if managed { mlength } else { 0 };
        me.delivering += 1;
        me.is_linked = !leaves;
        me.kept += later;
        let event = Event {
            kind: match request.action {
                Action::Put => EventKind::Put,
                Action::Get => EventKind::Get,
                Action::Atomic(..) => EventKind::Atomic,
                Action::FetchAtomic(..) | Action::Swap(..) => EventKind::FetchAtomic,
            },
            fail: Fail::Ok,
            list,
            start: address(&entry.region, offset),
            user_ptr: me.user_ptr,
            hdr_data: request.hdr_data,
            match_bits,
            rlength: length,
            mlength,
            remote_offset,
            initiator,
            uid: request.uid,
            pt_index: index,
            atomic: request.action.atomic(),
        };
        let owner = me.name;
        let header = header.then(|| {
            self.came += 1;
            let (number, is_listed, is_ready, claim) = (self.came, true, false, None);
            self.headers.push(Header { number, event, owner, is_listed, is_ready, claim });
            number
        });
        Ok(Delivery { request: *request, event, offset, owner, header, kept: now })
    }

    pub(crate) fn deliver(&mut self, delivery: Delivery, fail: Fail) -> Option<Answer> {
        let Delivery { request, event, offset, owner, header, kept } = delivery;
        let pt = self.pt(request.pt_index).expect("in use");
        pt.delivering -= 1;
        let eq = pt.eq;
        self.unkeep(eq, kept);
        let me = self.mes.iter_mut().find(|me| me.name == owner).expect("in use");
        me.delivering -= 1;
        let (options, counter) = (me.entry.options, me.entry.counter);
        let event = Event { fail, ..event };
        let shown = if fail == Fail::Ok { EntryOptions::EVENT_SUCCESS_DISABLE } else { NO };
        if !options.intersects(EntryOptions::EVENT_COMM_DISABLE | shown) {
            self.post(eq, event);
        }
        if options.contains(EntryOptions::EVENT_CT_COMM) {
            let bytes = options.contains(EntryOptions::EVENT_CT_BYTES);
            self.count(counter, fail, if bytes { event.mlength } else { 1 });
        }
        self.leave(eq, owner);
        if let Some(header) = self.headers.iter_mut().find(|it| Some(it.number) == header) {
            (header.is_ready, header.event.fail) = (true, fail);
            let (number, claimed) = (header.number, header.claim.is_some());
            if claimed {
                self.hand_over(eq, number);
            }
        }
        let fetches = request.action.fetches();
        wants_answer(&request).then(|| Answer {
            operation: request.operation,
            fail,
            is_quiet: !fetches && options.contains(EntryOptions::ACK_DISABLE),
            list: event.list,
            mlength: event.mlength,
            offset,
        })
    }

    pub(crate) fn bind(&mut self, name: MdHandle, md: MemoryDescriptor) {
        self.mds.push((name, md));
    }

    pub(crate) fn release(&mut self, name: MdHandle) -> Result<()> {
        let at = self.mds.iter().position(|(md, _)| *md == name).ok_or(Error::ArgInvalid)?;
        let uses = |transfer: &Transfer, sent: bool| {
            let put = transfer.put.filter(|_| !sent);
            put.iter().chain(&transfer.get).any(|local| local.md == name)
        };
        let waits = self.counters.iter().flat_map(|counter| &counter.later);
        let waits =
            waits.filter(|(_, what)| matches!(what, Later::Transfer(transfer) if uses(transfer, false)));
        if waits.count() > 0
            || self.operations.iter().any(|operation| uses(&operation.transfer, operation.sent))
        {
            return Err(Error::InUse);
        }
        self.mds.remove(at);
        Ok(())
    }

    fn md(&self, name: MdHandle) -> Option<&MemoryDescriptor> {
        self.mds.iter().find(|(md, _)| *md == name).map(|(_, md)| md)
    }

    pub(crate) fn check_transfer(&self, transfer: &Transfer) -> Result<()> {
        let wrong = Err(Error::ArgInvalid);
        for local in transfer.put.iter().chain(&transfer.get) {
            let Some(md) = self.md(local.md) else { return wrong };
            if local.offset + transfer.length > md.region.len() {
                return wrong;
            }
        }
        if let Some((op, datatype)) = transfer.action.atomic() {
            let single = op.is_swap() && op != portals::Op::Swap;
            let size = datatype.size() as u64;
            let swaps = matches!(transfer.action, Action::Swap(..));
            if op.is_swap() != swaps || !op.takes(datatype) || !transfer.length.is_multiple_of(size) {
                return wrong;
            }
            if single && transfer.length > size {
                return wrong;
            }
        }
        if transfer.get.is_some() {
            return Ok(());
        }
        let md = self.md(transfer.put.expect("it brings").md).expect("looked up");
        match transfer.ack {
            AckReq::Full if md.eq.is_none() => wrong,
            AckReq::Counting if md.counter.is_none() => wrong,
            _ => Ok(()),
        }
    }

    /// The request for a transfer, with the engine's number.
    pub(crate) fn start(&mut self, transfer: &Transfer, number: u64) -> Request {
        let sides =
            [transfer.put, transfer.get].map(|local| local.and_then(|local| self.md(local.md).cloned()));
        let sent = transfer.put.is_none();
        self.operations.push(Operation { number, transfer: *transfer, sides, sent, failure_told: false });
        Request {
            operation: number,
            action: transfer.action,
            ack: transfer.ack,
            initiator: self.process,
            uid: self.uid,
            pt_index: transfer.pt_index,
            match_bits: transfer.match_bits,
            remote_offset: transfer.remote_offset,
            length: transfer.length,
            hdr_data: transfer.hdr_data,
        }
    }

    pub(crate) fn sent(&mut self, number: u64, fail: Fail) {
        let Some(at) = self.operations.iter().position(|operation| operation.number == number) else {
            return;
        };
        let Operation { transfer, sides: [put, _], sent, .. } = &mut self.operations[at];
        let (transfer, put) = (*transfer, put.clone());
        if !std::mem::replace(sent, true) {
            let md = put.expect("what has nothing to send is sent");
            let mut quiet = MdOptions::EVENT_SEND_DISABLE;
            quiet.set(MdOptions::EVENT_SUCCESS_DISABLE, fail == Fail::Ok);
            if !md.options.intersects(quiet) {
                self.operations[at].failure_told = fail != Fail::Ok && md.eq.is_some();
                self.post(md.eq, Event { fail, ..Event::new(EventKind::Send, transfer.user_ptr) });
            }
            if md.options.contains(MdOptions::EVENT_CT_SEND) {
                let bytes = md.options.contains(MdOptions::EVENT_CT_BYTES);
                self.count(md.counter, fail, if bytes { transfer.length } else { 1 });
            }
        }
        if transfer.get.is_none() && transfer.ack == AckReq::None {
            self.operations.remove(at);
        }
    }

    pub(crate) fn answered(&mut self, answer: &Answer) {
        let waits = |operation: &Operation| {
            operation.number == answer.operation
                && (operation.transfer.get.is_some() || operation.transfer.ack != AckReq::None)
        };
        if !self.operations.iter().any(waits) {
            return;
        }
        self.sent(answer.operation, Fail::Ok);
        let at = self.operations.iter().position(waits).expect("it waits");
        let Operation { transfer, sides: [put, get], failure_told, .. } = self.operations.remove(at);
        let completed = get.is_none() && transfer.ack == AckReq::Completed;
        let (md, kind, counts, is_told) = match (put, get) {
            (_, Some(md)) => (md, EventKind::Reply, MdOptions::EVENT_CT_REPLY, true),
            (Some(md), None) => {
                let is_told = transfer.ack == AckReq::Full && !failure_told;
                (md, EventKind::Ack, MdOptions::EVENT_CT_ACK, is_told)
            }
            (None, None) => unreachable!("a transfer has a side"),
        };
        if answer.is_quiet && kind == EventKind::Ack {
            return;
        }
        let shown = answer.fail != Fail::Ok || !md.options.contains(MdOptions::EVENT_SUCCESS_DISABLE);
        if is_told && shown {
            let Answer { fail, list, mlength, offset: remote_offset, .. } = *answer;
            self.post(
                md.eq,
                Event { fail, list, mlength, remote_offset, ..Event::new(kind, transfer.user_ptr) },
            );
        }
        if md.options.contains(counts) {
            let fail = if completed && answer.fail != Fail::Undeliverable { Fail::Ok } else { answer.fail };
            let bytes = md.options.contains(MdOptions::EVENT_CT_BYTES) && !completed;
            self.count(md.counter, fail, if bytes { answer.mlength } else { 1 });
        }
    }

    pub(crate) fn undeliverable(&mut self, operation: u64) {
        let fail = Fail::Undeliverable;
        self.sent(operation, fail);
        self.answered(&Answer {
            operation,
            fail,
            is_quiet: false,
            list: List::Priority,
            mlength: 0,
            offset: 0,
        });
    }
}

fn wants_answer(request: &Request) -> bool {
    request.ack != AckReq::None || !matches!(request.action, Action::Put | Action::Atomic(..))
}

fn takes(entry: &Entry, local: u64, from: Process, bits: u64, offset: u64, length: u64) -> bool {
    let offset = if entry.options.contains(EntryOptions::MANAGE_LOCAL) { local } else { offset };
    let fits = offset + length <= entry.region.len();
    entry.source.nid.is_none_or(|nid| nid == from.nid)
        && entry.source.pid.is_none_or(|pid| pid == from.pid)
        && (bits | entry.ignore_bits) == (entry.match_bits | entry.ignore_bits)
        && (fits || !entry.options.contains(EntryOptions::NO_TRUNCATE))
}

fn address(region: &Region, offset: u64) -> u64 {
    let bytes: Vec<u64> =
        region.part(0, u64::MAX).flat_map(|piece| piece.addr..piece.addr + piece.len).collect();
    match (bytes.get(offset as usize), bytes.last()) {
        (Some(byte), _) => *byte,
        (None, Some(last)) => last + 1 + offset - bytes.len() as u64,
        (None, None) => region.address(offset),
    }
}
