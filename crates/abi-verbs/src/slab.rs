//! [`Slab`]: storage for objects that programs hold by address. The part that C sees comes first, followed by ours.
//!
//! Objects of one type are stored in an array that is mapped once and never unmapped, so an address is validated by arithmetic, and no
//! address outside of the array is dereferenced. Each place has a flag that says whether its object is alive. Freed places wait before
//! they are reused, so a destroyed object is detected for a while. A program that uses a stale address for longer reaches another
//! object of the type.
//!
//! As the manual pages require, a program does not destroy an object while another of its threads uses it in a call. Lookups are
//! therefore not counted, which would cost time on each message.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use ffi::lock;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::answer::{Answer, NullValue};
use crate::errno::{Errno, errno};

/// An object type stored in a slab.
pub(crate) trait Object: Sized + Send + Sync + 'static {
    /// The part that C sees.
    type C: Copy + 'static;
    /// The name of that type in C, for messages.
    const NAME: &'static str;
    /// Offset from the first byte to the address that programs hold.
    const HANDLE_AT: usize = 0;
    /// The function that destroys it, for objects that a program must destroy.
    const END: Option<&'static str> = None;
    /// Maximum number of objects.
    const PLACES: usize;
    /// The slab of this type.
    fn slab() -> &'static Slab<Self>;
}

/// Number of freed places that wait before one is reused.
const RESTING: usize = 256;

/// All objects of one type.
pub(crate) struct Slab<T: Object> {
    places: OnceLock<NonNull<SlabCell<T>>>,
    free: Mutex<Free>,
}

/// A place of the array, at [`STRIDE`](Self::STRIDE) bytes from the next.
#[repr(C, align(64))]
struct SlabCell<T: Object> {
    c: UnsafeCell<MaybeUninit<T::C>>,
    is_live: AtomicBool,
    body: UnsafeCell<MaybeUninit<T>>,
}

impl<T: Object> SlabCell<T> {
    /// A power of two, so that checking an address takes no multiplication. Pages that are never touched cost nothing.
    const STRIDE: usize = size_of::<Self>().next_power_of_two();
}

struct Free {
    given: VecDeque<usize>,
    fresh: usize,
}

// SAFETY: places are accessed only through `Held`, whose rules are below. Test: `an_object_is_found_until_it_is_removed`.
unsafe impl<T: Object> Sync for Slab<T> {}
// SAFETY: as above.
unsafe impl<T: Object> Send for Slab<T> {}

