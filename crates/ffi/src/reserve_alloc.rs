//! [`ReserveAlloc`]: an allocator with a reserve, so that a shortage is an error of a call and does not end the program.
//!
//! Most allocations of a call cannot fail in Rust: the process is aborted. With this allocator, the first small allocations that the
//! system refuses are served from a reserve. A call that creates objects asks [`ReserveAlloc::has_memory`], and returns an error when the
//! reserve is used up.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A piece of the reserve: bytes that are mapped and never touched, so that they cost address space only. Larger allocations are not
/// served from it.
const PIECE: Layout = match Layout::from_size_align(1 << 20, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a layout"),
};
/// The number of pieces in the reserve: a call may need several large lists.
const PIECES: usize = 4;

/// The system's allocator with a reserve of 4 MiB. Intended for `#[global_allocator]`.
pub struct ReserveAlloc {
    /// The pieces; the last one is freed first.
    pieces: [AtomicPtr<u8>; PIECES],
}

impl ReserveAlloc {
    /// An allocator with an empty reserve.
    pub const fn new() -> Self {
        Self { pieces: [const { AtomicPtr::new(null_mut()) }; PIECES] }
    }

    /// Whether the reserve has memory, after an attempt to refill it. On `false`, return an error: small allocations may be the last that
    /// succeed.
    #[inline]
    pub fn has_memory(&self) -> bool {
        !self.pieces[PIECES - 1].load(Ordering::Relaxed).is_null() || self.refill()
    }

    #[cold]
    fn refill(&self) -> bool {
        self.pieces.iter().all(|place| !place.load(Ordering::Relaxed).is_null() || allocate_piece(place))
            || !self.pieces[0].load(Ordering::Relaxed).is_null()
    }

    /// Frees a piece of the reserve; returns whether that may help an allocation of `size` bytes.
    #[cold]
    fn free_piece(&self, size: usize) -> bool {
        size <= PIECE.size() && self.pieces.iter().rev().any(free_if_any)
    }

    /// The result of an allocation, attempted again after a piece of the reserve was freed.
    #[inline]
    fn with_retry(&self, size: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
        match allocate() {
            null if null.is_null() && self.free_piece(size) => allocate(),
            memory => memory,
        }
    }
}

/// Allocates a piece of the reserve; returns whether the system has one.
fn allocate_piece(place: &AtomicPtr<u8>) -> bool {
    // SAFETY: the layout has a size. Test: `shortage_is_served_from_the_reserve_and_reported`.
    let piece = unsafe { System.alloc(PIECE) };
    if piece.is_null() {
        return false;
    }
    if place.compare_exchange(null_mut(), piece, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        // SAFETY: allocated above with this layout; another thread's is kept. Test: as above, under Miri.
        unsafe { System.dealloc(piece, PIECE) };
    }
    true
}

/// Frees a piece; returns whether there was one.
fn free_if_any(place: &AtomicPtr<u8>) -> bool {
    let piece = place.swap(null_mut(), Ordering::Relaxed);
    if !piece.is_null() {
        // SAFETY: allocated by `fill` with this layout, and taken by this thread only. Test: as above.
        unsafe { System.dealloc(piece, PIECE) };
    }
    !piece.is_null()
}

impl Default for ReserveAlloc {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: forwards to the system's allocator, again after a refusal. Test: `shortage_is_served_from_the_reserve_and_reported`, and all tests of the
// library that uses it.
unsafe impl GlobalAlloc for ReserveAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the same.
        self.with_retry(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.with_retry(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; a realloc that was refused has left its block as it was.
        self.with_retry(size, || unsafe { System.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ptr::without_provenance_mut;

    use super::*;

    /// Goal: the reserve serves one refused allocation per piece and reports its exhaustion. Method: allocations that the test refuses
    /// once each.
    #[test]
    fn shortage_is_served_from_the_reserve_and_reported() {
        let reserve = ReserveAlloc::new();
        let is_served = |size| {
            let asked = Cell::new(0);
            let memory = reserve.with_retry(size, || {
                asked.set(asked.get() + 1);
                if asked.get() == 1 { null_mut() } else { without_provenance_mut(8) }
            });
            !memory.is_null()
        };
        assert!(!is_served(8), "nothing is set aside yet");
        assert!(reserve.has_memory());
        assert!(!is_served(PIECE.size() + 1), "too large");
        for _ in 0..PIECES {
            assert!(is_served(PIECE.size()));
        }
        assert!(!is_served(8), "every piece was given back");
        assert!(reserve.has_memory() && is_served(8), "there is memory again");
        assert!(reserve.has_memory() && allocate_piece(&reserve.pieces[0]), "one too many is freed at once");
        let layout = Layout::new::<[u64; 4]>();
        // SAFETY: allocated, grown and freed with its layout.
        unsafe {
            let memory = reserve.alloc_zeroed(layout);
            let memory = reserve.realloc(memory, layout, 64);
            assert_eq!(memory.cast::<u64>().read(), 0);
            reserve.dealloc(memory, Layout::new::<[u64; 8]>());
        }
        assert!(reserve.pieces.iter().all(free_if_any));
    }
}
