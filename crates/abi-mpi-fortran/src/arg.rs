//! Fortran's arguments: addresses of values, of special places, and of strings that blanks fill up.
//!
//! An address of 0 is an optional argument that the program has left out. Each function here is sound because a program passes the
//! addresses of arguments of the types that the interfaces say, as it vouches for its arguments when it calls MPI from C.

use std::sync::OnceLock;

use crate::c::{MPI_Abi_get_fortran_booleans, MPI_Abi_set_fortran_booleans, MPI_Finalized, MPI_Initialized};
use crate::places;

/// `MPI_UNDEFINED`.
pub(crate) const UNDEFINED: i32 = -32766;
/// Addresses that are special in C: `MPI_BOTTOM` and others.
const BOTTOM: usize = 0;
const IN_PLACE: usize = 1;
const BUFFER_AUTOMATIC: usize = 2;
const UNWEIGHTED: usize = 10;
const WEIGHTS_EMPTY: usize = 11;

/// The integer at an address.
#[inline]
pub(crate) fn int(at: usize) -> i32 {
    read(at, 0)
}

/// The integer of 64 bits at an address.
#[inline]
pub(crate) fn long(at: usize) -> i64 {
    read(at, 0)
}

/// An item of an array.
#[inline]
pub(crate) fn read<T: Number>(array: usize, item: usize) -> T {
    let at = std::ptr::with_exposed_provenance::<T>(array);
    // SAFETY: the program passes the address of as many numbers of this type (see above). Test: `programs_run_on_both_modules`.
    unsafe { at.add(item).read_unaligned() }
}

/// Stores an item of an array, unless the argument is left out.
#[inline]
pub(crate) fn write<T: Number>(array: usize, item: usize, value: T) {
    if array != 0 {
        let at = std::ptr::with_exposed_provenance_mut::<T>(array);
        // SAFETY: as above; the program may not use it meanwhile. Test: `programs_run_on_both_modules`.
        unsafe { at.add(item).write_unaligned(value) }
    }
}

/// What arguments consist of.
pub(crate) trait Number: Copy {}
impl Number for u8 {}
impl Number for i32 {}
impl Number for i64 {}
impl Number for usize {}

/// Stores an integer.
#[inline]
pub(crate) fn put(at: usize, value: i32) {
    write(at, 0, value);
}

/// Ends a call: stores its error code.
#[inline]
pub(crate) fn finish(ierror: usize, code: i32) {
    put(ierror, code);
}

/// The length of an array.
pub(crate) fn count(at: usize) -> usize {
    usize::try_from(int(at)).unwrap_or(0)
}

/// The length of an array, of 64 bits.
pub(crate) fn long_count(at: usize) -> usize {
    usize::try_from(long(at)).unwrap_or(0)
}

/// The address of a variable that C writes.
#[inline]
pub(crate) fn address_of<T>(of: &mut T) -> usize {
    (&raw mut *of).expose_provenance()
}

/// The address of items that C reads or writes.
pub(crate) fn address_of_items<T>(items: &mut [T]) -> usize {
    items.as_mut_ptr().expose_provenance()
}

/// The address of a string that C reads.
pub(crate) fn address_of_text(text: &[u8]) -> usize {
    text.as_ptr().expose_provenance()
}

/// A buffer, or the address by which C knows a special one.
#[inline]
pub(crate) fn choice(buffer: usize) -> usize {
    match buffer {
        _ if buffer == places::bottom() => BOTTOM,
        _ if buffer == places::in_place() => IN_PLACE,
        _ if buffer == places::buffer_automatic() => BUFFER_AUTOMATIC,
        _ => buffer,
    }
}

/// Whether an operation takes its input from the buffer of its result.
pub(crate) fn is_in_place(buffer: usize) -> bool {
    buffer == places::in_place()
}

/// Replaces what C has returned as the address of a detached buffer: C's special address is that of Fortran's `MPI_BUFFER_AUTOMATIC`.
pub(crate) fn put_detached(buffer: usize) {
    if read::<usize>(buffer, 0) == BUFFER_AUTOMATIC {
        write(buffer, 0, places::buffer_automatic());
    }
}

/// One or more statuses, which have C's layout, or 0 to ignore them.
#[inline]
pub(crate) fn status(status: usize) -> usize {
    if places::ignored_statuses().contains(&status) { 0 } else { status }
}

/// The weights of a graph, or the address by which C knows special ones.
pub(crate) fn weights(weights: usize) -> usize {
    match weights {
        _ if weights == places::unweighted() => UNWEIGHTED,
        _ if weights == places::weights_empty() => WEIGHTS_EMPTY,
        _ => weights,
    }
}

