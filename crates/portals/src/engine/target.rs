//! [`Target`]: the portal table with its lists; matches and delivers messages (Portals 4.3, sections 3.7, 3.11 and 3.12).
//!
//! [`Target::arrive`] accepts or refuses a message when its header arrives. The driver then moves the data
//! and calls [`Target::deliver`]. In between the entry is in use. A new entry can claim a header of the
//! unexpected list in this time; it is notified when the data have arrived.

use verbs::host::SlotKey;

use crate::engine::completions::Completions;
use crate::engine::matchlist::{Entries, EntryState, Listed, MatchList};
use crate::engine::unexpected::{Claim, Header, HeaderState, Headers, Unexpected};
use crate::objects::entry::{Entry, Envelope};
use crate::objects::error::{Error, Result};
use crate::objects::event::{Event, EventKind, Fail, List};
use crate::objects::handles::{CtHandle, EntryHandle, EqHandle};
use crate::objects::limits::Limits;
use crate::objects::message::{Answer, Request};
use crate::objects::options::{EntryOptions, PtOptions};
use crate::objects::process::Source;
use crate::objects::region::Region;

/// What a search does with the headers it finds (`PTL_SEARCH_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Reports them.
    Only,
    /// Reports and removes them, as an appended entry would.
    Delete,
}

/// Counts of messages that an interface refused (`PTL_SR_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Messages without an entry or room, or for a portal table entry that is disabled or not allocated.
    pub drops: u64,
    /// Messages from users that the entry does not admit.
    pub permission_violations: u64,
    /// Messages with operations that the entry does not permit.
    pub operation_violations: u64,
}

/// The result of matching a message.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most messages are delivered, and none should allocate")]
pub enum Arrival {
    /// The caller moves its data.
    Deliver(Delivery),
    /// It is refused; the answer for the initiator, if it requested one.
    Refused(Option<Answer>),
    /// The interface is patient ([`crate::Engine::set_patient`]) and has no room yet: the caller retries the
    /// message before any later one of the same initiator.
    Wait,
}

/// A matched message whose data the caller moves; it ends with [`crate::Engine::deliver`].
#[derive(Debug)]
#[must_use = "the entry stays in use until the delivery is over"]
pub struct Delivery {
    request: Request,
    event: Event,
    entry: SlotKey,
    header: Option<SlotKey>,
    /// Slots of the event queue that are reserved for it.
    slots: usize,
    region: Region,
    offset: u64,
}

impl Delivery {
    /// The request that is delivered.
    #[must_use]
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// The destination: memory, offset and length.
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
    /// Messages in delivery to it.
    pending: u32,
}

impl Pt {
    fn list_mut(&mut self, list: List) -> &mut MatchList {
        match list {
            List::Priority => &mut self.priority,
            List::Overflow => &mut self.overflow,
        }
    }

    /// Handles a message without room that an entry with these options would have matched; returns the
    /// failure for the initiator.
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

/// The target half of an interface.
#[derive(Debug, Default)]
pub(crate) struct Target {
    /// Whether entries match; otherwise the first accepts everything.
    is_matching: bool,
    pts: Vec<Option<Pt>>,
    entries: Entries,
    headers: Headers,
    pub(crate) status: Status,
    /// Messages without room wait instead of being refused.
    pub(crate) is_patient: bool,
}

impl Target {
    pub(crate) fn new(is_matching: bool) -> Self {
        Self { is_matching, ..Self::default() }
    }

    fn pt(&mut self, index: u32) -> Result<&mut Pt> {
        pt_at(&mut self.pts, index).ok_or(Error::ArgInvalid)
    }

    /// Allocates a portal table entry: this one, or any.
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

    /// Frees a portal table entry without list entries. Its unexpected headers are dropped.
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

    /// Enables or disables a portal table entry.
    pub(crate) fn pt_enable(&mut self, index: u32, is_enabled: bool) -> Result<()> {
        self.pt(index)?.is_enabled = is_enabled;
        Ok(())
    }

    /// Adds an entry that [`Target::link`] will put into its list.
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

