//! Listings of our devices' folders (opendir(3), readdir(3), scandir(3)) where this library is preloaded; see `paths`.
//!
//! The program holds a real stream of the C library, on a folder that exists on every machine, so all other calls on it work. Reading
//! it returns our names.

use std::collections::btree_set::IntoIter;
use std::collections::{BTreeSet, HashMap};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use ffi::{catch_panic, lock};
use libc::{DIR, dirent64};

use crate::discovery::paths::{Entry, next};
use crate::errno::Errno;

/// A folder being listed: the names not yet read, and the entry that was read last.
struct Listing {
    names: IntoIter<String>,
    entry: Box<dirent64>,
}

/// Open listings by stream address.
static LISTINGS: Mutex<Option<HashMap<usize, Listing>>> = Mutex::new(None);
/// Number of open listings: mostly 0, and then the lock is not taken.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The function of this name in the C library.
macro_rules! theirs {
    ($name:literal: $kind:ty) => {{
        static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
        let address = next(&NEXT, $name);
        // SAFETY: the C library has a function of this name and type; its arguments are the program's, or a path of ours. Test:
        // `folders_of_devices_are_listed` in tests/programs.rs.
        unsafe { std::mem::transmute::<*mut c_void, $kind>(address) }
    }};
}

#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    let theirs = theirs!(c"opendir": extern "C" fn(*const c_char) -> *mut DIR);
    let place = catch_panic(|| Entry::parse(path)).unwrap_or(None);
    let at = place.as_ref().map_or(path, |place| place.stand_in().as_ptr());
    let stream = theirs(at);
    if let (Some(Entry::Folder(names)), false) = (place, stream.is_null()) {
        let listing = Listing { names: names.into_iter(), entry: Box::new(entry("")) };
        lock(&LISTINGS).get_or_insert_default().insert(stream.addr(), listing);
        COUNT.fetch_add(1, Ordering::Release);
    }
    stream
}

/// The next entry of one of our listings, NULL at the end; `None` if the stream is not ours.
fn read(stream: *mut DIR) -> Option<*mut dirent64> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let mut listings = lock(&LISTINGS);
    let listing = listings.as_mut()?.get_mut(&stream.addr())?;
    let Some(name) = listing.names.next() else { return Some(std::ptr::null_mut()) };
    *listing.entry = entry(&name);
    Some(&mut *listing.entry)
}

/// A directory entry with this name.
fn entry(name: &str) -> dirent64 {
    // SAFETY: numbers and bytes, which may be zero. Test: `folders_of_devices_are_listed` in tests/programs.rs.
    let mut entry = unsafe { std::mem::zeroed::<dirent64>() };
    (entry.d_ino, entry.d_off, entry.d_type) = (1, 1, libc::DT_UNKNOWN);
    entry.d_reclen = size_of::<dirent64>() as u16;
    let text = name.bytes().take(entry.d_name.len() - 1).chain([0]);
    entry.d_name.iter_mut().zip(text).for_each(|(to, from)| *to = from as c_char);
    entry
}

#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn readdir64(stream: *mut DIR) -> *mut dirent64 {
    let theirs = theirs!(c"readdir64": extern "C" fn(*mut DIR) -> *mut dirent64);
    catch_panic(|| read(stream)).unwrap_or(None).unwrap_or_else(|| theirs(stream))
}

