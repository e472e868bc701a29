//! A PMI process mapping, or any other text.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi::fuzzing::process_mapping(data));
