//! Pointers as C passes them: each type says what the standard lets the callee do with it, and checks for NULL.
//!
//! A program that passes an address which is neither NULL nor what the standard asks for has undefined behaviour before it gets
//! here; that is the contract under which the blocks below are sound. Tests: `tests/hammer.rs` and all of dapltest.

use std::ffi::{c_char, c_void};
use std::net::{IpAddr, SocketAddr};

use dapl::{Error, Result, Sge, Subtype};

use crate::types::Triplet;

/// Where a result goes, or NULL.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// A result's place, as C would pass it.
    ///
    /// # Safety
    /// `place` must be NULL or be valid for writing.
    pub unsafe fn new(place: *mut T) -> Self {
        Self(place)
    }

    /// Whether it is there.
    pub(crate) fn is_some(self) -> bool {
        !self.0.is_null()
    }

    /// The place, which must be there.
    pub(crate) fn required(self, argument: Subtype) -> Result<Self> {
        if self.is_some() { Ok(self) } else { Err(Error::argument(argument)) }
    }

    /// Puts the result there, if there is a place.
    #[inline]
    pub(crate) fn set(self, value: T) {
        if self.is_some() {
            // SAFETY: a program passes NULL or a place for a `T`; not NULL, by the line above.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// What lies there, for arguments that are both.
    pub(crate) fn get(self) -> Option<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }
}

/// An argument that is passed by its address, or NULL.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// An argument, as C would pass it.
    ///
    /// # Safety
    /// `place` must be NULL or hold a `T`.
    pub unsafe fn new(place: *const T) -> Self {
        Self(place)
    }

    /// The argument, if it is there.
    #[inline]
    pub(crate) fn get(self) -> Option<T> {
        // SAFETY: a program passes NULL or the address of a `T`; not NULL, by `then`.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// The argument, which must be there.
    pub(crate) fn required(self, argument: Subtype) -> Result<T> {
        self.get().ok_or(Error::argument(argument))
    }
}

/// Pieces of a request that are looked at without taking memory for them.
const PIECES: usize = 64;
const FEW_PIECES: usize = 4;

impl In<Triplet> {
    /// Runs `body` with `count` pieces.
    ///
    /// # Errors
    /// Argument 2 for a negative number or more than any device takes, 3 for none where there should be some.
    #[inline]
    pub(crate) fn with<R>(self, count: i32, body: impl FnOnce(&[Sge]) -> Result<R>) -> Result<R> {
        let count = usize::try_from(count).ok().filter(|count| *count <= PIECES);
        let count = count.ok_or(Error::argument(Subtype::Arg2))?;
        if count > 0 && self.0.is_null() {
            return Err(Error::argument(Subtype::Arg3));
        }
        if count <= FEW_PIECES {
            body(self.fill(&mut [Sge::default(); FEW_PIECES], count))
        } else {
            body(self.fill(&mut [Sge::default(); PIECES], count))
        }
    }

    #[inline]
    fn fill(self, pieces: &mut [Sge], count: usize) -> &[Sge] {
        for (at, piece) in pieces[..count].iter_mut().enumerate() {
            // SAFETY: a program passes the address of `count` pieces, which is not NULL (checked by `with`).
            let triplet = unsafe { self.0.add(at).read_unaligned() };
            *piece =
                Sge { addr: triplet.virtual_address, length: triplet.segment_length, lkey: triplet.context };
        }
        &pieces[..count]
    }
}

/// Bytes whose number is passed beside them, or NULL.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Bytes(*const c_void);

impl Bytes {
    /// Bytes, as C would pass them.
    ///
    /// # Safety
    /// `place` must be NULL or be valid for as many bytes as is said beside it.
    pub unsafe fn new(place: *const c_void) -> Self {
        Self(place)
    }

    /// A copy of `count` bytes.
    ///
    /// # Errors
    /// `count_argument` for a negative or absurd number, `argument` for NULL with a number.
    pub(crate) fn get(self, count: i32, count_argument: Subtype, argument: Subtype) -> Result<Vec<u8>> {
        const MOST: usize = 1 << 20;
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST);
        let count = count.ok_or(Error::argument(count_argument))?;
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(Error::argument(argument));
        }
        // SAFETY: a program passes the address of `count` bytes, which is not NULL.
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), count) }.to_vec())
    }
}

