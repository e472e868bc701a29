//! Datatypes: their contents, which hold numbers that differ, distributed arrays, and structures with MPI 1's bounds.

use crate::c;
use crate::entry::entry;
use crate::{arg, conversion, handle};

/// The constructors whose integers hold an order and distributions, in the standard ABI.
const SUBARRAY: i32 = 111;
const DARRAY: i32 = 112;

/// Distributions and their arguments for the library.
fn distributions(array: usize, dimensions: i32) -> [arg::Items<i32, 8>; 2] {
    let count = if array == 0 { 0 } else { arg::count(dimensions.into()) };
    std::array::from_fn(|_| arg::Items::new(count, 0))
}

fn convert(items: &mut arg::Items<i32, 8>, array: usize, convert: impl Fn(i32) -> i32) -> usize {
    items.all().iter_mut().enumerate().for_each(|(at, item)| *item = convert(arg::read(array, at)));
    items.address()
}

macro_rules! darrays {
    ($($strong:ident $weak:literal $create:ident;)*) => {$(
        entry! { $strong $weak (
            size: i32, rank: i32, ndims: i32, gsizes: usize, distribs: usize, dargs: usize, psizes: usize, order: i32,
            oldtype: i32, newtype: usize
        ) -> i32 {
            let [mut one, mut other] = distributions(if dargs == 0 { 0 } else { distribs }, ndims);
            let distribs = convert(&mut one, distribs, conversion::distribution::to_standard);
            let dargs = convert(&mut other, dargs, conversion::darg::to_standard);
            let mut datatype = 0_usize;
            let (order, oldtype) = (conversion::order::to_standard(order), handle::datatype::to_standard(oldtype));
            let place = arg::place(newtype, &mut datatype);
            let code = c::$create(size, rank, ndims, gsizes, distribs, dargs, psizes, order, oldtype, place);
            if datatype != 0 {
                handle::datatype::put(newtype, datatype);
            }
            arg::finish(code)
        } }
    )*};
}

darrays! {
    PMPI_Type_create_darray "MPI_Type_create_darray" MPI_Type_create_darray;
    PMPI_Type_create_darray_c "MPI_Type_create_darray_c" MPI_Type_create_darray_c;
}

/// Converts the integers in the contents of an array type: its order is the last, and distributions precede it.
///
/// `is_large` is whether sizes are among the large counts, so that they are not among these integers.
fn convert_integers(combiner: i32, integers: usize, count: usize, is_large: bool) {
    let change =
        |at: usize, convert: fn(i32) -> i32| arg::write(integers, at, convert(arg::read(integers, at)));
    if ![SUBARRAY, DARRAY].contains(&combiner) || count == 0 || integers == 0 {
        return;
    }
    change(count - 1, conversion::order::to_mpich);
    if combiner == DARRAY && count > 3 {
        let dimensions = arg::count(arg::read::<i32>(integers, 2).into());
        let first = 3 + if is_large { 0 } else { dimensions };
        (first..first + dimensions).for_each(|at| change(at, conversion::distribution::to_mpich));
        (first + dimensions..first + 2 * dimensions).for_each(|at| change(at, conversion::darg::to_mpich));
    }
}

entry! { PMPI_Type_get_contents "MPI_Type_get_contents" (
    datatype: i32, max_integers: i32, max_addresses: i32, max_datatypes: i32, integers: usize, addresses: usize, datatypes: usize
) -> i32 {
    let handle = handle::datatype::to_standard(datatype);
    let mut types = handle::datatype::List::room(datatypes, arg::count(max_datatypes.into()));
    let code =
        c::MPI_Type_get_contents(handle, max_integers, max_addresses, max_datatypes, integers, addresses, types.address());
    types.put_set(datatypes);
    if code == 0 {
        let [mut count, mut others, mut more, mut combiner] = [0_i32; 4];
        let places = [&mut others, &mut more].map(arg::address_of);
        c::MPI_Type_get_envelope(handle, arg::address_of(&mut count), places[0], places[1], arg::address_of(&mut combiner));
        convert_integers(combiner, integers, arg::count(count.into()), false);
    }
    arg::finish(code)
} }

