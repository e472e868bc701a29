//! [`Completions`]: event queues, counters and triggered operations, shared by both halves of an interface
//! (Portals 4.3, sections 3.13, 3.14 and 3.16).

use std::collections::{BTreeMap, VecDeque};

use crate::engine::event_queue::EventQueue;
use crate::objects::command::{Command, CtEvent};
use crate::objects::error::{Error, Result};
use crate::objects::event::{Event, Fail};
use crate::objects::handles::{CtHandle, EqHandle, Table};

#[derive(Debug, Default)]
struct Counter {
    value: CtEvent,
    /// Triggered operations by threshold, then in the order of the calls.
    waiting: BTreeMap<(u64, u64), Command>,
}

/// Event queues and counters of an interface.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    queues: Table<EventQueue>,
    counters: Table<Counter>,
    /// Triggered operations that are due but not yet done.
    due: VecDeque<Command>,
    /// Number of pending triggered operations, and of all ever requested.
    waiting: u32,
    requested: u64,
    /// Counters that have changed since they were last reported, if changes are recorded.
    changed: Option<Vec<CtHandle>>,
}

impl Completions {
    /// Allocates an event queue.
    pub(crate) fn eq_alloc(&mut self, count: usize, most: u32) -> Result<EqHandle> {
        if self.queues.len() >= most as usize {
            return Err(Error::NoSpace);
        }
        Ok(EqHandle(self.queues.insert(EventQueue::new(count))))
    }

    /// Frees an event queue, even if it is in use.
    pub(crate) fn eq_free(&mut self, eq: EqHandle) -> Result<()> {
        self.queues.remove(eq.0).map(drop).ok_or(Error::ArgInvalid)
    }

    /// Removes the oldest event of a queue; also returns whether events before it were lost.
    #[inline]
    pub(crate) fn eq_get(&mut self, eq: EqHandle) -> Result<Option<(Event, bool)>> {
        Ok(self.queues.get_mut(eq.0).ok_or(Error::ArgInvalid)?.pop())
    }

    /// Fails unless this is `None` or names a queue.
    pub(crate) fn check_eq(&self, eq: Option<EqHandle>) -> Result<()> {
        if eq.is_none_or(|eq| self.queues.get(eq.0).is_some()) { Ok(()) } else { Err(Error::ArgInvalid) }
    }

    /// Posts an event; does nothing without a queue.
    #[inline]
    pub(crate) fn post(&mut self, eq: Option<EqHandle>, event: Event) {
        if let Some(queue) = eq.and_then(|eq| self.queues.get_mut(eq.0)) {
            queue.push(event);
        }
    }

    /// Posts a flow control event, which always has a slot.
    pub(crate) fn post_extra(&mut self, eq: Option<EqHandle>, event: Event) {
        if let Some(queue) = eq.and_then(|eq| self.queues.get_mut(eq.0)) {
            queue.push_extra(event);
        }
    }

    /// Reserves slots of a queue. True if that succeeded or there is no queue.
    #[inline]
    pub(crate) fn reserve(&mut self, eq: Option<EqHandle>, slots: usize) -> bool {
        slots == 0 || eq.and_then(|eq| self.queues.get_mut(eq.0)).is_none_or(|queue| queue.reserve(slots))
    }

    /// Releases reserved slots.
    #[inline]
    pub(crate) fn unreserve(&mut self, eq: Option<EqHandle>, slots: usize) {
        if slots > 0
            && let Some(queue) = eq.and_then(|eq| self.queues.get_mut(eq.0))
        {
            queue.unreserve(slots);
        }
    }

    /// Allocates a counter.
    pub(crate) fn ct_alloc(&mut self, most: u32) -> Result<CtHandle> {
        if self.counters.len() >= most as usize {
            return Err(Error::NoSpace);
        }
        let ct = CtHandle(self.counters.insert(Counter::default()));
        self.changed.iter_mut().for_each(|changed| changed.push(ct));
        Ok(ct)
    }

    /// Records changed counters for [`Completions::next_changed`].
    pub(crate) fn record_changes(&mut self) {
        self.changed = Some(Vec::new());
    }

    /// A counter that has changed since it was last reported, and its value.
    pub(crate) fn next_changed(&mut self) -> Option<(CtHandle, CtEvent)> {
        loop {
            let ct = self.changed.as_mut()?.pop()?;
            // A freed counter has no value.
            if let Ok(value) = self.ct_get(ct) {
                return Some((ct, value));
            }
        }
    }

    /// Frees a counter; returns the triggered operations that it cancels.
    pub(crate) fn ct_free(&mut self, ct: CtHandle) -> Result<Vec<Command>> {
        let waiting = self.ct_cancel(ct)?;
        self.counters.remove(ct.0);
        Ok(waiting)
    }

    /// Cancels and returns the pending triggered operations of a counter.
    pub(crate) fn ct_cancel(&mut self, ct: CtHandle) -> Result<Vec<Command>> {
        let counter = self.counters.get_mut(ct.0).ok_or(Error::ArgInvalid)?;
        let waiting: Vec<Command> = std::mem::take(&mut counter.waiting).into_values().collect();
        self.waiting -= waiting.len() as u32;
        Ok(waiting)
    }

