//! [`EventQueue`]: events for the user, in a fixed number of slots (Portals 4.3, section 3.13).
//!
//! An event without a free slot overwrites the oldest event, and the next `pop` reports the loss. Flow
//! control prevents this for messages by reserving their slots before a message is accepted. Flow control
//! events have extra slots.

use std::collections::VecDeque;

use crate::objects::event::Event;

#[derive(Debug)]
pub(crate) struct EventQueue {
    events: VecDeque<Queued>,
    /// Slots for ordinary events: all, occupied, and reserved.
    count: usize,
    taken: usize,
    reserved: usize,
    /// An event was lost since the last `pop`.
    dropped: bool,
}

#[derive(Debug)]
struct Queued {
    event: Event,
    is_ordinary: bool,
}

impl EventQueue {
    /// A queue of `count` slots, at least one.
    pub(crate) fn new(count: usize) -> Self {
        let count = count.max(1);
        Self { events: VecDeque::new(), count, taken: 0, reserved: 0, dropped: false }
    }

    /// Reserves slots, if enough are free.
    pub(crate) fn reserve(&mut self, slots: usize) -> bool {
        let fits = self.taken + self.reserved + slots <= self.count;
        if fits {
            self.reserved += slots;
        }
        fits
    }

    /// Releases reserved slots.
    pub(crate) fn unreserve(&mut self, slots: usize) {
        self.reserved -= slots;
    }

    /// Appends an event; overwrites the oldest one if no slot is free.
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        if self.taken + self.reserved >= self.count {
            self.dropped = true;
            let Some(oldest) = self.events.iter().position(|queued| queued.is_ordinary) else { return };
            self.events.remove(oldest);
            self.taken -= 1;
        }
        self.taken += 1;
        self.events.push_back(Queued { event, is_ordinary: true });
    }

    /// Appends an event in an extra slot.
    pub(crate) fn push_extra(&mut self, event: Event) {
        self.events.push_back(Queued { event, is_ordinary: false });
    }

    /// Removes the oldest event; also returns whether events before it were lost.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Event, bool)> {
        let Queued { event, is_ordinary } = self.events.pop_front()?;
        self.taken -= usize::from(is_ordinary);
        Some((event, std::mem::take(&mut self.dropped)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::event::EventKind;

    fn event(number: u64) -> Event {
        Event::new(EventKind::Put, number)
    }

    fn pop(queue: &mut EventQueue) -> Option<(u64, bool)> {
        queue.pop().map(|(event, dropped)| (event.user_ptr, dropped))
    }

    #[test]
    fn full_queue_overwrites_the_oldest_event_and_reports_it() {
        let mut queue = EventQueue::new(3);
        (0..5).for_each(|number| queue.push(event(number)));
        assert_eq!(pop(&mut queue), Some((2, true)));
        assert_eq!(pop(&mut queue), Some((3, false)));
        queue.push(event(5));
        queue.push(event(6));
        assert_eq!(
            [pop(&mut queue), pop(&mut queue), pop(&mut queue)],
            [Some((4, false)), Some((5, false)), Some((6, false))]
        );
        assert_eq!(pop(&mut queue), None);
    }

    #[test]
    fn reserved_slots_are_kept() {
        let mut queue = EventQueue::new(3);
        queue.push(event(0));
        assert!(queue.reserve(2) && !queue.reserve(1));
        queue.push(event(1));
        assert!(!queue.reserve(1), "the slot of the oldest was taken");
        queue.unreserve(2);
        queue.push(event(2));
        queue.push(event(3));
        assert_eq!(
            [pop(&mut queue), pop(&mut queue), pop(&mut queue)],
            [Some((1, true)), Some((2, false)), Some((3, false))]
        );
    }

    #[test]
    fn event_is_lost_if_all_slots_are_reserved() {
        let mut queue = EventQueue::new(1);
        assert!(queue.reserve(1));
        queue.push(event(0));
        assert_eq!(pop(&mut queue), None);
        queue.unreserve(1);
        queue.push(event(1));
        assert_eq!(pop(&mut queue), Some((1, true)));
    }

    #[test]
    fn flow_control_events_are_never_lost() {
        let mut queue = EventQueue::new(2);
        (0..2).for_each(|number| queue.push(event(number)));
        queue.push_extra(event(100));
        (2..4).for_each(|number| queue.push(event(number)));
        assert_eq!(
            [pop(&mut queue), pop(&mut queue), pop(&mut queue)],
            [Some((100, true)), Some((2, false)), Some((3, false))]
        );
    }
}
