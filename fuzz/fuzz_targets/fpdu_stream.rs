//! Any bytes where FPDUs should be.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iwarp::fuzzing::fpdu_stream(data));
