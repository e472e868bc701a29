//! [`FiberContext`]: how the world runs a fiber: as a coroutine in the world's thread, or as a thread of its own that
//! runs only while the world's thread waits.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::config::{Config, FiberKind};
use super::shared::Shared;
use super::suspend::{Baton, Body, Holder, Suspender, ThreadMark};
use crate::prefetch::LINE;

/// A fiber's stack and its execution.
pub(super) enum FiberContext {
    Coroutine(Coroutine<(), (), (), OffsetStack>),
    Thread { baton: Arc<Baton>, thread: Option<JoinHandle<()>> },
}

impl FiberContext {
    /// A fiber that has not started.
    pub(super) fn new(
        config: Config,
        shared: &Arc<Shared>,
        fiber: usize,
        body: Body,
    ) -> Result<Self, String> {
        let shared = shared.clone();
        match config.fiber_kind {
            FiberKind::Coroutine => {
                let stack = DefaultStack::new(config.stack.max(STACK_MIN)).map_err(|e| {
                    format!(
                        "a stack of {} KiB cannot be had ({e}): each takes two mappings, of which a process may have \
                         vm.max_map_count; raise that, or simulate fewer ranks",
                        config.stack >> 10
                    )
                })?;
                let stack = OffsetStack { stack, fiber };
                Ok(Self::Coroutine(Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
                    let thread = ThreadMark::current();
                    shared.lock().fibers[fiber].suspender = Some(Suspender::Coroutine { yielder, thread });
                    run_body(&shared, fiber, body);
                })))
            }
            FiberKind::Thread => {
                let baton = Arc::new(Baton::default());
                let own = baton.clone();
                let run = move || {
                    let thread = ThreadMark::current();
                    if own.take_first() {
                        let suspender = Suspender::Thread { baton: own.clone(), thread };
                        shared.lock().fibers[fiber].suspender = Some(suspender);
                        // Only the unwinding of a cut-off fiber passes `run_body`.
                        let _ = catch_unwind(AssertUnwindSafe(|| run_body(&shared, fiber, body)));
                    }
                    own.give(Holder::Done);
                };
                let thread =
                    std::thread::Builder::new().stack_size(config.stack).spawn(run).map_err(|e| {
                        format!("no further thread ({e}); simulate fewer ranks, or use coroutines")
                    })?;
                Ok(Self::Thread { baton, thread: Some(thread) })
            }
        }
    }

    /// Runs the fiber until it gives up control; returns whether it has not ended.
    pub(super) fn resume(&mut self) -> bool {
        match self {
            Self::Coroutine(coroutine) => matches!(coroutine.resume(()), CoroutineResult::Yield(())),
            Self::Thread { baton, .. } => {
                baton.give(Holder::Fiber);
                baton.wait_for_world() != Holder::Done
            }
        }
    }

    /// Unwinds a fiber that has not ended, so that its values are dropped.
    pub(super) fn unwind(mut self) {
        match &mut self {
            // A panic message during the unwinding has been printed.
            Self::Coroutine(coroutine) => {
                let _ = catch_unwind(AssertUnwindSafe(|| coroutine.force_unwind()));
            }
            Self::Thread { baton, .. } => {
                baton.give(Holder::CutOff);
                baton.wait_for_world();
            }
        }
    }
}

impl Drop for FiberContext {
    fn drop(&mut self) {
        if let Self::Thread { thread, .. } = self
            && let Some(thread) = thread.take()
        {
            // It has returned the baton for good.
            let _ = thread.join();
        }
    }
}

/// A stack whose start is some cache lines below the end of its memory, at different offsets for neighbouring fibers.
/// All stacks end at a page boundary, so that otherwise the lines that every switch touches would be in the same few
/// cache sets for all fibers.
pub(super) struct OffsetStack {
    stack: DefaultStack,
    fiber: usize,
}

/// The smallest allowed stack.
const STACK_MIN: usize = 8 << 10;
/// Number of different offsets in cache lines. Measured: more, or a power of two, is slower with many fibers.
const OFFSETS: usize = 44;

// SAFETY: it is the default stack with its guard page, minus at most 2,752 of at least 8,192 bytes at the upper end; a
// multiple of 64 keeps the alignment. Test: all tests of `world`.
unsafe impl Stack for OffsetStack {
    fn base(&self) -> StackPointer {
        let lower = self.stack.base().get() - self.fiber % OFFSETS * LINE;
        StackPointer::new(lower).expect("above the guard page")
    }

    fn limit(&self) -> StackPointer {
        self.stack.limit()
    }
}

/// Runs a fiber's body; a panic is recorded and reported by [`World::run`](super::World::run).
fn run_body(shared: &Shared, fiber: usize, body: Body) {
    // Others may wait for its end, which takes effect when the world's clock has reached it.
    let whole = || {
        body();
        shared.sync();
    };
    let Err(panic) = catch_unwind(AssertUnwindSafe(whole)) else { return };
    let mut state = shared.lock();
    if state.ending {
        drop(state);
        resume_unwind(panic);
    }
    let name = state.fibers[fiber].name.to_string();
    state.panicked.get_or_insert((name, message(&*panic)));
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
