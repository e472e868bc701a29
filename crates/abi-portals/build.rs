//! Sets the soname that programs link to, and keeps the library mapped once loaded: its thread may still be
//! exiting when a program unloads it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libportals.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
