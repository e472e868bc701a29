//! What is asked of the library and of the machine: versions, time, addresses.

use std::sync::OnceLock;

use cface::Out;
use host::Host;

use crate::answer::Answer;
use crate::constants::{MPI_ABI_SUBVERSION, MPI_ABI_VERSION, MPI_SUBVERSION, MPI_VERSION};
use crate::types::Address;

pub(crate) fn abi_get_version(major: Out<i32>, minor: Out<i32>) -> Answer {
    major.set(MPI_ABI_VERSION);
    minor.set(MPI_ABI_SUBVERSION);
    Ok(())
}

pub(crate) fn get_version(version: Out<i32>, subversion: Out<i32>) -> Answer {
    version.set(MPI_VERSION);
    subversion.set(MPI_SUBVERSION);
    Ok(())
}

pub(crate) fn get_library_version(version: Out<u8>, resultlen: Out<i32>) -> Answer {
    resultlen.set(put_text(version, concat!("Nicety ", env!("CARGO_PKG_VERSION")), LIBRARY_VERSION_MAX));
    Ok(())
}

/// `MPI_MAX_LIBRARY_VERSION_STRING`, with the zero.
const LIBRARY_VERSION_MAX: usize = crate::constants::MPI_MAX_LIBRARY_VERSION_STRING as usize;

/// Puts a string with a zero behind it into `room` bytes, cut if it is longer; its length without the zero.
pub(crate) fn put_text(place: Out<u8>, text: &str, room: usize) -> i32 {
    let Some(most) = room.checked_sub(1) else { return 0 };
    let end = text.floor_char_boundary(most);
    text.bytes().take(end).chain([0]).enumerate().for_each(|(at, byte)| place.nth(at).set(byte));
    end as i32
}

/// The host, whose clock programs see.
pub(crate) fn host() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(host::real::host)
}

pub(crate) fn wtime() -> f64 {
    host().now().since(host::Time::ZERO).as_secs_f64()
}

/// The clock's unit: picoseconds, in which it counts.
pub(crate) fn wtick() -> f64 {
    1e-9
}

pub(crate) fn aint_add(base: i64, disp: i64) -> i64 {
    base.wrapping_add(disp)
}

pub(crate) fn aint_diff(a: i64, b: i64) -> i64 {
    a.wrapping_sub(b)
}

pub(crate) fn get_address(location: Address, address: Out<i64>) -> Answer {
    address.set(location.0 as i64);
    Ok(())
}

/// Profiling is the business of whoever puts itself before this library.
pub(crate) fn pcontrol(_level: i32) -> Answer {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut room = [7_u8; 6];
        // SAFETY: six bytes, and no more are used.
        let place = unsafe { Out::new(room.as_mut_ptr()) };
        assert_eq!(put_text(place, "abcdé", 6), 4);
        assert_eq!(room, *b"abcd\0\x07");
        assert_eq!((put_text(place, "xy", 0), put_text(place, "xy", 1), room[0]), (0, 0, 0));
    }
}
