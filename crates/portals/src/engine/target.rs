//! [`Target`]: the portal table, its lists, and what is done with the messages that come: the one place that matches.
//!
//! A message is let in, or refused, when its header comes ([`Target::arrive`]). Then whoever has the data moves them, and says when they
//! are there ([`Target::deliver`]). Between the two the entry is in use, and a header in the unexpected list may already be taken by
//! a new entry, which is told when the data are there.

use verbs::host::SlotKey;

use crate::engine::completions::Completions;
use crate::engine::matchlist::{Entries, Listed, MatchList, State};
use crate::engine::unexpected::{Claim, Header, Headers, Stage, Unexpected};
use crate::objects::entry::{Entry, Envelope};
use crate::objects::error::{Error, Result};
use crate::objects::event::{Event, EventKind, Fail, List};
use crate::objects::handles::{CtHandle, EntryHandle, EqHandle};
use crate::objects::limits::Limits;
use crate::objects::message::{Answer, Request};
use crate::objects::options::{EntryOptions, PtOptions};
use crate::objects::process::Source;
use crate::objects::region::Region;

/// What a search does with what it finds (`PTL_SEARCH_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Tells of it.
    Only,
    /// Takes it out, as an entry that is appended.
    Delete,
}

/// What an interface counts of messages that it refused (`PTL_SR_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Those without an entry, without room, or for a portal table entry that is disabled or not there.
    pub drops: u64,
    /// Those of users that the entry is not for.
    pub permission_violations: u64,
    /// Those that asked for what the entry does not do.
    pub operation_violations: u64,
}

/// What becomes of a message.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most messages are delivered, and none should allocate")]
pub enum Arrival {
    /// Its data are to be moved.
    Deliver(Delivery),
    /// It is refused; the initiator is told this, if it wants to be told.
    Refused(Option<Answer>),
    /// There is no place for it yet, and the interface is patient ([`crate::Engine::set_patient`]): it is to come again, before
    /// whatever comes behind it from the same initiator.
    Wait,
}

/// A message that an entry has taken, whose data are to be moved; to be given back by [`crate::Engine::deliver`].
#[derive(Debug)]
#[must_use = "the entry stays in use until the delivery is over"]
pub struct Delivery {
    request: Request,
    event: Event,
    entry: SlotKey,
    header: Option<SlotKey>,
    /// Slots of the event queue that are kept for it.
    slots: usize,
    region: Region,
    offset: u64,
}

impl Delivery {
    /// What is to be done.
    #[must_use]
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// Where: in this memory, from this byte on, so many bytes.
    #[must_use]
    pub const fn place(&self) -> (&Region, u64, u64) {
        (&self.region, self.offset, self.event.mlength)
    }
}

#[derive(Debug)]
struct Pt {
    options: PtOptions,
    eq: Option<EqHandle>,
    is_enabled: bool,
    priority: MatchList,
    overflow: MatchList,
    unexpected: Unexpected,
    /// Messages under way into it.
    pending: u32,
}

impl Pt {
    fn list_mut(&mut self, list: List) -> &mut MatchList {
        match list {
            List::Priority => &mut self.priority,
            List::Overflow => &mut self.overflow,
        }
    }

    /// There is no room for a message, which an entry with these options would have taken: what the initiator is told.
    fn no_room(&mut self, completions: &mut Completions, pt_index: u32, options: EntryOptions) -> Fail {
        if !self.options.contains(PtOptions::FLOWCTRL) {
            return Fail::Dropped;
        }
        self.is_enabled = false;
        if !options.contains(EntryOptions::EVENT_FLOWCTRL_DISABLE) {
            let fail = Fail::PtDisabled;
            let event = Event { pt_index, fail, ..Event::new(EventKind::PtDisabled, 0) };
            completions.post_extra(self.eq, event);
        }
        Fail::PtDisabled
    }
}

fn pt_at(pts: &mut [Option<Pt>], index: u32) -> Option<&mut Pt> {
    pts.get_mut(index as usize).and_then(Option::as_mut)
}

