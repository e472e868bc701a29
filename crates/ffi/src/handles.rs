//! Opaque handles that a program holds instead of objects, checked at each use.
//!
//! Some standards let other libraries read through a handle: DAT's registry loads a provider's function table from the first word behind
//! one. Such a handle is an address of ours, and the word must stay readable after its object was removed. The table therefore reserves
//! one range of addresses, with a word for each slot and each of its generations. Otherwise handles are numbers that are never valid
//! addresses of a program.
//!
//! Removing an object ends its slot's generation. Its handle is recognized as stale until the slot has been used `GENERATIONS` times
//! more. Freed slots are reused in order, and only after a number of others have been freed. The table never reads through an address
//! that a program passes. It allocates slots in chunks, with the first object of a chunk.
//!
//! # Lifetime of an object
//!
//! A slot's word holds its generation, its state and the number of its readers. [`Table::get`] increments the count before it checks the
//! generation; dropping an [`ObjectRef`] decrements it. Removing clears the bit [`LIVE`], which only one thread can do, and sets [`ENDING`];
//! the last reader then drops the object, so that removing never waits. A lookup of a stale handle also counts as a reader for a moment;
//! if it is the last one, it drops the object.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering as PlainOrdering};

use crate::sync::{AtomicU64, Mutex, Ordering, UnsafeCell, lock};

/// A handle, in C's type.
pub type Handle = *mut c_void;

/// The word behind a handle. This code only stores to it, so the loom models leave it out.
type Word = AtomicPtr<c_void>;

/// Layout of a slot's word: the number of readers, whether its object can be looked up, whether the last reader drops it, and its
/// generation.
const READERS: u64 = LIVE - 1;
const LIVE: u64 = 1 << 32;
const ENDING: u64 = 1 << 33;
const GENERATION_SHIFT: u32 = 34;

/// The first numeric handle: not a canonical address of x86-64, so that no pointer of a program equals it.
const NUMBERS: usize = 1 << 62;

/// Objects by handle: at most `CHUNKS` times `EACH` at a time, for `GENERATIONS` uses of each slot. Slots are allocated in chunks of
/// `EACH`. With `WORDS`, handles are addresses of readable words; otherwise they are numbers.
pub struct Table<T, const CHUNKS: usize, const EACH: usize, const GENERATIONS: usize, const WORDS: bool> {
    /// The words behind handles, one for each handle; the kernel backs them with memory on first use.
    words: Option<NonNull<Word>>,
    /// Chunks of slots; null until allocated.
    chunks: [AtomicPtr<HandleCell<T>>; CHUNKS],
    free: Mutex<Free>,
}

struct HandleCell<T> {
    word: AtomicU64,
    object: UnsafeCell<Option<T>>,
}

/// Why [`Table::insert`] returns no handle; it drops the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// Every slot of the table has an object.
    Full,
    /// This many bytes could not be allocated.
    NoMemory(usize),
}

// SAFETY: an object is written only by the thread that took its slot off the free list, or that cleared `ENDING` while there were no
// readers; only threads that were counted while it was live read it. `words` is only stored to, atomically. A chunk is published complete
// and once, and lives as long as the table. Tests: `loom_object_is_dropped_once_and_after_all_references`, `objects_of_many_threads_are_not_confused`.
unsafe impl<T: Send + Sync, const C: usize, const E: usize, const G: usize, const W: bool> Send
    for Table<T, C, E, G, W>
{
}
// SAFETY: as above.
unsafe impl<T: Send + Sync, const C: usize, const E: usize, const G: usize, const W: bool> Sync
    for Table<T, C, E, G, W>
{
}

/// Slots without an object.
struct Free {
    /// Freed slots, oldest first.
    given: VecDeque<usize>,
    /// The first slot that was never used.
    fresh: usize,
    /// The number of freed slots that are kept unused.
    resting: usize,
}

impl Free {
    /// The oldest freed slot, if enough others were freed since or all `places` have been used; otherwise the caller takes an unused
    /// slot.
    fn take_rested(&mut self, places: usize) -> Option<usize> {
        if self.given.len() > self.resting || self.fresh == places { self.given.pop_front() } else { None }
    }
}