    /// A counter's value.
    pub(crate) fn ct_get(&self, ct: CtHandle) -> Result<CtEvent> {
        self.counters.get(ct.0).map(|counter| counter.value).ok_or(Error::ArgInvalid)
    }

    /// Fails unless this is `None` or names a counter.
    pub(crate) fn check_ct(&self, ct: Option<CtHandle>) -> Result<()> {
        ct.map_or(Ok(()), |ct| self.ct_get(ct).map(drop))
    }

    /// Changes a counter's value, and makes the operations due that this triggers.
    pub(crate) fn ct_change(&mut self, ct: CtHandle, change: impl FnOnce(&mut CtEvent)) -> Result<()> {
        let counter = self.counters.get_mut(ct.0).ok_or(Error::ArgInvalid)?;
        change(&mut counter.value);
        if let Some(changed) = self.changed.as_mut().filter(|changed| changed.last() != Some(&ct)) {
            changed.push(ct);
        }
        let reached = counter.value.success.saturating_add(counter.value.failure);
        while let Some(next) = counter.waiting.first_entry() {
            if next.key().0 > reached {
                break;
            }
            self.due.push_back(next.remove());
            self.waiting -= 1;
        }
        Ok(())
    }

    /// Counts an operation: a failure as one, a success as `by`; does nothing without a counter.
    pub(crate) fn count(&mut self, ct: Option<CtHandle>, fail: Fail, by: u64) {
        let Some(ct) = ct else { return };
        let counted = self.ct_change(ct, |value| match fail {
            Fail::Ok => value.success = value.success.wrapping_add(by),
            _ => value.failure = value.failure.wrapping_add(1),
        });
        // The user may have freed the counter of an entry; that is not reported.
        counted.unwrap_or(());
    }

    /// Defers a command until a counter reaches a threshold; it is due immediately if the counter has reached
    /// it.
    pub(crate) fn trigger(
        &mut self,
        ct: CtHandle,
        threshold: u64,
        command: Command,
        most: u32,
    ) -> Result<()> {
        let counter = self.counters.get_mut(ct.0).ok_or(Error::ArgInvalid)?;
        if counter.value.success.saturating_add(counter.value.failure) >= threshold {
            self.due.push_back(command);
            return Ok(());
        }
        if self.waiting >= most {
            return Err(Error::NoSpace);
        }
        self.requested += 1;
        self.waiting += 1;
        counter.waiting.insert((threshold, self.requested), command);
        Ok(())
    }

    /// Whether a command is due.
    #[inline]
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The next command that is due.
    pub(crate) fn next_due(&mut self) -> Option<Command> {
        self.due.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inc(ct: CtHandle, by: u64) -> Command {
        Command::CtInc(ct, CtEvent { success: by, failure: 0 })
    }

    fn due(completions: &mut Completions) -> Vec<Command> {
        std::iter::from_fn(|| completions.next_due()).collect()
    }

    #[test]
    fn due_operations_run_by_threshold_then_call_order() {
        let mut completions = Completions::default();
        let ct = completions.ct_alloc(1).expect("the first");
        assert_eq!(completions.ct_alloc(1), Err(Error::NoSpace));
        for (threshold, by) in [(3, 1), (2, 2), (3, 3), (2, 4), (9, 5)] {
            completions.trigger(ct, threshold, inc(ct, by), 5).expect("room for five");
        }
        assert_eq!(completions.trigger(ct, 9, inc(ct, 6), 5), Err(Error::NoSpace));
        completions.count(Some(ct), Fail::Ok, 1);
        assert_eq!(due(&mut completions), []);
        completions.count(Some(ct), Fail::Dropped, 7);
        assert_eq!(due(&mut completions), [inc(ct, 2), inc(ct, 4)], "a failure is one");
        completions.count(Some(ct), Fail::Ok, 4);
        assert_eq!(due(&mut completions), [inc(ct, 1), inc(ct, 3)]);
        assert_eq!(completions.ct_get(ct), Ok(CtEvent { success: 5, failure: 1 }));
        completions.trigger(ct, 6, inc(ct, 7), 0).expect("it is due at once");
        assert_eq!(due(&mut completions), [inc(ct, 7)]);
        assert_eq!(completions.ct_free(ct), Ok(vec![inc(ct, 5)]));
        assert_eq!(completions.trigger(ct, 0, inc(ct, 1), 5), Err(Error::ArgInvalid));
        assert_eq!((completions.ct_get(ct), completions.waiting), (Err(Error::ArgInvalid), 0));
        completions.count(Some(ct), Fail::Ok, 1);
    }

    #[test]
    fn setting_a_counter_triggers_operations() {
        let mut completions = Completions::default();
        let ct = completions.ct_alloc(2).expect("the first");
        completions.trigger(ct, 5, inc(ct, 1), 9).expect("room");
        completions.ct_change(ct, |value| *value = CtEvent { success: 2, failure: 3 }).expect("a counter");
        assert_eq!(due(&mut completions), [inc(ct, 1)]);
    }
}
