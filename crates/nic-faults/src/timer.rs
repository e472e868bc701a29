//! [`Timer`]: what happens later. A thread, in simulated time a fiber, starts with the first task and ends with the
//! device.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use host::{EventCount, Host, Time};
use verbs::{Error, Result};

/// What has to be done at a time.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// By time, and then in the order in which they were added.
    jobs: BTreeMap<(Time, u64), Job>,
    added: u64,
    is_started: bool,
    is_stopped: bool,
}

/// The tasks of a device.
pub(crate) struct Timer {
    host: Host,
    state: Mutex<State>,
    /// How often `state` has changed, for the thread.
    changes: AtomicU64,
    changed: EventCount,
}

impl Timer {
    pub(crate) fn new(host: &Host) -> Arc<Self> {
        Arc::new(Self {
            host: host.clone(),
            state: Mutex::default(),
            changes: AtomicU64::new(0),
            changed: EventCount::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Does a job at a time.
    ///
    /// # Errors
    /// The system's, if the first job cannot start the thread.
    pub(crate) fn at(self: &Arc<Self>, due: Time, job: impl FnOnce() + Send + 'static) -> Result<()> {
        self.start()?;
        let mut state = self.state();
        let number = state.added;
        state.added += 1;
        state.jobs.insert((due, number), Box::new(job));
        drop(state);
        self.notify();
        Ok(())
    }

    /// Starts the thread, unless it runs.
    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        if std::mem::replace(&mut self.state().is_started, true) {
            return Ok(());
        }
        let own = self.clone();
        let started = self.host.spawn("nicety-faults", None, move || own.run());
        started.map(drop).map_err(|e| {
            self.state().is_started = false;
            Error::system("cannot start the thread of the faults", e)
        })
    }

    /// Ends the thread; jobs that are left are not done.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.is_stopped = true;
        let left = std::mem::take(&mut state.jobs);
        drop(state);
        drop(left);
        self.notify();
    }

    fn notify(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.host.notify(&self.changed);
    }

    fn run(&self) {
        loop {
            let seen = self.changes.load(Ordering::Acquire);
            let (next, job) = {
                let mut state = self.state();
                if state.is_stopped {
                    return;
                }
                let next = state.jobs.first_key_value().map(|(key, _)| *key);
                let due = next.filter(|(due, _)| *due <= self.host.now());
                (next.map(|(due, _)| due), due.and_then(|key| state.jobs.remove(&key)))
            };
            if let Some(job) = job {
                job();
                continue;
            }
            let look = || (self.changes.load(Ordering::Acquire) != seen).then_some(());
            let found = self.host.wait("the timer of faults", &self.changed, next, look);
            if found.is_none() && next.is_none_or(|next| self.host.now() < next) {
                // The simulated world ends.
                return;
            }
        }
    }
}
