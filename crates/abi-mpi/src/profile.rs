//! What calls take and what leaves in them, noted if the launcher wants a profile, and told to it when the process leaves.
//!
//! A call that is not noted, and behind which no tool wants to hear of events, costs a look at one flag. `MPI_Pcontrol` switches notes.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use host::{Span, Time};
use mpi::{Process, Traffic};
use pmi::profile::{Called, Profile};

include!(concat!(env!("OUT_DIR"), "/names.rs"));

/// What is done behind calls now, as bits.
static IS_ON: AtomicU8 = AtomicU8::new(0);
/// They are noted.
const NOTES: u8 = 1;
/// Tools hear of events.
const EVENTS: u8 = 2;
/// A function of the program has thrown an exception. From then on, every call checks whether its thread keeps one.
const THROWN: u8 = 4;
/// Of each function, in the order of [`NAMES`].
static CALLS: [Count; NAMES.len()] = [const { Count::new() }; NAMES.len()];
/// Bytes that had left when the last call ended that was noted.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// The process that is watched, if one is.
static PROCESS: OnceLock<Process> = OnceLock::new();
static WATCH: Mutex<Watch> = Mutex::new(Watch { since: None, watched: Span::ZERO, sent: Vec::new() });

/// What the calls of one function took.
struct Count {
    calls: AtomicU64,
    ps: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    const fn new() -> Self {
        Self { calls: AtomicU64::new(0), ps: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    fn all(&self) -> [&AtomicU64; 3] {
        [&self.calls, &self.ps, &self.bytes]
    }
}

/// What is known of the time while it was on.
struct Watch {
    /// While it is on: since when, and what had left by then.
    since: Option<(Time, Vec<Traffic>)>,
    /// How long it was on before, and what left meanwhile.
    watched: Span,
    sent: Vec<Traffic>,
}

/// When a call began behind which there is something to do.
#[inline(always)]
pub(crate) fn begin() -> Option<Time> {
    if IS_ON.load(Ordering::Relaxed) == 0 { None } else { Some(now()) }
}

#[cold]
fn now() -> Time {
    PROCESS.get().map_or(Time::ZERO, |process| process.host().now())
}

/// Has tools hear of events, or not any more; whether that is new.
pub(crate) fn tell_events(on: bool) -> bool {
    let before = if on {
        IS_ON.fetch_or(EVENTS, Ordering::Relaxed)
    } else {
        IS_ON.fetch_and(!EVENTS, Ordering::Relaxed)
    };
    (before & EVENTS != 0) != on
}

/// Whether tools hear of events.
pub(crate) fn tells_events() -> bool {
    IS_ON.load(Ordering::Relaxed) & EVENTS != 0
}

/// Notes that a function of the program has thrown.
pub(crate) fn note_thrown() {
    IS_ON.fetch_or(THROWN, Ordering::Relaxed);
}

/// Whether a function of the program has ever thrown. A thread always sees its own notes.
#[inline(always)]
pub(crate) fn has_thrown() -> bool {
    IS_ON.load(Ordering::Relaxed) & THROWN != 0
}

/// A call has ended, that of the function at this place of [`NAMES`].
#[cold]
pub(crate) fn end(at: usize, began: Time) {
    let Some(process) = PROCESS.get().filter(|_| IS_ON.load(Ordering::Relaxed) & NOTES != 0) else { return };
    let time = process.host().now().since(began);
    let left = process.traffic().all().bytes;
    // Of calls that other threads make meanwhile, the first that ends has all bytes.
    let bytes = left.saturating_sub(LEFT.fetch_max(left, Ordering::Relaxed));
    for (count, more) in CALLS[at].all().into_iter().zip([1, time.as_ps(), bytes]) {
        count.fetch_add(more, Ordering::Relaxed);
    }
}

/// Watches a process from now on.
pub(crate) fn watch(process: &Process) {
    if PROCESS.set(process.clone()).is_ok() {
        ffi::lock(&WATCH).switch_on(process);
    }
}

/// `MPI_Pcontrol`: 0 ceases to note, 1 goes on, 2 forgets what was noted; others mean nothing.
pub(crate) fn control(level: i32) {
    let Some(process) = PROCESS.get() else { return };
    let mut watch = ffi::lock(&WATCH);
    match level {
        0 => watch.switch_off(process),
        1 => watch.switch_on(process),
        2 => watch.forget(process),
        _ => {}
    }
}

/// What was noted, to its end; nothing if nobody wants it.
pub(crate) fn finish() -> Option<Profile> {
    let process = PROCESS.get()?;
    let mut watch = ffi::lock(&WATCH);
    watch.switch_off(process);
    let called = |count: &Count| {
        let [calls, ps, bytes] = count.all().map(|count| count.load(Ordering::Relaxed));
        Called { calls, time: Span::from_ps(ps), bytes }
    };
    let calls = NAMES.iter().zip(CALLS.iter().map(called)).filter(|(_, called)| called.calls > 0);
    let calls = calls.map(|(name, called)| ((*name).to_owned(), called)).collect();
    Some(Profile { watched: watch.watched, calls, sent: std::mem::take(&mut watch.sent) })
}

/// What has left for each process of the job, and last for those of other jobs.
fn sent(process: &Process) -> Vec<Traffic> {
    let mut sent = process.world().traffic();
    let mut known = Traffic::default();
    sent.iter().for_each(|to| known.add(to));
    sent.push(process.traffic().since(&known));
    sent
}

impl Watch {
    fn switch_on(&mut self, process: &Process) {
        if self.since.is_none() {
            self.since = Some((process.host().now(), sent(process)));
            LEFT.store(process.traffic().all().bytes, Ordering::Relaxed);
            IS_ON.fetch_or(NOTES, Ordering::Relaxed);
        }
    }

    fn switch_off(&mut self, process: &Process) {
        IS_ON.fetch_and(!NOTES, Ordering::Relaxed);
        let Some((since, before)) = self.since.take() else { return };
        self.watched += process.host().now().since(since);
        self.sent.resize(before.len(), Traffic::default());
        for ((all, now), before) in self.sent.iter_mut().zip(sent(process)).zip(before) {
            all.add(&now.since(&before));
        }
    }

    fn forget(&mut self, process: &Process) {
        let was_on = self.since.is_some();
        self.switch_off(process);
        CALLS.iter().flat_map(Count::all).for_each(|count| count.store(0, Ordering::Relaxed));
        (self.watched, self.sent) = (Span::ZERO, Vec::new());
        if was_on {
            self.switch_on(process);
        }
    }
}
