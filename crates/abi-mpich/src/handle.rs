//! Handles: integers in MPICH's ABI, and words in the standard's. Files are addresses in both.
//!
//! A handle that is not predefined is the integer of the standard's own conversion, moved to where MPICH has no predefined handles. The
//! integers of requests are above 2^30 in our library, so that they can stay as they are.

use crate::{arg, c, conversion};

/// Where a program's handles begin, as integers.
const OWN: i32 = 0x9000_0000_u32 as i32;
const OWN_REQUESTS: i32 = 0;
/// Predefined handles of the standard ABI, and their integers, are below this number.
const PREDEFINED: usize = 0x1000;
/// A handle that no call accepts.
const INVALID: usize = usize::MAX;

/// MPICH's `MPI_REAL2`, and the standard's. constants.txt has the value of MPICH's own `MPIX_C_FLOAT16` for it, which has the same format
/// and is known to programs in C: calls return it.
const REAL2_OF_MPICH: i32 = 0x4c00_0226;
const REAL2: usize = 0x2ca;

/// The standard's handle for a program's own object.
fn own_to_standard(handle: i32, own: i32, from_integer: impl FnOnce(i32) -> usize) -> usize {
    let integer = handle.wrapping_sub(own);
    if integer >= PREDEFINED as i32 {
        from_integer(integer)
    } else if (0..PREDEFINED as i32).contains(&handle) {
        // A predefined handle that MPICH lacks has kept its value.
        handle as usize
    } else if handle == REAL2_OF_MPICH {
        REAL2
    } else {
        INVALID
    }
}

macro_rules! handles {
    ($($kind:ident $own:ident $from:ident $to:ident;)*) => {$(
        /// Handles of a kind.
        #[allow(dead_code, reason = "not every kind is passed in every way")]
        pub(crate) mod $kind {
            use super::*;

            /// The standard's handle.
            #[inline(always)]
            pub(crate) fn to_standard(handle: i32) -> usize {
                match conversion::$kind::frequent(handle) {
                    Some(standard) => standard,
                    None => other_to_standard(handle),
                }
            }

            /// Out of line, so that the usual path of an entry point saves no registers.
            #[cold]
            #[inline(never)]
            fn other_to_standard(handle: i32) -> usize {
                match conversion::$kind::predefined(handle) {
                    Some(standard) => standard,
                    None => own_to_standard(handle, $own, |integer| c::$from(integer)),
                }
            }

            /// MPICH's handle.
            #[inline]
            pub(crate) fn to_mpich(handle: usize) -> i32 {
                match conversion::$kind::predefined_to_mpich(handle) {
                    Some(mpich) => mpich,
                    None if handle < PREDEFINED => handle as i32,
                    None => c::$to(handle).wrapping_add($own),
                }
            }

            /// The standard's handle for one at an address; 0 if there is none.
            #[inline]
            pub(crate) fn read(place: usize) -> usize {
                if place == 0 { 0 } else { to_standard(arg::read(place, 0)) }
            }

            /// Stores a handle at an address.
            #[inline]
            pub(crate) fn put(place: usize, handle: usize) {
                arg::write(place, 0, to_mpich(handle));
            }

            /// The standard's handles for an array of the program.
            pub(crate) struct List(arg::Items<usize, 64>);

            impl List {
                /// Reads an array; an address of 0 stays 0.
                pub(crate) fn read(array: usize, count: usize) -> Self {
                    let mut items = arg::Items::new(if array == 0 { 0 } else { count }, 0);
                    for (at, item) in items.all().iter_mut().enumerate() {
                        *item = to_standard(arg::read(array, at));
                    }
                    Self(items)
                }

                /// Its address for a call.
                pub(crate) fn address(&mut self) -> usize {
                    self.0.address()
                }

                /// Stores the handles that a call has made predefined: handles of requests that have ended.
                pub(crate) fn put_ended(&mut self, array: usize) {
                    let ended = self.0.all().iter().enumerate().filter(|(_, handle)| **handle < PREDEFINED);
                    ended.for_each(|(at, handle)| arg::write(array, at, to_mpich(*handle)));
                }

                /// Stores the handles that a call has set.
                pub(crate) fn put_set(&mut self, array: usize) {
                    let set = self.0.all().iter().enumerate().filter(|(_, handle)| **handle != 0);
                    set.for_each(|(at, handle)| arg::write(array, at, to_mpich(*handle)));
                }

                /// Room for handles that a call returns.
                pub(crate) fn room(array: usize, count: usize) -> Self {
                    Self(arg::Items::new(if array == 0 { 0 } else { count }, 0))
                }
            }
        }
    )*};
}

