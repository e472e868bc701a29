//! [`Engine`]: one network interface without its transport: both halves, their events, and the operations that counters trigger.
//!
//! | file | what it holds |
//! |---|---|
//! | `target` | the targeted half: the portal table, and what happens to messages that arrive |
//! | `matchlist`, `unexpected` | entries that wait for messages; headers that wait for entries |
//! | `initiator` | the initiating half: memory descriptors and operations under way |
//! | `completions`, `event_queue` | event queues and counters, and the operations that counters trigger |
//! | `buckets`, `chain` | chains by key; places in an order |

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
use crate::objects::command::{Command, Count, Transfer};
use crate::objects::entry::Entry;
use crate::objects::error::Result;
use crate::objects::event::{Event, Fail, List};
use crate::objects::handles::{CtHandle, EntryHandle, EqHandle, MdHandle};
use crate::objects::limits::Limits;
use crate::objects::message::{Action, Answer, Request};
use crate::objects::options::PtOptions;
use crate::objects::process::Process;
use crate::objects::region::Region;

/// A network interface of a process. Calls change its state at once and wait for nothing; [`Engine::next_outgoing`] has what is to be
/// carried after each of them.
///
/// Whoever drives it carries requests in order between each two processes, hands them to [`Engine::arrive`] there, moves the data of
/// deliveries, and brings answers back. It looks at no memory.
#[derive(Debug)]
pub struct Engine {
    limits: Limits,
    completions: Completions,
    initiator: Initiator,
    target: Target,
}

