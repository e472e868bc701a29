//! The Fortran bindings of MPI 5.0 as texts, generated from the C prototypes of the ABI and one table of what they do not say.
//!
//! | function | what it generates | used by |
//! |---|---|---|
//! | [`entry_points`], [`c_declarations`] | Rust code: `mpi_send_` and the others | the build script of abi-mpi-fortran |
//! | [`sources`] | `mpif.h` and the modules `mpi` and `mpi_f08` | `nicety mpifort`, which compiles them at the first use of a compiler |
//!
//! The modules hold interfaces and constants only, no code. A compiler therefore has to read them, and nothing of theirs is linked: the
//! library has all entry points, for every compiler with gfortran's conventions.
//!
//! [`table`] is also what the library for programs of MPICH's ABI is generated from. fortran.txt describes its format. It adds to functions.txt and constants.txt of abi-mpi.

#![forbid(unsafe_code)]

mod constants;
mod entry;
mod interface;
mod source;
pub mod table;

pub use entry::{c_declarations, entry_points};
pub use source::{Source, sources};

/// The names of all functions of C that entry points call.
pub fn c_functions() -> Vec<String> {
    let conversion = |(_, kind): (&str, &str)| ["toint", "fromint"].map(|way| format!("MPI_{kind}_{way}"));
    let functions = table::prototypes().into_iter().map(|function| function.name);
    functions.chain(entry::HANDLES.into_iter().flat_map(conversion)).collect()
}

/// The names of all functions with a Fortran binding, as in C: `MPI_Send`.
pub fn bound_functions() -> Vec<String> {
    table::functions().into_iter().map(|function| function.name).collect()
}
