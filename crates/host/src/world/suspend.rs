//! [`Suspender`]: how a fiber returns control to the world and waits to be resumed.

use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use corosensei::Yielder;

/// The code of a fiber.
pub(super) type Body = Box<dyn FnOnce() + Send>;

/// Identifies a thread among those that are alive; cheaper than a [`std::thread::ThreadId`]. Used while the world's
/// thread is inside [`World::run`](super::World::run), and so alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadMark(usize);

impl ThreadMark {
    pub(super) fn current() -> Self {
        thread_local!(static OWN: u8 = const { 0 });
        OWN.with(|own| Self(std::ptr::from_ref(own).addr()))
    }
}

/// Returns control to the world; for the running fiber.
#[derive(Clone)]
pub(super) enum Suspender {
    Coroutine { yielder: *const Yielder<(), ()>, thread: ThreadMark },
    Thread { baton: Arc<Baton>, thread: ThreadMark },
}

// SAFETY: only the thread that it names uses the pointer (checked in `suspend`). Test: all tests of `world`.
unsafe impl Send for Suspender {}

impl Suspender {
    /// Gives up control until the world resumes this fiber.
    ///
    /// # Panics
    /// In a thread other than the fiber's: a virtual-time host can be used only in its world.
    pub(super) fn suspend(&self) {
        let (Self::Coroutine { thread, .. } | Self::Thread { thread, .. }) = self;
        assert_eq!(*thread, ThreadMark::current(), "a host of virtual time was used outside of its world");
        match self {
            Self::Coroutine { yielder, .. } => {
                // SAFETY: the yielder lives on the fiber's stack until its body returns, and only the running fiber
                // gets here: its number is the world's `current`, and the thread is the world's (checked). Test: all
                // tests of `world`, and `fibers_may_end_in_any_order` under valgrind.
                unsafe { &**yielder }.suspend(());
            }
            Self::Thread { baton, .. } => {
                baton.give(Holder::World);
                if !baton.wait_for_fiber() {
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
    Fiber,
    /// The fiber, to unwind.
    CutOff,
    /// The world, for good.
    Done,
}

/// Passes control between the world and the thread of one fiber.
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

    /// Whether the fiber may continue; otherwise it must unwind.
    fn wait_for_fiber(&self) -> bool {
        self.wait(|h| matches!(h, Holder::Fiber | Holder::CutOff)) == Holder::Fiber
    }

    pub(super) fn take_first(&self) -> bool {
        self.wait_for_fiber()
    }
}
