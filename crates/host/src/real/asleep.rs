//! Sleeping in real time: on one event count by futex(2), on several by futex_waitv(2), on descriptors by poll(2). No
//! system call takes both kinds; for these, the thread of [`FdWatcher`] sleeps on the descriptors.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::futex::{self, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::thread;
use crate::EventCount;
use crate::source::{Ticket, Wake, Wakes};

/// Maximum length of a sleep that nothing is sure to end: where futex_waitv(2) (Linux 5.16) or a thread is unavailable.
const SLICE: Duration = Duration::from_millis(1);

/// FUTEX_WAITV_MAX of linux/futex.h. A sleep on more event counts is divided into slices.
const FUTEXES_MAX: usize = 128;

/// Set when futex_waitv(2) turned out to be missing (before Linux 5.16, in a system call filter, or under valgrind,
/// which warns about each call). It is not tried again then.
static NO_WAITV: AtomicBool = AtomicBool::new(false);

/// Sleeps until a wake-up, the end of `limit`, a signal, or a spurious wake-up.
pub(super) fn sleep(wakes: &Wakes<'_>, limit: Option<Duration>) {
    if let Some(ticket) = wakes.sole_ticket() {
        return ticket.wakeup().sleep(ticket.number(), limit);
    }
    let tickets: Vec<&Ticket<'_>> = wakes.iter().filter_map(ticket_of).collect();
    let fds: Vec<BorrowedFd<'_>> = wakes.iter().filter_map(fd_of).collect();
    match (tickets.is_empty(), fds.is_empty()) {
        // Nothing can wake it.
        (true, true) => std::thread::sleep(limit.map_or(SLICE, |limit| limit.min(SLICE))),
        (false, true) => sleep_on_futexes(&tickets, limit),
        (true, false) => sleep_on_descriptors(&fds, limit),
        (false, false) => sleep_on_both(tickets, &fds, limit),
    }
}

fn ticket_of<'w, 'a>(wake: &'w Wake<'a>) -> Option<&'w Ticket<'a>> {
    if let Wake::EventCount(ticket) = wake { Some(ticket) } else { None }
}

fn fd_of<'a>(wake: &Wake<'a>) -> Option<BorrowedFd<'a>> {
    if let Wake::Fd(fd) = wake { Some(*fd) } else { None }
}

fn timespec(span: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: span.subsec_nanos().into(),
    }
}

fn sleep_on_futexes(tickets: &[&Ticket<'_>], limit: Option<Duration>) {
    // Sleeps one slice on the first event count; the caller polls the others after it.
    let on_first =
        || tickets[0].wakeup().sleep(tickets[0].number(), Some(limit.map_or(SLICE, |l| l.min(SLICE))));
    if NO_WAITV.load(Ordering::Relaxed) {
        return on_first();
    }
    let wait = |ticket: &&Ticket<'_>| {
        let mut wait = Wait::new();
        (wait.val, wait.flags) = (ticket.number().into(), WaitFlags::SIZE_U32);
        wait.uaddr = WaitPtr::new(ticket.wakeup().word().as_ptr().cast());
        wait
    };
    let limit =
        if tickets.len() <= FUTEXES_MAX { limit } else { Some(limit.map_or(SLICE, |l| l.min(SLICE))) };
    let list: Vec<Wait> = tickets.iter().take(FUTEXES_MAX).map(wait).collect();
    // futex_waitv(2) takes an absolute time.
    let until = limit.and_then(|limit| clock_gettime(ClockId::Monotonic).checked_add(timespec(limit)));
    match futex::waitv(&list, WaitvFlags::empty(), until.as_ref(), ClockId::Monotonic) {
        // A notification in between, a signal, the limit: poll again.
        Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::TIMEDOUT) => {}
        Err(why) => {
            NO_WAITV.fetch_or(why == rustix::io::Errno::NOSYS, Ordering::Relaxed);
            on_first();
        }
    }
}