impl<T: Object> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { places: OnceLock::new(), free: Mutex::new(Free { given: VecDeque::new(), fresh: 0 }) }
    }

    /// The array. It is mapped rather than allocated, because only the pages in use of tens of megabytes become resident. An allocator
    /// would write the zeros of an aligned allocation itself.
    fn places(&self) -> Answer<NonNull<SlabCell<T>>> {
        if let Some(places) = self.places.get() {
            return Ok(*places);
        }
        let (len, rights) = (SlabCell::<T>::STRIDE * T::PLACES, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: fresh memory, which stays mapped. Zeros are a place whose object is not alive. Test: as above.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), len, rights, MapFlags::PRIVATE) }?;
        let places = NonNull::new(mapped.cast())
            .ok_or_else(|| errno!(NOMEM, "the system maps no memory for objects"))?;
        // If two threads race here, the mapping of the second is never used.
        Ok(*self.places.get_or_init(|| places))
    }

    /// Stores an object: the part that C sees, and ours.
    ///
    /// # Errors
    /// When the slab is full.
    pub(crate) fn insert(&self, c: T::C, body: T) -> Result<Handle<T>, Errno> {
        let places = self.places()?;
        let at = {
            let mut free = lock(&self.free);
            if free.given.len() > RESTING || free.fresh == T::PLACES {
                free.given.pop_front().ok_or_else(|| {
                    errno!(
                        NOMEM,
                        "this process has {} objects of type {}, and no more are possible; destroy some",
                        T::PLACES,
                        T::NAME
                    )
                })?
            } else {
                free.fresh += 1;
                free.fresh - 1
            }
        };
        // SAFETY: below `PLACES`, so inside of the array, which is never unmapped. Test: as above.
        let place = unsafe { places.byte_add(at * SlabCell::<T>::STRIDE).as_ref() };
        // SAFETY: the place is not live and was taken from the free ones, so no other thread writes here. Test: as above.
        unsafe {
            (*place.c.get()).write(c);
            (*place.body.get()).write(body);
        }
        place.is_live.store(true, Ordering::Release);
        let handle = Held { place }.handle();
        if let Some(end) = T::END.filter(|_| fabric::is_checked()) {
            fabric::created(handle.0.addr(), T::NAME, end);
        }
        Ok(handle)
    }

    #[inline]
    fn lookup(&self, handle: Handle<T>) -> Option<Held<T>> {
        let place = self.place_of(handle)?;
        place.is_live.load(Ordering::Acquire).then_some(Held { place })
    }

    /// The place at this address, which may never have been used.
    #[inline]
    fn place_of(&self, handle: Handle<T>) -> Option<&'static SlabCell<T>> {
        let first = self.places.get()?.as_ptr();
        let offset = handle.0.addr().wrapping_sub(first.addr()).wrapping_sub(T::HANDLE_AT);
        let is_place =
            offset & (SlabCell::<T>::STRIDE - 1) == 0 && offset < SlabCell::<T>::STRIDE * T::PLACES;
        // SAFETY: inside of the array, whose memory is zeroed or a written place. Test: as above.
        is_place.then(|| unsafe { &*first.byte_add(offset) })
    }

    /// Removes the object; its address is stale from now on.
    fn remove(&self, held: Held<T>) -> Result<T, Errno> {
        if !held.place.is_live.swap(false, Ordering::AcqRel) {
            return Err(errno!(INVAL, "the {} was destroyed by another thread; destroy it once", T::NAME));
        }
        held.handle().keep_from_program();
        // SAFETY: it was live, so written, and only one caller clears the flag; a concurrent use breaks the rule above. Test: as above.
        let body = unsafe { (*held.place.body.get()).assume_init_read() };
        let first = self.places.get().map_or(0, |places| places.as_ptr().addr());
        let at = (std::ptr::from_ref(held.place).addr() - first) / SlabCell::<T>::STRIDE;
        lock(&self.free).given.push_back(at);
        Ok(body)
    }
}

/// An object as a program passes it: an address, NULL, or an invalid value.
#[repr(transparent)]
pub(crate) struct Handle<T: Object>(*mut c_void, PhantomData<&'static T>);

impl<T: Object> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Object> Copy for Handle<T> {}

// SAFETY: an address, validated before use. Test: as above.
unsafe impl<T: Object> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T: Object> Sync for Handle<T> {}

impl<T: Object> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Object> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Object> Handle<T> {
    /// The value for no object.
    pub(crate) const NULL: Self = Self(std::ptr::null_mut(), PhantomData);

    /// A handle from a pointer that a program has passed, or stored in a structure.
    #[inline]
    pub(crate) fn from_ptr<C>(address: *mut C) -> Self {
        Self(address.cast(), PhantomData)
    }

    /// A handle from the address of a program's output parameter.
    pub(crate) fn from_addr(address: usize) -> Self {
        Self::from_ptr(std::ptr::with_exposed_provenance_mut::<c_void>(address))
    }

    /// The address, as a pointer of a field's declared type.
    pub(crate) fn cast<C>(self) -> *mut C {
        self.0.cast()
    }

    /// The address, as a number.
    pub(crate) fn addr(self) -> usize {
        self.0.addr()
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The object, if the address is valid and the object alive.
    ///
    /// # Errors
    /// [`Errno::INVAL`] otherwise.
    #[inline]
    pub(crate) fn lookup(self) -> Result<Held<T>, Errno> {
        T::slab().lookup(self).ok_or_else(|| self.describe())
    }

    /// The error of an address that names no object.
    #[cold]
    fn describe(self) -> Errno {
        let name = T::NAME;
        if self.is_null() {
            errno!(INVAL, "the {name} is NULL; check the result of the call that creates it")
        } else if T::slab().place_of(self).is_some() {
            errno!(INVAL, "the {name} at {self:?} was destroyed before; do not use it after that")
        } else {
            errno!(
                INVAL,
                "{self:?} is the address of no {name}; pass the pointer that this library has returned"
            )
        }
    }

    /// The library destroys the object itself, or keeps it: it is not the program's.
    pub(crate) fn keep_from_program(self) {
        if T::END.is_some() && fabric::is_checked() {
            fabric::ended(self.0.addr());
        }
    }

    /// The object, or `None` for NULL.
    ///
    /// # Errors
    /// As [`Handle::lookup`], for any other address.
    pub(crate) fn lookup_optional(self) -> Result<Option<Held<T>>, Errno> {
        if self.is_null() { Ok(None) } else { self.lookup().map(Some) }
    }
}

impl<T: Object> NullValue for Handle<T> {
    const NULL_VALUE: Self = Self::NULL;
}

/// An object that was alive when it was looked up.
pub(crate) struct Held<T: Object> {
    place: &'static SlabCell<T>,
}

impl<T: Object> Clone for Held<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Object> Copy for Held<T> {}

// SAFETY: any thread may use the object, as `T` requires, and the part that C sees belongs to C. Test: as above.
unsafe impl<T: Object> Send for Held<T> {}
// SAFETY: as above.
unsafe impl<T: Object> Sync for Held<T> {}

impl<T: Object> Deref for Held<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: it was alive, so written, and the program does not destroy an object during a call that uses it. Test: as above.
        unsafe { (*self.place.body.get()).assume_init_ref() }
    }
}

