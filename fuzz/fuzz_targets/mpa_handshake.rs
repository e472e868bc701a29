//! A peer's request or reply, whatever it is.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iwarp::fuzzing::mpa_handshake(data));