entry! { PMPI_Type_get_contents_c "MPI_Type_get_contents_c" (
    datatype: i32, max_integers: i64, max_addresses: i64, max_large_counts: i64, max_datatypes: i64, integers: usize,
    addresses: usize, large_counts: usize, datatypes: usize
) -> i32 {
    let handle = handle::datatype::to_standard(datatype);
    let mut types = handle::datatype::List::room(datatypes, arg::count(max_datatypes));
    let code = c::MPI_Type_get_contents_c(
        handle, max_integers, max_addresses, max_large_counts, max_datatypes, integers, addresses, large_counts,
        types.address(),
    );
    types.put_set(datatypes);
    if code == 0 {
        let ([mut count, mut others, mut large, mut more], mut combiner) = ([0_i64; 4], 0_i32);
        let places = [&mut count, &mut others, &mut large, &mut more].map(arg::address_of);
        c::MPI_Type_get_envelope_c(handle, places[0], places[1], places[2], places[3], arg::address_of(&mut combiner));
        convert_integers(combiner, integers, arg::count(count), large > 0);
    }
    arg::finish(code)
} }

/// `MPI_LB` and `MPI_UB`, which MPI 3.0 has removed: markers of bounds in a structure.
const LOWER: i32 = 0x4c00_0010;
const UPPER: i32 = 0x4c00_0011;

/// Creates a structure without its markers, and gives it their bounds.
fn create_with_markers(
    count: i32,
    lengths: usize,
    displacements: usize,
    types: usize,
    newtype: usize,
) -> i32 {
    let (mut kept, mut lower, mut upper) = ((Vec::new(), Vec::new(), Vec::new()), None::<i64>, None::<i64>);
    for at in 0..arg::count(count.into()) {
        let (datatype, displacement): (i32, i64) = (arg::read(types, at), arg::read(displacements, at));
        match datatype {
            LOWER => lower = Some(lower.map_or(displacement, |old| old.min(displacement))),
            UPPER => upper = Some(upper.map_or(displacement, |old| old.max(displacement))),
            _ => {
                kept.0.push(arg::read::<i32>(lengths, at));
                kept.1.push(displacement);
                kept.2.push(handle::datatype::to_standard(datatype));
            }
        }
    }
    let address = |of: *const u8| of.expose_provenance();
    let mut inner = 0_usize;
    let code = c::MPI_Type_create_struct(
        kept.0.len() as i32,
        address(kept.0.as_ptr().cast()),
        address(kept.1.as_ptr().cast()),
        address(kept.2.as_ptr().cast()),
        arg::address_of(&mut inner),
    );
    if code != 0 {
        return code;
    }
    let [mut start, mut extent] = [0_i64; 2];
    let mut outer = 0_usize;
    let code = match c::MPI_Type_get_extent(inner, arg::address_of(&mut start), arg::address_of(&mut extent))
    {
        0 => {
            let (first, end) = (lower.unwrap_or(start), upper.unwrap_or(start + extent));
            c::MPI_Type_create_resized(inner, first, end - first, arg::address_of(&mut outer))
        }
        code => code,
    };
    c::MPI_Type_free(arg::address_of(&mut inner));
    if outer != 0 {
        handle::datatype::put(newtype, outer);
    }
    code
}

entry! { PMPI_Type_create_struct "MPI_Type_create_struct"
(count: i32, lengths: usize, displacements: usize, types: usize, newtype: usize) -> i32 {
    let is_there = [lengths, displacements, types, newtype].iter().all(|place| *place != 0);
    let is_marker = |at: usize| [LOWER, UPPER].contains(&arg::read(types, at));
    if is_there && (0..arg::count(count.into())).any(is_marker) {
        return arg::finish(create_with_markers(count, lengths, displacements, types, newtype));
    }
    let mut list = handle::datatype::List::read(types, arg::count(count.into()));
    let mut datatype = 0_usize;
    let place = arg::place(newtype, &mut datatype);
    let code = c::MPI_Type_create_struct(count, lengths, displacements, list.address(), place);
    if datatype != 0 {
        handle::datatype::put(newtype, datatype);
    }
    arg::finish(code)
} }
