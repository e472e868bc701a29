//! A completion queue as its pollers know it: each takes completions from a rail's queue, and hands them to the queue pairs whose
//! they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use host::Lock;
use verbs::{Wc, WcOpcode};

use crate::completion::completions::{Completions, Sink};
use crate::completion::known::Known;
use crate::qp::QpInner;
use crate::shared::Shared;
use crate::wants::Wants;

/// Completions that one look takes from a rail.
const BATCH: usize = 16;

/// A rail on which nothing is to complete is looked at once in so many times.
const IDLE_TURNS: u32 = 64;

/// A queue pair, and what it wants done when the rail's queue is free again.
pub(crate) type Asked = (Arc<QpInner>, Wants);

/// Who polls a completion queue, and whom for.
pub(crate) struct Polling {
    shared: Arc<Shared>,
    pub(crate) completions: Arc<Completions>,
    /// By rails. Who takes completions from one has this: one at a time, so that order is kept.
    known: Vec<Lock<Known<QpInner>>>,
    /// How often somebody has finished taking from each; changed by who has `known`.
    turns: Vec<AtomicU64>,
    turn: AtomicU32,
    /// The rail that is looked at first.
    first: AtomicUsize,
    /// Somebody looks at what has been reported; the next completion is to be told of.
    telling: AtomicBool,
    owes: AtomicBool,
    /// Somebody else wanted to take, and in virtual time may sleep until there is news.
    missed: AtomicBool,
    /// Queue pairs were dropped, and whoever takes may still hold them.
    forgets: AtomicBool,
    /// A rail has reported, and nobody has looked yet whether that is the program's business.
    reported: AtomicBool,
}

impl Polling {
    pub(crate) fn new(shared: &Arc<Shared>, completions: Completions) -> Self {
        Self {
            shared: shared.clone(),
            completions: Arc::new(completions),
            known: shared.rails.iter().map(|_| Lock::new(Known::new())).collect(),
            turns: shared.rails.iter().map(|_| AtomicU64::new(0)).collect(),
            turn: AtomicU32::new(0),
            first: AtomicUsize::new(0),
            telling: AtomicBool::new(false),
            owes: AtomicBool::new(false),
            missed: AtomicBool::new(false),
            forgets: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        }
    }

    /// The rails to take from, in their turn: those on which something is to complete, and now and then the others.
    #[inline]
    pub(crate) fn due_rails(&self) -> impl Iterator<Item = usize> {
        // In real time, who polls helps: a thread that is awake need not have a core. In virtual time, only who must.
        let polled_by_threads = !self.shared.workers.is_empty()
            && self.shared.host.node().is_some()
            && !self.completions.has_seen_an_end();
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        self.turn.store(turn, Ordering::Relaxed);
        let (first, count) = (self.first.load(Ordering::Relaxed), self.known.len());
        let all = if polled_by_threads { 0..0 } else { 0..count };
        all.map(move |step| if first + step < count { first + step } else { first + step - count })
            .filter(move |&rail| self.completions.is_expecting(rail) || turn.is_multiple_of(IDLE_TURNS))
    }

    /// Lets go of queue pairs: one that is not found any more is about to be dropped.
    pub(crate) fn forget(&self) {
        let host = &self.shared.host;
        if host.node().is_some() {
            // Whoever takes may be suspended for long, or for ever: it looks whether something is to be forgotten when its turn is over.
            return self.forget_free();
        }
        self.known.iter().for_each(|known| known.lock(host).forget());
    }

    /// There was no room for more after this rail: the others come first the next time.
    pub(crate) fn has_stopped_at(&self, rail: usize) {
        self.first.store((rail + 1) % self.known.len(), Ordering::Relaxed);
    }

