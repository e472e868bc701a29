//! Generates the entry points, the conversions of constants, and the lists of trampolines, and sets the soname that programs expect.

mod generate;

use std::path::PathBuf;
use std::{env, fs};

/// How many operators, and how many error handlers, a program may have.
const TRAMPOLINES: usize = 256;

fn main() {
    for file in ["build.rs", "generate", "constants.txt", "words.txt", "../abi-mpi/constants.txt"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let write = |file: &str, text: String| fs::write(out.join(file), text).expect("cargo made the folder");
    let constants = generate::Constants::read();
    write("conversions.rs", constants.conversions());
    write("entry_points.rs", generate::entry_points(&constants));
    write("functions.rs", generate::functions());
    for function in ["operator", "error_handler"] {
        let list: Vec<String> = (0..TRAMPOLINES).map(|slot| format!("{function}::<{slot}>")).collect();
        write(&format!("{function}.rs"), format!("[{}]\n", list.join(", ")));
    }
    write("weak.map", "{ global: MPI_*; MPIX_*; };\n".to_owned());
    abi_link::emit(Some("libmpi.so.12"), Some(&out.join("weak.map")));
}
