//! The profile of calls: their time and traffic, recorded if the launcher asks for it and sent to the launcher when the process
//! leaves.
//!
//! If neither profiling nor events are enabled, a call costs one check of a flag. `MPI_Pcontrol` switches profiling on and off.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use host::{Span, Time};
use mpi::{Process, Traffic};
use pmi::profile::{CallStats, Profile};

include!(concat!(env!("OUT_DIR"), "/names.rs"));

/// What the end of a call has to do, as bits.
static FLAGS: AtomicU8 = AtomicU8::new(0);
/// Calls are profiled.
const PROFILE: u8 = 1;
/// Tools receive events.
const EVENTS: u8 = 2;
/// A function of the program has thrown an exception. From then on, every call checks whether its thread keeps one.
const EXCEPTIONS: u8 = 4;
/// Calls are logged.
const LOG: u8 = 8;
/// Calls are recorded in a trace.
const TRACE: u8 = 16;
/// Counters of each function, in the order of [`NAMES`].
static CALLS: [Count; NAMES.len()] = [const { Count::new() }; NAMES.len()];
/// Bytes that were sent up to the end of the last profiled call.
static SENT_BYTES: AtomicU64 = AtomicU64::new(0);
/// The profiled process, if any.
static PROCESS: OnceLock<Process> = OnceLock::new();
static RECORDING: Mutex<Recording> =
    Mutex::new(Recording { since: None, watched: Span::ZERO, sent: Vec::new() });

