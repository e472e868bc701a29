//! [`Suspender`]: how a rank gives control back to the world, and waits until it is its turn again.

use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use corosensei::Yielder;

/// What a rank runs.
pub(super) type Body = Box<dyn FnOnce() + Send>;

/// Which thread this is, among those that are alive; cheaper to have than a [`std::thread::ThreadId`]. Used while the world's thread
/// is inside [`World::run`](super::World::run), and so alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadMark(usize);

impl ThreadMark {
    pub(super) fn here() -> Self {
        thread_local!(static OWN: u8 = const { 0 });
        OWN.with(|own| Self(std::ptr::from_ref(own).addr()))
    }
}

/// The way back to the world, for the rank that runs.
#[derive(Clone)]
pub(super) enum Suspender {
    Coroutine { yielder: *const Yielder<(), ()>, thread: ThreadMark },
    Thread { baton: Arc<Baton>, thread: ThreadMark },
}

// SAFETY: the pointer is used by the thread that it names only (checked in `suspend`). Test: all of world's.
unsafe impl Send for Suspender {}

impl Suspender {
    /// Gives up control, until the world resumes this rank.
    ///
    /// # Panics
    /// In a thread that is not the rank's: a host of virtual time is of use in its world only.
    pub(super) fn suspend(&self) {
        let (Self::Coroutine { thread, .. } | Self::Thread { thread, .. }) = self;
        assert_eq!(*thread, ThreadMark::here(), "a host of virtual time was used outside of its world");
        match self {
            Self::Coroutine { yielder, .. } => {
                // SAFETY: the yielder lives on the rank's stack until its body returns, and only the rank that runs
                // gets here: its number is the world's `current`, and the thread is the world's (checked). Test: all
                // of world's, also under valgrind's eyes in `ranks_may_end_in_any_order`.
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

/// Who may run.
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

/// What the world and one rank's thread hand to each other.
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

    /// Whether the rank may go on; it is to unwind otherwise.
    fn wait_for_rank(&self) -> bool {
        self.wait(|h| matches!(h, Holder::Rank | Holder::CutOff)) == Holder::Rank
    }

    pub(super) fn take_first(&self) -> bool {
        self.wait_for_rank()
    }
}
