//! Linker options of the libraries for C. Their build scripts call [`emit`].

#![forbid(unsafe_code)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target for which rustc itself links with lld.
const LINKED_BY_LLD: &str = "x86_64-unknown-linux-gnu";

/// Prints the options for a library, as cargo reads them.
///
/// `soname` is the name that programs load. `script` is a version script in addition to rustc's, which makes everything local that it
/// does not list: versioned symbols and weak aliases.
///
/// # Panics
/// Outside of a build script.
pub fn emit(soname: Option<&str>, script: Option<&Path>) {
    // Threads of a device may still be exiting when a program unloads the library.
    option("-Wl,-z,nodelete");
    if let Some(soname) = soname {
        option(&format!("-Wl,-soname,{soname}"));
    }
    let Some(script) = script else { return };
    option(&format!("-Wl,--version-script={}", script.display()));
    if variable("TARGET") != LINKED_BY_LLD {
        select_lld();
    }
}

/// Selects lld: other linkers do not accept a second version script.
fn select_lld() {
    option("-fuse-ld=lld");
    if let Some(folder) = lld_of_rustc() {
        option(&format!("-B{}", folder.display()));
    }
}

/// The folder in which rustc ships lld for its own use; without it, the compiler finds lld in the search path.
fn lld_of_rustc() -> Option<PathBuf> {
    let said = Command::new(variable("RUSTC")).args(["--print", "sysroot"]).output().ok()?;
    let sysroot = String::from_utf8(said.stdout).ok()?;
    let folder = Path::new(sysroot.trim()).join("lib/rustlib").join(variable("HOST")).join("bin/gcc-ld");
    folder.join("ld.lld").exists().then_some(folder)
}

fn option(word: &str) {
    println!("cargo::rustc-cdylib-link-arg={word}");
}

/// A variable that cargo sets for build scripts.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: only build scripts may call this"))
}
