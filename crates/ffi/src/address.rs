//! Socket addresses in C's layout.

use std::ffi::c_void;
use std::net::{IpAddr, SocketAddr};

/// A socket address, or NULL.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct SockAddr(*const c_void);

/// Why an address is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadAddress {
    /// It is a NULL pointer.
    Missing,
    /// Its family is neither IPv4 nor IPv6.
    Family(u16),
}

/// The bytes of `sockaddr_in` and `sockaddr_in6` that are read: family, port, address.
const V4_BYTES: usize = 8;
const V6_BYTES: usize = 24;

const AF_INET: u16 = libc::AF_INET as u16;
const AF_INET6: u16 = libc::AF_INET6 as u16;

impl SockAddr {
    /// An address, as C passes it.
    ///
    /// # Safety
    /// `place` must be NULL or hold a socket address of its family's size, for as long as this is used.
    pub unsafe fn new(place: *const c_void) -> Self {
        Self(place)
    }

    /// The address and its port. An IPv4-mapped IPv6 address is returned as IPv4.
    ///
    /// # Errors
    /// [`BadAddress`], if the pointer is NULL or the family is unknown.
    pub fn get(self) -> Result<SocketAddr, BadAddress> {
        if self.0.is_null() {
            return Err(BadAddress::Missing);
        }
        let family = u16::from_ne_bytes(self.bytes());
        let ip = match family {
            AF_INET => {
                let [.., a, b, c, d] = self.bytes::<V4_BYTES>();
                IpAddr::from([a, b, c, d])
            }
            AF_INET6 => {
                let bytes: [u8; V6_BYTES] = self.bytes();
                let ip: [u8; 16] = std::array::from_fn(|at| bytes[8 + at]);
                IpAddr::from(ip).to_canonical()
            }
            other => return Err(BadAddress::Family(other)),
        };
        let [_, _, high, low] = self.bytes();
        Ok(SocketAddr::new(ip, u16::from_be_bytes([high, low])))
    }

    /// An address in C's layout, padded to the size of the largest.
    pub fn encode(address: SocketAddr) -> [u8; 28] {
        encode(address)
    }

    /// Its first `N` bytes: two for the family, or the size of its family.
    fn bytes<const N: usize>(self) -> [u8; N] {
        // SAFETY: not NULL (checked by `get`), and a program passes an address of its family's size. Test:
        // `addresses_are_read_as_written` in `c_buffer.rs`.
        unsafe { self.0.cast::<[u8; N]>().read_unaligned() }
    }
}

/// A socket address in C's layout, padded to the size of the largest.
pub(crate) fn encode(address: SocketAddr) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let family = match address {
        SocketAddr::V4(v4) => {
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            AF_INET
        }
        SocketAddr::V6(v6) => {
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            AF_INET6
        }
    };
    bytes[..2].copy_from_slice(&family.to_ne_bytes());
    bytes
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn invalid_addresses_are_reported() {
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { SockAddr::new(std::ptr::null()) }.get(), Err(BadAddress::Missing));
        let unix = (libc::AF_UNIX as u16).to_ne_bytes();
        // SAFETY: for other families, only the family is read.
        let address = unsafe { SockAddr::new(unix.as_ptr().cast()) };
        assert_eq!(address.get(), Err(BadAddress::Family(libc::AF_UNIX as u16)));
    }

    #[test]
    fn layout_equals_that_of_libc() {
        use std::mem::offset_of;
        assert_eq!(
            (offset_of!(libc::sockaddr_in, sin_family), offset_of!(libc::sockaddr_in, sin_port)),
            (0, 2)
        );
        assert_eq!(
            (offset_of!(libc::sockaddr_in, sin_addr), size_of::<libc::sockaddr_in>() >= V4_BYTES),
            (4, true)
        );
        assert_eq!(
            (offset_of!(libc::sockaddr_in6, sin6_port), offset_of!(libc::sockaddr_in6, sin6_addr)),
            (2, 8)
        );
        assert_eq!(size_of::<libc::sockaddr_in6>(), encode(SocketAddr::from(([0; 16], 0))).len());
    }
}
