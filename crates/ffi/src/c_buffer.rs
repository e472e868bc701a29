//! Buffers of ours that a program may read: private data, socket addresses.

use std::ffi::c_void;
use std::net::SocketAddr;

use crate::address::encode;

/// Bytes that a program may read and change until this is dropped.
#[derive(Debug)]
pub struct CBuffer {
    bytes: *mut [u8],
    len: usize,
}

// SAFETY: only the program accesses the bytes after `new`; this side frees them. Test: `c_buffer_may_be_changed_by_the_program`.
unsafe impl Send for CBuffer {}
// SAFETY: as above.
unsafe impl Sync for CBuffer {}

impl CBuffer {
    /// The least size of a buffer, padded with zeros: programs read past the bytes they were given.
    pub const LEN_MIN: usize = 512;

    /// A new buffer with a copy of `bytes`.
    pub fn new(bytes: &[u8]) -> Self {
        let mut room = vec![0; bytes.len().max(Self::LEN_MIN)].into_boxed_slice();
        room[..bytes.len()].copy_from_slice(bytes);
        Self { bytes: Box::into_raw(room), len: bytes.len() }
    }

    /// A buffer with a socket address in C's layout.
    pub fn address(address: SocketAddr) -> Self {
        Self::new(&encode(address))
    }

    /// Overwrites the buffer with another socket address.
    pub fn set_address(&mut self, address: SocketAddr) {
        let bytes = encode(address);
        // SAFETY: the box is alive and at least this long, and a program does not read an address while it asks for another one. Test:
        // `addresses_are_read_as_written`.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.bytes.cast::<u8>(), bytes.len()) };
    }

    /// The length without padding; at most [`crate::Bytes::LEN_MAX`], so that it fits C's `int`.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length without padding is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the bytes, valid until this is dropped.
    pub fn as_ptr(&self) -> *mut c_void {
        self.bytes.cast()
    }
}

impl Drop for CBuffer {
    fn drop(&mut self) {
        // SAFETY: `new` leaked the box, and it is freed once. Test: all of this file, under Miri.
        drop(unsafe { Box::from_raw(self.bytes) });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SockAddr;

    #[test]
    fn c_buffer_may_be_changed_by_the_program() {
        let buffer = CBuffer::new(&[1, 2, 3]);
        // SAFETY: the buffer is alive, and nothing else accesses it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.as_ptr().cast::<u8>(), CBuffer::LEN_MIN) };
        bytes[1] += 5;
        assert_eq!((&bytes[..4], buffer.len(), buffer.is_empty()), (&[1, 7, 3, 0][..], 3, false));
    }

    #[test]
    fn addresses_are_read_as_written() {
        let mut buffer = CBuffer::address(SocketAddr::from(([0; 4], 0)));
        for text in ["10.1.2.3:45248", "[fd00::7]:9"] {
            let address: SocketAddr = text.parse().expect("an address");
            buffer.set_address(address);
            // SAFETY: the buffer holds a socket address.
            let back = unsafe { SockAddr::new(buffer.as_ptr()) };
            assert_eq!(back.get(), Ok(address));
        }
    }
}
