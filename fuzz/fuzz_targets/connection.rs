//! Two ends, their operations, and damage between them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iwarp::fuzzing::connection(data));
