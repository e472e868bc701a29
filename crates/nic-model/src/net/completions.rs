//! [`Completions`]: completion queues, their channels, and what ranks found when they polled.

use std::collections::{BTreeMap, VecDeque};

use verbs::{Error, Result, Wc};

use super::slab::Slab;

/// Slots of a queue that are freed when a completion is polled.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slots {
    /// Frees this many slots of a queue pair's send queue.
    Send(u32, u32),
    /// Frees a slot of a queue pair's receive queue.
    Receive(u32),
    /// Frees a slot of a shared receive queue, taken by this queue pair.
    SharedReceive(u32, u32),
    /// Its queue pair was destroyed: the entry is void.
    Void,
}

impl Slots {
    /// Whether they belong to a completion of this queue pair.
    fn are_of(self, qp: u32) -> bool {
        match self {
            Self::Send(whose, _) | Self::Receive(whose) | Self::SharedReceive(_, whose) => whose == qp,
            Self::Void => false,
        }
    }
}

/// A completion and its bookkeeping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) wc: Wc,
    pub(super) slots: Slots,
    pub(super) solicited: bool,
}

/// What the processor finds when it sees an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShownEntry {
    /// The queue or the entry is gone.
    Nothing,
    /// The entry can be polled; `notify`: the queue's channel gets an event.
    Entry { notify: bool },
    /// The queue had no room for it, and is unusable from now on.
    Overrun,
}

/// The owner of a completion queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct CqOwner {
    pub(super) context: u32,
    pub(super) card: usize,
}

/// A completion queue.
struct CompletionQueue {
    owner: CqOwner,
    cqe: u32,
    /// Entries that the card is writing.
    written: VecDeque<Entry>,
    /// Entries to poll.
    entries: VecDeque<Entry>,
    overrun: bool,
    channel: Option<u32>,
    /// `Some(true)`: it is armed for solicited completions only.
    armed: Option<bool>,
}

/// Completion queues and completion channels of all cards.
#[derive(Default)]
pub(super) struct Completions {
    queues: Slab<CompletionQueue>,
    /// The queues that have reported to each channel.
    channels: Slab<VecDeque<u32>>,
    /// The queue that each rank found empty since its last completion.
    in_vain: BTreeMap<usize, u32>,
}

impl Completions {
    /// Creates a channel.
    pub(super) fn create_channel(&mut self) -> u32 {
        self.channels.insert(VecDeque::new())
    }

    /// Destroys a channel.
    pub(super) fn drop_channel(&mut self, channel: u32) {
        self.channels.remove(channel);
    }

    /// The next queue that reported to a channel.
    pub(super) fn poll_channel(&mut self, channel: u32) -> Option<u32> {
        self.channels.get_mut(channel)?.pop_front()
    }

    /// Creates a queue of `cqe` entries.
    pub(super) fn create(&mut self, owner: CqOwner, cqe: u32, channel: Option<u32>) -> u32 {
        let (written, entries) = Default::default();
        self.queues.insert(CompletionQueue {
            owner,
            cqe,
            written,
            entries,
            overrun: false,
            channel,
            armed: None,
        })
    }

    /// Destroys a queue; returns its owner.
    pub(super) fn remove(&mut self, queue: u32) -> Option<CqOwner> {
        self.queues.remove(queue).map(|queue| queue.owner)
    }

    /// The owner of a queue.
    pub(super) fn owner(&self, queue: u32) -> Option<CqOwner> {
        self.queues.get(queue).map(|queue| queue.owner)
    }

    /// Arms a queue: its next completion, or its next solicited one, is reported to its channel.
    pub(super) fn arm(&mut self, key: u32, solicited_only: bool) -> Result<()> {
        let Some(queue) = self.queues.get_mut(key).filter(|queue| queue.channel.is_some()) else {
            return Err(Error::Invalid("the completion queue has no channel".into()));
        };
        queue.armed = Some(solicited_only && queue.armed != Some(false));
        Ok(())
    }

    /// Whether a queue still accepts entries.
    pub(super) fn accepts_entries(&self, key: u32) -> bool {
        self.queues.get(key).is_some_and(|queue| !queue.overrun)
    }

