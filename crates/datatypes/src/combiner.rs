//! [`Combiner`]: the constructors (MPI 5.0, section 5.1.13), with their numbers in the ABI.

/// The constructor of a type. Its number is the ABI's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Combiner {
    /// No constructor: the type is predefined.
    Named = 101,
    /// [`Datatype::duplicate`](crate::Datatype::duplicate).
    Dup,
    /// [`Datatype::contiguous`](crate::Datatype::contiguous).
    Contiguous,
    /// [`Datatype::vector`](crate::Datatype::vector).
    Vector,
    /// [`Datatype::hvector`](crate::Datatype::hvector).
    Hvector,
    /// [`Datatype::indexed`](crate::Datatype::indexed).
    Indexed,
    /// [`Datatype::hindexed`](crate::Datatype::hindexed).
    Hindexed,
    /// [`Datatype::indexed_block`](crate::Datatype::indexed_block).
    IndexedBlock,
    /// [`Datatype::hindexed_block`](crate::Datatype::hindexed_block).
    HindexedBlock,
    /// [`Datatype::structure`](crate::Datatype::structure).
    Struct,
    /// [`Datatype::subarray`](crate::Datatype::subarray).
    Subarray,
    /// [`Datatype::darray`](crate::Datatype::darray).
    Darray,
    /// [`Datatype::f90_real`](crate::Datatype::f90_real).
    F90Real,
    /// [`Datatype::f90_complex`](crate::Datatype::f90_complex).
    F90Complex,
    /// [`Datatype::f90_integer`](crate::Datatype::f90_integer).
    F90Integer,
    /// [`Datatype::resized`](crate::Datatype::resized).
    Resized,
    /// [`Datatype::value_index`](crate::Datatype::value_index).
    ValueIndex,
}

impl Combiner {
    /// Its number in the ABI.
    pub const fn abi(self) -> i32 {
        self as i32
    }
}
