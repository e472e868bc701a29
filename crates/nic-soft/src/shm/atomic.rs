//! Atomics: on mapped memory by the processor, on another process's private memory one at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use super::place::{self, Direction, Fault, SgList};

/// An atomic on another process's private memory; the caller has its turn ([`super::turn`]).
pub(super) fn atomic_across(pid: i32, at: u64, op: Atomic) -> Result<u64, Fault> {
    let mut word = 0_u64;
    let (mut local, mut remote) = (SgList::new(), SgList::new());
    local.push((&raw mut word).cast(), 8);
    remote.push(at as *mut u8, 8);
    place::across(pid, &local, &remote, Direction::In)?;
    let cell = AtomicU64::new(word);
    let old = op.apply(&cell);
    let mut new = cell.into_inner();
    let mut local = SgList::new();
    local.push((&raw mut new).cast(), 8);
    place::across(pid, &local, &remote, Direction::Out)?;
    Ok(old)
}

/// Puts an atomic's result into the local memory: 8 bytes fetched.
pub(super) fn store_old(local: &SgList, old: u64) -> u32 {
    // SAFETY: the local memory holds 8 bytes in all (checked) and is mapped.
    unsafe { place::scatter((&raw const old).cast(), local) };
    8
}

/// An atomic operation.
#[derive(Clone, Copy)]
pub(super) enum Atomic {
    /// Compare, swap.
    CompareSwap(u64, u64),
    /// Add.
    FetchAdd(u64),
}

impl Atomic {
    /// Carries it out; the old value.
    pub(super) fn apply(self, word: &AtomicU64) -> u64 {
        match self {
            Self::CompareSwap(compare, swap) => word
                .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|found| found),
            Self::FetchAdd(add) => word.fetch_add(add, Ordering::SeqCst),
        }
    }
}
