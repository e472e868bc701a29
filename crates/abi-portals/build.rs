//! Gives the library the name that programs look for, and keeps it mapped once it is loaded: its thread may still be on its way out
//! when a program unloads it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libportals.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
