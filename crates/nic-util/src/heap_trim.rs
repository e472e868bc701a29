//! Heap trim: counts the memory of a device's objects and returns freed memory to the system.
//!
//! Rings and state of objects come from malloc(3). glibc returns freed memory to the system only at the end
//! of a heap: one small block above it keeps everything below resident, and once something large was freed,
//! glibc keeps tens of megabytes at the end, too. After 8,192 queue pairs that were 450 MB, after eight of
//! the largest of rails 80 MB. So when at least half of a large amount was freed (a *shrink*), the device's
//! thread waits until freeing stops and then calls malloc_trim(3). It does so once more if freeing had only
//! paused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use host::{Span, Time};

/// Least amount in bytes that is worth a trim, which takes milliseconds.
const TRIM_MIN: usize = 4 << 20;
/// A shrink ends when nothing was freed for this long.
const QUIET: Span = Span::from_ms(10);
/// Objects that are freed within this time after a shrink belong to it: the program may have been delayed while
/// it closed many objects, and the rest may be too small for another shrink.
const PAUSE: Span = Span::from_ms(500);
/// During a shrink that does not end, memory is returned at this interval.
const PATIENCE: Span = Span::from_secs(1);

/// Approximate size of a memory region in bytes, with its table entries.
pub const REGION_SIZE: usize = 256;

/// Approximate size in bytes of a queue pair or another queue with `entries` entries: 8 KiB were measured for
/// the smallest, 55 KiB for the default size.
pub fn queue_size(entries: u32) -> usize {
    4096 + entries as usize * 256
}

/// Memory that the objects of a device use, in bytes.
#[derive(Debug, Default)]
pub struct HeapTrim {
    used: AtomicUsize,
    /// The maximum since the last shrink.
    peak: AtomicUsize,
    /// Number of times that memory was freed.
    frees: AtomicUsize,
    /// Number of shrinks so far.
    shrinks: AtomicUsize,
    state: Mutex<ThreadState>,
}

/// State of the device's thread.
#[derive(Debug, Default)]
struct ThreadState {
    /// Number of shrinks after which memory was returned.
    handled: usize,
    /// The shrink in progress.
    current: Option<Shrink>,
}

#[derive(Clone, Copy, Debug)]
struct Shrink {
    /// Number of objects freed at the last check, and the time since which it has not changed.
    frees: usize,
    at: Time,
    /// When to return memory at the latest.
    latest: Time,
    /// Whether the memory of all freed objects was returned.
    is_trimmed: bool,
}

/// The next step of the device's thread.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// Check again at this time.
    Wait(Time),
    /// Return memory, and check again at this time.
    Trim(Time),
}

impl HeapTrim {
    /// Counts a new object of `bytes` bytes.
    pub fn count_allocated(&self, bytes: usize) {
        let now = self.used.fetch_add(bytes, Ordering::AcqRel) + bytes;
        self.peak.fetch_max(now, Ordering::AcqRel);
    }

