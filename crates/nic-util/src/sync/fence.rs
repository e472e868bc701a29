//! Asymmetric fences: free on the data path, a system call on the rare side.
//!
//! Two parties that each write one word and then read the other's need a full fence on both sides. Here the
//! frequent side pays a compiler fence only, and the rare side makes every running thread of every registered
//! process pass a full fence (membarrier(2), MEMBARRIER_CMD_GLOBAL_EXPEDITED). Where a process is not allowed
//! to do that, both sides of all its connections use full fences.

use super::atomics::*;

#[cfg(not(loom))]
mod state {
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicBool;

    use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

    /// Whether this process takes part in expedited barriers.
    pub(super) fn registered() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| {
            let query = membarrier_query();
            query.contains_command(MembarrierCommand::GlobalExpedited)
                && query.contains_command(MembarrierCommand::RegisterGlobalExpedited)
                && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
        })
    }

    /// Set once a process of the other side cannot take part.
    pub(super) static FULL: AtomicBool = AtomicBool::new(false);
}

/// Prepares this process for [`heavy`]; returns whether light fences can be light.
#[cfg(not(loom))]
pub fn register() -> bool {
    let registered = state::registered();
    if !registered {
        require_full();
    }
    registered
}

/// Makes light fences full from now on: some peer cannot issue or receive heavy ones.
#[cfg(not(loom))]
pub fn require_full() {
    state::FULL.store(true, Ordering::SeqCst);
}

/// Whether light fences must be full. A peer's need for that is known once it has been greeted.
#[cfg(not(loom))]
#[inline]
pub fn must_be_full() -> bool {
    state::FULL.load(Ordering::Relaxed)
}

/// The fence of the frequent side, between its write and its read.
#[inline]
pub fn light() {
    #[cfg(not(loom))]
    if state::FULL.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
    } else {
        compiler_fence(Ordering::SeqCst);
    }
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// The fence of the rare side, between its write and its read.
pub fn heavy() {
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    if state::registered() {
        use rustix::thread::{MembarrierCommand, membarrier};
        // Registered, so it cannot fail; if it did, the full fence above would remain.
        let _ = membarrier(MembarrierCommand::GlobalExpedited);
    }
}
