//! RDMAP messages that are nearly correct, in valid FPDUs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iwarp::fuzzing::rdmap_message(data));
