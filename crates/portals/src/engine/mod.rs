//! [`Engine`]: one network interface without its transport: initiator, target, events and triggered
//! operations (Portals 4.3, chapter 3).
//!
//! | file | contents |
//! |---|---|
//! | `target` | the target half: the portal table, and the processing of arriving messages |
//! | `matchlist`, `unexpected` | entries that wait for messages; headers that wait for entries |
//! | `initiator` | the initiator half: memory descriptors and operations in flight |
//! | `completions`, `event_queue` | event queues and counters, and the operations that counters trigger |
//! | `buckets`, `chain` | chains by key; linked lists of places |

mod buckets;
mod chain;
mod completions;
mod event_queue;
pub(crate) mod initiator;
mod matchlist;
pub(crate) mod target;
mod unexpected;

use crate::engine::completions::Completions;
use crate::engine::initiator::{Initiator, MemoryDescriptor, Outgoing};
use crate::engine::target::{Arrival, Delivery, Search, Status, Target, would_take};
use crate::objects::command::{Command, CtEvent, Transfer};
use crate::objects::entry::Entry;
use crate::objects::error::Result;
use crate::objects::event::{Event, Fail, List};
use crate::objects::handles::{CtHandle, EntryHandle, EqHandle, MdHandle};
use crate::objects::limits::Limits;
use crate::objects::message::{Action, Answer, Request};
use crate::objects::options::PtOptions;
use crate::objects::process::Process;
use crate::objects::region::Region;

/// A network interface of a process. Calls change its state immediately and never block; after each call
/// [`Engine::next_outgoing`] returns the requests to send.
///
/// Its driver sends requests in order between each pair of processes, passes them to the target's
/// [`Engine::arrive`], moves the data of deliveries, and returns answers. The engine accesses no user memory.
#[derive(Debug)]
pub struct Engine {
    limits: Limits,
    completions: Completions,
    initiator: Initiator,
    target: Target,
}

/// The list that an entry is appended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListId {
    /// The portal table entry.
    pub pt_index: u32,
    /// Which of its lists.
    pub list: List,
}

impl Engine {
    /// The interface of a process and its user, with matching or without.
    #[must_use]
    pub fn new(process: Process, uid: u32, is_matching: bool, limits: Limits) -> Self {
        let (initiator, target) = (Initiator::new(process, uid), Target::new(is_matching));
        Self { limits, completions: Completions::default(), initiator, target }
    }

