//! The entry points that the build script generates, and the macro that exports these and all others.

use crate::arg;
use crate::c::*;

/// Exports a function, whose arguments are addresses, under names such as `mpi_send`: `pmpi_send_`, and weakly `mpi_send_`.
macro_rules! entry {
    ($name:ident [$($base:literal)+] ($($argument:ident),*) $(-> $returns:ty)? $body:block) => {
        extern "C-unwind" fn $name($($argument: usize),*) $(-> $returns)? $body
        // In the same module, so that rustc puts both into one object file, where a symbol can alias another.
        $(std::arch::global_asm!(
            concat!(".globl p", $base, "_"),
            concat!(".set p", $base, "_, {0}"),
            concat!(".weak ", $base, "_"),
            concat!(".set ", $base, "_, {0}"),
            sym $name
        );)+
    };
}
pub(crate) use entry;

include!(concat!(env!("OUT_DIR"), "/entry_points.rs"));
