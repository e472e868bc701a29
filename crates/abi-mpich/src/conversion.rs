//! The conversions of constants, which the build script generates from constants.txt: from MPICH's ABI to the standard's, and back.
#![allow(dead_code, reason = "some constants pass in one direction only")]

include!(concat!(env!("OUT_DIR"), "/conversions.rs"));
