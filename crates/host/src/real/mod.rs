//! Real time: the TSC clock; waiting that spins, then yields, then sleeps; and messages on standard error.

mod addresses;
#[cfg(not(loom))]
mod asleep;
mod clock;
mod cores;
mod folder;
mod ignored;
mod remark;
mod thread;

pub use addresses::addresses;
pub use clock::{Clock, CycleStamp};
pub use cores::{allowed_cores, is_oversubscribed, online_cores, other_core, pin_to_core};
pub use folder::{find_user_folder, network_namespace, user_folder};
pub use ignored::is_ignored;
pub use remark::{remark, remark_lines, remark_to};

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use crate::ops::{EAGER_POLLS, ProgressHook, WaitLoop};
use crate::{ClockKind, Host, HostOps, Span, Task, Time, Wakes};

/// Polls of [`Host::poll`] before each further poll is preceded by a yield: some tens of microseconds, so that a
/// ping-pong of large messages between pinned processes never makes a system call.
const POLLS_BEFORE_YIELD: u32 = 4096;
/// Polls of [`Host::poll`] between two readings of the clock, until it yields.
const POLLS_PER_CHECK: u32 = 1024;
/// The longest time that a wait yields before it sleeps: the time of a few futex wake-ups (5 us each).
const YIELD_NS_MAX: u32 = 50_000;
/// The shortest, so that a wait which slept although it should not have can find this out.
const YIELD_NS_MIN: u32 = 1_000;
/// A yield that took longer gave the core to a computing thread. For [`BUSY_SPAN`] waits then sleep immediately, as
/// the scheduler runs a woken sleeper before a thread that yields.
const BUSY_YIELD_NS: u64 = 100_000;
/// How long waits sleep immediately after such a yield.
const BUSY_SPAN: Span = Span::from_ms(100);
/// How long a wait polls before it may sleep if each waiter has its own core. This is several times the wake-up time of
/// an idle core, up to 50 us in a virtual machine: otherwise each of two sleepers would find the other's wake-up too
/// long to wait for, and sleep again.
const POLL_NS_DEDICATED: u64 = 200_000;
/// Polls of such a wait before it reads the clock at each further one. It yields no earlier than after [`POLL_NS_DEDICATED`]:
/// other threads get their turn anyway, and a thread that gets the core by a yield keeps it for milliseconds.
const POLLS_BEFORE_CLOCK: u32 = 1024;
/// How long such a wait yields before it sleeps, unless a computing thread got the core by a yield. An answer from
/// another host takes up to milliseconds; after this time a wake-up is only a hundredth of it.
const YIELD_NS_DEDICATED: u64 = 5_000_000;
/// How long waiters that share cores yield before they sleep: the awaited thread runs within that time, unless it
/// computes.
const YIELD_NS_OVERSUBSCRIBED: u64 = 1_000_000;
/// Cycles from one poll of a cache line that another core will write to the next: a poll too early takes the line away
/// from its writer again. Measured: polling without a pause doubles the time of a one-way message (96 to 190 ns). A
/// poll takes part of that time itself; a poll through uDAPL takes twice as much as one of a completion queue.
const POLL_PERIOD_CYCLES: u64 = 110;

/// The real machine.
pub fn host() -> Host {
    Host::new(Arc::new(Real {
        clock: Clock::get(),
        yield_ns: AtomicU32::new(YIELD_NS_MAX),
        busy_until: AtomicU64::new(0),
        oversubscribed: AtomicU8::new(UNKNOWN),
        has_hooks: AtomicBool::new(false),
        hooks: RwLock::new(Vec::new()),
    }))
}

/// What is known about the waiters: nothing, each has its own core, or they share cores.
const UNKNOWN: u8 = 0;
const DEDICATED: u8 = 1;
const OVERSUBSCRIBED: u8 = 2;

