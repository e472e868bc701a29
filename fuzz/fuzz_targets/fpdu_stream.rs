//! Arbitrary bytes as a stream of FPDUs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iwarp::fuzzing::fpdu_stream(data));