handles! {
    comm OWN MPI_Comm_fromint MPI_Comm_toint;
    datatype OWN MPI_Type_fromint MPI_Type_toint;
    errhandler OWN MPI_Errhandler_fromint MPI_Errhandler_toint;
    group OWN MPI_Group_fromint MPI_Group_toint;
    info OWN MPI_Info_fromint MPI_Info_toint;
    message OWN MPI_Message_fromint MPI_Message_toint;
    op OWN MPI_Op_fromint MPI_Op_toint;
    request OWN_REQUESTS MPI_Request_fromint MPI_Request_toint;
    session OWN MPI_Session_fromint MPI_Session_toint;
    win OWN MPI_Win_fromint MPI_Win_toint;
}

/// Files: only `MPI_FILE_NULL` differs.
pub(crate) mod file {
    use crate::arg;

    /// `MPI_FILE_NULL` of the standard ABI, and of MPICH's.
    const NULL: usize = 0x118;
    const NULL_OF_MPICH: usize = 0;

    /// The standard's handle.
    pub(crate) fn to_standard(file: usize) -> usize {
        if file == NULL_OF_MPICH { NULL } else { file }
    }

    /// The file's handle in MPICH's ABI.
    pub(crate) fn to_mpich(file: usize) -> usize {
        if file == NULL { NULL_OF_MPICH } else { file }
    }

    /// The standard's handle for one at an address; 0 if there is none.
    pub(crate) fn read(place: usize) -> usize {
        if place == 0 { 0 } else { to_standard(arg::read(place, 0)) }
    }

    /// Stores a handle at an address.
    pub(crate) fn put(place: usize, file: usize) {
        arg::write(place, 0, to_mpich(file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predefined_handles_convert_and_others_are_refused() {
        assert_eq!((comm::to_standard(0x4400_0000), comm::to_mpich(0x101)), (0x101, 0x4400_0000));
        // MPI_INT, MPI_FLOAT_INT, MPI_DATATYPE_NULL, MPI_LOGICAL16.
        for (mpich, standard) in [
            (0x4c00_0405, 0x209),
            (0x8c00_0000_u32 as i32, 0x228),
            (0x0c00_0000, 0x200),
            (0x4c00_104b, 0x2e0),
        ] {
            assert_eq!((datatype::to_standard(mpich), datatype::to_mpich(standard)), (standard, mpich));
        }
        for wrong in [0x4c00_0404, 0x4400_0002, i32::MIN, 0x7fff_ffff] {
            assert_eq!(datatype::to_standard(wrong), INVALID, "{wrong:#x}");
        }
        assert_eq!((request::to_standard(0x2c00_0000), request::to_mpich(0x180)), (0x180, 0x2c00_0000));
        assert_eq!([0x4c00_0246, REAL2_OF_MPICH].map(datatype::to_standard), [REAL2; 2]);
        // A request that has completed immediately keeps its handle.
        assert_eq!((request::to_standard(0x181), request::to_mpich(0x181)), (0x181, 0x181));
        assert_eq!((file::to_standard(0), file::to_mpich(0x118), file::to_standard(5)), (0x118, 0, 5));
    }
}