/// The error codes of spawned processes, or 0 to ignore them.
pub(crate) fn codes(codes: usize) -> usize {
    if codes == places::errcodes_ignore() { 0 } else { codes }
}

/// Adds 1 to indices that C counts from 0; `MPI_UNDEFINED` stays.
pub(crate) fn count_from_one(indices: usize, count: usize) {
    for item in 0..count {
        if let index @ 0.. = read::<i32>(indices, item) {
            write(indices, item, index.wrapping_add(1));
        }
    }
}

/// The values of `.TRUE.` and `.FALSE.`. A program may have set them; if not, this function sets the values of gfortran and flang.
fn booleans() -> [i32; 2] {
    static KNOWN: OnceLock<[i32; 2]> = OnceLock::new();
    let usual = [1_i32, 0_i32];
    // Functions that may be called at any time have LOGICAL arguments, but the library may be asked only between initialization and
    // finalization (MPI 5.0, section 11.4.1).
    let is_running = || result(|flag| MPI_Initialized(flag)) != 0 && result(|flag| MPI_Finalized(flag)) == 0;
    if KNOWN.get().is_none() && !is_running() {
        return usual;
    }
    *KNOWN.get_or_init(|| {
        let ([mut yes, mut no], mut is_set) = (usual, 0_i32);
        MPI_Abi_get_fortran_booleans(4, address_of(&mut yes), address_of(&mut no), address_of(&mut is_set));
        if is_set == 0 {
            [yes, no] = usual;
            MPI_Abi_set_fortran_booleans(4, address_of(&mut yes), address_of(&mut no));
        }
        [yes, no]
    })
}

/// A `LOGICAL` as C has it.
pub(crate) fn logical(at: usize) -> i32 {
    (int(at) != booleans()[1]).into()
}

/// Stores what C returned as a `LOGICAL`.
pub(crate) fn put_logical(at: usize, value: i32) {
    put(at, as_logical(value));
}

/// What C returned, as a `LOGICAL`.
pub(crate) fn as_logical(value: i32) -> i32 {
    let [yes, no] = booleans();
    if value == 0 { no } else { yes }
}

pub(crate) fn logicals(array: usize, count: usize) -> Vec<i32> {
    let no = booleans()[1];
    (0..count).map(|item| (read::<i32>(array, item) != no).into()).collect()
}

pub(crate) fn put_logicals(array: usize, values: &[i32]) {
    values.iter().enumerate().for_each(|(item, value)| write(array, item, as_logical(*value)));
}

/// Handles from integers.
pub(crate) fn handles(array: usize, count: usize, from: extern "C-unwind" fn(i32) -> usize) -> Vec<usize> {
    (0..count).map(|item| from(read(array, item))).collect()
}

/// Stores handles as integers; what C has left empty stays as it is.
pub(crate) fn put_handles(array: usize, handles: &[usize], to: extern "C-unwind" fn(usize) -> i32) {
    let set = handles.iter().enumerate().filter(|(_, handle)| **handle != 0);
    set.for_each(|(item, handle)| write(array, item, to(*handle)));
}

/// The characters of a string, without the blanks at its end.
pub(crate) fn characters(at: usize, len: usize) -> Vec<u8> {
    let mut text: Vec<u8> = (0..len).map(|item| read(at, item)).collect();
    text.truncate(text.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1));
    text
}

/// A string for C, without the blanks at its end.
pub(crate) fn text(at: usize, len: usize) -> Vec<u8> {
    let mut text = characters(at, len);
    text.push(0);
    text
}

/// As [`text`], also without the blanks at its beginning.
pub(crate) fn trimmed_text(at: usize, len: usize) -> Vec<u8> {
    let mut text = text(at, len);
    let blanks = text.iter().take_while(|byte| **byte == b' ').count();
    text.drain(..blanks);
    text
}

/// Room for a string that C returns.
pub(crate) fn text_buffer(size: usize) -> Vec<u8> {
    vec![0; size]
}

/// Stores a string of C, followed by blanks; cuts it if it is too long.
pub(crate) fn put_text(at: usize, len: usize, text: &[u8]) {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    for item in 0..len {
        write(at, item, text[..end].get(item).copied().unwrap_or(b' '));
    }
}

/// A number that a function of C returns through an address; 0 if it fails.
pub(crate) fn result(get: impl FnOnce(usize) -> i32) -> i32 {
    let mut number = 0_i32;
    if get(address_of(&mut number)) == 0 { number } else { 0 }
}