/// The targeted half of an interface.
#[derive(Debug, Default)]
pub(crate) struct Target {
    /// Whether entries match; otherwise the first takes all.
    is_matching: bool,
    pts: Vec<Option<Pt>>,
    entries: Entries,
    headers: Headers,
    pub(crate) status: Status,
    /// Messages without a place wait instead of being refused.
    pub(crate) is_patient: bool,
}

impl Target {
    pub(crate) fn new(is_matching: bool) -> Self {
        Self { is_matching, ..Self::default() }
    }

    fn pt(&mut self, index: u32) -> Result<&mut Pt> {
        pt_at(&mut self.pts, index).ok_or(Error::ArgInvalid)
    }

    /// Takes a portal table entry: this one, or any.
    pub(crate) fn pt_alloc(
        &mut self,
        options: PtOptions,
        eq: Option<EqHandle>,
        index: Option<u32>,
        limits: &Limits,
    ) -> Result<u32> {
        if options.contains(PtOptions::FLOWCTRL) && eq.is_none() {
            return Err(Error::PtEqNeeded);
        }
        let count = limits.max_pt_index as usize + 1;
        let is_free = |pts: &[Option<Pt>], index: usize| pts.get(index).is_none_or(Option::is_none);
        let index = match index {
            Some(index) if index as usize >= count => return Err(Error::ArgInvalid),
            Some(index) if !is_free(&self.pts, index as usize) => return Err(Error::PtInUse),
            Some(index) => index as usize,
            None => (0..count).find(|index| is_free(&self.pts, *index)).ok_or(Error::PtFull)?,
        };
        if self.pts.len() <= index {
            self.pts.resize_with(index + 1, || None);
        }
        self.pts[index] = Some(Pt {
            options,
            eq,
            is_enabled: true,
            priority: MatchList::default(),
            overflow: MatchList::default(),
            unexpected: Unexpected::default(),
            pending: 0,
        });
        Ok(index as u32)
    }

    /// Gives a portal table entry back that has no list entries. Headers that nobody wanted are forgotten.
    pub(crate) fn pt_free(&mut self, completions: &mut Completions, index: u32) -> Result<()> {
        let pt = self.pt(index)?;
        if pt.pending > 0 || pt.priority.len() + pt.overflow.len() > 0 {
            return Err(Error::PtInUse);
        }
        let Some(pt) = self.pts[index as usize].take() else { return Err(Error::ArgInvalid) };
        let all = Entry::taking_all(Region::new(0, 0), EntryOptions::empty());
        for key in pt.unexpected.taken_by(&self.headers, &all) {
            let Some(header) = self.headers.table.remove(key) else { continue };
            if let Some(owner) = self.entries.table.get_mut(header.owner) {
                owner.headers -= 1;
            }
            self.retire(completions, pt.eq, header.owner);
        }
        Ok(())
    }

    /// Lets messages in, or not.
    pub(crate) fn pt_enable(&mut self, index: u32, is_enabled: bool) -> Result<()> {
        self.pt(index)?.is_enabled = is_enabled;
        Ok(())
    }

    /// Takes an entry in, which is put into its list by [`Target::link`].
    pub(crate) fn prepare(
        &mut self,
        completions: &Completions,
        (pt_index, list): (u32, List),
        entry: Entry,
        user_ptr: u64,
        limits: &Limits,
    ) -> Result<EntryHandle> {
        let entry = self.checked(pt_index, entry, limits)?;
        completions.check_ct(entry.counter)?;
        if self.pt(pt_index)?.list_mut(list).len() >= limits.max_list_size as usize {
            return Err(Error::ListTooLong);
        }
        if self.entries.table.len() >= limits.max_entries as usize {
            return Err(Error::NoSpace);
        }
        Ok(EntryHandle(self.entries.insert(entry, user_ptr, pt_index, list)))
    }

    /// An entry as this interface has it.
    fn checked(&mut self, pt_index: u32, entry: Entry, limits: &Limits) -> Result<Entry> {
        self.pt(pt_index)?;
        if entry.region.piece_count() > limits.max_iovecs as usize {
            return Err(Error::ArgInvalid);
        }
        if self.is_matching {
            return Ok(entry);
        }
        if !EntryOptions::NOT_MATCHING.contains(entry.options) {
            return Err(Error::ArgInvalid);
        }
        Ok(Entry { source: Source::ANY, match_bits: 0, ignore_bits: u64::MAX, min_free: 0, ..entry })
    }