/// Where an entry is appended.
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

    /// What there is room for.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What was refused.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.target.status
    }

    /// Has messages wait for which there is no place, as long as that is so: a replay without flow control of the user's. Where they
    /// wait is the business of whoever carries them.
    pub fn set_patient(&mut self) {
        self.target.is_patient = true;
    }

    /// Says who this process is in messages that begin from now on: a rank is known only when there is a map.
    pub fn set_process(&mut self, process: Process) {
        self.initiator.set_process(process);
    }

    /// Makes an event queue of `count` slots (`PtlEQAlloc`).
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] at the limit.
    pub fn eq_alloc(&mut self, count: usize) -> Result<EqHandle> {
        self.completions.eq_alloc(count, self.limits.max_eqs)
    }

    /// Ends an event queue (`PtlEQFree`). What would be told there is told nobody.
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for none.
    pub fn eq_free(&mut self, eq: EqHandle) -> Result<()> {
        self.completions.eq_free(eq)
    }

    /// Takes the oldest event of a queue, and whether others before it were lost (`PtlEQGet`).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no queue.
    #[inline]
    pub fn eq_get(&mut self, eq: EqHandle) -> Result<Option<(Event, bool)>> {
        self.completions.eq_get(eq)
    }

    /// Makes a counter (`PtlCTAlloc`).
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] at the limit.
    pub fn ct_alloc(&mut self) -> Result<CtHandle> {
        self.completions.ct_alloc(self.limits.max_cts)
    }

    /// Ends a counter, and with it what waits for it (`PtlCTFree`).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for none.
    pub fn ct_free(&mut self, ct: CtHandle) -> Result<()> {
        let waiting = self.completions.ct_free(ct)?;
        self.forget(waiting);
        Ok(())
    }

    /// Forgets what waits for a counter (`PtlCTCancelTriggered`).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no counter.
    pub fn ct_cancel(&mut self, ct: CtHandle) -> Result<()> {
        let waiting = self.completions.ct_cancel(ct)?;
        self.forget(waiting);
        Ok(())
    }

    fn forget(&mut self, waiting: Vec<Command>) {
        for command in waiting {
            match command {
                Command::Transfer(transfer) => self.initiator.drop_waiting(&transfer),
                // An entry that waits can always be taken out.
                Command::Append(entry) => self.target.unlink(entry).unwrap_or(()),
                Command::CtInc(..) | Command::CtSet(..) | Command::Unlink(_) => {}
            }
        }
    }

    /// A counter's value (`PtlCTGet`).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for none.
    pub fn ct_get(&self, ct: CtHandle) -> Result<Count> {
        self.completions.ct_get(ct)
    }

    /// Sets a counter's value (`PtlCTSet`).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for none.
    pub fn ct_set(&mut self, ct: CtHandle, to: Count) -> Result<()> {
        self.completions.ct_change(ct, |value| *value = to)?;
        self.settle();
        Ok(())
    }

    /// Adds to a counter's value (`PtlCTInc`).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for none.
    pub fn ct_inc(&mut self, ct: CtHandle, by: Count) -> Result<()> {
        self.completions.ct_change(ct, |value| add(value, by))?;
        self.settle();
        Ok(())
    }

    /// Has counters that change told by [`Engine::next_changed`].
    pub(crate) fn tell_changes(&mut self) {
        self.completions.tell_changes();
    }

    /// A counter that has changed since it was told last, and its value.
    pub(crate) fn next_changed(&mut self) -> Option<(CtHandle, Count)> {
        self.completions.next_changed()
    }

    /// Takes a portal table entry: this one, or with `None` any (`PtlPTAlloc`).
    ///
    /// # Errors
    /// [`crate::Error::PtEqNeeded`], [`crate::Error::PtInUse`] and [`crate::Error::PtFull`]; [`crate::Error::ArgInvalid`] for no
    /// queue, or an index beyond the limit.
    pub fn pt_alloc(&mut self, options: PtOptions, eq: Option<EqHandle>, index: Option<u32>) -> Result<u32> {
        self.completions.check_eq(eq)?;
        self.target.pt_alloc(options, eq, index, &self.limits)
    }

    /// Gives a portal table entry back (`PtlPTFree`). Headers of messages that nobody wanted are forgotten.
    ///
    /// # Errors
    /// [`crate::Error::PtInUse`] while it has list entries or messages under way; [`crate::Error::ArgInvalid`] for none.
    pub fn pt_free(&mut self, index: u32) -> Result<()> {
        self.target.pt_free(&mut self.completions, index)
    }

    /// Refuses all messages for a portal table entry from now on (`PtlPTDisable`).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for none.
    pub fn pt_disable(&mut self, index: u32) -> Result<()> {
        self.target.pt_enable(index, false)
    }

    /// Lets messages in again (`PtlPTEnable`).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for none.
    pub fn pt_enable(&mut self, index: u32) -> Result<()> {
        self.target.pt_enable(index, true)
    }

    /// Binds memory for operations of this process (`PtlMDBind`).
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] at the limit; [`crate::Error::ArgInvalid`] for too many pieces, and for no queue or counter.
    pub fn md_bind(&mut self, md: MemoryDescriptor) -> Result<MdHandle> {
        self.completions.check_eq(md.eq)?;
        self.completions.check_ct(md.counter)?;
        self.initiator.md_bind(md, &self.limits)
    }

    /// Releases memory (`PtlMDRelease`).
    ///
    /// # Errors
    /// [`crate::Error::InUse`] while an operation uses it or waits to; [`crate::Error::ArgInvalid`] for none.
    pub fn md_release(&mut self, md: MdHandle) -> Result<()> {
        self.initiator.md_release(md)
    }

    /// Appends an entry to a list (`PtlLEAppend`, `PtlMEAppend`). To the priority list: it takes the headers that it matches first;
    /// one that is used once takes the first of them, and is in no list.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] and [`crate::Error::ListTooLong`] at the limits; [`crate::Error::ArgInvalid`] for no portal table
    /// entry or counter, too many pieces, or options of a matching entry on an interface without matching.
    pub fn append(&mut self, place: ListId, entry: Entry, user_ptr: u64) -> Result<EntryHandle> {
        let handle = self.prepare(place, entry, user_ptr)?;
        self.target.link(&mut self.completions, handle);
        self.settle();
        Ok(handle)
    }

    fn prepare(&mut self, place: ListId, entry: Entry, user_ptr: u64) -> Result<EntryHandle> {
        let place = (place.pt_index, place.list);
        self.target.prepare(&self.completions, place, entry, user_ptr, &self.limits)
    }

    /// Whether [`Engine::would_take`] may be asked of entries for a portal table entry.
    #[inline]
    pub(crate) fn awaits_nothing(&self, pt_index: u32) -> bool {
        self.target.awaits_nothing(pt_index) && !self.completions.has_due()
    }

    /// Whether an entry for one message would take the next one, were it appended now to a list where nothing else is, and nothing more than
    /// one event would come of that.
    #[inline]
    pub(crate) fn would_take(&self, pt_index: u32, entry: &Entry, request: &Request) -> bool {
        let is_plain = request.action == Action::Put && !request.is_answered() && entry.counter.is_none();
        is_plain && request.pt_index == pt_index && would_take(entry, request)
    }

    /// Takes an entry out of its list (`PtlLEUnlink`, `PtlMEUnlink`).
    ///
    /// # Errors
    /// [`crate::Error::InUse`] while a message or a header needs it; [`crate::Error::ArgInvalid`] for none.
    pub fn unlink(&mut self, entry: EntryHandle) -> Result<()> {
        self.target.unlink(entry)
    }

    /// Looks for the headers that an entry would take, and tells of them, or that there are none (`PtlLESearch`, `PtlMESearch`).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`], as [`Engine::append`].
    pub fn search(&mut self, pt_index: u32, entry: Entry, search: Search, user_ptr: u64) -> Result<()> {
        self.target.search(&mut self.completions, pt_index, entry, search, user_ptr, &self.limits)?;
        self.settle();
        Ok(())
    }

    /// Begins an operation on a target (`PtlPut` and the like).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no descriptor, bytes outside of its memory or beyond the limits, an operation that does not
    /// take the type or as many elements, or an acknowledgement that the descriptor cannot tell.
    pub fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        let sides = self.initiator.check(transfer, &self.limits)?;
        self.initiator.hold(transfer);
        self.initiator.start(transfer, sides);
        Ok(())
    }

    /// Begins an operation when a counter's successes and failures come to a threshold (`PtlTriggeredPut` and the like).
    ///
    /// # Errors
    /// As [`Engine::transfer`]; [`crate::Error::NoSpace`] at the limit; [`crate::Error::ArgInvalid`] for no counter.
    pub fn trigger(&mut self, ct: CtHandle, threshold: u64, transfer: &Transfer) -> Result<()> {
        self.initiator.check(transfer, &self.limits)?;
        self.wait_for(ct, threshold, Command::Transfer(*transfer))?;
        self.initiator.hold(transfer);
        self.settle();
        Ok(())
    }

    fn wait_for(&mut self, ct: CtHandle, threshold: u64, command: Command) -> Result<()> {
        self.completions.trigger(ct, threshold, command, self.limits.max_triggered_ops)
    }

    /// Adds to a counter when another one, or it, comes to a threshold (`PtlTriggeredCTInc`).
    ///
    /// # Errors
    /// As [`Engine::trigger`].
    pub fn trigger_ct_inc(
        &mut self,
        ct: CtHandle,
        threshold: u64,
        counter: CtHandle,
        by: Count,
    ) -> Result<()> {
        self.completions.check_ct(Some(counter))?;
        self.wait_for(ct, threshold, Command::CtInc(counter, by))?;
        self.settle();
        Ok(())
    }

    /// Sets a counter when another one, or it, comes to a threshold (`PtlTriggeredCTSet`).
    ///
    /// # Errors
    /// As [`Engine::trigger`].
    pub fn trigger_ct_set(
        &mut self,
        ct: CtHandle,
        threshold: u64,
        counter: CtHandle,
        to: Count,
    ) -> Result<()> {
        self.completions.check_ct(Some(counter))?;
        self.wait_for(ct, threshold, Command::CtSet(counter, to))?;
        self.settle();
        Ok(())
    }

    /// Appends an entry when a counter comes to a threshold (`PtlTriggeredMEAppend`). Taken out before that, it never is.
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
        if let Err(error) = self.wait_for(ct, threshold, Command::Append(handle)) {
            self.target.unlink(handle)?;
            return Err(error);
        }
        self.settle();
        Ok(handle)
    }

    /// Takes an entry out of its list when a counter comes to a threshold (`PtlTriggeredMEUnlink`); not if it is in use then.
    ///
    /// # Errors
    /// As [`Engine::trigger`].
    pub fn trigger_unlink(&mut self, ct: CtHandle, threshold: u64, entry: EntryHandle) -> Result<()> {
        self.wait_for(ct, threshold, Command::Unlink(entry))?;
        self.settle();
        Ok(())
    }

    /// Does what counters have set off, and what that sets off.
    #[inline]
    fn settle(&mut self) {
        if self.completions.has_due() {
            self.settle_all();
        }
    }

    fn settle_all(&mut self) {
        while let Some(command) = self.completions.next_due() {
            match command {
                Command::Transfer(transfer) => self.initiator.start_held(&transfer),
                // Who has freed the counter, or used the entry, finds nothing done.
                Command::CtInc(ct, by) => {
                    self.completions.ct_change(ct, |value| add(value, by)).unwrap_or(());
                }
                Command::CtSet(ct, to) => self.completions.ct_change(ct, |value| *value = to).unwrap_or(()),
                Command::Append(entry) => self.target.link(&mut self.completions, entry),
                Command::Unlink(entry) => self.target.unlink(entry).unwrap_or(()),
            }
        }
    }

    /// A put that nobody hears of if it leaves at once, as it is to be carried, and where its data lie; `None` for any other transfer.
    #[inline]
    pub(crate) fn silent_put(&self, transfer: &Transfer) -> Option<(Request, &Region, u64)> {
        self.initiator.silent_put(transfer, &self.limits)
    }

    /// The next request that is to be carried to its target.
    pub fn next_outgoing(&mut self) -> Option<Outgoing> {
        self.initiator.next_outgoing()
    }

    /// Whether there is one.
    #[must_use]
    pub fn has_outgoing(&self) -> bool {
        self.initiator.has_outgoing()
    }

    /// The memory of a request is free again.
    pub fn sent(&mut self, operation: u64) {
        self.initiator.sent(&mut self.completions, operation, Fail::Ok);
        self.settle();
    }

    /// Where the data of an answer go: this memory, from this byte on, at most so many bytes. `None` for an operation that is over or
    /// that fetches nothing.
    #[must_use]
    pub fn reply_to(&self, operation: u64) -> Option<(Region, u64, u64)> {
        self.initiator.reply_to(operation)
    }

    /// An answer has come, and its data are where they belong. Of an operation that is over, nothing happens.
    pub fn answered(&mut self, answer: &Answer) {
        self.initiator.answered(&mut self.completions, answer);
        self.settle();
    }

    /// The target of an operation cannot be reached, or not any more.
    pub fn undeliverable(&mut self, operation: u64) {
        self.initiator.undeliverable(&mut self.completions, operation);
        self.settle();
    }

    /// Entries that a walk through the lists would look at for a request that comes now: what matching takes where lists are walked.
    #[must_use]
    pub fn walk_length(&self, request: &Request) -> u64 {
        self.target.walk_length(request)
    }

    /// A request has come: it is refused, or its data are to be moved.
    pub fn arrive(&mut self, request: &Request) -> Arrival {
        let arrival = self.target.arrive(&mut self.completions, &self.limits, request);
        self.settle();
        arrival
    }

    /// A request has come, and `mover` moves its data at once: those of this memory, from this byte on, so many bytes. That is
    /// [`Engine::arrive`] and [`Engine::deliver`] in one. The answer, if the initiator waits for one; `None` if there is no place for
    /// it yet, as [`Arrival::Wait`] says.
    #[inline]
    pub fn arrive_whole(
        &mut self,
        request: &Request,
        mover: impl FnOnce(&Region, u64, u64) -> Fail,
    ) -> Option<Option<Answer>> {
        let answer = self.target.arrive_whole(&mut self.completions, &self.limits, request, mover);
        self.settle();
        answer
    }

    /// The data of a message have been moved, or with a failure, could not be. The answer, if the initiator waits for one.
    pub fn deliver(&mut self, delivery: Delivery, fail: Fail) -> Option<Answer> {
        let answer = self.target.deliver(&mut self.completions, delivery, fail);
        self.settle();
        answer
    }
}

fn add(value: &mut Count, by: Count) {
    value.success = value.success.wrapping_add(by.success);
    value.failure = value.failure.wrapping_add(by.failure);
}
