//! Arguments that are addresses: numbers and strings behind them.
//!
//! Each function here is sound because a program passes the addresses of arguments of the types that the prototypes say, as it vouches for
//! them when it calls MPI.

use crate::{c, code, conversion};

/// A number that a call has not set.
pub(crate) const UNSET: i32 = i32::MIN;

/// What arguments consist of.
pub(crate) trait Number: Copy {}
impl Number for u8 {}
impl Number for i32 {}
impl Number for i64 {}
impl Number for usize {}

/// An item of an array.
#[inline]
pub(crate) fn read<T: Number>(array: usize, item: usize) -> T {
    let at = std::ptr::with_exposed_provenance::<T>(array);
    // SAFETY: the program passes the address of as many numbers of this type (see above). Test: `programs_run`.
    unsafe { at.add(item).read_unaligned() }
}

/// Stores an item of an array, unless its address is 0.
#[inline]
pub(crate) fn write<T: Number>(array: usize, item: usize, value: T) {
    if array != 0 {
        let at = std::ptr::with_exposed_provenance_mut::<T>(array);
        // SAFETY: as above; the program may not use it meanwhile. Test: `programs_run`.
        unsafe { at.add(item).write_unaligned(value) }
    }
}

/// The address of a variable that a call writes.
#[inline]
pub(crate) fn address_of<T>(of: &mut T) -> usize {
    (&raw mut *of).expose_provenance()
}

/// The address of a variable in place of the program's; 0 if the program passes 0, which the call refuses.
#[inline]
pub(crate) fn place<T>(program: usize, ours: &mut T) -> usize {
    if program == 0 { 0 } else { address_of(ours) }
}

/// The number at an address.
pub(crate) fn number_at(at: usize) -> Option<i32> {
    (at != 0).then(|| read(at, 0))
}

/// Stores a number that a call has set.
pub(crate) fn put_number(at: usize, value: i32, convert: impl FnOnce(i32) -> i32) {
    if value != UNSET {
        write(at, 0, convert(value));
    }
}

/// The length of an array: a number of the program, none if it is negative.
#[inline]
pub(crate) fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// Whether an operation takes its input from the buffer of its result.
pub(crate) fn is_in_place(buffer: usize) -> bool {
    conversion::address_to_standard(buffer) != buffer
}

/// Converts the special address of a buffer that a call has detached.
pub(crate) fn put_detached(code: i32, at: usize) {
    if code == 0 && at != 0 {
        write(at, 0, conversion::address_to_mpich(read(at, 0)));
    }
}

/// Stores a string in a buffer of `room` bytes, and returns the code of the call: `MPI_ERR_VALUE_TOO_LARGE` for a string that is too long.
pub(crate) fn put_text(code: i32, at: usize, text: &[u8], room: usize) -> i32 {
    /// `MPI_ERR_VALUE_TOO_LARGE` of the standard ABI.
    const TOO_LARGE: i32 = 59;
    let len = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    match code {
        0 if len < room => {
            text[..=len].iter().enumerate().for_each(|(item, byte)| write(at, item, *byte));
            0
        }
        0 => TOO_LARGE,
        _ => code,
    }
}

/// The code of a call for the program.
#[inline]
pub(crate) fn finish(code: i32) -> i32 {
    if code == 0 { 0 } else { code::to_mpich(code) }
}

/// As [`finish`], for the interface for tools.
#[inline]
pub(crate) fn finish_tool(code: i32) -> i32 {
    code::class::to_mpich(code)
}

/// Items of an array, on the stack if they are few.
pub(crate) struct Items<T, const FEW: usize> {
    few: [T; FEW],
    many: Vec<T>,
    len: usize,
}

impl<T: Copy, const FEW: usize> Items<T, FEW> {
    #[inline]
    pub(crate) fn new(len: usize, first: T) -> Self {
        let many = if len > FEW { vec![first; len] } else { Vec::new() };
        Self { few: [first; FEW], many, len }
    }

    #[inline]
    pub(crate) fn all(&mut self) -> &mut [T] {
        if self.len > FEW { &mut self.many } else { &mut self.few[..self.len] }
    }

    /// The address of the items; 0 if there are none.
    #[inline]
    pub(crate) fn address(&mut self) -> usize {
        if self.len == 0 { 0 } else { self.all().as_mut_ptr().expose_provenance() }
    }
}

/// A new code of a class of the standard ABI, with a text.
pub(crate) fn code_with_text(class: i32, text: &str) -> i32 {
    let (mut code, text) = (class, format!("{text}\0"));
    if c::MPI_Add_error_code(class, address_of(&mut code)) == 0 {
        c::MPI_Add_error_string(code, text.as_ptr().expose_provenance());
    }
    code
}

/// A number that a function returns through an address; 0 if it fails.
pub(crate) fn result(get: impl FnOnce(usize) -> i32) -> i32 {
    let mut number = 0_i32;
    if get(address_of(&mut number)) == 0 { number } else { 0 }
}