/// A string, or NULL.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// A string, as C would pass it.
    ///
    /// # Safety
    /// `place` must be NULL or a string that ends with a zero.
    pub unsafe fn new(place: *const c_char) -> Self {
        Self(place)
    }

    /// The string; what is no UTF-8 in it is replaced.
    pub(crate) fn get(self) -> Option<String> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: a program passes NULL or a string with a zero at its end; not NULL, by the line above.
        let text = unsafe { std::ffi::CStr::from_ptr(self.0) };
        Some(text.to_string_lossy().into_owned())
    }
}

/// A socket address, or NULL.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Address(*const libc::sockaddr);

impl Address {
    /// An address, as C would pass it.
    ///
    /// # Safety
    /// `place` must be NULL or hold a socket address of the size that its family says.
    pub unsafe fn new(place: *const c_void) -> Self {
        Self(place.cast())
    }

    /// The address, without its port.
    ///
    /// # Errors
    /// `argument` for NULL; `InvalidAddress` for another family than IPv4 and IPv6.
    pub(crate) fn get(self, argument: Subtype) -> Result<IpAddr> {
        if self.0.is_null() {
            return Err(Error::argument(argument));
        }
        // SAFETY: a program passes NULL or a socket address, which has at least its family; not NULL, by the line above.
        let family = i32::from(unsafe { self.0.read_unaligned() }.sa_family);
        match family {
            libc::AF_INET => {
                // SAFETY: its family says that it has this type.
                let v4 = unsafe { self.0.cast::<libc::sockaddr_in>().read_unaligned() };
                Ok(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { self.0.cast::<libc::sockaddr_in6>().read_unaligned() };
                Ok(IpAddr::from(v6.sin6_addr.s6_addr).to_canonical())
            }
            _ => Err(Error::address()),
        }
    }
}

/// Bytes that a program may read, and change, until they are freed: private data, socket addresses.
#[derive(Debug)]
pub(crate) struct Loan {
    bytes: *mut [u8],
    len: usize,
}

// SAFETY: the bytes are touched by the program only, once lent; this side frees them. Test: `a_loan_is_the_borrowers`.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

/// Programs look at more private data than they were given; what lies there is zero.
const LOAN_LEAST: usize = 512;

impl Loan {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut room = vec![0; bytes.len().max(LOAN_LEAST)].into_boxed_slice();
        room[..bytes.len()].copy_from_slice(bytes);
        Self { bytes: Box::into_raw(room), len: bytes.len() }
    }

    /// A socket address.
    pub(crate) fn address(address: SocketAddr) -> Self {
        Self::new(&encode(address))
    }

    /// Puts another socket address into the same place, if it is another.
    pub(crate) fn set_address(&mut self, address: SocketAddr) {
        let bytes = encode(address);
        // SAFETY: the box is alive, at least as long, and the program only reads addresses. Test: `addresses_go_out_and_come_back`.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.bytes.cast::<u8>(), bytes.len()) };
    }

    pub(crate) fn len(&self) -> i32 {
        self.len as i32
    }

    pub(crate) fn as_ptr(&self) -> *mut c_void {
        self.bytes.cast()
    }
}

/// A socket address as C lays it out.
fn encode(address: SocketAddr) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let family = match address {
        SocketAddr::V4(v4) => {
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            libc::AF_INET
        }
        SocketAddr::V6(v6) => {
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            libc::AF_INET6
        }
    };
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    bytes
}

impl Drop for Loan {
    fn drop(&mut self) {
        // SAFETY: the box was given up by `new`, and is taken back once.
        drop(unsafe { Box::from_raw(self.bytes) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loan_is_the_borrowers() {
        let loan = Loan::new(&[1, 2, 3]);
        // SAFETY: the bytes are lent, and nobody else touches them.
        let bytes = unsafe { std::slice::from_raw_parts_mut(loan.as_ptr().cast::<u8>(), LOAN_LEAST) };
        bytes[1] += 5;
        assert_eq!((&bytes[..4], loan.len()), (&[1, 7, 3, 0][..], 3));
    }

    #[test]
    fn addresses_go_out_and_come_back() {
        for text in ["10.1.2.3:45248", "[fd00::7]:9"] {
            let address: SocketAddr = text.parse().expect("an address");
            let loan = Loan::address(address);
            // SAFETY: a loan of an address is a socket address.
            let back = unsafe { Address::new(loan.as_ptr()) };
            assert_eq!(back.get(Subtype::Arg1), Ok(address.ip()));
        }
        // SAFETY: NULL is allowed.
        let none = unsafe { Address::new(std::ptr::null()) };
        assert_eq!(none.get(Subtype::Arg2), Err(Error::argument(Subtype::Arg2)));
    }
}