    /// Takes what a rail has, until there is nothing or no room for more; `find` finds the queue pair of a lane. What queue pairs
    /// ask for goes to `asked`. Whether there was anything; `None` if somebody else takes from the rail.
    #[inline]
    pub(crate) fn take(
        &self,
        rail: usize,
        sink: &mut Sink<'_>,
        find: impl for<'k> Fn(&'k mut Known<QpInner>, u32) -> Option<&'k Arc<QpInner>>,
        asked: &mut Vec<Asked>,
    ) -> Option<bool> {
        let Some(mut known) = self.known[rail].try_lock(&self.shared.host) else {
            self.missed.store(true, Ordering::Relaxed);
            return None;
        };
        let any = match sink.room() {
            1 => self.take_all::<1>(rail, sink, &mut known, find, asked),
            _ => self.take_all::<BATCH>(rail, sink, &mut known, find, asked),
        };
        self.turns[rail].store(self.turns_of(rail).wrapping_add(1), Ordering::Release);
        drop(known);
        if self.forgets.load(Ordering::Relaxed) && self.forgets.swap(false, Ordering::Relaxed) {
            self.forget_free();
        }
        Some(any)
    }

    /// As [`Polling::forget`], of what nobody has in hand; who has it does so afterwards.
    #[cold]
    fn forget_free(&self) {
        for known in &self.known {
            match known.try_lock(&self.shared.host) {
                Some(mut known) => known.forget(),
                None => self.forgets.store(true, Ordering::Relaxed),
            }
        }
    }

    fn turns_of(&self, rail: usize) -> u64 {
        self.turns[rail].load(Ordering::Acquire)
    }

    /// Tells whether each rail that is expected to complete something has been taken from since this call, by anybody. In virtual time others
    /// may take whenever this thread looks, so that waiting for a rail that is free could last for ever.
    pub(crate) fn next_turns(&self) -> impl Fn() -> bool + '_ {
        // The second turn that ends from now on has begun since.
        let wanted: Vec<u64> =
            (0..self.turns.len()).map(|rail| self.turns_of(rail).wrapping_add(2)).collect();
        move || {
            wanted.iter().enumerate().all(|(rail, &wanted)| {
                !self.completions.is_expecting(rail)
                    || self.turns_of(rail).wrapping_sub(wanted) < u64::MAX / 2
            })
        }
    }

    /// Takes at most `N` at a time.
    #[inline]
    fn take_all<const N: usize>(
        &self,
        rail: usize,
        sink: &mut Sink<'_>,
        known: &mut Known<QpInner>,
        find: impl for<'k> Fn(&'k mut Known<QpInner>, u32) -> Option<&'k Arc<QpInner>>,
        asked: &mut Vec<Asked>,
    ) -> bool {
        let (mut wcs, mut any) = ([Wc::default(); N], false);
        while !sink.is_full() {
            let most = sink.room().min(N);
            // A rail's queue that overran has failed its queue pairs, which is noticed by their state.
            let count = self.completions.on(rail).poll(&mut wcs[..most]).unwrap_or(0);
            any |= count > 0;
            for wc in &wcs[..count] {
                // A queue pair that has gone completes nothing, and took what it expected along.
                let Some(qp) = find(known, wc.qp_num) else { continue };
                let wants = match wc.opcode {
                    WcOpcode::Recv | WcOpcode::RecvWriteImm => qp.on_received(rail, wc, sink),
                    _ => qp.on_sent(rail, wc, sink),
                };
                if wants != Wants::default() {
                    asked.push((qp.clone(), wants));
                }
            }
            if count < most {
                break;
            }
        }
        any
    }

    /// Whether it is to be taken once more from a rail that had nothing: somebody has been waiting for this side to look, and
    /// what came last may not have been seen.
    #[inline]
    pub(crate) fn is_to_look_again(&self) -> bool {
        if !self.completions.can_report() {
            return false;
        }
        // Either this side sees that something is owed, or who owes it has found the rail free.
        fence(Ordering::SeqCst);
        self.owes.load(Ordering::SeqCst)
    }

    /// Something has been taken from a rail, or not.
    #[inline]
    pub(crate) fn has_taken(&self, any: bool) {
        if any && self.owes.load(Ordering::SeqCst) && self.owes.swap(false, Ordering::SeqCst) {
            self.reported.store(true, Ordering::SeqCst);
        }
        // It matters in virtual time only, where one thing happens at a time.
        let missed = self.missed.load(Ordering::Relaxed) && self.missed.swap(false, Ordering::Relaxed);
        if missed || (any && !self.shared.workers.is_empty()) {
            self.shared.host.signal();
        }
    }

    /// A rail's queue has reported a completion.
    pub(crate) fn on_report(&self) {
        self.completions.is_reported();
        self.reported.store(true, Ordering::SeqCst);
    }

    /// Passes on what rails have reported, if that is the program's business; `take` takes what the rails have into the ring.
    #[inline]
    pub(crate) fn tell_of_reports(&self, mut take: impl FnMut()) {
        while self.reported.load(Ordering::SeqCst) && !self.telling.swap(true, Ordering::SeqCst) {
            if self.reported.swap(false, Ordering::SeqCst) && !self.completions.tell() {
                // It was a stripe, or a request of the device's own: the program's completion is still to come, or came
                // before the queues were armed again.
                // Or somebody else has it in hand, and looks here afterwards.
                self.completions.arm_rails(false);
                self.owes.store(true, Ordering::SeqCst);
                // Whoever holds completions of a rail lets go of them, and looks whether something is owed.
                fence(Ordering::SeqCst);
                take();
                if self.completions.tell() {
                    self.owes.store(false, Ordering::SeqCst);
                }
            }
            self.telling.store(false, Ordering::SeqCst);
        }
    }
}
