//! What ranks say, whatever it is.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi::fuzzing::server(data));
