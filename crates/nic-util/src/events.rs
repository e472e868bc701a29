//! Events that programs sleep on: by a bell, or by a descriptor that is readable exactly while there is one.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use host::{Bell, Wake};
use rustix::event::{EventfdFlags, eventfd};
use verbs::{AsyncEvent, Error, Result};

use crate::fork::Fd;
use crate::sync::unpoisoned;

/// A device's asynchronous events that wait to be fetched; with so many there, further ones are lost: peers cause them, and nobody
/// need fetch them.
pub const ASYNC_EVENTS_MAX: usize = 1024;

/// Room for events that an empty queue keeps.
const KEPT: usize = 256;

/// Events for the program.
pub struct Events<T> {
    /// Each in a box: one large block, given back, would raise the size from which malloc(3) gives blocks back to the system.
    queue: Mutex<VecDeque<Box<T>>>,
    /// How many there are, for who looks again and again where there are none. Changed under the queue's lock.
    len: AtomicUsize,
    max: usize,
    bell: Bell,
    /// Counts the events.
    fd: Fd,
}

impl Events<AsyncEvent> {
    /// Those of a device.
    pub fn asynchronous() -> Result<Self> {
        Self::bounded(ASYNC_EVENTS_MAX)
    }
}

impl<T> Events<T> {
    /// As many as come.
    pub fn new() -> Result<Self> {
        Self::bounded(usize::MAX)
    }

    /// At most so many; further ones are lost.
    fn bounded(max: usize) -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let hint = "cannot create a queue of events (if descriptors ran out, raise the limit with ulimit -n)";
        let fd = eventfd(0, flags).map_err(|e| Error::system(hint, e))?;
        Ok(Self { queue: Mutex::default(), len: AtomicUsize::new(0), max, bell: Bell::new(), fd: fd.into() })
    }

    /// Adds an event and wakes who waits for one.
    pub fn push(&self, event: T) {
        self.push_if(event, || true);
    }

    /// Adds an event if `may` says so, which is asked while nobody else adds or takes one.
    pub fn push_if(&self, event: T, may: impl FnOnce() -> bool) {
        let event = Box::new(event);
        let mut queue = unpoisoned(&self.queue);
        if queue.len() >= self.max || !may() {
            // Dropping it may call back.
            drop(queue);
            return drop(event);
        }
        queue.push_back(event);
        // Before the descriptor and the bell tell of it. Who is about to sleep looks behind the fence of its announcement, whose
        // partner is that of the ring: either it sees this, or it is seen.
        self.len.store(queue.len(), Ordering::Release);
        // Under the lock, so that the descriptor tells the truth. The counter cannot fill up before memory does.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        drop(queue);
        self.bell.ring();
    }

    /// Takes the first event; `on_ebb` is called if that has emptied the room of a crowd, which is given back.
    #[inline]
    pub fn pop(&self, on_ebb: impl FnOnce()) -> Option<T> {
        if self.len.load(Ordering::Acquire) == 0 { None } else { self.pop_some(on_ebb) }
    }

    fn pop_some(&self, on_ebb: impl FnOnce()) -> Option<T> {
        let mut queue = unpoisoned(&self.queue);
        let event = queue.pop_front()?;
        self.len.store(queue.len(), Ordering::Release);
        self.lower();
        if queue.is_empty() && queue.capacity() > KEPT {
            *queue = VecDeque::new();
            drop(queue);
            on_ebb();
        }
        Some(*event)
    }

    /// Takes out the events that `of` says yes to.
    pub fn take_out(&self, of: impl Fn(&T) -> bool) -> Vec<T> {
        let mut queue = unpoisoned(&self.queue);
        let (out, stay): (VecDeque<_>, VecDeque<_>) = queue.drain(..).partition(|event| of(event));
        *queue = stay;
        self.len.store(queue.len(), Ordering::Release);
        out.iter().for_each(|_| self.lower());
        drop(queue);
        out.into_iter().map(|event| *event).collect()
    }

    /// There is one event less: the descriptor counts them.
    fn lower(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }

    /// What a program sleeps by until there may be an event.
    pub fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.bell)
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

    fn is_readable(events: &Events<usize>) -> bool {
        let fd = events.fd();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    #[test]
    fn events_beyond_the_limit_are_lost() {
        let events = Events::asynchronous().expect("a descriptor");
        (0..=ASYNC_EVENTS_MAX as u32).for_each(|cq| events.push(AsyncEvent::CqError { cq }));
        for cq in 0..ASYNC_EVENTS_MAX as u32 {
            assert_eq!(events.pop(|| {}), Some(AsyncEvent::CqError { cq }));
        }
        assert_eq!(events.pop(|| {}), None);
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_there_is_an_event() {
        let events = Events::new().expect("a descriptor");
        assert!(!is_readable(&events));
        (0..10).for_each(|event| events.push_if(event, || event != 4));
        assert_eq!(events.take_out(|event| event % 2 == 1), [1, 3, 5, 7, 9]);
        for event in [0, 2, 6, 8] {
            assert!(is_readable(&events));
            assert_eq!(events.pop(|| {}), Some(event));
        }
        assert!(!is_readable(&events) && events.pop(|| {}).is_none());
    }

    #[test]
    fn the_room_of_a_crowd_is_given_back() {
        let events = Events::new().expect("a descriptor");
        let mut ebbs = 0;
        (0..=KEPT).for_each(|event| events.push(event));
        (0..=KEPT).for_each(|event| assert_eq!(events.pop(|| ebbs += 1), Some(event)));
        assert_eq!((ebbs, unpoisoned(&events.queue).capacity()), (1, 0));
    }
}
