//! Pointer arguments: each type limits how the callee can access the memory, and checks for NULL.
//!
//! These types have the layout of a pointer, so that `extern "C"` functions take them as arguments. A program that passes an address
//! which is neither NULL nor what the function asks for has undefined behaviour before it gets here; that is the contract under which the
//! blocks below are sound. Nothing needs to be aligned. No reference to a program's memory is created: values are copied once, so that
//! the checked value is the used value.

use std::ffi::{CStr, c_char, c_void};

/// The address of a result, or NULL.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> std::fmt::Debug for Out<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// The address of a result, as C passes it.
    ///
    /// # Safety
    /// `place` must be NULL or be valid for writing, for as long as this is used.
    pub unsafe fn new(place: *mut T) -> Self {
        Self(place)
    }

    /// The numeric address, for callers that compare it with special values.
    pub fn addr(self) -> usize {
        self.0.addr()
    }

    /// Whether the address is not NULL.
    #[inline]
    pub fn is_some(self) -> bool {
        !self.0.is_null()
    }

    /// The address, unless it is NULL.
    ///
    /// # Errors
    /// `missing`, for NULL.
    #[inline]
    pub fn required<E>(self, missing: E) -> Result<Self, E> {
        if self.is_some() { Ok(self) } else { Err(missing) }
    }

    /// As [`Out::required`], for an error that is made only for NULL.
    ///
    /// # Errors
    /// That of `missing`, for NULL.
    #[inline]
    pub fn required_or<E>(self, missing: impl FnOnce() -> E) -> Result<Self, E> {
        if self.is_some() { Ok(self) } else { Err(missing()) }
    }

    /// Stores the result, unless the address is NULL.
    #[inline]
    pub fn set(self, value: T) {
        if self.is_some() {
            // SAFETY: a program passes NULL or the address of a `T`; not NULL, by the line above. Test: `results_are_stored_at_the_given_address`.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// The address of element `at` of an array that begins here; NULL stays NULL.
    #[inline]
    pub fn element(self, at: usize) -> Self {
        if self.is_some() { Self(self.0.wrapping_add(at)) } else { self }
    }

    /// The current value, for in/out arguments; `None` for NULL.
    #[inline]
    pub fn get(self) -> Option<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }
}

/// The address of an argument or of an array of arguments, or NULL.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> std::fmt::Debug for In<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// An argument, as C passes it.
    ///
    /// # Safety
    /// `place` must be NULL or hold as many `T` as the call reads, for as long as this is used.
    pub unsafe fn new(place: *const T) -> Self {
        Self(place)
    }

    /// The numeric address, for callers that compare it with special values.
    pub fn addr(self) -> usize {
        self.0.addr()
    }

    /// The argument; `None` for NULL.
    #[inline]
    pub fn get(self) -> Option<T> {
        // SAFETY: a program passes NULL or the address of a `T`; not NULL, by `then`. Test: `arguments_are_copied`.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// The argument; an error for NULL.
    ///
    /// # Errors
    /// `missing`, for NULL.
    #[inline]
    pub fn required<E>(self, missing: E) -> Result<T, E> {
        self.get().ok_or(missing)
    }

    /// As [`In::required`], for an error that is made only for NULL.
    ///
    /// # Errors
    /// That of `missing`, for NULL.
    #[inline]
    pub fn required_or<E>(self, missing: impl FnOnce() -> E) -> Result<T, E> {
        self.get().ok_or_else(missing)
    }

    /// The `count` arguments of an array, each copied when the iterator reaches it; `None` for NULL, unless `count` is 0.
    #[inline]
    pub fn items(self, count: usize) -> Option<Items<T>> {
        (count == 0 || !self.0.is_null()).then_some(Items { next: self.0, left: count })
    }
}

/// The iterator that [`In::items`] returns.
#[derive(Debug)]
pub struct Items<T> {
    next: *const T,
    left: usize,
}

impl<T: Copy> Iterator for Items<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: a program passes the address of as many as it says, and some are left. Test: `arguments_are_copied`.
        let item = unsafe { self.next.read_unaligned() };
        self.next = self.next.wrapping_add(1);
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// The address of bytes whose number is a separate argument, or NULL.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Bytes(*const c_void);

/// Why bytes of a program are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadBytes {
    /// Their number is negative, or more than [`Bytes::LEN_MAX`].
    Count,
    /// The address is NULL, but the number is not 0.
    Missing,
}

impl Bytes {
    /// The most bytes accepted; a larger number counts as a mistake.
    pub const LEN_MAX: usize = 1 << 20;

