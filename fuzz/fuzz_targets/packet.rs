//! The parser of the shared-memory NIC's connection protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nic_shm::fuzzing::packet(data));
