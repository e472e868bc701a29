//! [`Arming`]: the users that have armed a completion queue. The program arms it for events of its channel; waiting threads arm
//! it before they sleep.
//!
//! The card knows one arming only. So the program's channel watches the queue's descriptor only while the program has
//! armed it, and a waiting thread does not arm a queue that the program has armed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock};

use nic_util::fork::ForkSafeFd;
use nic_util::sync::unpoisoned;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use verbs::{Error, Result};

use crate::raw::cq::HwCq;

/// How often a waiting thread polls a queue that the program has armed for solicited completions only.
const LOOK_NS: i64 = 1_000_000;

/// What the program has armed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Armed {
    /// Events that the program has asked for and not taken.
    count: u32,
    solicited_only: bool,
}

/// A completion queue with its arming.
pub(crate) struct Arming {
    pub(crate) hw: Arc<HwCq>,
    /// The epoll set of the program's channel, if the queue has one.
    set: Option<Arc<ForkSafeFd>>,
    armed: Mutex<Armed>,
    /// Ends after each [`LOOK_NS`]; made when it is first needed.
    timer: OnceLock<ForkSafeFd>,
}

impl Arming {
    pub(crate) fn new(hw: Arc<HwCq>, set: Option<Arc<ForkSafeFd>>) -> Self {
        Self { hw, set, armed: Mutex::default(), timer: OnceLock::new() }
    }

    /// Arms the queue for an event of the program's channel.
    pub(crate) fn request_event(&self, solicited_only: bool) -> Result<()> {
        let Some(set) = &self.set else {
            return Err(Error::Invalid(
                "the completion queue was created without a channel; create it with create_cq_with".into(),
            ));
        };
        let refused = |why: io::Error| Error::system("cannot arm the completion queue", why);
        let mut armed = unpoisoned(&self.armed);
        if armed.count == 0 {
            // Events of waits that have ended.
            self.hw.take_events();
        }
        let solicited_only = solicited_only && (armed.count == 0 || armed.solicited_only);
        self.hw.arm(solicited_only).map_err(refused)?;
        if armed.count == 0 {
            let token = epoll::EventData::new_u64(self.hw.number.into());
            epoll::add(&**set, self.hw.fd(), token, epoll::EventFlags::IN)
                .map_err(|why| refused(why.into()))?;
        }
        // An event that is pending answers an earlier request.
        let count = if self.is_readable() { armed.count + 1 } else { 1 };
        *armed = Armed { count, solicited_only };
        Ok(())
    }

    /// Takes an event for the program, if there is one.
    pub(crate) fn take_event(&self) -> bool {
        let mut armed = unpoisoned(&self.armed);
        if armed.count == 0 || !self.hw.take_event() {
            return false;
        }
        armed.count -= 1;
        if let Some(set) = self.set.as_ref().filter(|_| armed.count == 0) {
            // It was added when the program armed the queue.
            let _ = epoll::delete(&**set, self.hw.fd());
        }
        true
    }

    /// Makes completions from now on wake a sleeper on the returned descriptor.
    pub(crate) fn prepare_wait(&self) -> BorrowedFd<'_> {
        let armed = unpoisoned(&self.armed);
        match *armed {
            Armed { count: 0, .. } => {
                self.hw.take_events();
                // A queue that cannot be armed has failed: its next poll reports that.
                let _ = self.hw.arm(false);
                self.hw.fd()
            }
            Armed { solicited_only: false, .. } => self.hw.fd(),
            Armed { solicited_only: true, .. } => self.look_timer().unwrap_or(self.hw.fd()),
        }
    }

    fn is_readable(&self) -> bool {
        let fd = self.hw.fd();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// A timer that becomes readable after [`LOOK_NS`].
    fn look_timer(&self) -> Option<BorrowedFd<'_>> {
        let span = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        let timer = match self.timer.get() {
            Some(timer) => timer,
            None => {
                let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
                let made = timerfd_create(TimerfdClockId::Monotonic, flags).ok()?;
                self.timer.get_or_init(|| made.into())
            }
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: span };
        timerfd_settime(timer, TimerfdTimerFlags::empty(), &once).ok()?;
        Some(timer.as_fd())
    }
}