/// Its entries have the same layout as those of [`readdir64`].
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn readdir(stream: *mut DIR) -> *mut dirent64 {
    readdir64(stream)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn closedir(stream: *mut DIR) -> c_int {
    let theirs = theirs!(c"closedir": extern "C" fn(*mut DIR) -> c_int);
    if COUNT.load(Ordering::Acquire) != 0
        && lock(&LISTINGS).as_mut().and_then(|listings| listings.remove(&stream.addr())).is_some()
    {
        COUNT.fetch_sub(1, Ordering::Release);
    }
    theirs(stream)
}

/// The filter and the order of scandir(3).
type Filter = Option<unsafe extern "C" fn(*const dirent64) -> c_int>;
type Order = Option<unsafe extern "C" fn(*mut *const dirent64, *mut *const dirent64) -> c_int>;

/// Implemented here as well: the C library's scandir(3) reads folders by internal functions that cannot be interposed.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
unsafe extern "C" fn scandir64(
    path: *const c_char,
    list: *mut *mut *mut dirent64,
    filter: Filter,
    order: Order,
) -> c_int {
    let theirs = theirs!(c"scandir64": unsafe extern "C" fn(*const c_char, *mut *mut *mut dirent64, Filter, Order) -> c_int);
    match catch_panic(|| Entry::parse(path)).unwrap_or(None) {
        // SAFETY: the program's arguments. Test: `ibstat_describes_the_devices` in tests/programs.rs.
        Some(Entry::Folder(names)) => unsafe { scan(names, list, filter, order) },
        // SAFETY: as above.
        place => unsafe {
            theirs(place.as_ref().map_or(path, |place| place.stand_in().as_ptr()), list, filter, order)
        },
    }
}

/// Its entries have the same layout as those of [`scandir64`].
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
unsafe extern "C" fn scandir(
    path: *const c_char,
    list: *mut *mut *mut dirent64,
    filter: Filter,
    order: Order,
) -> c_int {
    // SAFETY: as above.
    unsafe { scandir64(path, list, filter, order) }
}

/// Lists names as scandir(3) does: the program frees each entry, and the list.
///
/// # Safety
/// `list` must be a valid place for the list, and the functions as scandir(3) requires.
unsafe fn scan(
    names: BTreeSet<String>,
    list: *mut *mut *mut dirent64,
    filter: Filter,
    order: Order,
) -> c_int {
    let entries = names.iter().map(|name| entry(name));
    // SAFETY: the program's function reads one entry. Test: `ibstat_describes_the_devices` in tests/programs.rs.
    let is_wanted = |entry: &dirent64| filter.is_none_or(|filter| unsafe { filter(&raw const *entry) } != 0);
    let entries: Vec<dirent64> = entries.filter(is_wanted).collect();
    let Some(found) = allocated(&vec![std::ptr::null_mut::<dirent64>(); entries.len()]) else {
        return no_memory();
    };
    for (at, entry) in entries.iter().enumerate() {
        let Some(place) = allocated(std::slice::from_ref(entry)) else { return no_memory() };
        // SAFETY: the list has room for each entry. Test: as above.
        unsafe { found.add(at).write(place) };
    }
    if let Some(order) = order {
        type Any = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;
        // SAFETY: a function of the same ABI, which gets addresses of list elements, as scandir(3) specifies. Test: as above.
        unsafe {
            let order = std::mem::transmute::<unsafe extern "C" fn(_, _) -> c_int, Any>(order);
            libc::qsort(found.cast(), entries.len(), size_of::<*mut dirent64>(), Some(order));
        }
    }
    // SAFETY: the program's place for the list. Test: as above.
    unsafe { list.write(found) };
    entries.len() as c_int
}

/// A copy that the program frees with free(3); `None` without memory.
fn allocated<T: Copy>(values: &[T]) -> Option<*mut T> {
    // SAFETY: memory for these values or NULL, and a copy. Test: as above.
    unsafe {
        let place: *mut T = libc::malloc(size_of_val(values).max(1)).cast();
        (!place.is_null()).then(|| place.copy_from_nonoverlapping(values.as_ptr(), values.len()))?;
        Some(place)
    }
}

/// The result of scandir(3) without memory. Entries allocated before are leaked.
fn no_memory() -> c_int {
    Errno::NOMEM.store();
    -1
}

/// Interposed because ls(1) calls it before it lists a folder.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, found: *mut c_void) -> c_int {
    let theirs = theirs!(c"statx": extern "C" fn(c_int, *const c_char, c_int, c_uint, *mut c_void) -> c_int);
    let place = catch_panic(|| Entry::parse(path)).unwrap_or(None);
    let path = place.as_ref().map_or(path, |place| place.stand_in().as_ptr());
    theirs(at, path, flags, mask, found)
}