/// Counters of one function's calls.
struct Count {
    calls: AtomicU64,
    ps: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    const fn new() -> Self {
        Self { calls: AtomicU64::new(0), ps: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// The counters of calls, picoseconds and bytes.
    fn all(&self) -> [&AtomicU64; 3] {
        [&self.calls, &self.ps, &self.bytes]
    }
}

/// The time and traffic of the profiled periods.
struct Recording {
    /// While profiling is on: its start, and the traffic until then.
    since: Option<(Time, Vec<Traffic>)>,
    /// The length of earlier periods, and their traffic.
    watched: Span,
    sent: Vec<Traffic>,
}

/// The start time of a call; `None` if its end has nothing to do.
#[inline(always)]
pub(crate) fn begin_call() -> Option<Time> {
    if FLAGS.load(Ordering::Relaxed) == 0 { None } else { Some(now()) }
}

/// The time of the process's host.
#[cold]
pub(crate) fn now() -> Time {
    crate::clock::host().now()
}

/// Makes tools receive events, or stops that; returns whether this changed anything.
pub(crate) fn set_events_enabled(on: bool) -> bool {
    let before = if on {
        FLAGS.fetch_or(EVENTS, Ordering::Relaxed)
    } else {
        FLAGS.fetch_and(!EVENTS, Ordering::Relaxed)
    };
    (before & EVENTS != 0) != on
}

/// Whether tools receive events.
pub(crate) fn events_enabled() -> bool {
    FLAGS.load(Ordering::Relaxed) & EVENTS != 0
}

/// Records that a function of the program has thrown.
pub(crate) fn record_exception() {
    FLAGS.fetch_or(EXCEPTIONS, Ordering::Relaxed);
}

/// Whether a function of the program has ever thrown. A thread always sees its own records.
#[inline(always)]
pub(crate) fn had_exception() -> bool {
    FLAGS.load(Ordering::Relaxed) & EXCEPTIONS != 0
}

/// Records the end of a call; `function` is its index in [`NAMES`].
#[cold]
pub(crate) fn end_call(function: usize, began: Time) {
    let Some(process) = PROCESS.get().filter(|_| FLAGS.load(Ordering::Relaxed) & PROFILE != 0) else {
        return;
    };
    let time = process.host().now().since(began);
    let left = process.traffic().all().bytes;
    // If calls of several threads overlap, the first one to end is charged with all bytes.
    let bytes = left.saturating_sub(SENT_BYTES.fetch_max(left, Ordering::Relaxed));
    for (count, more) in CALLS[function].all().into_iter().zip([1, time.as_ps(), bytes]) {
        count.fetch_add(more, Ordering::Relaxed);
    }
}

/// Logs each call from now on, if the program's environment asks for it.
pub(crate) fn log_calls() {
    if ffi::log::reports_calls() {
        FLAGS.fetch_or(LOG, Ordering::Relaxed);
    }
}

/// Records each call from now on, if the device of this name is recorded.
pub(crate) fn trace_calls(device: &str) {
    if fabric::has_trace(device) {
        FLAGS.fetch_or(TRACE, Ordering::Relaxed);
    }
}

/// Records a call, if the process's device is recorded.
#[cold]
pub(crate) fn trace_call(function: usize, began: Time, code: i32) {
    if FLAGS.load(Ordering::Relaxed) & TRACE != 0 {
        fabric::end_call(NAMES[function], began, code);
    }
}

/// Starts to profile a process.
pub(crate) fn start(process: &Process) {
    if PROCESS.set(process.clone()).is_ok() {
        ffi::lock(&RECORDING).switch_on(process);
    }
}

/// `MPI_Pcontrol`: 0 stops profiling, 1 continues it, 2 clears it; other levels have no effect.
pub(crate) fn control(level: i32) {
    let Some(process) = PROCESS.get() else { return };
    let mut recording = ffi::lock(&RECORDING);
    match level {
        0 => recording.switch_off(process),
        1 => recording.switch_on(process),
        2 => recording.clear(process),
        _ => {}
    }
}

/// Ends profiling and returns the profile; `None` if it was not requested.
pub(crate) fn finish() -> Option<Profile> {
    let process = PROCESS.get()?;
    let mut recording = ffi::lock(&RECORDING);
    recording.switch_off(process);
    let called = |count: &Count| {
        let [calls, ps, bytes] = count.all().map(|count| count.load(Ordering::Relaxed));
        CallStats { calls, time: Span::from_ps(ps), bytes }
    };
    let calls = NAMES.iter().zip(CALLS.iter().map(called)).filter(|(_, called)| called.calls > 0);
    let calls = calls.map(|(name, called)| ((*name).to_owned(), called)).collect();
    Some(Profile { watched: recording.watched, calls, sent: std::mem::take(&mut recording.sent) })
}

/// The traffic to each process of the job, followed by that to other jobs.
fn traffic_by_peer(process: &Process) -> Vec<Traffic> {
    let mut sent = process.world().traffic();
    let mut known = Traffic::default();
    sent.iter().for_each(|to| known.add(to));
    sent.push(process.traffic().since(&known));
    sent
}

impl Recording {
    /// Begins a profiled period, unless one has begun.
    fn switch_on(&mut self, process: &Process) {
        if self.since.is_none() {
            self.since = Some((process.host().now(), traffic_by_peer(process)));
            SENT_BYTES.store(process.traffic().all().bytes, Ordering::Relaxed);
            FLAGS.fetch_or(PROFILE, Ordering::Relaxed);
        }
    }

    /// Ends the profiled period, and adds its time and traffic.
    fn switch_off(&mut self, process: &Process) {
        FLAGS.fetch_and(!PROFILE, Ordering::Relaxed);
        let Some((since, before)) = self.since.take() else { return };
        self.watched += process.host().now().since(since);
        self.sent.resize(before.len(), Traffic::default());
        for ((all, now), before) in self.sent.iter_mut().zip(traffic_by_peer(process)).zip(before) {
            all.add(&now.since(&before));
        }
    }

    /// Removes all that was counted; a profiled period begins anew.
    fn clear(&mut self, process: &Process) {
        let was_on = self.since.is_some();
        self.switch_off(process);
        CALLS.iter().flat_map(Count::all).for_each(|count| count.store(0, Ordering::Relaxed));
        (self.watched, self.sent) = (Span::ZERO, Vec::new());
        if was_on {
            self.switch_on(process);
        }
    }
}
