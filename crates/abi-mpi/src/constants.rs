//! The constants of the standard ABI, from constants.txt: handles and addresses as `usize`, all others as `i32`.
#![allow(dead_code)] // the table is complete, even if only a part is used

include!(concat!(env!("OUT_DIR"), "/constants.rs"));
