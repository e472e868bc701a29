//! Atomics: on mapped memory by the processor, on another process's private memory under a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::copy::place::{self, CopyDirection, CopyError, FaultSide, SgList};

/// An atomic on another process's private memory; the caller holds the lock ([`crate::memory::atomic_lock`]).
pub(crate) fn process_vm_atomic(pid: i32, at: u64, op: AtomicOp) -> Result<u64, CopyError> {
    let mut word = 0_u64;
    let (mut local, mut remote) = (SgList::new(), SgList::new());
    local.push((&raw mut word).cast(), 8);
    remote.push(at as *mut u8, 8);
    place::process_vm_copy(pid, &local, &remote, CopyDirection::In)?;
    let cell = AtomicU64::new(word);
    let old = op.apply(&cell);
    let mut new = cell.into_inner();
    let mut local = SgList::new();
    local.push((&raw mut new).cast(), 8);
    place::process_vm_copy(pid, &local, &remote, CopyDirection::Out)?;
    Ok(old)
}

/// Stores an atomic's old value in the local memory; returns the 8 bytes fetched.
pub(crate) fn store_old(local: &SgList, old: u64) -> Result<u32, CopyError> {
    // SAFETY: the local memory has 8 bytes in total (checked).
    let stored: Result<(), FaultSide> = unsafe { place::scatter((&raw const old).cast(), local) };
    stored.map(|()| 8).map_err(|_| CopyError::Local)
}

/// An atomic operation.
#[derive(Clone, Copy)]
pub(crate) enum AtomicOp {
    /// Compare and swap.
    CompareSwap(u64, u64),
    /// Add.
    FetchAdd(u64),
}

impl AtomicOp {
    /// Carries out the operation; returns the old value.
    pub(crate) fn apply(self, word: &AtomicU64) -> u64 {
        match self {
            Self::CompareSwap(compare, swap) => word
                .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|found| found),
            Self::FetchAdd(add) => word.fetch_add(add, Ordering::SeqCst),
        }
    }

    /// Carries out the operation on memory of this process that its program may have unmapped; returns the
    /// old value.
    ///
    /// # Safety
    /// As [`uaccess::fetch_add`]; aligned.
    pub(crate) unsafe fn apply_at(self, at: *mut u64) -> Result<u64, CopyError> {
        // SAFETY: the caller's contract.
        let old = unsafe {
            match self {
                Self::CompareSwap(compare, swap) => uaccess::compare_swap(at, compare, swap),
                Self::FetchAdd(add) => uaccess::fetch_add(at, add),
            }
        };
        old.map_err(|uaccess::Inaccessible| CopyError::Access)
    }
}
