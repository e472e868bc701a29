//! A server's answers, whatever they are.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi::fuzzing::client(data));