    /// The card starts to write an entry into a queue that [accepts](Completions::accepts_entries) it.
    pub(super) fn write(&mut self, key: u32, entry: Entry) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.written.push_back(entry);
        }
    }

    /// The processor sees the next entry that was written to a queue.
    pub(super) fn show_next(&mut self, key: u32) -> ShownEntry {
        let Some(queue) = self.queues.get_mut(key) else { return ShownEntry::Nothing };
        let Some(entry) = queue.written.pop_front().filter(|_| !queue.overrun) else {
            return ShownEntry::Nothing;
        };
        if matches!(entry.slots, Slots::Void) {
            return ShownEntry::Nothing;
        }
        if queue.entries.len() >= queue.cqe as usize {
            queue.overrun = true;
            return ShownEntry::Overrun;
        }
        queue.entries.push_back(entry);
        let counts = queue.armed.is_some_and(|only| !only || entry.solicited || !entry.wc.is_ok());
        let notify = counts && queue.channel.is_some();
        if notify {
            queue.armed = None;
        }
        ShownEntry::Entry { notify }
    }

    /// The event of a queue reaches its channel; returns whether there is one.
    pub(super) fn notify(&mut self, key: u32) -> bool {
        let channel = self.queues.get(key).and_then(|queue| queue.channel);
        let channel = channel.and_then(|channel| self.channels.get_mut(channel));
        channel.map(|events| events.push_back(key)).is_some()
    }

    /// Drops the completions of a destroyed queue pair from this queue; calls `free` for the slots of each.
    pub(super) fn discard_of_qp(&mut self, key: u32, qp: u32, mut free: impl FnMut(Slots)) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        // Entries that are being written are still seen, each in its turn.
        for entry in queue.written.iter_mut().filter(|entry| entry.slots.are_of(qp)) {
            free(std::mem::replace(&mut entry.slots, Slots::Void));
        }
        queue.entries.retain(|entry| {
            let is_gone = entry.slots.are_of(qp);
            if is_gone {
                free(entry.slots);
            }
            !is_gone
        });
    }

    /// Polls completions, and calls `free` for the slots of each; returns their number.
    pub(super) fn poll(&mut self, key: u32, wcs: &mut [Wc], mut free: impl FnMut(Slots)) -> Result<usize> {
        let Some(queue) = self.queues.get_mut(key) else { return Ok(0) };
        for (count, wc) in wcs.iter_mut().enumerate() {
            if queue.overrun {
                return Err(Error::CqOverrun { cqe: queue.cqe });
            }
            let Some(entry) = queue.entries.pop_front() else { return Ok(count) };
            *wc = entry.wc;
            free(entry.slots);
        }
        Ok(wcs.len())
    }

    /// Records a rank's poll of a queue. If it found a completion, returns whether the rank had polled this queue in
    /// vain and slept before.
    pub(super) fn record_poll(&mut self, rank: usize, queue: u32, found: bool) -> bool {
        if found {
            return self.in_vain.remove(&rank) == Some(queue);
        }
        self.in_vain.insert(rank, queue);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(solicited: bool) -> Entry {
        Entry { wc: Wc { wr_id: 7, ..Wc::default() }, slots: Slots::Receive(3), solicited }
    }

    /// A queue with a channel and room for two entries.
    fn queue() -> (Completions, u32, u32) {
        let mut all = Completions::default();
        let channel = all.create_channel();
        let key = all.create(CqOwner { context: 1, card: 0 }, 2, Some(channel));
        (all, key, channel)
    }

    #[test]
    fn entries_can_be_polled_once_the_processor_sees_them() {
        let (mut all, key, _) = queue();
        let (mut wcs, mut freed) = ([Wc::default(); 3], 0);
        all.write(key, entry(false));
        assert_eq!(all.poll(key, &mut wcs, |_| freed += 1), Ok(0), "still being written");
        assert_eq!(all.show_next(key), ShownEntry::Entry { notify: false });
        assert_eq!(all.poll(key, &mut wcs, |_| freed += 1), Ok(1));
        assert_eq!((wcs[0].wr_id, freed), (7, 1));
    }

    #[test]
    fn overrun_queue_returns_errors() {
        let (mut all, key, _) = queue();
        (0..3).for_each(|_| all.write(key, entry(false)));
        let one = ShownEntry::Entry { notify: false };
        assert_eq!(
            [(); 4].map(|()| all.show_next(key)),
            [one, one, ShownEntry::Overrun, ShownEntry::Nothing]
        );
        assert!(!all.accepts_entries(key));
        let polled = all.poll(key, &mut [Wc::default()], |_| {});
        assert_eq!(polled, Err(Error::CqOverrun { cqe: 2 }));
    }

    #[test]
    fn armed_queue_reports_once() {
        let (mut all, key, channel) = queue();
        all.arm(key, true).expect("it has a channel");
        (0..2).for_each(|i| all.write(key, entry(i == 1)));
        assert_eq!(all.show_next(key), ShownEntry::Entry { notify: false }, "not solicited");
        assert_eq!(all.show_next(key), ShownEntry::Entry { notify: true });
        assert!(all.poll_channel(channel).is_none() && all.notify(key));
        assert_eq!((all.poll_channel(channel), all.poll_channel(channel)), (Some(key), None));
        let without = all.create(CqOwner { context: 1, card: 0 }, 2, None);
        assert!(all.arm(without, false).is_err());
    }

    #[test]
    fn poll_after_an_empty_poll_counts_as_sleep() {
        let mut all = Completions::default();
        assert!(!all.record_poll(0, 5, true));
        assert!(!all.record_poll(0, 5, false));
        assert!(!all.record_poll(9, 5, true), "another rank");
        assert!(all.record_poll(0, 5, true));
        assert!(!all.record_poll(0, 5, true), "it has not slept again");
        assert!(!all.record_poll(0, 6, false) && !all.record_poll(0, 5, true), "another queue");
    }
}