struct Real {
    clock: &'static Clock,
    /// How long a wait yields before it sleeps; halved by waits that had to sleep long, doubled by short ones.
    yield_ns: AtomicU32,
    /// The time, in picoseconds, until which waits sleep immediately.
    busy_until: AtomicU64,
    /// [`UNKNOWN`], [`DEDICATED`] or [`OVERSUBSCRIBED`].
    oversubscribed: AtomicU8,
    has_hooks: AtomicBool,
    hooks: RwLock<Vec<Weak<dyn ProgressHook>>>,
}

impl Real {
    /// Yields the core, and records it if a computing thread got it.
    fn yield_and_measure(&self) {
        let before = self.now();
        std::thread::yield_now();
        let after = self.now();
        if after.since(before).as_ns() > BUSY_YIELD_NS {
            self.busy_until.store((after + BUSY_SPAN).as_ps(), Ordering::Relaxed);
        }
    }

    fn waited_ns(&self, wait: &WaitLoop) -> u64 {
        self.now().since(wait.began).as_ns()
    }

    /// Runs every hook once; takes about as long as the pause between two polls.
    #[cold]
    fn run_hooks(&self) {
        let hooks = self.hooks.read().unwrap_or_else(|e| e.into_inner());
        hooks.iter().filter_map(Weak::upgrade).for_each(|hook| hook.progress());
    }
}

impl HostOps for Real {
    #[inline]
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn clock(&self) -> ClockKind {
        self.clock.kind()
    }

    #[inline]
    fn charge(&self, _span: Span) {}

    #[inline]
    fn charge_copy(&self, _len: u64) {}

    #[inline]
    fn pause(&self, wait: &mut WaitLoop) -> bool {
        let spins = match self.oversubscribed.load(Ordering::Relaxed) {
            _ if wait.polls => POLLS_BEFORE_YIELD,
            OVERSUBSCRIBED => 0,
            DEDICATED if wait.count < POLLS_BEFORE_CLOCK || self.waited_ns(wait) <= POLL_NS_DEDICATED => {
                u32::MAX
            }
            DEDICATED => 0,
            _ => EAGER_POLLS,
        };
        let has_hooks = wait.polls && self.has_hooks.load(Ordering::Relaxed);
        if has_hooks {
            self.run_hooks();
        }
        if wait.count < spins {
            if has_hooks {
                return (wait.count + 1).is_multiple_of(POLLS_PER_CHECK);
            }
            wait.last_poll = clock::spin_until(wait.last_poll, POLL_PERIOD_CYCLES);
        } else {
            // The other process may be waiting for this core. On cores known to be oversubscribed there is nothing to
            // find out: reading the clock took half of the time of ranks that waited on shared cores.
            if self.oversubscribed.load(Ordering::Relaxed) == OVERSUBSCRIBED {
                std::thread::yield_now();
            } else {
                self.yield_and_measure();
            }
            if wait.polls {
                // A yield may take milliseconds: without this check the wait could end seconds after its deadline.
                return true;
            }
        }
        (wait.count + 1).is_multiple_of(if wait.polls { POLLS_PER_CHECK } else { EAGER_POLLS })
    }

    fn polls_before_yield(&self) -> u32 {
        if self.oversubscribed.load(Ordering::Relaxed) == OVERSUBSCRIBED { 0 } else { EAGER_POLLS }
    }

    fn should_sleep(&self, wait: &WaitLoop) -> bool {
        let is_busy = || self.now().as_ps() < self.busy_until.load(Ordering::Relaxed);
        let waited_ns = self.waited_ns(wait);
        match self.oversubscribed.load(Ordering::Relaxed) {
            DEDICATED => waited_ns > YIELD_NS_DEDICATED || (waited_ns > POLL_NS_DEDICATED && is_busy()),
            OVERSUBSCRIBED => waited_ns > YIELD_NS_OVERSUBSCRIBED,
            _ => is_busy() || waited_ns > u64::from(self.yield_ns.load(Ordering::Relaxed)),
        }
    }

