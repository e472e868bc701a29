//! [`Sleepers`]: threads that sleep on descriptors of one socket, and a descriptor that wakes all of them.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use ffi::lock;
use rustix::event::{EventfdFlags, eventfd};

/// Counts sleeping threads. Each sleeps in poll(2) on [`Sleepers::fd`] and on a descriptor of its own. The descriptor stays readable from
/// [`Sleepers::wake`] until every thread that slept then has left, so that no thread takes another's wake-up.
#[derive(Debug)]
pub(crate) struct Sleepers {
    fd: OwnedFd,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Threads between `enter` and `leave`.
    asleep: u32,
    /// Threads that slept at the last wake-up and have not left yet.
    woken: u32,
    /// The number of wake-ups.
    wakes: u64,
}

/// A thread that sleeps: the number of wake-ups before.
#[derive(Clone, Copy, Debug)]
pub struct Sleep(u64);

impl Sleepers {
    /// An empty set of sleeping threads.
    ///
    /// # Errors
    /// The system's, if no descriptor is available.
    pub(crate) fn new() -> verbs::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|errno| {
            verbs::Error::system("cannot create a descriptor (ulimit -n raises their number)", errno)
        })?;
        Ok(Self { fd, counts: Mutex::default() })
    }

    /// The descriptor, readable while threads are to wake.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The calling thread is going to sleep. It has to pass the result to [`Sleepers::leave`].
    pub(crate) fn enter(&self) -> Sleep {
        let mut counts = lock(&self.counts);
        counts.asleep += 1;
        Sleep(counts.wakes)
    }

    /// The calling thread has slept.
    pub(crate) fn leave(&self, sleep: Sleep) {
        let mut counts = lock(&self.counts);
        counts.asleep -= 1;
        if sleep.0 < counts.wakes {
            counts.woken -= 1;
            if counts.woken == 0 {
                // It is readable, and stays so until this read, which cannot block.
                let _ = rustix::io::read(&self.fd, &mut [0_u8; 8]);
            }
        }
    }

    /// Wakes every thread that sleeps now.
    pub(crate) fn wake(&self) {
        let mut counts = lock(&self.counts);
        if counts.asleep > counts.woken {
            if counts.woken == 0 {
                // The counter is 0: this cannot block.
                let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
            }
            counts.woken = counts.asleep;
            counts.wakes += 1;
        }
    }

    /// Makes the descriptor readable as long as `is_ready` is set, for a queue whose readers take turns.
    pub(crate) fn set_ready(&self, is_ready: bool) {
        // The counter is read to 0, or set from 0 to 1: neither can block.
        let _ = rustix::io::read(&self.fd, &mut [0_u8; 8]);
        if is_ready {
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(sleepers: &Sleepers) -> bool {
        let now = Some(&Timespec { tv_sec: 0, tv_nsec: 0 });
        poll(&mut [PollFd::new(&sleepers.fd, PollFlags::IN)], now).expect("it can be polled") == 1
    }

    #[test]
    fn wake_up_lasts_until_all_that_slept_have_left() {
        let sleepers = Sleepers::new().expect("a descriptor");
        sleepers.wake();
        assert!(!is_readable(&sleepers), "nobody sleeps");
        let (first, second) = (sleepers.enter(), sleepers.enter());
        sleepers.wake();
        sleepers.wake();
        assert!(is_readable(&sleepers));
        sleepers.leave(first);
        assert!(is_readable(&sleepers), "one has not left yet");
        sleepers.leave(second);
        assert!(!is_readable(&sleepers));
        let third = sleepers.enter();
        assert!(!is_readable(&sleepers), "a later one sleeps on");
        sleepers.leave(third);
    }

    #[test]
    fn later_sleeper_takes_nobodys_wake_up() {
        let sleepers = Sleepers::new().expect("a descriptor");
        let first = sleepers.enter();
        sleepers.wake();
        let second = sleepers.enter();
        sleepers.leave(second);
        assert!(is_readable(&sleepers), "the first has not left yet");
        let third = sleepers.enter();
        sleepers.wake();
        sleepers.leave(first);
        assert!(is_readable(&sleepers), "the third was woken as well");
        sleepers.leave(third);
        assert!(!is_readable(&sleepers));
    }

    #[test]
    fn descriptor_of_a_queue_shows_whether_it_is_ready() {
        let sleepers = Sleepers::new().expect("a descriptor");
        for is_ready in [true, true, false, false] {
            sleepers.set_ready(is_ready);
            assert_eq!(is_readable(&sleepers), is_ready);
        }
    }
}