    /// Puts an entry that waits into its list, after it has taken the headers that it wants: one that is used once, the first of
    /// them, instead of going into the list.
    pub(crate) fn link(&mut self, completions: &mut Completions, handle: EntryHandle) {
        let key = handle.0;
        let Some(listed) = self.entries.table.get(key).filter(|listed| listed.state == State::Waiting) else {
            return;
        };
        let Listed { list, pt_index, user_ptr, ref entry, .. } = *listed;
        let Some(pt) = pt_at(&mut self.pts, pt_index) else {
            // The portal table entry has gone while the entry waited for a counter.
            self.entries.table.remove(key);
            return;
        };
        let (eq, options) = (pt.eq, entry.options);
        if list == List::Priority && !pt.unexpected.is_empty() {
            let taken = pt.unexpected.taken_by(&self.headers, entry);
            let leaves = options.contains(EntryOptions::USE_ONCE) && !taken.is_empty();
            let claim = Claim { options, counter: entry.counter, user_ptr, leaves };
            taken.into_iter().for_each(|header| self.claim(completions, pt_index, header, claim));
            if leaves {
                self.entries.table.remove(key);
                return;
            }
        }
        let Some(pt) = pt_at(&mut self.pts, pt_index) else { return };
        pt.list_mut(list).push(&mut self.entries, key);
        if !options.contains(EntryOptions::EVENT_LINK_DISABLE) {
            completions.post(eq, Event { pt_index, list, ..Event::new(EventKind::Link, user_ptr) });
        }
    }

    /// Takes a header out of the unexpected list for somebody, who is told now, or when its data are there.
    fn claim(&mut self, completions: &mut Completions, pt_index: u32, key: SlotKey, claim: Claim) {
        let Some(pt) = pt_at(&mut self.pts, pt_index) else { return };
        let eq = pt.eq;
        pt.unexpected.unlink(&mut self.headers, key);
        let Some(header) = self.headers.table.get_mut(key) else { return };
        match header.stage {
            Stage::Here => self.hand_over(completions, eq, key, claim),
            Stage::Arriving | Stage::Claimed(_) => header.stage = Stage::Claimed(claim),
        }
    }

    /// Tells who has claimed a header, whose data are there, and forgets it.
    fn hand_over(&mut self, completions: &mut Completions, eq: Option<EqHandle>, key: SlotKey, claim: Claim) {
        let Some(Header { event, owner, .. }) = self.headers.table.remove(key) else { return };
        let Claim { options, counter, user_ptr, leaves } = claim;
        let is_told = !options.contains(EntryOptions::EVENT_OVER_DISABLE)
            && (event.fail != Fail::Ok || !options.contains(EntryOptions::EVENT_SUCCESS_DISABLE));
        if is_told {
            completions.post(eq, Event { kind: event.kind.overflow(), user_ptr, ..event });
        }
        if options.contains(EntryOptions::EVENT_CT_OVERFLOW) {
            count(completions, options, counter, &event);
        }
        if let Some(owner) = self.entries.table.get_mut(owner) {
            owner.headers -= 1;
        }
        self.retire(completions, eq, owner);
        if leaves && !options.contains(EntryOptions::EVENT_UNLINK_DISABLE) {
            let (pt_index, list) = (event.pt_index, List::Priority);
            completions.post(eq, Event { pt_index, list, ..Event::new(EventKind::AutoUnlink, user_ptr) });
        }
    }