    fn sleep(&self, wakes: &Wakes<'_>, wait: &WaitLoop) {
        let limit = wait.deadline.map(|d| d.since(self.now()).to_std().max(Duration::from_nanos(1)));
        #[cfg(not(loom))]
        asleep::sleep(wakes, limit);
        #[cfg(loom)]
        wakes.sole_ticket().into_iter().for_each(|ticket| ticket.wakeup().sleep(ticket.number(), limit));
    }

    fn record_sleep(&self, slept: Span) {
        let now = self.yield_ns.load(Ordering::Relaxed);
        let long = slept.as_ns() >= 2 * u64::from(YIELD_NS_MAX);
        let next = if long { (now / 2).max(YIELD_NS_MIN) } else { longer_yield(now) };
        if next != now {
            self.yield_ns.store(next, Ordering::Relaxed);
        }
    }

    fn set_oversubscribed(&self, is_oversubscribed: bool) {
        self.oversubscribed
            .store(if is_oversubscribed { OVERSUBSCRIBED } else { DEDICATED }, Ordering::Relaxed);
    }

    fn add_progress_hook(&self, hook: Weak<dyn ProgressHook>) {
        let mut hooks = self.hooks.write().unwrap_or_else(|e| e.into_inner());
        hooks.retain(|hook| hook.strong_count() > 0);
        hooks.push(hook);
        self.has_hooks.store(true, Ordering::Relaxed);
    }

