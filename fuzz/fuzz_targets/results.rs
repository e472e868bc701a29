//! Result files, whatever they hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| report::fuzzing::results(data));
