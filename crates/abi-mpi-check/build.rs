//! Generates the names of predefined datatypes and operators from the table of the standard ABI.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

const TABLE: &str = "../abi-mpi/constants.txt";

fn main() {
    println!("cargo::rerun-if-changed={TABLE}");
    let table = fs::read_to_string(TABLE).expect("abi-mpi has this table");
    let mut text = String::from("&[\n");
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [name, "(MPI_Datatype)" | "(MPI_Op)", value] = words[..] {
            let _ = writeln!(text, "    ({value}, \"{name}\"),");
        }
    }
    text.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("names.rs"), text).expect("cargo made the folder");
    abi_link::emit(None, None);
}