    /// The entry as this interface uses it, if it is valid.
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

    /// Links a waiting entry after it has claimed the unexpected headers that it matches. A use-once entry
    /// that finds a header claims it instead of being linked.
    pub(crate) fn link(&mut self, completions: &mut Completions, handle: EntryHandle) {
        let key = handle.0;
        let Some(listed) = self.entries.table.get(key).filter(|listed| listed.state == EntryState::Waiting)
        else {
            return;
        };
        let Listed { list, pt_index, user_ptr, ref entry, .. } = *listed;
        let Some(pt) = pt_at(&mut self.pts, pt_index) else {
            // The portal table entry was freed while the entry waited for a counter.
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

    /// Removes a header from the unexpected list for an entry, which is notified now or when the data have
    /// arrived.
    fn claim(&mut self, completions: &mut Completions, pt_index: u32, key: SlotKey, claim: Claim) {
        let Some(pt) = pt_at(&mut self.pts, pt_index) else { return };
        let eq = pt.eq;
        pt.unexpected.unlink(&mut self.headers, key);
        let Some(header) = self.headers.table.get_mut(key) else { return };
        match header.state {
            HeaderState::Arrived => self.notify_claimant(completions, eq, key, claim),
            HeaderState::Arriving | HeaderState::Claimed(_) => header.state = HeaderState::Claimed(claim),
        }
    }

    /// Notifies the entry that has claimed a header, now that its data have arrived, and drops the header.
    fn notify_claimant(
        &mut self,
        completions: &mut Completions,
        eq: Option<EqHandle>,
        key: SlotKey,
        claim: Claim,
    ) {
        let Some(Header { event, owner, .. }) = self.headers.table.remove(key) else { return };
        let Claim { options, counter, user_ptr, leaves } = claim;
        let is_reported = !options.contains(EntryOptions::EVENT_OVER_DISABLE)
            && (event.fail != Fail::Ok || !options.contains(EntryOptions::EVENT_SUCCESS_DISABLE));
        if is_reported {
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

    /// Reports an automatically unlinked entry when no message uses it any more, and drops it with its last
    /// header.
    fn retire(&mut self, completions: &mut Completions, eq: Option<EqHandle>, key: SlotKey) {
        let Some(listed) = self.entries.table.get_mut(key) else { return };
        let Listed { list, pt_index, user_ptr, pending: 0, headers, .. } = *listed else { return };
        let EntryState::Unlinked { reported, ref mut reserved } = listed.state else { return };
        let is_reported = !listed.entry.is(EntryOptions::EVENT_UNLINK_DISABLE);
        let mut report = |kind| {
            if is_reported {
                let slots = u8::from(*reserved > 0);
                *reserved -= slots;
                completions.unreserve(eq, slots.into());
                completions.post(eq, Event { pt_index, list, ..Event::new(kind, user_ptr) });
            }
        };
        if !reported {
            report(EventKind::AutoUnlink);
        }
        if headers == 0 {
            if list == List::Overflow {
                report(EventKind::AutoFree);
            }
            self.entries.table.remove(key);
        } else {
            let reserved = *reserved;
            listed.state = EntryState::Unlinked { reported: true, reserved };
        }
    }

    /// Removes an unused entry.
    pub(crate) fn unlink(&mut self, handle: EntryHandle) -> Result<()> {
        let listed = self.entries.table.get(handle.0).ok_or(Error::ArgInvalid)?;
        match listed.state {
            EntryState::Unlinked { .. } if listed.pending == 0 => return Err(Error::ArgInvalid),
            _ if listed.pending > 0 || listed.headers > 0 => return Err(Error::InUse),
            EntryState::Waiting | EntryState::Unlinked { .. } => {}
            EntryState::Linked => {
                let Listed { pt_index, list, .. } = *listed;
                if let Some(pt) = pt_at(&mut self.pts, pt_index) {
                    pt.list_mut(list).remove(&mut self.entries, handle.0);
                }
            }
        }
        self.entries.table.remove(handle.0);
        Ok(())
    }

    /// Searches the headers that an entry would match if appended, and reports them, or that there are none.
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
        let mut report = |event: Event| {
            let is_reported = !options.contains(EntryOptions::EVENT_COMM_DISABLE)
                && (event.fail != Fail::Ok || !options.contains(EntryOptions::EVENT_SUCCESS_DISABLE));
            if is_reported {
                completions.post(eq, event);
            }
        };
        if taken.is_empty() {
            let fail = Fail::NoMatch;
            report(Event { fail, pt_index, ..Event::new(EventKind::Search, user_ptr) });
        }
        match search {
            Search::Only => taken.iter().for_each(|key| {
                let event = self.headers.table[key.slot()].event;
                report(Event { kind: EventKind::Search, fail: Fail::Ok, user_ptr, ..event });
            }),
            Search::Delete => {
                let claim = Claim { options, counter: None, user_ptr, leaves: false };
                taken.into_iter().for_each(|header| self.claim(completions, pt_index, header, claim));
            }
        }
        Ok(())
    }

    /// Entries that a linear search of the lists examines for a request.
    pub(crate) fn walk_length(&self, request: &Request) -> u64 {
        let Some(pt) = self.pts.get(request.pt_index as usize).and_then(Option::as_ref) else { return 0 };
        let Request { initiator, match_bits, remote_offset, length, .. } = *request;
        let envelope = Envelope { initiator, match_bits, remote_offset, length };
        match pt.priority.walk_length(&self.entries, &envelope) {
            (looked, true) => looked,
            (looked, false) => looked + pt.overflow.walk_length(&self.entries, &envelope).0,
        }
    }

    /// Accepts a message, or refuses it.
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

    /// Accepts a message whose data `mover` moves immediately, given memory, offset and length; or refuses
    /// it. Returns the answer for the initiator; `None` if the message has to wait.
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
        chosen.report(completions, pt.eq, &event);
        if chosen.leaves {
            chosen.leave(pt, &mut self.entries);
        }
        if chosen.keeps_header {
            let header = Header { event, owner: key, state: HeaderState::Arrived };
            pt.unexpected.push(&mut self.headers, header);
            self.entries.table.get_mut(key).into_iter().for_each(|listed| listed.headers += 1);
        }
        if chosen.leaves {
            let eq = pt.eq;
            self.retire(completions, eq, key);
        }
        Some(chosen.answer(request, fail))
    }

    /// Whether a portal table entry is enabled and has neither priority entries nor unexpected headers: then
    /// the next entry appended there gets the next message that it matches.
    #[inline]
    pub(crate) fn awaits_nothing(&self, index: u32) -> bool {
        let pt = self.pts.get(index as usize).and_then(Option::as_ref);
        pt.is_some_and(|pt| pt.is_enabled && pt.priority.len() == 0 && pt.unexpected.is_empty())
    }

    /// The answer to a refused message; `None` if the message waits instead.
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

    /// Finds the entry that matches a message, and reserves room for its events.
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
        let state = HeaderState::Arriving;
        let header = keeps_header.then(|| pt.unexpected.push(headers, Header { event, owner: key, state }));
        Ok(Delivery { request: *request, event, entry: key, header, slots: chosen.slots.now, region, offset })
    }

    /// The data of a message have arrived, or with a failure, possibly in part. Returns the answer for the
    /// initiator.
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
        report(completions, (options, counter), eq, &event);
        self.retire(completions, eq, key);
        if let Some(key) = header
            && let Some(header) = self.headers.table.get_mut(key)
        {
            let state = std::mem::replace(&mut header.state, HeaderState::Arrived);
            header.event.fail = fail;
            if let HeaderState::Claimed(claim) = state {
                self.notify_claimant(completions, eq, key, claim);
            }
        }
        let is_quiet = options.contains(EntryOptions::ACK_DISABLE) && !request.action.fetches();
        let (operation, list, mlength) = (request.operation, event.list, event.mlength);
        request.is_answered().then_some(Answer { operation, fail, is_quiet, list, mlength, offset })
    }
}

/// A matching entry, and what follows for the message.
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