impl<T, const CHUNKS: usize, const EACH: usize, const GENERATIONS: usize, const WORDS: bool>
    Table<T, CHUNKS, EACH, GENERATIONS, WORDS>
{
    const PLACES: usize = CHUNKS * EACH;

    const LAYOUT: Layout = {
        assert!(CHUNKS.is_power_of_two() && EACH.is_power_of_two());
        assert!(GENERATIONS.is_power_of_two() && GENERATIONS <= 1 << 24);
        match Layout::array::<Word>(Self::PLACES * GENERATIONS) {
            Ok(layout) => layout,
            Err(_) => panic!("more words than there are addresses"),
        }
    };

    /// An empty table that keeps `resting` freed slots unused; `None` if the words cannot be allocated.
    pub fn new(resting: usize) -> Option<Self> {
        let words = if WORDS {
            // SAFETY: the layout's size is not 0, as all factors are at least 1. Test: all of this file, under Miri.
            Some(NonNull::new(unsafe { alloc_zeroed(Self::LAYOUT) })?.cast())
        } else {
            None
        };
        let chunks = [const { AtomicPtr::new(null_mut()) }; CHUNKS];
        let free = Mutex::new(Free { given: VecDeque::new(), fresh: 0, resting });
        Some(Self { words, chunks, free })
    }

    /// The cell of a slot, if its chunk is allocated.
    #[inline]
    fn cell(&self, at: usize) -> Option<&HandleCell<T>> {
        let chunk = self.chunks[at / EACH].load(PlainOrdering::Acquire);
        // SAFETY: not null, so a whole chunk, which lives as long as the table. Test: all of this file, under Miri.
        (!chunk.is_null()).then(|| unsafe { &*chunk.wrapping_add(at % EACH) })
    }

    /// A slot without an object, and its cell.
    fn take_free_slot(&self) -> Result<(usize, &HandleCell<T>), InsertError> {
        let mut free = lock(&self.free);
        if let Some(at) = free.take_rested(Self::PLACES) {
            return Ok((at, self.cell(at).expect("used before")));
        }
        let at = free.fresh;
        if at == Self::PLACES {
            return Err(InsertError::Full);
        }
        if self.cell(at).is_none() {
            self.grow(at / EACH)?;
        }
        free.fresh += 1;
        Ok((at, self.cell(at).expect("just allocated")))
    }

    /// Allocates a chunk. The caller holds the lock of the free list.
    #[cold]
    fn grow(&self, chunk: usize) -> Result<(), InsertError> {
        let mut cells = Vec::<HandleCell<T>>::new();
        let refused = |_| InsertError::NoMemory(EACH * size_of::<HandleCell<T>>());
        cells.try_reserve_exact(EACH).map_err(refused)?;
        cells.resize_with(EACH, || HandleCell { word: AtomicU64::new(0), object: UnsafeCell::new(None) });
        let cells = Box::into_raw(cells.into_boxed_slice());
        self.chunks[chunk].store(cells.cast(), PlainOrdering::Release);
        Ok(())
    }

    /// The address of the first handle.
    #[inline]
    fn base(&self) -> usize {
        match self.words {
            Some(words) if WORDS => words.addr().get(),
            _ => NUMBERS,
        }
    }

    /// The handle of a slot in a generation.
    fn handle_of_slot(&self, at: usize, generation: u64) -> Handle {
        self.handle((self.base() + (generation as usize * Self::PLACES + at) * size_of::<Word>()) as u64)
    }

    /// A handle for `object`. With `WORDS`, `word` is stored behind it for other libraries to read.
    ///
    /// # Errors
    /// [`InsertError`]; the object is dropped.
    pub fn insert(&self, object: T, word: *mut c_void) -> Result<Handle, InsertError> {
        let (at, cell) = self.take_free_slot()?;
        // The lock of the free list orders this after the end of the previous generation.
        let generation = cell.word.load(Ordering::Relaxed) >> GENERATION_SHIFT;
        // SAFETY: the slot is not live and was taken off the free list, so no other thread accesses its object. Tests: those of `Sync`.
        cell.object.with_mut(|slot| unsafe { *slot = Some(object) });
        if let Some(words) = self.words {
            let behind = words.as_ptr().wrapping_add(generation as usize * Self::PLACES + at);
            // SAFETY: inside of the words, which are zeroed: valid. Test: `word_behind_a_stale_handle_is_readable`.
            unsafe { &*behind }.store(word, PlainOrdering::Release);
        }
        cell.word.fetch_or(LIVE, Ordering::Release);
        Ok(self.handle_of_slot(at, generation))
    }

    /// Looks up a handle; `None` if it is NULL, stale or invalid.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<ObjectRef<'_, T, CHUNKS, EACH, GENERATIONS, WORDS>> {
        let (at, generation) = Self::decode(handle.addr().wrapping_sub(self.base()))?;
        let cell = self.cell(at)?;
        let counted = cell.word.fetch_add(1, Ordering::Acquire);
        let object = ObjectRef { table: self, at, cell };
        is_live_in(counted, generation).then_some(object)
    }

    /// [`Table::get`] without counting a reader.
    ///
    /// # Safety
    /// While the result is in use, no handle of this table may be removed, and no [`ObjectRef`] at a removed object may be dropped.
    #[inline(always)]
    pub unsafe fn get_unprotected(&self, handle: Handle) -> Option<&T> {
        let (at, generation) = Self::decode(handle.addr().wrapping_sub(self.base()))?;
        let cell = self.cell(at)?;
        if !is_live_in(cell.word.load(Ordering::Acquire), generation) {
            return None;
        }
        // SAFETY: live now and, by the caller's promise, while it is used, so that no thread writes it. Test:
        // `get_unprotected_finds_what_get_does`.
        cell.object.with(|slot| unsafe { &*slot }).as_ref()
    }

    /// Makes a handle stale; its last reader drops the object, which may be this call. Returns whether the handle was live.
    pub fn remove(&self, handle: Handle) -> bool {
        let Some(object) = self.get(handle) else { return false };
        let word = &object.cell.word;
        let mut old = word.load(Ordering::Relaxed);
        let generation = old >> GENERATION_SHIFT;
        loop {
            // This reader keeps the slot from being reused, so its generation can only have ended.
            if old & LIVE == 0 {
                return false;
            }
            let next = (generation + 1) % GENERATIONS as u64;
            let new = next << GENERATION_SHIFT | ENDING | old & READERS;
            match word.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
    }

    /// The handles of all objects.
    pub fn handles(&self) -> Vec<Handle> {
        let used = lock(&self.free).fresh;
        let word = |at: usize| Some((at, self.cell(at)?.word.load(Ordering::Acquire)));
        let live = (0..used).filter_map(word).filter(|(_, word)| word & LIVE != 0);
        live.map(|(at, word)| self.handle_of_slot(at, word >> GENERATION_SHIFT)).collect()
    }

    /// The handle with this number, valid or not.
    pub fn handle(&self, number: u64) -> Handle {
        let begin: Handle = self.words.map_or(null_mut(), |words| words.as_ptr().cast());
        begin.with_addr(number as usize)
    }

    /// The index of a handle among all possible ones; `None` for an invalid handle.
    pub fn index(&self, handle: Handle) -> Option<usize> {
        let offset = handle.addr().wrapping_sub(self.base());
        Self::decode(offset).map(|_| offset / size_of::<Word>())
    }

    /// The handle with this index, valid or not; NULL beyond the last.
    pub fn handle_at(&self, index: usize) -> Handle {
        if index < Self::PLACES * GENERATIONS {
            self.handle_of_slot(index % Self::PLACES, (index / Self::PLACES) as u64)
        } else {
            null_mut()
        }
    }

    /// The slot and generation of the handle `offset` bytes after the first; `None` for an invalid handle.
    #[inline]
    fn decode(offset: usize) -> Option<(usize, u64)> {
        if !offset.is_multiple_of(size_of::<Word>()) || offset >= Self::LAYOUT.size() {
            return None;
        }
        let index = offset / size_of::<Word>();
        Some((index % Self::PLACES, (index / Self::PLACES) as u64))
    }

    /// Drops the object of a slot without readers, unless another thread has begun to.
    #[cold]
    fn drop_object(&self, at: usize, cell: &HandleCell<T>) {
        let word = cell.word.load(Ordering::Relaxed);
        // Acquire: all readers' accesses happen before the drop. Each reader released its count, and all changes of the word in between
        // are read-modify-writes.
        let won = word & (ENDING | READERS) == ENDING
            && cell.word.compare_exchange(word, word & !ENDING, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if won {
            // SAFETY: not live, not on the free list, no reader that saw it live, and only one thread clears `ENDING`: only this thread
            // accesses the object. Tests: those of `Sync`.
            let object = cell.object.with_mut(|slot| unsafe { (*slot).take() });
            drop(object);
            lock(&self.free).given.push_back(at);
        }
    }
}

impl<T, const CHUNKS: usize, const EACH: usize, const GENERATIONS: usize, const WORDS: bool> Drop
    for Table<T, CHUNKS, EACH, GENERATIONS, WORDS>
{
    fn drop(&mut self) {
        for chunk in &mut self.chunks {
            let chunk = std::mem::replace(chunk.get_mut(), null_mut());
            if !chunk.is_null() {
                // SAFETY: a box of `EACH` cells that `grow` leaked, freed once. Test: all of this file, under Miri.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(chunk, EACH)) });
            }
        }
        if let Some(words) = self.words {
            // SAFETY: allocated by `new` with this layout, freed once. Test: all of this file, under Miri.
            unsafe { dealloc(words.as_ptr().cast(), Self::LAYOUT) };
        }
    }
}

impl<T, const CHUNKS: usize, const EACH: usize, const GENERATIONS: usize, const WORDS: bool> fmt::Debug
    for Table<T, CHUNKS, EACH, GENERATIONS, WORDS>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} of {} places live)", self.handles().len(), Self::PLACES)
    }
}

