//! A hostile TCP peer of an iWARP queue pair.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nic_iwarp::fuzzing::queue_pair(data));
