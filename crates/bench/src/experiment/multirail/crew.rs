//! [`Crew`]: the threads of all rails but the first, which the caller drives itself: they persist, get work, and are
//! joined, like an OpenMP team. In virtual time they are ranks of the same machine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use verbs::host::{EventCount, Host, Task, Time};

use super::super::Fault;

/// The work that a thread does on request.
pub(super) type Work = Arc<dyn Fn() -> Result<(), Fault> + Send + Sync>;

/// The number of an order that ends a thread.
const END: u64 = u64::MAX;

/// Threads that wait for orders.
pub(super) struct Crew {
    host: Host,
    shared: Arc<Shared>,
    count: u64,
    /// The current order, from 1.
    order: u64,
    tasks: Vec<Task>,
}

struct Shared {
    order: AtomicU64,
    /// Orders that were carried out, by all threads together.
    done: AtomicU64,
    wakeup: EventCount,
    finished: EventCount,
    failed: Mutex<Option<Fault>>,
}

impl Crew {
    /// Starts a thread for each given function, on a core other than the caller's if possible.
    pub(super) fn start(host: &Host, works: Vec<Work>) -> Result<Self, Fault> {
        let shared = Arc::new(Shared {
            order: AtomicU64::new(0),
            done: AtomicU64::new(0),
            wakeup: EventCount::new(),
            finished: EventCount::new(),
            failed: Mutex::new(None),
        });
        let mut crew =
            Self { host: host.clone(), shared, count: works.len() as u64, order: 0, tasks: Vec::new() };
        let core = if host.node().is_some() { None } else { verbs::host::real::other_core() };
        for work in works {
            let (host, shared) = (host.clone(), crew.shared.clone());
            let body = move || shared.serve(&host, &work);
            let task = crew.host.spawn("rail", core, body);
            crew.tasks.push(task.map_err(|e| Fault::Machine(format!("a thread for a rail: {e}")))?);
        }
        Ok(crew)
    }

    /// Has every thread do its work once; call [`Crew::join`] before the next.
    pub(super) fn fork(&mut self) {
        self.host.charge_fork();
        self.order += 1;
        self.shared.set_and_notify(&self.host, &self.shared.order, self.order, &self.shared.wakeup);
    }

    /// Waits until all have done it.
    pub(super) fn join(&self, deadline: Option<Time>) -> Result<(), Fault> {
        let (shared, wanted) = (&self.shared, self.order * self.count);
        let done = || (shared.done.load(Ordering::Acquire) >= wanted).then_some(());
        let joined = self.host.wait("the threads of the rails", &shared.finished, deadline, done);
        if let Some(fault) = shared.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(fault);
        }
        joined.ok_or(Fault::TimedOut("the thread of a rail"))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.set_and_notify(&self.host, &self.shared.order, END, &self.shared.wakeup);
        // Each ends its waits by its own deadline at the latest.
        self.tasks.drain(..).for_each(Task::join);
    }
}

impl Shared {
    /// Changes a word that other threads wait for. In virtual time they must not see it before the caller's clock.
    fn set_and_notify(&self, host: &Host, word: &AtomicU64, value: u64, wakeup: &EventCount) {
        if !std::thread::panicking()
            && let Some(node) = host.node()
        {
            node.sync();
        }
        word.store(value, Ordering::Release);
        host.notify(wakeup);
    }

    /// The main loop of a thread. It waits for its next order without a timeout: dropping the crew is an order, too.
    fn serve(&self, host: &Host, work: &Work) {
        let mut seen = 0;
        let next = |seen: u64| {
            let look = || Some(self.order.load(Ordering::Acquire)).filter(|order| *order != seen);
            host.wait("the thread of a rail", &self.wakeup, None, look)
        };
        while let Some(order) = next(seen).filter(|order| *order != END) {
            seen = order;
            if let Err(fault) = work() {
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
            }
            // In virtual time, the caller must not see the order as done before this thread's clock.
            if let Some(node) = host.node() {
                node.sync();
            }
            self.done.fetch_add(1, Ordering::AcqRel);
            host.notify(&self.finished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::host::Span;
    use verbs::host::world::{self, World};

    fn play(host: &Host) {
        let count = Arc::new(AtomicU64::new(0));
        let work = || -> Work {
            let count = count.clone();
            Arc::new(move || {
                let before = count.fetch_add(1, Ordering::AcqRel);
                if before == 7 { Err(Fault::Meaningless("the eighth".into())) } else { Ok(()) }
            })
        };
        let mut crew = Crew::start(host, vec![work(), work()]).expect("threads");
        let deadline = || host.after(Span::from_secs(20));
        for turn in 1..=3 {
            crew.fork();
            crew.join(deadline()).expect("done");
            assert_eq!(count.load(Ordering::Acquire), 2 * turn);
        }
        crew.fork();
        assert!(matches!(crew.join(deadline()), Err(Fault::Meaningless(_))));
        crew.fork();
        crew.join(deadline()).expect("the next goes on");
    }

    #[test]
    fn threads_do_what_they_are_told_once() {
        play(&verbs::host::real::host());
    }

    #[test]
    fn ranks_do_what_they_are_told_once() {
        let mut world = World::new(world::Config::default());
        let node = world.add_node("node");
        let host = node.host();
        world.spawn("rank", &[&node], move || play(&host)).expect("a fiber");
        world.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}
