//! Functions that MPI 3.0 has removed and MPICH still exports, by their successors.

use crate::c;
use crate::entry::entry;
use crate::{arg, handle};

entry! { PMPI_Address "MPI_Address" (location: usize, address: usize) -> i32 {
    arg::finish(c::MPI_Get_address(location, address))
} }

entry! { PMPI_Errhandler_set "MPI_Errhandler_set" (comm: i32, errhandler: i32) -> i32 {
    let (comm, errhandler) = (handle::comm::to_standard(comm), handle::errhandler::to_standard(errhandler));
    arg::finish(c::MPI_Comm_set_errhandler(comm, errhandler))
} }

entry! { PMPI_Errhandler_get "MPI_Errhandler_get" (comm: i32, errhandler: usize) -> i32 {
    let mut found = 0_usize;
    let place = arg::place(errhandler, &mut found);
    let code = c::MPI_Comm_get_errhandler(handle::comm::to_standard(comm), place);
    if found != 0 {
        handle::errhandler::put(errhandler, found);
    }
    arg::finish(code)
} }

/// Passes a new datatype to the program.
fn create(newtype: usize, create: impl FnOnce(usize) -> i32) -> i32 {
    let mut datatype = 0_usize;
    let code = create(arg::place(newtype, &mut datatype));
    if datatype != 0 {
        handle::datatype::put(newtype, datatype);
    }
    arg::finish(code)
}

entry! { PMPI_Type_hvector "MPI_Type_hvector"
(count: i32, length: i32, stride: i64, oldtype: i32, newtype: usize) -> i32 {
    let oldtype = handle::datatype::to_standard(oldtype);
    create(newtype, |place| c::MPI_Type_create_hvector(count, length, stride, oldtype, place))
} }

entry! { PMPI_Type_hindexed "MPI_Type_hindexed"
(count: i32, lengths: usize, displacements: usize, oldtype: i32, newtype: usize) -> i32 {
    let oldtype = handle::datatype::to_standard(oldtype);
    create(newtype, |place| c::MPI_Type_create_hindexed(count, lengths, displacements, oldtype, place))
} }

entry! { PMPI_Type_struct "MPI_Type_struct"
(count: i32, lengths: usize, displacements: usize, types: usize, newtype: usize) -> i32 {
    crate::types::PMPI_Type_create_struct(count, lengths, displacements, types, newtype)
} }

/// Finds the lower bound and the extent of a datatype, and stores the choice of `select`.
fn bounds(datatype: i32, into: usize, select: impl FnOnce(i64, i64) -> i64) -> i32 {
    let [mut lower, mut extent] = [0_i64; 2];
    let datatype = handle::datatype::to_standard(datatype);
    let code = c::MPI_Type_get_extent(datatype, arg::place(into, &mut lower), arg::address_of(&mut extent));
    if code == 0 {
        arg::write(into, 0, select(lower, extent));
    }
    arg::finish(code)
}

entry! { PMPI_Type_extent "MPI_Type_extent" (datatype: i32, extent: usize) -> i32 {
    bounds(datatype, extent, |_, extent| extent)
} }

entry! { PMPI_Type_lb "MPI_Type_lb" (datatype: i32, displacement: usize) -> i32 {
    bounds(datatype, displacement, |lower, _| lower)
} }

entry! { PMPI_Type_ub "MPI_Type_ub" (datatype: i32, displacement: usize) -> i32 {
    bounds(datatype, displacement, |lower, extent| lower + extent)
} }
