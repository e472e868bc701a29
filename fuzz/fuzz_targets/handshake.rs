//! Arbitrary messages in the authentication handshake between processes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| auth::fuzzing::handshake(data));
