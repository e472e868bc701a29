//! Messages that are nearly right, in good frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iwarp::fuzzing::rdmap_message(data));