/// Whether a slot's word has a live object of this generation.
#[inline]
fn is_live_in(word: u64, generation: u64) -> bool {
    word & LIVE != 0 && word >> GENERATION_SHIFT == generation
}

/// A reader's reference to an object, which is not dropped while this exists.
pub struct ObjectRef<
    'a,
    T,
    const CHUNKS: usize,
    const EACH: usize,
    const GENERATIONS: usize,
    const WORDS: bool,
> {
    table: &'a Table<T, CHUNKS, EACH, GENERATIONS, WORDS>,
    at: usize,
    cell: &'a HandleCell<T>,
}

impl<T, const C: usize, const E: usize, const G: usize, const W: bool> std::ops::Deref
    for ObjectRef<'_, T, C, E, G, W>
{
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: counted as a reader while the slot was live, so that no thread writes the object until this is dropped. Tests: those of
        // `Sync`.
        let object = self.cell.object.with(|slot| unsafe { &*slot });
        object.as_ref().expect("a live slot has an object")
    }
}

impl<T, const C: usize, const E: usize, const G: usize, const W: bool> Drop for ObjectRef<'_, T, C, E, G, W> {
    #[inline]
    fn drop(&mut self) {
        let before = self.cell.word.fetch_sub(1, Ordering::Release);
        if before & (ENDING | READERS) == ENDING | 1 {
            self.table.drop_object(self.at, self.cell);
        }
    }
}

