//! Sets the linker options: the soname that programs load.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    abi_link::emit(Some("libportals.so"), None);
}
