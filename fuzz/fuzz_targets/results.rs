//! Arbitrary contents of result files.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| report::fuzzing::results(data));