    /// The granted limits.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts of refused messages.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.target.status
    }

    /// Makes messages wait that find no room, for a replay without the user's flow control. The driver stores
    /// the waiting messages.
    pub fn set_patient(&mut self) {
        self.target.is_patient = true;
    }

    /// Sets this process's identity for messages that start later: its rank is known only once there is a
    /// map.
    pub fn set_process(&mut self, process: Process) {
        self.initiator.set_process(process);
    }

    /// Allocates an event queue of `count` slots (`PtlEQAlloc`; Portals 4.3, section 3.13).
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] at the limit.
    pub fn eq_alloc(&mut self, count: usize) -> Result<EqHandle> {
        self.completions.eq_alloc(count, self.limits.max_eqs)
    }

    /// Frees an event queue (`PtlEQFree`; Portals 4.3, section 3.13). Later events for it are dropped.
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no queue.
    pub fn eq_free(&mut self, eq: EqHandle) -> Result<()> {
        self.completions.eq_free(eq)
    }

    /// Removes the oldest event of a queue; also returns whether events before it were lost (`PtlEQGet`; Portals
    /// 4.3, section 3.13).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no queue.
    #[inline]
    pub fn eq_get(&mut self, eq: EqHandle) -> Result<Option<(Event, bool)>> {
        self.completions.eq_get(eq)
    }

    /// Allocates a counter (`PtlCTAlloc`; Portals 4.3, section 3.14).
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] at the limit.
    pub fn ct_alloc(&mut self) -> Result<CtHandle> {
        self.completions.ct_alloc(self.limits.max_cts)
    }

    /// Frees a counter and cancels its triggered operations (`PtlCTFree`; Portals 4.3, section 3.14).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no counter.
    pub fn ct_free(&mut self, ct: CtHandle) -> Result<()> {
        let waiting = self.completions.ct_free(ct)?;
        self.cancel(waiting);
        Ok(())
    }

    /// Cancels the pending triggered operations of a counter (`PtlCTCancelTriggered`; Portals 4.3, section 3.14).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no counter.
    pub fn ct_cancel(&mut self, ct: CtHandle) -> Result<()> {
        let waiting = self.completions.ct_cancel(ct)?;
        self.cancel(waiting);
        Ok(())
    }

    fn cancel(&mut self, waiting: Vec<Command>) {
        for command in waiting {
            match command {
                Command::Transfer(transfer) => self.initiator.drop_waiting(&transfer),
                // A waiting entry can always be unlinked.
                Command::Append(entry) => self.target.unlink(entry).unwrap_or(()),
                Command::CtInc(..) | Command::CtSet(..) | Command::Unlink(_) => {}
            }
        }
    }

    /// A counter's value (`PtlCTGet`; Portals 4.3, section 3.14).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no counter.
    pub fn ct_get(&self, ct: CtHandle) -> Result<CtEvent> {
        self.completions.ct_get(ct)
    }

    /// Sets a counter's value (`PtlCTSet`; Portals 4.3, section 3.14).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no counter.
    pub fn ct_set(&mut self, ct: CtHandle, to: CtEvent) -> Result<()> {
        self.completions.ct_change(ct, |value| *value = to)?;
        self.run_due();
        Ok(())
    }

    /// Adds to a counter's value (`PtlCTInc`; Portals 4.3, section 3.14).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no counter.
    pub fn ct_inc(&mut self, ct: CtHandle, by: CtEvent) -> Result<()> {
        self.completions.ct_change(ct, |value| add(value, by))?;
        self.run_due();
        Ok(())
    }

    /// Records changed counters for [`Engine::next_changed`].
    pub(crate) fn record_changes(&mut self) {
        self.completions.record_changes();
    }

    /// A counter that has changed since it was last reported, and its value.
    pub(crate) fn next_changed(&mut self) -> Option<(CtHandle, CtEvent)> {
        self.completions.next_changed()
    }

    /// Allocates a portal table entry: this one, or any with `None` (`PtlPTAlloc`; Portals 4.3, section 3.7).
    ///
    /// # Errors
    /// [`crate::Error::PtEqNeeded`], [`crate::Error::PtInUse`] and [`crate::Error::PtFull`]; [`crate::Error::ArgInvalid`] for no
    /// queue, or an index beyond the limit.
    pub fn pt_alloc(&mut self, options: PtOptions, eq: Option<EqHandle>, index: Option<u32>) -> Result<u32> {
        self.completions.check_eq(eq)?;
        self.target.pt_alloc(options, eq, index, &self.limits)
    }

    /// Frees a portal table entry (`PtlPTFree`; Portals 4.3, section 3.7). Unexpected headers are dropped.
    ///
    /// # Errors
    /// [`crate::Error::PtInUse`] while it has list entries or messages in delivery;
    /// [`crate::Error::ArgInvalid`] for no portal table entry.
    pub fn pt_free(&mut self, index: u32) -> Result<()> {
        self.target.pt_free(&mut self.completions, index)
    }

    /// Refuses all further messages for a portal table entry (`PtlPTDisable`; Portals 4.3, section 3.7).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no portal table entry.
    pub fn pt_disable(&mut self, index: u32) -> Result<()> {
        self.target.pt_enable(index, false)
    }

    /// Accepts messages for a portal table entry again (`PtlPTEnable`; Portals 4.3, section 3.7).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no portal table entry.
    pub fn pt_enable(&mut self, index: u32) -> Result<()> {
        self.target.pt_enable(index, true)
    }

    /// Binds memory for operations of this process (`PtlMDBind`; Portals 4.3, section 3.10).
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] at the limit; [`crate::Error::ArgInvalid`] for too many pieces, and for no queue or counter.
    pub fn md_bind(&mut self, md: MemoryDescriptor) -> Result<MdHandle> {
        self.completions.check_eq(md.eq)?;
        self.completions.check_ct(md.counter)?;
        self.initiator.md_bind(md, &self.limits)
    }

    /// Releases memory (`PtlMDRelease`; Portals 4.3, section 3.10).
    ///
    /// # Errors
    /// [`crate::Error::InUse`] while an operation uses it or waits to; [`crate::Error::ArgInvalid`] for no
    /// descriptor.
    pub fn md_release(&mut self, md: MdHandle) -> Result<()> {
        self.initiator.md_release(md)
    }

    /// Appends an entry to a list (`PtlLEAppend`, `PtlMEAppend`; Portals 4.3, sections 3.11 and 3.12). An entry for
    /// the priority list first claims the unexpected headers that it matches; a use-once entry claims only the first
    /// header and is not linked.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] and [`crate::Error::ListTooLong`] at the limits; [`crate::Error::ArgInvalid`] for no portal table
    /// entry or counter, too many pieces, or options of a matching entry on an interface without matching.
    pub fn append(&mut self, place: ListId, entry: Entry, user_ptr: u64) -> Result<EntryHandle> {
        let handle = self.prepare(place, entry, user_ptr)?;
        self.target.link(&mut self.completions, handle);
        self.run_due();
        Ok(handle)
    }

    fn prepare(&mut self, place: ListId, entry: Entry, user_ptr: u64) -> Result<EntryHandle> {
        let place = (place.pt_index, place.list);
        self.target.prepare(&self.completions, place, entry, user_ptr, &self.limits)
    }

    /// Whether [`Engine::would_take`] is valid for entries of this portal table entry.
    #[inline]
    pub(crate) fn awaits_nothing(&self, pt_index: u32) -> bool {
        self.target.awaits_nothing(pt_index) && !self.completions.has_due()
    }

    /// Whether a use-once entry, appended now to an empty list, would match this message as the next one and
    /// cause exactly one event.
    #[inline]
    pub(crate) fn would_take(&self, pt_index: u32, entry: &Entry, request: &Request) -> bool {
        let is_plain = request.action == Action::Put && !request.is_answered() && entry.counter.is_none();
        is_plain && request.pt_index == pt_index && would_take(entry, request)
    }

    /// Unlinks an entry (`PtlLEUnlink`, `PtlMEUnlink`; Portals 4.3, sections 3.11 and 3.12).
    ///
    /// # Errors
    /// [`crate::Error::InUse`] while a message or a header needs it; [`crate::Error::ArgInvalid`] for no
    /// entry.
    pub fn unlink(&mut self, entry: EntryHandle) -> Result<()> {
        self.target.unlink(entry)
    }

    /// Searches the unexpected headers for those that an entry would match, and reports them, or that there
    /// are none (`PtlLESearch`, `PtlMESearch`; Portals 4.3, sections 3.11 and 3.12).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`], as [`Engine::append`].
    pub fn search(&mut self, pt_index: u32, entry: Entry, search: Search, user_ptr: u64) -> Result<()> {
        self.target.search(&mut self.completions, pt_index, entry, search, user_ptr, &self.limits)?;
        self.run_due();
        Ok(())
    }

    /// Starts an operation on a target (`PtlPut` and the like; Portals 4.3, section 3.15).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no descriptor, bytes outside of its memory or beyond the limits, an
    /// operation that is not defined for the type or number of elements, or an acknowledgement that the
    /// descriptor cannot report.
    pub fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        let settings = self.initiator.check(transfer, &self.limits)?;
        self.initiator.hold(transfer);
        self.initiator.start(transfer, settings);
        Ok(())
    }

    /// Starts an operation when a counter's successes and failures reach a threshold (`PtlTriggeredPut` and
    /// the like; Portals 4.3, section 3.16).
    ///
    /// # Errors
    /// As [`Engine::transfer`]; [`crate::Error::NoSpace`] at the limit; [`crate::Error::ArgInvalid`] for no counter.
    pub fn trigger(&mut self, ct: CtHandle, threshold: u64, transfer: &Transfer) -> Result<()> {
        self.initiator.check(transfer, &self.limits)?;
        self.defer(ct, threshold, Command::Transfer(*transfer))?;
        self.initiator.hold(transfer);
        self.run_due();
        Ok(())
    }

    fn defer(&mut self, ct: CtHandle, threshold: u64, command: Command) -> Result<()> {
        self.completions.trigger(ct, threshold, command, self.limits.max_triggered_ops)
    }

    /// Adds to `target` when the counter `trigger` reaches a threshold (`PtlTriggeredCTInc`; Portals 4.3, section 3.16).
    ///
    /// # Errors
    /// As [`Engine::trigger`].
    pub fn trigger_ct_inc(
        &mut self,
        trigger: CtHandle,
        threshold: u64,
        target: CtHandle,
        increment: CtEvent,
    ) -> Result<()> {
        self.completions.check_ct(Some(target))?;
        self.defer(trigger, threshold, Command::CtInc(target, increment))?;
        self.run_due();
        Ok(())
    }

    /// Sets `target` when the counter `trigger` reaches a threshold (`PtlTriggeredCTSet`; Portals 4.3, section 3.16).
    ///
    /// # Errors
    /// As [`Engine::trigger`].
    pub fn trigger_ct_set(
        &mut self,
        trigger: CtHandle,
        threshold: u64,
        target: CtHandle,
        value: CtEvent,
    ) -> Result<()> {
        self.completions.check_ct(Some(target))?;
        self.defer(trigger, threshold, Command::CtSet(target, value))?;
        self.run_due();
        Ok(())
    }

    /// Appends an entry when a counter reaches a threshold (`PtlTriggeredMEAppend`). Unlinking it before
    /// cancels that.
    ///
    /// # Errors
    /// As [`Engine::append`] and [`Engine::trigger`].
    pub fn trigger_append(
        &mut self,
        ct: CtHandle,
        threshold: u64,
        place: ListId,
        entry: Entry,
        user_ptr: u64,
    ) -> Result<EntryHandle> {
        let handle = self.prepare(place, entry, user_ptr)?;
        if let Err(error) = self.defer(ct, threshold, Command::Append(handle)) {
            self.target.unlink(handle)?;
            return Err(error);
        }
        self.run_due();
        Ok(handle)
    }

    /// Unlinks an entry when a counter reaches a threshold (`PtlTriggeredMEUnlink`), unless it is in use
    /// then.
    ///
    /// # Errors
    /// As [`Engine::trigger`].
    pub fn trigger_unlink(&mut self, ct: CtHandle, threshold: u64, entry: EntryHandle) -> Result<()> {
        self.defer(ct, threshold, Command::Unlink(entry))?;
        self.run_due();
        Ok(())
    }

    /// Runs the due triggered operations, and all that they trigger in turn.
    #[inline]
    fn run_due(&mut self) {
        if self.completions.has_due() {
            self.run_all_due();
        }
    }

    fn run_all_due(&mut self) {
        while let Some(command) = self.completions.next_due() {
            match command {
                Command::Transfer(transfer) => self.initiator.start_held(&transfer),
                // Nothing happens if the user has freed the counter or the entry is in use.
                Command::CtInc(target, increment) => {
                    self.completions.ct_change(target, |value| add(value, increment)).unwrap_or(());
                }
                Command::CtSet(target, new) => {
                    self.completions.ct_change(target, |value| *value = new).unwrap_or(())
                }
                Command::Append(entry) => self.target.link(&mut self.completions, entry),
                Command::Unlink(entry) => self.target.unlink(entry).unwrap_or(()),
            }
        }
    }

    /// The request of a put whose completion is not reported if it leaves immediately, with the memory of its
    /// data and their offset; `None` for any other transfer.
    #[inline]
    pub(crate) fn silent_put(&self, transfer: &Transfer) -> Option<(Request, &Region, u64)> {
        self.initiator.silent_put(transfer, &self.limits)
    }

    /// The next request to send to its target.
    pub fn next_outgoing(&mut self) -> Option<Outgoing> {
        self.initiator.next_outgoing()
    }

    /// Whether there is a request to send.
    #[must_use]
    pub fn has_outgoing(&self) -> bool {
        self.initiator.has_outgoing()
    }

    /// The memory of a request may be reused.
    pub fn sent(&mut self, operation: u64) {
        self.initiator.sent(&mut self.completions, operation, Fail::Ok);
        self.run_due();
    }

    /// The memory for the data of an answer, with offset and maximum length. `None` for an operation that has
    /// completed or fetches nothing.
    #[must_use]
    pub fn reply_to(&self, operation: u64) -> Option<(Region, u64, u64)> {
        self.initiator.reply_to(operation)
    }

    /// Completes an operation whose answer and data have arrived. Answers to completed operations are
    /// ignored.
    pub fn answered(&mut self, answer: &Answer) {
        self.initiator.answered(&mut self.completions, answer);
        self.run_due();
    }

    /// Fails an operation whose target is not reachable (any more).
    pub fn undeliverable(&mut self, operation: u64) {
        self.initiator.undeliverable(&mut self.completions, operation);
        self.run_due();
    }

    /// Entries that a linear search would examine for a request that arrives now: the cost of matching where
    /// lists are searched.
    #[must_use]
    pub fn walk_length(&self, request: &Request) -> u64 {
        self.target.walk_length(request)
    }

    /// Matches a request that has arrived: it is refused, or the caller moves its data.
    pub fn arrive(&mut self, request: &Request) -> Arrival {
        let arrival = self.target.arrive(&mut self.completions, &self.limits, request);
        self.run_due();
        arrival
    }

    /// Matches a request and lets `mover` move its data immediately, given memory, offset and length:
    /// [`Engine::arrive`] and [`Engine::deliver`] in one. Returns the answer, if the initiator waits for one;
    /// `None` if the request has to wait, as [`Arrival::Wait`].
    #[inline]
    pub fn arrive_whole(
        &mut self,
        request: &Request,
        mover: impl FnOnce(&Region, u64, u64) -> Fail,
    ) -> Option<Option<Answer>> {
        let answer = self.target.arrive_whole(&mut self.completions, &self.limits, request, mover);
        self.run_due();
        answer
    }

    /// Completes a delivery whose data were moved or, with a failure, could not be. Returns the answer, if
    /// the initiator waits for one.
    pub fn deliver(&mut self, delivery: Delivery, fail: Fail) -> Option<Answer> {
        let answer = self.target.deliver(&mut self.completions, delivery, fail);
        self.run_due();
        answer
    }
}

fn add(value: &mut CtEvent, by: CtEvent) {
    value.success = value.success.wrapping_add(by.success);
    value.failure = value.failure.wrapping_add(by.failure);
}
