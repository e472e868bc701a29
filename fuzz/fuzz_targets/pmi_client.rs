//! Arbitrary answers of a PMI server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi::fuzzing::client(data));
