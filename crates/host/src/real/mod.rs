//! Real time: the TSC clock, and waiting that spins, then yields, then sleeps; and lines on standard error.

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
pub use cores::{allowed_cores, is_crowd, other_core, pin_to_core};
pub use folder::{find_user_folder, network_namespace, user_folder};
pub use ignored::is_ignored;
pub use remark::remark;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use crate::ops::{Chore, EAGER_LOOKS, Turn};
use crate::{ClockKind, Host, HostOps, Span, Task, Time, Wakes};

/// Turns of [`Host::poll`] before each further look is preceded by a yield: some tens of microseconds, so that
/// a ping-pong of large messages between pinned processes never makes a system call.
const POLL_TURNS_BEFORE_YIELD: u32 = 4096;
/// Turns of [`Host::poll`] between two looks at the clock, until it yields.
const POLL_TURNS_PER_CHECK: u32 = 1024;
/// The longest time that a wait yields before it sleeps: a few futex wake-ups (5 us each).
const YIELD_NS_MAX: u32 = 50_000;
/// The shortest: so that a wait which was wrong to sleep can find out.
const YIELD_NS_MIN: u32 = 1_000;
/// A yield that took longer gave the core to somebody who computes: from then on waits sleep at once for a while,
/// as the scheduler lets a sleeper that is woken run before one that yields.
const CROWDED_NS: u64 = 100_000;
/// How long they do.
const CROWDED_SPAN: Span = Span::from_ms(100);
/// How long those who have a core each look before they sleep. They do not yield: who else is there takes its turn by itself, and whom
/// one yields to keeps the core for milliseconds. Several times what waking an idle core takes, in a guest up to 50 us: of two that
/// sleep each would find the other's waking too long to wait for, and sleep again.
const LOOK_NS_ALONE: u64 = 200_000;
/// How long those who share cores yield before they sleep: who is waited for runs within that time, unless it computes.
const YIELD_NS_CROWD: u64 = 1_000_000;
/// From one look at a line that another core will write to the next: a look too early takes the line away from its writer
/// again. Measured here, two looks back to back double the time of a one-way message (96 to 190 ns). A look takes some of
/// that itself, one through uDAPL twice as much as one at a completion queue.
const LOOK_PERIOD_CYCLES: u64 = 110;

/// The machine itself.
pub fn host() -> Host {
    Host::new(Arc::new(Real {
        clock: Clock::get(),
        yield_ns: AtomicU32::new(YIELD_NS_MAX),
        crowded_until: AtomicU64::new(0),
        crowd: AtomicU8::new(UNKNOWN),
        has_chores: AtomicBool::new(false),
        chores: RwLock::new(Vec::new()),
    }))
}

/// What is known of those who wait: nothing, that each has a core, that they share cores.
const UNKNOWN: u8 = 0;
const ALONE: u8 = 1;
const CROWD: u8 = 2;

struct Real {
    clock: &'static Clock,
    /// How long a wait yields before it sleeps; halved by waits that had to sleep long, doubled by short ones.
    yield_ns: AtomicU32,
    /// Until when waits sleep at once, in picoseconds.
    crowded_until: AtomicU64,
    /// [`UNKNOWN`], [`ALONE`] or [`CROWD`].
    crowd: AtomicU8,
    has_chores: AtomicBool,
    chores: RwLock<Vec<Weak<dyn Chore>>>,
}

impl Real {
    /// Yields the core, and notes it if somebody who computes has got it.
    fn yield_watchfully(&self) {
        let before = self.now();
        std::thread::yield_now();
        let after = self.now();
        if after.since(before).as_ns() > CROWDED_NS {
            self.crowded_until.store((after + CROWDED_SPAN).as_ps(), Ordering::Relaxed);
        }
    }

