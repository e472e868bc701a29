//! Events of connections in the making, and of their ends: from whoever works on a connection to the program.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use host::Bell;
use rustix::event::{EventfdFlags, eventfd};
use verbs::{CmEvent, Error, Result};

use crate::fork::Fd;
use crate::sync::unpoisoned;

/// Room for events that an empty channel keeps.
const EVENTS_KEPT: usize = 256;

/// Events, with the listener that they came to. Each is in a box: one large block, given back, would raise the size from which
/// malloc(3) gives blocks back to the system.
type Queue = VecDeque<(Option<u64>, Box<CmEvent>)>;

/// The events of a channel of the connection manager.
pub(super) struct Events {
    bell: Bell,
    fd: Fd,
    queue: Mutex<Queue>,
}

impl Events {
    pub(super) fn new() -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let fd = eventfd(0, flags).map_err(|e| Error::system("cannot create an event channel", e))?;
        Ok(Self { bell: Bell::new(), fd: fd.into(), queue: Mutex::default() })
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Adds an event and wakes who waits for one.
    pub(super) fn push(&self, event: CmEvent) {
        let mut queue = unpoisoned(&self.queue);
        self.append(&mut queue, None, event);
    }

    /// A request came to a listener, which may not be `open` any more: then nobody gets it.
    pub(super) fn push_request(&self, listener: u64, open: &AtomicBool, event: CmEvent) {
        let mut queue = unpoisoned(&self.queue);
        if open.load(Ordering::Acquire) {
            self.append(&mut queue, Some(listener), event);
        } else {
            drop(queue);
            drop(event);
        }
    }

    fn append(&self, queue: &mut Queue, of: Option<u64>, event: CmEvent) {
        queue.push_back((of, Box::new(event)));
        // Under the lock, so that the descriptor is readable exactly while there is an event. The counter cannot fill up
        // before memory does.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        self.bell.ring();
    }

    /// Takes the first event; `on_ebb` is called if that has emptied the room of a crowd, which is given back.
    pub(super) fn take(&self, on_ebb: impl FnOnce()) -> Option<CmEvent> {
        let mut queue = unpoisoned(&self.queue);
        let (_, event) = queue.pop_front()?;
        self.lower();
        if queue.is_empty() && queue.capacity() > EVENTS_KEPT {
            *queue = Queue::new();
            on_ebb();
        }
        Some(*event)
    }

    fn lower(&self) {
        let mut count = [0; 8];
        // There is one count for each event.
        let _ = rustix::io::read(&self.fd, &mut count);
    }

    /// Requests that came to a listener and that nobody has taken are answered: by dropping them, they are rejected.
    pub(super) fn drop_requests_of(&self, listener: u64) {
        let mut queue = unpoisoned(&self.queue);
        let (gone, stay): (Queue, Queue) = queue.drain(..).partition(|(of, _)| *of == Some(listener));
        *queue = stay;
        gone.iter().for_each(|_| self.lower());
        drop(queue);
        drop(gone);
    }
}
