//! A device's thread: its start and end, and the descriptors on which it sleeps.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::ThreadId;

use host::{Host, Span, Task};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use verbs::{Error, Result};

use crate::fork::ForkSafeFd;
use crate::limits::no_thread;
use crate::sync::unpoisoned;

/// The shortest sleep of epoll_wait(2).
const EPOLL_STEP: Span = Span::from_ms(1);

/// The descriptors that the thread watches (epoll(7)), each with a token, and an eventfd that wakes it. It may outlive
/// its device.
pub struct EpollSet {
    epoll: ForkSafeFd,
    wake_fd: ForkSafeFd,
    stop: AtomicBool,
    next_id: AtomicU64,
}

impl EpollSet {
    /// The token of the wake-up; no other descriptor has it.
    const WAKE_TOKEN: u64 = 0;

    /// Watches no descriptor yet.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub fn new() -> Result<Self> {
        let refused = |e: Errno| Error::system("cannot create the device's event descriptors", e);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused)?;
        let wake_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(refused)?;
        let token = epoll::EventData::new_u64(Self::WAKE_TOKEN);
        epoll::add(&epoll, &wake_fd, token, epoll::EventFlags::IN).map_err(refused)?;
        Ok(Self {
            epoll: epoll.into(),
            wake_fd: wake_fd.into(),
            stop: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
        })
    }

    /// A number that no other call has returned; never 0.
    pub fn fresh_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Wakes the thread, which then checks everything.
    pub fn wake(&self) {
        // A full counter means that the thread is awake already.
        let _ = rustix::io::write(&self.wake_fd, &1_u64.to_ne_bytes());
    }

    /// Makes the thread end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether the thread should end.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Adds a descriptor to the thread's epoll set.
    pub fn watch(&self, fd: BorrowedFd<'_>, token: u64, flags: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), flags)
    }

    /// Changes the flags of a watched descriptor.
    pub fn rewatch(&self, fd: BorrowedFd<'_>, token: u64, flags: epoll::EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), flags)
    }

    /// Stops watching a descriptor, if it is watched.
    pub fn unwatch(&self, fd: BorrowedFd<'_>) {
        // The other of two callers may have removed it already.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Sleeps until an event, at most for `pause`. Stores tokens and flags of descriptors in `events`;
    /// returns whether anything happened, a wake-up included.
    pub fn sleep(&self, events: &mut Vec<epoll::Event>, pause: Option<Span>) -> bool {
        events.clear();
        let exact = |pause: Span| {
            let pause = pause.to_std();
            Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) }
        };
        let timeout = match pause {
            // epoll_wait(2) counts whole milliseconds and rounds up.
            Some(pause) if pause > Span::ZERO && pause < EPOLL_STEP => {
                let mut epoll = [PollFd::new(&self.epoll, PollFlags::IN)];
                let _ = poll(&mut epoll, Some(&exact(pause)));
                Some(exact(Span::ZERO))
            }
            pause => pause.map(exact),
        };
        // If a signal interrupts it, the thread just checks everything.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref());
        let any = !events.is_empty();
        events.retain(|event| {
            let is_wake = event.data.u64() == Self::WAKE_TOKEN;
            if is_wake {
                // If it is empty, an earlier call has read it.
                let _ = rustix::io::read(&self.wake_fd, &mut [0; 8]);
            }
            !is_wake
        });
        any
    }
}

/// The thread as its device holds it.
#[derive(Default)]
pub struct Thread {
    task: Mutex<Option<Task>>,
    id: OnceLock<ThreadId>,
}

impl Thread {
    /// Starts `body` as the device's thread under this name.
    pub fn start(&self, host: &Host, name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let body = || {
            // It copies to and from the program's memory, and inherits the signal mask of a thread of the
            // program.
            let _ = uaccess::unblock();
            body();
        };
        *unpoisoned(&self.task) = Some(host.spawn(name, None, body).map_err(no_thread)?);
        Ok(())
    }

    /// Records that the calling thread is the device's thread.
    pub fn set_current(&self) {
        self.id.get_or_init(|| std::thread::current().id());
    }

    /// Ends the thread and waits for its end, unless the thread itself is the caller.
    pub fn stop(&self, epoll_set: &EpollSet) {
        epoll_set.stop();
        let task = unpoisoned(&self.task).take();
        if self.id.get() != Some(&std::thread::current().id())
            && let Some(task) = task
        {
            task.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_up_is_not_reported_as_a_descriptor_event() {
        let epoll_set = EpollSet::new().expect("descriptors");
        let mut events = Vec::with_capacity(4);
        epoll_set.wake();
        assert!(
            epoll_set.sleep(&mut events, None) && events.is_empty(),
            "the wake-up is no descriptor's event"
        );
        assert!(
            !epoll_set.sleep(&mut events, Some(Span::ZERO)) && !epoll_set.is_stopping(),
            "the wake-up was consumed"
        );
        let (here, there) = rustix::pipe::pipe().expect("a pipe");
        epoll_set.watch(std::os::fd::AsFd::as_fd(&here), 7, epoll::EventFlags::IN).expect("watched");
        rustix::io::write(&there, &[1]).expect("written");
        epoll_set.wake();
        epoll_set.sleep(&mut events, None);
        assert_eq!(events.iter().map(|event| event.data.u64()).collect::<Vec<_>>(), [7]);
    }
}
