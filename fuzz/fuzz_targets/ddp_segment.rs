//! Arbitrary bytes as DDP segments, in valid FPDUs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iwarp::fuzzing::ddp_segment(data));