impl<T: Object> Held<T> {
    /// Its address, as programs hold it.
    pub(crate) fn handle(self) -> Handle<T> {
        Handle::from_ptr(self.place.c.get().cast::<u8>().wrapping_add(T::HANDLE_AT))
    }

    /// A copy of the part that C sees.
    #[inline]
    pub(crate) fn c_part(self) -> T::C {
        // SAFETY: written before the object became alive. Programs change fields between calls, not during a call that uses the fields.
        // Test: as above.
        unsafe { (*self.place.c.get()).assume_init_read() }
    }

    /// Changes the part that C sees.
    #[inline]
    pub(crate) fn update_c(self, change: impl FnOnce(&mut T::C)) {
        // SAFETY: as in `seen`; a call changes only fields that belong to the library. Test: as above.
        change(unsafe { (*self.place.c.get()).assume_init_mut() });
    }

    /// Removes the object; its address is stale from now on.
    ///
    /// # Errors
    /// [`Errno::INVAL`] when another thread has just removed it.
    pub(crate) fn remove(self) -> Result<T, Errno> {
        T::slab().remove(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    static ENDED: AtomicUsize = AtomicUsize::new(0);

    struct Thing(Box<u32>);

    impl Drop for Thing {
        fn drop(&mut self) {
            ENDED.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Object for Thing {
        type C = [u64; 3];
        const NAME: &'static str = "thing";
        const HANDLE_AT: usize = 8;
        const PLACES: usize = 300;
        fn slab() -> &'static Slab<Self> {
            static SLAB: Slab<Thing> = Slab::new();
            &SLAB
        }
    }

    #[test]
    fn an_object_is_found_until_it_is_removed() {
        let slab = Thing::slab();
        assert!(Handle::<Thing>::NULL.lookup().is_err());
        let insert = |value| slab.insert([1, 2, 3], Thing(Box::new(value)));
        let handle = insert(7).expect("room");
        let held = handle.lookup().expect("alive");
        assert_eq!((*held.0, held.c_part()), (7, [1, 2, 3]));
        held.update_c(|c| c[1] = 5);
        assert_eq!(held.c_part(), [1, 5, 3]);
        assert!(held.handle() == handle);
        for wrong in [1, 8, SlabCell::<Thing>::STRIDE, usize::MAX, 1 << 40] {
            let foreign = Handle::<Thing>::from_ptr(handle.cast::<u8>().wrapping_add(wrong));
            assert!(foreign.lookup().is_err(), "{wrong}");
        }
        assert_eq!(held.remove().map(|thing| *thing.0), Ok(7));
        assert_eq!(ENDED.load(Ordering::Relaxed), 1);
        assert!(handle.lookup().is_err() && held.remove().is_err());
        // A freed place is not reused immediately, and the number of places is limited.
        let all: Vec<_> = (0..300).map(|value| insert(value).expect("room")).collect();
        assert!(all[..RESTING].iter().all(|other| *other != handle) && all.contains(&handle));
        assert!(insert(0).is_err());
    }
}
