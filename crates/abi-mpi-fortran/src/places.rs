//! Places in memory by whose addresses the library knows special arguments, such as `MPI_BOTTOM`.
//!
//! `mpif.h` has them as common blocks, and the modules as variables of C. A program has its own copy of a common block, to which the
//! dynamic linker binds this library too: addresses are therefore read through symbols at run time.

use std::sync::atomic::{AtomicI32, AtomicU8};

macro_rules! places {
    ($($get:ident $symbol:ident [$kind:ident; $length:literal];)*) => {
        $(
            // SAFETY: these names belong to the Fortran bindings of MPI; the storage is only an address. Test:
            // `special_arguments_have_one_address`.
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals)]
            static $symbol: [$kind; $length] = [const { $kind::new(0) }; $length];

            #[inline]
            pub(crate) fn $get() -> usize {
                $symbol.as_ptr().addr()
            }
        )*
    };
}

places! {
    bottom mpi_fortran_bottom_ [AtomicI32; 1];
    in_place mpi_fortran_in_place_ [AtomicI32; 1];
    buffer_automatic mpi_fortran_buffer_automatic_ [AtomicI32; 1];
    unweighted mpi_fortran_unweighted_ [AtomicI32; 1];
    weights_empty mpi_fortran_weights_empty_ [AtomicI32; 1];
    errcodes_ignore mpi_fortran_errcodes_ignore_ [AtomicI32; 1];
    argv_null mpi_fortran_argv_null_ [AtomicU8; 1];
    argvs_null mpi_fortran_argvs_null_ [AtomicU8; 1];
    status_ignore mpi_fortran_status_ignore_ [AtomicI32; 8];
    statuses_ignore mpi_fortran_statuses_ignore_ [AtomicI32; 8];
    f08_status_ignore mpi_f08_status_ignore_ [AtomicI32; 8];
    f08_statuses_ignore mpi_f08_statuses_ignore_ [AtomicI32; 8];
}

/// The statuses that a program ignores, in all interfaces.
#[inline]
pub(crate) fn ignored_statuses() -> [usize; 4] {
    [status_ignore(), statuses_ignore(), f08_status_ignore(), f08_statuses_ignore()]
}
