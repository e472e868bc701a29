//! Arbitrary bytes as a peer's MPA request or reply.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iwarp::fuzzing::mpa_handshake(data));
