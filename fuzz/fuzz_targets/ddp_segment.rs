//! Any bytes where DDP segments should be, in good frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iwarp::fuzzing::ddp_segment(data));