    /// Removes the entry from its list.
    fn leave(&self, pt: &mut Pt, entries: &mut Entries) {
        pt.list_mut(self.list).remove(entries, self.key);
        if let Some(listed) = entries.table.get_mut(self.key) {
            listed.state = EntryState::Unlinked { reported: false, reserved: self.slots.later as u8 };
        }
    }

    /// Reports the message at the target.
    #[inline]
    fn report(&self, completions: &mut Completions, eq: Option<EqHandle>, event: &Event) {
        let Self { options, counter, .. } = *self;
        report(completions, (options, counter), eq, event);
    }

    /// The answer for the initiator.
    #[inline]
    fn answer(&self, request: &Request, fail: Fail) -> Option<Answer> {
        let is_quiet = self.options.contains(EntryOptions::ACK_DISABLE) && !request.action.fetches();
        let Self { list, mlength, offset, .. } = *self;
        let operation = request.operation;
        request.is_answered().then_some(Answer { operation, fail, is_quiet, list, mlength, offset })
    }
}

/// Reports a matched message at the target, by event and counter.
#[inline]
fn report(
    completions: &mut Completions,
    (options, counter): (EntryOptions, Option<CtHandle>),
    eq: Option<EqHandle>,
    event: &Event,
) {
    let is_reported = !options.contains(EntryOptions::EVENT_COMM_DISABLE)
        && (event.fail != Fail::Ok || !options.contains(EntryOptions::EVENT_SUCCESS_DISABLE));
    if is_reported {
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

/// Checks that an entry permits this user and this operation.
fn permit(entry: &Entry, request: &Request) -> std::result::Result<(), Fail> {
    if entry.uid.is_some_and(|uid| uid != request.uid) {
        return Err(Fail::PermViolation);
    }
    let mut needs = EntryOptions::empty();
    needs.set(EntryOptions::OP_PUT, request.action.brings());
    needs.set(EntryOptions::OP_GET, request.action.fetches());
    if entry.is(needs) { Ok(()) } else { Err(Fail::OpViolation) }
}

/// Whether a use-once entry accepts a message in full and permits its user and operation.
#[inline]
pub(crate) fn would_take(entry: &Entry, request: &Request) -> bool {
    let Request { initiator, match_bits, remote_offset, length, .. } = *request;
    let envelope = Envelope { initiator, match_bits, remote_offset, length };
    entry.is(EntryOptions::USE_ONCE | EntryOptions::NO_TRUNCATE)
        && !entry.is(EntryOptions::MANAGE_LOCAL)
        && entry.takes(&envelope, 0)
        && permit(entry, request).is_ok()
}

/// Offset and length of a message in an entry's memory: the part that fits, in whole elements.
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

/// Whether a message of `mlength` bytes unlinks an entry.
fn leaves(listed: &Listed, mlength: u64) -> bool {
    let entry = &listed.entry;
    let left = entry.region.len().saturating_sub(listed.local + mlength);
    entry.is(EntryOptions::USE_ONCE)
        || (entry.is(EntryOptions::MANAGE_LOCAL) && entry.min_free > 0 && left < entry.min_free)
}

/// Slots of the event queue that a message needs where no event may be lost.
struct Slots {
    /// For the event of its delivery.
    now: usize,
    /// For the events of the entry that it unlinks.
    later: usize,
}

impl Slots {
    fn of(list: List, options: EntryOptions, leaves: bool, pt: &Pt) -> Self {
        if !pt.options.contains(PtOptions::FLOWCTRL) {
            return Self { now: 0, later: 0 };
        }
        let silent = EntryOptions::EVENT_COMM_DISABLE | EntryOptions::EVENT_SUCCESS_DISABLE;
        let is_reported = leaves && !options.contains(EntryOptions::EVENT_UNLINK_DISABLE);
        let each = 1 + usize::from(list == List::Overflow);
        Self { now: usize::from(!options.intersects(silent)), later: if is_reported { each } else { 0 } }
    }
}
