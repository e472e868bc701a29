//! Variables that programs of MPICH's ABI read: special addresses, which other ABIs have as constants.

use std::sync::atomic::{AtomicI32, AtomicPtr};

use crate::status::WORDS;

type Words = [AtomicI32; WORDS];
/// The address of such words, in memory that a program may write.
type Place = AtomicPtr<Words>;

const fn place(words: &'static Words) -> Place {
    AtomicPtr::new(std::ptr::from_ref(words).cast_mut())
}

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident: $kind:ty = $value:expr;)*) => {$(
        $(#[$doc])*
        // SAFETY: names of MPICH's; a program may have its own copy of the variable, with the same value. Test: `programs_run` of graph.c.
        #[unsafe(no_mangle)]
        static $name: $kind = $value;
    )*};
}

/// Storage: only the addresses count.
static IGNORED: [Words; 2] = [const { [const { AtomicI32::new(0) }; WORDS] }; 2];

places! {
    /// The standard's own values, so that weights need no conversion.
    MPI_UNWEIGHTED: usize = 10;
    MPI_WEIGHTS_EMPTY: usize = 11;
    MPI_T_PVAR_ALL_HANDLES: usize = 1;
    /// MPICH's library for Fortran stores its own addresses here.
    MPI_F_STATUS_IGNORE: Place = place(&IGNORED[0]);
    MPI_F_STATUSES_IGNORE: Place = place(&IGNORED[1]);
    MPIR_F08_MPI_STATUS_IGNORE_OBJ: Words = [const { AtomicI32::new(0) }; WORDS];
    MPIR_F08_MPI_STATUSES_IGNORE_OBJ: Words = [const { AtomicI32::new(0) }; WORDS];
    MPI_F08_STATUS_IGNORE: Place = place(&MPIR_F08_MPI_STATUS_IGNORE_OBJ);
    MPI_F08_STATUSES_IGNORE: Place = place(&MPIR_F08_MPI_STATUSES_IGNORE_OBJ);
    MPIR_F08_MPI_IN_PLACE: AtomicI32 = AtomicI32::new(0);
    MPIR_F08_MPI_BOTTOM: AtomicI32 = AtomicI32::new(0);
}
