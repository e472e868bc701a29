//! Whether calls are checked, and the rank of this process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static IS_ON: AtomicBool = AtomicBool::new(false);
static RANK: AtomicI32 = AtomicI32::new(0);

/// Whether calls are checked: between MPI_Init and MPI_Finalize.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// The rank of this process in MPI_COMM_WORLD.
pub(crate) fn rank() -> i32 {
    RANK.load(Ordering::Relaxed)
}

/// From here on, calls of this rank are checked.
pub(crate) fn begin(rank: i32) {
    RANK.store(rank, Ordering::Relaxed);
    IS_ON.store(true, Ordering::Relaxed);
}

/// From here on, nothing is checked.
pub(crate) fn end() {
    IS_ON.store(false, Ordering::Relaxed);
}

/// Runs a part of the checks. If it panics, which is a mistake of ours, nothing is checked any more, and the program goes on.
pub(crate) fn checked<T>(check: impl FnOnce() -> Option<T>) -> Option<T> {
    if !is_on() {
        return None;
    }
    catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|_| {
        end();
        host::real::remark(format_args!(
            "check: an internal error ended the checks of rank {}; please report it",
            rank()
        ));
        None
    })
}
