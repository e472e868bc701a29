//! Calls of a Portals interface in any order, compared with a slow model.
#![no_main]

#[path = "../../crates/portals/tests/program/mod.rs"]
mod program;

libfuzzer_sys::fuzz_target!(|data: &[u8]| program::carry_out(data));
