//! Handles: what a program holds instead of objects, checked at each use.
//!
//! The registry takes the functions from the first word that a handle points to, so a handle must be an address of ours, and
//! must stay readable after it was freed. A range of addresses is reserved once: one word for each place in the table and each
//! of its generations. Freeing an object ends its place's generation, so that its handle is known to be stale until the place
//! has been used 256 times more; and no place is used again before a thousand others are free. Nothing is ever read through an
//! address that a program passes.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dapl::{Cno, Cr, Ep, Error, Evd, Kind, Lmr, Psp, Pz, Result, Rmr, Rsp, Srq, Subtype};

use crate::calls::ia::IaObject;
use crate::pointer::Loan;
use crate::provider::Provider;
use crate::types::{Handle, Word};

/// Objects at a time, and how often a place is used before a handle comes back.
const PLACES: usize = 1 << 16;
const GENERATIONS: usize = 1 << 8;
/// Places that rest before one is used again, so that a handle comes back after 262,144 others at the earliest.
const RESTING: usize = 1 << 10;

/// In a place's word: how many threads look at its object, whether it has one, and its generation.
const LIVE: u64 = 1 << 32;
const LOOKING: u64 = LIVE - 1;
const GENERATION_SHIFT: u32 = 33;

/// An object of the standard's.
#[derive(Clone)]
pub(crate) enum Object {
    Ia(Arc<IaObject>),
    Pz(Pz),
    Lmr(Arc<Lmr>),
    Rmr(Arc<Rmr>),
    Ep(Ep),
    Evd(Evd),
    Cno(Cno),
    Srq(Srq),
    Psp(Arc<Psp>),
    Rsp(Arc<Rsp>),
    Cr(Cr),
}

/// An object, and what a program keeps with it.
pub(crate) struct Entry {
    pub(crate) object: Object,
    /// The handle of the adapter that it belongs to, as a number.
    pub(crate) ia: AtomicU64,
    /// The program's own word (`dat_set_consumer_context`).
    pub(crate) context: AtomicU64,
    /// Private data of the last event, and addresses, that the program may look at.
    pub(crate) private_data: Mutex<Option<Loan>>,
    pub(crate) addresses: Mutex<[Option<Loan>; 2]>,
}

struct Place {
    word: AtomicU64,
    entry: UnsafeCell<Option<Arc<Entry>>>,
}

// SAFETY: the entry is written only by who makes a place live or has ended its generation and seen that nobody looks; it is
// read only by who has counted himself in while the place was live. Test: `handles_of_many_threads_never_meet`.
unsafe impl Sync for Place {}

struct Table {
    /// The words that handles point to.
    words: NonNull<Word>,
    places: Box<[Place]>,
    free: Mutex<Free>,
}

// SAFETY: `words` is a mapping that is never given back, and is used for atomic stores only.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

#[derive(Default)]
struct Free {
    /// In the order in which they were given back.
    given: VecDeque<u32>,
    /// The first place that was never used.
    fresh: u32,
}

impl Free {
    fn take(&mut self) -> Option<u32> {
        if self.given.len() > RESTING || self.fresh as usize == PLACES {
            return self.given.pop_front();
        }
        self.fresh += 1;
        Some(self.fresh - 1)
    }
}

