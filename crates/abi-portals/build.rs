//! Sets the linker options: the soname that programs load, with the version of the specification.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    abi_link::emit(Some("libportals.so.4"), None);
}
