//! Arbitrary requests of ranks to the PMI server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pmi::fuzzing::server(data));
