//! Bytes of ours that a program may look at: private data, socket addresses.

use std::ffi::c_void;
use std::net::SocketAddr;

use crate::address::encode;

/// Bytes that a program may read, and change, until this is dropped.
#[derive(Debug)]
pub struct Loan {
    bytes: *mut [u8],
    len: usize,
}

// SAFETY: the bytes are touched by the program only, once lent; this side frees them. Test: `a_loan_is_the_borrowers`.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

impl Loan {
    /// Programs look at more than they were given; so many bytes there are at least, zeros behind what was lent.
    pub const LEAST: usize = 512;

    /// Lends a copy of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let mut room = vec![0; bytes.len().max(Self::LEAST)].into_boxed_slice();
        room[..bytes.len()].copy_from_slice(bytes);
        Self { bytes: Box::into_raw(room), len: bytes.len() }
    }

    /// Lends a socket address, laid out as C has it.
    pub fn address(address: SocketAddr) -> Self {
        Self::new(&encode(address))
    }

    /// Puts another socket address into the same place.
    pub fn set_address(&mut self, address: SocketAddr) {
        let bytes = encode(address);
        // SAFETY: the box is alive and at least as long, and a program does not look at an address while it asks for another.
        // Test: `addresses_go_out_and_come_back`.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.bytes.cast::<u8>(), bytes.len()) };
    }

    /// How many bytes were lent; not more than [`crate::Bytes::MOST`] ever are, so that C's `int` holds it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was lent.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where they lie, until this is dropped.
    pub fn as_ptr(&self) -> *mut c_void {
        self.bytes.cast()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // SAFETY: the box was given up by `new`, and is taken back once. Test: all of this file, under Miri.
        drop(unsafe { Box::from_raw(self.bytes) });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SockAddr;

    #[test]
    fn a_loan_is_the_borrowers() {
        let loan = Loan::new(&[1, 2, 3]);
        // SAFETY: the bytes are lent, and nobody else touches them.
        let bytes = unsafe { std::slice::from_raw_parts_mut(loan.as_ptr().cast::<u8>(), Loan::LEAST) };
        bytes[1] += 5;
        assert_eq!((&bytes[..4], loan.len(), loan.is_empty()), (&[1, 7, 3, 0][..], 3, false));
    }

    #[test]
    fn addresses_go_out_and_come_back() {
        let mut loan = Loan::address(SocketAddr::from(([0; 4], 0)));
        for text in ["10.1.2.3:45248", "[fd00::7]:9"] {
            let address: SocketAddr = text.parse().expect("an address");
            loan.set_address(address);
            // SAFETY: a loan of an address is a socket address.
            let back = unsafe { SockAddr::new(loan.as_ptr()) };
            assert_eq!(back.get(), Ok(address));
        }
    }
}