    /// Tells of an entry that has left its list by itself, when no message uses it any more, and forgets it with its last header.
    fn retire(&mut self, completions: &mut Completions, eq: Option<EqHandle>, key: SlotKey) {
        let Some(listed) = self.entries.table.get_mut(key) else { return };
        let Listed { list, pt_index, user_ptr, pending: 0, headers, .. } = *listed else { return };
        let State::Left { told, ref mut reserved } = listed.state else { return };
        let is_told = !listed.entry.is(EntryOptions::EVENT_UNLINK_DISABLE);
        let mut tell = |kind| {
            if is_told {
                let slots = u8::from(*reserved > 0);
                *reserved -= slots;
                completions.unreserve(eq, slots.into());
                completions.post(eq, Event { pt_index, list, ..Event::new(kind, user_ptr) });
            }
        };
        if !told {
            tell(EventKind::AutoUnlink);
        }
        if headers == 0 {
            if list == List::Overflow {
                tell(EventKind::AutoFree);
            }
            self.entries.table.remove(key);
        } else {
            let reserved = *reserved;
            listed.state = State::Left { told: true, reserved };
        }
    }

    /// Takes an entry out that nothing uses.
    pub(crate) fn unlink(&mut self, handle: EntryHandle) -> Result<()> {
        let listed = self.entries.table.get(handle.0).ok_or(Error::ArgInvalid)?;
        match listed.state {
            State::Left { .. } if listed.pending == 0 => return Err(Error::ArgInvalid),
            _ if listed.pending > 0 || listed.headers > 0 => return Err(Error::InUse),
            State::Waiting | State::Left { .. } => {}
            State::Linked => {
                let Listed { pt_index, list, .. } = *listed;
                if let Some(pt) = pt_at(&mut self.pts, pt_index) {
                    pt.list_mut(list).remove(&mut self.entries, handle.0);
                }
            }
        }
        self.entries.table.remove(handle.0);
        Ok(())
    }

    /// Looks for headers as an entry would that is appended, and tells of them, or that there are none.
    pub(crate) fn search(
        &mut self,
        completions: &mut Completions,
        pt_index: u32,
        entry: Entry,
        search: Search,
        user_ptr: u64,
        limits: &Limits,
    ) -> Result<()> {
        let entry = self.checked(pt_index, entry, limits)?;
        let options = entry.options;
        let pt = self.pts.get(pt_index as usize).and_then(Option::as_ref).ok_or(Error::ArgInvalid)?;
        let (eq, taken) = (pt.eq, pt.unexpected.taken_by(&self.headers, &entry));
        let mut tell = |event: Event| {
            let is_told = !options.contains(EntryOptions::EVENT_COMM_DISABLE)
                && (event.fail != Fail::Ok || !options.contains(EntryOptions::EVENT_SUCCESS_DISABLE));
            if is_told {
                completions.post(eq, event);
            }
        };
        if taken.is_empty() {
            let fail = Fail::NoMatch;
            tell(Event { fail, pt_index, ..Event::new(EventKind::Search, user_ptr) });
        }
        match search {
            Search::Only => taken.iter().for_each(|key| {
                let event = self.headers.table[key.slot()].event;
                tell(Event { kind: EventKind::Search, fail: Fail::Ok, user_ptr, ..event });
            }),
            Search::Delete => {
                let claim = Claim { options, counter: None, user_ptr, leaves: false };
                taken.into_iter().for_each(|header| self.claim(completions, pt_index, header, claim));
            }
        }
        Ok(())
    }

    /// Entries that a walk through the lists looks at for a request.
    pub(crate) fn walk_length(&self, request: &Request) -> u64 {
        let Some(pt) = self.pts.get(request.pt_index as usize).and_then(Option::as_ref) else { return 0 };
        let Request { initiator, match_bits, remote_offset, length, .. } = *request;
        let envelope = Envelope { initiator, match_bits, remote_offset, length };
        match pt.priority.walk_length(&self.entries, &envelope) {
            (looked, true) => looked,
            (looked, false) => looked + pt.overflow.walk_length(&self.entries, &envelope).0,
        }
    }

    /// Lets a message in, or refuses it.
    pub(crate) fn arrive(
        &mut self,
        completions: &mut Completions,
        limits: &Limits,
        request: &Request,
    ) -> Arrival {
        match self.admit(completions, limits, request) {
            Ok(delivery) => Arrival::Deliver(delivery),
            Err(fail) => match self.refuse(request, fail) {
                Some(answer) => Arrival::Refused(answer),
                None => Arrival::Wait,
            },
        }
    }