    /// Does every chore once; takes about as long as a look should wait for the next.
    #[cold]
    fn do_chores(&self) {
        let chores = self.chores.read().unwrap_or_else(|e| e.into_inner());
        chores.iter().filter_map(Weak::upgrade).for_each(|chore| chore.turn());
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
    fn relax(&self, turn: &mut Turn) -> bool {
        let spins = match self.crowd.load(Ordering::Relaxed) {
            _ if turn.polls => POLL_TURNS_BEFORE_YIELD,
            CROWD => 0,
            ALONE => u32::MAX,
            _ => EAGER_LOOKS,
        };
        let has_chores = turn.polls && self.has_chores.load(Ordering::Relaxed);
        if has_chores {
            self.do_chores();
        }
        if turn.count < spins {
            if has_chores {
                return (turn.count + 1).is_multiple_of(POLL_TURNS_PER_CHECK);
            }
            turn.looked = clock::idle(turn.looked, LOOK_PERIOD_CYCLES);
        } else {
            // The other process may be waiting for this very core. Who knows of a crowd need not find out: looks at the clock were half
            // of what ranks that shared cores did while they waited.
            if self.crowd.load(Ordering::Relaxed) == CROWD {
                std::thread::yield_now();
            } else {
                self.yield_watchfully();
            }
            if turn.polls {
                // A yield may take milliseconds: so many of them would be seconds after the deadline.
                return true;
            }
        }
        (turn.count + 1).is_multiple_of(if turn.polls { POLL_TURNS_PER_CHECK } else { EAGER_LOOKS })
    }

    fn tired(&self, turn: &Turn) -> bool {
        let now = self.now();
        let waited_ns = now.since(turn.began).as_ns();
        match self.crowd.load(Ordering::Relaxed) {
            ALONE => waited_ns > LOOK_NS_ALONE,
            CROWD => waited_ns > YIELD_NS_CROWD,
            _ => {
                now.as_ps() < self.crowded_until.load(Ordering::Relaxed)
                    || waited_ns > u64::from(self.yield_ns.load(Ordering::Relaxed))
            }
        }
    }

    fn sleep(&self, wakes: &Wakes<'_>, turn: &Turn) {
        let limit = turn.deadline.map(|d| d.since(self.now()).to_std().max(Duration::from_nanos(1)));
        #[cfg(not(loom))]
        asleep::sleep(wakes, limit);
        #[cfg(loom)]
        wakes.sole_bell().into_iter().for_each(|ticket| ticket.bell().sleep(ticket.number(), limit));
    }

    fn learn(&self, slept: Span) {
        let now = self.yield_ns.load(Ordering::Relaxed);
        let long = slept.as_ns() >= 2 * u64::from(YIELD_NS_MAX);
        let next = if long { (now / 2).max(YIELD_NS_MIN) } else { continue_yielding(now) };
        if next != now {
            self.yield_ns.store(next, Ordering::Relaxed);
        }
    }

    fn expect_crowd(&self, is_crowd: bool) {
        self.crowd.store(if is_crowd { CROWD } else { ALONE }, Ordering::Relaxed);
    }

    fn add_chore(&self, chore: Weak<dyn Chore>) {
        let mut chores = self.chores.write().unwrap_or_else(|e| e.into_inner());
        chores.retain(|chore| chore.strong_count() > 0);
        chores.push(chore);
        self.has_chores.store(true, Ordering::Relaxed);
    }

    fn spawn(
        &self,
        name: &str,
        core: Option<usize>,
        body: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<Task> {
        let handle = thread::begin(name, move || {
            if let Some(core) = core {
                // A core that the process may not use leaves the thread where it is: slower, never wrong.
                let _ = pin_to_core(core);
            }
            body();
        })?;
        let process = std::process::id();
        Ok(Task::new(move || {
            if std::process::id() != process {
                // A forked child has the handle and not the thread.
                return std::mem::forget(handle);
            }
            // The panic hook has printed the message; the joiner only needs to know that it is over.
            let _ = handle.join();
        }))
    }
}

fn continue_yielding(now: u32) -> u32 {
    now.saturating_mul(2).min(YIELD_NS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bell, Descriptor, WaitSet};
    use std::sync::atomic::AtomicBool;

    #[test]
    fn wait_returns_none_after_its_deadline_and_not_before() {
        let host = host();
        let began = host.now();
        let got: Option<()> = host.wait("test", &Bell::new(), host.after(Span::from_ms(20)), || None);
        assert!(got.is_none());
        assert!(host.now() - began >= Span::from_ms(20));
    }

    #[test]
    fn a_ring_from_another_thread_ends_the_wait() {
        let host = host();
        let shared = Arc::new((Bell::new(), AtomicBool::new(false)));
        let other = shared.clone();
        let sleeper = host.clone();
        let task = host
            .spawn("sleeper", None, move || {
                let deadline = sleeper.after(Span::from_secs(20));
                let seen = sleeper
                    .wait("test", &other.0, deadline, || other.1.load(Ordering::Acquire).then_some(()));
                assert!(seen.is_some(), "the ring was lost");
            })
            .expect("a thread");
        std::thread::sleep(Duration::from_millis(50));
        shared.1.store(true, Ordering::Release);
        shared.0.ring();
        task.join();
    }

    /// Goal: whatever is expected, waits end when their deadline passes and when somebody rings, and not before.
    #[test]
    fn a_crowd_that_is_expected_waits_as_others() {
        for is_crowd in [false, true, false] {
            let (host, shared) = (host(), Arc::new((Bell::new(), AtomicBool::new(false))));
            host.expect_crowd(is_crowd);
            let (began, until) = (host.now(), host.after(Span::from_ms(5)));
            assert_eq!(host.wait("test", &Bell::new(), until, || None::<()>), None);
            assert!(host.now() - began >= Span::from_ms(5));
            let (sleeper, other) = (host.clone(), shared.clone());
            let task = host
                .spawn("sleeper", None, move || {
                    let look = || other.1.load(Ordering::Acquire).then_some(());
                    assert!(
                        sleeper.wait("test", &other.0, sleeper.after(Span::from_secs(20)), look).is_some()
                    );
                })
                .expect("a thread");
            std::thread::sleep(Duration::from_millis(5));
            shared.1.store(true, Ordering::Release);
            shared.0.ring();
            task.join();
        }
    }

    /// Goal: whatever of a set has something ends the wait. Method: a sleeper on two bells, on two descriptors and on one of
    /// each; one of them wakes after it is asleep.
    #[test]
    fn a_set_wakes_by_any_of_its_sources() {
        let pipe = || rustix::pipe::pipe().expect("a pipe");
        for (bells, pipes, which) in
            [(2, 0, 0), (2, 0, 1), (0, 2, 1), (1, 1, 0), (1, 1, 1), (3, 2, 4), (200, 0, 199)]
        {
            let host = host();
            let bells: Vec<_> = (0..bells).map(|_| Arc::new(Bell::new())).collect();
            let (readers, writers): (Vec<_>, Vec<_>) = (0..pipes).map(|_| pipe()).unzip();
            let mut set = WaitSet::new();
            bells.iter().for_each(|bell| set.add(bell.clone()));
            readers.into_iter().for_each(|reader| set.add(Descriptor(reader)));
            let done = Arc::new(AtomicBool::new(false));
            let (other, sleeper) = (done.clone(), host.clone());
            let task = host
                .spawn("sleeper", None, move || {
                    let look = || other.load(Ordering::Acquire).then_some(());
                    assert!(sleeper.wait("test", &set, sleeper.after(Span::from_secs(20)), look).is_some());
                })
                .expect("a thread");
            std::thread::sleep(Duration::from_millis(5));
            done.store(true, Ordering::Release);
            match bells.get(which) {
                Some(bell) => bell.ring(),
                None => drop(rustix::io::write(&writers[which - bells.len()], &[1]).expect("room")),
            }
            task.join();
        }
    }

    /// Goal: a wait does not sleep while something moves for it, and does afterwards. Method: a source that stirs at each look for
    /// several times what a wait looks before it sleeps, and counts the sleeps that it is asked to prepare for; then one that does not stir.
    #[test]
    fn what_stirs_is_not_slept_on() {
        struct Stirring {
            bell: Bell,
            looks: std::cell::Cell<u64>,
            sleeps: std::cell::Cell<u32>,
            last: u64,
        }
        impl crate::Source for Stirring {
            fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
                self.sleeps.set(self.sleeps.get() + 1);
                self.bell.prepare_wait(wakes);
            }
            fn stirs(&self) -> u64 {
                self.looks.get().min(self.last)
            }
        }
        for last in [u64::MAX, 0] {
            let host = host();
            host.expect_crowd(false);
            let (bell, looks, sleeps) = (Bell::new(), Default::default(), Default::default());
            let source = Stirring { bell, looks, sleeps, last };
            let (began, long) = (host.now(), Span::from_ns(5 * LOOK_NS_ALONE));
            let look = || {
                source.looks.set(source.looks.get() + 1);
                let is_over = if last == 0 { source.sleeps.get() > 0 } else { host.now() - began >= long };
                is_over.then_some(())
            };
            assert!(host.wait("test", &source, host.after(Span::from_secs(20)), look).is_some());
            assert_eq!(source.sleeps.get(), u32::from(last == 0), "it slept");
        }
    }

    /// Goal: a set of nothing, and one where nothing comes, end at their deadline.
    #[test]
    fn a_silent_set_ends_at_its_deadline() {
        let host = host();
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        let mut set = WaitSet::new();
        for _ in 0..3 {
            let (began, until) = (host.now(), host.after(Span::from_ms(5)));
            assert_eq!(host.wait("test", &set, until, || None::<()>), None);
            assert!(host.now() - began >= Span::from_ms(5));
            set.add(Arc::new(Bell::new()));
            set.add(Descriptor(reader.try_clone().expect("a descriptor")));
        }
    }

    /// Goal: what only a chore brings is found. Method: the third turn of one brings it.
    #[test]
    fn chores_are_done_between_looks_while_somebody_keeps_them() {
        struct Bringer(AtomicU32);
        impl Chore for Bringer {
            fn turn(&self) {
                self.0.fetch_add(1, Ordering::AcqRel);
            }
        }
        let (host, bringer) = (host(), Arc::new(Bringer(AtomicU32::new(0))));
        host.add_chore(Arc::downgrade(&(bringer.clone() as Arc<dyn Chore>)));
        let look = || (bringer.0.load(Ordering::Acquire) >= 3).then_some(());
        assert_eq!(host.poll("test", host.after(Span::from_secs(20)), look), Some(()));
        drop(bringer);
        assert_eq!(host.poll("test", host.after(Span::from_ms(5)), || None::<()>), None);
    }

    /// Goal: however long yields take, a poll is not much later than its deadline. Method: how often it looks after that.
    #[test]
    fn a_poll_that_yields_looks_at_the_clock_each_time() {
        let (host, looks) = (host(), std::cell::Cell::new(0_u32));
        let deadline = host.after(Span::from_ms(20)).expect("a deadline");
        let look = || {
            if host.now() > deadline {
                looks.set(looks.get() + 1);
            }
            None::<()>
        };
        assert_eq!(host.poll("test", Some(deadline), look), None);
        assert!(looks.get() <= 2, "{} looks after the deadline", looks.get());
    }

    #[test]
    fn poll_gives_up_at_its_deadline() {
        let host = host();
        assert_eq!(host.poll("test", host.after(Span::from_ms(5)), || None::<()>), None);
    }
}