/// The table, made at the first use.
fn table() -> Option<&'static Table> {
    static TABLE: OnceLock<Option<Table>> = OnceLock::new();
    TABLE.get_or_init(Table::new).as_ref()
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn new() -> Option<Self> {
        let len = PLACES * GENERATIONS * size_of::<Word>();
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping disturbs nothing. Test: all of this file.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        let place = || Place { word: AtomicU64::new(0), entry: UnsafeCell::new(None) };
        Some(Self {
            words: NonNull::new(base.cast())?,
            places: (0..PLACES).map(|_| place()).collect(),
            free: Mutex::default(),
        })
    }

    fn base(&self) -> u64 {
        self.words.as_ptr().addr() as u64
    }

    /// The place and generation that an address names, if it is one of ours.
    #[inline]
    fn find(&self, handle: u64) -> Option<(&Place, u64)> {
        let offset = handle.wrapping_sub(self.base());
        if !offset.is_multiple_of(8) || offset >= (PLACES * GENERATIONS * 8) as u64 {
            return None;
        }
        let index = (offset / 8) as usize;
        Some((&self.places[index % PLACES], (index / PLACES) as u64))
    }

    fn insert(&self, entry: Entry, provider: *mut Provider) -> Result<Handle> {
        let full = Error::new(Kind::InsufficientResources, Subtype::ResourceMemory);
        let at = lock(&self.free).take().ok_or(full)? as usize;
        let place = &self.places[at];
        let generation = (place.word.load(Ordering::Acquire) >> GENERATION_SHIFT) as usize % GENERATIONS;
        // SAFETY: the place is not live and was taken off the free list, so nobody else touches its entry.
        unsafe { *place.entry.get() = Some(Arc::new(entry)) };
        // SAFETY: inside of the mapping, which is zeroed: a valid word.
        let word = unsafe { self.words.add(generation * PLACES + at).as_ref() };
        word.store(provider, Ordering::Release);
        place.word.fetch_or(LIVE, Ordering::Release);
        Ok(std::ptr::from_ref(word).cast_mut().cast::<c_void>())
    }

    /// Ends the generation of a handle, and takes its object out when nobody looks at it any more.
    fn remove(&self, handle: u64) -> Option<Arc<Entry>> {
        let (place, generation) = self.find(handle)?;
        let mut old = place.word.load(Ordering::Acquire);
        loop {
            if !names(old, generation) {
                return None;
            }
            let next = (generation + 1) % GENERATIONS as u64;
            let new = next << GENERATION_SHIFT | old & LOOKING;
            match place.word.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        let alone = || (place.word.load(Ordering::Acquire) & LOOKING == 0).then_some(());
        // Looks are short: no call waits while it is counted in.
        host::real::host().poll("handle", None, alone);
        // SAFETY: not live, not on the free list, nobody counted in: only this thread touches the entry.
        let entry = unsafe { (*place.entry.get()).take() };
        let at = (handle.wrapping_sub(self.base()) / 8) as usize % PLACES;
        lock(&self.free).given.push_back(at as u32);
        entry
    }
}

/// Whether a place's word says that it has an object of this generation.
#[inline]
fn names(word: u64, generation: u64) -> bool {
    word & LIVE != 0 && word >> GENERATION_SHIFT == generation
}

/// A look at an object, which is not freed meanwhile. Must be short: whoever frees it waits.
pub(crate) struct Look {
    place: &'static Place,
}

impl std::ops::Deref for Look {
    type Target = Entry;

    #[inline]
    fn deref(&self) -> &Entry {
        // SAFETY: counted in while the place was live, so that nobody writes the entry until this is dropped.
        let entry = unsafe { &*self.place.entry.get() };
        entry.as_ref().expect("a live place has an entry")
    }
}

impl Drop for Look {
    #[inline]
    fn drop(&mut self) {
        self.place.word.fetch_sub(1, Ordering::Release);
    }
}

/// Looks at what a handle names; nothing for NULL, what is freed, and what is no handle.
#[inline]
pub(crate) fn look(handle: Handle) -> Option<Look> {
    let (place, generation) = table()?.find(handle.addr() as u64)?;
    let counted = place.word.fetch_add(1, Ordering::Acquire);
    let look = Look { place };
    names(counted, generation).then_some(look)
}

/// A new handle for an object of the adapter with handle `ia`.
///
/// # Errors
/// `InsufficientResources` when there are too many.
pub(crate) fn insert(object: Object, ia: u64) -> Result<Handle> {
    let provider = match look(from_label(ia)).as_deref() {
        Some(Entry { object: Object::Ia(ia), .. }) => ia.table(),
        _ => crate::provider::table(),
    };
    insert_with(object, ia, provider)
}

/// The same with the table that the registry is to find there.
pub(crate) fn insert_with(object: Object, ia: u64, provider: *mut Provider) -> Result<Handle> {
    let entry = Entry {
        object,
        ia: AtomicU64::new(ia),
        context: AtomicU64::new(0),
        private_data: Mutex::new(None),
        addresses: Mutex::default(),
    };
    let table = table().ok_or(Error::new(Kind::InsufficientResources, Subtype::ResourceMemory))?;
    table.insert(entry, provider)
}

/// Makes a handle stale; what it named.
pub(crate) fn remove(handle: Handle) -> Option<Arc<Entry>> {
    table()?.remove(handle.addr() as u64)
}

/// A handle from the number that events carry.
pub(crate) fn from_label(label: u64) -> Handle {
    match table() {
        Some(table) => table.words.as_ptr().with_addr(label as usize).cast::<c_void>(),
        None => std::ptr::null_mut(),
    }
}

/// The number that events carry for a handle.
pub(crate) fn label(handle: Handle) -> u64 {
    handle.addr() as u64
}

