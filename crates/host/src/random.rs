//! [`random`]: unpredictable bits from the kernel.

use std::io;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills an array with random bytes from getrandom(2), which exists since Linux 3.17 and is initialized by the time
/// programs run.
///
/// There is no fallback to /dev/urandom: getrandom(2) is missing only where a system call filter refuses it. That is an
/// error; keys must not be predictable.
///
/// # Errors
/// Text that names the call and the remedy; the error kind is that of the system's error.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let (mut bytes, mut filled) = ([0; N], 0);
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(0) => return Err(refused(Errno::IO)),
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(refused(errno)),
        }
    }
    Ok(bytes)
}

fn refused(errno: Errno) -> io::Error {
    let why = io::Error::from(errno);
    let sentence = format!(
        "the system gives no random numbers (getrandom: {why}), without which no key is secret; allow getrandom(2) in the filter of system \
         calls (seccomp) of this process"
    );
    io::Error::new(why.kind(), sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_every_length_are_filled_and_differ() {
        assert_eq!(random::<0>().expect("nothing"), []);
        let long: [u8; 1000] = random().expect("random bytes");
        assert!(long.chunks(100).all(|part| part.iter().any(|byte| *byte != 0)), "filled to the end");
        let (one, other): ([u8; 16], [u8; 16]) = (random().expect("bytes"), random().expect("bytes"));
        assert_ne!(one, other);
    }
}