    /// Lets a message in whose data `mover` moves at once, into this memory, from this byte on, so many bytes; or refuses it. What the
    /// initiator is told; `None` if the message is to wait.
    #[inline]
    pub(crate) fn arrive_whole(
        &mut self,
        completions: &mut Completions,
        limits: &Limits,
        request: &Request,
        mover: impl FnOnce(&Region, u64, u64) -> Fail,
    ) -> Option<Option<Answer>> {
        let chosen = match self.choose(completions, limits, request) {
            Ok(chosen) => chosen,
            Err(fail) => return self.refuse(request, fail),
        };
        let Chosen { key, offset, mlength, .. } = chosen;
        let fail =
            self.entries.table.get(key).map_or(Fail::Segv, |it| mover(&it.entry.region, offset, mlength));
        let mut event = chosen.event(request);
        event.fail = fail;
        let Some(pt) = pt_at(&mut self.pts, request.pt_index) else { return Some(None) };
        completions.unreserve(pt.eq, chosen.slots.now);
        chosen.tell(completions, pt.eq, &event);
        if chosen.leaves {
            chosen.leave(pt, &mut self.entries);
        }
        if chosen.keeps_header {
            let header = Header { event, owner: key, stage: Stage::Here };
            pt.unexpected.push(&mut self.headers, header);
            self.entries.table.get_mut(key).into_iter().for_each(|listed| listed.headers += 1);
        }
        if chosen.leaves {
            let eq = pt.eq;
            self.retire(completions, eq, key);
        }
        Some(chosen.answer(request, fail))
    }

    /// Whether a portal table entry lets messages in, but has no entry in its priority list, and no header: the next that is appended
    /// there takes the next message that it matches.
    #[inline]
    pub(crate) fn awaits_nothing(&self, index: u32) -> bool {
        let pt = self.pts.get(index as usize).and_then(Option::as_ref);
        pt.is_some_and(|pt| pt.is_enabled && pt.priority.len() == 0 && pt.unexpected.is_empty())
    }

    /// What the initiator of a message is told that is refused; `None` if the message is to wait instead.
    #[cold]
    fn refuse(&mut self, request: &Request, fail: Fail) -> Option<Option<Answer>> {
        if fail == Fail::Dropped && self.is_patient {
            return None;
        }
        let register = match fail {
            Fail::PermViolation => &mut self.status.permission_violations,
            Fail::OpViolation => &mut self.status.operation_violations,
            _ => &mut self.status.drops,
        };
        *register += 1;
        let (operation, is_quiet, list, mlength, offset) = (request.operation, false, List::Priority, 0, 0);
        let answer = Answer { operation, fail, is_quiet, list, mlength, offset };
        Some(request.is_answered().then_some(answer))
    }

    /// Finds the entry that takes a message, and room for what it will tell.
    #[inline]
    fn choose(
        &mut self,
        completions: &mut Completions,
        limits: &Limits,
        request: &Request,
    ) -> std::result::Result<Chosen, Fail> {
        let Self { pts, entries, headers, .. } = self;
        let pt = pt_at(pts, request.pt_index).ok_or(Fail::Dropped)?;
        if !pt.is_enabled {
            return Err(Fail::PtDisabled);
        }
        let Request { initiator, match_bits, remote_offset, length, .. } = *request;
        let envelope = Envelope { initiator, match_bits, remote_offset, length };
        let found = pt.priority.find(entries, &envelope).or_else(|| pt.overflow.find(entries, &envelope));
        let Some(key) = found else {
            return Err(pt.no_room(completions, request.pt_index, EntryOptions::empty()));
        };
        let Some(listed) = entries.table.get_mut(key) else { return Err(Fail::Dropped) };
        permit(&listed.entry, request)?;

        let Listed { list, user_ptr, entry: Entry { options, counter, .. }, .. } = *listed;
        let (offset, mlength) = place(listed, request);
        let leaves = leaves(listed, mlength);
        let slots = Slots::of(list, options, leaves, pt);
        let keeps_header = list == List::Overflow && !options.contains(EntryOptions::UNEXPECTED_HDR_DISABLE);
        let has_room = !keeps_header || headers.table.len() < limits.max_unexpected_headers as usize;
        if !has_room || !completions.reserve(pt.eq, slots.now + slots.later) {
            return Err(pt.no_room(completions, request.pt_index, options));
        }
        if options.contains(EntryOptions::MANAGE_LOCAL) {
            listed.local += mlength;
        }
        let start = listed.entry.region.address(offset);
        Ok(Chosen {
            key,
            options,
            counter,
            list,
            user_ptr,
            start,
            offset,
            mlength,
            leaves,
            keeps_header,
            slots,
        })
    }