/// The handles of all objects of an adapter.
pub(crate) fn of_ia(ia: u64) -> Vec<Handle> {
    let Some(table) = table() else { return Vec::new() };
    let used = lock(&table.free).fresh as usize;
    let mut found = Vec::new();
    for (at, place) in table.places[..used].iter().enumerate() {
        let generation = (place.word.load(Ordering::Acquire) >> GENERATION_SHIFT) as usize % GENERATIONS;
        let handle = from_label(table.base() + ((generation * PLACES + at) * 8) as u64);
        if look(handle).is_some_and(|entry| entry.ia.load(Ordering::Relaxed) == ia) {
            found.push(handle);
        }
    }
    found
}

/// Defines, for each sort of object, how to get it from a handle.
macro_rules! getters {
    ($($name:ident: $variant:ident($type:ty);)*) => {
        $(
            /// The object of this sort, or `InvalidHandle` with the subtype `wrong`.
            #[inline]
            pub(crate) fn $name(handle: Handle, wrong: Subtype) -> Result<$type> {
                match look(handle).as_deref() {
                    Some(Entry { object: Object::$variant(object), .. }) => Ok(object.clone()),
                    _ => Err(Error::handle(wrong)),
                }
            }
        )*
    };
}

getters! {
    ia: Ia(Arc<IaObject>);
    pz: Pz(Pz);
    lmr: Lmr(Arc<Lmr>);
    rmr: Rmr(Arc<Rmr>);
    ep: Ep(Ep);
    evd: Evd(Evd);
    cno: Cno(Cno);
    srq: Srq(Srq);
    psp: Psp(Arc<Psp>);
    rsp: Rsp(Arc<Rsp>);
    cr: Cr(Cr);
}

/// The same for arguments that may be NULL.
pub(crate) fn optional<T>(
    handle: Handle,
    wrong: Subtype,
    get: fn(Handle, Subtype) -> Result<T>,
) -> Result<Option<T>> {
    if handle.is_null() { Ok(None) } else { get(handle, wrong).map(Some) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use std::sync::{Mutex, MutexGuard};

    use super::*;

    /// The table is the process's: a handle beside one's own may be another test's. They take turns.
    fn alone() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn pz_entry() -> Object {
        let device = fabric::open("shm", &host::real::host()).expect("a device");
        let adapter = dapl::Adapter::new(device);
        let (ia, _) = dapl::Ia::open(&adapter, 0).expect("an adapter");
        Object::Pz(Pz::create(&ia).expect("a zone"))
    }

    #[test]
    fn a_freed_handle_is_stale_though_its_place_is_used_again() {
        let _alone = alone();
        let object = pz_entry();
        let first = insert(object.clone(), 0).expect("room");
        assert!(pz(first, Subtype::HandlePz).is_ok());
        assert!(ep(first, Subtype::HandleEp).is_err(), "it is no endpoint");
        let mut seen = HashSet::from([first]);
        assert!(remove(first).is_some());
        for _ in 0..10_000 {
            let next = insert(object.clone(), 0).expect("room");
            assert!(seen.insert(next), "a handle came back");
            assert!(look(first).is_none() && remove(first).is_none());
            assert!(remove(next).is_some());
        }
    }

    #[test]
    fn what_is_no_handle_is_refused() {
        let _alone = alone();
        let handle = insert(pz_entry(), 0).expect("room");
        let own = label(handle);
        for wrong in
            [0, 1, 2, 8, own + 4, own + 8, own - 8, own.wrapping_sub(1 << 40), u64::MAX, u64::MAX - 7]
        {
            assert!(look(from_label(wrong)).is_none(), "{wrong:x}");
            assert!(remove(from_label(wrong)).is_none(), "{wrong:x}");
        }
        let on_stack = [0_u64; 4];
        assert!(look(on_stack.as_ptr().cast_mut().cast()).is_none());
        assert!(remove(handle).is_some());
    }

    #[test]
    fn handles_of_many_threads_never_meet() {
        let _alone = alone();
        let object = pz_entry();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let object = object.clone();
                scope.spawn(move || {
                    for round in 0..5_000_u64 {
                        let tag = thread << 32 | round;
                        let handle = insert(object.clone(), tag).expect("room");
                        assert_eq!(look(handle).expect("live").ia.load(Ordering::Relaxed), tag);
                        let neighbour = from_label(label(handle) ^ 8);
                        let _ = look(neighbour).map(|entry| entry.ia.load(Ordering::Relaxed));
                        assert_eq!(remove(handle).expect("live").ia.load(Ordering::Relaxed), tag);
                        assert!(look(handle).is_none());
                    }
                });
            }
        });
    }
}