impl<T: fmt::Debug, const C: usize, const E: usize, const G: usize, const W: bool> fmt::Debug
    for ObjectRef<'_, T, C, E, G, W>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::*;

    /// Small enough for Miri.
    type Small<T> = Table<T, 1, 16, 4, true>;

    fn small<T>() -> Small<T> {
        Table::new(4).expect("memory")
    }

    #[test]
    fn stale_handle_is_refused_after_its_slot_is_reused() {
        let table = small();
        let first = table.insert(0, null_mut()).expect("room");
        let mut seen = HashSet::from([first]);
        assert!(table.remove(first));
        // Four others rest at a time, and each slot has four generations: this many handles come before the first is reused.
        for number in 1..5 * 4 {
            let next = table.insert(number, null_mut()).expect("room");
            assert!(seen.insert(next), "handle {number} came back");
            assert!(table.get(first).is_none() && !table.remove(first));
            assert_eq!(*table.get(next).expect("live"), number);
            assert!(table.remove(next));
        }
    }

    #[test]
    fn invalid_handles_are_refused() {
        let table = small();
        let handle = table.insert((), null_mut()).expect("room");
        let own = handle.addr() as u64;
        for wrong in
            [0, 1, 2, 8, own + 4, own + 8, own - 8, own.wrapping_sub(1 << 40), u64::MAX, u64::MAX - 7]
        {
            let wrong = table.handle(wrong);
            assert!(table.get(wrong).is_none() && !table.remove(wrong), "{wrong:?}");
        }
        let on_stack = [0_u64; 4];
        assert!(table.get(on_stack.as_ptr().cast_mut().cast()).is_none());
        assert_eq!(table.handles(), [table.handle(own)]);
        let index = table.index(handle).expect("a handle");
        assert_eq!((table.handle_at(index), table.index(table.handle(own + 4))), (handle, None));
        assert!(table.handle_at(16 * 4 - 1).addr() > 0 && table.handle_at(16 * 4).is_null());
        assert!(table.remove(handle) && table.handles().is_empty());
    }

    #[test]
    fn full_table_refuses_objects() {
        let table = small();
        let handles: Vec<_> = (0..16).map(|n| table.insert(n, null_mut()).expect("room")).collect();
        assert_eq!(table.insert(16, null_mut()), Err(InsertError::Full));
        assert!(table.remove(handles[3]));
        assert!(table.insert(16, null_mut()).is_ok());
    }

    /// Goal: slots of every chunk are allocated on first use, and handles that are numbers behave as addresses do.
    #[test]
    fn slots_are_allocated_by_chunks_and_handles_are_numbers() {
        const EACH: usize = 8;
        type Chunked = Table<usize, 4, EACH, 4, false>;
        let table = Chunked::new(16).expect("it takes none");
        let chunks = |table: &Chunked| {
            table.chunks.iter().filter(|chunk| !chunk.load(PlainOrdering::Relaxed).is_null()).count()
        };
        assert!(table.get(table.handle_at(3 * EACH)).is_none(), "of a chunk that is not there");
        let handles: Vec<_> = (0..EACH).map(|n| table.insert(n, null_mut()).expect("room")).collect();
        assert_eq!(chunks(&table), 1);
        let next = table.insert(EACH, null_mut()).expect("room");
        assert_eq!((chunks(&table), table.get(next).as_deref()), (2, Some(&EACH)));
        for (n, handle) in handles.iter().enumerate() {
            assert_eq!(table.get(*handle).as_deref(), Some(&n));
            assert_eq!(table.index(*handle).map(|index| table.handle_at(index)), Some(*handle));
            assert!(handle.addr() >= NUMBERS && handle.addr() < NUMBERS << 1);
        }
        assert_eq!(table.handles().len(), EACH + 1);
        assert!(table.remove(handles[7]) && table.get(handles[7]).is_none() && !table.remove(handles[7]));
        let on_stack = 0_u64;
        assert!(table.get((&raw const on_stack).cast_mut().cast()).is_none());
    }

    #[test]
    fn word_behind_a_stale_handle_is_readable() {
        let table = small();
        let mut target = 5_u64;
        let handle = table.insert((), (&raw mut target).cast()).expect("room");
        // SAFETY: a handle's word stays readable as long as the table.
        let read = || unsafe { *handle.cast::<*mut u64>() };
        assert_eq!(read(), &raw mut target);
        table.remove(handle);
        assert_eq!(read(), &raw mut target);
    }

    #[test]
    fn get_unprotected_finds_what_get_does() {
        let table = small();
        let handle = table.insert(7, null_mut()).expect("room");
        // SAFETY: only this thread uses the table.
        let get_unprotected = |handle| unsafe { table.get_unprotected(handle) }.copied();
        assert_eq!((get_unprotected(handle), get_unprotected(null_mut())), (Some(7), None));
        table.remove(handle);
        assert_eq!(get_unprotected(handle), None);
    }

    #[test]
    fn object_is_dropped_with_its_last_reference() {
        let table = small();
        let object = Arc::new(());
        let handle = table.insert(object.clone(), null_mut()).expect("room");
        let (one, two) = (table.get(handle).expect("live"), table.get(handle).expect("live"));
        assert!(table.remove(handle), "though it is looked at, and by this thread");
        assert!(table.get(handle).is_none() && !table.remove(handle));
        drop(one);
        assert_eq!(Arc::strong_count(&two), 2);
        drop(two);
        assert_eq!(Arc::strong_count(&object), 1);
    }

    #[test]
    fn objects_of_many_threads_are_not_confused() {
        let table = small();
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let tag = thread << 32 | round;
                        let handle = table.insert(Box::new(tag), null_mut()).expect("room");
                        assert_eq!(**table.get(handle).expect("live"), tag);
                        let neighbour = table.handle(handle.addr() as u64 ^ 8);
                        let _ = table.get(neighbour).map(|object| **object);
                        assert!(table.remove(handle));
                        // Other threads may have reused the slot and reached the same handle again.
                        assert!(table.get(handle).is_none_or(|object| **object != tag));
                    }
                });
            }
        });
        assert!(table.handles().is_empty());
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// A handle that is sent to another thread of a model.
    #[derive(Clone, Copy)]
    struct Sent(Handle);

    // SAFETY: an address that is checked at each use.
    unsafe impl Send for Sent {}

    /// Counts how often it is dropped.
    struct Object(u64, Arc<AtomicU64>);

    impl Drop for Object {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn loom_object_is_dropped_once_and_after_all_references() {
        loom::model(|| {
            let ends = Arc::new(AtomicU64::new(0));
            let table = Arc::new(Table::<Object, 1, 1, 2, true>::new(0).expect("memory"));
            let first = Sent(table.insert(Object(7, ends.clone()), null_mut()).ok().expect("room"));
            let other = {
                let table = table.clone();
                thread::spawn(move || {
                    let first = first;
                    if let Some(object) = table.get(first.0) {
                        assert_eq!(object.0, 7);
                    }
                })
            };
            assert!(table.remove(first.0));
            assert!(table.get(first.0).is_none());
            // The slot may still have a reader; if not, it is reused.
            if let Ok(second) = table.insert(Object(8, ends.clone()), null_mut()) {
                assert_eq!(ends.load(Ordering::Relaxed), 1);
                assert!(table.get(first.0).is_none());
                assert_eq!(table.get(second).expect("live").0, 8);
                assert!(table.remove(second));
            }
            other.join().expect("no panic");
            let made = ends.load(Ordering::Relaxed);
            drop(table);
            assert!(made >= 1, "the first has ended");
        });
    }

    #[test]
    fn loom_one_of_two_removals_succeeds() {
        loom::model(|| {
            let ends = Arc::new(AtomicU64::new(0));
            let table = Arc::new(Table::<Object, 1, 1, 2, true>::new(0).expect("memory"));
            let handle = Sent(table.insert(Object(7, ends.clone()), null_mut()).ok().expect("room"));
            let other = {
                let table = table.clone();
                thread::spawn(move || {
                    let handle = handle;
                    table.remove(handle.0)
                })
            };
            let mine = table.remove(handle.0);
            let theirs = other.join().expect("no panic");
            assert!(mine ^ theirs, "one of them did");
            assert_eq!(ends.load(Ordering::Relaxed), 1);
            assert_eq!(lock(&table.free).given.len(), 1);
        });
    }
}
