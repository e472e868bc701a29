//! Two connected endpoints, their operations, and damage to the bytes between them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iwarp::fuzzing::connection(data));