    /// Counts a freed object of `bytes` bytes; returns whether this starts a shrink, for which the caller wakes
    /// the device's thread.
    pub fn count_freed(&self, bytes: usize) -> bool {
        let now = self.used.fetch_sub(bytes, Ordering::AcqRel) - bytes;
        self.frees.fetch_add(1, Ordering::AcqRel);
        let peak = self.peak.load(Ordering::Acquire);
        let is_shrink = now <= peak / 2
            && peak - now >= TRIM_MIN
            && self.peak.compare_exchange(peak, now, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_shrink {
            self.shrinks.fetch_add(1, Ordering::AcqRel);
        }
        is_shrink
    }

    /// Starts a shrink for other memory that was freed; the caller wakes the device's thread.
    pub fn request_trim(&self) {
        self.frees.fetch_add(1, Ordering::AcqRel);
        self.shrinks.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns free memory to the system when a shrink has ended; called by the device's thread. Returns when
    /// to call it again.
    pub fn trim_when_quiet(&self, now: Time) -> Option<Time> {
        match self.next_step(now) {
            Step::Nothing => None,
            Step::Wait(until) => Some(until),
            Step::Trim(again) => {
                trim();
                Some(again)
            }
        }
    }

    fn next_step(&self, now: Time) -> Step {
        // Nothing panics under this lock, which only the device's thread takes.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let shrinks = self.shrinks.load(Ordering::Acquire);
        if shrinks == state.handled {
            return Step::Nothing;
        }
        let frees = self.frees.load(Ordering::Acquire);
        let new = Shrink { frees, at: now, latest: now + PATIENCE, is_trimmed: false };
        let mut shrink = state.current.unwrap_or(new);
        if shrink.frees != frees {
            (shrink.frees, shrink.at, shrink.is_trimmed) = (frees, now, false);
        }
        let (quiet_at, done_at) = (shrink.at + QUIET, shrink.at + PAUSE);
        let step = match shrink.is_trimmed {
            true if now >= done_at => {
                *state = ThreadState { handled: shrinks, current: None };
                return Step::Nothing;
            }
            true => Step::Wait(done_at),
            false if now >= quiet_at => Step::Trim(done_at),
            false if now >= shrink.latest => Step::Trim(quiet_at),
            false => Step::Wait(quiet_at),
        };
        if matches!(step, Step::Trim(_)) {
            (shrink.is_trimmed, shrink.latest) = (now >= quiet_at, now + PATIENCE);
        }
        state.current = Some(shrink);
        step
    }
}

/// Bytes of a block with which the end of a heap is covered, too small for a mapping of its own.
#[cfg(target_env = "gnu")]
const BLOCK: usize = 96 << 10;
/// Most bytes that are allocated to reach the end of a heap. Free blocks below the end are used up first: 134 MiB of them were seen
/// after 8,192 connections.
#[cfg(target_env = "gnu")]
const BLOCKS_BYTES_MAX: usize = 2 << 30;

/// The number of blocks that seem to make the heap grow, after which its end is used up for certain.
#[cfg(target_env = "gnu")]
const GROWN_MAX: usize = 16;

#[cfg(target_env = "gnu")]
fn trim() {
    return_end();
    // Last, because each block that covered the end leaves a page of free memory resident.
    // SAFETY: it accesses free memory only, under the allocator's own locks. Test: `crowds` of the siege.
    unsafe { libc::malloc_trim(0) };
}

/// Returns the end of this thread's heap. malloc_trim skips it, and freeing a block there returns it only above a threshold, which
/// glibc raises up to 64 MiB when large blocks are freed. So everything that is free up to the end is allocated, its pages are
/// returned, and it is freed.
#[cfg(target_env = "gnu")]
fn return_end() {
    // The blocks are a list: each begins with the address of the one before.
    let mut last = std::ptr::null_mut::<*mut libc::c_void>();
    let (mut bytes, mut grown) = (0, 0);
    // SAFETY: it reads the allocator's counters under its locks. Test: `end_of_a_thread_heap_is_returned_although_glibc_keeps_it`.
    let size_of_heaps = || unsafe { libc::mallinfo() }.arena;
    let mut size_before = size_of_heaps();
    while bytes < BLOCKS_BYTES_MAX && grown < GROWN_MAX {
        // SAFETY: freed below. Test: as above.
        let block = unsafe { libc::malloc(BLOCK) };
        if block.is_null() {
            break;
        }
        let size = size_of_heaps();
        // The end is used up, and the heap had to grow; or the heap of another thread changed, and this block is not of the end.
        grown += usize::from(size != size_before && !is_resident(block.wrapping_byte_add(BLOCK / 2)));
        size_before = size;
        bytes += BLOCK;
        let link = block.cast::<*mut libc::c_void>();
        // SAFETY: the block is ours, longer than an address, and aligned for one by malloc. Test: as above.
        unsafe { link.write(last.cast()) };
        last = link;
    }
    while !last.is_null() {
        let block = last.cast::<libc::c_void>();
        // SAFETY: the loop above wrote it. Test: as above.
        last = unsafe { last.read() }.cast();
        let skip = block.addr().next_multiple_of(PAGE) - block.addr();
        let pages = (BLOCK - skip) / PAGE * PAGE;
        // SAFETY: whole pages inside of a block that is allocated here and that nobody else has, so that their contents may be lost;
        // then the block is freed. Test: as above.
        unsafe {
            libc::madvise(block.wrapping_byte_add(skip), pages, libc::MADV_DONTNEED);
            libc::free(block);
        }
    }
}

/// Whether the page at an address is in memory.
#[cfg(target_env = "gnu")]
fn is_resident(address: *const libc::c_void) -> bool {
    let page = address.wrapping_byte_sub(address.addr() % PAGE);
    let mut state = 0;
    // SAFETY: it reads the kernel's tables only; an address that is not mapped is an error. Test:
    // `end_of_a_thread_heap_is_returned_while_another_heap_grows`.
    let found = unsafe { libc::mincore(page.cast_mut(), 1, &mut state) };
    found == 0 && state & 1 == 1
}

/// Bytes of a page; where pages are larger, madvise(2) refuses what is not aligned, and the end stays.
#[cfg(target_env = "gnu")]
const PAGE: usize = 4096;

/// Other C libraries return memory on their own, or not at all.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Span = Span::from_ms(1);
    const PIECE: usize = 16 << 10;
    const PIECES: usize = TRIM_MIN / PIECE;

    /// 6 MiB of 1 KiB each.
    #[cfg(target_env = "gnu")]
    const BLOCKS: usize = 6 << 10;

    /// Resident pages of these page-aligned addresses.
    #[cfg(target_env = "gnu")]
    fn resident(pages: &[usize]) -> usize {
        pages.iter().filter(|page| is_resident(std::ptr::without_provenance(**page))).count()
    }

    /// Resident pages of the end of a thread's heap before and after a trim: the thread frees a mapping of 24 MiB, after which glibc
    /// keeps heaps' ends of up to 48 MiB; then `gaps` blocks of 200 KiB, which stay apart as small ones between them are in use; then
    /// 6 MiB in small blocks, which become the end.
    #[cfg(target_env = "gnu")]
    fn resident_before_and_after_trim(gaps: usize) -> (usize, usize) {
        drop(std::hint::black_box(vec![1_u8; 24 << 20]));
        let gaps: Vec<[Vec<u8>; 2]> =
            (0..gaps).map(|_| [Vec::with_capacity(200 << 10), Vec::with_capacity(64)]).collect();
        // Below the blocks.
        let mut pages: Vec<usize> = Vec::with_capacity(BLOCKS);
        let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; 1 << 10]).collect();
        pages.extend(blocks.iter().map(|block| block.as_ptr().addr() & !(PAGE - 1)));
        pages.dedup();
        drop(blocks);
        let _in_use: Vec<Vec<u8>> = gaps.into_iter().map(|[_, between]| between).collect();
        let before = resident(&pages);
        trim();
        (before, resident(&pages))
    }

    /// Goal: the end of a thread's heap is returned, too, where glibc keeps it. Method: a thread, which has a heap of its own.
    #[cfg(target_env = "gnu")]
    #[test]
    fn end_of_a_thread_heap_is_returned_although_glibc_keeps_it() {
        let measure = std::thread::spawn(|| resident_before_and_after_trim(0));
        let (before, after) = measure.join().expect("a thread that counts");
        assert!(before > 1000, "{before} pages: glibc returned the end by itself, which shows nothing");
        assert!(after < 100, "{after} of {before} pages are still resident");
    }

    /// Goal: free memory below the end, which an allocation gets first, does not stop a trim. Method: 200 MiB in blocks apart from
    /// each other.
    #[cfg(target_env = "gnu")]
    #[test]
    fn end_of_a_thread_heap_is_returned_although_much_is_free_below_it() {
        let measure = std::thread::spawn(|| resident_before_and_after_trim(1024));
        let (before, after) = measure.join().expect("a thread that counts");
        assert!(before > 1000, "{before} pages: glibc returned the end by itself, which shows nothing");
        assert!(after < 100, "{after} of {before} pages are still resident");
    }

    /// Goal: heaps of other threads, which glibc's counters include, do not stop a trim. Method: another thread's heap grows all
    /// the time.
    #[cfg(target_env = "gnu")]
    #[test]
    fn end_of_a_thread_heap_is_returned_while_another_heap_grows() {
        let finished = std::sync::atomic::AtomicBool::new(false);
        let results = std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut blocks: Vec<Vec<u8>> = Vec::new();
                while !finished.load(Ordering::Acquire) {
                    // Only the first page is resident.
                    blocks.push(Vec::with_capacity(64 << 10));
                    if blocks.len() >= 4096 {
                        blocks.clear();
                    }
                }
            });
            let rounds: Vec<_> =
                (0..4).map(|_| threads.spawn(|| resident_before_and_after_trim(0)).join()).collect();
            finished.store(true, Ordering::Release);
            rounds
        });
        for result in results {
            let (before, after) = result.expect("a thread that counts");
            assert!(after < 100, "{after} of {before} pages are still resident");
        }
    }

    #[test]
    fn shrinks_start_for_large_amounts_only() {
        let shrinks = |count: usize| {
            let heap = HeapTrim::default();
            (0..count).for_each(|_| heap.count_allocated(PIECE));
            (0..count).filter(|_| heap.count_freed(PIECE)).count()
        };
        assert_eq!((shrinks(PIECES - 1), shrinks(PIECES), shrinks(PIECES * 16)), (0, 1, 5));
    }

    /// Goal: a few large objects count as much as many small ones. Method: one object of the size that starts
    /// a shrink.
    #[test]
    fn large_queue_starts_a_shrink_and_small_ones_do_not() {
        let shrinks = |bytes: usize| {
            let heap = HeapTrim::default();
            heap.count_allocated(bytes);
            heap.count_freed(bytes)
        };
        assert_eq!(
            (shrinks(queue_size(1)), shrinks(REGION_SIZE), shrinks(queue_size(1 << 15))),
            (false, false, true)
        );
    }

    /// Goal: memory freed after the first half is returned as well. Method: after the half, one object is
    /// freed per millisecond; memory is returned once, 10 ms after the last.
    #[test]
    fn memory_is_returned_after_the_last_object_was_freed() {
        let heap = HeapTrim::default();
        (0..PIECES * 2).for_each(|_| heap.count_allocated(PIECE));
        assert_eq!(heap.next_step(Time::ZERO), Step::Nothing);
        assert!((0..PIECES).any(|_| heap.count_freed(PIECE)), "freeing half starts a shrink");
        let mut now = Time::ZERO;
        assert_eq!(heap.next_step(now), Step::Wait(now + QUIET));
        for _ in 0..PIECES {
            now = now + MS;
            heap.count_freed(PIECE);
            assert_eq!(heap.next_step(now), Step::Wait(now + QUIET), "at {now:?}");
        }
        assert_eq!(heap.next_step(now + MS), Step::Wait(now + QUIET), "called too early");
        assert_eq!(heap.next_step(now + QUIET), Step::Trim(now + PAUSE));
        assert_eq!(heap.next_step(now + QUIET * 2), Step::Wait(now + PAUSE));
        assert_eq!(heap.next_step(now + PAUSE), Step::Nothing);
    }

    /// Goal: if freeing pauses, memory is still returned completely. Method: half is freed and returned;
    /// after a pause the rest is freed, which is too little for a shrink.
    #[test]
    fn memory_freed_after_a_pause_is_returned() {
        let heap = HeapTrim::default();
        (0..PIECES).for_each(|_| heap.count_allocated(PIECE));
        assert_eq!(
            (0..PIECES).filter(|_| heap.count_freed(PIECE)).count(),
            1,
            "the last one starts a shrink"
        );
        (0..PIECES / 2).for_each(|_| heap.count_allocated(PIECE));
        let mut now = Time::ZERO + QUIET;
        assert_eq!(heap.next_step(Time::ZERO), Step::Wait(now));
        assert_eq!(heap.next_step(now), Step::Trim(Time::ZERO + PAUSE));
        now = Time::ZERO + MS * 499;
        assert!(!(0..PIECES / 2).any(|_| heap.count_freed(PIECE)), "too little for a shrink");
        assert_eq!(heap.next_step(now), Step::Wait(now + QUIET));
        assert_eq!(heap.next_step(now + QUIET), Step::Trim(now + PAUSE));
        assert_eq!(heap.next_step(now + PAUSE), Step::Nothing);
    }

    /// While queue pairs are freed without end, memory is still returned, once per second.
    #[test]
    fn memory_is_returned_once_per_second_during_an_endless_shrink() {
        let heap = HeapTrim::default();
        (0..PIECES).for_each(|_| heap.count_allocated(PIECE));
        assert!((0..PIECES).any(|_| heap.count_freed(PIECE)), "freeing everything starts a shrink");
        let mut given = Vec::new();
        for ms in 0..2500 {
            heap.count_allocated(PIECE);
            heap.count_freed(PIECE);
            let now = Time::ZERO + MS * ms;
            if let Step::Trim(again) = heap.next_step(now) {
                assert_eq!(again, now + QUIET, "the shrink has not ended");
                given.push(ms);
            }
        }
        assert_eq!(given, [1000, 2000]);
    }
}