fn sleep_on_descriptors(fds: &[BorrowedFd<'_>], limit: Option<Duration>) {
    let mut list: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    // Interrupted or timed out: poll again.
    let _ = poll(&mut list, limit.map(timespec).as_ref());
}

fn sleep_on_both(tickets: Vec<&Ticket<'_>>, fds: &[BorrowedFd<'_>], limit: Option<Duration>) {
    let wakeup = Arc::new(EventCount::new());
    let watched = WatchedFds::start(fds, &wakeup);
    let limit = if watched.is_ok() { limit } else { Some(limit.map_or(SLICE, |limit| limit.min(SLICE))) };
    let ticket = Ticket::draw(&wakeup);
    // A descriptor that became readable before the announcement does not wake this sleep.
    if watched.is_ok() && is_readable(fds) {
        return;
    }
    let all: Vec<&Ticket<'_>> = tickets.into_iter().chain([&ticket]).collect();
    sleep_on_futexes(&all, limit);
}

fn is_readable(fds: &[BorrowedFd<'_>]) -> bool {
    let mut list: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    poll(&mut list, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Descriptors of one sleep, watched by the thread until dropped. Each sleep has its own epoll instance, so that two
/// sleeps may wait for the same descriptor.
struct WatchedFds {
    watcher: Arc<FdWatcher>,
    number: u64,
    /// Closing it removes it from the thread's epoll instance.
    _epoll: OwnedFd,
}

impl WatchedFds {
    /// Watches descriptors: when one of them becomes readable, the thread notifies `wakeup`, once.
    fn start(fds: &[BorrowedFd<'_>], wakeup: &Arc<EventCount>) -> std::io::Result<Self> {
        let watcher = FdWatcher::get()?;
        let own = epoll::create(CreateFlags::CLOEXEC)?;
        for fd in fds {
            match epoll::add(&own, fd, EventData::new_u64(0), EventFlags::IN) {
                // The same descriptor twice.
                Err(rustix::io::Errno::EXIST) => {}
                other => other?,
            }
        }
        let number = watcher.register(wakeup);
        let watched = Self { watcher, number, _epoll: own };
        let flags = EventFlags::IN | EventFlags::ONESHOT;
        epoll::add(&watched.watcher.epoll, &watched._epoll, EventData::new_u64(number), flags)?;
        Ok(watched)
    }
}

impl Drop for WatchedFds {
    fn drop(&mut self) {
        unpoisoned(&self.watcher.sleepers).1.remove(&self.number);
    }
}

/// The thread of this process that sleeps on descriptors for sleepers that also wait on event counts.
struct FdWatcher {
    epoll: OwnedFd,
    /// The last number drawn, and the event count of each sleeper by number.
    sleepers: Mutex<(u64, BTreeMap<u64, Arc<EventCount>>)>,
    /// The process to which the thread belongs; a forked child does not have the thread.
    process: u32,
}

static FD_WATCHER: Mutex<Option<Arc<FdWatcher>>> = Mutex::new(None);

impl FdWatcher {
    fn get() -> std::io::Result<Arc<Self>> {
        let mut watcher = unpoisoned(&FD_WATCHER);
        let process = std::process::id();
        if let Some(there) = watcher.as_ref().filter(|watcher| watcher.process == process) {
            return Ok(there.clone());
        }
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let new = Arc::new(Self { epoll, sleepers: Mutex::default(), process });
        let body = new.clone();
        thread::start("descriptors", move || body.run())?;
        *watcher = Some(new.clone());
        Ok(new)
    }

    fn register(&self, wakeup: &Arc<EventCount>) -> u64 {
        let mut sleepers = unpoisoned(&self.sleepers);
        sleepers.0 += 1;
        let number = sleepers.0;
        sleepers.1.insert(number, wakeup.clone());
        number
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(16);
        loop {
            events.clear();
            // Only a signal can interrupt it.
            let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None);
            for event in &events {
                let wakeup = unpoisoned(&self.sleepers).1.get(&event.data.u64()).cloned();
                if let Some(wakeup) = wakeup {
                    wakeup.notify();
                }
            }
        }
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No holder of these locks can panic.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
