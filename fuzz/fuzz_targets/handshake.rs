//! Messages by which processes prove who they are, whatever they say.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| auth::fuzzing::handshake(data));
