//! Event queues: programs sleep on an event count, or on a descriptor that is readable exactly while there is
//! an event.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use host::{EventCount, Wake};
use rustix::event::{EventfdFlags, eventfd};
use verbs::{AsyncEvent, Error, Result};

use crate::fork::ForkSafeFd;
use crate::sync::unpoisoned;

/// Capacity of a device's queue of asynchronous events. Further events are dropped: peers cause them, and no
/// program has to fetch them.
pub const ASYNC_EVENTS_MAX: usize = 1024;

/// Capacity that an empty queue keeps, in events.
const CAPACITY_KEPT: usize = 256;

/// A queue of events for the program.
pub struct EventQueue<T> {
    /// Each event is boxed: freeing one large block would raise the size from which malloc(3) returns blocks
    /// to the system.
    queue: Mutex<VecDeque<Box<T>>>,
    /// Number of queued events, for pollers that mostly find none. Changed under the queue's lock.
    len: AtomicUsize,
    max: usize,
    wakeup: EventCount,
    /// A semaphore eventfd that counts the events.
    fd: ForkSafeFd,
}

impl EventQueue<AsyncEvent> {
    /// The queue for a device's asynchronous events, of [`ASYNC_EVENTS_MAX`].
    pub fn asynchronous() -> Result<Self> {
        Self::bounded(ASYNC_EVENTS_MAX)
    }
}

impl<T> EventQueue<T> {
    /// An unbounded queue.
    pub fn new() -> Result<Self> {
        Self::bounded(usize::MAX)
    }

    /// A queue of at most `max` events; further ones are dropped.
    fn bounded(max: usize) -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let hint = "cannot create an event queue (if descriptors ran out, raise the limit with ulimit -n)";
        let fd = eventfd(0, flags).map_err(|e| Error::system(hint, e))?;
        Ok(Self {
            queue: Mutex::default(),
            len: AtomicUsize::new(0),
            max,
            wakeup: EventCount::new(),
            fd: fd.into(),
        })
    }

    /// Adds an event and wakes waiters.
    pub fn push(&self, event: T) {
        self.push_if(event, || true);
    }

    /// Adds an event if `may` returns true; no other thread adds or removes one meanwhile.
    pub fn push_if(&self, event: T, may: impl FnOnce() -> bool) {
        let event = Box::new(event);
        let mut queue = unpoisoned(&self.queue);
        if queue.len() >= self.max || !may() {
            // Outside of the lock: dropping the event may call back.
            drop(queue);
            return drop(event);
        }
        queue.push_back(event);
        // Before the descriptor and the event count are signalled. A waiter checks the length after the fence of
        // `prepare_to_wait`, which pairs with the fence of `notify`: either it sees this store, or `notify` sees the
        // waiter.
        self.len.store(queue.len(), Ordering::Release);
        // Under the lock, so that the descriptor matches the queue. The counter cannot overflow before memory
        // runs out.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        drop(queue);
        self.wakeup.notify();
    }

    /// Removes the first event. Calls `on_shrink` if this emptied an unusually large queue, whose memory is then
    /// freed.
    #[inline]
    pub fn pop(&self, on_shrink: impl FnOnce()) -> Option<T> {
        if self.len.load(Ordering::Acquire) == 0 { None } else { self.pop_some(on_shrink) }
    }

    fn pop_some(&self, on_shrink: impl FnOnce()) -> Option<T> {
        let mut queue = unpoisoned(&self.queue);
        let event = queue.pop_front()?;
        self.len.store(queue.len(), Ordering::Release);
        self.decrement();
        if queue.is_empty() && queue.capacity() > CAPACITY_KEPT {
            *queue = VecDeque::new();
            drop(queue);
            on_shrink();
        }
        Some(*event)
    }

    /// Removes and returns the events for which `is_taken` returns true.
    pub fn extract_if(&self, is_taken: impl Fn(&T) -> bool) -> Vec<T> {
        let mut queue = unpoisoned(&self.queue);
        let (out, stay): (VecDeque<_>, VecDeque<_>) = queue.drain(..).partition(|event| is_taken(event));
        *queue = stay;
        self.len.store(queue.len(), Ordering::Release);
        out.iter().for_each(|_| self.decrement());
        drop(queue);
        out.into_iter().map(|event| *event).collect()
    }

    /// Decrements the descriptor's counter by one event.
    fn decrement(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }

    /// The wake-up source on which a program sleeps until there may be an event.
    pub fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.wakeup)
    }

    /// A descriptor that is readable exactly while there is an event.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(events: &EventQueue<usize>) -> bool {
        let fd = events.fd();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    #[test]
    fn events_beyond_the_limit_are_dropped() {
        let events = EventQueue::asynchronous().expect("a descriptor");
        (0..=ASYNC_EVENTS_MAX as u32).for_each(|cq| events.push(AsyncEvent::CqError { cq }));
        for cq in 0..ASYNC_EVENTS_MAX as u32 {
            assert_eq!(events.pop(|| {}), Some(AsyncEvent::CqError { cq }));
        }
        assert_eq!(events.pop(|| {}), None);
    }

    #[test]
    fn descriptor_is_readable_exactly_while_there_is_an_event() {
        let events = EventQueue::new().expect("a descriptor");
        assert!(!is_readable(&events));
        (0..10).for_each(|event| events.push_if(event, || event != 4));
        assert_eq!(events.extract_if(|event| event % 2 == 1), [1, 3, 5, 7, 9]);
        for event in [0, 2, 6, 8] {
            assert!(is_readable(&events));
            assert_eq!(events.pop(|| {}), Some(event));
        }
        assert!(!is_readable(&events) && events.pop(|| {}).is_none());
    }

    #[test]
    fn large_empty_queue_frees_its_memory() {
        let events = EventQueue::new().expect("a descriptor");
        let mut shrinks = 0;
        (0..=CAPACITY_KEPT).for_each(|event| events.push(event));
        (0..=CAPACITY_KEPT).for_each(|event| assert_eq!(events.pop(|| shrinks += 1), Some(event)));
        assert_eq!((shrinks, unpoisoned(&events.queue).capacity()), (1, 0));
    }
}
