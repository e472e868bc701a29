//! [`Suspender`]: how a rank returns control to the world and waits to be resumed.

use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use corosensei::Yielder;

/// The code of a rank.
pub(super) type Body = Box<dyn FnOnce() + Send>;

/// Identifies a thread among those that are alive; cheaper than a [`std::thread::ThreadId`]. Used while the world's
/// thread is inside [`World::run`](super::World::run), and so alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadMark(usize);

impl ThreadMark {
    pub(super) fn here() -> Self {
        thread_local!(static OWN: u8 = const { 0 });
        OWN.with(|own| Self(std::ptr::from_ref(own).addr()))
    }
}

/// Returns control to the world; for the running rank.
#[derive(Clone)]
pub(super) enum Suspender {
    Coroutine { yielder: *const Yielder<(), ()>, thread: ThreadMark },
    Thread { baton: Arc<Baton>, thread: ThreadMark },
}

// SAFETY: only the thread that it names uses the pointer (checked in `suspend`). Test: all tests of `world`.
unsafe impl Send for Suspender {}

impl Suspender {
    /// Gives up control until the world resumes this rank.
    ///
    /// # Panics
    /// In a thread other than the rank's: a virtual-time host can be used only in its world.
    pub(super) fn suspend(&self) {
        let (Self::Coroutine { thread, .. } | Self::Thread { thread, .. }) = self;
        assert_eq!(*thread, ThreadMark::here(), "a host of virtual time was used outside of its world");
        match self {
            Self::Coroutine { yielder, .. } => {
                // SAFETY: the yielder lives on the rank's stack until its body returns, and only the running rank gets
                // here: its number is the world's `current`, and the thread is the world's (checked). Test: all tests
                // of `world`, and `ranks_may_end_in_any_order` under valgrind.
                unsafe { &**yielder }.suspend(());
            }
            Self::Thread { baton, .. } => {
                baton.give(Holder::World);
                if !baton.wait_for_rank() {
                    resume_unwind(Box::new(CutOff));
                }
            }
        }
    }
}

/// Unwinds a thread whose world has ended.
struct CutOff;

/// The side that may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Holder {
    #[default]
    World,
    Rank,
    /// The rank, to unwind.
    CutOff,
    /// The world, for good.
    Done,
}

/// Passes control between the world and the thread of one rank.
#[derive(Default)]
pub(super) struct Baton {
    holder: Mutex<Holder>,
    moved: Condvar,
}

impl Baton {
    fn lock(&self) -> MutexGuard<'_, Holder> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn give(&self, to: Holder) {
        *self.lock() = to;
        self.moved.notify_all();
    }

    fn wait(&self, done: impl Fn(Holder) -> bool) -> Holder {
        let mut holder = self.lock();
        while !done(*holder) {
            holder = self.moved.wait(holder).unwrap_or_else(PoisonError::into_inner);
        }
        *holder
    }

    pub(super) fn wait_for_world(&self) -> Holder {
        self.wait(|h| matches!(h, Holder::World | Holder::Done))
    }

    /// Whether the rank may continue; otherwise it must unwind.
    fn wait_for_rank(&self) -> bool {
        self.wait(|h| matches!(h, Holder::Rank | Holder::CutOff)) == Holder::Rank
    }

    pub(super) fn take_first(&self) -> bool {
        self.wait_for_rank()
    }
}