    fn spawn(
        &self,
        name: &str,
        core: Option<usize>,
        body: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<Task> {
        let handle = thread::start(name, move || {
            if let Some(core) = core {
                // If the process may not use the core, the thread is not pinned: slower, never wrong.
                let _ = pin_to_core(core);
            }
            body();
        })?;
        let process = std::process::id();
        Ok(Task::new(move || {
            if std::process::id() != process {
                // A forked child has the handle but not the thread.
                return std::mem::forget(handle);
            }
            // The panic hook has printed the message; the joiner only needs to know that the thread has ended.
            let _ = handle.join();
        }))
    }
}

fn longer_yield(now: u32) -> u32 {
    now.saturating_mul(2).min(YIELD_NS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Descriptor, EventCount, WaitSet};
    use std::sync::atomic::AtomicBool;

    #[test]
    fn wait_returns_none_after_its_deadline_and_not_before() {
        let host = host();
        let began = host.now();
        let got: Option<()> = host.wait("test", &EventCount::new(), host.after(Span::from_ms(20)), || None);
        assert!(got.is_none());
        assert!(host.now() - began >= Span::from_ms(20));
    }

    #[test]
    fn wait_ends_when_another_thread_notifies() {
        let host = host();
        let shared = Arc::new((EventCount::new(), AtomicBool::new(false)));
        let other = shared.clone();
        let sleeper = host.clone();
        let task = host
            .spawn("sleeper", None, move || {
                let deadline = sleeper.after(Span::from_secs(20));
                let seen = sleeper
                    .wait("test", &other.0, deadline, || other.1.load(Ordering::Acquire).then_some(()));
                assert!(seen.is_some(), "the notification was lost");
            })
            .expect("a thread");
        std::thread::sleep(Duration::from_millis(50));
        shared.1.store(true, Ordering::Release);
        shared.0.notify();
        task.join();
    }

    /// Goal: waits end when their deadline passes and when they are notified, and not before, whatever
    /// `set_oversubscribed` was called with.
    #[test]
    fn set_oversubscribed_changes_no_wait_result() {
        for is_oversubscribed in [false, true, false] {
            let (host, shared) = (host(), Arc::new((EventCount::new(), AtomicBool::new(false))));
            host.set_oversubscribed(is_oversubscribed);
            let (began, until) = (host.now(), host.after(Span::from_ms(5)));
            assert_eq!(host.wait("test", &EventCount::new(), until, || None::<()>), None);
            assert!(host.now() - began >= Span::from_ms(5));
            let (sleeper, other) = (host.clone(), shared.clone());
            let task = host
                .spawn("sleeper", None, move || {
                    let attempt = || other.1.load(Ordering::Acquire).then_some(());
                    assert!(
                        sleeper.wait("test", &other.0, sleeper.after(Span::from_secs(20)), attempt).is_some()
                    );
                })
                .expect("a thread");
            std::thread::sleep(Duration::from_millis(5));
            shared.1.store(true, Ordering::Release);
            shared.0.notify();
            task.join();
        }
    }

    /// Goal: an event of any source of a set ends the wait. Method: a sleeper on event counts, on descriptors, and on
    /// both; one source notifies after the sleeper is asleep.
    #[test]
    fn wait_set_wakes_by_any_source() {
        let pipe = || rustix::pipe::pipe().expect("a pipe");
        for (wakeups, pipes, which) in
            [(2, 0, 0), (2, 0, 1), (0, 2, 1), (1, 1, 0), (1, 1, 1), (3, 2, 4), (200, 0, 199)]
        {
            let host = host();
            let wakeups: Vec<_> = (0..wakeups).map(|_| Arc::new(EventCount::new())).collect();
            let (readers, writers): (Vec<_>, Vec<_>) = (0..pipes).map(|_| pipe()).unzip();
            let mut set = WaitSet::new();
            wakeups.iter().for_each(|wakeup| set.add(wakeup.clone()));
            readers.into_iter().for_each(|reader| set.add(Descriptor(reader)));
            let done = Arc::new(AtomicBool::new(false));
            let (other, sleeper) = (done.clone(), host.clone());
            let task = host
                .spawn("sleeper", None, move || {
                    let attempt = || other.load(Ordering::Acquire).then_some(());
                    assert!(
                        sleeper.wait("test", &set, sleeper.after(Span::from_secs(20)), attempt).is_some()
                    );
                })
                .expect("a thread");
            std::thread::sleep(Duration::from_millis(5));
            done.store(true, Ordering::Release);
            match wakeups.get(which) {
                Some(wakeup) => wakeup.notify(),
                None => drop(rustix::io::write(&writers[which - wakeups.len()], &[1]).expect("room")),
            }
            task.join();
        }
    }

    /// Goal: a wait does not sleep while its source is active, and sleeps afterwards. Method: a source that reports
    /// activity at each poll for several times the polling period, and counts how often it is asked to prepare for a
    /// sleep; then one without activity.
    #[test]
    fn active_source_is_not_slept_on() {
        struct Stirring {
            wakeup: EventCount,
            polls: std::cell::Cell<u64>,
            sleeps: std::cell::Cell<u32>,
            last: u64,
        }
        impl crate::Source for Stirring {
            fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
                self.sleeps.set(self.sleeps.get() + 1);
                self.wakeup.prepare_wait(wakes);
            }
            fn progress_count(&self) -> u64 {
                self.polls.get().min(self.last)
            }
        }
        for last in [u64::MAX, 0] {
            let host = host();
            host.set_oversubscribed(false);
            let (wakeup, polls, sleeps) = (EventCount::new(), Default::default(), Default::default());
            let source = Stirring { wakeup, polls, sleeps, last };
            let (began, long) = (host.now(), Span::from_ns(5 * YIELD_NS_DEDICATED));
            let attempt = || {
                source.polls.set(source.polls.get() + 1);
                let has_ended = if last == 0 { source.sleeps.get() > 0 } else { host.now() - began >= long };
                has_ended.then_some(())
            };
            assert!(host.wait("test", &source, host.after(Span::from_secs(20)), attempt).is_some());
            assert_eq!(source.sleeps.get(), u32::from(last == 0), "it slept");
        }
    }