    fn admit(
        &mut self,
        completions: &mut Completions,
        limits: &Limits,
        request: &Request,
    ) -> std::result::Result<Delivery, Fail> {
        let chosen = self.choose(completions, limits, request)?;
        let Self { pts, entries, headers, .. } = self;
        let Chosen { key, offset, keeps_header, .. } = chosen;
        let pt = pt_at(pts, request.pt_index).ok_or(Fail::Dropped)?;
        let Some(listed) = entries.table.get_mut(key) else { return Err(Fail::Dropped) };
        listed.pending += 1;
        listed.headers += u32::from(keeps_header);
        pt.pending += 1;
        let (event, region) = (chosen.event(request), listed.entry.region.clone());
        if chosen.leaves {
            chosen.leave(pt, entries);
        }
        let stage = Stage::Arriving;
        let header = keeps_header.then(|| pt.unexpected.push(headers, Header { event, owner: key, stage }));
        Ok(Delivery { request: *request, event, entry: key, header, slots: chosen.slots.now, region, offset })
    }

    /// The data of a message are where they belong, or with a failure, may be there in part. What the initiator is told.
    pub(crate) fn deliver(
        &mut self,
        completions: &mut Completions,
        delivery: Delivery,
        fail: Fail,
    ) -> Option<Answer> {
        let Delivery { request, event, entry: key, header, slots, offset, .. } = delivery;
        let event = Event { fail, ..event };
        let pt = pt_at(&mut self.pts, request.pt_index)?;
        let eq = pt.eq;
        pt.pending -= 1;
        completions.unreserve(eq, slots);
        let listed = self.entries.table.get_mut(key)?;
        listed.pending -= 1;
        let Entry { options, counter, .. } = listed.entry;
        tell(completions, (options, counter), eq, &event);
        self.retire(completions, eq, key);
        if let Some(key) = header
            && let Some(header) = self.headers.table.get_mut(key)
        {
            let stage = std::mem::replace(&mut header.stage, Stage::Here);
            header.event.fail = fail;
            if let Stage::Claimed(claim) = stage {
                self.hand_over(completions, eq, key, claim);
            }
        }
        let is_quiet = options.contains(EntryOptions::ACK_DISABLE) && !request.action.fetches();
        let (operation, list, mlength) = (request.operation, event.list, event.mlength);
        request.is_answered().then_some(Answer { operation, fail, is_quiet, list, mlength, offset })
    }
}

/// The entry that takes a message, and what follows from that.
struct Chosen {
    key: SlotKey,
    options: EntryOptions,
    counter: Option<CtHandle>,
    list: List,
    user_ptr: u64,
    start: u64,
    offset: u64,
    mlength: u64,
    leaves: bool,
    keeps_header: bool,
    slots: Slots,
}

impl Chosen {
    #[inline]
    fn event(&self, request: &Request) -> Event {
        let Self { list, start, mlength, user_ptr, .. } = *self;
        Event { list, start, mlength, user_ptr, ..request.event() }
    }

    /// Takes the entry out of its list.
    fn leave(&self, pt: &mut Pt, entries: &mut Entries) {
        pt.list_mut(self.list).remove(entries, self.key);
        if let Some(listed) = entries.table.get_mut(self.key) {
            listed.state = State::Left { told: false, reserved: self.slots.later as u8 };
        }
    }

    /// Tells the target of the message.
    #[inline]
    fn tell(&self, completions: &mut Completions, eq: Option<EqHandle>, event: &Event) {
        let Self { options, counter, .. } = *self;
        tell(completions, (options, counter), eq, event);
    }

