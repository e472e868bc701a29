//! The device: its objects and connections, and what concerns several of them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::Span;

use crate::connect::registry::Registry;
use crate::memory::turn;
use crate::objects::Objects;
use crate::polling::Polling;
use crate::queues::receives::SharedReceives;
use crate::shared::Shared;
use crate::visits::Visits;
use nic_util::sync::{Spin, unpoisoned};
use nic_util::thread::Thread;

/// What peers bring about without a word: whoever asks for asynchronous events looks at these.
#[derive(Default)]
struct Watched {
    /// Completion queues that may be overrun, as more may be outstanding than they hold; until the program lets go of them.
    cqs: Watch<Arc<Polling>>,
    /// Shared receive queues with a limit.
    srqs: Watch<Weak<SharedReceives>>,
}

/// Objects by their index, in order: few, and each call for an event looks at all.
struct Watch<H>(Vec<(usize, H)>);

impl<H> Default for Watch<H> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<H> Watch<H> {
    fn find(&self, index: usize) -> Result<usize, usize> {
        self.0.binary_search_by_key(&index, |(index, _)| *index)
    }

    /// Adds one, in the place of whichever had its index before.
    fn add(&mut self, index: usize, one: H) {
        match self.find(index) {
            Ok(at) => self.0[at] = (index, one),
            Err(at) => self.0.insert(at, (index, one)),
        }
    }

    /// Takes one out, if it is there.
    fn take(&mut self, index: usize) -> Option<H> {
        self.find(index).ok().map(|at| self.0.remove(at).1)
    }
}

/// A device that is open.
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) objects: Objects,
    pub(crate) registry: Registry,
    visits: Visits,
    watched: Mutex<Watched>,
    /// Held while peers are woken that wait for shared receives.
    feeding: Spin<()>,
    /// Held while it is looked which completion queues report.
    pub(crate) hearing: Spin<()>,
    /// Who had the turn at atomics at the last look.
    turn_seen: AtomicU64,
    pds: AtomicU32,
    pub(crate) thread: Thread,
}

impl Inner {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
            objects: Objects::default(),
            registry: Registry::default(),
            visits: Visits::default(),
            watched: Mutex::default(),
            feeding: Spin::default(),
            hearing: Spin::default(),
            turn_seen: AtomicU64::new(0),
            pds: AtomicU32::new(1),
            thread: Thread::default(),
        }
    }

    /// A number for a protection domain.
    pub(crate) fn take_pd(&self) -> u32 {
        self.pds.fetch_add(1, Ordering::Relaxed)
    }

    /// A completion queue may be overrun from now on.
    pub(crate) fn watch_for_overrun(&self, cq: &Arc<Polling>) {
        unpoisoned(&self.watched).cqs.add(cq.completions.index, cq.clone());
    }

    /// The program lets go of a completion queue: nobody is to hear of its overrun.
    pub(crate) fn forget_cq(&self, index: usize) {
        // Dropped when the lock is free again.
        let _watched = unpoisoned(&self.watched).cqs.take(index);
        self.objects.remove_cq(index);
    }

    /// A shared receive queue has a limit from now on.
    pub(crate) fn watch_limit(&self, srq: &Arc<SharedReceives>) {
        unpoisoned(&self.watched).srqs.add(srq.index, Arc::downgrade(srq));
    }

    /// Looks at what peers may have brought about.
    pub(crate) fn look_at_watched(&self) {
        let mut watched = unpoisoned(&self.watched);
        watched.cqs.0.iter().for_each(|(_, cq)| cq.look_for_overrun());
        watched.srqs.0.retain(|(_, srq)| {
            let limited = srq.upgrade().filter(|srq| srq.limit() != 0);
            limited.inspect(|srq| srq.check_limit()).is_some()
        });
    }

    /// Deals with what was condemned; holding no lock.
    pub(crate) fn settle_condemned(&self) {
        let (cqs, qps) = self.shared.take_condemned();
        if !cqs.is_empty() {
            let hit =
                |completions: &crate::queues::completions::Completions| cqs.contains(&completions.index);
            for qp in self.objects.live_qps() {
                if hit(&qp.sending.completions) || hit(&qp.receiving.completions) {
                    // Its completions are lost: the peer must not go on as if nothing had happened.
                    self.registry.part(&self.shared, &qp, true);
                    qp.fail();
                }
            }
        }
        for qp in qps.into_iter().filter_map(|index| self.objects.qp(index)) {
            if qp.connection.is_condemned() {
                qp.fail();
            }
        }
    }

    /// Wakes peers that wait for a receive of a shared queue, those that have said so.
    #[cold]
    pub(crate) fn answer_rnr(&self, srq: &SharedReceives) {
        // One at a time: who waits for another queue is out of the set for a moment.
        let _feeding = self.feeding.lock();
        if !srq.take_rnr() {
            return;
        }
        let waiting = &self.shared.header.rnr;
        for index in waiting.taken() {
            let Some(qp) = self.objects.qp(index) else { continue };
            match &qp.receiving.srq {
                Some(its) if its.index != srq.index => waiting.add(index),
                _ => qp.connection.answer_rnr(),
            }
        }
    }

    /// Waits until no thread and no peer is in the middle of an operation that began before the call; the
    /// number of the queue pair that would not end otherwise.
    pub(crate) fn quiesce(&self, call: &'static str, patience: Span) -> Result<(), u32> {
        self.visits.quiesce(&self.shared, &self.objects, call, patience)
    }

    /// After a key was invalidated: waits until peers that saw it valid have left.
    pub(crate) fn wait_for_peers_outside(&self) {
        self.visits.wait_for_peers_outside(&self.shared, &self.objects);
    }

    /// Takes the turn at atomics from who cannot give it back. Whether to look again soon.
    pub(crate) fn look_at_turn(&self) -> bool {
        let is_inside = |index| self.objects.is_inside_by(index);
        turn::look_at(&self.shared.table.map, &self.turn_seen, is_inside)
    }

    /// Ends the thread; returns when it has ended, unless it is the caller.
    pub(crate) fn stop(&self) {
        self.thread.stop(&self.shared.reactor.ear);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.shared.birth.is_elsewhere() {
            self.stop();
        }
    }
}
