//! Sets the linker options. The DAT registry unloads providers whose adapters are closed, while threads of a device may still be exiting:
//! the library stays mapped.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    abi_link::emit(None, None);
}