    /// What the initiator is told.
    #[inline]
    fn answer(&self, request: &Request, fail: Fail) -> Option<Answer> {
        let is_quiet = self.options.contains(EntryOptions::ACK_DISABLE) && !request.action.fetches();
        let Self { list, mlength, offset, .. } = *self;
        let operation = request.operation;
        request.is_answered().then_some(Answer { operation, fail, is_quiet, list, mlength, offset })
    }
}

/// Tells the target of a message that an entry has taken, by an event and by its counter.
#[inline]
fn tell(
    completions: &mut Completions,
    (options, counter): (EntryOptions, Option<CtHandle>),
    eq: Option<EqHandle>,
    event: &Event,
) {
    let is_told = !options.contains(EntryOptions::EVENT_COMM_DISABLE)
        && (event.fail != Fail::Ok || !options.contains(EntryOptions::EVENT_SUCCESS_DISABLE));
    if is_told {
        completions.post(eq, *event);
    }
    if options.contains(EntryOptions::EVENT_CT_COMM) {
        count(completions, options, counter, event);
    }
}

/// Counts a message on an entry's counter.
fn count(completions: &mut Completions, options: EntryOptions, counter: Option<CtHandle>, event: &Event) {
    let bytes = options.contains(EntryOptions::EVENT_CT_BYTES);
    completions.count(counter, event.fail, if bytes { event.mlength } else { 1 });
}

/// Refuses what an entry does not let this user, or anybody, do.
fn permit(entry: &Entry, request: &Request) -> std::result::Result<(), Fail> {
    if entry.uid.is_some_and(|uid| uid != request.uid) {
        return Err(Fail::PermViolation);
    }
    let mut needs = EntryOptions::empty();
    needs.set(EntryOptions::OP_PUT, request.action.brings());
    needs.set(EntryOptions::OP_GET, request.action.fetches());
    if entry.is(needs) { Ok(()) } else { Err(Fail::OpViolation) }
}

/// Whether an entry that is used once takes all of a message, and lets its user do that.
#[inline]
pub(crate) fn would_take(entry: &Entry, request: &Request) -> bool {
    let Request { initiator, match_bits, remote_offset, length, .. } = *request;
    let envelope = Envelope { initiator, match_bits, remote_offset, length };
    entry.is(EntryOptions::USE_ONCE | EntryOptions::NO_TRUNCATE)
        && !entry.is(EntryOptions::MANAGE_LOCAL)
        && entry.takes(&envelope, 0)
        && permit(entry, request).is_ok()
}

/// Where a message goes in an entry's memory, and how much of it: what fits, in whole elements.
fn place(listed: &Listed, request: &Request) -> (u64, u64) {
    let entry = &listed.entry;
    let offset = if entry.is(EntryOptions::MANAGE_LOCAL) { listed.local } else { request.remote_offset };
    let room = entry.region.len().saturating_sub(offset);
    let mlength = request.length.min(room);
    match request.action.atomic() {
        Some((_, datatype)) => (offset, mlength - mlength % datatype.size() as u64),
        None => (offset, mlength),
    }
}

/// Whether an entry leaves its list with a message of so many bytes.
fn leaves(listed: &Listed, mlength: u64) -> bool {
    let entry = &listed.entry;
    let left = entry.region.len().saturating_sub(listed.local + mlength);
    entry.is(EntryOptions::USE_ONCE)
        || (entry.is(EntryOptions::MANAGE_LOCAL) && entry.min_free > 0 && left < entry.min_free)
}

/// Slots of the event queue that a message needs where none may be lost.
struct Slots {
    /// For the event of its delivery.
    now: usize,
    /// For those of the entry that it makes leave.
    later: usize,
}

impl Slots {
    fn of(list: List, options: EntryOptions, leaves: bool, pt: &Pt) -> Self {
        if !pt.options.contains(PtOptions::FLOWCTRL) {
            return Self { now: 0, later: 0 };
        }
        let silent = EntryOptions::EVENT_COMM_DISABLE | EntryOptions::EVENT_SUCCESS_DISABLE;
        let is_told = leaves && !options.contains(EntryOptions::EVENT_UNLINK_DISABLE);
        let each = 1 + usize::from(list == List::Overflow);
        Self { now: usize::from(!options.intersects(silent)), later: if is_told { each } else { 0 } }
    }
}
