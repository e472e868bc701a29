//! Generates the entry points and the lists of trampolines, and links the library to `libmpi_abi.so.1`, which it finds next to itself.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// How many operators, and how many error handlers, a program may have.
const TRAMPOLINES: usize = 256;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let write = |file: &str, text: String| fs::write(out.join(file), text).expect("cargo made the folder");
    write("entry_points.rs", mpi_fortran::entry_points());
    write("c.rs", mpi_fortran::c_declarations());
    for function in ["operator", "error_handler"] {
        let list: Vec<String> = (0..TRAMPOLINES).map(|slot| format!("{function}::<{slot}>")).collect();
        write(&format!("{function}.rs"), format!("[{}]\n", list.join(", ")));
    }
    write("names.map", "{ global: mpi_*; pmpi_*; nicety_*; };\n".to_owned());
    abi_link::emit(Some("libmpi_abi_fortran.so.1"), Some(&out.join("names.map")));
    link_to_mpi(&out);
}

/// Links the library to a stub with the names of MPI's functions and no code. A program loads the real library, which cargo may build
/// after this one: it does not order two shared libraries of a workspace.
fn link_to_mpi(out: &Path) {
    let (source, library) = (out.join("names.c"), out.join("libmpi_abi.so"));
    let functions = mpi_fortran::c_functions();
    let code: String = functions.iter().map(|name| format!("void {name}(void) {{}}\n")).collect();
    fs::write(&source, code).expect("cargo made the folder");
    let compiler = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let mut cc = Command::new(compiler);
    cc.args(["-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libmpi_abi.so.1", "-o"])
        .arg(&library)
        .arg(&source);
    match cc.status() {
        Ok(status) => assert!(status.success(), "the C compiler cannot make a library: {cc:?}"),
        // Without a linker for this target nothing can be linked, and nothing is: as in `cargo check`.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => panic!("the C compiler {cc:?} cannot be started: {error}"),
    }
    for option in [format!("-L{}", out.display()), "-lmpi_abi".to_owned(), "-Wl,-rpath,$ORIGIN".to_owned()] {
        println!("cargo::rustc-cdylib-link-arg={option}");
    }
}
