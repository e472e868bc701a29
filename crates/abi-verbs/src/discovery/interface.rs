//! Finds the network interface of this host that has an address.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::null_mut;

use ffi::SockAddr;
use rustix::net::{AddressFamily, SocketType, netdevice, socket};

/// The name of the interface that has this address; without an address, the loopback interface.
pub(crate) fn name_of(address: Option<IpAddr>) -> Option<String> {
    let wanted = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let mut first: *mut libc::ifaddrs = null_mut();
    // SAFETY: fills in a list that is freed below. Test: `the_interface_of_an_address_is_found`.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return None;
    }
    let (mut next, mut found) = (first, None);
    while !next.is_null() && found.is_none() {
        // SAFETY: an entry of the list: its name is a C string, and its address is valid or NULL. Test: as above.
        let (entry, address) = unsafe { (&*next, SockAddr::new((*next).ifa_addr.cast())) };
        if address.get().is_ok_and(|address| address.ip() == wanted) {
            // SAFETY: as above. Test: as above.
            found = Some(unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned());
        }
        next = entry.ifa_next;
    }
    // SAFETY: frees the list from above, with no references left. Test: as above.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// The index of the interface with this name.
pub(crate) fn index(name: &str) -> Option<u32> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    netdevice::name_to_index(any, name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_an_address_is_found() {
        let of = |text: &str| super::name_of(Some(text.parse().expect("an address")));
        assert_eq!((super::name_of(None).as_deref(), of("127.0.0.1").as_deref()), (Some("lo"), Some("lo")));
        assert_eq!(of("203.0.113.77"), None);
    }

    #[test]
    fn an_interface_has_a_number() {
        assert!(index("lo").is_some_and(|index| index > 0));
        assert_eq!(index("none"), None);
    }
}
