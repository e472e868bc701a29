//! Keeps the library mapped once it is loaded: the registry unloads providers whose adapters are closed, while threads of a
//! device may still be exiting.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
