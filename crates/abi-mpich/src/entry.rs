//! The entry points that the build script generates, and the macro that exports these and all others.

use crate::{arg, c, code, conversion, handle, status};

/// Exports a function under its strong name `PMPI_Send`, and weakly as `MPI_Send`.
macro_rules! entry {
    ($strong:ident $weak:literal ($($argument:ident: $kind:ty),*) -> $returns:ty $body:block) => {
        // SAFETY: these are MPI's names and MPICH's signatures; no other library of a program defines them, unless it replaces this one.
        // Test: `every_function_is_exported_under_both_names`.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub(crate) extern "C-unwind" fn $strong($($argument: $kind),*) -> $returns $body
        // In the same module, so that rustc puts both into one object file, where a symbol can alias another.
        std::arch::global_asm!(concat!(".weak ", $weak), concat!(".set ", $weak, ", {0}"), sym $strong);
    };
}
pub(crate) use entry;

include!(concat!(env!("OUT_DIR"), "/entry_points.rs"));
