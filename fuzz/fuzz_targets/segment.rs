//! A hostile peer of the shared-memory NIC: words of its segment, and operations on it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nic_shm::fuzzing::segment(data));