    /// Bytes, as C passes them.
    ///
    /// # Safety
    /// `place` must be NULL or valid for reading the number of bytes that the call's other argument gives, for as long as this is used.
    pub unsafe fn new(place: *const c_void) -> Self {
        Self(place)
    }

    /// A copy of `count` bytes.
    ///
    /// # Errors
    /// [`BadBytes`], for an invalid number or a NULL address.
    pub fn get(self, count: i32) -> Result<Vec<u8>, BadBytes> {
        let count = usize::try_from(count).ok().filter(|count| *count <= Self::LEN_MAX);
        let count = count.ok_or(BadBytes::Count)?;
        let items = In(self.0.cast::<u8>()).items(count).ok_or(BadBytes::Missing)?;
        Ok(items.collect())
    }
}

/// A string, or NULL, as C passes it.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// A string, as C passes it.
    ///
    /// # Safety
    /// `place` must be NULL or a zero-terminated string, for as long as this is used.
    pub unsafe fn new(place: *const c_char) -> Self {
        Self(place)
    }

    /// A copy of the string, with invalid UTF-8 replaced; `None` for NULL.
    pub fn get(self) -> Option<String> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: a program passes NULL or a zero-terminated string; not NULL, by the line above. The reference ends with this call.
        // Test: `strings_are_copied`.
        let text = unsafe { CStr::from_ptr(self.0) };
        Some(text.to_string_lossy().into_owned())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn results_are_stored_at_the_given_address() {
        // Not aligned, as a packed structure's field would be.
        let mut room = [0_u8; 12];
        // SAFETY: four bytes inside of the array.
        let out = unsafe { Out::new(room.as_mut_ptr().wrapping_add(1).cast::<u32>()) };
        out.required("missing").expect("it is there").set(0x0403_0201);
        assert_eq!(out.get(), Some(0x0403_0201));
        assert_eq!(&room[..6], [0, 1, 2, 3, 4, 0]);
        out.element(1).set(0x0807_0605);
        assert_eq!((out.get(), &room[5..10]), (Some(0x0403_0201), &[5, 6, 7, 8, 0][..]));
    }

    #[test]
    fn null_is_neither_read_nor_written() {
        // SAFETY: NULL is allowed.
        let out = unsafe { Out::<u32>::new(std::ptr::null_mut()) };
        out.set(1);
        out.element(3).set(1);
        assert_eq!((out.is_some(), out.get()), (false, None));
        assert_eq!(out.required(3).map(|_| ()), Err(3));
        // SAFETY: as above.
        let argument = unsafe { In::<u32>::new(std::ptr::null()) };
        assert_eq!((argument.get(), argument.required(4)), (None, Err(4)));
        assert!(argument.items(1).is_none());
        assert_eq!(argument.items(0).expect("nothing to copy").count(), 0);
    }

    #[test]
    fn arguments_are_copied() {
        let words = [7_u16, 8, 9];
        // SAFETY: three words, which outlive it.
        let argument = unsafe { In::new(words.as_ptr()) };
        assert_eq!(argument.required(()), Ok(7));
        assert_eq!(argument.items(3).expect("three").collect::<Vec<_>>(), words);
        assert_eq!(argument.items(2).expect("two").size_hint(), (2, Some(2)));
    }

    #[test]
    fn bytes_refuse_invalid_counts() {
        let bytes = [1_u8, 2, 3];
        // SAFETY: three bytes, which outlive it, and no more are asked for.
        let given = unsafe { Bytes::new(bytes.as_ptr().cast()) };
        assert_eq!(given.get(3), Ok(vec![1, 2, 3]));
        assert_eq!(given.get(0), Ok(vec![]));
        assert_eq!(
            (given.get(-1), given.get(Bytes::LEN_MAX as i32 + 1)),
            (Err(BadBytes::Count), Err(BadBytes::Count))
        );
        // SAFETY: NULL is allowed.
        let none = unsafe { Bytes::new(std::ptr::null()) };
        assert_eq!((none.get(0), none.get(1)), (Ok(vec![]), Err(BadBytes::Missing)));
    }

    #[test]
    fn strings_are_copied() {
        // SAFETY: a string with a zero at its end.
        let text = unsafe { Text::new(c"ni\xffcety".as_ptr()) };
        assert_eq!(text.get().as_deref(), Some("ni\u{fffd}cety"));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { Text::new(std::ptr::null()) }.get(), None);
    }
}