    /// Goal: a wait that goes on reports to its sources that it polls, until it ends; on shared cores from its first yield on, as
    /// it may lose its core then. Method: a set of sources that count the reports, in waits that end by their value or their
    /// deadline.
    #[test]
    fn wait_reports_that_it_polls_until_it_ends() {
        #[derive(Default)]
        struct Reports {
            wakeup: EventCount,
            begun: AtomicU32,
            ended: AtomicU32,
        }
        impl crate::Source for Reports {
            fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
                assert!(self.begun.load(Ordering::Relaxed) > self.ended.load(Ordering::Relaxed), "it polls");
                self.wakeup.prepare_wait(wakes);
            }
            fn begin_polling(&self) {
                self.begun.fetch_add(1, Ordering::Relaxed);
            }
            fn end_polling(&self) {
                self.ended.fetch_add(1, Ordering::Relaxed);
            }
        }
        let first_polls = EAGER_POLLS + 1;
        for (is_oversubscribed, polls, reports) in [
            (false, 1, 0),
            (false, first_polls, 0),
            (false, first_polls + 1, 1),
            (false, u32::MAX, 1),
            (true, 1, 0),
            (true, 2, 1),
            (true, u32::MAX, 1),
        ] {
            let (host, source, mut left) = (host(), Arc::new(Reports::default()), polls);
            host.set_oversubscribed(is_oversubscribed);
            let mut set = WaitSet::new();
            set.add((source.clone(), EventCount::new()));
            let attempt = || {
                assert_eq!(source.ended.load(Ordering::Relaxed), 0, "it still polls");
                left -= 1;
                (left == 0).then_some(())
            };
            let found = host.wait("test", &set, host.after(Span::from_ms(5)), attempt);
            assert_eq!(found.is_some(), polls < u32::MAX);
            let counts = [&source.begun, &source.ended].map(|count| count.load(Ordering::Relaxed));
            assert_eq!(counts, [reports; 2], "{polls} polls, oversubscribed {is_oversubscribed}");
        }
    }

    /// Goal: waits on an empty set and on a set without events end at their deadline.
    #[test]
    fn wait_on_idle_set_ends_at_its_deadline() {
        let host = host();
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        let mut set = WaitSet::new();
        for _ in 0..3 {
            let (began, until) = (host.now(), host.after(Span::from_ms(5)));
            assert_eq!(host.wait("test", &set, until, || None::<()>), None);
            assert!(host.now() - began >= Span::from_ms(5));
            set.add(Arc::new(EventCount::new()));
            set.add(Descriptor(reader.try_clone().expect("a descriptor")));
        }
    }

    /// Goal: a poll finds what only a hook delivers. Method: the third call of a hook delivers it.
    #[test]
    fn hooks_run_between_polls_while_alive() {
        struct CountingHook(AtomicU32);
        impl ProgressHook for CountingHook {
            fn progress(&self) {
                self.0.fetch_add(1, Ordering::AcqRel);
            }
        }
        let (host, hook) = (host(), Arc::new(CountingHook(AtomicU32::new(0))));
        host.add_progress_hook(Arc::downgrade(&(hook.clone() as Arc<dyn ProgressHook>)));
        let attempt = || (hook.0.load(Ordering::Acquire) >= 3).then_some(());
        assert_eq!(host.poll("test", host.after(Span::from_secs(20)), attempt), Some(()));
        drop(hook);
        assert_eq!(host.poll("test", host.after(Span::from_ms(5)), || None::<()>), None);
    }

    /// Goal: a poll ends soon after its deadline, however long yields take. Method: the number of polls after the
    /// deadline.
    #[test]
    fn yielding_poll_reads_the_clock_each_time() {
        let (host, polls) = (host(), std::cell::Cell::new(0_u32));
        let deadline = host.after(Span::from_ms(20)).expect("a deadline");
        let attempt = || {
            if host.now() > deadline {
                polls.set(polls.get() + 1);
            }
            None::<()>
        };
        assert_eq!(host.poll("test", Some(deadline), attempt), None);
        assert!(polls.get() <= 2, "{} polls after the deadline", polls.get());
    }

    #[test]
    fn poll_gives_up_at_its_deadline() {
        let host = host();
        assert_eq!(host.poll("test", host.after(Span::from_ms(5)), || None::<()>), None);
    }
}
