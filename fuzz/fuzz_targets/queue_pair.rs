//! A hostile peer of a queue pair of the iWARP device, over TCP.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nic_iwarp::fuzzing::queue_pair(data));
